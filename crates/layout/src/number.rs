//! Whole numbers in JSON: beyond 2^53 they are written as text, and readers take both.

use std::fmt;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The largest number up to which every whole number is exact in all JSON readers.
const EXACT_MAX: u64 = 1 << 53;

/// A whole number as files have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Number(pub(crate) u64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0 <= EXACT_MAX {
            serializer.serialize_u64(self.0)
        } else {
            serializer.collect_str(&self.0)
        }
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberVisitor)
    }
}

struct NumberVisitor;

impl Visitor<'_> for NumberVisitor {
    type Value = Number;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number of at least 0")
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Number, E> {
        Ok(Number(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Number, E> {
        let negative = || E::invalid_value(de::Unexpected::Signed(value), &self);
        u64::try_from(value).map(Number).map_err(|_| negative())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Number, E> {
        let wrong = || E::invalid_value(de::Unexpected::Str(text), &self);
        text.parse().map(Number).map_err(|_| wrong())
    }
}
