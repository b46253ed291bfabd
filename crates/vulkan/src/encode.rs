//! From commands to operations of the driver: bindings, parameters, regions of copies, and the
//! barriers between them.

use std::collections::HashMap;
use std::sync::Arc;

use ash::vk;
use syncline_copy::CopyPlan;
use syncline_device::{Backend, BufferView, Command, Copy, DeviceError, Dispatch, Fill};
use syncline_tensor::{Access, BufferId, Region, View};

use crate::kit::Kit;
use crate::memory::{Upload, VulkanMemory};
use crate::pipeline::Pipeline;

/// Above this many accesses without a barrier, comparing costs more than the barrier.
const ACCESSES_MAX: usize = 64;

/// One operation of a command buffer.
pub(crate) enum Op {
    /// What comes after sees what came before.
    Barrier,
    /// The device notes the time, before or after a command.
    Stamp,
    /// A launch of a kernel.
    Dispatch {
        pipeline: Arc<Pipeline>,
        /// Which of [`Encoded::sets`] is bound.
        set: usize,
        groups: [u32; 3],
    },
    Copy {
        source: vk::Buffer,
        target: vk::Buffer,
        regions: Vec<vk::BufferCopy>,
    },
    Fill {
        target: vk::Buffer,
        offset: u64,
        bytes: u64,
        word: u32,
    },
}

/// What a launch is bound to: the arguments, then the parameters. Launches that are bound to the
/// same share it, so that neither the driver nor the device is told again.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct BindingSet {
    pub(crate) layout: vk::DescriptorSetLayout,
    pub(crate) bindings: Vec<Binding>,
}

/// A part of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Binding {
    /// `None`: what the host writes once.
    pub(crate) buffer: Option<vk::Buffer>,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// Operations, and the memory that belongs to them.
pub(crate) struct Encoded {
    pub(crate) ops: Vec<Op>,
    pub(crate) sets: Vec<BindingSet>,
    pub(crate) upload: Option<Arc<Upload>>,
    pub(crate) scratch: Vec<VulkanMemory>,
    pub(crate) staging: Vec<Arc<Upload>>,
    /// The numbers of the commands that stamps stand around.
    pub(crate) stamped: Vec<u32>,
}

/// Collects operations.
pub(crate) struct Encoder<'a> {
    kit: &'a Kit,
    ops: Vec<Op>,
    scratch: Vec<VulkanMemory>,
    staging: Vec<Arc<Upload>>,
    /// What the host writes once: parameters and patterns. Operations name places in it, which
    /// become places in a buffer when all are known.
    bytes: Vec<u8>,
    /// Where in `bytes` a block of parameters lies.
    blocks: HashMap<Box<[u8]>, u64>,
    /// Copies whose source is in `bytes`.
    uploaded: Vec<usize>,
    sets: Vec<BindingSet>,
    /// The numbers of `sets`.
    set_numbers: HashMap<BindingSet, usize>,
    /// What was touched since the last barrier.
    touched: Vec<(BufferId, Region, bool)>,
    /// The commands around which the device notes the time; `None`: it does not.
    stamped: Option<Vec<u32>>,
}

impl<'a> Encoder<'a> {
    /// Nothing yet; if `timed`, the device will note when each command ran.
    pub(crate) fn new(kit: &'a Kit, timed: bool) -> Self {
        Self {
            stamped: timed.then(Vec::new),
            kit,
            ops: Vec::new(),
            scratch: Vec::new(),
            staging: Vec::new(),
            bytes: Vec::new(),
            blocks: HashMap::new(),
            uploaded: Vec::new(),
            sets: Vec::new(),
            set_numbers: HashMap::new(),
            touched: Vec::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Adds command `number`, on memory of this device alone.
    pub(crate) fn add(&mut self, command: &Command, number: u32) -> Result<(), DeviceError> {
        self.stamped(number, |encoder| match command {
            Command::Copy(copy) => encoder.copy(command, copy),
            Command::Fill(fill) => encoder.fill(command, fill),
            Command::Dispatch(dispatch) => encoder.dispatch(command, dispatch),
            _ => unreachable!("host functions and recordings are steps of their own"),
        })
    }

    /// Puts stamps around what `add` adds for command `number`.
    fn stamped(
        &mut self,
        number: u32,
        add: impl FnOnce(&mut Self) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        if let Some(stamped) = &mut self.stamped {
            stamped.push(number);
            self.ops.push(Op::Stamp);
        }
        add(self)?;
        if self.stamped.is_some() {
            self.ops.push(Op::Stamp);
        }
        Ok(())
    }

    /// What was collected, with its uploads written.
    pub(crate) fn finish(mut self) -> Result<Encoded, DeviceError> {
        let mut upload = None;
        if !self.bytes.is_empty() {
            let piece = self.kit.allocator.uploads().take(self.bytes.len() as u64)?;
            // SAFETY: the piece has at least as many bytes, and no other upload has it.
            unsafe {
                std::ptr::copy_nonoverlapping(self.bytes.as_ptr(), piece.host(), self.bytes.len());
            }
            let (buffer, start) = piece.piece().place();
            for at in &self.uploaded {
                let Op::Copy { source, regions, .. } = &mut self.ops[*at] else {
                    unreachable!("copies only")
                };
                *source = buffer;
                regions.iter_mut().for_each(|region| region.src_offset += start);
            }
            let uploaded = self.sets.iter_mut().flat_map(|set| &mut set.bindings);
            for binding in uploaded.filter(|binding| binding.buffer.is_none()) {
                (binding.buffer, binding.offset) = (Some(buffer), binding.offset + start);
            }
            upload = Some(Arc::new(piece));
        }
        Ok(Encoded {
            ops: self.ops,
            sets: self.sets,
            upload,
            scratch: self.scratch,
            staging: self.staging,
            stamped: self.stamped.unwrap_or_default(),
        })
    }

    /// Adds a barrier unless nothing since the last one conflicts with `command`.
    fn order(&mut self, command: &Command) {
        let mut conflicts = self.touched.len() > ACCESSES_MAX;
        command.for_each_access(|view, access| {
            conflicts = conflicts || self.conflicts(view, access);
        });
        if conflicts {
            self.barrier();
        }
        self.note(command);
    }

    fn conflicts(&self, view: &BufferView, access: Access) -> bool {
        if access == Access::NoDep || view.view().is_empty() {
            return false;
        }
        let (id, region) = (view.buffer().id(), Region::of(view.view()));
        self.touched.iter().any(|(of, before, wrote)| {
            *of == id && (*wrote || access.writes()) && before.overlaps(&region)
        })
    }

    fn note(&mut self, command: &Command) {
        command.for_each_access(|view, access| {
            if access != Access::NoDep && !view.view().is_empty() {
                let region = Region::of(view.view());
                self.touched.push((view.buffer().id(), region, access.writes()));
            }
        });
    }

    fn barrier(&mut self) {
        self.ops.push(Op::Barrier);
        self.touched.clear();
    }

    /// Room for `bytes` in what the host writes, at a multiple of what bindings are aligned to.
    fn push_bytes(&mut self, bytes: &[u8]) -> u64 {
        let alignment = self.kit.gpu.candidate.limits.binding_alignment as usize;
        self.bytes.resize(self.bytes.len().next_multiple_of(alignment), 0);
        let at = self.bytes.len() as u64;
        self.bytes.extend_from_slice(bytes);
        at
    }

    fn copy(&mut self, command: &Command, copy: &Copy) -> Result<(), DeviceError> {
        let plan = CopyPlan::new(copy.source.view(), copy.target.view())?;
        if plan.bytes() == 0 {
            return Ok(());
        }
        self.order(command);
        let source = self.kit.place(&copy.source)?;
        let target = self.kit.place(&copy.target)?;
        if source == target && !plan.is_disjoint() {
            // All is read before anything is written: through memory of its own.
            let packed = self.kit.allocator.take(plan.bytes())?;
            let (out, back) = plan.through_packed();
            let between = packed.piece().place();
            self.scratch.push(packed);
            self.push_copy(&out, source, between);
            self.barrier();
            self.note(command);
            self.push_copy(&back, between, target);
        } else {
            self.push_copy(&plan, source, target);
        }
        Ok(())
    }

    /// Adds a copy between places in buffers.
    fn push_copy(
        &mut self,
        plan: &CopyPlan,
        (source, source_start): (vk::Buffer, u64),
        (target, target_start): (vk::Buffer, u64),
    ) {
        let mut regions = Vec::with_capacity(plan.runs() as usize);
        plan.for_each_run(|from, to| {
            regions.push(
                vk::BufferCopy::default()
                    .src_offset(source_start + from)
                    .dst_offset(target_start + to)
                    .size(plan.run_bytes()),
            );
        });
        self.ops.push(Op::Copy { source, target, regions });
    }

    /// Adds a copy between `chunk` and memory of the device, for one that goes on or began on the
    /// host.
    pub(crate) fn staged(
        &mut self,
        number: u32,
        plan: &CopyPlan,
        chunk: &Arc<Upload>,
        view: &BufferView,
        to_device: bool,
    ) -> Result<(), DeviceError> {
        let (chunk_place, place) = (chunk.piece().place(), self.kit.place(view)?);
        // Its chunk is shared by all parts of the copy, and commands before it may touch the same
        // bytes.
        self.barrier();
        self.staging.push(chunk.clone());
        self.stamped(number, |encoder| {
            match to_device {
                true => encoder.push_copy(plan, chunk_place, place),
                false => encoder.push_copy(plan, place, chunk_place),
            }
            Ok(())
        })?;
        self.barrier();
        Ok(())
    }

    fn fill(&mut self, command: &Command, fill: &Fill) -> Result<(), DeviceError> {
        let view = fill.target.view();
        if view.is_empty() {
            return Ok(());
        }
        self.order(command);
        let place = self.kit.place(&fill.target)?;
        let pattern = fill.pattern.bytes();
        match view.is_contiguous() {
            true => self.fill_run(place, view.offset(), view.bytes(), pattern),
            false => self.fill_strided(place, view, pattern)?,
        }
        Ok(())
    }

    /// Sets one run of bytes: whole words by the driver's own command where the pattern repeats in
    /// words.
    fn fill_run(
        &mut self,
        (target, start): (vk::Buffer, u64),
        offset: u64,
        bytes: u64,
        pattern: &[u8],
    ) {
        let (first, end) = (start + offset, start + offset + bytes);
        let (from, to) = (first.next_multiple_of(4), end & !3);
        let repeats = pattern.len() <= 4 || pattern[..4] == pattern[4..];
        if !repeats || from >= to {
            return self.fill_by_copies(target, first, end, first, pattern);
        }
        let word: [u8; 4] =
            std::array::from_fn(|at| pattern[((from - first) as usize + at) % pattern.len()]);
        let word = u32::from_ne_bytes(word);
        self.ops.push(Op::Fill { target, offset: from, bytes: to - from, word });
        self.fill_by_copies(target, first, from, first, pattern);
        self.fill_by_copies(target, to, end, first, pattern);
    }

    /// Sets the bytes from `from` to `to`, of a run that begins at `first`, by copies of the
    /// pattern.
    fn fill_by_copies(
        &mut self,
        target: vk::Buffer,
        from: u64,
        to: u64,
        first: u64,
        pattern: &[u8],
    ) {
        const BLOCK: u64 = 64 << 10;
        if from == to {
            return;
        }
        let length = (to - from).min(BLOCK);
        let phase = (from - first) as usize;
        let repeated: Vec<u8> =
            (0..length as usize).map(|at| pattern[(phase + at) % pattern.len()]).collect();
        let source_offset = self.push_bytes(&repeated);
        // Blocks are a multiple of every pattern, so that each begins where the pattern does.
        let regions = (from..to)
            .step_by(BLOCK as usize)
            .map(|at| {
                vk::BufferCopy::default()
                    .src_offset(source_offset)
                    .dst_offset(at)
                    .size(BLOCK.min(to - at))
            })
            .collect();
        self.push_uploaded(Op::Copy { source: vk::Buffer::null(), target, regions });
    }

    fn push_uploaded(&mut self, op: Op) {
        self.uploaded.push(self.ops.len());
        self.ops.push(op);
    }

    fn fill_strided(
        &mut self,
        (target, start): (vk::Buffer, u64),
        view: &View,
        pattern: &[u8],
    ) -> Result<(), DeviceError> {
        let same = View::strided(view.dtype(), 0, view.shape(), &vec![0; view.rank()])
            .expect("one element");
        let plan = CopyPlan::new(&same, view)?;
        let source_offset = self.push_bytes(pattern);
        let mut regions = Vec::with_capacity(plan.runs() as usize);
        plan.for_each_run(|from, to| {
            regions.push(
                vk::BufferCopy::default()
                    .src_offset(source_offset + from)
                    .dst_offset(start + to)
                    .size(plan.run_bytes()),
            );
        });
        self.push_uploaded(Op::Copy { source: vk::Buffer::null(), target, regions });
        Ok(())
    }

    fn dispatch(&mut self, command: &Command, dispatch: &Dispatch) -> Result<(), DeviceError> {
        if dispatch.writes_nothing() {
            return Ok(());
        }
        let limits = self.kit.gpu.candidate.limits;
        let views = dispatch.views();
        let source = dispatch.source(Backend::Vulkan)?;
        let groups = source.groups(&views, dispatch.grid)?;
        let pipeline = self.kit.pipelines.get(&dispatch.kernel, &source, views.len())?;
        pipeline.check_writes(dispatch)?;
        let mut bindings = Vec::with_capacity(views.len() + 1);
        let mut bound_starts = Vec::with_capacity(views.len());
        for (at, (arg, view)) in dispatch.args.iter().zip(&views).enumerate() {
            let bytes_min = pipeline.bindings[at].bytes_min;
            let Some((first, last)) = view.span() else {
                bindings.push(self.nothing(bytes_min));
                bound_starts.push(0);
                continue;
            };
            let start = first - first % limits.binding_alignment;
            let range = last.next_multiple_of(4) - start;
            if range > limits.binding_bytes {
                return Err(DeviceError::BadArgument {
                    arg: at,
                    message: format!(
                        "it spans {range} bytes, {} binds at most {}: split the view",
                        self.kit.gpu.spec, limits.binding_bytes
                    ),
                });
            }
            if range < bytes_min {
                return Err(DeviceError::BadArgument {
                    arg: at,
                    message: format!(
                        "it spans {range} bytes, and the WGSL declares a type of {bytes_min}"
                    ),
                });
            }
            let (buffer, place) = self.kit.place(&arg.target)?;
            let offset = place + start;
            bindings.push(Binding { buffer: Some(buffer), offset, bytes: range });
            bound_starts.push(start);
        }
        let mut words = Vec::new();
        source.parameters(&views, &bound_starts, &dispatch.scalars, &mut words)?;
        if groups.contains(&0) {
            return Ok(());
        }
        if groups.iter().zip(limits.groups).any(|(&count, most)| count > most) {
            return Err(DeviceError::BadArgument {
                arg: 0,
                message: format!("{groups:?} groups: at most {:?} can be launched", limits.groups),
            });
        }
        self.order(command);
        // A binding has at least one word, and what the kernel takes it for.
        let least = pipeline.bindings[views.len()].bytes_min.div_ceil(4).max(1);
        words.resize(words.len().max(least as usize), 0);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let parameters =
            Binding { buffer: None, offset: self.block(&bytes), bytes: bytes.len() as u64 };
        bindings.push(parameters);
        let set = self.set(BindingSet { layout: pipeline.layout.set, bindings });
        self.ops.push(Op::Dispatch { pipeline, set, groups });
        Ok(())
    }

    /// What stands for an argument without elements: bytes that mean nothing, whatever a kernel
    /// does to them.
    fn nothing(&mut self, bytes_min: u64) -> Binding {
        let bytes = bytes_min.max(4);
        let offset = self.push_bytes(&vec![0; bytes as usize]);
        Binding { buffer: None, offset, bytes }
    }

    /// Where a block of parameters lies in what the host writes.
    fn block(&mut self, bytes: &[u8]) -> u64 {
        if let Some(at) = self.blocks.get(bytes) {
            return *at;
        }
        let at = self.push_bytes(bytes);
        self.blocks.insert(bytes.into(), at);
        at
    }

    /// The number of a set.
    fn set(&mut self, set: BindingSet) -> usize {
        let next = self.sets.len();
        *self.set_numbers.entry(set).or_insert_with_key(|set| {
            self.sets.push(set.clone());
            next
        })
    }
}
