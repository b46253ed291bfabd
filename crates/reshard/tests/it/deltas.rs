//! Refits of what has changed, beside full refits of the same values.

use syncline_layout::{Layout, PlanOptions};
use syncline_reshard::{CopyService, Moved, ServiceOptions, Target, Targets};
use syncline_tensor::Dtype;
use syncline_testing::{Rng, for_seeds};
use syncline_transport::local;

use crate::groups::{PATIENCE, on_threads, world};
use crate::models::{bind, model, shards};
use crate::{meshes, parts};

/// Changes about `per_myriad` of 10,000 elements. Which, and how, follows from their first values,
/// so that all PEs that hold an element agree.
fn change(
    layout: &Layout,
    first: &[(String, Vec<u8>)],
    now: &mut [(String, Vec<u8>)],
    (version, per_myriad): (u64, u64),
) {
    for ((name, first), (_, now)) in first.iter().zip(now) {
        let element_bytes = layout.tensor(name).unwrap().dtype().bytes() as usize;
        let elements = first.chunks_exact(element_bytes).zip(now.chunks_exact_mut(element_bytes));
        for (first, now) in elements {
            let seed =
                first.iter().fold(version, |seed, byte| seed.wrapping_mul(257) ^ u64::from(*byte));
            let mut rng = Rng::new(seed);
            if rng.next_u64() % 10_000 < per_myriad {
                now[rng.below(element_bytes)] ^= 1 << rng.below(8);
            }
        }
    }
}

/// Refits by changes and in full, into destinations and into memory, and compares all with what
/// is expected; returns what the former have moved.
fn versions(
    service: &mut CopyService,
    (from, to): (&Layout, &Layout),
    changes: &[u64],
    forgets: impl Fn(usize, usize) -> bool,
) -> Vec<Moved> {
    let rank = service.rank();
    let refit = service.prepare(from, to, &PlanOptions::default()).unwrap();
    let (changed, full) =
        (service.destination(&refit).unwrap(), service.destination(&refit).unwrap());
    let (first_source, first_target) = (shards(from, rank), shards(to, rank));
    let (mut source, mut target) = (first_source.clone(), first_target.clone());
    let mut moved = Vec::new();
    for (number, per_myriad) in changes.iter().enumerate() {
        let step = (number as u64, *per_myriad);
        change(from, &first_source, &mut source, step);
        change(to, &first_target, &mut target, step);
        if forgets(rank, number) {
            service.forget_changes();
        }
        let sources = bind(&refit, &source);
        // Memory in which others have written since.
        let mut memory: Vec<Vec<u8>> =
            target.iter().map(|(_, bytes)| vec![number as u8; bytes.len()]).collect();
        if number % 2 == 0 {
            let goal = Target::Destination(&changed);
            moved.push(service.refit_changes(&refit, &sources, goal).unwrap());
            let reading = changed.read().unwrap();
            for ((name, _), memory) in target.iter().zip(&mut memory) {
                memory.copy_from_slice(reading.tensor(name).unwrap_or(&[]));
            }
        } else {
            let mut targets = Targets::new(&refit);
            for ((name, _), memory) in target.iter().zip(&mut memory) {
                targets.bind(&refit, name, memory).unwrap();
            }
            moved.push(
                service.refit_changes(&refit, &sources, Target::Memory(&mut targets)).unwrap(),
            );
        }
        service.refit(&refit, &sources, Target::Destination(&full)).unwrap();
        let reading = full.read().unwrap();
        for ((name, expected), memory) in target.iter().zip(&memory) {
            assert!(memory == expected, "`{name}` on PE {rank}, version {number}, by changes");
            let whole = reading.tensor(name).unwrap_or(&[]);
            assert!(whole == &expected[..], "`{name}` on PE {rank}, version {number}, in full");
        }
    }
    moved
}

#[test]
fn changes_between_random_layouts_equal_full_refits() {
    for_seeds("changes_between_random_layouts_equal_full_refits", 40, |rng| {
        let (from, to) = meshes::any_pair(rng);
        let size = world(&from, &to);
        let changes: Vec<u64> =
            (0..rng.below(3) + 3).map(|_| *rng.pick(&[0, 2, 300, 10_000])).collect();
        let forgetful = (rng.below(size), rng.below(2 * changes.len()));
        let slots =
            local::Options { depth: rng.below(3) + 1, slot_bytes: *rng.pick(&[64, 192, 4_096]) };
        on_threads(size, &slots, parts::any_options(rng), |service| {
            versions(service, (&from, &to), &changes, |rank, number| forgetful == (rank, number));
        });
    });
}

#[test]
fn few_changes_take_few_bytes_and_many_no_more_than_all() {
    let (from, to) = (
        model(2, 256, Dtype::BF16, r#"[["tp", 4]]"#),
        model(2, 256, Dtype::BF16, r#"[["tp", 2]]"#),
    );
    for checksums in [false, true] {
        let options = ServiceOptions { timeout: PATIENCE, checksums, ..Default::default() };
        let slots = local::Options { depth: 2, slot_bytes: 1 << 16 };
        let changes = [0, 0, 2, 300, 10_000];
        let moved = on_threads(4, &slots, options, |service| {
            versions(service, (&from, &to), &changes, |_, _| false)
        });
        let sum = |at: usize, of: fn(&Moved) -> u64| -> u64 {
            moved.iter().map(|moved| of(&moved[at])).sum()
        };
        let all = sum(0, |moved| moved.sent_bytes);
        assert_eq!(sum(0, |moved| moved.changed_bytes), sum(0, |moved| moved.compared_bytes));
        // Nothing but sums.
        assert_eq!(sum(1, |moved| moved.changed_bytes), 0);
        assert!(sum(1, |moved| moved.sent_bytes) < all / 500);
        let (few, some) = (sum(2, |moved| moved.sent_bytes), sum(3, |moved| moved.sent_bytes));
        assert!(few < all / 500, "{few} of {all}");
        assert!(few < some && some < all / 8, "{some} of {all}");
        let compared = sum(3, |moved| moved.compared_bytes);
        let changed = sum(3, |moved| moved.changed_bytes) as f64 / compared as f64;
        assert!((0.02..0.04).contains(&changed), "{changed}");
        assert!(sum(4, |moved| moved.sent_bytes) <= all);
    }
}

/// The one that forgets gets and sends everything; between the others changes will do.
#[test]
fn a_pe_that_missed_a_version_gets_all_of_the_next() {
    let (from, to) = (
        model(2, 96, Dtype::F32, r#"[["tp", 3]]"#),
        model(2, 96, Dtype::F32, r#"[["tp", 1], ["dp", 3]]"#),
    );
    let options = ServiceOptions { timeout: PATIENCE, ..Default::default() };
    let slots = local::Options { depth: 2, slot_bytes: 1 << 14 };
    let moved = on_threads(3, &slots, options, |service| {
        versions(service, (&from, &to), &[2; 4], |rank, number| (rank, number) == (2, 2))
    });
    for (rank, moved) in moved.iter().enumerate() {
        let received: Vec<u64> = moved.iter().map(|moved| moved.received_bytes).collect();
        let expected = if rank == 2 { received[0] } else { received[0] / 2 };
        let almost = expected..expected + received[0] / 10;
        assert!(almost.contains(&received[2]), "PE {rank}: {received:?}");
        assert!(received[1].max(received[3]) < received[0] / 10, "PE {rank}: {received:?}");
    }
}
