//! Plans in files.

use syncline_plan::{CompileOptions, ExecutionPlan, Machine, StoreError};
use syncline_testing::for_seeds;

use crate::program::{any_plan, stencil};

#[test]
fn a_stored_plan_loads_as_it_was() {
    for_seeds("a_stored_plan_loads_as_it_was", 100, |rng| {
        let (graph, machine, plan) = any_plan(rng, 30);
        let bytes = plan.to_bytes();
        let loaded = ExecutionPlan::from_bytes_for(&bytes, &graph, &machine).unwrap();
        assert_eq!(loaded.to_text(), plan.to_text());
        assert_eq!(loaded.to_bytes(), bytes);
        loaded.check().unwrap();
    });
}

#[test]
fn damage_anywhere_is_an_error() {
    for_seeds("damage_anywhere_is_an_error", 20, |rng| {
        let (_, _, plan) = any_plan(rng, 20);
        let good = plan.to_bytes();
        for _ in 0..100 {
            let mut bytes = good.clone();
            bytes[rng.below(good.len())] ^= 1 << rng.below(8);
            assert!(ExecutionPlan::from_bytes(&bytes).is_err());
            assert!(ExecutionPlan::from_bytes(&good[..rng.below(good.len())]).is_err());
        }
    });
}

/// A checksum protects from damage, not from malice: whatever else the bytes say, loading must not
/// panic, and what loads must hold together.
#[test]
fn forged_bytes_never_panic() {
    for_seeds("forged_bytes_never_panic", 60, |rng| {
        let (_, _, plan) = any_plan(rng, 12);
        let good = plan.to_bytes();
        for _ in 0..100 {
            let mut bytes = good.clone();
            bytes.truncate(good.len() - 4);
            for _ in 0..rng.range(1..4) {
                let at = 12 + rng.below(bytes.len() - 12);
                bytes[at] = rng.next_u64() as u8;
            }
            bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
            if let Ok(plan) = ExecutionPlan::from_bytes(&bytes) {
                let _ = plan.check();
                let _ = (plan.to_text(), plan.to_json(), plan.to_dot());
            }
        }
    });
}

#[test]
fn a_plan_of_another_graph_or_machine_is_refused() {
    let machine = Machine::cpu(2);
    let plan =
        ExecutionPlan::compile(&stencil(4, 3), &machine, &CompileOptions::default()).unwrap();
    let bytes = plan.to_bytes();
    let other = ExecutionPlan::from_bytes_for(&bytes, &stencil(4, 4), &machine);
    assert!(matches!(other, Err(StoreError::OtherGraph { .. })));
    let other = ExecutionPlan::from_bytes_for(&bytes, &stencil(4, 3), &Machine::cpu(3));
    assert_eq!(other.unwrap_err(), StoreError::OtherMachine);
    assert_eq!(ExecutionPlan::from_bytes(b"nonsense").unwrap_err(), StoreError::NotAPlan);
    let mut newer = bytes.clone();
    newer[8] = 9;
    let error = ExecutionPlan::from_bytes(&newer).unwrap_err();
    assert_eq!(error, StoreError::OtherVersion { found: 9, supported: 3 });
}
