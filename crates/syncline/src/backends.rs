//! The one place where the backends of this build are listed.

use syncline_device::DeviceRegistry;

/// A registry of every backend that was built in, with one CPU device.
///
/// Nothing is loaded before it is asked. A backend whose driver is missing says so, and the others
/// work all the same:
///
/// ```
/// for found in syncline::registry().probe() {
///     match found.devices {
///         Ok(devices) => devices.iter().for_each(|info| println!("{}: {}", info.spec, info.name)),
///         Err(why) => println!("{}: {why}", found.backend),
///     }
/// }
/// ```
pub fn registry() -> DeviceRegistry {
    let mut registry = DeviceRegistry::new();
    register_backends(&mut registry);
    registry
}

/// Adds the backends of this build to a registry that was made with CPU devices of one's own.
pub fn register_backends(registry: &mut DeviceRegistry) {
    #[cfg(feature = "vulkan")]
    registry.register(Box::new(syncline_vulkan::Probe::new()));
    #[cfg(feature = "opencl")]
    registry.register(Box::new(syncline_opencl::Probe::new()));
    #[cfg(feature = "cuda")]
    registry.register(Box::new(syncline_cuda::Probe::new()));
    let _ = registry;
}
