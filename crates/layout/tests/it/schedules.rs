//! Slots, batches and rounds.

use std::collections::{HashMap, HashSet};

use syncline_layout::{
    Dims, Layout, LayoutError, NdBox, Piece, SLOT_ALIGN, Schedule, Shard, TransferPlan,
};
use syncline_tensor::Dtype;
use syncline_testing::for_seeds;

use crate::arrays::{checked_plan, filled, moved_in_batches};
use crate::meshes::{any_pair, model};

/// Checks everything that must hold of any schedule of a whole plan.
pub fn check(plan: &TransferPlan, schedule: &Schedule) {
    let (mut sends, mut receives) = (HashSet::new(), HashSet::new());
    let mut degrees: HashMap<(bool, u32), u32> = HashMap::new();
    let mut numbers: HashMap<(u32, u32), HashSet<u32>> = HashMap::new();
    let mut packed: HashMap<u32, u64> = HashMap::new();
    for batch in schedule.batches() {
        assert!(batch.round < schedule.rounds());
        assert!(sends.insert((batch.src, batch.round)), "two sends: {batch:?}");
        assert!(receives.insert((batch.dst, batch.round)), "two receives: {batch:?}");
        assert!(numbers.entry((batch.src, batch.dst)).or_default().insert(batch.number));
        *degrees.entry((true, batch.src)).or_default() += 1;
        *degrees.entry((false, batch.dst)).or_default() += 1;
        assert!(!batch.segments.is_empty() && batch.bytes <= schedule.slot_bytes());
        let mut end = 0;
        for segment in &batch.segments {
            let op = &plan.ops()[segment.op as usize];
            assert_eq!((op.src, op.dst), (batch.src, batch.dst));
            assert!(segment.count > 0 && segment.offset >= end);
            assert!(segment.offset.is_multiple_of(SLOT_ALIGN));
            end = segment.offset + segment.count * plan.tensor(op).wire_dtype().bytes();
            *packed.entry(segment.op).or_default() += segment.count;
        }
        assert!(end <= batch.bytes && batch.bytes < end + SLOT_ALIGN);
    }
    for (at, op) in (0u32..).zip(plan.ops()) {
        let expected = if op.is_self_move() { 0 } else { plan.copy_box(op).elements() };
        assert_eq!(packed.get(&at).copied().unwrap_or(0), expected);
    }
    let bound = degrees.values().copied().max().unwrap_or(0);
    assert_eq!((schedule.rounds(), schedule.rounds_lower_bound()), (bound, bound));
}

/// One tensor of `elements` f32 on rank 0 that goes to rank 1.
fn one_tensor(elements: &[u64]) -> (Layout, Layout) {
    let layout = |rank| {
        let mut builder = Layout::builder();
        for (index, &elements) in elements.iter().enumerate() {
            let shape = Dims::from_slice(&[elements]).unwrap();
            let piece = Piece { global: NdBox::whole(shape), local: shape.zeros() };
            let shard = Shard { rank, shape, pieces: vec![piece] };
            builder.tensor(&format!("t{index}"), Dtype::F32, &[elements], vec![shard]).unwrap();
        }
        builder.finish()
    };
    (layout(0), layout(1))
}

#[test]
fn transfers_are_cut_to_slots() {
    let slot = 4096;
    for (bytes, batches) in
        [(0, 0), (4, 1), (4092, 1), (4096, 1), (4100, 2), (10_240, 3), (40_960, 10)]
    {
        let (from, to) = one_tensor(&[bytes / 4]);
        let plan = checked_plan(&from, &to);
        let schedule = Schedule::new(&plan, slot).unwrap();
        check(&plan, &schedule);
        assert_eq!(schedule.batches().len(), batches, "{bytes} bytes");
    }
}

#[test]
fn small_transfers_share_slots_and_large_ones_fill_them() {
    // Padded to 64, 2,944 and 4,160 bytes: two slots, cut within the last tensor.
    let (from, to) = one_tensor(&[1, 730, 1030]);
    let plan = checked_plan(&from, &to);
    let schedule = Schedule::new(&plan, 4096).unwrap();
    check(&plan, &schedule);
    let in_order: Vec<u32> = {
        let mut batches: Vec<_> = schedule.batches().iter().collect();
        batches.sort_by_key(|batch| batch.number);
        batches.iter().flat_map(|batch| &batch.segments).map(|segment| segment.op).collect()
    };
    assert_eq!(in_order, [0, 1, 2, 2]);
    assert_eq!(schedule.batches()[0].bytes, 4096);
}

/// Slots, wasted bytes and segments where transfers of these padded sizes are laid end to end in
/// this order.
fn end_to_end(padded: &[u64], slot_bytes: u64) -> (usize, u64, usize) {
    let (mut end, mut segments) = (0, 0);
    for bytes in padded {
        let first = end / slot_bytes;
        end += bytes;
        segments += ((end - 1) / slot_bytes - first + 1) as usize;
    }
    let slots = end.div_ceil(slot_bytes);
    (slots as usize, slots * slot_bytes - end, segments)
}

/// The least of each over all orders of `padded`.
fn least(padded: &mut Vec<u64>, fixed: usize, slot_bytes: u64) -> (usize, u64, usize) {
    if fixed == padded.len() {
        return end_to_end(padded, slot_bytes);
    }
    let mut best = (usize::MAX, u64::MAX, usize::MAX);
    for at in fixed..padded.len() {
        padded.swap(fixed, at);
        let found = least(padded, fixed + 1, slot_bytes);
        best = (best.0.min(found.0), best.1.min(found.1), best.2.min(found.2));
        padded.swap(fixed, at);
    }
    best
}

pub fn segments(schedule: &Schedule) -> usize {
    schedule.batches().iter().map(|batch| batch.segments.len()).sum()
}

#[test]
fn best_fit_needs_as_few_slots_as_any_order_and_cuts_little() {
    for_seeds("best_fit_needs_as_few_slots_as_any_order_and_cuts_little", 80, |rng| {
        let elements: Vec<u64> = (0..rng.range(1..7)).map(|_| rng.range(1..150)).collect();
        let slot_bytes = 64 * rng.range(1..12);
        let (from, to) = one_tensor(&elements);
        let plan = checked_plan(&from, &to);
        let schedule = Schedule::new(&plan, slot_bytes).unwrap();
        check(&plan, &schedule);
        let mut padded: Vec<u64> =
            elements.iter().map(|count| (count * 4).next_multiple_of(SLOT_ALIGN)).collect();
        let as_planned = end_to_end(&padded, slot_bytes).2;
        let (slots, waste, cut) = least(&mut padded, 0, slot_bytes);
        let used: u64 = schedule.batches().iter().map(|batch| batch.bytes).sum();
        assert_eq!(schedule.batches().len(), slots);
        assert_eq!(slots as u64 * slot_bytes - used, waste);
        assert!(segments(&schedule) < elements.len() + slots);
        assert!(cut <= segments(&schedule) && segments(&schedule) <= as_planned);
    });
}

/// Segments if the transfers of each pair were laid end to end in the order of the plan.
pub fn segments_end_to_end(plan: &TransferPlan, slot_bytes: u64) -> usize {
    let mut pairs: HashMap<(u32, u32), Vec<u64>> = HashMap::new();
    for op in plan.ops().iter().filter(|op| !op.is_self_move()) {
        let bytes = plan.copy_box(op).elements() * plan.tensor(op).wire_dtype().bytes();
        pairs.entry((op.src, op.dst)).or_default().push(bytes.next_multiple_of(SLOT_ALIGN));
    }
    pairs.values().map(|padded| end_to_end(padded, slot_bytes).2).sum()
}

#[test]
fn slots_must_be_aligned() {
    let (from, to) = one_tensor(&[8]);
    let plan = checked_plan(&from, &to);
    for slot_bytes in [0, 63, 65, 100] {
        for make in [Schedule::new, Schedule::with_checksums] {
            let refused = make(&plan, slot_bytes).unwrap_err();
            assert_eq!(refused, LayoutError::BadSlot { slot_bytes });
        }
    }
}

#[test]
fn with_checksums_every_slot_has_room_for_them() {
    for_seeds("with_checksums_every_slot_has_room_for_them", 40, |rng| {
        let (from, to) = any_pair(rng);
        let plan = checked_plan(&from, &to);
        let slot_bytes = 64 * rng.range(1..20);
        let schedule = Schedule::with_checksums(&plan, slot_bytes).unwrap();
        check(&plan, &schedule);
        for batch in schedule.batches() {
            // The first segment's travels beside the slot.
            let sums_bytes = 4 * (batch.segments.len() as u64 - 1);
            assert!(batch.bytes + sums_bytes <= slot_bytes, "{batch:?}");
        }
    });
}

#[test]
fn random_schedules_deliver_everything() {
    for_seeds("random_schedules_deliver_everything", 60, |rng| {
        let (from, to) = any_pair(rng);
        let plan = checked_plan(&from, &to);
        let schedule = Schedule::new(&plan, 64 * rng.range(1..20)).unwrap();
        check(&plan, &schedule);
        let before = filled(&from, str::to_owned);
        let after = moved_in_batches(&plan, &schedule, &before, &to);
        assert_eq!(after, filled(&to, str::to_owned));
    });
}

#[test]
fn every_number_of_pes_becomes_every_other() {
    let layout = |tp: usize| model(2, 29, Dtype::BF16, &format!(r#"[["tp", {tp}]]"#));
    for (from, to) in (1..=8).flat_map(|from| (1..=8).map(move |to| (from, to))) {
        let (before, after) = (layout(from), layout(to));
        let plan = checked_plan(&before, &after);
        let schedule = Schedule::new(&plan, 512).unwrap();
        check(&plan, &schedule);
        let moved = moved_in_batches(&plan, &schedule, &filled(&before, str::to_owned), &after);
        assert_eq!(moved, filled(&after, str::to_owned), "{from} to {to}");
    }
}

#[test]
fn every_pe_schedules_its_own_batches_as_the_whole_does() {
    for_seeds("every_pe_schedules_its_own_batches_as_the_whole_does", 40, |rng| {
        let (from, to) = any_pair(rng);
        let options = Default::default();
        let whole = TransferPlan::new(&from, &to, &options).unwrap();
        let slot_bytes = 64 * rng.range(1..30);
        let schedule = Schedule::new(&whole, slot_bytes).unwrap();
        for rank in 0..whole.world() {
            let part = TransferPlan::for_rank(&from, &to, &options, rank).unwrap();
            let own = Schedule::new(&part, slot_bytes).unwrap();
            assert_eq!(own.rounds(), schedule.rounds());
            let describe = |plan: &TransferPlan, schedule: &Schedule| -> Vec<String> {
                let concerns = |src, dst| src == rank || dst == rank;
                let batches = schedule.batches().iter();
                let batches = batches.filter(|batch| concerns(batch.src, batch.dst));
                let segment = |segment: &syncline_layout::Segment| {
                    let op = &plan.ops()[segment.op as usize];
                    (op.tensor, *plan.copy_box(op), segment.first, segment.count, segment.offset)
                };
                batches
                    .map(|batch| {
                        let segments: Vec<_> = batch.segments.iter().map(segment).collect();
                        format!("{} {} {} {segments:?}", batch.src, batch.dst, batch.round)
                    })
                    .collect()
            };
            assert_eq!(describe(&part, &own), describe(&whole, &schedule));
        }
    });
}
