//! What the tests share: a device if there is one.

use std::sync::Arc;

use syncline_device::Device;
use syncline_device::registry::BackendProbe;
use syncline_testing::need;
use syncline_vulkan::{Probe, VulkanOptions};

/// Returns `vulkan:0` opened with `options`, or `None` where the test is to be skipped.
pub fn open(options: VulkanOptions) -> Option<Arc<dyn Device>> {
    open_from(&Probe::with_options(options))
}

/// The first device of `probe`.
pub fn open_from(probe: &Probe) -> Option<Arc<dyn Device>> {
    need("a Vulkan driver (mesa-vulkan-drivers)", probe.probe())?;
    Some(probe.open(0).expect("a device that was listed can be opened"))
}

/// A device with the usual options.
pub fn device() -> Option<Arc<dyn Device>> {
    open(VulkanOptions::default())
}
