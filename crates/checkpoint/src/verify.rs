//! Comparing two checkpoints, every element of every shard, and what their layouts mean.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use syncline_copy::convert::convert_slice;
use syncline_layout::{Layout, PlanOptions, TransferPlan};
use syncline_tensor::Dtype;

use crate::chunk::{Chunk, chunks};
use crate::error::{CheckpointError, check_stop};
use crate::model::{Model, config_path};
use crate::proof::doubts;
use crate::source::Checkpoint;
use crate::truncation::reading;

/// Memory of each thread that compares.
const SLOT_BYTES: u64 = 4 << 20;

/// A shard that is not what the other checkpoint says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Difference {
    /// The tensor.
    pub tensor: String,
    /// The rank of the checkpoint that was checked.
    pub rank: u32,
    /// The first element that differs, counted through the shard in row-major order.
    pub element: u64,
    /// The index of that element in each dimension of the shard.
    pub index: Vec<u64>,
    /// How many elements of the shard differ.
    pub count: u64,
    /// What the first checkpoint says of that element, in the type of the second.
    pub expected: String,
    /// What the second one holds.
    pub held: String,
}

/// Elements of a run of bytes that differ.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Unlike {
    first: u64,
    count: u64,
    expected: String,
    held: String,
}

impl Unlike {
    /// Takes in what was found in another part of the same shard.
    fn join(&mut self, other: Self) {
        let count = self.count + other.count;
        if other.first < self.first {
            *self = other;
        }
        self.count = count;
    }
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

/// Finds out why `layout` is not known to be right for the model of the checkpoint at `source`;
/// empty if it is.
pub fn unproven_layout(layout: &Layout, source: &Path) -> Vec<String> {
    doubts(layout, &Model::read(source))
}

/// First differences of the shards of one tensor: `target` against `source` converted, and the
/// other way round.
#[derive(Default)]
struct Found {
    forward: BTreeMap<u32, Unlike>,
    backward: BTreeMap<u32, Unlike>,
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
    verify_until(source, target, &AtomicBool::new(false))
}

/// As [`verify`]; ends with [`CheckpointError::Stopped`] soon after `stop` was set to `true`.
pub fn verify_until(
    source: &Checkpoint,
    target: &Checkpoint,
    stop: &AtomicBool,
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
    let (next, done) = (AtomicUsize::new(0), AtomicU64::new(0));
    let found: Mutex<HashMap<u32, Found>> = Mutex::default();
    let compare = || {
        let (mut slot, mut memory, mut scratch) = (Vec::new(), Vec::new(), Vec::new());
        while let Some(chunk) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let op = &plan.ops()[chunk.ops.start];
            let tensor = plan.tensor(op);
            let (from, to) = (tensor.src_dtype, tensor.dst_dtype);
            let bytes = chunk.part.volume() * from.bytes().max(to.bytes());
            let before = done.fetch_add(bytes, Ordering::Relaxed);
            source.release_after(before, bytes);
            target.release_after(before, bytes);
            let expected = chunk.read(&plan, source, &mut slot);
            let run = target.read(tensor.to, op.dst, &chunk.part, &mut memory);
            let held = run.unwrap_or(&memory);
            let forward = difference((from, &expected), (to, held), &mut scratch);
            if forward.is_none() && from == to {
                continue;
            }
            let backward = match from == to {
                true => forward.clone(),
                false => difference((to, held), (from, &expected), &mut scratch),
            };
            if forward.is_none() && backward.is_none() {
                continue;
            }
            let mut found = found.lock().expect("no thread panics with it");
            let found = found.entry(op.tensor).or_default();
            for (unlike, of) in [(forward, &mut found.forward), (backward, &mut found.backward)] {
                let Some(mut unlike) = unlike else { continue };
                unlike.first += chunk.offset;
                match of.entry(op.dst) {
                    Entry::Vacant(entry) => drop(entry.insert(unlike)),
                    Entry::Occupied(mut entry) => entry.get_mut().join(unlike),
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
    check_stop(stop)?;
    source.check_unchanged()?;
    target.check_unchanged()?;
    let found = found.into_inner().expect("no thread panics with it");
    let mut differences = Vec::new();
    for (tensor, Found { forward, backward }) in found {
        // Converted in one of the directions, all of it is the same.
        if backward.is_empty() {
            continue;
        }
        let moved = &plan.tensors()[tensor as usize];
        let placed = &target.layout().tensors()[moved.to as usize];
        let difference = |(rank, unlike): (u32, Unlike)| {
            let shard = placed.placement().shard(rank).expect("it was compared");
            let Unlike { first, count, expected, held } = unlike;
            let strides = shard.shape.row_major_strides(1);
            let dims = strides.iter().zip(shard.shape.iter());
            let index = dims.map(|(stride, size)| first / stride % size).collect();
            Difference {
                tensor: moved.name.clone(),
                rank,
                element: first,
                index,
                count,
                expected,
                held,
            }
        };
        differences.extend(forward.into_iter().map(difference));
    }
    differences.sort();
    Ok(differences)
}

/// The elements in which `source`, converted, is not `target`.
fn difference(
    (from, source): (Dtype, &[u8]),
    (to, target): (Dtype, &[u8]),
    scratch: &mut Vec<u8>,
) -> Option<Unlike> {
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
    let bytes = to.bytes() as usize;
    let pairs = target.chunks_exact(bytes).zip(expected.chunks_exact(bytes));
    let mut unlike = (0u64..).zip(pairs).filter(|(_, (held, expected))| held != expected);
    let (first, (held, expected)) = unlike.next()?;
    let (expected, held) = (value_text(to, expected), value_text(to, held));
    Some(Unlike { first, count: 1 + unlike.count() as u64, expected, held })
}

/// An element as people write it.
fn value_text(dtype: Dtype, bytes: &[u8]) -> String {
    let mut wide = [0; 8];
    let known = bytes.len().min(8);
    wide[..known].copy_from_slice(&bytes[..known]);
    let bits = u64::from_le_bytes(wide);
    let spare = 64 - 8 * known as u32;
    match dtype {
        Dtype::Bool => (bits != 0).to_string(),
        Dtype::U8 | Dtype::U16 | Dtype::U32 | Dtype::U64 => bits.to_string(),
        Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64 => {
            ((bits << spare) as i64 >> spare).to_string()
        }
        Dtype::F64 => f64::from_bits(bits).to_string(),
        Dtype::F32 => f32::from_bits(bits as u32).to_string(),
        Dtype::C64 => {
            let part = |bits: u64| f32::from_bits(bits as u32);
            format!("{}+{}i", part(bits), part(bits >> 32))
        }
        _ => {
            let mut single = [0; 4];
            match convert_slice(dtype, Dtype::F32, bytes, &mut single) {
                Ok(()) => f32::from_le_bytes(single).to_string(),
                Err(_) => format!("{bits:#x}"),
            }
        }
    }
}
