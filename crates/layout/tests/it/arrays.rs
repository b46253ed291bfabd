//! Real arrays under a layout, moved element by element as a plan says.

use std::collections::HashMap;

use syncline_layout::{CopyBox, Dims, Layout, NdBox, Schedule, Shard, TransferPlan};

/// What a shard holds before anything is written to it.
pub const UNWRITTEN: u64 = u64::MAX;

/// The shards of a layout: by tensor position and rank, one number for each element.
pub type Arrays = HashMap<(u32, u32), Vec<u64>>;

/// A number for every element of every tensor; names decide, so that two layouts agree.
pub fn value(tensor: &str, element: u64) -> u64 {
    let name =
        tensor.bytes().fold(7u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    (name << 32) ^ element
}

/// The positions in an array of `shape` of all elements of `part`, in row-major order.
pub fn positions(part: &NdBox, shape: &Dims) -> Vec<u64> {
    let mut all = vec![0];
    for dim in 0..shape.len() {
        let along = part.start[dim]..part.stop(dim);
        all = all
            .iter()
            .flat_map(|outer| along.clone().map(move |at| outer * shape[dim] + at))
            .collect();
    }
    all
}

/// What `shard` must hold of the tensor `name`.
pub fn expected(name: &str, shape: &Dims, shard: &Shard) -> Vec<u64> {
    let mut held = vec![UNWRITTEN; shard.shape.volume() as usize];
    for piece in &shard.pieces {
        let local = positions(&piece.local_box(), &shard.shape);
        for (to, from) in local.into_iter().zip(positions(&piece.global, shape)) {
            held[to as usize] = value(name, from);
        }
    }
    held
}

/// All shards of `layout` as they must be; tied tensors by the name of the one that has the values.
pub fn filled(layout: &Layout, values_of: impl Fn(&str) -> String) -> Arrays {
    let mut arrays = Arrays::new();
    for (index, tensor) in (0u32..).zip(layout.tensors()) {
        for shard in tensor.placement().shards() {
            let name = values_of(tensor.name());
            arrays.insert((index, shard.rank), expected(&name, tensor.shape(), shard));
        }
    }
    arrays
}

/// All shards of `layout`, with nothing written.
pub fn unwritten(layout: &Layout) -> Arrays {
    let mut arrays = Arrays::new();
    for (index, tensor) in (0u32..).zip(layout.tensors()) {
        for shard in tensor.placement().shards() {
            let elements = shard.shape.volume() as usize;
            arrays.insert((index, shard.rank), vec![UNWRITTEN; elements]);
        }
    }
    arrays
}

/// Moves one box; panics if an element is written twice.
fn move_box(from: &[u64], to: &mut [u64], copy: &CopyBox, boxes: &[NdBox]) {
    for part in boxes {
        let shifted = |start: &Dims| {
            let mut shifted = *part;
            shifted.start.iter_mut().zip(start.iter()).for_each(|(at, by)| *at += by);
            shifted
        };
        let sources = positions(&shifted(&copy.src_start), &copy.src_shape);
        let targets = positions(&shifted(&copy.dst_start), &copy.dst_shape);
        for (source, target) in sources.into_iter().zip(targets) {
            let target = &mut to[target as usize];
            assert_eq!(*target, UNWRITTEN, "written twice");
            *target = from[source as usize];
        }
    }
}

/// The destination's shards after `plan`, box by box.
pub fn moved(plan: &TransferPlan, from: &Arrays, to: &Layout) -> Arrays {
    let mut arrays = unwritten(to);
    for op in plan.ops() {
        let (tensor, copy) = (plan.tensor(op), plan.copy_box(op));
        let target = arrays.get_mut(&(tensor.to, op.dst)).expect("the receiver has a shard");
        move_box(&from[&(tensor.from, op.src)], target, copy, &[NdBox::whole(copy.size)]);
    }
    arrays
}

/// The destination's shards after the self moves of `plan` and the batches of `schedule`.
pub fn moved_in_batches(
    plan: &TransferPlan,
    schedule: &Schedule,
    from: &Arrays,
    to: &Layout,
) -> Arrays {
    let mut arrays = unwritten(to);
    let mut apply = |op: u32, range: std::ops::Range<u64>| {
        let op = &plan.ops()[op as usize];
        let (tensor, copy) = (plan.tensor(op), plan.copy_box(op));
        let target = arrays.get_mut(&(tensor.to, op.dst)).expect("the receiver has a shard");
        move_box(&from[&(tensor.from, op.src)], target, copy, &copy.boxes(range));
    };
    for (at, op) in (0u32..).zip(plan.ops()) {
        if op.is_self_move() {
            apply(at, 0..plan.copy_box(op).elements());
        }
    }
    for batch in schedule.batches() {
        for segment in &batch.segments {
            apply(segment.op, segment.first..segment.first + segment.count);
        }
    }
    arrays
}

/// Plans, moves real arrays and checks every element of every destination; gives the plan back.
pub fn checked_plan(from: &Layout, to: &Layout) -> TransferPlan {
    let plan = TransferPlan::new(from, to, &Default::default()).expect("the layouts fit");
    // A tied tensor of one side may be two of the other: the values are those of the source's name.
    let source_name = |name: &str| {
        let target = to.tensor(name).or_else(|| from.tensor(name)).expect("known");
        let names = [target.name()].into_iter().chain(target.aliases().iter().map(String::as_str));
        let source = names.into_iter().find_map(|name| from.tensor(name)).expect("known");
        source.name().to_owned()
    };
    let before = filled(from, str::to_owned);
    assert_eq!(moved(&plan, &before, to), filled(to, source_name));
    plan
}
