use syncline_backend::conformance::Report;
use syncline_device::registry::BackendProbe;
use syncline_testing::need;
use syncline_vulkan::conformance::suite;
use syncline_vulkan::{Probe, VulkanOptions};

use crate::support;

fn run(probe: &Probe) -> Option<Report> {
    let device = support::open_from(probe)?;
    let report = suite().run(&device);
    assert!(report.is_success(), "{report}");
    Some(report)
}

/// What needs closures as kernels, or a thorough run.
const SKIPPED: [&str; 6] = [
    "memory/huge_sizes",
    "dispatch/a_kernel_without_arguments",
    "dispatch/overlapping_arguments_are_told_apart",
    "dispatch/inputs_cannot_be_written",
    "failure/a_kernel_that_fails",
    "failure/a_kernel_that_panics",
];

#[test]
fn vulkan_passes_every_case() {
    let Some(report) = run(&Probe::new()) else { return };
    println!("{report}");
    // Without memory that the host reaches, maps are skipped too.
    let skipped: Vec<_> = report.skipped().filter(|(_, why)| !why.contains("reaches")).collect();
    assert!(skipped.iter().all(|(name, _)| SKIPPED.contains(name)), "{report}");
    assert!(report.passed() >= 100, "{report}");
}

#[test]
fn memory_that_the_host_does_not_reach_passes_too() {
    let probe = Probe::with_options(VulkanOptions::default().with_staged(true));
    let Some(report) = run(&probe) else { return };
    assert!(report.skipped().any(|(_, why)| why.contains("reaches")), "{report}");
}

#[test]
fn the_validation_layers_have_nothing_to_say() {
    for staged in [false, true] {
        let options = VulkanOptions::default().with_staged(staged);
        let probe = Probe::with_options(options).validated();
        if need("Vulkan with its validation layers", probe.probe()).is_none() {
            return;
        }
        let Some(_) = run(&probe) else { return };
        let messages = probe.messages().expect("layers were asked for").all();
        assert!(messages.is_empty(), "{} messages:\n{}", messages.len(), messages.join("\n"));
    }
}
