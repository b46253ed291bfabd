//! MXFP8: blocks of 32 eight-bit elements that share one power-of-two scale.
//!
//! Blocks run along the last dimension of a tensor. Its elements are one tensor and their scales
//! another, of the same shape but for the last dimension, which is 32 times shorter.
//!
//! The scale is an `f8_e8m0`: the byte `s` means 2^(s-127). It is chosen from the largest finite
//! magnitude of the block, so that this lands in the topmost binade of the element format; what
//! still exceeds the format saturates. A block of zeros has the scale byte 0. NaN elements stay NaN
//! and, like infinities, have no say in the scale.
//!
//! ```
//! use syncline_tensor::Dtype;
//! use syncline_copy::convert::mx;
//!
//! let source: Vec<u8> = (0..32).flat_map(|i| (i as f32).to_le_bytes()).collect();
//! let (mut elements, mut scales, mut back) = ([0; 32], [0; 1], [0; 128]);
//! mx::quantise(Dtype::F32, &source, Dtype::F8E4M3, &mut elements, &mut scales)?;
//! mx::dequantise(Dtype::F8E4M3, &elements, &scales, Dtype::F32, &mut back)?;
//! assert_eq!(back[4..8], 1f32.to_le_bytes());
//! # Ok::<(), syncline_copy::convert::ConvertError>(())
//! ```

use syncline_tensor::Dtype;

use super::format::{Bf16, E4m3, E5m2, F16, F32, FloatFormat};
use super::{ConvertError, Converter};

/// Elements that share one scale.
pub const BLOCK: usize = 32;

/// An element format that blocks can have.
trait BlockFormat: FloatFormat {
    /// The exponent of its topmost binade.
    const TOP: i32;
}

impl BlockFormat for E4m3 {
    const TOP: i32 = 8;
}

impl BlockFormat for E5m2 {
    const TOP: i32 = 15;
}

/// Restores elements with their scales to another format. The number says how many elements of the
/// first block come before the first element.
pub type Restorer = fn(&[u8], usize, &[u8], &mut [u8]);

/// The function chosen by a plain format and a block format, in the order of the parameters of
/// `$run`.
macro_rules! by_formats {
    ($plain:expr, $blocked:expr, $run:ident) => {
        match ($plain, $blocked) {
            (Dtype::F32, Dtype::F8E4M3) => Some($run::<F32, E4m3>),
            (Dtype::F16, Dtype::F8E4M3) => Some($run::<F16, E4m3>),
            (Dtype::BF16, Dtype::F8E4M3) => Some($run::<Bf16, E4m3>),
            (Dtype::F32, Dtype::F8E5M2) => Some($run::<F32, E5m2>),
            (Dtype::F16, Dtype::F8E5M2) => Some($run::<F16, E5m2>),
            (Dtype::BF16, Dtype::F8E5M2) => Some($run::<Bf16, E5m2>),
            _ => None,
        }
    };
}

/// Quantises whole blocks of `from` to elements of `to`.
pub fn elements_converter(from: Dtype, to: Dtype) -> Option<Converter> {
    by_formats!(from, to, to_elements)
}

/// Computes the scales of whole blocks of `from`, for elements of `to`.
pub fn scales_converter(from: Dtype, to: Dtype) -> Option<Converter> {
    by_formats!(from, to, to_scales)
}

/// Restores elements of `from` and their scales to `to`.
pub fn restorer(from: Dtype, to: Dtype) -> Option<Restorer> {
    by_formats!(to, from, restore)
}

/// Whether tensors of `plain` can be quantised to blocks of `blocked`, and restored from them.
pub fn is_supported(plain: Dtype, blocked: Dtype) -> bool {
    elements_converter(plain, blocked).is_some()
}

fn check(
    plain: (Dtype, usize),
    blocked: (Dtype, usize),
    scales: usize,
) -> Result<(), ConvertError> {
    if !is_supported(plain.0, blocked.0) {
        return Err(ConvertError::Unsupported { from: plain.0, to: blocked.0 });
    }
    if Some(plain.1) != blocked.1.checked_mul(plain.0.bytes() as usize) {
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
    Ok(())
}

/// Quantises `source`, elements of `from`, into `elements` of the 8-bit format `to` and their
/// `scales`.
pub fn quantise(
    from: Dtype,
    source: &[u8],
    to: Dtype,
    elements: &mut [u8],
    scales: &mut [u8],
) -> Result<(), ConvertError> {
    check((from, source.len()), (to, elements.len()), scales.len())?;
    let unsupported = ConvertError::Unsupported { from, to };
    let (quantise, scale) =
        elements_converter(from, to).zip(scales_converter(from, to)).ok_or(unsupported)?;
    quantise(source, elements);
    scale(source, scales);
    Ok(())
}

/// Restores `elements` and their `scales` to `target`, elements of `to`; the reverse of
/// [`quantise`].
///
/// The product of element and scale is rounded to `f32`, then to `to`.
pub fn dequantise(
    from: Dtype,
    elements: &[u8],
    scales: &[u8],
    to: Dtype,
    target: &mut [u8],
) -> Result<(), ConvertError> {
    check((to, target.len()), (from, elements.len()), scales.len())?;
    let restore = restorer(from, to).ok_or(ConvertError::Unsupported { from, to })?;
    restore(elements, 0, scales, target);
    Ok(())
}

/// Compiles `$body` for eight lanes as well, and takes that where the processor has them.
macro_rules! vectorised {
    ($name:ident, $body:ident, ($($arg:ident: $kind:ty),*)) => {
        fn $name<P: FloatFormat, B: BlockFormat>($($arg: $kind),*) {
            #[cfg(all(feature = "execute", target_arch = "x86_64"))]
            {
                #[target_feature(enable = "avx2")]
                fn wide<P: FloatFormat, B: BlockFormat>($($arg: $kind),*) {
                    $body::<P, B>($($arg),*);
                }
                if std::is_x86_feature_detected!("avx2") {
                    // SAFETY: the processor has AVX2, as was just asked.
                    unsafe { wide::<P, B>($($arg),*) };
                    return;
                }
            }
            $body::<P, B>($($arg),*);
        }
    };
}

vectorised!(to_elements, quantise_blocks, (source: &[u8], elements: &mut [u8]));
vectorised!(to_scales, scale_blocks, (source: &[u8], scales: &mut [u8]));
vectorised!(
    restore,
    restore_blocks,
    (elements: &[u8], skipped: usize, scales: &[u8], target: &mut [u8])
);

#[inline(always)]
fn quantise_blocks<P: FloatFormat, B: BlockFormat>(source: &[u8], elements: &mut [u8]) {
    let blocks = source.chunks_exact(BLOCK * P::BYTES).zip(elements.chunks_exact_mut(BLOCK));
    for (source, elements) in blocks {
        let wide = widen::<P>(source);
        let factor = power_of_two(127 - i32::from(block_scale(&wide, B::TOP)));
        for (bits, element) in wide.iter().zip(elements.chunks_exact_mut(1)) {
            B::store(B::narrow((f32::from_bits(*bits) * factor).to_bits()), element);
        }
    }
}

#[inline(always)]
fn scale_blocks<P: FloatFormat, B: BlockFormat>(source: &[u8], scales: &mut [u8]) {
    for (source, scale) in source.chunks_exact(BLOCK * P::BYTES).zip(scales) {
        *scale = block_scale(&widen::<P>(source), B::TOP);
    }
}

#[inline(always)]
fn restore_blocks<P: FloatFormat, B: BlockFormat>(
    elements: &[u8],
    skipped: usize,
    scales: &[u8],
    target: &mut [u8],
) {
    let head = (BLOCK - skipped).min(elements.len());
    let (first, elements) = elements.split_at(head);
    let (first_target, target) = target.split_at_mut(head * P::BYTES);
    let Some((&first_scale, scales)) = scales.split_first() else { return };
    restore_block::<P, B>(first, first_scale, first_target);
    let blocks = elements.chunks(BLOCK).zip(target.chunks_mut(BLOCK * P::BYTES));
    for ((elements, target), &scale) in blocks.zip(scales) {
        restore_block::<P, B>(elements, scale, target);
    }
}

#[inline(always)]
fn restore_block<P: FloatFormat, B: BlockFormat>(elements: &[u8], scale: u8, target: &mut [u8]) {
    // 0xff is the format's NaN: a block without a scale has no values.
    let factor = if scale == 0xff { f32::NAN } else { power_of_two(i32::from(scale) - 127) };
    for (element, target) in elements.iter().zip(target.chunks_exact_mut(P::BYTES)) {
        let value = f32::from_bits(B::widen(u32::from(*element))) * factor;
        P::store(P::narrow(value.to_bits()), target);
    }
}

/// The bits of a block's elements as `f32`.
#[inline(always)]
fn widen<P: FloatFormat>(source: &[u8]) -> [u32; BLOCK] {
    let mut wide = [0; BLOCK];
    for (bits, element) in wide.iter_mut().zip(source.chunks_exact(P::BYTES)) {
        *bits = P::widen(P::load(element));
    }
    wide
}

#[inline(always)]
fn block_scale(wide: &[u32; BLOCK], top: i32) -> u8 {
    let mut largest = 0;
    for bits in wide {
        let magnitude = bits & 0x7fff_ffff;
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
#[inline(always)]
fn power_of_two(exponent: i32) -> f32 {
    if exponent == -127 {
        f32::from_bits(1 << 22)
    } else {
        f32::from_bits(((exponent + 127) as u32) << 23)
    }
}
