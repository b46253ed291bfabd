//! Coherence: copies wherever a task's bytes are not on its device, and memory for every buffer
//! where it is used.
//!
//! For each block of a buffer it is known on which devices its newest content is, and which op
//! brought it there. A read on another device inserts a copy of just the blocks that are missing; a
//! write leaves the content on one device only. At the end, what external buffers hold is brought
//! home.
//!
//! A copy depends on what brought the bytes to its source, and its reader depends on the copy. That
//! is enough: the users of the target's old bytes come before the write of the new content, which
//! comes before the copy; the ops that overwrite the source's bytes come after the copy's reader.
//! Both by edges that the graph already has.

use syncline_deps::EdgeFlags;
use syncline_tensor::View;

use super::blocks::Blocks;
use super::error::CompileError;
use super::lower::Lowered;
use super::place::Placement;
use super::runs::{ByteRun, merge, pieces_of, runs_count, runs_of, views_of};
use crate::graph::{ArgRecord, BufferKind, GraphData};
use crate::machine::{DeviceIndex, Machine, Route};
use crate::plan::{Copy, CopyIndex, Memory, MemoryIndex, MemoryPlace, OpKind, TaskIndex};

/// No op: the content is not on this device.
const NOWHERE: u32 = u32::MAX;
/// No op: the content has been on this device since before the run.
const INITIAL: u32 = u32::MAX - 1;

/// Inserts copies and finds the memories that are needed.
pub(crate) fn lower(
    graph: &GraphData,
    machine: &Machine,
    placement: &Placement,
) -> Result<Lowered, CompileError> {
    let mut lowering = Lowering::new(graph, machine, placement)?;
    for task in 0..graph.tasks.len() {
        lowering.task(task)?;
    }
    lowering.bring_home();
    lowering.finish()
}

struct Lowering<'a> {
    graph: &'a GraphData,
    machine: &'a Machine,
    placement: &'a Placement,
    out: Lowered,
    task_ops: Vec<u32>,
    /// By buffer; `None` where nothing can be out of place.
    tracked: Vec<Option<Tracked>>,
    /// Number of each place among those of its buffer.
    place_numbers: Vec<u32>,
    /// By buffer and device: whether there is memory.
    resident: Vec<bool>,
    /// Transfers through a third device so far: each takes the next lane where a device has
    /// several.
    legs: u16,
}

/// Bytes of a buffer on their way from one device to another.
#[derive(Clone, Copy)]
struct Transfer {
    buffer: u32,
    source: DeviceIndex,
    target: DeviceIndex,
    priority: i32,
}

/// The state of one buffer's blocks.
struct Tracked {
    blocks: Blocks,
    /// By block and device: the op that brought the newest content there.
    arrived: Vec<u32>,
    /// By block: the last task of the commutative group that is open.
    grouped: Vec<u32>,
}

impl<'a> Lowering<'a> {
    fn new(
        graph: &'a GraphData,
        machine: &'a Machine,
        placement: &'a Placement,
    ) -> Result<Self, CompileError> {
        let devices = machine.devices().len();
        let (place_numbers, places) = number_places(graph);
        let tracked = needs_tracking(graph, placement)
            .into_iter()
            .zip(&places)
            .enumerate()
            .map(|(buffer, (needed, places))| {
                if !needed {
                    return Ok(None);
                }
                let home = (graph.buffers[buffer].kind == BufferKind::External)
                    .then_some(placement.buffer_homes[buffer]);
                check_runs(graph, buffer, places)?;
                Ok(Some(Tracked::new(graph, places, home, devices)))
            })
            .collect::<Result<_, CompileError>>()?;
        let mut out = Lowered::default();
        let count = graph.tasks.len();
        out.kinds.reserve(count);
        out.devices.reserve(count);
        out.costs_ns.reserve(count);
        out.priorities.reserve(count);
        out.pinned.reserve(count);
        out.preds_end.reserve(count);
        out.preds.reserve(graph.edges.len());
        Ok(Self {
            graph,
            machine,
            placement,
            out,
            task_ops: Vec::with_capacity(count),
            tracked,
            place_numbers,
            resident: vec![false; graph.buffers.len() * devices],
            legs: 0,
        })
    }

    fn task(&mut self, task: usize) -> Result<(), CompileError> {
        let device = self.placement.task_devices[task];
        let graph = self.graph;
        let args = &graph.args[graph.args_range(task)];
        let mut extra = Vec::new();
        // All reads before any write: a task may read and write one place through two arguments.
        for arg in args {
            self.mark_resident(graph.places[arg.place as usize].buffer, device);
            if self.tracked[graph.places[arg.place as usize].buffer as usize].is_some() {
                self.read(task, arg, device, &mut extra)?;
            }
        }
        let op = self.out.len() as u32;
        for arg in args.iter().filter(|arg| arg.access.writes()) {
            self.write(arg, device, op);
        }
        let preds_start = self.out.preds.len();
        let waits = graph.edges_of(task).iter().filter(|edge| edge.flags.contains(EdgeFlags::WAIT));
        self.out.preds.extend(waits.map(|edge| self.task_ops[edge.pred.index()]));
        if !extra.is_empty() {
            self.out.preds.extend_from_slice(&extra);
            let mut preds = self.out.preds.split_off(preds_start);
            preds.sort_unstable();
            preds.dedup();
            self.out.preds.append(&mut preds);
        }
        self.task_ops.push(op);
        self.push(
            OpKind::Task(TaskIndex(task as u32)),
            device,
            self.placement.task_costs_ns[task],
            graph.tasks[task].priority,
            None,
        );
        Ok(())
    }

    /// Ends the op whose predecessors were just added.
    fn push(
        &mut self,
        kind: OpKind,
        device: DeviceIndex,
        cost_ns: u64,
        priority: i32,
        pinned: Option<u16>,
    ) {
        self.out.kinds.push(kind);
        self.out.devices.push(device);
        self.out.costs_ns.push(cost_ns);
        self.out.priorities.push(priority);
        self.out.pinned.push(pinned);
        self.out.preds_end.push(self.out.preds.len() as u32);
    }

    /// Makes sure that what `arg` reads is on `device`; `extra` gets the copies that the task must
    /// wait for, and the task before it in a commutative group.
    fn read(
        &mut self,
        task: usize,
        arg: &ArgRecord,
        device: DeviceIndex,
        extra: &mut Vec<u32>,
    ) -> Result<(), CompileError> {
        let buffer = self.graph.places[arg.place as usize].buffer;
        let tracked = self.tracked[buffer as usize].as_ref().expect("the caller checked");
        let blocks = tracked.blocks.of_place(self.place_numbers[arg.place as usize] as usize);
        if arg.access.is_grouped() {
            let grouped = blocks.iter().map(|&block| tracked.grouped[block as usize]);
            extra.extend(grouped.filter(|&op| op < INITIAL));
        }
        if !arg.access.reads() {
            return Ok(());
        }
        let mut missing: Vec<(DeviceIndex, u32)> = Vec::new();
        for &block in blocks {
            if tracked.arrived_on(block, device) == NOWHERE {
                match self.nearest(tracked, block, device) {
                    Some(source) => missing.push((source, block)),
                    None => return Err(self.uninitialised(task, buffer, block)),
                }
            }
        }
        let all = missing.len() == blocks.len();
        let priority = self.graph.tasks[task].priority;
        self.copy_in(buffer, device, missing, all.then_some(arg.place), priority);
        let tracked = self.tracked[buffer as usize].as_ref().expect("as above");
        let number = self.place_numbers[arg.place as usize] as usize;
        for &block in tracked.blocks.of_place(number) {
            let op = tracked.arrived_on(block, device);
            if op < INITIAL && matches!(self.out.kinds[op as usize], OpKind::Copy(_)) {
                extra.push(op);
            }
        }
        Ok(())
    }

    /// Copies `missing` blocks to `target`, one copy for each source.
    fn copy_in(
        &mut self,
        buffer: u32,
        target: DeviceIndex,
        mut missing: Vec<(DeviceIndex, u32)>,
        whole_place: Option<u32>,
        priority: i32,
    ) {
        missing.sort_unstable();
        let one_source = missing.first().map(|first| first.0) == missing.last().map(|last| last.0);
        for group in missing.chunk_by(|a, b| a.0 == b.0) {
            let source = group[0].0;
            let tracked =
                self.tracked[buffer as usize].as_ref().expect("missing blocks are tracked");
            let whole = whole_place
                .filter(|_| one_source)
                .map(|place| self.graph.places[place as usize].view)
                .filter(|view| !view.is_broadcast());
            let views: Box<[_]> = match whole {
                Some(view) => Box::new([view]),
                None => {
                    let mut runs: Vec<_> = (group.iter())
                        .flat_map(|&(_, block)| tracked.blocks.runs(block))
                        .copied()
                        .collect();
                    merge(&mut runs);
                    views_of(&runs).into()
                }
            };
            let blocks: Vec<u32> = group.iter().map(|&(_, block)| block).collect();
            let transfer = Transfer { buffer, source, target, priority };
            match self.machine.route(source, target) {
                Route::Pull | Route::Push => {
                    let arrivals = tracked.arrivals(&blocks, source);
                    let op = self.copy(transfer, arrivals, views, None);
                    self.arrive(buffer, target, &blocks, op);
                }
                Route::Through(middle) => {
                    self.copy_through(transfer, middle, &views, &blocks);
                }
            }
        }
    }

    /// Copies piece after piece to `middle` and on from there. The copies of a leg stay on one lane
    /// in order, so that the last one that a reader needs stands for those before, without waits
    /// between them. A piece waits for what brought its own bytes, not for those of later pieces.
    fn copy_through(
        &mut self,
        transfer: Transfer,
        middle: DeviceIndex,
        views: &[View],
        blocks: &[u32],
    ) {
        let first = Transfer { target: middle, ..transfer };
        let second = Transfer { source: middle, ..transfer };
        let lane = Some(self.legs);
        self.legs = self.legs.wrapping_add(1);
        let pieces = pieces_of(views, self.machine.piece_bytes());
        let mut legs: Option<(u32, u32)> = None;
        for (piece, moved) in self.blocks_of_pieces(transfer.buffer, blocks, pieces) {
            let tracked = self.tracked[transfer.buffer as usize].as_ref();
            let tracked = tracked.expect("moved blocks are tracked");
            let mut before = tracked.arrivals(&moved, transfer.source);
            before.extend(legs.map(|(out, _)| out));
            let out = self.copy(first, before, piece.clone(), lane);
            let before = legs.map(|(_, on)| on).into_iter().chain([out]).collect();
            let on = self.copy(second, before, piece, lane);
            self.arrive(transfer.buffer, middle, &moved, out);
            self.arrive(transfer.buffer, transfer.target, &moved, on);
            legs = Some((out, on));
        }
    }

    /// Each piece with those of `blocks` that it holds bytes of.
    fn blocks_of_pieces(
        &self,
        buffer: u32,
        blocks: &[u32],
        pieces: Vec<Box<[View]>>,
    ) -> Vec<(Box<[View]>, Vec<u32>)> {
        let tracked = self.tracked[buffer as usize].as_ref().expect("moved blocks are tracked");
        let mut owners: Vec<(ByteRun, u32)> = (blocks.iter())
            .flat_map(|&block| tracked.blocks.runs(block).iter().map(move |&run| (run, block)))
            .collect();
        owners.sort_unstable();
        let held = |piece: &[View]| {
            let mut held: Vec<u32> = Vec::new();
            for run in piece.iter().flat_map(runs_of) {
                let first = owners.partition_point(|(other, _)| other.end <= run.start);
                let shared = owners[first..].iter().take_while(|(other, _)| other.start < run.end);
                held.extend(shared.map(|&(_, block)| block));
            }
            held.sort_unstable();
            held.dedup();
            held
        };
        let with_held = |piece: Box<[View]>| {
            let held = held(&piece);
            (piece, held)
        };
        pieces.into_iter().map(with_held).collect()
    }

    /// One direct copy after `preds`, on lane `pinned` of its device if one is given; returns its
    /// op.
    fn copy(
        &mut self,
        transfer: Transfer,
        mut preds: Vec<u32>,
        views: Box<[View]>,
        pinned: Option<u16>,
    ) -> u32 {
        let Transfer { buffer, source, target, priority } = transfer;
        self.out.preds.append(&mut preds);
        self.mark_resident(buffer, source);
        self.mark_resident(buffer, target);
        let op = self.out.len() as u32;
        let bytes = views.iter().map(View::bytes).fold(0, u64::saturating_add);
        // Memories have no number before all are known: the device stands in until `finish`.
        self.out.copies.push(Copy {
            source: self.stand_in(buffer, source),
            target: self.stand_in(buffer, target),
            views,
        });
        let copy = CopyIndex(self.out.copies.len() as u32 - 1);
        let cost = self.machine.copy_ns(source, target, bytes).max(1);
        let device = match self.machine.route(source, target) {
            Route::Push => source,
            Route::Pull | Route::Through(_) => target,
        };
        self.push(OpKind::Copy(copy), device, cost, priority, pinned);
        op
    }

    /// Notes that `op` has brought the newest content of `blocks` to `device`.
    fn arrive(&mut self, buffer: u32, device: DeviceIndex, blocks: &[u32], op: u32) {
        let devices = self.machine.devices().len();
        let tracked = self.tracked[buffer as usize].as_mut().expect("moved blocks are tracked");
        for &block in blocks {
            tracked.arrived[block as usize * devices + device.index()] = op;
        }
    }

    /// After `arg` was written by `op`, its content is on `device` alone.
    fn write(&mut self, arg: &ArgRecord, device: DeviceIndex, op: u32) {
        let buffer = self.graph.places[arg.place as usize].buffer;
        let devices = self.machine.devices().len();
        let Some(tracked) = self.tracked[buffer as usize].as_mut() else { return };
        let number = self.place_numbers[arg.place as usize] as usize;
        for &block in tracked.blocks.of_place(number) {
            let arrived = &mut tracked.arrived[block as usize * devices..][..devices];
            arrived.fill(NOWHERE);
            arrived[device.index()] = op;
            let open = arg.access.is_grouped();
            tracked.grouped[block as usize] = if open { op } else { NOWHERE };
        }
    }

    /// The device from which `block` comes to `target` fastest; `None` if it is nowhere.
    fn nearest(&self, tracked: &Tracked, block: u32, target: DeviceIndex) -> Option<DeviceIndex> {
        (0..self.machine.devices().len() as u16)
            .map(DeviceIndex)
            .filter(|&source| tracked.arrived_on(block, source) != NOWHERE)
            .min_by_key(|&source| self.machine.copy_ns(source, target, tracked.bytes(block)))
    }

    /// Copies what external buffers hold to where they live.
    fn bring_home(&mut self) {
        for buffer in 0..self.graph.buffers.len() {
            let home = self.placement.buffer_homes[buffer];
            if self.graph.buffers[buffer].kind != BufferKind::External {
                continue;
            }
            self.mark_resident(buffer as u32, home);
            let Some(tracked) = &self.tracked[buffer] else { continue };
            let missing = (0..tracked.blocks.len() as u32)
                .filter(|&block| tracked.arrived_on(block, home) == NOWHERE)
                .filter_map(|block| Some((self.nearest(tracked, block, home)?, block)))
                .collect();
            self.copy_in(buffer as u32, home, missing, None, 0);
        }
    }

    /// Numbers the memories and puts the numbers in.
    fn finish(mut self) -> Result<Lowered, CompileError> {
        let devices = self.machine.devices().len();
        let max = INITIAL as usize / 4;
        if self.out.len() > max {
            return Err(CompileError::TooLarge { ops: self.out.len(), max });
        }
        let mut numbers = vec![MemoryIndex(u32::MAX); self.resident.len()];
        for (at, _) in self.resident.iter().enumerate().filter(|(_, resident)| **resident) {
            let (buffer, device) = (at / devices, DeviceIndex((at % devices) as u16));
            numbers[at] = MemoryIndex(self.out.memories.len() as u32);
            let record = &self.graph.buffers[buffer];
            let bound = record.kind == BufferKind::External
                && self.placement.buffer_homes[buffer] == device;
            self.out.memories.push(Memory {
                buffer: syncline_tensor::BufferId(buffer as u64),
                device,
                bytes: record.bytes,
                place: if bound { MemoryPlace::Bound } else { MemoryPlace::Arena { offset: 0 } },
            });
        }
        for copy in &mut self.out.copies {
            copy.source = numbers[copy.source.index()];
            copy.target = numbers[copy.target.index()];
        }
        self.out.arg_memories.reserve_exact(self.graph.args.len());
        for (task, device) in self.placement.task_devices.iter().enumerate() {
            for arg in &self.graph.args[self.graph.args_range(task)] {
                let buffer = self.graph.places[arg.place as usize].buffer as usize;
                self.out.arg_memories.push(numbers[buffer * devices + device.index()]);
            }
        }
        self.out.task_devices = self.placement.task_devices.clone();
        Ok(self.out)
    }

    fn mark_resident(&mut self, buffer: u32, device: DeviceIndex) {
        let at = self.stand_in(buffer, device).index();
        self.resident[at] = true;
    }

    fn stand_in(&self, buffer: u32, device: DeviceIndex) -> MemoryIndex {
        let devices = self.machine.devices().len();
        MemoryIndex((buffer as usize * devices + device.index()) as u32)
    }

    fn uninitialised(&self, task: usize, buffer: u32, block: u32) -> CompileError {
        let info = self.graph.task(TaskIndex(task as u32));
        let tracked = self.tracked[buffer as usize].as_ref().expect("its block is missing");
        let run = tracked.blocks.runs(block)[0];
        CompileError::Uninitialised {
            task: info.name().to_owned(),
            index: task as u32,
            buffer: self.graph.names.get(self.graph.buffers[buffer as usize].name).to_owned(),
            start: run.start,
            end: run.end,
        }
    }
}

impl Tracked {
    fn new(graph: &GraphData, places: &[u32], home: Option<DeviceIndex>, devices: usize) -> Self {
        let blocks = Blocks::new(places.iter().map(|&place| &graph.places[place as usize]));
        let mut arrived = vec![NOWHERE; blocks.len() * devices];
        if let Some(home) = home {
            for block in arrived.chunks_exact_mut(devices) {
                block[home.index()] = INITIAL;
            }
        }
        let grouped = vec![NOWHERE; blocks.len()];
        Self { blocks, arrived, grouped }
    }

    /// The ops that brought `blocks` to `device`, each once.
    fn arrivals(&self, blocks: &[u32], device: DeviceIndex) -> Vec<u32> {
        let brought = blocks.iter().map(|&block| self.arrived_on(block, device));
        let mut ops: Vec<u32> = brought.filter(|&op| op < INITIAL).collect();
        ops.sort_unstable();
        ops.dedup();
        ops
    }

    #[inline]
    fn arrived_on(&self, block: u32, device: DeviceIndex) -> u32 {
        let devices = self.arrived.len() / self.blocks.len();
        self.arrived[block as usize * devices + device.index()]
    }

    fn bytes(&self, block: u32) -> u64 {
        self.blocks.runs(block).iter().map(|run| run.end - run.start).sum()
    }
}

/// The intervals of all views of a buffer are held in memory: a limit on how many keeps a view of
/// 2^40 of them from asking for all of it.
fn check_runs(graph: &GraphData, buffer: usize, places: &[u32]) -> Result<(), CompileError> {
    const RUNS_MAX: u64 = 1 << 26;
    let of_place = |&place: &u32| runs_count(&graph.places[place as usize].view);
    let runs = places.iter().map(of_place).fold(0, u64::saturating_add);
    if runs > RUNS_MAX {
        let buffer = graph.names.get(graph.buffers[buffer].name).to_owned();
        return Err(CompileError::TooFine { buffer, runs, max: RUNS_MAX });
    }
    Ok(())
}

/// For each place its number in its buffer, and for each buffer its places.
fn number_places(graph: &GraphData) -> (Vec<u32>, Vec<Vec<u32>>) {
    let mut places = vec![Vec::new(); graph.buffers.len()];
    let numbers = (graph.places.iter().enumerate())
        .map(|(at, place)| {
            let of_buffer = &mut places[place.buffer as usize];
            of_buffer.push(at as u32);
            of_buffer.len() as u32 - 1
        })
        .collect();
    (numbers, places)
}

/// The first write of a temporary: where, of which place, and whether it was all of the buffer.
#[derive(Clone, Copy)]
struct FirstWrite {
    device: DeviceIndex,
    place: u32,
    whole: bool,
}

/// Buffers that are used away from home or on several devices, commutatively, or perhaps before
/// they are written.
fn needs_tracking(graph: &GraphData, placement: &Placement) -> Vec<bool> {
    let mut needed = vec![false; graph.buffers.len()];
    let mut firsts: Vec<Option<FirstWrite>> = vec![None; graph.buffers.len()];
    for (task, &device) in placement.task_devices.iter().enumerate() {
        let args = &graph.args[graph.args_range(task)];
        // Reads first, as when they are lowered.
        let reads = args.iter().filter(|arg| arg.access.reads());
        let writes = args.iter().filter(|arg| arg.access.writes() && !arg.access.reads());
        for arg in reads.chain(writes) {
            let buffer = graph.places[arg.place as usize].buffer as usize;
            if needed[buffer] {
                continue;
            }
            needed[buffer] = arg.access.is_grouped()
                || match graph.buffers[buffer].kind {
                    BufferKind::External => device != placement.buffer_homes[buffer],
                    BufferKind::Temporary => match firsts[buffer] {
                        None => {
                            firsts[buffer] = Some(first_write(graph, arg.place, device));
                            arg.access.reads()
                        }
                        Some(first) => {
                            first.device != device || !(first.whole || first.place == arg.place)
                        }
                    },
                };
        }
    }
    needed
}

fn first_write(graph: &GraphData, place: u32, device: DeviceIndex) -> FirstWrite {
    let record = &graph.places[place as usize];
    let bytes = graph.buffers[record.buffer as usize].bytes;
    let whole = record.view.bytes() == bytes && record.view.is_contiguous();
    FirstWrite { device, place, whole }
}
