//! Vulkan devices, loaded at run time.

mod bridge;
mod candidate;
mod device;
mod encode;
mod gpu;
mod host;
mod instance;
mod kit;
mod lane;
mod memory;
mod pipeline;
mod probe;
mod queue;
mod record;
mod semaphore;
mod step;
mod wgsl;

pub use device::VulkanOptions;
pub use instance::Messages;
pub use probe::Probe;
