//! MXFP8: blocks of 32 eight-bit elements that share one power-of-two scale.
//!
//! The scale is an `f8_e8m0`: the byte `s` means 2^(s-127). It is chosen from the largest finite
//! magnitude of the block, so that this lands in the topmost binade of the element format; what
//! still exceeds the format saturates. A block of zeros has the scale byte 0. NaN elements stay NaN
//! and, like infinities, have no say in the scale.
//!
//! ```
//! use syncline_deps::Dtype;
//! use syncline_reshard::convert::mx;
//!
//! let source: Vec<u8> = (0..32).flat_map(|i| (i as f32).to_le_bytes()).collect();
//! let (mut elements, mut scales, mut back) = ([0; 32], [0; 1], [0; 128]);
//! mx::quantise(Dtype::F32, &source, Dtype::F8E4M3, &mut elements, &mut scales)?;
//! mx::dequantise(Dtype::F8E4M3, &elements, &scales, Dtype::F32, &mut back)?;
//! assert_eq!(back[4..8], 1f32.to_le_bytes());
//! # Ok::<(), syncline_reshard::convert::ConvertError>(())
//! ```

use syncline_deps::Dtype;

use super::{ConvertError, converter};

/// Elements that share one scale.
pub const BLOCK: usize = 32;

/// The exponent of the topmost binade of an element format.
fn top_exponent(elements: Dtype) -> Option<i32> {
    match elements {
        Dtype::F8E4M3 => Some(8),
        Dtype::F8E5M2 => Some(15),
        _ => None,
    }
}

fn check(
    plain: (Dtype, usize),
    blocked: (Dtype, usize),
    scales: usize,
) -> Result<(usize, i32), ConvertError> {
    let unsupported = ConvertError::Unsupported { from: plain.0, to: blocked.0 };
    let top = top_exponent(blocked.0).ok_or(unsupported.clone())?;
    if converter(plain.0, Dtype::F32).is_none() {
        return Err(unsupported);
    }
    let element_bytes = plain.0.bytes() as usize;
    if plain.1 != blocked.1 * element_bytes {
        return Err(ConvertError::Length {
            from: plain.0,
            to: blocked.0,
            source_bytes: plain.1,
            target_bytes: blocked.1,
        });
    }
    if scales.checked_mul(BLOCK) != Some(blocked.1) {
        return Err(ConvertError::Blocks { elements: blocked.1, scales });
    }
    Ok((element_bytes, top))
}

/// Quantises `source`, elements of `from`, into `elements` of the 8-bit format `to` and their `scales`.
pub fn quantise(
    from: Dtype,
    source: &[u8],
    to: Dtype,
    elements: &mut [u8],
    scales: &mut [u8],
) -> Result<(), ConvertError> {
    let (element_bytes, top) = check((from, source.len()), (to, elements.len()), scales.len())?;
    let widen = converter(from, Dtype::F32).expect("checked above");
    let narrow = converter(Dtype::F32, to).expect("checked above");
    let mut wide = [0; BLOCK * 4];
    let blocks = source.chunks_exact(BLOCK * element_bytes).zip(elements.chunks_exact_mut(BLOCK));
    for ((source, elements), scale) in blocks.zip(scales) {
        widen(source, &mut wide);
        *scale = block_scale(&wide, top);
        multiply(&mut wide, power_of_two(127 - i32::from(*scale)));
        narrow(&wide, elements);
    }
    Ok(())
}

/// Restores `elements` and their `scales` to `target`, elements of `to`; the reverse of [`quantise`].
///
/// The product of element and scale is rounded to `f32`, then to `to`.
pub fn dequantise(
    from: Dtype,
    elements: &[u8],
    scales: &[u8],
    to: Dtype,
    target: &mut [u8],
) -> Result<(), ConvertError> {
    let (element_bytes, _) = check((to, target.len()), (from, elements.len()), scales.len())?;
    let widen = converter(from, Dtype::F32).expect("checked above");
    let narrow = converter(Dtype::F32, to).expect("checked above");
    let mut wide = [0; BLOCK * 4];
    let blocks = elements.chunks_exact(BLOCK).zip(target.chunks_exact_mut(BLOCK * element_bytes));
    for ((elements, target), &scale) in blocks.zip(scales) {
        widen(elements, &mut wide);
        // 0xff is the format's NaN: a block without a scale has no values.
        let factor = if scale == 0xff { f32::NAN } else { power_of_two(i32::from(scale) - 127) };
        multiply(&mut wide, factor);
        narrow(&wide, target);
    }
    Ok(())
}

fn block_scale(wide: &[u8; BLOCK * 4], top: i32) -> u8 {
    let mut largest = 0;
    for word in wide.as_chunks().0 {
        let magnitude = u32::from_le_bytes(*word) & 0x7fff_ffff;
        largest = largest.max(if magnitude < 0x7f80_0000 { magnitude } else { 0 });
    }
    if largest == 0 {
        return 0;
    }
    // Subnormals of f32 lie below 2^-126, where the scale is at its lower bound anyway.
    let exponent = (largest >> 23) as i32 - 127;
    (exponent - top + 127).clamp(0, 254) as u8
}

/// 2^`exponent` for -127 to 127; the lowest is subnormal, and exact.
fn power_of_two(exponent: i32) -> f32 {
    if exponent == -127 {
        f32::from_bits(1 << 22)
    } else {
        f32::from_bits(((exponent + 127) as u32) << 23)
    }
}

fn multiply(wide: &mut [u8; BLOCK * 4], factor: f32) {
    for word in wide.as_chunks_mut().0 {
        *word = (f32::from_le_bytes(*word) * factor).to_le_bytes();
    }
}
