//! A deserializer around another one that checks the names of members and remembers where an error
//! was.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, IgnoredAny, IntoDeserializer, MapAccess,
    SeqAccess, Visitor,
};

use super::{is_foreign, unknown_member};

/// Where the reader is.
#[derive(Clone, Copy)]
pub(super) enum Path<'a> {
    Root,
    Member(&'a Path<'a>, &'a str),
    Element(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Member(Path::Root, name) => f.write_str(name),
            Path::Member(parent, name) => write!(f, "{parent}.{name}"),
            Path::Element(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// What all parts of one reading share.
#[derive(Default)]
pub(super) struct Context {
    /// Where the first error was: the innermost place is the first to see it.
    failed_at: RefCell<Option<String>>,
}

impl Context {
    pub(super) fn into_place(self) -> Option<String> {
        self.failed_at.into_inner()
    }

    fn watch<T, E>(&self, path: Path<'_>, result: Result<T, E>) -> Result<T, E> {
        if result.is_err() {
            self.failed_at.borrow_mut().get_or_insert_with(|| path.to_string());
        }
        result
    }
}

/// `inner`, read strictly.
pub(super) struct StrictDeserializer<'a, D> {
    pub(super) inner: D,
    pub(super) path: Path<'a>,
    pub(super) context: &'a Context,
}

impl<'a, D> StrictDeserializer<'a, D> {
    /// The inner deserializer, and `visitor` that keeps to the names in `fields`.
    fn around<V>(self, visitor: V, fields: Option<Names>) -> (D, StrictVisitor<'a, V>) {
        (self.inner, StrictVisitor { visitor, fields, path: self.path, context: self.context })
    }
}

type Names = &'static [&'static str];

macro_rules! deserialize {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            let (inner, visitor) = self.around(visitor, None);
            inner.$method(visitor)
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for StrictDeserializer<'_, D> {
    type Error = D::Error;

    deserialize! {
        deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_i128 deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64 deserialize_char deserialize_str deserialize_string
        deserialize_bytes deserialize_byte_buf deserialize_option deserialize_unit deserialize_seq
        deserialize_map deserialize_identifier
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_ignored_any(visitor)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let (inner, visitor) = self.around(visitor, None);
        inner.deserialize_unit_struct(name, visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let (inner, visitor) = self.around(visitor, None);
        inner.deserialize_newtype_struct(name, visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let (inner, visitor) = self.around(visitor, None);
        inner.deserialize_tuple(len, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let (inner, visitor) = self.around(visitor, None);
        inner.deserialize_tuple_struct(name, len, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: Names,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let (inner, visitor) = self.around(visitor, Some(fields));
        inner.deserialize_struct(name, fields, visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: Names,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let (inner, visitor) = self.around(visitor, None);
        inner.deserialize_enum(name, variants, visitor)
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

/// A visitor that hands strict deserializers to `visitor`.
struct StrictVisitor<'a, V> {
    visitor: V,
    /// The members of a derived struct; any may come where there are none.
    fields: Option<Names>,
    path: Path<'a>,
    context: &'a Context,
}

macro_rules! visit {
    ($($method:ident($type:ty))*) => {$(
        fn $method<E: Error>(self, value: $type) -> Result<V::Value, E> {
            self.visitor.$method(value)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for StrictVisitor<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    visit! {
        visit_bool(bool) visit_i8(i8) visit_i16(i16) visit_i32(i32) visit_i64(i64) visit_i128(i128)
        visit_u8(u8) visit_u16(u16) visit_u32(u32) visit_u64(u64) visit_u128(u128) visit_f32(f32)
        visit_f64(f64) visit_char(char) visit_str(&str) visit_borrowed_str(&'de str)
        visit_string(String) visit_bytes(&[u8]) visit_borrowed_bytes(&'de [u8])
        visit_byte_buf(Vec<u8>)
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        let Self { visitor, path, context, .. } = self;
        visitor.visit_some(StrictDeserializer { inner, path, context })
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        let Self { visitor, path, context, .. } = self;
        visitor.visit_newtype_struct(StrictDeserializer { inner, path, context })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        let Self { visitor, path, context, .. } = self;
        visitor.visit_seq(StrictSeq { inner, index: 0, path, context })
    }

    fn visit_map<A: MapAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        let Self { visitor, fields, path, context } = self;
        let (seen, name) = (HashSet::new(), Name::Known(""));
        visitor.visit_map(StrictMap { inner, fields, seen, name, path, context })
    }

    /// Variants are names alone in all forms.
    fn visit_enum<A: EnumAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_enum(inner)
    }
}

struct StrictSeq<'a, A> {
    inner: A,
    index: usize,
    path: Path<'a>,
    context: &'a Context,
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for StrictSeq<'_, A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        let (path, context) = (Path::Element(&self.path, self.index), self.context);
        self.index += 1;
        context.watch(path, self.inner.next_element_seed(StrictSeed { seed, path, context }))
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

/// A member of an object.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Name {
    Known(&'static str),
    Other(String),
}

impl Name {
    fn as_str(&self) -> &str {
        match self {
            Name::Known(name) => name,
            Name::Other(name) => name,
        }
    }
}

struct StrictMap<'a, A> {
    inner: A,
    fields: Option<Names>,
    seen: HashSet<Name>,
    /// The member whose value comes next.
    name: Name,
    path: Path<'a>,
    context: &'a Context,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for StrictMap<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        loop {
            let name = self.inner.next_key_seed(NameSeed(self.fields));
            let Some(name) = self.context.watch(self.path, name)? else { return Ok(None) };
            if self.fields.is_some() && is_foreign(name.as_str()) {
                self.inner.next_value::<IgnoredAny>()?;
                continue;
            }
            if !self.seen.insert(name.clone()) {
                let message = format!("the member `{}` is given twice", name.as_str());
                return self.context.watch(self.path, Err(A::Error::custom(message)));
            }
            self.name = name;
            return seed.deserialize(self.name.as_str().into_deserializer()).map(Some);
        }
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let (path, context) = (Path::Member(&self.path, self.name.as_str()), self.context);
        context.watch(path, self.inner.next_value_seed(StrictSeed { seed, path, context }))
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

/// `seed`, with a strict deserializer.
struct StrictSeed<'a, S> {
    seed: S,
    path: Path<'a>,
    context: &'a Context,
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for StrictSeed<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<S::Value, D::Error> {
        let Self { seed, path, context } = self;
        seed.deserialize(StrictDeserializer { inner, path, context })
    }
}

/// Reads the name of a member, which must be one of the list where there is one.
struct NameSeed(Option<Names>);

impl<'de> DeserializeSeed<'de> for NameSeed {
    type Value = Name;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Name, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for NameSeed {
    type Value = Name;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a member")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Name, E> {
        let fields = self.0.unwrap_or(&[]);
        if let Some(known) = fields.iter().find(|known| **known == name) {
            return Ok(Name::Known(known));
        }
        match self.0.and_then(|fields| unknown_member(name, fields)) {
            Some(message) => Err(E::custom(message)),
            None => Ok(Name::Other(name.to_owned())),
        }
    }
}
