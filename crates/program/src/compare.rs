//! Whether two runs gave the same.

use half::{bf16, f16};
use syncline_device::{Backend, DeviceSpec};
use syncline_plan::TaskIndex;
use syncline_tensor::Dtype;

use crate::program::Program;
use crate::run::ProgramRun;

/// How far two floats may differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FloatTolerance {
    /// Not at all: every bit the same.
    Exact,
    /// By this share of the larger one, or absolutely below 1. Integers not at all.
    Relative(f64),
}

/// What an error of one task may grow to in its dependants.
const GROWTH: f64 = 4.0;

impl Program {
    /// How far `run` may be from the serial run: not at all if every task ran on a CPU device.
    /// Otherwise by what the tolerances of the kernels add up to along the longest chain of tasks
    /// that wait for each other, times four.
    pub fn tolerance(&self, run: &ProgramRun) -> FloatTolerance {
        let Some(plan) = &run.plan else { return FloatTolerance::Exact };
        let is_cpu = |task: TaskIndex| {
            let name = &plan.machine().devices()[plan.device_of(task).index()].name;
            name.parse().is_ok_and(|spec: DeviceSpec| spec.backend == Backend::Cpu)
        };
        if plan.tasks().all(|task| is_cpu(task.index())) {
            return FloatTolerance::Exact;
        }
        let mut off: Vec<f64> = Vec::with_capacity(self.tasks().len());
        for (task, what) in plan.tasks().zip(self.tasks()) {
            let before = task.edges().iter().map(|edge| off[edge.pred.index()]);
            off.push(what.tolerance + before.fold(0.0, f64::max));
        }
        match off.into_iter().fold(0.0, f64::max) {
            0.0 => FloatTolerance::Exact,
            limit => FloatTolerance::Relative(limit * GROWTH),
        }
    }
}

/// Where two buffers differ most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mismatch {
    /// The element that is furthest off.
    pub element: usize,
    /// What it is.
    pub found: f64,
    /// What it should be.
    pub wanted: f64,
    /// How many elements are further off than they may be.
    pub count: usize,
}

/// Compares two buffers element by element; `None` if they agree.
pub fn compare(
    found: &[u8],
    wanted: &[u8],
    dtype: Dtype,
    tolerance: FloatTolerance,
) -> Option<Mismatch> {
    assert_eq!(found.len(), wanted.len(), "buffers of one size");
    let size = dtype.bytes() as usize;
    let mut worst: Option<(f64, Mismatch)> = None;
    let mut count = 0;
    for (element, (a, b)) in found.chunks(size).zip(wanted.chunks(size)).enumerate() {
        if a == b {
            continue;
        }
        let (x, y) = (number(a, dtype), number(b, dtype));
        let off = (x - y).abs() / x.abs().max(y.abs()).max(1.0);
        let allowed = match tolerance {
            FloatTolerance::Exact => false,
            FloatTolerance::Relative(_) if !is_float(dtype) => false,
            // Two NaNs of other bits agree; a NaN and a number do not.
            FloatTolerance::Relative(limit) => off <= limit || (x.is_nan() && y.is_nan()),
        };
        if allowed {
            continue;
        }
        count += 1;
        let off = if off.is_nan() { f64::INFINITY } else { off };
        if worst.is_none_or(|(most, _)| off > most) {
            worst = Some((off, Mismatch { element, found: x, wanted: y, count: 0 }));
        }
    }
    worst.map(|(_, difference)| Mismatch { count, ..difference })
}

fn is_float(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F16 | Dtype::BF16 | Dtype::F32 | Dtype::F64)
}

fn number(bytes: &[u8], dtype: Dtype) -> f64 {
    let mut word = [0u8; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(word);
    match dtype {
        Dtype::F16 => f16::from_bits(bits as u16).to_f64(),
        Dtype::BF16 => bf16::from_bits(bits as u16).to_f64(),
        Dtype::F32 => f32::from_bits(bits as u32).into(),
        Dtype::F64 => f64::from_bits(bits),
        Dtype::I8 => (bits as i8).into(),
        Dtype::I16 => (bits as i16).into(),
        Dtype::I32 => (bits as i32).into(),
        Dtype::I64 => bits as i64 as f64,
        _ => bits as f64,
    }
}
