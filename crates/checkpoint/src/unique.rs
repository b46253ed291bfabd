//! JSON objects with each member once: of two of one name, readers would silently take the last.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// What the members of an object are collected in.
pub(crate) trait Members: Default {
    /// Reads the value of the member `name`; returns `false` if it was there before.
    fn read<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error>;
}

impl<T: for<'de> Deserialize<'de>> Members for BTreeMap<String, T> {
    fn read<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
        Ok(self.insert(name.to_owned(), map.next_value()?).is_none())
    }
}

/// An object; reading it fails if a name is there twice.
#[derive(Debug)]
pub(crate) struct Unique<T>(pub(crate) T);

impl<'de, T: Members> Deserialize<'de> for Unique<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(UniqueVisitor(PhantomData))
    }
}

struct UniqueVisitor<T>(PhantomData<T>);

impl<'de, T: Members> Visitor<'de> for UniqueVisitor<T> {
    type Value = Unique<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Unique<T>, A::Error> {
        let mut members = T::default();
        while let Some(name) = map.next_key::<String>()? {
            if !members.read(&name, &mut map)? {
                return Err(A::Error::custom(format_args!("`{name}` is there twice")));
            }
        }
        Ok(Unique(members))
    }
}
