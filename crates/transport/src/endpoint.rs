//! Endpoints: one PE's side of a board, for threads and processes alike.

use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use syncline_sync::{EventCount, Sharing, Spin, lock};

use super::board::{ABSENT, Board, FULL, GONE, JOINED, LEFT, Member};
use super::failure::Shape;
use super::{
    Arrival, ControlPlane, DataPlane, Failure, Fill, FreeSlot, Header, MemoryPlane, Phase, Slots,
    Take, Ticket, Wait, Window, WindowId, slots,
};

/// How long a PE sleeps before it looks whether the others are still alive.
const SLICE: Duration = Duration::from_millis(20);

/// Windows of each peer that stay open between refits.
const WINDOWS_MAX: usize = 8;

/// What differs between threads and processes: memory, and how a death is noticed.
pub(crate) trait Backing: Send + Sync {
    /// Whether PE `rank`, which has joined, has ended without leaving.
    fn has_died(&self, board: &Board, rank: usize) -> bool;
    /// New memory of PE `rank`.
    fn allocate(&self, board: &Board, rank: usize, bytes: usize) -> Result<Window, String>;
    /// Memory of another PE.
    fn open(&self, peer: usize, id: WindowId) -> Result<Window, String>;
    /// Keeps `shared` for peers of the same process.
    fn offer(&self, shared: Arc<dyn Any + Send + Sync>) -> Option<WindowId> {
        let _ = shared;
        None
    }
    /// What a peer of the same process has offered.
    fn offered(&self, id: WindowId) -> Option<Arc<dyn Any + Send + Sync>> {
        let _ = id;
        None
    }
    /// Called when the group is complete, and when it is left.
    fn settled(&self) {}
}

/// One PE's side of a [`local`](super::local) or [`shm`](super::shm) group.
///
/// Dropping it leaves the group; PEs that still need it then fail with [`Failure::PeerLeft`].
pub struct Endpoint {
    rank: usize,
    board: Board,
    backing: Box<dyn Backing>,
    /// The refit entered last, and the recoveries that there had been then.
    epoch: AtomicU64,
    recoveries: AtomicU64,
    /// One failure record a PE: threads of one PE that fail at once take turns.
    reporting: Mutex<()>,
    /// Threads take turns to put a message into a queue, and to take one out. No code of users runs
    /// meanwhile.
    sending: Mutex<()>,
    receiving: Mutex<()>,
    opened: Mutex<HashMap<(usize, WindowId), Window>>,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Shape { size, .. } = self.board.shape();
        write!(f, "Endpoint({} of {size})", self.rank)
    }
}

impl Endpoint {
    pub(crate) fn new(rank: usize, board: Board, backing: Box<dyn Backing>) -> Self {
        Self {
            rank,
            board,
            backing,
            epoch: AtomicU64::new(0),
            recoveries: AtomicU64::new(0),
            reporting: Mutex::new(()),
            sending: Mutex::new(()),
            receiving: Mutex::new(()),
            opened: Mutex::new(HashMap::new()),
        }
    }

    /// Counts this PE in and waits until all have joined.
    pub(crate) fn join(&self, wait: &Wait<'_>) -> Result<(), Failure> {
        let Shape { size, .. } = self.board.shape();
        self.board.wake_all();
        let joined = self.wait_until(&wait.until(Phase::Join, 0), || self.absent());
        if let Err(failure) = joined.and_then(|()| self.failure().map_or(Ok(()), Err)) {
            self.linger(wait);
            return Err(failure);
        }
        self.backing.settled();
        // All are alive or have just died: the best moment to take hold of their processes.
        for rank in 0..size {
            self.backing.has_died(&self.board, rank);
        }
        Ok(())
    }

    /// The first PE that has not come.
    fn absent(&self) -> Option<usize> {
        self.board.members().position(|member| member.state.load(Ordering::Acquire) == ABSENT)
    }

    /// Stays until everyone has come: whoever comes after the group's name is gone would make a
    /// group of its own, and never learn why this one failed.
    fn linger(&self, wait: &Wait<'_>) {
        let member = self.board.member(self.rank);
        while self.absent().is_some() && wait.expired(self.rank).is_none() {
            park(&member.event, member.event.epoch(), wait.left(SLICE));
        }
    }

    /// Waits until `pending` names nobody.
    fn wait_until(
        &self,
        wait: &Wait<'_>,
        mut pending: impl FnMut() -> Option<usize>,
    ) -> Result<(), Failure> {
        loop {
            let seen = self.bell();
            let Some(peer) = pending() else { return Ok(()) };
            self.park(seen, &wait.until(wait.phase, peer))?;
        }
    }

    /// The first PE that has not reached `epoch` by `counter`.
    fn behind(&self, epoch: u64, counter: fn(&Member) -> &AtomicU64) -> Option<usize> {
        // Acquire: what a PE did before it counted itself is visible to whoever sees it counted.
        self.board.members().position(|member| {
            counter(member).load(Ordering::Acquire) < epoch
                && member.state.load(Ordering::Acquire) != GONE
        })
    }

    /// Returns `true` if PE `rank` takes part, and has died or left.
    fn is_lost(&self, rank: usize) -> bool {
        match self.board.member(rank).state.load(Ordering::Acquire) {
            LEFT => true,
            JOINED => rank != self.rank && self.backing.has_died(&self.board, rank),
            _ => false,
        }
    }

    /// Waits until all members that are left are ready for `recovery`, and until one of them has
    /// cleared up for it.
    fn await_recovery(&self, recovery: u64, wait: &Wait<'_>) -> Result<(), Failure> {
        let size = self.board.shape().size;
        let event = &self.board.member(self.rank).event;
        loop {
            let seen = event.epoch();
            if self.board.recoveries() >= recovery {
                return Ok(());
            }
            let is_awaited = |rank: &usize| {
                let member = self.board.member(*rank);
                member.recovering.load(Ordering::Acquire) < recovery
                    && member.state.load(Ordering::Acquire) == JOINED
                    && !self.is_lost(*rank)
            };
            let awaited = (0..size).find(is_awaited);
            if awaited.is_none() {
                let clearer = self.board.clearer();
                let is_open = clearer.is_none_or(|clearer| self.is_lost(clearer));
                if is_open && self.board.start_clearing(clearer, self.rank) {
                    // Another may have done so since the check above.
                    if self.board.recoveries() < recovery {
                        self.board.clear(|rank| self.is_lost(rank), recovery);
                    } else {
                        self.board.stop_clearing();
                    }
                    continue;
                }
            }
            let wait = wait.until(Phase::Recover, awaited.unwrap_or(self.rank));
            if let Some(failure) = wait.expired(self.rank) {
                return Err(failure);
            }
            park(event, seen, wait.left(SLICE));
        }
    }

    /// The failure that an absent PE amounts to, if one is gone that is still needed.
    fn someone_is_missing(&self) -> Option<Failure> {
        let epoch = self.epoch.load(Ordering::Relaxed);
        self.board.members().enumerate().find_map(|(rank, member)| {
            let state = member.state.load(Ordering::Acquire);
            let left = state == LEFT;
            let died =
                state == JOINED && rank != self.rank && self.backing.has_died(&self.board, rank);
            // Read after the death was seen, hence final: a PE that did its part is not missed.
            let needed = epoch == 0 || member.done.load(Ordering::Acquire) < epoch;
            match needed && rank != self.rank {
                true if died => Some(Failure::PeerDied { rank }),
                true if left => Some(Failure::PeerLeft { rank }),
                _ => None,
            }
        })
    }

    /// A join that timed out says who never came.
    fn named(&self, failure: Failure) -> Failure {
        match failure {
            Failure::TimedOut { phase: Phase::Join, waiting_for: rank, waited_ms, .. } => {
                let absent = self
                    .board
                    .members()
                    .filter(|member| member.state.load(Ordering::Acquire) == ABSENT)
                    .count();
                Failure::NeverJoined { rank, missing: absent.max(1), waited_ms }
            }
            other => other,
        }
    }
}

impl Endpoint {
    /// Fails the group unless refit `before` is committed, and returns what it agreed on.
    fn fail_before(&self, before: u64, failure: Failure) -> Failure {
        let _turn = lock(&self.reporting);
        self.board.fail_before(before, self.rank, &failure);
        self.failure().unwrap_or(failure)
    }
}

// SAFETY: `enter` and `finish` wait for the counters of all PEs, and the verdict is one word.
unsafe impl ControlPlane for Endpoint {
    fn rank(&self) -> usize {
        self.rank
    }

    fn shape(&self) -> Shape {
        self.board.shape()
    }

    unsafe fn enter(&self, ticket: Ticket, wait: &Wait<'_>) -> Result<(), Failure> {
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        // A recovery has taken all back to the last refit that was committed.
        let recoveries = self.board.recoveries();
        if self.recoveries.swap(recoveries, Ordering::Relaxed) != recoveries {
            self.epoch.store(self.board.verdict().0, Ordering::Relaxed);
        }
        let epoch = self.epoch.load(Ordering::Relaxed) + 1;
        let member = self.board.member(self.rank);
        member.set_ticket(ticket);
        self.epoch.store(epoch, Ordering::Relaxed);
        member.entered.store(epoch, Ordering::Release);
        self.board.wake_all();
        self.wait_until(&wait.until(Phase::Enter, 0), || {
            self.behind(epoch, |member| &member.entered)
        })
    }

    fn members(&self) -> Vec<usize> {
        let is_member =
            |rank: &usize| self.board.member(*rank).state.load(Ordering::Acquire) != GONE;
        (0..self.shape().size).filter(is_member).collect()
    }

    fn epoch(&self) -> u64 {
        1 + self.board.recoveries()
    }

    unsafe fn recover(&self, wait: &Wait<'_>) -> Result<(), Failure> {
        let Some(failure) = self.failure() else { return Ok(()) };
        let member = self.board.member(self.rank);
        if member.state.load(Ordering::Acquire) != JOINED {
            return Err(failure);
        }
        let recovery = self.board.recoveries() + 1;
        // Release: what this PE did in the failed refit is over for peers that see it ready.
        member.recovering.store(recovery, Ordering::Release);
        self.board.wake_all();
        // Not ready any more: it may not come back.
        let awaited = self.await_recovery(recovery, wait);
        awaited.inspect_err(|_| member.recovering.store(recovery - 1, Ordering::Release))
    }

    fn can_recover(&self) -> bool {
        true
    }

    fn ticket(&self, peer: usize) -> Ticket {
        self.board.member(peer).ticket()
    }

    unsafe fn finish(&self, wait: &Wait<'_>) -> Result<(), Failure> {
        let epoch = self.epoch.load(Ordering::Relaxed);
        // Release: everything this PE placed is visible to whoever sees it done.
        self.board.member(self.rank).done.store(epoch, Ordering::Release);
        self.board.wake_all();
        loop {
            let seen = self.bell();
            let behind = self.behind(epoch, |member| &member.done);
            if behind.is_none() {
                self.board.commit(epoch);
            }
            match self.board.verdict() {
                (committed, _) if committed >= epoch => return Ok(()),
                (_, Some(failure)) => return Err(failure),
                _ => {}
            }
            let parked = self.park(seen, &wait.until(Phase::Finish, behind.unwrap_or(self.rank)));
            // A peer may commit between the look above and this PE's giving up, which then has
            // failed nothing: what is committed stays so, on every PE. After a failure the verdict
            // no longer changes.
            if parked.is_err() && self.board.verdict().0 >= epoch {
                return Ok(());
            }
            parked?;
        }
    }

    fn fail(&self, failure: Failure) -> Failure {
        self.fail_before(u64::MAX, failure)
    }

    fn failure(&self) -> Option<Failure> {
        self.board.verdict().1
    }

    fn bell(&self) -> u32 {
        self.board.member(self.rank).event.epoch()
    }

    fn park(&self, seen: u32, wait: &Wait<'_>) -> Result<(), Failure> {
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        // Who gives up in the end of a refit does so before it is committed, or not at all.
        let before = match wait.phase {
            Phase::Finish => self.epoch.load(Ordering::Relaxed),
            _ => u64::MAX,
        };
        if let Some(failure) = wait.expired(self.rank) {
            return Err(self.fail_before(before, self.named(failure)));
        }
        let event = &self.board.member(self.rank).event;
        park(event, seen, wait.left(SLICE));
        if event.epoch() != seen {
            return Ok(());
        }
        match self.someone_is_missing() {
            Some(failure) => Err(self.fail_before(before, failure)),
            None => Ok(()),
        }
    }
}

impl DataPlane for Endpoint {
    fn try_send(&self, peer: usize, bytes: usize, fill: &mut Fill<'_>) -> Result<bool, Failure> {
        let Shape { size, slot_bytes, .. } = self.board.shape();
        assert!(bytes <= slot_bytes, "a message of {bytes} bytes for slots of {slot_bytes}");
        assert!(peer < size, "PE {peer} of {size}");
        let Some(mut slot) = self.claim_free() else { return Ok(false) };
        let header = fill(&mut slot.bytes_mut()[..bytes]);
        self.publish(slot, peer, bytes, header);
        Ok(true)
    }

    fn try_receive(&self, peer: usize, take: &mut Take<'_>) -> Result<bool, Failure> {
        let Some(arrival) = self.claim_arrived(peer)? else { return Ok(false) };
        let guard = FailOnPanic::new(self, "the receiver of a message");
        let taken = take(arrival.header(), arrival.bytes());
        guard.disarm();
        taken.map_err(|failure| self.fail(failure))?;
        Ok(true)
    }

    fn slots(&self) -> Option<&dyn Slots> {
        Some(self)
    }
}

// SAFETY: windows are known by the memory that they were allocated in, and every PE of a board
// reaches those of all others.
unsafe impl MemoryPlane for Endpoint {
    fn shares_memory(&self, _: usize) -> bool {
        true
    }

    fn allocate(&self, bytes: usize) -> Result<Option<Window>, Failure> {
        let window = self.backing.allocate(&self.board, self.rank, bytes);
        let window = window.map_err(|message| Failure::Local { rank: self.rank, message })?;
        Ok(Some(Window { group: Some(Arc::downgrade(&self.board.keep())), ..window }))
    }

    fn owns(&self, window: &Window) -> bool {
        let board = Arc::downgrade(&self.board.keep());
        window.group.as_ref().is_some_and(|group| group.ptr_eq(&board))
    }

    fn peer_window(&self, peer: usize, id: WindowId) -> Result<Option<Window>, Failure> {
        let mut opened = lock(&self.opened);
        if let Some(window) = opened.get(&(peer, id)) {
            return Ok(Some(window.clone()));
        }
        let window = self.backing.open(peer, id);
        let window = window.map_err(|message| Failure::Local { rank: self.rank, message })?;
        // A PE that keeps making destinations must not make its peers keep the old ones mapped.
        if opened.keys().filter(|(owner, _)| *owner == peer).count() >= WINDOWS_MAX {
            opened.retain(|(owner, _), _| *owner != peer);
        }
        opened.insert((peer, id), window.clone());
        Ok(Some(window))
    }

    fn offer(&self, shared: Arc<dyn Any + Send + Sync>) -> Option<WindowId> {
        self.backing.offer(shared)
    }

    fn offered(&self, _: usize, id: WindowId) -> Option<Arc<dyn Any + Send + Sync>> {
        self.backing.offered(id)
    }
}

/// Fails the group when it is dropped: the code that ran under it has panicked.
#[must_use = "it guards only while it lives"]
pub struct FailOnPanic<'a> {
    control: &'a dyn ControlPlane,
    what: &'static str,
}

impl<'a> FailOnPanic<'a> {
    /// Guards code that the failure calls `what`.
    pub fn new(control: &'a dyn ControlPlane, what: &'static str) -> Self {
        Self { control, what }
    }

    /// Ends the guard without a failure.
    pub fn disarm(self) {
        std::mem::forget(self);
    }
}

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        let (rank, message) = (self.control.rank(), format!("{} panicked", self.what));
        self.control.fail(Failure::Local { rank, message });
    }
}

impl Slots for Endpoint {
    fn claim_free(&self) -> Option<FreeSlot> {
        slots::claim(&self.board, self.rank)
    }

    fn publish(&self, mut slot: FreeSlot, peer: usize, bytes: usize, header: Header) {
        let Shape { slot_bytes, .. } = self.board.shape();
        let is_own = Arc::ptr_eq(&slot.board.keep(), &self.board.keep()) && slot.rank == self.rank;
        assert!(is_own, "{slot:?} is not a slot of {self:?}");
        assert!(bytes <= slot_bytes, "a message of {bytes} bytes for slots of {slot_bytes}");
        let pair = self.board.pair(self.rank, peer);
        slot.is_sent = true;
        self.board.busy(self.rank, slot.slot).store(FULL, Ordering::Relaxed);
        let turn = lock(&self.sending);
        let index = pair.sent.load(Ordering::Relaxed);
        let entry = self.board.entry(self.rank, peer, index);
        entry.slot.store(slot.slot as u32, Ordering::Relaxed);
        entry.bytes.store(bytes as u64, Ordering::Relaxed);
        entry.tag.store(header.tag, Ordering::Relaxed);
        entry.checksum.store(header.checksum, Ordering::Relaxed);
        // Release: whoever sees the count sees the entry and the slot.
        pair.sent.store(index.wrapping_add(1), Ordering::Release);
        drop(turn);
        self.board.member(peer).event.wake_all();
    }

    fn waiting(&self, peer: usize) -> u64 {
        let pair = self.board.pair(peer, self.rank);
        pair.sent.load(Ordering::Acquire).saturating_sub(pair.taken.load(Ordering::Relaxed))
    }

    fn claim_arrived(&self, peer: usize) -> Result<Option<Arrival>, Failure> {
        let Shape { depth, slot_bytes, .. } = self.board.shape();
        let pair = self.board.pair(peer, self.rank);
        let turn = lock(&self.receiving);
        let number = pair.taken.load(Ordering::Relaxed);
        if pair.sent.load(Ordering::Acquire) <= number {
            return Ok(None);
        }
        let entry = self.board.entry(peer, self.rank, number);
        let slot = entry.slot.load(Ordering::Relaxed) as usize;
        let bytes = entry.bytes.load(Ordering::Relaxed);
        let header = Header {
            tag: entry.tag.load(Ordering::Relaxed),
            checksum: entry.checksum.load(Ordering::Relaxed),
        };
        pair.taken.store(number + 1, Ordering::Relaxed);
        drop(turn);
        // Another process wrote these: a number out of range is its fault, and must not become
        // ours.
        if slot >= depth || bytes > slot_bytes as u64 {
            let message = format!("PE {peer} announced {bytes} bytes in slot {slot}");
            return Err(self.fail(Failure::Local { rank: self.rank, message }));
        }
        let (board, bytes) = (self.board.clone(), bytes as usize);
        Ok(Some(Arrival { board, sender: peer, slot, bytes, header }))
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.board.member(self.rank).state.store(LEFT, Ordering::Release);
        self.board.wake_all();
        self.backing.settled();
    }
}

/// Parks until `event` has moved on from `seen`, for `longest` at most.
pub(crate) fn park<S: Sharing>(event: &EventCount<S>, seen: u32, longest: Duration) {
    if !Spin::member().until(|| event.epoch() != seen) {
        event.park(seen, Some(Instant::now() + longest));
    }
}
