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

/// Runs `check` on a device with the validation layers in between, which must have nothing to say.
pub fn validated(check: impl Fn(&Arc<dyn Device>)) {
    let probe = Probe::new().validated();
    let Some(device) = open_from(&probe) else { return };
    check(&device);
    let messages = probe.messages().expect("layers were asked for").all();
    assert!(messages.is_empty(), "{} messages:\n{}", messages.len(), messages.join("\n"));
}
