//! Candidates: what a physical device can do, and whether that is enough. Plain data, decided
//! before anything is opened.

use std::ffi::CStr;

use ash::{ext, vk};
use syncline_device::ALIGNMENT;

use crate::instance::{Instance, shown};

/// A physical device that can be opened.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) physical: vk::PhysicalDevice,
    pub(crate) name: String,
    /// The family and number of each queue to be taken: for compute, and for copies if there is a
    /// second one.
    pub(crate) queues: Vec<(u32, u32)>,
    /// Where buffers live.
    pub(crate) memory_type: u32,
    /// Whether the host reaches buffers directly, and fast in both directions.
    pub(crate) host_visible: bool,
    /// What the host writes for the device and reads from it, if it does not reach buffers.
    pub(crate) staging_type: u32,
    /// The size of the heap that buffers come from.
    pub(crate) memory_bytes: u64,
    pub(crate) limits: Limits,
    pub(crate) features: Features,
    /// Whether the driver tells its clock, so that it can be compared with the host's.
    pub(crate) tells_clock: bool,
}

/// What the driver allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Of a single allocation.
    pub(crate) allocation_bytes: u64,
    /// Of the range bound to one argument of a kernel.
    pub(crate) binding_bytes: u64,
    /// What a binding's offset is a multiple of; at least [`ALIGNMENT`] for whole pieces.
    pub(crate) binding_alignment: u64,
    pub(crate) bindings: u32,
    pub(crate) groups: [u32; 3],
    pub(crate) group: [u32; 3],
    pub(crate) group_items: u32,
    /// Nanoseconds of one tick of its clock; zero without a clock.
    pub(crate) tick_ns: f32,
}

/// What kernels may use beyond the least.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Features {
    pub(crate) float16: bool,
    pub(crate) float64: bool,
    pub(crate) int64: bool,
    pub(crate) robust: bool,
    pub(crate) subgroups: bool,
}

impl Candidate {
    /// Examines one physical device.
    ///
    /// # Errors
    /// Why it cannot be used, after its name.
    pub(crate) fn examine(
        instance: &Instance,
        physical: vk::PhysicalDevice,
    ) -> Result<Self, (String, String)> {
        // SAFETY: the physical device belongs to the instance, which is alive.
        let properties = unsafe { instance.raw.get_physical_device_properties(physical) };
        let name = properties
            .device_name_as_c_str()
            .map_or_else(|_| "(no name)".to_owned(), |name| name.to_string_lossy().into_owned());
        Self::examine_named(instance, physical, &properties, name.clone())
            .map_err(|reason| (name, reason))
    }

    fn examine_named(
        instance: &Instance,
        physical: vk::PhysicalDevice,
        properties: &vk::PhysicalDeviceProperties,
        name: String,
    ) -> Result<Self, String> {
        if properties.api_version < vk::API_VERSION_1_2 {
            return Err(format!("knows Vulkan {}, 1.2 is needed", shown(properties.api_version)));
        }
        let mut of_1_1 = vk::PhysicalDeviceVulkan11Features::default();
        let mut of_1_2 = vk::PhysicalDeviceVulkan12Features::default();
        let mut features =
            vk::PhysicalDeviceFeatures2::default().push_next(&mut of_1_1).push_next(&mut of_1_2);
        // SAFETY: the device knows 1.2, and the records of that version are chained.
        unsafe { instance.raw.get_physical_device_features2(physical, &mut features) };
        let base = features.features;
        if of_1_2.timeline_semaphore == vk::FALSE {
            return Err("has no timeline semaphores".to_owned());
        }
        let mut vulkan11 = vk::PhysicalDeviceVulkan11Properties::default();
        let mut more = vk::PhysicalDeviceProperties2::default().push_next(&mut vulkan11);
        // SAFETY: as above.
        unsafe { instance.raw.get_physical_device_properties2(physical, &mut more) };
        let subgroups = vulkan11.subgroup_supported_stages.contains(vk::ShaderStageFlags::COMPUTE)
            && vulkan11.subgroup_supported_operations.contains(
                vk::SubgroupFeatureFlags::BASIC
                    | vk::SubgroupFeatureFlags::VOTE
                    | vk::SubgroupFeatureFlags::ARITHMETIC
                    | vk::SubgroupFeatureFlags::BALLOT
                    | vk::SubgroupFeatureFlags::SHUFFLE
                    | vk::SubgroupFeatureFlags::SHUFFLE_RELATIVE
                    | vk::SubgroupFeatureFlags::QUAD,
            );
        let (queues, timestamp_bits) = queues(instance, physical)?;
        let memory = Memory::choose(instance, physical)?;
        let limits = properties.limits;
        let ticks = timestamp_bits >= 36;
        Ok(Self {
            physical,
            name,
            queues,
            memory_type: memory.device,
            host_visible: memory.host_visible,
            staging_type: memory.staging,
            memory_bytes: memory.bytes,
            limits: Limits {
                allocation_bytes: vulkan11.max_memory_allocation_size,
                binding_bytes: limits.max_storage_buffer_range.into(),
                binding_alignment: limits.min_storage_buffer_offset_alignment.max(16),
                bindings: limits
                    .max_per_stage_descriptor_storage_buffers
                    .min(limits.max_descriptor_set_storage_buffers),
                groups: limits.max_compute_work_group_count,
                group: limits.max_compute_work_group_size,
                group_items: limits.max_compute_work_group_invocations,
                tick_ns: if ticks { limits.timestamp_period } else { 0.0 },
            },
            features: Features {
                float16: of_1_2.shader_float16 == vk::TRUE
                    && of_1_1.storage_buffer16_bit_access == vk::TRUE,
                float64: base.shader_float64 == vk::TRUE,
                int64: base.shader_int64 == vk::TRUE,
                robust: base.robust_buffer_access == vk::TRUE,
                subgroups,
            },
            tells_clock: has_extension(instance, physical, ext::calibrated_timestamps::NAME),
        })
    }

    /// Pieces of memory begin at multiples of this.
    pub(crate) fn piece_alignment(&self) -> u64 {
        self.limits.binding_alignment.max(ALIGNMENT)
    }
}

fn has_extension(instance: &Instance, physical: vk::PhysicalDevice, name: &CStr) -> bool {
    // SAFETY: the physical device belongs to the instance, which is alive.
    let all = unsafe { instance.raw.enumerate_device_extension_properties(physical) };
    all.unwrap_or_default().iter().any(|extension| extension.extension_name_as_c_str() == Ok(name))
}

/// The queues to take, and how many bits the clock of the first has.
///
/// Every lane runs every command, so that only families that compute are of use: one with copies
/// alone could not run the kernels that fills and strided copies are made of.
fn queues(
    instance: &Instance,
    physical: vk::PhysicalDevice,
) -> Result<(Vec<(u32, u32)>, u32), String> {
    // SAFETY: the physical device belongs to the instance, which is alive.
    let families = unsafe { instance.raw.get_physical_device_queue_family_properties(physical) };
    let mut found = families
        .iter()
        .zip(0u32..)
        .filter(|(family, _)| family.queue_flags.contains(vk::QueueFlags::COMPUTE))
        .filter(|(family, _)| family.queue_count > 0);
    let (first, index) = found.next().ok_or_else(|| "has no compute queue".to_owned())?;
    let mut queues = vec![(index, 0)];
    match found.next() {
        // A family beside the first often runs at the same time as it.
        Some((_, other)) => queues.push((other, 0)),
        None if first.queue_count > 1 => queues.push((index, 1)),
        None => {}
    }
    Ok((queues, first.timestamp_valid_bits))
}

/// Which types of memory to use.
struct Memory {
    device: u32,
    host_visible: bool,
    staging: u32,
    bytes: u64,
}

impl Memory {
    fn choose(instance: &Instance, physical: vk::PhysicalDevice) -> Result<Self, String> {
        // SAFETY: the physical device belongs to the instance, which is alive.
        let memory = unsafe { instance.raw.get_physical_device_memory_properties(physical) };
        let types = &memory.memory_types[..memory.memory_type_count as usize];
        let heap_bytes = |of: &vk::MemoryType| memory.memory_heaps[of.heap_index as usize].size;
        let largest = |flags: vk::MemoryPropertyFlags| {
            let having =
                types.iter().zip(0u32..).filter(|(of, _)| of.property_flags.contains(flags));
            // Of equal ones the first: drivers list the faster first.
            having
                .min_by_key(|(of, _)| std::cmp::Reverse(heap_bytes(of)))
                .map(|(of, at)| (at, heap_bytes(of)))
        };
        let local = vk::MemoryPropertyFlags::DEVICE_LOCAL;
        let coherent =
            vk::MemoryPropertyFlags::HOST_VISIBLE | vk::MemoryPropertyFlags::HOST_COHERENT;
        let cached = coherent | vk::MemoryPropertyFlags::HOST_CACHED;
        let (staging, _) = largest(cached)
            .or_else(|| largest(coherent))
            .ok_or_else(|| "has no memory that the host reaches".to_owned())?;
        let (device, bytes) = largest(local)
            .or_else(|| largest(vk::MemoryPropertyFlags::empty()))
            .ok_or_else(|| "has no memory".to_owned())?;
        // Without the host's cache, reading back would take an access to the bus for every word.
        Ok(match largest(local | cached) {
            Some((at, size)) if size >= bytes => {
                Self { device: at, host_visible: true, staging: at, bytes: size }
            }
            _ => Self { device, host_visible: false, staging, bytes },
        })
    }
}
