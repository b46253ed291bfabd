//! Element types: what an element is called and how many bytes it takes.

use std::fmt;
use std::str::FromStr;

use syncline_spelling::meant;

/// The type of one element of a [`View`](crate::View).
///
/// Dependency discovery uses nothing of it but its size: overlap is decided in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Dtype {
    Bool,
    U8,
    I8,
    F8E4M3,
    F8E5M2,
    F8E8M0,
    U16,
    I16,
    F16,
    BF16,
    U32,
    I32,
    F32,
    U64,
    I64,
    F64,
    C64,
}

impl Dtype {
    /// Every element type, smallest first.
    pub const ALL: [Dtype; 17] = [
        Dtype::Bool,
        Dtype::U8,
        Dtype::I8,
        Dtype::F8E4M3,
        Dtype::F8E5M2,
        Dtype::F8E8M0,
        Dtype::U16,
        Dtype::I16,
        Dtype::F16,
        Dtype::BF16,
        Dtype::U32,
        Dtype::I32,
        Dtype::F32,
        Dtype::U64,
        Dtype::I64,
        Dtype::F64,
        Dtype::C64,
    ];

    /// Size of one element in bytes.
    #[inline]
    pub const fn bytes(self) -> u64 {
        match self {
            Dtype::Bool | Dtype::U8 | Dtype::I8 => 1,
            Dtype::F8E4M3 | Dtype::F8E5M2 | Dtype::F8E8M0 => 1,
            Dtype::U16 | Dtype::I16 | Dtype::F16 | Dtype::BF16 => 2,
            Dtype::U32 | Dtype::I32 | Dtype::F32 => 4,
            Dtype::U64 | Dtype::I64 | Dtype::F64 | Dtype::C64 => 8,
        }
    }

    /// The name used in files and on the command line, such as `bf16`.
    pub const fn name(self) -> &'static str {
        match self {
            Dtype::Bool => "bool",
            Dtype::U8 => "u8",
            Dtype::I8 => "i8",
            Dtype::F8E4M3 => "f8_e4m3",
            Dtype::F8E5M2 => "f8_e5m2",
            Dtype::F8E8M0 => "f8_e8m0",
            Dtype::U16 => "u16",
            Dtype::I16 => "i16",
            Dtype::F16 => "f16",
            Dtype::BF16 => "bf16",
            Dtype::U32 => "u32",
            Dtype::I32 => "i32",
            Dtype::F32 => "f32",
            Dtype::U64 => "u64",
            Dtype::I64 => "i64",
            Dtype::F64 => "f64",
            Dtype::C64 => "c64",
        }
    }
}

/// What numpy and torch call element types.
const ALIASES: [(&str, Dtype); 16] = [
    ("uint8", Dtype::U8),
    ("int8", Dtype::I8),
    ("float8_e4m3fn", Dtype::F8E4M3),
    ("float8_e5m2", Dtype::F8E5M2),
    ("float8_e8m0fnu", Dtype::F8E8M0),
    ("uint16", Dtype::U16),
    ("int16", Dtype::I16),
    ("float16", Dtype::F16),
    ("bfloat16", Dtype::BF16),
    ("uint32", Dtype::U32),
    ("int32", Dtype::I32),
    ("float32", Dtype::F32),
    ("uint64", Dtype::U64),
    ("int64", Dtype::I64),
    ("float64", Dtype::F64),
    ("complex64", Dtype::C64),
];

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no element type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown dtype `{name}`{meant}: expected one of bool, u8, i8, f8_e4m3, f8_e5m2, f8_e8m0, u16, i16, f16, bf16, u32, i32, f32, u64, i64, f64, c64",
    name = .0, meant = meant(.0, Dtype::ALL.map(Dtype::name))
)]
pub struct UnknownDtype(pub String);

impl FromStr for Dtype {
    type Err = UnknownDtype;

    fn from_str(name: &str) -> Result<Self, UnknownDtype> {
        Dtype::ALL
            .into_iter()
            .find(|dtype| dtype.name() == name)
            .or_else(|| ALIASES.iter().find(|(alias, _)| *alias == name).map(|&(_, dtype)| dtype))
            .ok_or_else(|| UnknownDtype(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_parses_back() {
        for dtype in Dtype::ALL {
            assert_eq!(dtype.name().parse(), Ok(dtype));
        }
        for (alias, dtype) in ALIASES {
            assert_eq!(alias.parse(), Ok(dtype));
        }
        assert!("f33".parse::<Dtype>().is_err());
    }
}
