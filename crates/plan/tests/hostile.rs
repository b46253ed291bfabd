//! Plan files that were made to do harm: each is refused or loaded within a bound on time and
//! memory.
//!
//! A checksum keeps damage out, not malice, so that every file here has a right one.

use std::time::{Duration, Instant};

use syncline_plan::{CheckError, ExecutionPlan, StoreError};
use syncline_testing::{CountingAllocator, Rng, for_seeds};

#[path = "it/program.rs"]
#[allow(dead_code)]
mod program;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

/// Far more than reading takes, far less than what hostile files asked for: minutes and terabytes.
const TIME_MAX: Duration = Duration::from_secs(20);
const BYTES_MAX: u64 = 512 << 20;

const HEADER: &[u8] = b"SLPLAN\r\n\x03\0\0\0";

/// Reads `tables` behind a right header and checksum, within the bounds.
fn read(tables: &[u8]) -> Result<ExecutionPlan, StoreError> {
    let mut bytes = HEADER.to_vec();
    bytes.extend_from_slice(tables);
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    let began = Instant::now();
    let (result, peak) = ALLOCATOR.bytes_peak_of(|| {
        let plan = ExecutionPlan::from_bytes(&bytes);
        if let Ok(plan) = &plan {
            use_everything(plan);
        }
        plan
    });
    let (took, length) = (began.elapsed(), bytes.len());
    assert!(took < TIME_MAX, "{length} bytes took {took:?}: {:?}", result.err());
    assert!(peak < BYTES_MAX, "{length} bytes took {peak} bytes: {:?}", result.err());
    result
}

/// As [`read`], with the fingerprint made right where it is all that is wrong: an attacker who
/// forges a file can compute it.
fn read_forged(tables: &[u8]) -> Result<ExecutionPlan, StoreError> {
    let Err(StoreError::OtherGraph { found, expected }) = read(tables) else { return read(tables) };
    let [found, expected] = [found, expected].map(|number| {
        let mut encoded = Tables::default();
        encoded.number(number);
        encoded.0
    });
    let places = tables.windows(found.len()).enumerate().filter(|(_, bytes)| *bytes == found);
    for (at, _) in places {
        let forged = [&tables[..at], &expected[..], &tables[at + found.len()..]].concat();
        if let Ok(plan) = read(&forged) {
            return Ok(plan);
        }
    }
    panic!("the fingerprint is in the file");
}

/// All steps with a plan before it is run.
fn use_everything(plan: &ExecutionPlan) {
    plan.check().unwrap();
    let _ = plan.prove();
    let _ = (plan.to_text(), plan.to_json(), plan.to_dot(), plan.makespan_ns());
    let deps = plan.op_deps();
    plan.run_waits(&deps);
}

/// Numbers and strings as the format has them.
#[derive(Default)]
struct Tables(Vec<u8>);

impl Tables {
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn numbers(&mut self, numbers: impl IntoIterator<Item = u64>) {
        numbers.into_iter().for_each(|number| self.number(number));
    }

    fn string(&mut self, string: &str) {
        self.number(string.len() as u64);
        self.0.extend_from_slice(string.as_bytes());
    }
}

/// A plan of one task on one device and one temporary buffer, which it writes at `places`: the
/// offset, and each dimension's size and stride.
struct OneTask<'a> {
    bytes: u64,
    arena: u64,
    places: &'a [(u64, &'a [(u64, u64)])],
}

impl OneTask<'_> {
    fn tables(&self) -> Vec<u8> {
        let count = self.places.len() as u64;
        let mut t = Tables::default();
        t.number(1);
        t.string("cpu");
        // One lane, no copy lane, memory, speed, runs tasks; no links, no routes; pieces, cost of a
        // wait.
        t.numbers([1, 0, u64::MAX, 1000, 1, 0, 0, 1, 1]);
        t.number(1);
        t.string("t");
        // The buffer: name, bytes, no home, temporary.
        t.numbers([1, 0, self.bytes, 0, 1, count]);
        for (offset, dims) in self.places {
            // Its buffer, bytes as elements, offset, shape, strides (positive, hence doubled).
            t.numbers([0, 0, *offset, dims.len() as u64]);
            t.numbers(dims.iter().map(|dim| dim.0));
            t.numbers(dims.iter().map(|dim| dim.1 * 2));
        }
        // Arguments: each place as `output`.
        t.number(count);
        (0..count).for_each(|place| t.numbers([place, 1]));
        // No edges, deps, choices. The task: name, kernel, ends of its tables, any device, cost,
        // priority.
        t.numbers([0, 0, 0, 1, 0, 0, count, 0, 0, 0, 1, 0, 0]);
        // Fingerprint (wrong, easily found, checked last), the task's device, the arguments'
        // memories.
        t.numbers([u64::MAX, 1, 0, count]);
        t.numbers((0..count).map(|_| 0));
        // A lane of one op: the task, which waits for nothing; no waits, no copies.
        t.numbers([1, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 0]);
        // The memory: buffer, device, bytes, place in the arena; the arena.
        t.numbers([1, 0, 0, self.bytes, 1, 1, self.arena]);
        t.0
    }
}

fn too_costly(error: &StoreError) -> bool {
    matches!(error, StoreError::Malformed(CheckError::TooCostly { .. }))
}

fn malformed(error: &StoreError) -> bool {
    matches!(error, StoreError::Malformed(CheckError::Malformed { .. }))
}

/// All but the fingerprint is as it should be: the files below fail for what they say, not for a
/// slip.
#[test]
fn a_file_made_by_hand_is_a_plan_but_for_its_fingerprint() {
    let one = OneTask { bytes: 64, arena: 64, places: &[(0, &[(64, 1)])] };
    assert!(matches!(read(&one.tables()), Err(StoreError::OtherGraph { .. })));
    assert_eq!(read_forged(&one.tables()).unwrap().ops().len(), 1);
}

#[test]
fn a_view_of_very_many_runs_is_refused() {
    for runs in [1 << 24, 1 << 40, (1 << 61) - 1] {
        let bytes = 2 * runs + 1;
        let places: &[(u64, &[(u64, u64)])] = &[(0, &[(runs, 2)])];
        let error = read(&OneTask { bytes, arena: bytes, places }.tables()).unwrap_err();
        assert!(too_costly(&error), "{runs}: {error}");
    }
    // Several dimensions whose product is large.
    let cube: &[(u64, u64)] = &[(1 << 14, 1 << 40), (1 << 14, 1 << 20), (1 << 14, 2)];
    let one = OneTask { bytes: 1 << 56, arena: 1 << 56, places: &[(0, cube)] };
    assert!(too_costly(&read(&one.tables()).unwrap_err()));
}

#[test]
fn very_many_views_that_overlap_are_refused() {
    // Strides without a common divisor, so that each pair has to be solved.
    let dims: Vec<[(u64, u64); 2]> =
        (0..60_000).map(|at| [(3 + at % 5, 1_000_003 + 2 * at), (3, 101 + at % 1_009)]).collect();
    let places: Vec<(u64, &[(u64, u64)])> = dims.iter().map(|dims| (0, &dims[..])).collect();
    let one = OneTask { bytes: 1 << 32, arena: 1 << 32, places: &places };
    let error = read(&one.tables()).unwrap_err();
    assert!(too_costly(&error), "{error}");
}

#[test]
fn sizes_that_cannot_be_addressed_are_refused() {
    for (bytes, arena) in [(u64::MAX, u64::MAX), (64, u64::MAX), (1 << 63, 1 << 63), (65, 64)] {
        let one = OneTask { bytes, arena, places: &[(0, &[(64, 1)])] };
        let error = read(&one.tables()).unwrap_err();
        assert!(malformed(&error), "{bytes}, {arena}: {error}");
    }
    // An empty view touches nothing wherever it lies.
    let nowhere: &[(u64, &[(u64, u64)])] = &[(u64::MAX, &[(0, 1)])];
    let one = OneTask { bytes: 64, arena: 64, places: nowhere };
    assert_eq!(read_forged(&one.tables()).unwrap().ops().len(), 1);
}

/// Each count of the format, larger than the file.
#[test]
fn counts_beyond_the_file_are_refused() {
    let good = OneTask { bytes: 64, arena: 64, places: &[(0, &[(64, 1)])] }.tables();
    for at in 0..good.len() {
        for count in [1 << 20, 1 << 31, 1 << 32, 1 << 40, u64::MAX] {
            let mut large = Tables(good[..at].to_vec());
            large.number(count);
            large.0.extend_from_slice(&good[at + 1..]);
            let _ = read_forged(&large.0);
        }
    }
}

#[test]
fn every_cut_of_a_file_is_refused() {
    let good = OneTask { bytes: 64, arena: 64, places: &[(0, &[(64, 1)])] }.tables();
    (0..good.len()).for_each(|end| drop(read(&good[..end]).unwrap_err()));
}

/// Names that are the same, and very many that are not.
#[test]
fn names_are_told_apart_in_little_time() {
    let file = |names: &mut dyn Iterator<Item = String>| {
        let mut t = Tables::default();
        t.number(1);
        t.string("cpu");
        t.numbers([1, 0, u64::MAX, 1000, 1, 0, 0, 1, 1]);
        let names: Vec<String> = names.collect();
        t.number(names.len() as u64);
        names.iter().for_each(|name| t.string(name));
        t.0
    };
    let twice = read(&file(&mut ["..", "a", ".."].map(str::to_owned).into_iter())).unwrap_err();
    assert!(matches!(twice, StoreError::Invalid { what: "name", .. }), "{twice}");
    let many = read(&file(&mut (0..200_000).map(|at| format!("{at}")))).unwrap_err();
    assert!(matches!(many, StoreError::Truncated { .. }), "{many}");
}

#[test]
fn machines_of_very_many_routes_are_refused_or_read_at_once() {
    let mut t = Tables::default();
    t.number(64);
    for device in 0..64 {
        t.string(&format!("d{device}"));
        t.numbers([1, 0, 0, 1000, 1]);
    }
    let head = t.0;
    for count in [3_800u64, 200_000] {
        let mut t = Tables(head.clone());
        t.number(count);
        (0..count).for_each(|at| t.numbers([at % 64, at / 64 % 64, 1, 1]));
        t.number(count);
        // From the lower half to the upper one, through the first device.
        (0..count).for_each(|at| t.numbers([1 + at % 31, 32 + at / 31 % 32, 2]));
        t.numbers([1, 1]);
        let error = read(&t.0).unwrap_err();
        let many = matches!(error, StoreError::Machine(_));
        assert_eq!(many, count > 4_096, "{count}: {error}");
    }
}

#[test]
fn mutations_of_plans_cost_little() {
    for_seeds("mutations_of_plans_cost_little", 300, |rng| {
        let (_, _, plan) = program::any_plan(rng, 12);
        let good = plan.to_bytes();
        let good = &good[HEADER.len()..good.len() - 4];
        for _ in 0..40 {
            let mut tables = good.to_vec();
            for _ in 0..rng.range(1..4) {
                mutate(rng, &mut tables);
            }
            let _ = read_forged(&tables);
        }
    });
}

/// Changes a byte, or puts a number, any number or a large one, in its place.
fn mutate(rng: &mut Rng, tables: &mut Vec<u8>) {
    let at = rng.below(tables.len());
    let mut with = Tables::default();
    match rng.below(4) {
        0 => with.0.push(rng.next_u64() as u8),
        1 => with.number(1 << rng.below(64)),
        2 => with.number(rng.next_u64() >> rng.below(64)),
        _ => with.numbers((0..rng.range(0..6)).map(|_| 1)),
    }
    tables.splice(at..=at, with.0);
}

#[test]
fn random_bytes_cost_little() {
    for_seeds("random_bytes_cost_little", 2_000, |rng| {
        let length = rng.range(0..400);
        // Few ones among many small numbers come further than bytes of any value.
        let small = rng.one_in(2);
        let byte = |rng: &mut Rng| rng.next_u64() as u8 & if small { 3 } else { 0xff };
        let tables: Vec<u8> = (0..length).map(|_| byte(rng)).collect();
        read(&tables).unwrap_err();
    });
}
