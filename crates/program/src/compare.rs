//! Whether two runs gave the same.

use half::{bf16, f16};
use syncline_deps::Dtype;

/// How far two floats may be apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// Not at all: every bit the same.
    Exact,
    /// By this share of the larger one, or absolutely below 1.
    Relative(f64),
}

/// Where two buffers differ most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
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
    tolerance: Tolerance,
) -> Option<Difference> {
    assert_eq!(found.len(), wanted.len(), "buffers of one size");
    let size = dtype.bytes() as usize;
    let mut worst: Option<(f64, Difference)> = None;
    let mut count = 0;
    for (element, (a, b)) in found.chunks(size).zip(wanted.chunks(size)).enumerate() {
        if a == b {
            continue;
        }
        let (x, y) = (number(a, dtype), number(b, dtype));
        let off = (x - y).abs() / x.abs().max(y.abs()).max(1.0);
        let allowed = match tolerance {
            Tolerance::Exact => false,
            // Two NaNs of other bits agree; a NaN and a number do not.
            Tolerance::Relative(limit) => off <= limit || (x.is_nan() && y.is_nan()),
        };
        if allowed {
            continue;
        }
        count += 1;
        let off = if off.is_nan() { f64::INFINITY } else { off };
        if worst.is_none_or(|(most, _)| off > most) {
            worst = Some((off, Difference { element, found: x, wanted: y, count: 0 }));
        }
    }
    worst.map(|(_, difference)| Difference { count, ..difference })
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
