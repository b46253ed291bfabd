//! What the tests share: a device if there is one.

use std::sync::Arc;

use syncline_device::Device;
use syncline_device::registry::BackendProbe;
use syncline_vulkan::{Probe, VulkanOptions};

/// `vulkan:0` opened with `options`. `None`, with a word, where there is none and nobody insists.
pub fn open(options: VulkanOptions) -> Option<Arc<dyn Device>> {
    open_from(&Probe::with_options(options))
}

/// The first device of `probe`.
pub fn open_from(probe: &Probe) -> Option<Arc<dyn Device>> {
    match probe.probe() {
        Ok(_) => Some(probe.open(0).expect("a device that was listed can be opened")),
        Err(reason) if std::env::var_os("CI").is_some() => {
            panic!("these tests need a Vulkan driver (mesa-vulkan-drivers): {reason}")
        }
        Err(reason) => {
            eprintln!("skipped: {reason}");
            None
        }
    }
}

/// A device with the usual options.
pub fn device() -> Option<Arc<dyn Device>> {
    open(VulkanOptions::default())
}
