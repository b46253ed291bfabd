use syncline_device::conformance::{Report, Suite};
use syncline_vulkan::VulkanOptions;

use crate::support;

fn run(options: VulkanOptions) -> Option<Report> {
    let device = support::open(options)?;
    let suite = support::suite_kernels().into_iter().fold(Suite::new(), Suite::kernel);
    let suite = match std::env::var("SYNCLINE_CASE") {
        Ok(part) => suite.only(&part),
        Err(_) => suite,
    };
    Some(suite.run(&device))
}

#[test]
fn vulkan_passes_every_case() {
    let Some(report) = run(VulkanOptions::default()) else { return };
    println!("{report}");
    let mut slowest: Vec<_> = report.cases.iter().collect();
    slowest.sort_by_key(|case| std::cmp::Reverse(case.took));
    slowest.iter().take(8).for_each(|case| println!("{:>10.1?}  {}", case.took, case.name));
    assert!(report.is_success(), "{report}");
}
