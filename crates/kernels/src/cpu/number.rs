//! The types that bodies compute in: `f32` for all small floats, `f64`, and `i64` for all integers.

use half::{bf16, f16};
use syncline_device::Scalar;
use syncline_tensor::Dtype;

/// A type that bodies compute in.
pub(crate) trait Number: Copy + Default + PartialOrd + Send + Sync + 'static {
    /// The number nearest to `scalar`: what compiled kernels are given for it, too.
    fn from_scalar(scalar: Scalar) -> Self;
    /// The sum; integers wrap.
    fn add(self, other: Self) -> Self;
    /// The difference; integers wrap.
    fn sub(self, other: Self) -> Self;
    /// The product; integers wrap.
    fn mul(self, other: Self) -> Self;

    /// The element at `pointer`, which is of `dtype`.
    ///
    /// # Safety
    /// `pointer` is valid for a read of an element of `dtype`, aligned or not.
    unsafe fn load(dtype: Dtype, pointer: *const u8) -> Self;

    /// Replaces the element at `pointer`, which is of `dtype`.
    ///
    /// # Safety
    /// `pointer` is valid for a write of an element of `dtype`, aligned or not.
    unsafe fn store(self, dtype: Dtype, pointer: *mut u8);
}

macro_rules! number {
    ($number:ty, $from:expr, $add:expr, $sub:expr, $mul:expr,
     $($dtype:ident($element:ty): $load:expr, $store:expr;)*) => {
        impl Number for $number {
            #[inline]
            fn from_scalar(scalar: Scalar) -> Self {
                $from(scalar)
            }
            #[inline]
            fn add(self, other: Self) -> Self {
                $add(self, other)
            }
            #[inline]
            fn sub(self, other: Self) -> Self {
                $sub(self, other)
            }
            #[inline]
            fn mul(self, other: Self) -> Self {
                $mul(self, other)
            }
            #[inline]
            unsafe fn load(dtype: Dtype, pointer: *const u8) -> Self {
                match dtype {
                    // SAFETY: the caller promises a readable element of this dtype.
                    $(Dtype::$dtype => $load(unsafe { pointer.cast::<$element>().read_unaligned() }),)*
                    other => unreachable!("{other} elements were refused by the signature"),
                }
            }
            #[inline]
            unsafe fn store(self, dtype: Dtype, pointer: *mut u8) {
                match dtype {
                    // SAFETY: the caller promises a writable element of this dtype.
                    $(Dtype::$dtype => unsafe { pointer.cast::<$element>().write_unaligned($store(self)) },)*
                    other => unreachable!("{other} elements were refused by the signature"),
                }
            }
        }
    };
}

number!(f32, Scalar::as_f32, |a, b| a + b, |a, b| a - b, |a, b| a * b,
    F32(f32): |x| x, |x| x;
    F16(f16): f16::to_f32, f16::from_f32;
    BF16(bf16): bf16::to_f32, bf16::from_f32;
);

number!(f64, Scalar::as_f64, |a, b| a + b, |a, b| a - b, |a, b| a * b,
    F64(f64): |x| x, |x| x;
    F32(f32): f64::from, |x| x as f32;
    F16(f16): f16::to_f64, f16::from_f64;
    BF16(bf16): bf16::to_f64, bf16::from_f64;
    U8(u8): f64::from, |x| x as u8;
    I8(i8): f64::from, |x| x as i8;
    U16(u16): f64::from, |x| x as u16;
    I16(i16): f64::from, |x| x as i16;
    U32(u32): f64::from, |x| x as u32;
    I32(i32): f64::from, |x| x as i32;
    U64(u64): |x| x as f64, |x| x as u64;
    I64(i64): |x| x as f64, |x| x as i64;
);

number!(i64, |scalar: Scalar| scalar.as_i64().unwrap_or_else(|| scalar.as_f64() as i64), i64::wrapping_add, i64::wrapping_sub, i64::wrapping_mul,
    U8(u8): i64::from, |x| x as u8;
    I8(i8): i64::from, |x| x as i8;
    U16(u16): i64::from, |x| x as u16;
    I16(i16): i64::from, |x| x as i16;
    U32(u32): i64::from, |x| x as u32;
    I32(i32): i64::from, |x| x as i32;
    U64(u64): |x| x as i64, |x| x as u64;
    I64(i64): |x| x, |x| x;
);

/// Runs `$body` with `$number` standing for the type that elements of `$dtype` are computed in.
macro_rules! with_number {
    ($dtype:expr, $number:ident => $body:expr) => {
        match $dtype {
            syncline_tensor::Dtype::F16
            | syncline_tensor::Dtype::BF16
            | syncline_tensor::Dtype::F32 => {
                type $number = f32;
                $body
            }
            syncline_tensor::Dtype::F64 => {
                type $number = f64;
                $body
            }
            _ => {
                type $number = i64;
                $body
            }
        }
    };
}
pub(crate) use with_number;
