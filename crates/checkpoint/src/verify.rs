//! Comparing two checkpoints, every element of every shard.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use syncline_reshard::TransferPlan;

use crate::chunk::{Chunk, chunks};
use crate::conversion::all_conversions;
use crate::error::CheckpointError;
use crate::source::Checkpoint;

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

/// Compares all shards of `target` with `source`, whatever their layouts; the first difference of each shard.
///
/// Where element types differ, `source` is converted as a conversion would.
pub fn verify(
    source: &Checkpoint,
    target: &Checkpoint,
) -> Result<Vec<Difference>, CheckpointError> {
    let plan = TransferPlan::new(source.layout(), target.layout(), &all_conversions())?;
    let mut work = Vec::new();
    let mut first = 0;
    for group in plan.ops().chunk_by(|one, next| (one.tensor, one.dst) == (next.tensor, next.dst)) {
        let tensor = plan.tensor(&group[0]);
        let dtypes = (tensor.src_dtype, tensor.dst_dtype);
        let mut offset = 0;
        for part in chunks(&plan.copy_box(&group[0]).dst_shape, dtypes.1.bytes(), SLOT_BYTES) {
            let chunk = Chunk { file: 0, offset, part, ops: first..first + group.len(), dtypes };
            offset += chunk.bytes();
            work.push(chunk);
        }
        first += group.len();
    }
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::new());
    let compare = || {
        let mut slot = Vec::new();
        while let Some(chunk) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
            let op = &plan.ops()[chunk.ops.start];
            let tensor = plan.tensor(op);
            let expected = chunk.read(&plan, source, &mut slot);
            let held = target.shard(tensor.to, op.dst).expect("it is in the layout");
            let held = &held[chunk.offset as usize..][..expected.len()];
            if *held != *expected {
                let byte =
                    held.iter().zip(expected.iter()).position(|(held, expected)| held != expected);
                let element = (chunk.offset + byte.unwrap_or(0) as u64) / chunk.dtypes.1.bytes();
                let difference = Difference { tensor: tensor.name.clone(), rank: op.dst, element };
                found.lock().expect("no thread panics with it").push(difference);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..std::thread::available_parallelism().map_or(1, |count| count.get()) {
            scope.spawn(compare);
        }
        compare();
    });
    let mut found = found.into_inner().expect("no thread panics with it");
    found.sort();
    found.dedup_by(|next, kept| (&next.tensor, next.rank) == (&kept.tensor, kept.rank));
    Ok(found)
}
