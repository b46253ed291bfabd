//! The pipeline: packing the next message, sending the current one, unpacking the one before.
//!
//! Three cursors walk a program independently: the packer fills slots and sends them, the unpacker
//! empties the peers' slots, the copier does what needs no slot: self moves, and moves into peers'
//! memory. A cursor that cannot go on says so, and whoever drives it turns to another or sleeps. With
//! [`Lanes::Separate`] each has a thread of its own; with [`Lanes::Shared`] the calling thread drives
//! all three, which is the faster way where PEs outnumber cores.
//!
//! No schedule can stall: take the earliest round of which a message is missing. Its sender's slots
//! hold nothing but messages of earlier rounds, which are all taken, and its receiver has taken
//! everything before; so the one can send it and the other is waiting for it.

use std::sync::atomic::{AtomicU64, Ordering};

use super::destination::PeerDestination;
use super::place::Place;
use super::program::{Message, Move, Program};
use super::{BindError, Refit, Sources, Targets};
use crate::copy::{self, Store};
use crate::transport::{Failure, Header, Phase, Transport, Wait};

/// Who drives the pipeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Lanes {
    /// Separate where this host has three cores for every PE, shared otherwise.
    #[default]
    Auto,
    Shared,
    Separate,
}

/// Whether messages carry checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Verify {
    #[default]
    Nothing,
    Checksums,
}

/// The limits of one refit, and who hears of its progress.
pub(crate) struct Control<'a> {
    pub wait: Wait<'a>,
    pub verify: Verify,
    /// Called with the bytes done since the last call.
    pub progress: Option<&'a (dyn Fn(u64) + Sync)>,
}

/// Which of a PE's moves to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    All,
    Peers,
    Itself,
}

/// What one PE has moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Bytes sent through slots.
    pub sent_bytes: u64,
    /// Bytes received through slots.
    pub received_bytes: u64,
    /// Bytes placed directly in peers' memory.
    pub placed_bytes: u64,
    /// Bytes copied within this PE.
    pub kept_bytes: u64,
    /// Messages sent and received.
    pub messages: u64,
}

/// Runs pack, send and unpack for one PE.
#[derive(Clone, Copy)]
pub struct PipelineExecutor<'t> {
    transport: &'t dyn Transport,
    lanes: Lanes,
}

impl std::fmt::Debug for PipelineExecutor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PipelineExecutor(PE {}, {:?} lanes)", self.transport.rank(), self.lanes)
    }
}

/// What a cursor could do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Done,
    Went,
    /// Nothing without this PE.
    Blocked(usize),
}

impl<'t> PipelineExecutor<'t> {
    /// An executor on this PE's endpoint.
    pub fn new(transport: &'t dyn Transport) -> Self {
        Self { transport, lanes: Lanes::Auto }
    }

    /// The same with a thread each for packing, unpacking and copying, or with none of them.
    ///
    /// Without this, the number of cores decides.
    pub fn separate_lanes(self, separate: bool) -> Self {
        Self { lanes: if separate { Lanes::Separate } else { Lanes::Shared }, ..self }
    }

    fn has_separate_lanes(&self) -> bool {
        match self.lanes {
            Lanes::Separate => true,
            Lanes::Shared => false,
            Lanes::Auto => {
                let cores = std::thread::available_parallelism().map_or(1, usize::from);
                cores >= 3 * self.transport.shape().size
            }
        }
    }

    /// Packs, sends and unpacks everything of `refit` that concerns other PEs, into memory of the caller's.
    ///
    /// Every PE has entered the refit and announced no window of its own; whoever announced one is written
    /// directly. [`CopyService`](crate::CopyService) sees to all of that.
    pub fn execute_pipeline(
        &self,
        refit: &Refit,
        sources: &Sources<'_>,
        targets: &mut Targets<'_>,
        wait: Wait<'_>,
    ) -> Result<Moved, Failure> {
        self.execute_bound(refit, sources, targets, wait, Part::Peers)
    }

    /// Copies what stays on this PE.
    pub fn process_self_moves(
        &self,
        refit: &Refit,
        sources: &Sources<'_>,
        targets: &mut Targets<'_>,
        wait: Wait<'_>,
    ) -> Result<Moved, Failure> {
        self.execute_bound(refit, sources, targets, wait, Part::Itself)
    }

    fn execute_bound(
        &self,
        refit: &Refit,
        sources: &Sources<'_>,
        targets: &Targets<'_>,
        wait: Wait<'_>,
        part: Part,
    ) -> Result<Moved, Failure> {
        let unbound = |error: BindError| Failure::Local {
            rank: self.transport.rank(),
            message: error.to_string(),
        };
        sources.check(refit).map_err(unbound)?;
        targets.check(refit).map_err(unbound)?;
        let control = Control { wait, verify: Verify::Nothing, progress: None };
        self.execute(refit, sources, Place::Targets(targets), &control, part)
    }

    /// Moves `part` of `refit`; self moves fill the gaps in which there is nothing to send or unpack.
    pub(crate) fn execute(
        &self,
        refit: &Refit,
        sources: &Sources<'_>,
        place: Place<'_>,
        control: &Control<'_>,
        part: Part,
    ) -> Result<Moved, Failure> {
        let run = Run::new(self.transport, refit.program(), sources, place, control, part)?;
        let (mut packer, mut unpacker, mut copier) = (run.packer(), run.unpacker(), run.copier());
        if self.has_separate_lanes() {
            std::thread::scope(|scope| {
                let pack = scope.spawn(|| run.drive(&mut |run| run.pack(&mut packer)));
                let unpack = scope.spawn(|| run.drive(&mut |run| run.unpack(&mut unpacker)));
                let copied = run.drive(&mut |run| run.copy(&mut copier));
                let joined = [copied, join(pack), join(unpack)];
                joined.into_iter().collect::<Result<(), Failure>>()
            })?;
        } else {
            run.drive(&mut |run| {
                let unpacked = run.unpack(&mut unpacker)?;
                let packed = run.pack(&mut packer)?;
                if unpacked == Step::Went || packed == Step::Went {
                    return Ok(Step::Went);
                }
                Ok(match (run.copy(&mut copier)?, unpacked, packed) {
                    (Step::Went, _, _) => Step::Went,
                    (_, Step::Done, other) | (_, other, _) => other,
                })
            })?;
        }
        Ok(run.moved())
    }
}

/// A panic on a lane goes on as it would have on the caller's thread.
fn join(lane: std::thread::ScopedJoinHandle<'_, Result<(), Failure>>) -> Result<(), Failure> {
    lane.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// One refit under way on one PE.
struct Run<'a> {
    transport: &'a dyn Transport,
    program: &'a Program,
    sources: &'a Sources<'a>,
    place: Place<'a>,
    control: &'a Control<'a>,
    /// The peers' destinations that this PE writes directly, by rank.
    peers: Vec<Option<PeerDestination>>,
    /// Whether the peers that share memory with this PE write its destination directly.
    is_written_directly: bool,
    part: Part,
    store: Store,
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
    placed_bytes: AtomicU64,
    kept_bytes: AtomicU64,
    messages: AtomicU64,
}

/// Refits of fewer bytes than this stay in the caches.
const STREAM_FROM_BYTES: u64 = 8 << 20;

type Messages<'a> = std::iter::Peekable<std::slice::Iter<'a, Message>>;

impl<'a> Run<'a> {
    fn new(
        transport: &'a dyn Transport,
        program: &'a Program,
        sources: &'a Sources<'a>,
        place: Place<'a>,
        control: &'a Control<'a>,
        part: Part,
    ) -> Result<Self, Failure> {
        let rank = transport.rank();
        let mut peers: Vec<Option<PeerDestination>> = Vec::new();
        // A checksum is of what arrives in a slot: with checksums, everything goes through slots.
        let direct = control.verify == Verify::Nothing && part != Part::Itself;
        if direct {
            peers.resize_with(transport.shape().size, || None);
            let mut last = None;
            for each in &program.direct_moves {
                if last != Some(each.peer) && peers[each.peer as usize].is_none() {
                    let opened = PeerDestination::open(transport, each.peer as usize);
                    peers[each.peer as usize] =
                        opened.map_err(|failure| transport.fail(failure))?;
                }
                last = Some(each.peer);
            }
        }
        let is_written_directly = direct && transport.ticket(rank).window.is_some();
        let is_large = program.bytes >= STREAM_FROM_BYTES;
        Ok(Self {
            transport,
            program,
            sources,
            place,
            control,
            peers,
            is_written_directly,
            part,
            store: if is_large { Store::Streaming } else { Store::Cached },
            sent_bytes: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            placed_bytes: AtomicU64::new(0),
            kept_bytes: AtomicU64::new(0),
            messages: AtomicU64::new(0),
        })
    }

    fn peer(&self, rank: u32) -> Option<&PeerDestination> {
        self.peers.get(rank as usize).and_then(Option::as_ref)
    }

    /// Whether `rank` writes this PE's destination itself.
    fn is_placed_by(&self, rank: u32) -> bool {
        self.is_written_directly && self.transport.shares_memory(rank as usize)
    }

    fn packer(&self) -> Messages<'a> {
        let sends: &[Message] = if self.part == Part::Itself { &[] } else { &self.program.sends };
        sends.iter().peekable()
    }

    fn unpacker(&self) -> Messages<'a> {
        let is_idle = self.part == Part::Itself;
        let receives: &[Message] = if is_idle { &[] } else { &self.program.receives };
        receives.iter().peekable()
    }

    fn copier(&self) -> impl Iterator<Item = &'a Move> + use<'a> {
        // Peers first: they may be waiting for it, while nobody waits for a self move.
        let self_moves: &[Move] =
            if self.part == Part::Peers { &[] } else { &self.program.self_moves };
        self.program.direct_moves.iter().chain(self_moves)
    }

    /// Drives `step` until it is done, asleep whenever it is blocked.
    fn drive(&self, step: &mut dyn FnMut(&Self) -> Result<Step, Failure>) -> Result<(), Failure> {
        loop {
            // Read before the attempt: what becomes possible after it moves the bell.
            let seen = self.transport.bell();
            match step(self)? {
                Step::Done => {
                    // By the thread that stored past the caches: fences order only their own thread.
                    copy::fence();
                    return Ok(());
                }
                Step::Went => {
                    if let Some(failure) = self.transport.failure() {
                        return Err(failure);
                    }
                    if let Some(failure) = self.control.wait.expired(self.transport.rank()) {
                        return Err(self.transport.fail(failure));
                    }
                }
                Step::Blocked(peer) => {
                    let wait = self.control.wait.until(Phase::Transfer, peer);
                    self.transport.park(seen, &wait)?;
                }
            }
        }
    }

    fn report(&self, counter: &AtomicU64, bytes: u64) {
        counter.fetch_add(bytes, Ordering::Relaxed);
        if let Some(progress) = self.control.progress {
            progress(bytes);
        }
    }

    /// Packs and sends the next message, if a slot is free.
    fn pack(&self, messages: &mut Messages<'_>) -> Result<Step, Failure> {
        while messages.next_if(|message| self.peer(message.peer).is_some()).is_some() {}
        let Some(message) = messages.peek() else { return Ok(Step::Done) };
        let peer = message.peer as usize;
        let sent = self.transport.try_send(peer, message.bytes, &mut |slot| {
            self.fill(message, slot);
            Header { tag: message.tag, checksum: self.checksum(slot) }
        })?;
        if !sent {
            return Ok(Step::Blocked(peer));
        }
        self.report(&self.sent_bytes, message.bytes as u64);
        self.messages.fetch_add(1, Ordering::Relaxed);
        messages.next();
        Ok(Step::Went)
    }

    fn fill(&self, message: &Message, slot: &mut [u8]) {
        for piece in &message.pieces {
            let shape = self.program.shape(piece.shape);
            let (_, span) = shape.copy.spans();
            assert!(
                piece.slot_offset + span <= slot.len(),
                "{span} bytes at {}",
                piece.slot_offset
            );
            // SAFETY: the source is bound, with the size of the shard that the piece lies in; the
            // target was just checked, and the slot is this thread's until it is sent.
            unsafe {
                let source = self.sources.start(piece.tensor).add(piece.tensor_offset);
                let target = slot.as_mut_ptr().add(piece.slot_offset);
                // The receiver reads the slot next: through the caches.
                copy::copy_box(&shape.copy, source, target, shape.convert, Store::Cached);
            }
        }
    }

    /// Takes the next message, if it has come.
    fn unpack(&self, messages: &mut Messages<'_>) -> Result<Step, Failure> {
        while messages.next_if(|message| self.is_placed_by(message.peer)).is_some() {}
        let Some(message) = messages.peek() else { return Ok(Step::Done) };
        let peer = message.peer as usize;
        let taken = self.transport.try_receive(peer, &mut |header, slot| {
            self.check(message, header, slot)?;
            self.empty(message, slot);
            Ok(())
        })?;
        if !taken {
            return Ok(Step::Blocked(peer));
        }
        self.report(&self.received_bytes, message.bytes as u64);
        self.messages.fetch_add(1, Ordering::Relaxed);
        messages.next();
        Ok(Step::Went)
    }

    fn check(&self, message: &Message, header: Header, slot: &[u8]) -> Result<(), Failure> {
        let (sender, receiver) = (message.peer as usize, self.transport.rank());
        if slot.len() != message.bytes || header.tag != message.tag {
            return Err(Failure::SizeMismatch {
                sender,
                receiver,
                tag: header.tag,
                sent_bytes: slot.len() as u64,
                expected_bytes: message.bytes as u64,
            });
        }
        let got = self.checksum(slot);
        if got != header.checksum {
            let (tag, expected) = (header.tag, header.checksum);
            return Err(Failure::Corrupt { sender, receiver, tag, expected, got });
        }
        Ok(())
    }

    fn checksum(&self, slot: &[u8]) -> u32 {
        match self.control.verify {
            Verify::Checksums => crc32fast::hash(slot),
            Verify::Nothing => 0,
        }
    }

    fn empty(&self, message: &Message, slot: &[u8]) {
        for piece in &message.pieces {
            let shape = self.program.shape(piece.shape);
            let (span, _) = shape.copy.spans();
            assert!(
                piece.slot_offset + span <= slot.len(),
                "{span} bytes at {}",
                piece.slot_offset
            );
            // SAFETY: the slot was just checked; the target is bound, with the size of the shard that the
            // piece lies in, and the plan writes each of its bytes once.
            unsafe {
                let source = slot.as_ptr().add(piece.slot_offset);
                let target = self.place.start(piece.tensor).add(piece.tensor_offset);
                copy::copy_box(&shape.copy, source, target, shape.convert, self.store);
            }
        }
    }

    /// Copies the next box that needs no slot.
    fn copy(&self, moves: &mut impl Iterator<Item = &'a Move>) -> Result<Step, Failure> {
        let rank = self.program.rank;
        let mut here =
            moves.by_ref().skip_while(|each| each.peer != rank && self.peer(each.peer).is_none());
        let Some(each) = here.next() else { return Ok(Step::Done) };
        let shape = self.program.shape(each.shape);
        let bytes = shape.copy.target_bytes() as u64;
        let (counter, target) = if each.peer == rank {
            // SAFETY: the target is bound, with the size of the shard that the box lies in.
            let target = unsafe { self.place.start(each.target).add(each.target_offset) };
            (&self.kept_bytes, target)
        } else {
            (&self.placed_bytes, self.peer_address(each)?)
        };
        // SAFETY: the source is bound, with the size of its shard; the target was checked or is bound, and
        // the plan writes each of its bytes once.
        unsafe {
            let source = self.sources.start(each.source).add(each.source_offset);
            copy::copy_box(&shape.copy, source, target, shape.convert, self.store);
        }
        self.report(counter, bytes);
        Ok(Step::Went)
    }

    fn peer_address(&self, each: &Move) -> Result<*mut u8, Failure> {
        let (_, span) = self.program.shape(each.shape).copy.spans();
        let peer = self.peer(each.peer).expect("skipped where there is none");
        peer.address(each.target, each.target_offset, span).ok_or_else(|| {
            let message = format!(
                "tensor {} of PE {} has no room for {span} bytes at {}",
                each.target, each.peer, each.target_offset
            );
            self.transport.fail(Failure::Local { rank: self.transport.rank(), message })
        })
    }

    fn moved(&self) -> Moved {
        Moved {
            sent_bytes: self.sent_bytes.load(Ordering::Relaxed),
            received_bytes: self.received_bytes.load(Ordering::Relaxed),
            placed_bytes: self.placed_bytes.load(Ordering::Relaxed),
            kept_bytes: self.kept_bytes.load(Ordering::Relaxed),
            messages: self.messages.load(Ordering::Relaxed),
        }
    }
}
