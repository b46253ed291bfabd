//! Command buffers: operations written down for the driver, and what they must not outlive.

use std::fmt;
use std::sync::{Arc, Mutex};

use crate::encode::{BindingSet, Encoded, Op};
use crate::gpu::Gpu;
use crate::memory::{Upload, VulkanMemory};
use crate::pipeline::Pipeline;
use crate::times::Stamps;
use ash::vk;
use syncline_device::DeviceError;
use syncline_sync::lock;

/// Descriptor pools kept for reuse.
const POOLS_KEPT: usize = 64;

/// The command buffers of one lane.
pub(crate) struct CommandPool {
    /// Locked while a buffer of the pool is recorded, as Vulkan asks for.
    state: Mutex<PoolState>,
    descriptors: Descriptors,
    gpu: Arc<Gpu>,
}

struct PoolState {
    raw: vk::CommandPool,
    free: Vec<vk::CommandBuffer>,
}

/// Commands that are ready to be submitted, any number of times.
pub(crate) struct Recorded {
    pub(crate) raw: vk::CommandBuffer,
    descriptors: Option<DescriptorPool>,
    _upload: Option<Arc<Upload>>,
    _scratch: Vec<VulkanMemory>,
    _staging: Vec<Arc<Upload>>,
    _pipelines: Vec<Arc<Pipeline>>,
    /// When its commands ran, if that is noted.
    pub(crate) stamps: Option<Stamps>,
    pool: Arc<CommandPool>,
}

/// How often commands are submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Times {
    Once,
    Often,
}

impl CommandPool {
    pub(crate) fn new(gpu: &Arc<Gpu>, family: u32) -> Result<Arc<Self>, DeviceError> {
        let info = vk::CommandPoolCreateInfo::default()
            .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER)
            .queue_family_index(family);
        // SAFETY: the family has a queue of ours.
        let raw = unsafe { gpu.raw.create_command_pool(&info, None) }
            .map_err(|error| gpu.error("vkCreateCommandPool", error))?;
        let state = Mutex::new(PoolState { raw, free: Vec::new() });
        Ok(Arc::new(Self { state, descriptors: Descriptors::default(), gpu: gpu.clone() }))
    }

    /// Writes `encoded` down.
    pub(crate) fn record(
        self: &Arc<Self>,
        encoded: Encoded,
        times: Times,
    ) -> Result<Recorded, DeviceError> {
        let gpu = &self.gpu;
        let descriptors = match encoded.sets.len() {
            0 => None,
            sets => {
                let count = encoded.sets.iter().map(|set| set.bindings.len()).sum::<usize>();
                Some(self.descriptors.take(gpu, sets as u32, count as u32)?)
            }
        };
        let stamps = Stamps::new(gpu, encoded.stamped)?;
        let mut state = lock(&self.state);
        let raw = match state.free.pop() {
            Some(raw) => raw,
            None => {
                let info = vk::CommandBufferAllocateInfo::default()
                    .command_pool(state.raw)
                    .command_buffer_count(1);
                // SAFETY: the lock makes this the only use of the pool.
                unsafe { gpu.raw.allocate_command_buffers(&info) }
                    .map_err(|error| gpu.error("vkAllocateCommandBuffers", error))?[0]
            }
        };
        let mut recorded = Recorded {
            raw,
            descriptors,
            _upload: encoded.upload,
            _scratch: encoded.scratch,
            _staging: encoded.staging,
            _pipelines: Vec::new(),
            stamps,
            pool: self.clone(),
        };
        // SAFETY: the buffer and the descriptors are not in use, and the lock makes this the only
        // recording of the pool.
        let result = unsafe {
            recorded
                .bind(gpu, &encoded.sets)
                .and_then(|sets| recorded.write(gpu, &encoded.ops, &sets, times))
        };
        drop(state);
        recorded._pipelines = encoded
            .ops
            .into_iter()
            .filter_map(|op| match op {
                Op::Dispatch { pipeline, .. } => Some(pipeline),
                _ => None,
            })
            .collect();
        recorded._pipelines.dedup_by(|one, other| Arc::ptr_eq(one, other));
        result.map(|()| recorded)
    }
}

impl Recorded {
    /// The driver's sets for `sets`.
    ///
    /// # Safety
    /// The descriptor pool is not in use.
    unsafe fn bind(
        &self,
        gpu: &Gpu,
        sets: &[BindingSet],
    ) -> Result<Vec<vk::DescriptorSet>, DeviceError> {
        let Some(pool) = &self.descriptors else { return Ok(Vec::new()) };
        let layouts: Vec<_> = sets.iter().map(|set| set.layout).collect();
        let info = vk::DescriptorSetAllocateInfo::default()
            .descriptor_pool(pool.raw)
            .set_layouts(&layouts);
        // SAFETY: the caller's promise; the pool has room for them.
        let made = unsafe { gpu.raw.allocate_descriptor_sets(&info) }
            .map_err(|error| gpu.error("vkAllocateDescriptorSets", error))?;
        let infos: Vec<_> = sets
            .iter()
            .flat_map(|set| &set.bindings)
            .map(|binding| {
                [vk::DescriptorBufferInfo::default()
                    .buffer(binding.buffer.expect("uploads have been placed"))
                    .offset(binding.offset)
                    .range(binding.bytes)]
            })
            .collect();
        let places = made.iter().zip(sets).flat_map(|(&of, set)| {
            (0..set.bindings.len() as u32).map(move |binding| (of, binding))
        });
        let writes: Vec<_> = places
            .zip(&infos)
            .map(|((set, binding), info)| {
                vk::WriteDescriptorSet::default()
                    .dst_set(set)
                    .dst_binding(binding)
                    .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                    .buffer_info(info)
            })
            .collect();
        // SAFETY: the sets are new, their buffers held by `self` or by the leases of the batch that
        // submits.
        unsafe { gpu.raw.update_descriptor_sets(&writes, &[]) };
        Ok(made)
    }

    /// # Safety
    /// The command buffer is not in use, and no other thread uses its pool.
    unsafe fn write(
        &self,
        gpu: &Gpu,
        ops: &[Op],
        sets: &[vk::DescriptorSet],
        times: Times,
    ) -> Result<(), DeviceError> {
        let (device, raw) = (&gpu.raw, self.raw);
        let flags = match times {
            Times::Once => vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT,
            Times::Often => vk::CommandBufferUsageFlags::SIMULTANEOUS_USE,
        };
        let begin = vk::CommandBufferBeginInfo::default().flags(flags);
        // SAFETY: the caller's promise; what the commands name is held by `self`, or by the leases
        // of the submitter.
        unsafe {
            device
                .begin_command_buffer(raw, &begin)
                .map_err(|error| gpu.error("vkBeginCommandBuffer", error))?;
            order(
                gpu,
                raw,
                vk::PipelineStageFlags::ALL_COMMANDS,
                vk::PipelineStageFlags::ALL_COMMANDS,
            );
            if let Some(stamps) = &self.stamps {
                device.cmd_reset_query_pool(raw, stamps.raw, 0, stamps.count());
            }
            let mut stamped = 0;
            let (mut pipeline_bound, mut set_bound) = (vk::Pipeline::null(), None);
            for op in ops {
                match op {
                    Op::Barrier => {
                        let stages = vk::PipelineStageFlags::COMPUTE_SHADER
                            | vk::PipelineStageFlags::TRANSFER;
                        order(gpu, raw, stages, stages);
                    }
                    Op::Stamp => {
                        // At the end of the pipe on both sides: a command begins when all before it
                        // have ended.
                        if let Some(stamps) = &self.stamps {
                            let stage = vk::PipelineStageFlags::BOTTOM_OF_PIPE;
                            device.cmd_write_timestamp(raw, stage, stamps.raw, stamped);
                            stamped += 1;
                        }
                    }
                    Op::Dispatch { pipeline, set, groups: [x, y, z] } => {
                        let compute = vk::PipelineBindPoint::COMPUTE;
                        if pipeline_bound != pipeline.raw {
                            device.cmd_bind_pipeline(raw, compute, pipeline.raw);
                            pipeline_bound = pipeline.raw;
                        }
                        // A set belongs to one layout, so that another layout is another set.
                        if set_bound != Some(set) {
                            let (layout, set) = (pipeline.layout.pipeline, &sets[*set..][..1]);
                            device.cmd_bind_descriptor_sets(raw, compute, layout, 0, set, &[]);
                        }
                        set_bound = Some(set);
                        device.cmd_dispatch(raw, *x, *y, *z);
                    }
                    Op::Copy { source, target, regions } => {
                        for regions in regions.chunks(4_096) {
                            device.cmd_copy_buffer(raw, *source, *target, regions);
                        }
                    }
                    Op::Fill { target, offset, bytes, word } => {
                        device.cmd_fill_buffer(raw, *target, *offset, *bytes, *word);
                    }
                }
            }
            order(gpu, raw, vk::PipelineStageFlags::ALL_COMMANDS, vk::PipelineStageFlags::HOST);
            device.end_command_buffer(raw).map_err(|error| gpu.error("vkEndCommandBuffer", error))
        }
    }
}

/// Everything before is complete and visible to everything after, in the stages given.
///
/// # Safety
/// `raw` is being recorded.
unsafe fn order(
    gpu: &Gpu,
    raw: vk::CommandBuffer,
    before: vk::PipelineStageFlags,
    after: vk::PipelineStageFlags,
) {
    let visible_to = match after {
        vk::PipelineStageFlags::HOST => vk::AccessFlags::HOST_READ | vk::AccessFlags::HOST_WRITE,
        _ => vk::AccessFlags::MEMORY_READ | vk::AccessFlags::MEMORY_WRITE,
    };
    let barrier = vk::MemoryBarrier::default()
        .src_access_mask(vk::AccessFlags::MEMORY_WRITE)
        .dst_access_mask(visible_to);
    let none = vk::DependencyFlags::empty();
    // SAFETY: the caller's promise.
    unsafe { gpu.raw.cmd_pipeline_barrier(raw, before, after, none, &[barrier], &[], &[]) };
}

impl Drop for Recorded {
    fn drop(&mut self) {
        lock(&self.pool.state).free.push(self.raw);
        if let Some(pool) = self.descriptors.take() {
            self.pool.descriptors.give(&self.pool.gpu, pool);
        }
    }
}

impl fmt::Debug for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recorded({:?})", self.raw)
    }
}

impl Drop for CommandPool {
    fn drop(&mut self) {
        let state = lock(&self.state);
        // SAFETY: recorded commands hold the pool, so that none of its buffers is in use.
        unsafe { self.gpu.raw.destroy_command_pool(state.raw, None) };
        for pool in lock(&self.descriptors.0).drain(..) {
            // SAFETY: kept pools belong to no recording.
            unsafe { self.gpu.raw.destroy_descriptor_pool(pool.raw, None) };
        }
    }
}

impl fmt::Debug for CommandPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CommandPool")
    }
}

/// Room for descriptor sets.
struct DescriptorPool {
    raw: vk::DescriptorPool,
    sets: u32,
    descriptors: u32,
}

/// Descriptor pools that are not in use.
#[derive(Default)]
struct Descriptors(Mutex<Vec<DescriptorPool>>);

impl Descriptors {
    fn take(&self, gpu: &Gpu, sets: u32, descriptors: u32) -> Result<DescriptorPool, DeviceError> {
        let mut kept = lock(&self.0);
        // One that is far larger stays for recordings that need it.
        let fits = |pool: &DescriptorPool| {
            pool.sets >= sets && pool.descriptors >= descriptors && pool.sets / 8 <= sets
        };
        if let Some(at) = kept.iter().position(fits) {
            return Ok(kept.swap_remove(at));
        }
        drop(kept);
        let (sets, descriptors) = (sets.next_power_of_two(), descriptors.next_power_of_two());
        let sizes = [vk::DescriptorPoolSize::default()
            .ty(vk::DescriptorType::STORAGE_BUFFER)
            .descriptor_count(descriptors)];
        let info = vk::DescriptorPoolCreateInfo::default().max_sets(sets).pool_sizes(&sizes);
        // SAFETY: a new object of the device.
        let raw = unsafe { gpu.raw.create_descriptor_pool(&info, None) }
            .map_err(|error| gpu.error("vkCreateDescriptorPool", error))?;
        Ok(DescriptorPool { raw, sets, descriptors })
    }

    fn give(&self, gpu: &Gpu, pool: DescriptorPool) {
        let mut kept = lock(&self.0);
        // SAFETY: the commands that used its sets are gone.
        unsafe {
            let flags = vk::DescriptorPoolResetFlags::empty();
            if kept.len() < POOLS_KEPT && gpu.raw.reset_descriptor_pool(pool.raw, flags).is_ok() {
                return kept.push(pool);
            }
            gpu.raw.destroy_descriptor_pool(pool.raw, None);
        }
    }
}
