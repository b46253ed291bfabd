//! FloatFormat conversion: whole slices from one floating-point format to another.
//!
//! Every format here is exact in `f32`, so each conversion is one widening and one rounding: to
//! nearest, halves to even. What has no value in the target is defined, not left to the machine:
//!
//! | source | `f16`, `bf16` | `f8_e5m2` | `f8_e4m3` |
//! | --- | --- | --- | --- |
//! | finite, too large | infinity | ±57,344 | ±448 |
//! | infinity | infinity | infinity | ±448 |
//! | NaN | quiet NaN, sign kept | `0x7f`, sign kept | `0x7f`, sign kept |
//!
//! The 8-bit formats saturate because weights that overflow there are outliers to be clipped, not
//! errors; `f8_e4m3` has no infinity. This is a choice: torch's `to(torch.float8_e5m2)` makes
//! infinity of a finite number that is too large, and NaN in `float8_e4m3fn`; the saturating
//! conversions of the hardware and of the OCP specification do as here. [`mx`] has the block-scaled
//! form.
//!
//! ```
//! use syncline_tensor::Dtype;
//! use syncline_copy::convert::convert_slice;
//!
//! let source = 1.5f32.to_le_bytes();
//! let mut target = [0; 2];
//! convert_slice(Dtype::F32, Dtype::BF16, &source, &mut target)?;
//! assert_eq!(u16::from_le_bytes(target), 0x3fc0);
//! # Ok::<(), syncline_copy::convert::ConvertError>(())
//! ```

mod format;
pub mod mx;
#[cfg(test)]
mod tests;

use syncline_tensor::Dtype;

use format::{Bf16, E4m3, E5m2, F16, F32, FloatFormat};

/// A conversion that cannot be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// No conversion between these two formats.
    #[error(
        "no conversion from {from} to {to}: both must be one of f32, f16, bf16, f8_e4m3, f8_e5m2"
    )]
    Unsupported {
        /// The source's format.
        from: Dtype,
        /// The target's format.
        to: Dtype,
    },
    /// The two slices do not hold the same number of elements.
    #[error(
        "source has {source_bytes} bytes of {from}, target {target_bytes} bytes of {to}: not the same number of elements"
    )]
    Length {
        /// The source's format.
        from: Dtype,
        /// The target's format.
        to: Dtype,
        /// Bytes of the source.
        source_bytes: usize,
        /// Bytes of the target.
        target_bytes: usize,
    },
    /// A block-scaled conversion of something that is not whole blocks.
    #[error(
        "{elements} elements with {scales} scales: every scale belongs to a block of {} elements",
        mx::BLOCK
    )]
    Blocks {
        /// Elements given.
        elements: usize,
        /// Scales given.
        scales: usize,
    },
}

/// Converts a run of elements: as many as both slices hold.
pub type Converter = fn(&[u8], &mut [u8]);

/// Returns `true` if [`convert_slice`] can go from `from` to `to`.
pub fn is_supported(from: Dtype, to: Dtype) -> bool {
    converter(from, to).is_some()
}

/// Converts `source`, elements of `from` in little-endian order, into `target`, elements of `to`.
///
/// The slices need no alignment. Between equal formats it is a plain copy, which keeps every bit.
pub fn convert_slice(
    from: Dtype,
    to: Dtype,
    source: &[u8],
    target: &mut [u8],
) -> Result<(), ConvertError> {
    let convert = converter(from, to).ok_or(ConvertError::Unsupported { from, to })?;
    let (from_bytes, to_bytes) = (from.bytes() as usize, to.bytes() as usize);
    let whole = source.len().is_multiple_of(from_bytes) && target.len().is_multiple_of(to_bytes);
    if !whole || source.len() / from_bytes != target.len() / to_bytes {
        let (source_bytes, target_bytes) = (source.len(), target.len());
        return Err(ConvertError::Length { from, to, source_bytes, target_bytes });
    }
    convert(source, target);
    Ok(())
}

/// Returns the function that converts `from` to `to`, or `None` if there is none.
pub fn converter(from: Dtype, to: Dtype) -> Option<Converter> {
    fn from_format<S: FloatFormat>(to: Dtype) -> Option<Converter> {
        Some(match to {
            Dtype::F32 => run::<S, F32>,
            Dtype::F16 => run::<S, F16>,
            Dtype::BF16 => run::<S, Bf16>,
            Dtype::F8E4M3 => run::<S, E4m3>,
            Dtype::F8E5M2 => run::<S, E5m2>,
            _ => return None,
        })
    }
    if from == to {
        return Some(|source, target| target.copy_from_slice(source));
    }
    match from {
        Dtype::F32 => from_format::<F32>(to),
        Dtype::F16 => from_format::<F16>(to),
        Dtype::BF16 => from_format::<Bf16>(to),
        Dtype::F8E4M3 => from_format::<E4m3>(to),
        Dtype::F8E5M2 => from_format::<E5m2>(to),
        _ => None,
    }
}

fn run<S: FloatFormat, T: FloatFormat>(source: &[u8], target: &mut [u8]) {
    #[cfg(all(feature = "execute", target_arch = "x86_64"))]
    if std::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2, as was just asked.
        unsafe { run_avx2::<S, T>(source, target) };
        return;
    }
    run_portable::<S, T>(source, target);
}

/// The portable loop, compiled for AVX2: without branches, it vectorises as it is.
#[cfg(all(feature = "execute", target_arch = "x86_64"))]
#[target_feature(enable = "avx2")]
fn run_avx2<S: FloatFormat, T: FloatFormat>(source: &[u8], target: &mut [u8]) {
    run_portable::<S, T>(source, target);
}

#[inline(always)]
fn run_portable<S: FloatFormat, T: FloatFormat>(source: &[u8], target: &mut [u8]) {
    let sources = source.chunks_exact(S::BYTES);
    let targets = target.chunks_exact_mut(T::BYTES);
    for (source, target) in sources.zip(targets) {
        T::store(T::narrow(S::widen(S::load(source))), target);
    }
}
