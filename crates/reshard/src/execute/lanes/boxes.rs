//! Boxes as commands: which lane copies what, and what the host does in between.
//!
//! A box goes from one side to another, each in memory that the host reaches or in memory of a
//! device. Between host memories the host copies, and converts on the way. A device copies by
//! itself what need not be converted, where it can reach the other side; what has to be converted,
//! or lies on two devices that cannot see each other, is put together in host memory first:
//!
//! *gather* on the source's lane, then *recode* on the host's, then *scatter* on the target's.

use std::sync::Arc;

use syncline_device::{
    Backend, Batch, Buffer, BufferView, CancelToken, Command, DeviceError, DeviceSpec,
    HostFunction, Kernel, KernelArg, Lane, LaneKind, Point,
};
use syncline_tensor::{Dtype, View};

use super::super::bindings::Held;
use super::super::program::Recode;
use super::PipelineLanes;
use super::foreign::{Keep, foreign};
use syncline_copy::convert::mx;
use syncline_copy::{CopyPlan, ElementChange, Loop, Store, fence};

/// One side of a box.
#[derive(Clone, Debug)]
pub(super) struct Side {
    pub memory: Memory,
    /// Bytes from the start of the memory to the box.
    pub offset: usize,
}

/// The memory of a shard, a slot or a window.
#[derive(Clone, Debug)]
pub(super) enum Memory {
    /// Memory that the host reaches.
    Host {
        start: *mut u8,
        /// The buffer that it is part of, and where in it; lanes of devices copy from and to that.
        buffer: Option<(Buffer, usize)>,
        /// A tensor in a buffer: work on it is ordered with whatever else uses the buffer.
        tensor: Option<BufferView>,
        keep: Keep,
    },
    /// Memory of a device, and a lane of it.
    Device { lane: Arc<dyn Lane>, view: BufferView },
}

impl Memory {
    /// Memory of the process from `start` on, kept alive by `keep` or by who runs this.
    pub fn host(start: *mut u8, keep: Keep) -> Self {
        Memory::Host { start, buffer: None, tensor: None, keep }
    }

    /// A buffer that the host reaches and that only this run uses: a slot, or something put
    /// together on the way.
    pub fn private(buffer: &Buffer) -> Result<Self, DeviceError> {
        let start = host_start(buffer)?;
        let buffer = Some((buffer.clone(), 0));
        Ok(Memory::Host { start, buffer, tensor: None, keep: None })
    }

    /// The memory that a tensor is bound to, moved by a lane of `kind`.
    pub fn tensor(lanes: &PipelineLanes, kind: LaneKind, held: &Held) -> Result<Self, DeviceError> {
        let view = match held {
            Held::Host(start) => return Ok(Memory::host(*start, None)),
            Held::View(view) => view,
        };
        let buffer = view.buffer();
        if let Some((_, of_device)) = lanes.device(buffer.device()) {
            return Ok(Memory::Device { lane: of_device.of(kind).clone(), view: view.clone() });
        }
        if buffer.device().backend != Backend::Cpu {
            return Err(DeviceError::Unsupported {
                device: buffer.device(),
                what: "a tensor on a device without lanes (give the service that device with `add_device`)"
                    .to_owned(),
            });
        }
        let offset = view.view().offset() as usize;
        let start = host_start(buffer)?.wrapping_add(offset);
        let (buffer, tensor) = (Some((buffer.clone(), offset)), Some(view.clone()));
        Ok(Memory::Host { start, buffer, tensor, keep: None })
    }
}

fn host_start(buffer: &Buffer) -> Result<*mut u8, DeviceError> {
    let start = buffer.allocate()?.host_pointer();
    start.map(|start| start.as_ptr()).ok_or_else(|| DeviceError::Unsupported {
        device: buffer.device(),
        what: "host memory that the host cannot reach".to_owned(),
    })
}

/// A box to move.
#[derive(Debug)]
pub(super) struct BoxMove {
    pub copy: CopyPlan,
    pub recode: Recode,
    pub source: Side,
    pub target: Side,
    /// The scales of the source tensor, from its first element on, where it is restored with them.
    pub scales: Option<Memory>,
}

/// What the host copies.
struct HostBox {
    copy: CopyPlan,
    recode: Recode,
    source: *const u8,
    target: *mut u8,
    /// The scales of the tensor that `source` lies in.
    scales: *const u8,
    /// Elements of that tensor before `source`.
    scales_offset: usize,
    /// What must outlive the copy.
    _kept: Vec<Buffer>,
    _keep: [Keep; 2],
}

// SAFETY: a box is moved by the one lane that it is submitted to; its pointers stay valid until
// then, by the promise of `Moves::submit`.
unsafe impl Send for HostBox {}
// SAFETY: as above; nothing is changed through a shared reference but the target, by that lane.
unsafe impl Sync for HostBox {}

impl HostBox {
    /// # Safety
    /// The pointers are valid for the box, and nobody else touches the target meanwhile.
    unsafe fn run(&self, store: Store) {
        let change = match self.recode {
            Recode::Nothing => ElementChange::Nothing,
            Recode::Each(convert) => ElementChange::Each(convert),
            Recode::Restore(restore) => {
                ElementChange::Restore { restore, scales: self.scales, start: self.scales_offset }
            }
        };
        // SAFETY: the caller's promise.
        unsafe { self.copy.run_as((self.source, self.target), change, store) };
    }
}

/// Boxes that are moved together, and the commands that they come to.
pub(super) struct Moves<'a> {
    lanes: &'a PipelineLanes,
    kind: LaneKind,
    store: Store,
    /// Ends the waits for work of others on the same buffers.
    cancel: &'a CancelToken,
    gathers: Vec<(Arc<dyn Lane>, Vec<Command>)>,
    boxes: Vec<HostBox>,
    tensors: Vec<KernelArg>,
    scatters: Vec<(Arc<dyn Lane>, Vec<Command>)>,
}

impl<'a> Moves<'a> {
    pub fn new(
        lanes: &'a PipelineLanes,
        kind: LaneKind,
        store: Store,
        cancel: &'a CancelToken,
    ) -> Self {
        let (gathers, scatters) = (Vec::new(), Vec::new());
        let (boxes, tensors) = (Vec::new(), Vec::new());
        Self { lanes, kind, store, cancel, gathers, boxes, tensors, scatters }
    }

    /// Adds a box.
    pub fn add(&mut self, each: BoxMove) -> Result<(), DeviceError> {
        let BoxMove { copy, recode, source, target, scales } = each;
        let is_plain = matches!(recode, Recode::Nothing);
        match (&source.memory, &target.memory) {
            (Memory::Host { .. }, Memory::Host { .. }) => {
                self.add_host(copy, recode, &source, &target, scales)
            }
            (Memory::Device { lane, .. }, _) if is_plain && can_reach(lane, &target.memory) => {
                let command = copy_command(&copy, &source, &target)?;
                push(&mut self.gathers, lane, command);
                Ok(())
            }
            (_, Memory::Device { lane, .. }) if is_plain && can_reach(lane, &source.memory) => {
                let command = copy_command(&copy, &source, &target)?;
                push(&mut self.scatters, lane, command);
                Ok(())
            }
            _ => self.add_staged(&copy, recode, source, target, scales),
        }
    }

    fn add_host(
        &mut self,
        copy: CopyPlan,
        recode: Recode,
        source: &Side,
        target: &Side,
        scales: Option<Memory>,
    ) -> Result<(), DeviceError> {
        let mut kept = Vec::new();
        let mut keeps = [None, None];
        let mut start = |side: &Side, writes: bool| match &side.memory {
            Memory::Host { start, buffer, tensor, keep } => {
                kept.extend(buffer.iter().map(|(buffer, _)| buffer.clone()));
                self.tensors.extend(tensor.iter().map(|view| match writes {
                    true => KernelArg::output(view.clone()),
                    false => KernelArg::input(view.clone()),
                }));
                keeps[usize::from(writes)] = keep.clone();
                start.wrapping_add(side.offset)
            }
            Memory::Device { .. } => unreachable!("only host memory is copied by the host"),
        };
        let (from, to) = (start(source, false), start(target, true));
        let scales = scales.map(|memory| start(&Side { memory, offset: 0 }, false));
        self.boxes.push(HostBox {
            copy,
            recode,
            source: from,
            target: to,
            scales: scales.unwrap_or(std::ptr::null_mut()),
            scales_offset: source.offset,
            _kept: kept,
            _keep: keeps,
        });
        Ok(())
    }

    /// By way of host memory: gathered from a device, recoded, scattered to a device.
    fn add_staged(
        &mut self,
        copy: &CopyPlan,
        recode: Recode,
        source: Side,
        target: Side,
        scales: Option<Memory>,
    ) -> Result<(), DeviceError> {
        let mut between = copy.clone();
        let source = match &source.memory {
            Memory::Host { .. } => source,
            Memory::Device { .. } if matches!(recode, Recode::Restore(_)) => {
                // Which scale an element has follows from its place: the whole span is kept as it
                // is.
                self.gather_span(copy, &source)?
            }
            Memory::Device { lane, .. } => {
                let packed = self.staged((copy.runs() * copy.source_run_bytes()) as usize)?;
                let gather = copy.gathered();
                push(&mut self.gathers, lane, copy_command(&gather, &source, &packed)?);
                between = between.from_packed();
                packed
            }
        };
        let scales = match scales {
            Some(Memory::Device { lane, view }) => Some(self.gather_scales(&lane, &view)?),
            other => other,
        };
        let (middle, scatter) = match &target.memory {
            Memory::Host { .. } => (target, None),
            Memory::Device { lane, .. } => {
                let packed = self.staged(copy.bytes() as usize)?;
                let scatter = copy_command(&copy.scattered(), &packed, &target)?;
                between = between.to_packed();
                (packed, Some((lane.clone(), scatter)))
            }
        };
        self.add_host(between, recode, &source, &middle, scales)?;
        if let Some((lane, command)) = scatter {
            push(&mut self.scatters, &lane, command);
        }
        Ok(())
    }

    /// Host memory for something of `bytes` on its way.
    fn staged(&self, bytes: usize) -> Result<Side, DeviceError> {
        Ok(Side { memory: Memory::private(&self.lanes.staging(bytes))?, offset: 0 })
    }

    /// All bytes of a device's tensor from the block in which a box starts to its end.
    fn gather_span(&mut self, copy: &CopyPlan, source: &Side) -> Result<Side, DeviceError> {
        let Memory::Device { lane, .. } = &source.memory else {
            unreachable!("asked for a device's memory")
        };
        let skipped = source.offset % mx::BLOCK;
        let bytes = copy.source_span().end as usize + skipped;
        let staged = self.staged(bytes)?;
        let all = CopyPlan::flat(bytes as u64);
        let from = Side { memory: source.memory.clone(), offset: source.offset - skipped };
        push(&mut self.gathers, lane, copy_command(&all, &from, &staged)?);
        // Addresses count from the tensor's first byte: the scales do too.
        let Memory::Host { start, buffer, tensor, keep } = staged.memory else {
            unreachable!("memory of the host")
        };
        let start = start.wrapping_sub(source.offset - skipped);
        Ok(Side { memory: Memory::Host { start, buffer, tensor, keep }, offset: source.offset })
    }

    fn gather_scales(
        &mut self,
        lane: &Arc<dyn Lane>,
        view: &BufferView,
    ) -> Result<Memory, DeviceError> {
        let bytes = view.view().bytes() as usize;
        let staged = self.staged(bytes)?;
        let memory = Memory::Device { lane: lane.clone(), view: view.clone() };
        let command =
            copy_command(&CopyPlan::flat(bytes as u64), &Side { memory, offset: 0 }, &staged)?;
        push(&mut self.gathers, lane, command);
        Ok(staged.memory)
    }

    /// Submits everything after `after`, and `tail` on a lane of its own behind it. Returns the
    /// points at which all is done.
    ///
    /// # Safety
    /// Memory of the process that boxes name stays valid, and is touched by nobody else in a
    /// conflicting way, until the points are reached or have failed.
    pub unsafe fn submit(
        self,
        after: &[Point],
        tail: Option<(&Arc<dyn Lane>, HostFunction)>,
    ) -> Result<Vec<Point>, DeviceError> {
        let mut done: Vec<Point> = Vec::new();
        for (lane, commands) in self.gathers {
            done.push(submit(&lane, commands, after.to_vec(), self.cancel)?);
        }
        let (host, cancel) = (self.lanes.host_lanes.of(self.kind), self.cancel);
        if !self.boxes.is_empty() {
            let (boxes, store) = (self.boxes, self.store);
            let kernel = Kernel::cpu("boxes", move |_| {
                // SAFETY: the promise of `submit`; the plan writes every byte once.
                boxes.iter().for_each(|each| unsafe { each.run(store) });
                // By the thread that stored past the caches: fences order only their own thread.
                fence();
            });
            let mut commands = vec![Command::dispatch(&kernel, self.tensors, Vec::new())];
            let waits = [after, &done].concat();
            let only_host = done.is_empty() && self.scatters.is_empty();
            if let Some((lane, function)) = tail {
                if only_host && lane.info().id() == host.info().id() {
                    commands.push(Command::Host(function));
                    return Ok(vec![submit(host, commands, waits, cancel)?]);
                }
                done.push(submit(host, commands, waits, cancel)?);
                return finish(done, after, self.scatters, Some((lane, function)), cancel);
            }
            done.push(submit(host, commands, waits, cancel)?);
            return finish(done, after, self.scatters, None, cancel);
        }
        finish(done, after, self.scatters, tail, cancel)
    }
}

/// Submits what comes last.
fn finish(
    mut done: Vec<Point>,
    after: &[Point],
    scatters: Vec<(Arc<dyn Lane>, Vec<Command>)>,
    tail: Option<(&Arc<dyn Lane>, HostFunction)>,
    cancel: &CancelToken,
) -> Result<Vec<Point>, DeviceError> {
    let waits = [after, &done].concat();
    for (lane, commands) in scatters {
        done.push(submit(&lane, commands, waits.clone(), cancel)?);
    }
    if let Some((lane, function)) = tail {
        let waits = [after, &done].concat();
        return Ok(vec![submit(lane, vec![Command::Host(function)], waits, cancel)?]);
    }
    Ok(done)
}

fn submit(
    lane: &Arc<dyn Lane>,
    commands: Vec<Command>,
    waits: Vec<Point>,
    cancel: &CancelToken,
) -> Result<Point, DeviceError> {
    let batch = commands.into_iter().fold(Batch::new().waits(waits), Batch::command);
    lane.submit(batch.cancelled_by(cancel))
}

fn push(list: &mut Vec<(Arc<dyn Lane>, Vec<Command>)>, lane: &Arc<dyn Lane>, command: Command) {
    let same = |(other, _): &&mut (Arc<dyn Lane>, _)| other.info().id() == lane.info().id();
    match list.iter_mut().find(same) {
        Some((_, commands)) => commands.push(command),
        None => list.push((lane.clone(), vec![command])),
    }
}

/// Whether commands of `lane` can touch that memory.
fn can_reach(lane: &Arc<dyn Lane>, memory: &Memory) -> bool {
    match memory {
        Memory::Host { .. } => lane.can_access(DeviceSpec::CPU),
        Memory::Device { view, .. } => lane.can_access(view.buffer().device()),
    }
}

/// Copies a box that keeps its bytes.
fn copy_command(copy: &CopyPlan, source: &Side, target: &Side) -> Result<Command, DeviceError> {
    let (source, source_at) = in_buffer(source, copy.source_span().end as usize);
    let (target, target_at) = in_buffer(target, copy.target_span().end as usize);
    let source_at = source_at as u64 + copy.source_offset();
    let target_at = target_at as u64 + copy.target_offset();
    let strides = copy.loops().iter().flat_map(|each| [each.source_stride, each.target_stride]);
    let strides = strides.map(i64::unsigned_abs);
    // The widest element that everything is a multiple of: devices copy wide ones faster.
    let all = strides.chain([copy.run_bytes(), source_at, target_at]);
    let width = 1u64 << all.fold(3, |bits, value| bits.min(value.trailing_zeros()));
    let dtype = match width {
        8 => Dtype::U64,
        4 => Dtype::U32,
        2 => Dtype::U16,
        _ => Dtype::U8,
    };
    let run = [copy.run_bytes() / width];
    let counts: Vec<u64> = copy.loops().iter().map(|each| each.count).chain(run).collect();
    let view = |at: u64, stride: fn(&Loop) -> i64| {
        let strides: Vec<i64> = copy.loops().iter().map(stride).chain([width as i64]).collect();
        View::strided(dtype, at, &counts, &strides)
            .map_err(|error| DeviceError::BadArgument { arg: 0, message: error.to_string() })
    };
    let source = source.view(view(source_at, |each| each.source_stride)?)?;
    let target = target.view(view(target_at, |each| each.target_stride)?)?;
    Ok(Command::copy(source, target))
}

/// The buffer that a side is in, and where in it the box starts.
fn in_buffer(side: &Side, span: usize) -> (Buffer, usize) {
    match &side.memory {
        Memory::Device { view, .. } => {
            (view.buffer().clone(), view.view().offset() as usize + side.offset)
        }
        Memory::Host { buffer: Some((buffer, at)), .. } => (buffer.clone(), at + side.offset),
        Memory::Host { start, keep, .. } => {
            let start = start.wrapping_add(side.offset);
            let start = std::ptr::NonNull::new(start).expect("bound memory has an address");
            // SAFETY: the box lies in memory that stays valid until all lanes have ended, as
            // `Moves::submit` demands, and the plan orders what touches it.
            (unsafe { foreign(start, span, keep.clone()) }, 0)
        }
    }
}
