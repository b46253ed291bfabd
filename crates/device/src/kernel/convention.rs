//! How a compiled kernel receives its arguments, the same in WGSL, OpenCL C and CUDA C.
//!
//! Argument `i` of `n` is one buffer, and a block of 32-bit words follows as the last argument:
//!
//! | | argument `i` | parameter block |
//! | --- | --- | --- |
//! | WGSL | `@group(0) @binding(i) var<storage, read_write> arg_i: array<T>` (or `read`) | `@group(0) @binding(n) var<storage, read> params: array<u32>` |
//! | OpenCL C | `__global T *arg_i` | `__global const uint *params` |
//! | CUDA C | `T *arg_i` | `const unsigned *params` |
//!
//! The block has [`WORDS_PER_ARGUMENT`] words for each argument, then the scalars:
//!
//! | words of an argument | meaning |
//! | --- | --- |
//! | 0 | elements from the start of what is bound to the element whose indices are all zero |
//! | 1 | rank |
//! | 2 to 9 | shape, zero beyond the rank |
//! | 10 to 17 | strides in elements, signed, zero beyond the rank |
//!
//! Scalars take one word each for `f32`, `i32`, `u32` and `bool` (0 or 1), two (low, high) for
//! 64-bit ones. Where a [`KernelSource`] names the types of its scalars, what is given is converted
//! to them first.
//!
//! What is bound begins at a multiple of four bytes that the backend may align down further (Vulkan
//! has a least alignment), and extends to a multiple of four bytes behind the last element, so that
//! elements smaller than a word can be reached as parts of words. An argument without elements is
//! bound to anything. Where work is counted in one dimension, groups beyond 65,535 continue along
//! y: a group's number is `x + y * groups_along_x`, and a kernel leaves out what lies beyond its
//! elements.

use syncline_tensor::{MAX_DIMS, View};

use super::{KernelSource, Scalar};
use crate::DeviceError;

/// Words of the parameter block that describe one argument.
pub const WORDS_PER_ARGUMENT: usize = 2 + 2 * MAX_DIMS;

/// The type as which a compiled kernel reads a scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ScalarType {
    /// One word, 0 or 1.
    Bool,
    /// One word.
    F32,
    /// Two words.
    F64,
    /// Two words; fractions are cut off, what is out of range becomes the nearest.
    I64,
}

impl ScalarType {
    fn convert(self, scalar: Scalar) -> Scalar {
        match self {
            ScalarType::Bool => Scalar::Bool(scalar.as_bool()),
            ScalarType::F32 => Scalar::F32(scalar.as_f32()),
            ScalarType::F64 => Scalar::F64(scalar.as_f64()),
            ScalarType::I64 => {
                Scalar::I64(scalar.as_i64().unwrap_or_else(|| scalar.as_f64() as i64))
            }
        }
    }
}

impl KernelSource {
    /// Appends the parameter block of one launch to `out`.
    ///
    /// `bound_starts` has, for each argument, the byte of its buffer at which what is bound begins:
    /// not behind the first byte that the view touches ([`View::span`]).
    ///
    /// ```
    /// use syncline_tensor::{Dtype, View};
    /// use syncline_device::{KernelSource, Scalar, WORDS_PER_ARGUMENT};
    ///
    /// let source = KernelSource::wgsl("...", "main", [64, 1, 1]);
    /// let column = View::contiguous(Dtype::F32, &[8, 16])?.index(1, 3)?;
    /// let mut words = Vec::new();
    /// source.parameters(&[column], &[0], &[Scalar::F32(1.0)], &mut words)?;
    /// assert_eq!(words[..3], [3, 1, 8]);
    /// assert_eq!(words[10], 16);
    /// assert_eq!(words[WORDS_PER_ARGUMENT..], [1.0f32.to_bits()]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A view that does not lie on whole elements, or reaches further than 32 bits can count; fewer
    /// scalars than the source names.
    pub fn parameters(
        &self,
        views: &[View],
        bound_starts: &[u64],
        scalars: &[Scalar],
        out: &mut Vec<u32>,
    ) -> Result<(), DeviceError> {
        assert_eq!(views.len(), bound_starts.len(), "a bound start for each argument");
        out.reserve(views.len() * WORDS_PER_ARGUMENT + 2 * scalars.len());
        for (arg, (view, &start)) in views.iter().zip(bound_starts).enumerate() {
            describe(view, start, out)
                .map_err(|message| DeviceError::BadArgument { arg, message })?;
        }
        match self.scalar_types() {
            None => scalars.iter().for_each(|&scalar| push(scalar, out)),
            Some(types) => {
                for (at, kind) in types.iter().enumerate() {
                    let scalar = scalars.get(at).ok_or_else(|| DeviceError::BadArgument {
                        arg: at,
                        message: format!(
                            "`{}` takes {} scalars, there are {}",
                            self.entry(),
                            types.len(),
                            scalars.len()
                        ),
                    })?;
                    push(kind.convert(*scalar), out);
                }
            }
        }
        Ok(())
    }
}

fn describe(view: &View, bound_start: u64, out: &mut Vec<u32>) -> Result<(), String> {
    let mut words = [0u32; WORDS_PER_ARGUMENT];
    words[1] = view.rank() as u32;
    for (word, &size) in words[2..].iter_mut().zip(view.shape()) {
        *word = size.try_into().map_err(|_| {
            format!("{size} elements along a dimension: compiled kernels count to {}", u32::MAX)
        })?;
    }
    if let Some((first, last)) = view.span() {
        assert!(bound_start <= first, "bound from byte {bound_start}, touched from {first}");
        let bytes = view.dtype().bytes();
        let whole = |place: i64| match place % bytes as i64 {
            0 => Ok(place / bytes as i64),
            _ => Err(format!("{view:?} does not lie on whole elements of {bytes} bytes")),
        };
        if (last - bound_start) / bytes > u64::from(u32::MAX) {
            return Err(format!(
                "{} bytes from its first element to its last: compiled kernels count {} elements",
                last - bound_start,
                u32::MAX
            ));
        }
        words[0] = whole((view.offset() - bound_start) as i64)? as u32;
        let strides = words[2 + MAX_DIMS..].iter_mut().zip(view.strides()).zip(view.shape());
        for ((word, &stride), &size) in strides {
            // Never taken, and then it may be any number.
            if size <= 1 {
                continue;
            }
            let stride = i32::try_from(whole(stride)?).map_err(|_| {
                format!("a stride of {stride} bytes: compiled kernels count {} elements", i32::MAX)
            })?;
            *word = stride as u32;
        }
    }
    out.extend(words);
    Ok(())
}

fn push(scalar: Scalar, out: &mut Vec<u32>) {
    let two = |bits: u64| [bits as u32, (bits >> 32) as u32];
    match scalar {
        Scalar::Bool(value) => out.push(value.into()),
        Scalar::U32(value) => out.push(value),
        Scalar::I32(value) => out.push(value as u32),
        Scalar::F32(value) => out.push(value.to_bits()),
        Scalar::U64(value) => out.extend(two(value)),
        Scalar::I64(value) => out.extend(two(value as u64)),
        Scalar::F64(value) => out.extend(two(value.to_bits())),
    }
}

#[cfg(test)]
mod tests {
    use syncline_tensor::Dtype;

    use super::*;

    fn words(view: View, start: u64) -> Result<Vec<u32>, DeviceError> {
        let mut out = Vec::new();
        let source = KernelSource::wgsl("", "main", [1; 3]);
        source.parameters(&[view], &[start], &[], &mut out).map(|()| out)
    }

    #[test]
    fn offsets_are_counted_from_what_is_bound() {
        let view = View::strided(Dtype::F32, 300, &[3, 2], &[-16, 4]).unwrap();
        let found = words(view, 256).unwrap();
        assert_eq!(found[..4], [11, 2, 3, 2]);
        assert_eq!(found[10..12], [-4i32 as u32, 1]);
        assert_eq!(found.len(), WORDS_PER_ARGUMENT);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let odd = View::strided(Dtype::F32, 2, &[3], &[4]).unwrap();
        assert!(words(odd, 0).unwrap_err().to_string().contains("whole elements"));
        let odd = View::strided(Dtype::F32, 0, &[3], &[6]).unwrap();
        assert!(words(odd, 0).unwrap_err().to_string().contains("whole elements"));
        let far = View::strided(Dtype::U8, 0, &[2], &[1 << 33]).unwrap();
        assert!(words(far, 0).unwrap_err().to_string().contains("count"));
        let step = View::strided(Dtype::U8, 0, &[2], &[1 << 31]).unwrap();
        assert!(words(step, 0).unwrap_err().to_string().contains("stride"));
        let many = View::strided(Dtype::U8, 0, &[1 << 33], &[0]).unwrap();
        assert!(words(many, 0).is_err());
    }

    #[test]
    fn an_empty_argument_has_a_shape_and_nothing_else() {
        let found = words(View::strided(Dtype::F32, 2, &[0, 5], &[3, 3]).unwrap(), 64).unwrap();
        assert_eq!(found[..4], [0, 2, 0, 5]);
        assert!(found[4..].iter().all(|&word| word == 0));
    }

    #[test]
    fn scalars_are_words_of_their_types() {
        let mut source = KernelSource::wgsl("", "main", [1; 3]);
        let given = [Scalar::Bool(true), Scalar::F64(1.5), Scalar::I32(-1)];
        let mut out = Vec::new();
        source.parameters(&[], &[], &given, &mut out).unwrap();
        assert_eq!(out, [1, 0, 0x3ff8_0000, u32::MAX]);
        out.clear();
        source = source.scalars([ScalarType::F32, ScalarType::I64, ScalarType::Bool]);
        source.parameters(&[], &[], &given, &mut out).unwrap();
        assert_eq!(out, [1.0f32.to_bits(), 1, 0, 1]);
        assert!(source.parameters(&[], &[], &given[..2], &mut out).is_err());
    }
}
