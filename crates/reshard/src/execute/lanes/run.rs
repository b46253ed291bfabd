//! One PE's part of a refit on lanes.
//!
//! The calling thread submits and waits for points; bytes are moved by lanes. A slot that the slot
//! lane found free is packed, and sent when the pack lanes say so, and asked for again once it is
//! sent; a message that the receive lane has verified is unpacked, and its slot given back; in
//! between, the copy lanes do what needs no slot. At most `depth` messages are under way in each
//! direction, and two batches of copies.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use syncline_device::{
    Backend, Batch, CancelToken, Command, Deadline, DeviceError, HostFunction, Lane, LaneKind,
    Point, PointStatus, wait_any,
};

use super::super::bindings::Held;
use super::super::destination::PeerDestination;
use super::super::pipeline::Run;
use super::super::program::{Message, Move, Program};
use super::PipelineLanes;
use super::boxes::{BoxMove, Memory, Moves, Side};
use super::port::{Expected, Placed, Port};
use syncline_copy::{CopyPlan, Store};
use syncline_transport::{Failure, Transport};

/// How long the calling thread sleeps before it looks whether somebody has cancelled.
const SLICE: Duration = Duration::from_millis(20);

/// Batches of copies under way: one runs while the next is submitted.
const COPIES_MAX: usize = 2;

/// A refit under way on lanes.
pub(crate) struct LaneRun<'a> {
    run: &'a Run<'a>,
    lanes: &'a PipelineLanes,
    port: Arc<Port>,
    /// Cancelled when the run ends early: batches that wait for work of others give up.
    cancel: CancelToken,
}

/// What the calling thread waits for.
#[derive(Default)]
struct Pending {
    /// Slots that packing waits for: which message, and when its slot is free.
    free: VecDeque<(usize, Point)>,
    /// Messages to be sent: when, and which.
    sent: VecDeque<(Point, usize)>,
    /// Messages expected: when they are there.
    ready: VecDeque<(Expected, Point)>,
    /// Messages being unpacked: until when, and which.
    unpacked: VecDeque<(Point, usize)>,
    /// Copies: until when, and their bytes, those placed with peers and those kept.
    copied: VecDeque<(Vec<Point>, u64, u64)>,
}

/// How far a run has come.
#[derive(Default)]
struct Counts {
    slots_asked: usize,
    packed: usize,
    messages_asked: usize,
    unpacked: usize,
}

impl<'a> LaneRun<'a> {
    /// Runs everything of `run` on `lanes`, and returns when no lane has anything of it left.
    pub fn run(run: &'a Run<'a>, lanes: &'a PipelineLanes) -> Result<(), Failure> {
        let offered = run.offered_lanes();
        // SAFETY: `drain` waits for every lane before this function returns or unwinds, and nothing
        // is submitted before it is there.
        let port = Arc::new(unsafe { Port::new(run, lanes) });
        let cancel = CancelToken::new();
        let mut drain = Drain {
            transport: run.transport,
            lanes,
            offered,
            port: port.clone(),
            cancel: cancel.clone(),
            is_done: false,
        };
        let this = Self { run, lanes, port, cancel };
        let result = this.drive().map_err(|error| this.failure(error));
        drain.is_done = result.is_ok();
        result
    }

    /// What the whole group fails with: what it agreed on already, or else this.
    fn failure(&self, error: Stopped) -> Failure {
        let transport = self.run.transport;
        if let Some(failure) = transport.failure() {
            return failure;
        }
        transport.fail(match error {
            Stopped::Failed(failure) => failure,
            Stopped::Lane(error) => {
                let message = error.root_cause().to_string();
                Failure::Local { rank: transport.rank(), message }
            }
        })
    }

    fn drive(&self) -> Result<(), Stopped> {
        let sends = self.run.sends();
        let receives = self.run.receives();
        let mut moves = self.parts().peekable();
        let depth = self.run.transport.shape().depth;
        let (mut pending, mut counts) = (Pending::default(), Counts::default());
        loop {
            self.take_done(&mut pending)?;
            // A slot of the port's own is free again when its message is sent.
            let sent = counts.packed - pending.sent.len();
            while counts.slots_asked < sends.len().min(sent + depth) {
                pending.free.push_back(self.ask_slot(&sends, counts.slots_asked)?);
                counts.slots_asked += 1;
            }
            let in_work = counts.unpacked - pending.unpacked.len();
            while counts.messages_asked < receives.len().min(in_work + depth) {
                let asked = counts.messages_asked;
                let (at, own_slot) = (receives[asked], asked % depth);
                pending.ready.push_back(self.ask_message(at, own_slot)?);
                counts.messages_asked += 1;
            }
            if let Some((asked, free)) = pop_reached(&mut pending.free, |(_, point)| point)? {
                let at = sends[asked];
                pending.sent.push_back((self.pack(at, asked % depth, free)?, at));
                counts.packed += 1;
                continue;
            }
            if let Some((expected, ready)) = pop_reached(&mut pending.ready, |(_, point)| point)? {
                let unpacked = self.unpack(&expected, ready)?;
                pending.unpacked.push_back((unpacked, expected.at));
                counts.unpacked += 1;
                continue;
            }
            if pending.copied.len() < COPIES_MAX && moves.peek().is_some() {
                pending.copied.push_back(self.copy(&mut moves)?);
                continue;
            }
            if pending.is_empty() {
                return Ok(());
            }
            self.wait(&pending.fronts())?;
        }
    }

    /// Waits until one of `points` is reached, or somebody cancels, or the deadline passes.
    fn wait(&self, points: &[Point]) -> Result<(), Stopped> {
        let wait = &self.run.control.wait;
        match wait_any(points, Deadline::after(wait.left(SLICE))) {
            Ok(_) | Err(DeviceError::NothingToWaitFor) => {}
            Err(DeviceError::DeadlinePassed { .. }) => {}
            Err(error) => return Err(Stopped::Lane(error)),
        }
        if let Some(failure) = self.run.transport.failure() {
            return Err(Stopped::Failed(failure));
        }
        wait.expired(self.run.transport.rank())
            .map_or(Ok(()), |failure| Err(Stopped::Failed(failure)))
    }

    /// Reports everything that has ended.
    fn take_done(&self, pending: &mut Pending) -> Result<(), Stopped> {
        let Program { sends, receives, .. } = &**self.run.program;
        while let Some((_, at)) = pop_reached(&mut pending.sent, |(point, _)| point)? {
            self.run.report_sent(&sends[at]);
        }
        while let Some((_, at)) = pop_reached(&mut pending.unpacked, |(point, _)| point)? {
            self.run.report_received(&receives[at]);
        }
        // A batch of nothing has no points, and has ended.
        while let Some((points, _, _)) = pending.copied.front() {
            for point in points {
                match point.status() {
                    PointStatus::Reached => {}
                    PointStatus::Pending => return Ok(()),
                    PointStatus::Failed(cause) => return Err(Stopped::Lane(cause)),
                }
            }
            let (_, placed, kept) = pending.copied.pop_front().expect("it is there");
            self.run.report_copied(placed, kept);
        }
        Ok(())
    }

    /// The point at which there is a slot for the message that is sent as number `asked`; the one
    /// `depth` before is sent.
    fn ask_slot(&self, sends: &[usize], asked: usize) -> Result<(usize, Point), Stopped> {
        let depth = self.run.transport.shape().depth;
        // The receiver of the oldest message under way is the first to give a slot back.
        let oldest = &self.run.program.sends[sends[asked.saturating_sub(depth)]];
        let (at, peer) = (sends[asked], oldest.peer as usize);
        let port = self.port.clone();
        let wait = move || port.wait_free(at, peer);
        Ok((asked, submit_host(&self.lanes.slots, "slot free", wait)?))
    }

    /// Packs message `at`, or puts it where it belongs, and returns the point at which it is sent.
    fn pack(&self, at: usize, own_slot: usize, free: Point) -> Result<Point, Stopped> {
        let message = &self.run.program.sends[at];
        // The receiver reads the slot next, the send lane what was placed: through the caches.
        let mut moves = self.moves(LaneKind::Pack, Store::Cached);
        let placed = match self.run.peer(message.peer) {
            None => {
                self.pack_pieces(at, own_slot, &mut moves)?;
                None
            }
            Some(_) => Some(self.place_pieces(message, &mut moves)?),
        };
        let port = self.port.clone();
        let publish =
            HostFunction::new("send", move || port.publish(at, own_slot, placed.as_ref()));
        // SAFETY: `run` drains all lanes before it returns; the slot is this PE's until it is sent,
        // the sources are borrowed for the whole run, and what peers announced stays theirs until
        // all have finished.
        let points = unsafe { moves.submit(&[free], Some((&self.lanes.send, publish)))? };
        Ok(points.into_iter().next().expect("the point of the function that sends"))
    }

    fn pack_pieces(
        &self,
        at: usize,
        own_slot: usize,
        moves: &mut Moves<'_>,
    ) -> Result<(), Stopped> {
        let memory = self.port.send_slot(at, own_slot)?;
        for piece in &self.run.program.sends[at].pieces {
            let shape = self.run.program.shape(piece.shape);
            moves.add(BoxMove {
                copy: shape.copy.clone(),
                recode: shape.recode,
                source: Side {
                    memory: self.source(piece.tensor, LaneKind::Pack)?,
                    offset: piece.tensor_offset,
                },
                target: Side { memory: memory.clone(), offset: piece.slot_offset },
                scales: self.scales(piece.tensor, LaneKind::Pack)?,
            })?;
        }
        Ok(())
    }

    /// Puts the boxes of a message into the window of its receiver; says where, for their sums.
    fn place_pieces(&self, message: &Message, moves: &mut Moves<'_>) -> Result<Placed, Stopped> {
        let Some(PeerDestination::Window(window)) = self.run.peer(message.peer) else {
            unreachable!("with checksums, memory of devices is not announced")
        };
        let (keep, mut starts) = (window.keep(), Vec::with_capacity(message.moves.len()));
        for each in &message.moves {
            let shape = self.run.program.shape(each.shape);
            let address = self.run.peer_address(window, each).map_err(Stopped::Failed)?;
            starts.push(address.cast_const());
            moves.add(BoxMove {
                copy: shape.copy.clone(),
                recode: shape.recode,
                source: Side {
                    memory: self.source(each.source, LaneKind::Pack)?,
                    offset: each.source_offset,
                },
                target: Side { memory: Memory::host(address, Some(keep.clone())), offset: 0 },
                scales: self.scales(each.source, LaneKind::Pack)?,
            })?;
        }
        Ok(Placed { starts, _keep: Some(keep) })
    }

    /// The point at which message `at` has come and was verified.
    fn ask_message(&self, at: usize, own_slot: usize) -> Result<(Expected, Point), Stopped> {
        let message = &self.run.program.receives[at];
        let expected = Expected { at, peer: message.peer as usize, own_slot };
        let placed = self.run.is_placed_by(message.peer).then(|| {
            // SAFETY: what peers write themselves is a destination in memory of the process.
            let start = |piece| unsafe { self.run.piece_start(message, piece) };
            Placed { starts: (0..message.pieces.len()).map(start).collect(), _keep: None }
        });
        let port = self.port.clone();
        let receive = move || port.receive(&expected, placed.as_ref());
        Ok((expected, submit_host(&self.lanes.receive, "data ready", receive)?))
    }

    /// Unpacks a message, and returns the point at which its slot is given back.
    fn unpack(&self, expected: &Expected, ready: Point) -> Result<Point, Stopped> {
        let message = &self.run.program.receives[expected.at];
        let kind = LaneKind::Unpack;
        let mut moves = self.moves(kind, self.run.store);
        if !self.run.is_placed_by(message.peer) {
            let memory = self.port.arrived_slot(expected)?;
            for piece in &message.pieces {
                let shape = self.run.program.shape(piece.shape);
                moves.add(BoxMove {
                    copy: shape.copy.clone(),
                    recode: shape.recode,
                    source: Side { memory: memory.clone(), offset: piece.slot_offset },
                    target: Side {
                        memory: self.target(piece.tensor, kind)?,
                        offset: piece.tensor_offset,
                    },
                    scales: None,
                })?;
            }
        }
        let (port, at) = (self.port.clone(), expected.at);
        let release = HostFunction::new("release", move || {
            port.release(at);
            Ok(())
        });
        let lane = &self.lanes.host_lanes.unpack;
        // SAFETY: `run` drains all lanes before it returns; the sender leaves the slot alone until
        // it is released, and the plan writes each byte of the targets once.
        let points = unsafe { moves.submit(&[ready], Some((lane, release)))? };
        Ok(points.into_iter().next().expect("the point of the function that releases"))
    }

    /// The boxes that need no slot, in parts no larger than a slot: what has to be put together on
    /// the way takes no more memory than that, and whoever cancels waits for no more than the
    /// batches that are under way.
    fn parts(&self) -> impl Iterator<Item = (&'a Move, CopyPlan)> + use<'a> {
        let (run, slot_bytes) = (self.run, self.run.transport.shape().slot_bytes);
        let parts = move |each: &Move| run.program.shape(each.shape).copy.parts(slot_bytes as u64);
        run.moves().flat_map(move |each| parts(each).into_iter().map(move |part| (each, part)))
    }

    /// Copies the next parts, about as many bytes as a slot has.
    fn copy(
        &self,
        next: &mut std::iter::Peekable<impl Iterator<Item = (&'a Move, CopyPlan)>>,
    ) -> Result<(Vec<Point>, u64, u64), Stopped> {
        let (kind, slot_bytes) = (LaneKind::Copy, self.run.transport.shape().slot_bytes);
        let mut moves = self.moves(kind, self.run.store);
        let (mut placed, mut kept) = (0, 0);
        while (placed + kept) < slot_bytes as u64 {
            let Some((each, copy)) = next.next() else { break };
            let bytes = copy.bytes();
            let (target, offset) = if each.peer == self.run.program.rank {
                kept += bytes;
                (self.target(each.target, kind)?, each.target_offset)
            } else {
                placed += bytes;
                self.peer_target(each)?
            };
            moves.add(BoxMove {
                copy,
                recode: self.run.program.shape(each.shape).recode,
                source: Side {
                    memory: self.source(each.source, kind)?,
                    offset: each.source_offset,
                },
                target: Side { memory: target, offset },
                scales: self.scales(each.source, kind)?,
            })?;
        }
        // SAFETY: `run` drains all lanes before it returns; the plan writes each byte once, and
        // what peers announced stays theirs until all have finished.
        Ok((unsafe { moves.submit(&[], None)? }, placed, kept))
    }

    fn moves(&self, kind: LaneKind, store: Store) -> Moves<'_> {
        Moves::new(self.lanes, kind, store, &self.cancel)
    }

    fn source(&self, tensor: u32, kind: LaneKind) -> Result<Memory, Stopped> {
        let held = self.run.sources.bound.held(tensor).expect("checked to be bound");
        Ok(Memory::tensor(self.lanes, kind, &held)?)
    }

    fn scales(&self, tensor: u32, kind: LaneKind) -> Result<Option<Memory>, Stopped> {
        let scales = self.run.program.scales.get(&tensor);
        scales.map(|&scales| self.source(scales, kind)).transpose()
    }

    fn target(&self, tensor: u32, kind: LaneKind) -> Result<Memory, Stopped> {
        let held = self.run.place.held(tensor).expect("checked to be bound");
        Ok(Memory::tensor(self.lanes, kind, &held)?)
    }

    /// Where a box goes in the memory of a peer.
    fn peer_target(&self, each: &Move) -> Result<(Memory, usize), Stopped> {
        let peer = self.run.peer(each.peer).expect("skipped where there is none");
        match peer {
            PeerDestination::Window(window) => {
                let address = self.run.peer_address(window, each).map_err(Stopped::Failed)?;
                Ok((Memory::host(address, Some(window.keep())), 0))
            }
            PeerDestination::Offered(offer) => {
                let view = offer.view(each.target).ok_or_else(|| {
                    let message = format!("PE {} has no tensor {}", each.peer, each.target);
                    Stopped::Failed(Failure::Local { rank: self.run.transport.rank(), message })
                })?;
                let device = view.buffer().device();
                let by_host = device.backend == Backend::Cpu || self.lanes.covers(device);
                let memory = match by_host {
                    true => Memory::tensor(self.lanes, LaneKind::Copy, &Held::View(view.clone()))?,
                    false => Memory::Device { lane: offer.lane().clone(), view: view.clone() },
                };
                Ok((memory, each.target_offset))
            }
        }
    }
}

impl Pending {
    /// The next point of each kind.
    fn fronts(&self) -> Vec<Point> {
        let free = self.free.front().map(|(_, point)| point);
        let sent = self.sent.front().map(|(point, _)| point);
        let ready = self.ready.front().map(|(_, point)| point);
        let unpacked = self.unpacked.front().map(|(point, _)| point);
        // Of a batch on several lanes one that is not reached yet: the others are looked at then.
        let copied = self.copied.front().and_then(|(points, _, _)| {
            points.iter().find(|point| !point.is_reached()).or(points.last())
        });
        [free, sent, ready, unpacked, copied].into_iter().flatten().cloned().collect()
    }

    fn is_empty(&self) -> bool {
        self.free.is_empty()
            && self.sent.is_empty()
            && self.ready.is_empty()
            && self.unpacked.is_empty()
            && self.copied.is_empty()
    }
}

/// Why a run ends early.
enum Stopped {
    Failed(Failure),
    Lane(DeviceError),
}

impl From<DeviceError> for Stopped {
    fn from(error: DeviceError) -> Self {
        Stopped::Lane(error)
    }
}

/// The first item, if its point is reached.
fn pop_reached<T>(
    items: &mut VecDeque<T>,
    point: impl Fn(&T) -> &Point,
) -> Result<Option<T>, Stopped> {
    let Some(first) = items.front() else { return Ok(None) };
    match point(first).status() {
        PointStatus::Pending => Ok(None),
        PointStatus::Reached => Ok(items.pop_front()),
        PointStatus::Failed(cause) => Err(Stopped::Lane(cause)),
    }
}

fn submit_host(
    lane: &Arc<dyn Lane>,
    name: &str,
    function: impl FnOnce() -> Result<(), DeviceError> + Send + 'static,
) -> Result<Point, Stopped> {
    Ok(lane.submit(Batch::from(Command::host(name, function)))?)
}

/// Waits for all lanes when it is dropped: nothing that a run lent to them is in use after it.
struct Drain<'a> {
    transport: &'a dyn Transport,
    lanes: &'a PipelineLanes,
    /// Lanes of peers that this run has given work.
    offered: Vec<Arc<dyn Lane>>,
    port: Arc<Port>,
    cancel: CancelToken,
    /// Everything was waited for; lanes have nothing left.
    is_done: bool,
}

impl Drop for Drain<'_> {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        if self.transport.failure().is_none() {
            // Here by a panic: functions that wait for other PEs must end.
            let message = "a refit was abandoned by a panic".to_owned();
            self.transport.fail(Failure::Local { rank: self.transport.rank(), message });
        }
        // Work of others that a batch stands behind may take any time.
        self.cancel.cancel();
        for lane in self.lanes.all().chain(&self.offered) {
            // Reached or failed, the lane is done with what it was given: what has begun ends.
            let _ = lane.synchronize(Deadline::NEVER);
        }
        self.port.give_back();
        self.lanes.all().for_each(|lane| lane.recover());
    }
}
