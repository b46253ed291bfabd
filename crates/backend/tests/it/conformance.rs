use syncline_backend::conformance::Suite;
use syncline_device::cpu::{CpuDevice, CpuOptions};

#[test]
fn the_cpu_passes_every_case() {
    let device =
        CpuDevice::open(CpuOptions::new(0).compute_lanes(2).memory_bytes(1 << 30)).unwrap();
    let report = Suite::new().run(&device);
    assert!(report.is_success(), "{report}");
    let skipped: Vec<_> = report.skipped().map(|(name, _)| name).collect();
    assert_eq!(skipped, ["memory/huge_sizes"], "{report}");
    assert!(report.passed() >= 60, "{report}");
}

#[test]
fn names_are_unique() {
    let mut names = Suite::names();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
}
