use std::sync::Arc;

use syncline_device::Device;
use syncline_opencl::conformance::suite;

use crate::{devices, options, with_pocl_devices};

/// What a device with compiled kernels skips: cases for closures, and for kernels that fail when
/// they are told to.
const COMPILED: [&str; 6] = [
    "memory/huge_sizes",
    "dispatch/a_kernel_without_arguments",
    "dispatch/overlapping_arguments_are_told_apart",
    "dispatch/inputs_cannot_be_written",
    "failure/a_kernel_that_fails",
    "failure/a_kernel_that_panics",
];

/// What a device whose memory the host cannot reach skips in addition.
const UNREACHABLE: [&str; 3] = [
    "memory/memory_is_aligned",
    "memory/work_on_a_mapped_buffer_is_refused",
    "memory/a_map_for_reading_lets_work_read",
];

fn passes(device: &Arc<dyn Device>) {
    let report = suite().run(device);
    assert!(report.is_success(), "{report}");
    let visible = device.info().capabilities.host_visible;
    let expected =
        |name: &str| COMPILED.contains(&name) || (!visible && UNREACHABLE.contains(&name));
    let skipped: Vec<_> = report.skipped().map(|(name, _)| name).collect();
    assert!(skipped.iter().all(|name| expected(name)), "{report}");
    assert!(report.passed() >= 125, "{report}");
    println!("{report}");
}

#[test]
fn a_whole_device_passes_every_case() {
    let Some(devices) = devices(options(), 1) else { return };
    passes(&devices[0]);
}

#[test]
fn a_device_whose_memory_the_host_cannot_reach_passes_every_case() {
    let Some(devices) = devices(options().with_host_visible(false), 1) else { return };
    assert!(!devices[0].info().capabilities.host_visible);
    passes(&devices[0]);
}

#[test]
fn parts_of_a_device_pass_every_case() {
    let Some(devices) = devices(options().with_parts(2), 2) else { return };
    devices.iter().for_each(passes);
}

#[test]
fn devices_of_other_kinds_pass_every_case() {
    if !with_pocl_devices("pthread basic", "conformance::devices_of_other_kinds_pass_every_case") {
        return;
    }
    let Some(devices) = devices(options(), 2) else { return };
    devices.iter().for_each(passes);
}
