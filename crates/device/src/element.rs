//! Element types of Rust, and how they map to those of views.

use half::{bf16, f16};
use syncline_tensor::Dtype;

/// A Rust type that one element of a view can be read as.
///
/// # Safety
/// Every bit pattern must be a value of the type, the type must have no padding, and its size must
/// be that of every dtype for which [`Element::holds`] is true.
pub unsafe trait Element: Copy + Send + Sync + 'static {
    /// The dtype of a view made for this type.
    const DTYPE: Dtype;

    /// Whether elements of `dtype` may be read as this type: its own dtype, and for unsigned
    /// integers any of the same size, so that formats without a Rust type (such as fp8) are reached
    /// as their bits.
    fn holds(dtype: Dtype) -> bool {
        dtype == Self::DTYPE
    }
}

macro_rules! element {
    ($($rust:ty => $dtype:ident),* $(,)?) => {$(
        // SAFETY: a primitive number (or a transparent wrapper of one) without padding, any bits
        // valid, of the size of its own dtype, which alone it holds.
        unsafe impl Element for $rust {
            const DTYPE: Dtype = Dtype::$dtype;
        }
    )*};
}

macro_rules! bits {
    ($($rust:ty => $dtype:ident),* $(,)?) => {$(
        // SAFETY: an unsigned integer has no padding and any bits are valid; sizes are compared.
        unsafe impl Element for $rust {
            const DTYPE: Dtype = Dtype::$dtype;
            fn holds(dtype: Dtype) -> bool {
                dtype.bytes() == size_of::<Self>() as u64
            }
        }
    )*};
}

element!(i8 => I8, i16 => I16, i32 => I32, i64 => I64, f32 => F32, f64 => F64, f16 => F16, bf16 => BF16);
bits!(u8 => U8, u16 => U16, u32 => U32, u64 => U64);

/// The bytes of `elements`.
pub(crate) fn as_bytes<T: Element>(elements: &[T]) -> &[u8] {
    // SAFETY: an `Element` has no padding, so that all its bytes are initialised; `u8` needs no
    // alignment.
    unsafe { std::slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) }
}

/// The bytes of `elements`, to be overwritten.
pub(crate) fn as_bytes_mut<T: Element>(elements: &mut [T]) -> &mut [u8] {
    // SAFETY: as in `as_bytes`; whatever bytes are written, they are values of `T`.
    unsafe { std::slice::from_raw_parts_mut(elements.as_mut_ptr().cast(), size_of_val(elements)) }
}
