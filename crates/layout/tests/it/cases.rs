//! The layout pairs shipped with reference figures: never more bytes, rounds at the bound.

use std::path::Path;

use serde_json::Value;
use syncline_layout::{Layout, Schedule};

use crate::arrays::{checked_plan, filled, moved_in_batches};

const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/cases");

/// Files in that folder.
const COUNT: usize = 23;

struct Case {
    name: String,
    from: Layout,
    to: Layout,
    reference: Value,
}

fn cases() -> Vec<Case> {
    let files = Path::new(CASES).read_dir().unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        files.filter(|path| path.extension() == Some("json".as_ref())).collect();
    files.sort();
    assert_eq!(files.len(), COUNT);
    let case = |path: &std::path::PathBuf| {
        let case: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        Case {
            name: case["case"].as_str().unwrap().to_owned(),
            from: Layout::from_json(&case["from"].to_string()).unwrap(),
            to: Layout::from_json(&case["to"].to_string()).unwrap(),
            reference: case["reference"].clone(),
        }
    };
    files.iter().map(case).collect()
}

#[test]
fn every_case_moves_no_more_than_the_reference() {
    for case in cases() {
        let plan = checked_plan(&case.from, &case.to);
        let reference = |field: &str| case.reference[field].as_u64().unwrap();
        assert_eq!(plan.bytes_total(), reference("bytes_total"), "{}", case.name);
        assert!(plan.bytes_moved() <= reference("bytes_moved"), "{}", case.name);
        assert!(plan.ops().len() as u64 <= reference("ops"), "{}: {}", case.name, plan.ops().len());
    }
}

#[test]
fn every_case_is_scheduled_at_the_bound() {
    for case in cases() {
        for slot_bytes in [64, 4096, 1 << 20] {
            let plan = checked_plan(&case.from, &case.to);
            let schedule = Schedule::new(&plan, slot_bytes).unwrap();
            crate::schedules::check(&plan, &schedule);
            let in_order = crate::schedules::segments_end_to_end(&plan, slot_bytes);
            assert!(crate::schedules::segments(&schedule) <= in_order, "{}", case.name);
            let before = filled(&case.from, str::to_owned);
            let after = moved_in_batches(&plan, &schedule, &before, &case.to);
            assert_eq!(after, filled(&case.to, str::to_owned), "{}", case.name);
        }
    }
}

#[test]
fn every_case_round_trips_through_json() {
    for case in cases() {
        let again = Layout::from_json(&case.from.to_json()).unwrap();
        assert_eq!(again.fingerprint(), case.from.fingerprint(), "{}", case.name);
    }
}
