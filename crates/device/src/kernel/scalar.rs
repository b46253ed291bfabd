//! Scalars: numbers handed to a kernel by value.

/// One number given to a kernel by value.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Scalar {
    Bool(bool),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
}

impl Scalar {
    /// As `f32`, rounded where it must be.
    pub fn as_f32(self) -> f32 {
        match self {
            Scalar::F32(value) => value,
            other => other.as_f64() as f32,
        }
    }

    /// As `f64`, rounded where it must be; `true` is 1.
    pub fn as_f64(self) -> f64 {
        match self {
            Scalar::Bool(value) => value.into(),
            Scalar::U32(value) => value.into(),
            Scalar::I32(value) => value.into(),
            Scalar::U64(value) => value as f64,
            Scalar::I64(value) => value as f64,
            Scalar::F32(value) => value.into(),
            Scalar::F64(value) => value,
        }
    }

    /// As `i64`, if it is a whole number in range; `true` is 1.
    pub fn as_i64(self) -> Option<i64> {
        match self {
            Scalar::Bool(value) => Some(value.into()),
            Scalar::U32(value) => Some(value.into()),
            Scalar::I32(value) => Some(value.into()),
            Scalar::U64(value) => value.try_into().ok(),
            Scalar::I64(value) => Some(value),
            Scalar::F32(value) => whole(value.into()),
            Scalar::F64(value) => whole(value),
        }
    }

    /// As `u64`, if it is a whole number in range; `true` is 1.
    pub fn as_u64(self) -> Option<u64> {
        match self {
            Scalar::U64(value) => Some(value),
            other => other.as_i64().and_then(|value| value.try_into().ok()),
        }
    }

    /// As a truth value: anything but zero.
    pub fn as_bool(self) -> bool {
        self.as_f64() != 0.0
    }
}

fn whole(value: f64) -> Option<i64> {
    let range = -(2f64.powi(63))..2f64.powi(63);
    (value.fract() == 0.0 && range.contains(&value)).then_some(value as i64)
}

macro_rules! from {
    ($($rust:ty => $variant:ident),*) => {$(
        impl From<$rust> for Scalar {
            fn from(value: $rust) -> Self {
                Scalar::$variant(value)
            }
        }
    )*};
}
from!(bool => Bool, u32 => U32, i32 => I32, u64 => U64, i64 => I64, f32 => F32, f64 => F64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_convert_only_without_loss() {
        assert_eq!(Scalar::from(2.0f32).as_i64(), Some(2));
        assert_eq!(Scalar::from(2.5f64).as_i64(), None);
        assert_eq!(Scalar::from(f64::NAN).as_i64(), None);
        assert_eq!(Scalar::from(1e300).as_i64(), None);
        assert_eq!(Scalar::from(-1i32).as_u64(), None);
        assert_eq!(Scalar::from(u64::MAX).as_u64(), Some(u64::MAX));
        assert_eq!(Scalar::from(u64::MAX).as_i64(), None);
        assert!(Scalar::from(true).as_bool() && !Scalar::from(0.0f32).as_bool());
    }
}
