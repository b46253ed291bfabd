//! The pipeline: packing the next message, sending the current one, unpacking the one before.
//!
//! Three cursors walk a program independently: the packer fills slots and sends them, the unpacker
//! empties the peers' slots, the copier does what needs no slot: self moves, and moves into peers'
//! memory. A cursor that cannot go on says so, and whoever drives it turns to another or sleeps.
//! Where tensors are on devices, or where there are cores enough, the three run on lanes of the
//! device layer ([`PipelineLanes`]); otherwise the calling thread drives all three, which is the
//! faster way where PEs outnumber cores.
//!
//! No schedule can stall: take the earliest round of which a message is missing. Its sender's slots
//! hold nothing but messages of earlier rounds, which are all taken, and its receiver has taken
//! everything before; so the one can send it and the other is waiting for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use syncline_device::Lane;

use super::copier::Copier;
use super::delta::{Delta, Wanted};
use super::destination::{PeerDestination, PeerWindow};
use super::lanes::{LaneRun, PipelineLanes};
use super::place::Place;
use super::program::{Message, Move, Program};
use super::timeline::{RefitActivity, Timeline};
use super::{BindError, Refit, Shards, Sources, Targets, verify};
use syncline_copy::{Store, fence};
use syncline_layout::LayoutError;
use syncline_transport::{Failure, Header, Phase, Session, Transport, Wait};

/// Who drives the pipeline, where every tensor is in memory of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Driver {
    /// Lanes where this host has three cores for every PE, the caller otherwise.
    #[default]
    Auto,
    Caller,
    Lanes,
}

/// The limits of one refit, and who hears of its progress.
pub(crate) struct Control<'a> {
    pub wait: Wait<'a>,
    /// Called with the bytes done since the last call.
    pub progress: Option<&'a (dyn Fn(u64) + Sync)>,
    /// Where the thread that drives the pipeline records what it did.
    pub timeline: Option<&'a Timeline>,
    /// What changes are told of, if not everything is sent; everything is in memory of the process
    /// then.
    pub delta: Option<&'a Delta>,
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
    /// Bytes of tensors in messages of a delta refit, sent and received.
    pub compared_bytes: u64,
    /// The part of `compared_bytes` that was not as in the refit before; all bytes of a message
    /// that came whole.
    pub changed_bytes: u64,
}

/// Runs pack, send and unpack for one PE, in a refit that every PE has entered.
#[derive(Clone, Copy)]
pub struct PipelineExecutor<'t> {
    session: &'t Session<'t>,
    driver: Driver,
    lanes: LanesOf<'t>,
}

/// Where an executor has its lanes from.
#[derive(Clone, Copy)]
enum LanesOf<'t> {
    /// Opened for each run that needs them.
    Itself,
    Given(&'t PipelineLanes),
    /// Opened when first needed, and kept.
    Kept(&'t OnceLock<PipelineLanes>),
}

impl std::fmt::Debug for PipelineExecutor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PipelineExecutor({:?}, driven by {:?})", self.session, self.driver)
    }
}

/// What a cursor could do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Done,
    Went,
    /// Nothing without this PE.
    Blocked(usize),
}

impl<'t> PipelineExecutor<'t> {
    /// An executor for the refit that `session` has entered.
    pub fn new(session: &'t Session<'t>) -> Self {
        Self { session, driver: Driver::Auto, lanes: LanesOf::Itself }
    }

    /// The same with lanes for packing, sending, unpacking and copying, or with the calling thread
    /// doing all of it.
    ///
    /// Without this, the number of cores decides. What is in memory of a device always goes by
    /// lanes.
    pub fn separate_lanes(self, separate: bool) -> Self {
        Self { driver: if separate { Driver::Lanes } else { Driver::Caller }, ..self }
    }

    /// The same with these lanes, where it needs any; otherwise it opens lanes of the host for
    /// itself.
    pub fn on(self, lanes: &'t PipelineLanes) -> Self {
        Self { lanes: LanesOf::Given(lanes), ..self }
    }

    /// The same with lanes that are opened when they are first needed.
    pub(crate) fn keeping(self, lanes: &'t OnceLock<PipelineLanes>) -> Self {
        Self { lanes: LanesOf::Kept(lanes), ..self }
    }

    fn wants_lanes(&self) -> bool {
        match self.driver {
            Driver::Lanes => true,
            Driver::Caller => false,
            Driver::Auto => {
                let cores = std::thread::available_parallelism().map_or(1, usize::from);
                cores >= 3 * self.session.transport().shape().size
            }
        }
    }

    /// Packs, sends and unpacks everything of `refit` that concerns other PEs, into memory of the
    /// caller's.
    ///
    /// Every PE has entered with [`Refit::announced`]. [`CopyService`](crate::CopyService) does all
    /// of that, and lets peers write destinations directly.
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
        // The others must not wait for this PE until their deadline.
        let transport = self.session.transport();
        let refuse =
            |message: String| transport.fail(Failure::Local { rank: transport.rank(), message });
        if self.session.fingerprint() != refit.announced() || transport.rank() != refit.rank() {
            let session = self.session;
            return Err(refuse(format!(
                "{session:?} was not entered for the refit that is to run"
            )));
        }
        let unbound = |error: BindError| refuse(error.to_string());
        sources.bound.check(refit.sources()).map_err(unbound)?;
        targets.check(refit, sources).map_err(unbound)?;
        let control = Control { wait, progress: None, timeline: None, delta: None };
        self.execute(refit, sources, Place::Targets(targets), &control, part)
    }

    /// Moves `part` of `refit`; self moves fill the gaps in which there is nothing to send or
    /// unpack.
    pub(crate) fn execute(
        &self,
        refit: &Refit,
        sources: &Sources<'_>,
        place: Place<'_>,
        control: &Control<'_>,
        part: Part,
    ) -> Result<Moved, Failure> {
        let run = Run::new(self.session.transport(), refit, sources, place, control, part)?;
        if run.needs_lanes() || (self.wants_lanes() && control.delta.is_none()) {
            match self.lanes {
                LanesOf::Given(lanes) => LaneRun::run(&run, lanes)?,
                LanesOf::Itself => LaneRun::run(&run, &self.open_lanes()?)?,
                LanesOf::Kept(kept) => {
                    if kept.get().is_none() {
                        // Somebody else may have been faster; one of the two is as good as the
                        // other.
                        let _ = kept.set(self.open_lanes()?);
                    }
                    LaneRun::run(&run, kept.get().expect("set above"))?
                }
            }
        } else {
            let (mut packer, mut unpacker, mut copier) = (Packer::default(), 0, Copier::new(&run));
            run.drive(&mut |run| {
                let unpacked = run.unpack(&mut unpacker)?;
                let packed = run.pack(&mut packer)?;
                if unpacked == Step::Went || packed == Step::Went {
                    return Ok(Step::Went);
                }
                Ok(match (copier.step()?, unpacked, packed) {
                    (Step::Went, _, _) => Step::Went,
                    (_, Step::Done, other) | (_, other, _) => other,
                })
            })?;
        }
        Ok(run.moved())
    }

    fn open_lanes(&self) -> Result<PipelineLanes, Failure> {
        PipelineLanes::new().map_err(|error| {
            let transport = self.session.transport();
            let message = format!("no lanes for a refit: {error}");
            transport.fail(Failure::Local { rank: transport.rank(), message })
        })
    }
}

/// One refit under way on one PE.
pub(super) struct Run<'a> {
    pub(super) transport: &'a dyn Transport,
    pub(super) program: &'a Arc<Program>,
    pub(super) targets: &'a Arc<Shards>,
    pub(super) sources: &'a Sources<'a>,
    pub(super) place: Place<'a>,
    pub(super) control: &'a Control<'a>,
    /// The peers' destinations that this PE writes directly, by rank.
    peers: Vec<Option<PeerDestination>>,
    /// Whether the peers that share memory with this PE write its destination directly.
    is_written_directly: bool,
    part: Part,
    pub(super) store: Store,
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
    placed_bytes: AtomicU64,
    kept_bytes: AtomicU64,
    messages: AtomicU64,
    compared_bytes: AtomicU64,
    changed_bytes: AtomicU64,
}

/// What is packed next.
#[derive(Default)]
struct Packer {
    /// The position of the next message.
    next: usize,
    /// The sums of the next message, if its segments already lie in the receiver's memory.
    placed: Option<Vec<u32>>,
    /// The form in which a delta refit sends the next message.
    wanted: Option<Wanted>,
}

impl<'a> Run<'a> {
    fn new(
        transport: &'a dyn Transport,
        refit: &'a Refit,
        sources: &'a Sources<'a>,
        place: Place<'a>,
        control: &'a Control<'a>,
        part: Part,
    ) -> Result<Self, Failure> {
        let (rank, program) = (transport.rank(), refit.program());
        let (world, size) = (refit.world(), transport.shape().size);
        if world > size {
            let message = LayoutError::GroupTooSmall { world, size }.to_string();
            return Err(transport.fail(Failure::Local { rank, message }));
        }
        // Messages fit slots of the size that the shape says, which ports ask of each slot.
        let (needed, slot_bytes) = (refit.slot_bytes(), transport.shape().slot_bytes);
        if needed > slot_bytes {
            let message = format!(
                "this refit was prepared for slots of {needed} bytes, and this group has slots of {slot_bytes}"
            );
            return Err(transport.fail(Failure::Local { rank, message }));
        }
        let mut peers: Vec<Option<PeerDestination>> = Vec::new();
        let direct = part != Part::Itself;
        if direct {
            peers.resize_with(transport.shape().size, || None);
            for peer in program.sends.iter().map(|message| message.peer as usize) {
                if peers[peer].is_none() {
                    let opened = PeerDestination::open(transport, peer);
                    peers[peer] = opened.map_err(|failure| transport.fail(failure))?;
                }
            }
        }
        let is_written_directly = direct && transport.ticket(rank).window.is_some();
        Ok(Self {
            transport,
            program,
            targets: refit.targets(),
            sources,
            place,
            control,
            peers,
            is_written_directly,
            part,
            store: Store::for_bytes(program.bytes),
            sent_bytes: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            placed_bytes: AtomicU64::new(0),
            kept_bytes: AtomicU64::new(0),
            messages: AtomicU64::new(0),
            compared_bytes: AtomicU64::new(0),
            changed_bytes: AtomicU64::new(0),
        })
    }

    pub(super) fn peer(&self, rank: u32) -> Option<&PeerDestination> {
        self.peers.get(rank as usize).and_then(Option::as_ref)
    }

    /// Whether `rank` writes this PE's destination itself.
    pub(super) fn is_placed_by(&self, rank: u32) -> bool {
        self.is_written_directly && self.transport.shares_memory(rank as usize)
    }

    /// Whether anything that this PE reads or writes is in memory of a device.
    fn needs_lanes(&self) -> bool {
        self.sources.bound.has_views() || self.place.has_views() || self.offers().next().is_some()
    }

    fn offers(&self) -> impl Iterator<Item = &Arc<dyn Lane>> {
        self.peers.iter().flatten().filter_map(|peer| match peer {
            PeerDestination::Offered(offer) => Some(offer.lane()),
            PeerDestination::Window(_) => None,
        })
    }

    /// The lanes of peers that this PE may give work.
    pub(super) fn offered_lanes(&self) -> Vec<Arc<dyn Lane>> {
        self.offers().cloned().collect()
    }

    /// Which messages this PE sends, by position: those of which something goes through a slot.
    pub(super) fn sends(&self) -> Vec<usize> {
        let messages = self.all_sends().iter().enumerate();
        messages.filter(|(_, message)| self.is_sent(message)).map(|(at, _)| at).collect()
    }

    /// Which messages this PE receives, by position.
    pub(super) fn receives(&self) -> Vec<usize> {
        let messages = self.all_receives().iter().enumerate();
        messages.filter(|(_, message)| self.is_received(message)).map(|(at, _)| at).collect()
    }

    /// What lies in the receiver's memory needs no message, unless for its checksums.
    fn is_sent(&self, message: &Message) -> bool {
        self.program.is_checked || self.peer(message.peer).is_none()
    }

    fn is_received(&self, message: &Message) -> bool {
        self.program.is_checked || !self.is_placed_by(message.peer)
    }

    /// The boxes that need no slot.
    pub(super) fn moves(&self) -> impl Iterator<Item = &'a Move> {
        self.program.moves.iter().filter(|each| self.copies(each))
    }

    /// Whether a box needs no slot, and is to be moved.
    pub(super) fn copies(&self, each: &Move) -> bool {
        match each.peer == self.program.rank {
            true => self.part != Part::Peers,
            false => self.peer(each.peer).is_some(),
        }
    }

    /// A message was sent; its segments by way of the slot, or straight to where they belong.
    pub(super) fn report_sent(&self, message: &Message) {
        match self.peer(message.peer) {
            None => self.report(&self.sent_bytes, message.bytes as u64),
            Some(_) => self.report(&self.placed_bytes, message.target_bytes(self.program)),
        }
        self.messages.fetch_add(1, Ordering::Relaxed);
    }

    /// A message was taken.
    pub(super) fn report_received(&self, message: &Message) {
        if !self.is_placed_by(message.peer) {
            self.report(&self.received_bytes, message.bytes as u64);
        }
        self.messages.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn report_copied(&self, placed: u64, kept: u64) {
        self.report(&self.placed_bytes, placed);
        self.report(&self.kept_bytes, kept);
    }

    fn all_sends(&self) -> &'a [Message] {
        if self.part == Part::Itself { &[] } else { &self.program.sends }
    }

    fn all_receives(&self) -> &'a [Message] {
        if self.part == Part::Itself { &[] } else { &self.program.receives }
    }

    /// Drives `step` until it is done, asleep whenever it is blocked.
    fn drive(&self, step: &mut dyn FnMut(&Self) -> Result<Step, Failure>) -> Result<(), Failure> {
        loop {
            // Read before the attempt: what becomes possible after it moves the bell.
            let seen = self.transport.bell();
            match step(self)? {
                Step::Done => {
                    // By the thread that stored past the caches: fences order only their own
                    // thread.
                    fence();
                    return Ok(());
                }
                Step::Went => self.check_limits()?,
                Step::Blocked(peer) => {
                    let wait = self.control.wait.until(Phase::Transfer, peer);
                    self.transport.park(seen, &wait)?;
                    self.record(RefitActivity::Wait, peer as u32, 0);
                }
            }
        }
    }

    /// Whether this PE may go on, which it could.
    pub(super) fn check_limits(&self) -> Result<(), Failure> {
        if let Some(failure) = self.transport.failure() {
            return Err(failure);
        }
        // It has not waited for anybody: if it is late, that is its own work.
        let rank = self.transport.rank();
        let late = self.control.wait.until(Phase::Transfer, rank).expired(rank);
        late.map_or(Ok(()), |failure| Err(self.transport.fail(failure)))
    }

    /// Records what the driving thread did since it recorded something last.
    pub(super) fn record(&self, activity: RefitActivity, peer: u32, bytes: u64) {
        if let Some(timeline) = self.control.timeline {
            timeline.add(activity, peer as usize, bytes);
        }
    }

    fn report(&self, counter: &AtomicU64, bytes: u64) {
        counter.fetch_add(bytes, Ordering::Relaxed);
        if let Some(progress) = self.control.progress {
            progress(bytes);
        }
    }

    /// Packs and sends the next message, if a slot is free.
    fn pack(&self, packer: &mut Packer) -> Result<Step, Failure> {
        let sends = self.all_sends();
        packer.next += sends[packer.next..].iter().take_while(|each| !self.is_sent(each)).count();
        let Some(message) = sends.get(packer.next) else { return Ok(Step::Done) };
        let peer = message.peer as usize;
        if let Some(delta) = self.control.delta {
            return self.pack_changes(delta, packer, message);
        }
        if packer.placed.is_none() && self.peer(message.peer).is_some() {
            packer.placed = Some(self.place(message)?);
        }
        let bytes = message.slot_bytes(packer.placed.is_some());
        let sent = self.transport.try_send(peer, bytes, &mut |slot| match &packer.placed {
            Some(sums) => message.seal(slot, sums),
            None => {
                self.fill(message, slot);
                message.seal_packed(slot)
            }
        })?;
        if !sent {
            return Ok(Step::Blocked(peer));
        }
        self.report_sent(message);
        self.record(RefitActivity::Pack, message.peer, message.bytes as u64);
        packer.placed = None;
        packer.next += 1;
        Ok(Step::Went)
    }

    /// Sends what has changed of the next message, if a slot is free.
    fn pack_changes(
        &self,
        delta: &Delta,
        packer: &mut Packer,
        message: &Message,
    ) -> Result<Step, Failure> {
        let (at, peer) = (packer.next, message.peer as usize);
        let wanted = packer.wanted.take().unwrap_or_else(|| {
            let (wanted, compared) = delta.prepare(at, message, |slot| self.fill(message, slot));
            self.compared_bytes.fetch_add(message.bytes as u64, Ordering::Relaxed);
            self.changed_bytes.fetch_add(compared.changed_bytes, Ordering::Relaxed);
            wanted
        });
        let bytes = wanted.slot_bytes(message);
        let mut write = |slot: &mut [u8]| delta.write(at, message, &wanted, slot);
        if !self.transport.try_send(peer, bytes, &mut write)? {
            packer.wanted = Some(wanted);
            return Ok(Step::Blocked(peer));
        }
        self.report_message(&self.sent_bytes, message, bytes);
        self.record(RefitActivity::Pack, message.peer, message.bytes as u64);
        packer.next += 1;
        Ok(Step::Went)
    }

    /// A message of a delta refit was sent or taken, of which `bytes` were on the way.
    fn report_message(&self, counter: &AtomicU64, message: &Message, bytes: usize) {
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
        self.messages.fetch_add(1, Ordering::Relaxed);
        if let Some(progress) = self.control.progress {
            progress(message.bytes as u64);
        }
    }

    /// Puts the segments of a message where they belong in its receiver's memory, and returns their
    /// sums.
    fn place(&self, message: &Message) -> Result<Vec<u32>, Failure> {
        let mut starts = Vec::with_capacity(message.moves.len());
        for each in &message.moves {
            let target = self.window_address(each)?;
            // SAFETY: the source is bound, with the size of its shard; the target was checked, and
            // the plan writes each of its bytes once. Through the caches: it is read next, for its
            // sum.
            unsafe { self.copy_move(each, target, Store::Cached) };
            starts.push(target.cast_const());
        }
        let sum = |segment| {
            // SAFETY: written above, by nobody else in this refit.
            unsafe { verify::in_place(self.program, message, segment, |at| starts[at]) }
        };
        Ok(message.segments.iter().map(sum).collect())
    }

    /// Asks for the start of a box of a source tensor, whose turn is next.
    fn prefetch(&self, shape: u32, source: u32, offset: usize) {
        let start = self.sources.bound.start(source).wrapping_add(offset);
        self.program.shape(shape).copy.prefetch(start);
    }

    fn fill(&self, message: &Message, slot: &mut [u8]) {
        let mut pieces = message.pieces.iter().peekable();
        while let Some(piece) = pieces.next() {
            if let Some(next) = pieces.peek() {
                self.prefetch(next.shape, next.tensor, next.tensor_offset);
            }
            let shape = self.program.shape(piece.shape);
            piece.check_room(shape.copy.target_span().end, slot.len());
            // SAFETY: the source is bound, with the size of the shard that the piece lies in; the
            // target was just checked, and the slot is this thread's until it is sent.
            unsafe {
                let source = self.sources.bound.start(piece.tensor).add(piece.tensor_offset);
                let target = slot.as_mut_ptr().add(piece.slot_offset);
                // The receiver reads the slot next: through the caches.
                let change = shape.change(|| self.scales(piece.tensor), piece.tensor_offset);
                shape.copy.run_as((source, target), change, Store::Cached);
            }
        }
    }

    /// Takes the next message, if it has come.
    fn unpack(&self, next: &mut usize) -> Result<Step, Failure> {
        let receives = self.all_receives();
        *next += receives[*next..].iter().take_while(|each| !self.is_received(each)).count();
        let Some(message) = receives.get(*next) else { return Ok(Step::Done) };
        let peer = message.peer as usize;
        if let Some(delta) = self.control.delta {
            return self.unpack_changes(delta, next, message);
        }
        let is_placed = self.is_placed_by(message.peer);
        let taken = self.transport.try_receive(peer, &mut |header, slot| {
            self.check(message, is_placed, header, slot)?;
            if !is_placed {
                self.empty(message, slot);
            }
            Ok(())
        })?;
        if !taken {
            return Ok(Step::Blocked(peer));
        }
        self.report_received(message);
        self.record(RefitActivity::Unpack, message.peer, message.bytes as u64);
        *next += 1;
        Ok(Step::Went)
    }

    /// Takes what has changed of the next message, if it has come.
    fn unpack_changes(
        &self,
        delta: &Delta,
        next: &mut usize,
        message: &Message,
    ) -> Result<Step, Failure> {
        let peer = message.peer as usize;
        let (mut bytes, whose) = (0, (&**self.targets, self.transport.rank()));
        let taken = self.transport.try_receive(peer, &mut |header, slot| {
            bytes = slot.len();
            let empty = |kept: &[u8]| self.empty(message, kept);
            let compared = delta.take(*next, message, whose, (header, slot), empty)?;
            self.compared_bytes.fetch_add(message.bytes as u64, Ordering::Relaxed);
            self.changed_bytes.fetch_add(compared.changed_bytes, Ordering::Relaxed);
            Ok(())
        })?;
        if !taken {
            return Ok(Step::Blocked(peer));
        }
        self.report_message(&self.received_bytes, message, bytes);
        self.record(RefitActivity::Unpack, message.peer, message.bytes as u64);
        *next += 1;
        Ok(Step::Went)
    }

    fn check(
        &self,
        message: &Message,
        is_placed: bool,
        header: Header,
        slot: &[u8],
    ) -> Result<(), Failure> {
        let (receiver, came) = (self.transport.rank(), (header, slot));
        message.verify(self.targets, receiver, is_placed, came, |segment| match is_placed {
            false => verify::in_slot(segment, slot),
            // SAFETY: the target is bound, with the size of the shard that the piece lies in; its
            // sender has written it, and leaves it alone from the message on.
            true => unsafe {
                verify::in_place(self.program, message, segment, |at| self.piece_start(message, at))
            },
        })
    }

    /// Where piece `at` of a message that this PE receives starts in its memory.
    ///
    /// # Safety
    /// The target is in memory of the process, and bound.
    pub(super) unsafe fn piece_start(&self, message: &Message, at: usize) -> *const u8 {
        let piece = &message.pieces[at];
        // SAFETY: the piece lies within the shard.
        unsafe { self.place.start(piece.tensor).add(piece.tensor_offset) }
    }

    fn empty(&self, message: &Message, slot: &[u8]) {
        for piece in &message.pieces {
            let shape = self.program.shape(piece.shape);
            piece.check_room(shape.copy.source_span().end, slot.len());
            // SAFETY: the slot was just checked; the target is bound, with the size of the shard
            // that the piece lies in, and the plan writes each of its bytes once.
            unsafe {
                let source = slot.as_ptr().add(piece.slot_offset);
                let target = self.place.start(piece.tensor).add(piece.tensor_offset);
                let change = shape.change(std::ptr::null, 0);
                shape.copy.run_as((source, target), change, self.store);
            }
        }
    }

    /// # Safety
    /// The source is bound to memory of the process, the box fits `target`, and nobody else touches
    /// that meanwhile.
    unsafe fn copy_move(&self, each: &Move, target: *mut u8, store: Store) {
        let shape = self.program.shape(each.shape);
        // SAFETY: the caller's promise.
        unsafe {
            let source = self.sources.bound.start(each.source).add(each.source_offset);
            let change = shape.change(|| self.scales(each.source), each.source_offset);
            shape.copy.run_as((source, target), change, store);
        }
    }

    /// Where a box goes in the memory of a peer, which is in a window.
    pub(super) fn window_address(&self, each: &Move) -> Result<*mut u8, Failure> {
        let Some(PeerDestination::Window(window)) = self.peer(each.peer) else {
            unreachable!("what is on a device goes by lanes")
        };
        self.peer_address(window, each)
    }

    /// The scales of a source tensor that is restored.
    pub(super) fn scales(&self, tensor: u32) -> *const u8 {
        self.program
            .scales
            .get(&tensor)
            .map_or(std::ptr::null(), |&at| self.sources.bound.start(at))
    }

    /// Where a box goes in a peer's window.
    pub(super) fn peer_address(&self, peer: &PeerWindow, each: &Move) -> Result<*mut u8, Failure> {
        let span = self.program.shape(each.shape).copy.target_span().end as usize;
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
            compared_bytes: self.compared_bytes.load(Ordering::Relaxed),
            changed_bytes: self.changed_bytes.load(Ordering::Relaxed),
        }
    }
}
