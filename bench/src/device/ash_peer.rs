//! The chain of kernels with `ash` alone: what the driver takes, and the limit of what we can
//! reach.

use std::sync::atomic::{AtomicU64, Ordering};

use ash::vk;
use naga::back::spv;
use naga::valid::{Capabilities, ValidationFlags, Validator};

use super::chain::ITEMS;
use super::vulkan::SOURCE;

/// A device, and the chain as one command buffer and one kernel of it as another.
pub(super) struct ByHand {
    chain: vk::CommandBuffer,
    single: vk::CommandBuffer,
    semaphore: vk::Semaphore,
    value: AtomicU64,
    queue: vk::Queue,
    pools: (vk::CommandPool, vk::DescriptorPool),
    pipeline: (vk::Pipeline, vk::PipelineLayout, vk::DescriptorSetLayout),
    memory: (vk::Buffer, vk::DeviceMemory),
    device: ash::Device,
    instance: ash::Instance,
    /// Holds the library in memory.
    _entry: ash::Entry,
}

/// Bytes of the buffer: elements, then parameters at a multiple of what bindings are aligned to.
const PARAMETERS_AT: u64 = 4096;
const BYTES: u64 = 8192;

impl ByHand {
    /// Everything prepared, with `dispatches` kernels in the chain.
    pub(super) fn new(dispatches: usize) -> Self {
        // SAFETY: handles are used with the device that they were made of, and records live until
        // their calls return; the recorded commands stay within the buffer.
        unsafe {
            let entry = ash::Entry::load().expect("there is a loader");
            let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_2);
            let info = vk::InstanceCreateInfo::default().application_info(&application);
            let instance = entry.create_instance(&info, None).expect("an instance");
            let physical = instance.enumerate_physical_devices().expect("there is a device")[0];
            let families = instance.get_physical_device_queue_family_properties(physical);
            let computes = |family: &vk::QueueFamilyProperties| {
                family.queue_flags.contains(vk::QueueFlags::COMPUTE)
            };
            let family = families.iter().position(computes).expect("it computes") as u32;
            let priorities = [1.0];
            let queues = [vk::DeviceQueueCreateInfo::default()
                .queue_family_index(family)
                .queue_priorities(&priorities)];
            let mut timelines =
                vk::PhysicalDeviceTimelineSemaphoreFeatures::default().timeline_semaphore(true);
            let info = vk::DeviceCreateInfo::default()
                .queue_create_infos(&queues)
                .push_next(&mut timelines);
            let device = instance.create_device(physical, &info, None).expect("a device");
            let memory = memory(&instance, physical, &device);
            let pipeline = pipeline(&device);
            let sizes = [vk::DescriptorPoolSize::default()
                .ty(vk::DescriptorType::STORAGE_BUFFER)
                .descriptor_count(2)];
            let info = vk::DescriptorPoolCreateInfo::default().max_sets(1).pool_sizes(&sizes);
            let sets = device.create_descriptor_pool(&info, None).expect("a pool");
            let layouts = [pipeline.2];
            let info = vk::DescriptorSetAllocateInfo::default()
                .descriptor_pool(sets)
                .set_layouts(&layouts);
            let set = device.allocate_descriptor_sets(&info).expect("a set")[0];
            let bound = |offset, range| {
                [vk::DescriptorBufferInfo::default().buffer(memory.0).offset(offset).range(range)]
            };
            let buffers = [bound(0, 4 * ITEMS as u64), bound(PARAMETERS_AT, 72)];
            let writes: Vec<_> = (0..2)
                .map(|at| {
                    vk::WriteDescriptorSet::default()
                        .dst_set(set)
                        .dst_binding(at as u32)
                        .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                        .buffer_info(&buffers[at])
                })
                .collect();
            device.update_descriptor_sets(&writes, &[]);
            let info = vk::CommandPoolCreateInfo::default().queue_family_index(family);
            let pool = device.create_command_pool(&info, None).expect("a pool");
            let info =
                vk::CommandBufferAllocateInfo::default().command_pool(pool).command_buffer_count(2);
            let buffers = device.allocate_command_buffers(&info).expect("command buffers");
            for (&commands, count) in buffers.iter().zip([dispatches, 1]) {
                record(&device, commands, &pipeline, set, count);
            }
            let mut kind =
                vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
            let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
            let semaphore = device.create_semaphore(&info, None).expect("a semaphore");
            Self {
                chain: buffers[0],
                single: buffers[1],
                semaphore,
                value: AtomicU64::new(0),
                queue: device.get_device_queue(family, 0),
                pools: (pool, sets),
                pipeline,
                memory,
                device,
                instance,
                _entry: entry,
            }
        }
    }

    /// The whole chain in one submission.
    pub(super) fn at_once(&self) {
        self.submit_and_wait(self.chain);
    }

    /// One kernel.
    pub(super) fn one(&self) {
        self.submit_and_wait(self.single);
    }

    fn submit_and_wait(&self, commands: vk::CommandBuffer) {
        let values = [self.value.fetch_add(1, Ordering::Relaxed) + 1];
        let (semaphores, commands) = ([self.semaphore], [commands]);
        let mut timeline =
            vk::TimelineSemaphoreSubmitInfo::default().signal_semaphore_values(&values);
        let info = vk::SubmitInfo::default()
            .command_buffers(&commands)
            .signal_semaphores(&semaphores)
            .push_next(&mut timeline);
        let wait = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        // SAFETY: the commands are not in use, since every submission is waited for; one thread has
        // the queue.
        unsafe {
            self.device.queue_submit(self.queue, &[info], vk::Fence::null()).expect("submitted");
            self.device.wait_semaphores(&wait, u64::MAX).expect("nothing fails");
        }
    }
}

impl Drop for ByHand {
    fn drop(&mut self) {
        // SAFETY: every submission was waited for; what was made last goes first.
        unsafe {
            self.device.destroy_semaphore(self.semaphore, None);
            self.device.destroy_command_pool(self.pools.0, None);
            self.device.destroy_descriptor_pool(self.pools.1, None);
            self.device.destroy_pipeline(self.pipeline.0, None);
            self.device.destroy_pipeline_layout(self.pipeline.1, None);
            self.device.destroy_descriptor_set_layout(self.pipeline.2, None);
            self.device.destroy_buffer(self.memory.0, None);
            self.device.free_memory(self.memory.1, None);
            self.device.destroy_device(None);
            self.instance.destroy_instance(None);
        }
    }
}

/// A buffer that the host has written the parameters into.
///
/// # Safety
/// The device was made of the physical device.
unsafe fn memory(
    instance: &ash::Instance,
    physical: vk::PhysicalDevice,
    device: &ash::Device,
) -> (vk::Buffer, vk::DeviceMemory) {
    let info =
        vk::BufferCreateInfo::default().size(BYTES).usage(vk::BufferUsageFlags::STORAGE_BUFFER);
    // SAFETY: the caller's promise; the mapping covers the parameters, which lie inside.
    unsafe {
        let buffer = device.create_buffer(&info, None).expect("a buffer");
        let needs = device.get_buffer_memory_requirements(buffer);
        let types = instance.get_physical_device_memory_properties(physical);
        let wanted = vk::MemoryPropertyFlags::HOST_VISIBLE | vk::MemoryPropertyFlags::HOST_COHERENT;
        let kind = (0..types.memory_type_count).find(|&at| {
            needs.memory_type_bits & (1 << at) != 0
                && types.memory_types[at as usize].property_flags.contains(wanted)
        });
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(needs.size)
            .memory_type_index(kind.expect("memory that the host reaches"));
        let memory = device.allocate_memory(&info, None).expect("memory");
        device.bind_buffer_memory(buffer, memory, 0).expect("bound once");
        let flags = vk::MemoryMapFlags::empty();
        let start = device.map_memory(memory, 0, vk::WHOLE_SIZE, flags).expect("mapped");
        start.cast::<u8>().write_bytes(0, BYTES as usize);
        start.cast::<u8>().add(PARAMETERS_AT as usize).cast::<u32>().add(2).write(ITEMS as u32);
        device.unmap_memory(memory);
        (buffer, memory)
    }
}

/// The kernel of [`SOURCE`].
///
/// # Safety
/// The device is alive.
unsafe fn pipeline(
    device: &ash::Device,
) -> (vk::Pipeline, vk::PipelineLayout, vk::DescriptorSetLayout) {
    let module = naga::front::wgsl::parse_str(SOURCE).expect("it parses");
    let mut validator = Validator::new(ValidationFlags::all(), Capabilities::empty());
    let info = validator.validate(&module).expect("it is valid");
    let options =
        spv::Options { lang_version: (1, 5), force_loop_bounding: false, ..Default::default() };
    let words = spv::write_vec(&module, &info, &options, None).expect("it compiles");
    let bindings: Vec<_> = (0..2)
        .map(|at| {
            vk::DescriptorSetLayoutBinding::default()
                .binding(at)
                .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                .descriptor_count(1)
                .stage_flags(vk::ShaderStageFlags::COMPUTE)
        })
        .collect();
    // SAFETY: the caller's promise; the words are a validated module.
    unsafe {
        let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
        let set = [device.create_descriptor_set_layout(&info, None).expect("a layout")];
        let info = vk::PipelineLayoutCreateInfo::default().set_layouts(&set);
        let layout = device.create_pipeline_layout(&info, None).expect("a layout");
        let info = vk::ShaderModuleCreateInfo::default().code(&words);
        let shader = device.create_shader_module(&info, None).expect("a module");
        let stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(shader)
            .name(c"bump");
        let info = vk::ComputePipelineCreateInfo::default().stage(stage).layout(layout);
        let none = vk::PipelineCache::null();
        let made = device.create_compute_pipelines(none, &[info], None).expect("a pipeline");
        device.destroy_shader_module(shader, None);
        (made[0], layout, set[0])
    }
}

/// Records `count` kernels, each after the one before.
///
/// # Safety
/// The command buffer is not in use, and everything belongs to the device.
unsafe fn record(
    device: &ash::Device,
    commands: vk::CommandBuffer,
    (pipeline, layout, _): &(vk::Pipeline, vk::PipelineLayout, vk::DescriptorSetLayout),
    set: vk::DescriptorSet,
    count: usize,
) {
    let compute = vk::PipelineBindPoint::COMPUTE;
    let stage = vk::PipelineStageFlags::COMPUTE_SHADER;
    let barrier = [vk::MemoryBarrier::default()
        .src_access_mask(vk::AccessFlags::SHADER_WRITE)
        .dst_access_mask(vk::AccessFlags::SHADER_READ | vk::AccessFlags::SHADER_WRITE)];
    let none = vk::DependencyFlags::empty();
    // SAFETY: the caller's promise.
    unsafe {
        let info = vk::CommandBufferBeginInfo::default();
        device.begin_command_buffer(commands, &info).expect("it begins");
        device.cmd_bind_pipeline(commands, compute, *pipeline);
        device.cmd_bind_descriptor_sets(commands, compute, *layout, 0, &[set], &[]);
        for _ in 0..count {
            device.cmd_pipeline_barrier(commands, stage, stage, none, &barrier, &[], &[]);
            device.cmd_dispatch(commands, 1, 1, 1);
        }
        device.end_command_buffer(commands).expect("it ends");
    }
}
