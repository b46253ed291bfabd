//! While a plan is bound, nothing else uses it, and what it is bound to lives.
use syncline_device::cpu::CpuDevice;
use syncline_runtime::replay::{Bindings, BoundPlan, LoadedPlan};

fn bound_twice(plan: &mut LoadedPlan, bindings: &Bindings) {
    let bound = plan.bind(bindings).unwrap();
    plan.run(bindings).unwrap();
    drop(bound);
}

fn bindings_outlived(plan: &mut LoadedPlan) -> BoundPlan<'_> {
    let device = CpuDevice::open_default().unwrap();
    let bindings = Bindings::new().bind("x", &device.buffer(64));
    plan.bind(&bindings).unwrap()
}

fn main() {}
