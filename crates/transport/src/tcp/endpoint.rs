//! Endpoints: one PE's side of a group over TCP.

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use syncline_sync::{EventCount, lock};

use super::Options;
use super::frames::{Control, Outbox};
use super::meet::Link;
use super::poll::Poller;
use super::streams::{Head, Receiving, Sending};
use crate::endpoint::park;
use crate::membership::{Member, Standing, Verdict, Vote};
use crate::{
    Composite, ControlPlane, DataPlane, FailOnPanic, Failure, Fill, MemoryPlane, Phase, Shape,
    Take, Ticket, Wait,
};

/// How long a PE sleeps before it checks its deadline again.
const SLICE: Duration = Duration::from_millis(20);

/// How long a PE that failed waits for the group's word on whose failure it is.
const VERDICT: Duration = Duration::from_secs(2);

/// How long a PE without a quorum waits for news of what the others have decided.
const STRANDED: Duration = Duration::from_millis(500);

/// One PE's side of a [`tcp`](super) group.
///
/// Dropping it leaves the group; PEs that still need it then fail with [`Failure::PeerLeft`].
pub struct TcpEndpoint {
    group: Arc<Group>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for TcpEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TcpEndpoint({} of {})", self.group.rank, self.group.shape.size)
    }
}

impl TcpEndpoint {
    pub(super) fn start(
        rank: usize,
        shape: Shape,
        options: &Options,
        links: Vec<Option<Link>>,
    ) -> io::Result<Self> {
        let peer = |link: Option<Link>| link.map(|link| Peer::new(link, options)).transpose();
        let peers = links.into_iter().map(peer).collect::<io::Result<Vec<_>>>()?;
        let state = State {
            member: Member::new(rank, (0..shape.size).collect()),
            refit: 0,
            announced: vec![BTreeMap::new(); shape.size],
            committed: 0,
            failure: None,
            is_decided: false,
            heard: vec![Instant::now(); shape.size],
            lost: vec![false; shape.size],
            stranded: None,
        };
        let group = Arc::new(Group {
            rank,
            shape,
            checksums: options.checksums,
            silence: options.silence,
            state: state.into(),
            peers,
            free: vec![Vec::new(); shape.depth].into(),
            refit: AtomicU64::new(0),
            stale_before: AtomicU64::new(0),
            event: EventCount::new(),
            waker: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            is_closing: AtomicBool::new(false),
        });
        let poller = Poller::new(group.clone());
        let thread = std::thread::Builder::new().name("syncline-tcp".to_owned());
        let thread = thread.spawn(move || poller.run())?;
        Ok(Self { group, thread: Some(thread) })
    }
}

impl Drop for TcpEndpoint {
    fn drop(&mut self) {
        {
            let mut state = self.group.lock();
            state.member.leave();
            self.group.settle(&mut state);
        }
        self.group.is_closing.store(true, Ordering::Release);
        self.group.wake();
        if let Some(thread) = self.thread.take() {
            // It does not panic, and if it did there would be nothing left to do.
            let _ = thread.join();
        }
    }
}

// SAFETY: all planes are those of one group, which stays.
unsafe impl Composite for TcpEndpoint {
    fn control(&self) -> &dyn ControlPlane {
        &*self.group
    }

    fn data(&self) -> &dyn DataPlane {
        &*self.group
    }

    fn memory(&self) -> &dyn MemoryPlane {
        &*self.group
    }
}

/// Another member, as this one reaches it.
pub(super) struct Peer {
    pub(super) control: TcpStream,
    pub(super) outbox: Mutex<Outbox>,
    pub(super) streams: Vec<Stream>,
    /// The numbers of the next message to it, and of the next from it.
    to: Mutex<u64>,
    from: Mutex<u64>,
}

pub(super) struct Stream {
    pub(super) socket: TcpStream,
    pub(super) sending: Mutex<Sending>,
    pub(super) receiving: Mutex<Receiving>,
}

impl Peer {
    fn new(link: Link, options: &Options) -> io::Result<Self> {
        let Link { control, streams } = link;
        control.set_nonblocking(true)?;
        let stream = |(index, socket): (usize, TcpStream)| {
            socket.set_nonblocking(true)?;
            let Options { streams, slot_bytes, depth, checksums, .. } = *options;
            let receiving = Receiving::new(index, streams, slot_bytes, depth, checksums).into();
            Ok(Stream { socket, sending: Mutex::default(), receiving })
        };
        let streams = streams.into_iter().enumerate().map(stream).collect::<io::Result<_>>()?;
        let outbox = Mutex::default();
        Ok(Self { control, outbox, streams, to: Mutex::new(0), from: Mutex::new(0) })
    }

    /// The stream of message `number`.
    fn stream(&self, number: u64) -> &Stream {
        &self.streams[(number % self.streams.len() as u64) as usize]
    }

    /// Says that nothing more is sent to it. What it has sent can still be read.
    pub(super) fn hang_up(&self, how: Shutdown) {
        // A connection that is broken already needs no end.
        let _ = self.control.shutdown(how);
        for stream in &self.streams {
            let _ = stream.socket.shutdown(how);
        }
    }
}

/// What this PE knows of the others.
pub(super) struct State {
    pub(super) member: Member,
    /// The decision that ends the refit entered last.
    refit: u64,
    /// By PE: the refits that it has entered, from the current one on, and its tickets for them.
    ///
    /// A peer may have heard of the end of a refit, and have entered another, while this PE has not
    /// heard of it.
    announced: Vec<BTreeMap<u64, Ticket>>,
    /// The last decision that committed a refit.
    committed: u64,
    failure: Option<Failure>,
    /// Whether the group has decided that the refit is over, which has failed.
    is_decided: bool,
    pub(super) heard: Vec<Instant>,
    /// By PE: whether its connection is gone.
    pub(super) lost: Vec<bool>,
    /// Since when the members that can be reached are too few to decide.
    stranded: Option<Instant>,
}

/// Refits that a peer may have entered before this PE hears of the end of the current one.
const AHEAD_MAX: usize = 8;

impl State {
    fn announce(&mut self, peer: usize, instance: u64, ticket: Ticket) {
        let announced = &mut self.announced[peer];
        announced.insert(instance, ticket);
        // Those before are over.
        while announced.len() > AHEAD_MAX {
            announced.pop_first();
        }
    }

    fn has_entered(&self, peer: usize) -> bool {
        self.announced[peer].contains_key(&self.refit)
    }
}

pub(super) struct Group {
    pub(super) rank: usize,
    shape: Shape,
    checksums: bool,
    pub(super) silence: Duration,
    state: Mutex<State>,
    pub(super) peers: Vec<Option<Peer>>,
    /// Slots that hold no message. Memory is taken when one is first used.
    free: Mutex<Vec<Vec<u8>>>,
    /// The refit entered last, or the next one after a failure, for messages to say it.
    refit: AtomicU64,
    /// Messages of refits before this one mean nothing any more.
    stale_before: AtomicU64,
    event: EventCount,
    pub(super) waker: OwnedFd,
    pub(super) is_closing: AtomicBool,
}

impl Group {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(super) fn ring(&self) {
        self.event.wake_all();
    }

    /// Has the thread of the group poll its connections anew.
    pub(super) fn wake(&self) {
        // A counter at its limit wakes as well.
        let _ = rustix::io::write(&self.waker, &1u64.to_ne_bytes());
    }

    fn peer(&self, peer: usize) -> &Peer {
        let size = self.shape.size;
        self.peers.get(peer).and_then(Option::as_ref).unwrap_or_else(|| {
            panic!("PE {peer} of {size} is no other member for PE {}", self.rank)
        })
    }

    /// Sends a control message. What the connection does not take now, the group's thread sends.
    pub(super) fn tell(&self, peer: usize, control: &Control) {
        let Some(Some(peer)) = self.peers.get(peer) else { return };
        let mut outbox = lock(&peer.outbox);
        // A connection that is broken is noticed by the thread that reads from it.
        let told = outbox.push(control).and_then(|()| outbox.flush(&peer.control));
        if told.is_err() || !outbox.is_empty() {
            drop(outbox);
            self.wake();
        }
    }

    fn tell_all(&self, control: &Control) {
        (0..self.shape.size).for_each(|peer| self.tell(peer, control));
    }

    /// Hears a control message of `peer`.
    pub(super) fn hear(&self, peer: usize, control: Control) {
        let mut state = self.lock();
        state.heard[peer] = Instant::now();
        match control {
            Control::Ping => return,
            Control::Enter { instance, ticket } => state.announce(peer, instance, ticket),
            Control::Membership(message) => state.member.hear(peer, message),
        }
        self.settle(&mut state);
        drop(state);
        self.ring();
    }

    /// Goes on without `peer`, whose connection is lost.
    pub(super) fn lose(&self, peer: usize) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.lost[peer], true) {
            return;
        }
        state.member.suspect(peer);
        // The slots of what waits to be sent to it are free again.
        for stream in self.peers[peer].iter().flat_map(|peer| &peer.streams) {
            lock(&self.free).append(&mut lock(&stream.sending).abandon());
        }
        if !state.member.has_left(peer) && state.member.members().contains(&peer) {
            state.member.vote(Vote::Failed(Failure::PeerDied { rank: peer }));
        }
        self.settle(&mut state);
        drop(state);
        self.ring();
    }

    /// Some time has passed.
    pub(super) fn tick(&self) {
        let mut state = self.lock();
        state.member.tick();
        self.settle(&mut state);
        let has_news = state.failure.is_some();
        drop(state);
        if has_news {
            self.ring();
        }
    }

    /// Sends what the membership has to say, and carries out what it has decided.
    fn settle(&self, state: &mut State) {
        for (peer, message) in state.member.take_messages() {
            self.tell(peer, &Control::Membership(message));
        }
        let decisions = state.member.take_decisions();
        let first = state.member.instance() - decisions.len() as u64;
        for (number, decision) in (first..).zip(decisions) {
            match decision.verdict {
                Verdict::Committed => state.committed = number,
                Verdict::Changed => {}
                Verdict::Abandoned(failure) => {
                    state.failure.get_or_insert(failure);
                    state.is_decided = true;
                }
            }
        }
        match state.member.standing() {
            Standing::Evicted if state.failure.is_none() => {
                let message = "the group went on without this PE, which was silent or cut off";
                state.failure =
                    Some(Failure::Local { rank: self.rank, message: message.to_owned() });
            }
            Standing::Member => self.settle_stranded(state),
            _ => {}
        }
    }

    /// Discards the messages of refits before `refit`, those too that are still on their way: the
    /// slots of their senders are free then.
    fn discard_before(&self, refit: u64) {
        self.refit.store(refit, Ordering::Release);
        self.stale_before.store(refit, Ordering::Release);
        self.peers.iter().flatten().for_each(|peer| self.discard_stale(peer));
        self.wake();
    }

    /// Discards the messages of `from` that are next, as far as they mean nothing any more.
    pub(super) fn discard_stale(&self, from: &Peer) {
        let refit = self.stale_before.load(Ordering::Acquire);
        let mut number = lock(&from.from);
        loop {
            let mut receiving = lock(&from.stream(*number).receiving);
            if !receiving.is_stale(refit) {
                return;
            }
            if let Some(arrived) = receiving.take() {
                receiving.give_back(arrived.slot);
            }
            *number += 1;
        }
    }

    /// Fails this PE alone where too few others can be reached to decide anything.
    fn settle_stranded(&self, state: &mut State) {
        if state.failure.is_some() || state.member.can_decide() {
            state.stranded = None;
            return;
        }
        let since = *state.stranded.get_or_insert_with(Instant::now);
        let is_alone = (0..self.shape.size).all(|peer| peer == self.rank || state.lost[peer]);
        if is_alone || since.elapsed() >= STRANDED {
            state.failure = state.member.loss();
        }
    }

    /// Fails the group unless decision `before` has committed its refit, and returns the failure
    /// that the group agreed on.
    fn fail_before(&self, before: u64, failure: Failure) -> Failure {
        let started = Instant::now();
        loop {
            let seen = self.event.epoch();
            {
                let mut state = self.lock();
                if state.failure.is_none() && state.committed < before {
                    state.member.vote(Vote::Failed(failure.clone()));
                    self.settle(&mut state);
                }
                if let Some(agreed) = &state.failure {
                    let agreed = agreed.clone();
                    drop(state);
                    self.ring();
                    return agreed;
                }
                if state.committed >= before {
                    return failure;
                }
                // A group that does not answer is stuck: then it is this PE's word.
                if started.elapsed() >= VERDICT {
                    return state.failure.insert(failure).clone();
                }
            }
            park(&self.event, seen, SLICE);
        }
    }

    /// Sends what waits on a stream, and frees the slots of what was sent.
    pub(super) fn flush(&self, stream: &Stream) -> io::Result<()> {
        let mut sent = Vec::new();
        let mut sending = lock(&stream.sending);
        let flushed = sending.flush(&stream.socket, &mut sent);
        if flushed.is_err() {
            // The peer reads it no more.
            sent.append(&mut sending.abandon());
        }
        let waits = !sending.is_empty();
        drop(sending);
        if !sent.is_empty() {
            lock(&self.free).append(&mut sent);
            self.ring();
        }
        flushed.map(|()| {
            if waits {
                self.wake();
            }
        })
    }
}

/// Gives a slot back when it is dropped, also by a panic.
struct Claimed<'a> {
    group: &'a Group,
    slot: Option<Vec<u8>>,
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            lock(&self.group.free).push(slot);
            self.group.ring();
        }
    }
}

// SAFETY: `enter` waits until all have said that they entered; `finish` until the members have
// decided to commit, which takes the vote of each. A failure stays.
unsafe impl ControlPlane for Group {
    fn rank(&self) -> usize {
        self.rank
    }

    fn shape(&self) -> Shape {
        self.shape
    }

    fn members(&self) -> Vec<usize> {
        self.lock().member.members().iter().copied().collect()
    }

    fn epoch(&self) -> u64 {
        self.lock().member.epoch()
    }

    unsafe fn recover(&self, _: &Wait<'_>) -> Result<(), Failure> {
        let mut state = self.lock();
        if state.is_decided && state.member.can_decide() {
            (state.failure, state.is_decided) = (None, false);
            self.discard_before(state.member.instance());
        }
        state.failure.clone().map_or(Ok(()), Err)
    }

    fn can_recover(&self) -> bool {
        true
    }

    unsafe fn enter(&self, ticket: Ticket, wait: &Wait<'_>) -> Result<(), Failure> {
        {
            let mut state = self.lock();
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            let instance = state.member.instance();
            state.member.begin_refit();
            state.refit = instance;
            self.refit.store(instance, Ordering::Release);
            state.announce(self.rank, instance, ticket);
            // Under the lock: after this message the membership speaks of this refit.
            self.tell_all(&Control::Enter { instance, ticket });
        }
        loop {
            let seen = self.bell();
            let behind = {
                let state = self.lock();
                let mut members = state.member.members().iter().copied();
                members.find(|member| !state.has_entered(*member))
            };
            let Some(peer) = behind else { return self.failure().map_or(Ok(()), Err) };
            self.park(seen, &wait.until(Phase::Enter, peer))?;
        }
    }

    fn ticket(&self, peer: usize) -> Ticket {
        let state = self.lock();
        state.announced[peer].get(&state.refit).copied().unwrap_or_default()
    }

    unsafe fn finish(&self, wait: &Wait<'_>) -> Result<(), Failure> {
        let instance = {
            let mut state = self.lock();
            // Otherwise the refit is over already.
            if state.failure.is_none() && state.member.instance() == state.refit {
                state.member.vote(Vote::Ready);
                self.settle(&mut state);
            }
            state.refit
        };
        loop {
            let seen = self.bell();
            let awaited = {
                let state = self.lock();
                if state.committed >= instance {
                    return Ok(());
                }
                state.member.awaited()
            };
            let parked = self.park(seen, &wait.until(Phase::Finish, awaited));
            // What was committed before the failure stays so, on every PE.
            if self.lock().committed >= instance {
                return Ok(());
            }
            parked?;
        }
    }

    fn fail(&self, failure: Failure) -> Failure {
        self.fail_before(u64::MAX, failure)
    }

    fn failure(&self) -> Option<Failure> {
        self.lock().failure.clone()
    }

    fn bell(&self) -> u32 {
        self.event.epoch()
    }

    fn park(&self, seen: u32, wait: &Wait<'_>) -> Result<(), Failure> {
        let before = {
            let state = self.lock();
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            // A PE that gives up at the end of a refit does so before it is committed, or not at
            // all.
            if wait.phase == Phase::Finish { state.refit } else { u64::MAX }
        };
        if let Some(failure) = wait.expired(self.rank) {
            return Err(self.fail_before(before, failure));
        }
        park(&self.event, seen, wait.left(SLICE));
        Ok(())
    }
}

impl DataPlane for Group {
    fn try_send(&self, peer: usize, bytes: usize, fill: &mut Fill<'_>) -> Result<bool, Failure> {
        let Shape { slot_bytes, .. } = self.shape;
        assert!(bytes <= slot_bytes, "a message of {bytes} bytes for slots of {slot_bytes}");
        let to = self.peer(peer);
        let Some(slot) = lock(&self.free).pop() else { return Ok(false) };
        let mut claimed = Claimed { group: self, slot: Some(slot) };
        let slot = claimed.slot.as_mut().expect("it was just claimed");
        slot.resize(slot_bytes, 0);
        let header = fill(&mut slot[..bytes]);
        let checksum = if self.checksums { crc32fast::hash(&slot[..bytes]) } else { 0 };
        let slot = claimed.slot.take().expect("it is claimed");
        let (refit, bytes) = (self.refit.load(Ordering::Acquire), bytes as u64);
        let stream = {
            let mut number = lock(&to.to);
            let stream = to.stream(*number);
            let head = Head { number: *number, bytes, refit, header, checksum };
            lock(&stream.sending).push(&head, slot);
            *number += 1;
            stream
        };
        // A connection that is broken is noticed by the thread that reads from it.
        let _ = self.flush(stream);
        Ok(true)
    }

    fn try_receive(&self, peer: usize, take: &mut Take<'_>) -> Result<bool, Failure> {
        if peer == self.rank {
            return Ok(false);
        }
        let from = self.peer(peer);
        self.discard_stale(from);
        let (stream, arrived, was_full) = {
            let mut number = lock(&from.from);
            let stream = from.stream(*number);
            let mut receiving = lock(&stream.receiving);
            let was_full = !receiving.has_room();
            let Some(arrived) = receiving.take() else { return Ok(false) };
            *number += 1;
            (stream, arrived, was_full)
        };
        if was_full {
            self.wake();
        }
        let guard = FailOnPanic::new(self, "the receiver of a message");
        let taken = take(arrived.header, &arrived.slot[..arrived.bytes]);
        guard.disarm();
        lock(&stream.receiving).give_back(arrived.slot);
        taken.map_err(|failure| self.fail(failure))?;
        Ok(true)
    }
}

// SAFETY: no memory is shared.
unsafe impl MemoryPlane for Group {}
