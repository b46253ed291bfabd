//! Endpoints: one PE's side of a group over MPI.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use syncline_sync::lock;
use syncline_transport::{
    Composite, ControlPlane, DataPlane, Endpoint, Failure, Fill, Header, MemoryPlane, Phase, Shape,
    Take, Ticket, Transport, Wait, Window, WindowId,
};

use crate::control::Control;
use crate::inbox::Inbox;
use crate::lines::Lines;
use crate::probe::Probe;
use crate::progress::{Incoming, Progress, Slot};
use crate::world::Shared;

/// How long a PE waits in one go before it returns to its caller.
const SLICE: Duration = Duration::from_millis(20);

/// How often somebody looks for news while this PE is busy with something else.
const IDLE: Duration = Duration::from_millis(2);

/// How long a PE that failed waits for the arbiter's word on whose failure it is.
const VERDICT: Duration = Duration::from_secs(2);

/// The PE that decides which refits are committed, and which failure was first.
pub(crate) const ARBITER: usize = 0;

/// One PE's side of a group over MPI.
///
/// Dropping it leaves the group; PEs that still need it then fail with [`Failure::PeerLeft`].
pub struct MpiEndpoint {
    inner: Inner,
    probe: Option<Probe>,
}

enum Inner {
    /// Every PE is on this host: its memory is all that is needed. MPI ends when the world is
    /// dropped.
    Host {
        endpoint: Endpoint,
        _world: Arc<Shared>,
    },
    Group(Arc<Group>, Option<JoinHandle<()>>),
}

impl std::fmt::Debug for MpiEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MpiEndpoint({} of {}, {})", self.rank(), self.shape().size, self.way())
    }
}

impl MpiEndpoint {
    pub(crate) fn on_one_host(world: Arc<Shared>, endpoint: Endpoint) -> Self {
        Self { inner: Inner::Host { endpoint, _world: world }, probe: None }
    }

    pub(crate) fn over(group: Group, probe: Option<Probe>) -> Self {
        let group = Arc::new(group);
        let idle = group.clone();
        let look = move || {
            while !idle.is_closing.load(Ordering::Acquire) {
                // An error comes back to whoever asks next.
                let _ = idle.progress();
                std::thread::park_timeout(IDLE);
            }
        };
        // Without that thread, news wait until this PE asks for something.
        let idle = std::thread::Builder::new().name("syncline-mpi".to_owned()).spawn(look).ok();
        Self { inner: Inner::Group(group, idle), probe }
    }

    /// How data travels: `shared memory`, `put` or `messages`.
    pub fn way(&self) -> &'static str {
        match &self.inner {
            Inner::Host { .. } => "shared memory",
            Inner::Group(group, _) if group.inbox.is_some() => "put",
            Inner::Group(..) => "messages",
        }
    }

    /// What was measured when the group was made; `None` where there was nothing to choose.
    pub fn probe(&self) -> Option<Probe> {
        self.probe
    }

    fn transport(&self) -> &dyn Transport {
        match &self.inner {
            Inner::Host { endpoint, .. } => endpoint,
            Inner::Group(group, _) => &**group,
        }
    }
}

impl Drop for MpiEndpoint {
    fn drop(&mut self) {
        let Inner::Group(group, idle) = &mut self.inner else { return };
        group.is_closing.store(true, Ordering::Release);
        if let Some(idle) = idle.take() {
            idle.thread().unpark();
            // It does not panic, and if it did there would be nothing left to do.
            let _ = idle.join();
        }
        group.leave();
    }
}

/// The PEs of this host, who share memory.
pub(crate) struct Node {
    endpoint: Endpoint,
    /// The rank on this host of each PE; `None` for those of other hosts.
    places: Vec<Option<usize>>,
}

impl Node {
    pub(crate) fn new(endpoint: Endpoint, hosts: &[usize], rank: usize) -> Self {
        let mut count = 0;
        let place = |host: &usize| {
            (*host == hosts[rank]).then(|| {
                count += 1;
                count - 1
            })
        };
        Self { endpoint, places: hosts.iter().map(place).collect() }
    }
}

/// A group over MPI.
pub(crate) struct Group {
    pub world: Arc<Shared>,
    pub shape: Shape,
    node: Option<Node>,
    pub inbox: Option<Inbox>,
    progress: std::sync::Mutex<Progress>,
    bell: AtomicU32,
    is_closing: AtomicBool,
}

impl Group {
    pub(crate) fn new(
        world: Arc<Shared>,
        comm: crate::call::Comm,
        shape: Shape,
        node: Option<Node>,
        inbox: Option<Inbox>,
    ) -> Self {
        let progress = Progress::new(comm, world.rank, shape);
        Self {
            world,
            shape,
            node,
            inbox,
            progress: progress.into(),
            bell: AtomicU32::new(0),
            is_closing: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Progress> {
        lock(&self.progress)
    }

    /// Says that something may have become possible.
    fn ring(&self) {
        self.bell.fetch_add(1, Ordering::Release);
    }

    /// Looks for news, and rings the bell if there are any.
    pub(crate) fn progress(&self) -> Result<(), Failure> {
        let mut progress = self.lock();
        let moved = progress.step(&self.world.turn());
        drop(progress);
        if moved.map_err(|error| self.world.local(&error))? {
            self.ring();
        }
        Ok(())
    }

    fn tell(&self, progress: &mut Progress, peer: usize, control: &Control) -> Result<(), Failure> {
        let told = progress.tell(peer, control, &self.world.turn());
        told.map_err(|error| self.world.local(&error))
    }

    fn tell_all(&self, progress: &mut Progress, control: &Control) -> Result<(), Failure> {
        let mut others = (0..self.shape.size).filter(|peer| *peer != self.world.rank);
        others.try_for_each(|peer| self.tell(progress, peer, control))
    }

    /// The failure that a PE amounts to that has left and is still needed.
    fn someone_has_left(&self) -> Option<Failure> {
        let progress = self.lock();
        let epoch = progress.epoch;
        let is_needed = |left: &Option<u64>| left.is_some_and(|done| epoch == 0 || done < epoch);
        let rank = progress.left.iter().position(is_needed)?;
        Some(Failure::PeerLeft { rank })
    }

    /// Says goodbye, and waits for what is on its way.
    fn leave(&self) {
        let rank = self.world.rank;
        {
            let mut progress = self.lock();
            let epoch = progress.done[rank];
            // Whoever is gone already does not need to hear it.
            let _ = self.tell_all(&mut progress, &Control::Left { epoch });
        }
        let started = Instant::now();
        let mut pause = self.world.pause();
        while self.lock().is_busy() && started.elapsed() < Duration::from_secs(1) {
            if self.progress().is_err() {
                break;
            }
            pause.next();
        }
        self.lock().forget();
    }

    fn send_by_put(
        &self,
        inbox: &Inbox,
        peer: usize,
        bytes: usize,
        fill: &mut Fill<'_>,
    ) -> Result<bool, Failure> {
        let (mut staging, index) = {
            let mut progress = self.lock();
            let to = &mut progress.outgoing[peer];
            if to.is_busy || to.placed.saturating_sub(to.taken) >= self.shape.depth as u64 {
                return Ok(false);
            }
            to.is_busy = true;
            let index = to.placed;
            (progress.buffer(), index)
        };
        let _free = OnDrop(|| {
            self.lock().outgoing[peer].is_busy = false;
            self.ring();
        });
        let payload = &mut staging.bytes_mut()[Lines::HEADER_BYTES..][..bytes];
        let header = fill(payload);
        let place = inbox.place(self.world.rank, index);
        let put = inbox.memory.put(payload, peer, place, &self.world.turn());
        put.map_err(|error| self.fail(self.world.local(&error)))?;
        let mut progress = self.lock();
        progress.outgoing[peer].placed += 1;
        progress.spare.push(staging);
        self.tell(&mut progress, peer, &Control::Placed { bytes: bytes as u64, header })?;
        Ok(true)
    }

    fn send_message(
        &self,
        peer: usize,
        bytes: usize,
        fill: &mut Fill<'_>,
    ) -> Result<bool, Failure> {
        let (at, mut slot) = {
            let mut progress = self.lock();
            let Some(at) = progress.slots.iter().position(|slot| matches!(slot, Slot::Free)) else {
                return Ok(false);
            };
            progress.slots[at] = Slot::Filling;
            (at, progress.buffer())
        };
        let free = OnDrop(|| {
            self.lock().slots[at] = Slot::Free;
            self.ring();
        });
        let (head, payload) = slot.bytes_mut().split_at_mut(Lines::HEADER_BYTES);
        let header = fill(&mut payload[..bytes]);
        std::mem::forget(free);
        head[..8].copy_from_slice(&header.tag.to_ne_bytes());
        head[8..12].copy_from_slice(&header.checksum.to_ne_bytes());
        let mut progress = self.lock();
        let sent = progress.send_slot(at, slot, bytes, peer, &self.world.turn());
        sent.map_err(|error| self.world.local(&error))?;
        Ok(true)
    }

    /// Calls a receiver's code, under no lock. If it panics, the group fails: the message is lost.
    fn take(&self, take: &mut Take<'_>, header: Header, bytes: &[u8]) -> Result<(), Failure> {
        let guard = OnDrop(|| {
            let message = "the receiver of a message panicked".to_owned();
            self.fail(Failure::Local { rank: self.world.rank, message });
        });
        let taken = take(header, bytes);
        std::mem::forget(guard);
        taken.map_err(|failure| self.fail(failure))
    }

    fn receive_put(
        &self,
        inbox: &Inbox,
        peer: usize,
        take: &mut Take<'_>,
    ) -> Result<bool, Failure> {
        let (bytes, header, index) = {
            let mut progress = self.lock();
            let from = &mut progress.incoming[peer];
            if from.is_busy {
                return Ok(false);
            }
            let Some((bytes, header)) = from.placed.pop_front() else { return Ok(false) };
            from.is_busy = true;
            from.taken += 1;
            (bytes as usize, header, from.taken - 1)
        };
        let _free = OnDrop(|| {
            self.lock().incoming[peer].is_busy = false;
            self.ring();
        });
        // Another process announced it: a number out of range is its fault, and must not become
        // ours.
        if bytes > self.shape.slot_bytes {
            let message = format!("PE {peer} announced {bytes} bytes in a slot");
            return Err(self.fail(Failure::Local { rank: self.world.rank, message }));
        }
        let synced = inbox.memory.sync(&self.world.turn());
        synced.map_err(|error| self.fail(self.world.local(&error)))?;
        let place = inbox.place(peer, index);
        // SAFETY: the place lies within this PE's inbox, whose memory the group keeps; its sender
        // has completed the put, and does not put there again before it hears that the message was
        // taken.
        let slot = unsafe { std::slice::from_raw_parts(inbox.memory.start().add(place), bytes) };
        self.take(take, header, slot)?;
        self.tell(&mut self.lock(), peer, &Control::Taken)?;
        Ok(true)
    }

    fn receive_message(&self, peer: usize, take: &mut Take<'_>) -> Result<bool, Failure> {
        let (slot, bytes) = {
            let mut progress = self.lock();
            let from = &mut progress.incoming[peer];
            match std::mem::replace(&mut from.message, Incoming::Wanted) {
                Incoming::Arrived(slot, bytes) => {
                    from.message = Incoming::Nothing;
                    (slot, bytes)
                }
                other => {
                    if !matches!(other, Incoming::Nothing) {
                        from.message = other;
                    }
                    return Ok(false);
                }
            }
        };
        let message = slot.bytes().get(..bytes).and_then(|bytes| {
            let (head, payload) = bytes.split_at_checked(Lines::HEADER_BYTES)?;
            let tag = u64::from_ne_bytes(head[..8].try_into().ok()?);
            let checksum = u32::from_ne_bytes(head[8..12].try_into().ok()?);
            Some((Header { tag, checksum }, payload))
        });
        let Some((header, payload)) = message else {
            let message = format!("PE {peer} sent a message of {bytes} bytes");
            return Err(self.fail(Failure::Local { rank: self.world.rank, message }));
        };
        self.take(take, header, payload)?;
        self.lock().spare.push(slot);
        Ok(true)
    }
}

/// Calls a function when it is dropped, also by a panic.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

// SAFETY: `enter` waits until all have said that they entered; `finish` until the arbiter, which
// hears of all, has committed or failed the refit.
unsafe impl ControlPlane for Group {
    fn rank(&self) -> usize {
        self.world.rank
    }

    fn shape(&self) -> Shape {
        self.shape
    }

    unsafe fn enter(&self, ticket: Ticket, wait: &Wait<'_>) -> Result<(), Failure> {
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        let epoch = {
            let mut progress = self.lock();
            progress.epoch += 1;
            let (rank, epoch) = (self.world.rank, progress.epoch);
            progress.entered[rank] = epoch;
            progress.tickets[rank] = ticket;
            self.tell_all(&mut progress, &Control::Enter { epoch, ticket })?;
            epoch
        };
        loop {
            let seen = self.bell();
            let behind = self.lock().entered.iter().position(|entered| *entered < epoch);
            let Some(peer) = behind else { return Ok(()) };
            self.park(seen, &wait.until(Phase::Enter, peer))?;
        }
    }

    fn ticket(&self, peer: usize) -> Ticket {
        self.lock().tickets[peer]
    }

    unsafe fn finish(&self, wait: &Wait<'_>) -> Result<(), Failure> {
        let rank = self.world.rank;
        let epoch = {
            let mut progress = self.lock();
            let epoch = progress.epoch;
            progress.done[rank] = epoch;
            if rank != ARBITER {
                self.tell(&mut progress, ARBITER, &Control::Done { epoch })?;
            } else {
                let decided = progress.arbitrate(&self.world.turn());
                decided.map_err(|error| self.world.local(&error))?;
            }
            epoch
        };
        loop {
            let seen = self.bell();
            let behind = {
                let progress = self.lock();
                if progress.committed >= epoch {
                    return Ok(());
                }
                progress.done.iter().position(|done| *done < epoch)
            };
            // Only the arbiter knows who is late; the others wait for it.
            let peer = behind.filter(|_| rank == ARBITER).unwrap_or(ARBITER);
            let parked = self.park(seen, &wait.until(Phase::Finish, peer));
            // What was committed before the failure stays so, on every PE.
            if self.lock().committed >= epoch {
                return Ok(());
            }
            parked?;
        }
    }

    fn fail(&self, failure: Failure) -> Failure {
        {
            let mut progress = self.lock();
            if let Some(agreed) = &progress.failure {
                return agreed.clone();
            }
            let control = Control::Fail { failure: failure.clone() };
            let is_reported = match self.world.rank {
                ARBITER => progress.decide(failure.clone(), &self.world.turn()).is_ok(),
                _ if progress.left[ARBITER].is_some() => false,
                _ => self.tell(&mut progress, ARBITER, &control).is_ok(),
            };
            if !is_reported {
                return progress.failure.get_or_insert(failure).clone();
            }
        }
        let started = Instant::now();
        let mut pause = self.world.pause();
        loop {
            let news = self.progress();
            let mut progress = self.lock();
            if let Some(agreed) = &progress.failure {
                return agreed.clone();
            }
            // An arbiter that does not answer is stuck or gone: then it is this PE's word.
            if news.is_err() || started.elapsed() >= VERDICT {
                return progress.failure.get_or_insert(failure).clone();
            }
            drop(progress);
            pause.next();
        }
    }

    fn failure(&self) -> Option<Failure> {
        self.lock().failure.clone()
    }

    fn bell(&self) -> u32 {
        self.bell.load(Ordering::Acquire)
    }

    fn park(&self, seen: u32, wait: &Wait<'_>) -> Result<(), Failure> {
        let until = Instant::now() + SLICE;
        let mut pause = self.world.pause();
        loop {
            if let Some(failure) = self.failure() {
                return Err(failure);
            }
            if let Some(failure) = wait.expired(self.world.rank) {
                return Err(self.fail(failure));
            }
            self.progress().map_err(|failure| self.fail(failure))?;
            if self.bell() != seen {
                return Ok(());
            }
            if let Some(failure) = self.someone_has_left() {
                return Err(self.fail(failure));
            }
            if Instant::now() >= until {
                return Ok(());
            }
            pause.next();
        }
    }
}

impl DataPlane for Group {
    fn try_send(&self, peer: usize, bytes: usize, fill: &mut Fill<'_>) -> Result<bool, Failure> {
        let Shape { slot_bytes, .. } = self.shape;
        assert!(bytes <= slot_bytes, "a message of {bytes} bytes for slots of {slot_bytes}");
        self.progress().map_err(|failure| self.fail(failure))?;
        match &self.inbox {
            Some(inbox) => self.send_by_put(inbox, peer, bytes, fill),
            None => self.send_message(peer, bytes, fill),
        }
    }

    fn try_receive(&self, peer: usize, take: &mut Take<'_>) -> Result<bool, Failure> {
        self.progress().map_err(|failure| self.fail(failure))?;
        match &self.inbox {
            Some(inbox) => self.receive_put(inbox, peer, take),
            None => self.receive_message(peer, take),
        }
    }
}

// SAFETY: windows are those of the host's endpoint, whose contract is the same.
unsafe impl MemoryPlane for Group {
    fn shares_memory(&self, peer: usize) -> bool {
        self.node.as_ref().is_some_and(|node| node.places[peer].is_some())
    }

    fn allocate(&self, bytes: usize) -> Result<Option<Window>, Failure> {
        // In the words of the whole group, not of the host's.
        let name = |failure| match failure {
            Failure::Local { message, .. } => Failure::Local { rank: self.world.rank, message },
            other => other,
        };
        self.node.as_ref().map_or(Ok(None), |node| node.endpoint.allocate(bytes)).map_err(name)
    }

    fn owns(&self, window: &Window) -> bool {
        self.node.as_ref().is_some_and(|node| node.endpoint.owns(window))
    }

    fn peer_window(&self, peer: usize, id: WindowId) -> Result<Option<Window>, Failure> {
        let place = self.node.as_ref().and_then(|node| Some((node, node.places[peer]?)));
        place.map_or(Ok(None), |(node, place)| node.endpoint.peer_window(place, id))
    }
}

// SAFETY: the variant does not change, and each holds one transport that keeps the contract.
unsafe impl Composite for MpiEndpoint {
    fn control(&self) -> &dyn ControlPlane {
        self.transport()
    }

    fn data(&self) -> &dyn DataPlane {
        self.transport()
    }

    fn memory(&self) -> &dyn MemoryPlane {
        self.transport()
    }
}
