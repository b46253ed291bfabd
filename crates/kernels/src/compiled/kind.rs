//! Kinds: the numbers that compiled kernels compute in, and which one an element is loaded as.

use syncline_device::ScalarType;
use syncline_tensor::Dtype;

/// A type of numbers that a compiled kernel computes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    F32,
    F64,
    I32,
    U32,
    I64,
    U64,
}

impl Kind {
    /// What elements of `dtype` are computed in: the smallest kind that holds them all.
    pub(crate) fn of(dtype: Dtype) -> Self {
        match dtype {
            Dtype::F32 | Dtype::F16 | Dtype::BF16 => Kind::F32,
            Dtype::F64 => Kind::F64,
            Dtype::I8 | Dtype::I16 | Dtype::I32 => Kind::I32,
            Dtype::U8 | Dtype::U16 | Dtype::U32 => Kind::U32,
            Dtype::I64 => Kind::I64,
            Dtype::U64 => Kind::U64,
            other => unreachable!("{other} elements were refused"),
        }
    }

    /// Whether these are floating-point numbers.
    pub(crate) fn is_float(self) -> bool {
        matches!(self, Kind::F32 | Kind::F64)
    }

    /// Whether one takes 64 bits.
    pub(crate) fn is_wide(self) -> bool {
        matches!(self, Kind::F64 | Kind::I64 | Kind::U64)
    }

    /// The type as which a scalar of this kind is handed over. All integers are: arithmetic modulo
    /// 2^32 on the low word of a 64-bit one is what the CPU does with the whole of it.
    pub(crate) fn scalar(self) -> ScalarType {
        match self {
            Kind::F32 => ScalarType::F32,
            Kind::F64 => ScalarType::F64,
            _ => ScalarType::I64,
        }
    }
}

/// The unsigned integers of the same size, for kernels that move elements and need not know what
/// they mean.
pub(crate) fn bits_of(dtype: Dtype) -> Dtype {
    match dtype.bytes() {
        1 => Dtype::U8,
        2 => Dtype::U16,
        4 => Dtype::U32,
        _ => Dtype::U64,
    }
}
