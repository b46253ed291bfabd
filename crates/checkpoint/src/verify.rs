//! Comparing two checkpoints, every element of every shard, and what their layouts mean.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use syncline_copy::convert::convert_slice;
use syncline_layout::{PlanOptions, TransferPlan};
use syncline_tensor::Dtype;

use crate::chunk::{Chunk, chunks};
use crate::error::CheckpointError;
use crate::model::{Model, config_path};
use crate::proof::doubts;
use crate::source::Checkpoint;
use crate::truncation::reading;

/// Memory of each thread that compares.
const SLOT_BYTES: u64 = 4 << 20;

/// A shard that is not what the other checkpoint says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// The tensor.
    pub tensor: String,
    /// The rank of the checkpoint that was checked.
    pub rank: u32,
    /// The first element that differs, counted through the shard in row-major order.
    pub element: u64,
}

/// Finds out why the layout of `checkpoint` is not known to be right for its model; empty if it is.
///
/// The judgement is independent of the rules by which the layout was made. `other` supplies the
/// model's configuration where `checkpoint` has none.
pub fn unproven(checkpoint: &Checkpoint, other: &Checkpoint) -> Vec<String> {
    let has_config = config_path(checkpoint.folder()).is_file();
    let source = if has_config { checkpoint } else { other };
    doubts(checkpoint.layout(), &Model::read(source.folder()))
}

/// First differences of the shards of one tensor: `target` against `source` converted, and the
/// other way round.
#[derive(Default)]
struct Found {
    forward: BTreeMap<u32, u64>,
    backward: BTreeMap<u32, u64>,
}

/// Compares all shards of `target` with `source`, whatever their layouts; the first difference of
/// each shard.
///
/// Where element types differ, a tensor is the same if all of it is what a conversion of the other
/// makes of it, in one direction or in the other: the order of the two checkpoints does not matter.
pub fn verify(
    source: &Checkpoint,
    target: &Checkpoint,
) -> Result<Vec<Difference>, CheckpointError> {
    let plan =
        TransferPlan::new(source.layout(), target.layout(), &PlanOptions::default().convert_all())?;
    let mut work = Vec::new();
    let mut first = 0;
    for group in plan.ops().chunk_by(|one, next| (one.tensor, one.dst) == (next.tensor, next.dst)) {
        let tensor = plan.tensor(&group[0]);
        // Elements are put together as they are in the source, and converted afterwards.
        let dtypes = (tensor.src_dtype, tensor.src_dtype);
        let element_bytes = tensor.src_dtype.bytes().max(tensor.dst_dtype.bytes());
        let mut offset = 0;
        for part in chunks(&plan.copy_box(&group[0]).dst_shape, element_bytes, SLOT_BYTES) {
            let chunk = Chunk { file: 0, offset, part, ops: first..first + group.len(), dtypes };
            offset += chunk.part.volume();
            work.push(chunk);
        }
        first += group.len();
    }
    let next = AtomicUsize::new(0);
    let found: Mutex<HashMap<u32, Found>> = Mutex::default();
    let compare = || {
        let (mut slot, mut scratch) = (Vec::new(), Vec::new());
        while let Some(chunk) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
            let op = &plan.ops()[chunk.ops.start];
            let tensor = plan.tensor(op);
            let (from, to) = (tensor.src_dtype, tensor.dst_dtype);
            let expected = chunk.read(&plan, source, &mut slot);
            let held = target.shard(tensor.to, op.dst).expect("it is in the layout");
            let bytes = |count: u64| (count * to.bytes()) as usize;
            // The offset counts elements: their sizes may differ.
            let held = &held[bytes(chunk.offset)..][..bytes(chunk.part.volume())];
            let forward = difference((from, &expected), (to, held), &mut scratch);
            if forward.is_none() && from == to {
                continue;
            }
            let backward = match from == to {
                true => forward,
                false => difference((to, held), (from, &expected), &mut scratch),
            };
            if forward.or(backward).is_none() {
                continue;
            }
            let mut found = found.lock().expect("no thread panics with it");
            let found = found.entry(op.tensor).or_default();
            for (at, first) in [(forward, &mut found.forward), (backward, &mut found.backward)] {
                if let Some(at) = at {
                    let at = chunk.offset + at;
                    first.entry(op.dst).and_modify(|first| *first = at.min(*first)).or_insert(at);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..std::thread::available_parallelism().map_or(1, |count| count.get()) {
            scope.spawn(|| reading(compare));
        }
        reading(compare);
    });
    source.check_unchanged()?;
    target.check_unchanged()?;
    let found = found.into_inner().expect("no thread panics with it");
    let mut differences = Vec::new();
    for (tensor, Found { forward, backward }) in found {
        // Converted in one of the directions, all of it is the same.
        if backward.is_empty() {
            continue;
        }
        let name = &plan.tensors()[tensor as usize].name;
        let difference = |(rank, element)| Difference { tensor: name.clone(), rank, element };
        differences.extend(forward.into_iter().map(difference));
    }
    differences.sort();
    Ok(differences)
}

/// The first element in which `from`, converted, is not `to`.
fn difference(
    (from, source): (Dtype, &[u8]),
    (to, target): (Dtype, &[u8]),
    scratch: &mut Vec<u8>,
) -> Option<u64> {
    let expected = if from == to {
        source
    } else {
        scratch.resize(target.len(), 0);
        convert_slice(from, to, source, scratch).expect("the plan allows what can be done");
        scratch
    };
    if target == expected {
        return None;
    }
    let byte = target.iter().zip(expected).position(|(held, expected)| held != expected);
    Some(byte.unwrap_or(0) as u64 / to.bytes())
}
