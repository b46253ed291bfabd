//! Any tables given to the reader of plans, with a header and a checksum that are right.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use syncline_plan::{CompileOptions, ExecutionPlan, Machine, TaskGraph};

/// The magic and the version that this library writes.
static HEADER: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let plan =
        ExecutionPlan::compile(&TaskGraph::new(), &Machine::cpu(1), &CompileOptions::default());
    plan.expect("an empty plan").to_bytes()[..12].to_vec()
});

fuzz_target!(|tables: &[u8]| {
    let mut bytes = [&HEADER, tables].concat();
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    if let Ok(plan) = ExecutionPlan::from_bytes(&bytes) {
        plan.check().expect("what loads has been checked");
        let _ = (plan.to_text(), plan.to_json(), plan.to_dot());
        let again = plan.to_bytes();
        ExecutionPlan::from_bytes(&again).expect("a read form can be written");
    }
});
