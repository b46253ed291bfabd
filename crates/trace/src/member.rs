//! Members of JSON objects, taken out one by one, with errors that say where they are.

use std::str::FromStr;
use std::sync::Arc;

use serde_json::Value;
use syncline_files::unknown_member;

use super::{Extra, Place, TraceError};

/// A JSON object whose known members are taken out; the rest is kept as it came.
pub(crate) struct Members {
    map: Extra,
    /// Where the object is.
    pub(crate) place: Place,
}

impl Members {
    pub(crate) fn new(value: Value, place: Place) -> Result<Self, TraceError> {
        match value {
            Value::Object(map) => Ok(Self { map, place }),
            other => Err(shape(place, "an object", &other)),
        }
    }

    pub(crate) fn rest(self) -> Extra {
        self.map
    }

    /// Refuses members left over, unless it is for other programs.
    pub(crate) fn finish(self, known: &[&str]) -> Result<(), TraceError> {
        check_names(&self.map, known, &[], self.place)
    }

    /// Takes out `member`; a `null` is as good as none.
    pub(crate) fn take(&mut self, member: &'static str) -> Option<Value> {
        self.map.shift_remove(member).filter(|value| !value.is_null())
    }

    pub(crate) fn require(&mut self, member: &'static str) -> Result<Value, TraceError> {
        self.take(member).ok_or(TraceError::Missing { place: self.place, member })
    }

    pub(crate) fn u64(&mut self, member: &'static str) -> Result<u64, TraceError> {
        let value = self.require(member)?;
        as_u64(&value, self.place.member(member))
    }

    pub(crate) fn optional_u64(&mut self, member: &'static str) -> Result<Option<u64>, TraceError> {
        let place = self.place.member(member);
        self.take(member).map(|value| as_u64(&value, place)).transpose()
    }

    pub(crate) fn optional_text(
        &mut self,
        member: &'static str,
    ) -> Result<Option<Arc<str>>, TraceError> {
        match self.take(member) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.into())),
            Some(other) => Err(shape(self.place.member(member), "a text", &other)),
        }
    }

    /// The required text `member` as one of the names of a set.
    pub(crate) fn name<T: FromStr>(
        &mut self,
        member: &'static str,
        refuse: impl FnOnce(Place, T::Err) -> TraceError,
    ) -> Result<T, TraceError> {
        let place = self.place.member(member);
        match self.require(member)? {
            Value::String(text) => text.parse().map_err(|error| refuse(place, error)),
            other => Err(shape(place, "a text", &other)),
        }
    }

    /// The list `member`, each element through `each`; `None` where there is none.
    pub(crate) fn optional_list<T>(
        &mut self,
        member: &'static str,
        each: impl Fn(Value, Place) -> Result<T, TraceError>,
    ) -> Result<Option<Vec<T>>, TraceError> {
        let place = self.place.member(member);
        let Some(value) = self.take(member) else { return Ok(None) };
        let Value::Array(elements) = value else { return Err(shape(place, "a list", &value)) };
        (elements.into_iter().enumerate())
            .map(|(index, element)| each(element, place.element(index)))
            .collect::<Result<_, _>>()
            .map(Some)
    }

    pub(crate) fn list<T>(
        &mut self,
        member: &'static str,
        each: impl Fn(Value, Place) -> Result<T, TraceError>,
    ) -> Result<Vec<T>, TraceError> {
        let place = self.place;
        self.optional_list(member, each)?.ok_or(TraceError::Missing { place, member })
    }
}

/// Refuses names in `members` that are not in `others`, unless they are for other programs. Those
/// in `own` have been read already, so that they are here a second time.
pub(super) fn check_names(
    members: &Extra,
    own: &[&str],
    others: &[&str],
    place: Place,
) -> Result<(), TraceError> {
    let wrong = |name: &String| match own.contains(&name.as_str()) {
        true => Some(format!("the member `{name}` is given twice")),
        false if others.contains(&name.as_str()) => None,
        false => unknown_member(name, &[own, others].concat()),
    };
    let message = members.keys().find_map(wrong);
    message.map_or(Ok(()), |message| Err(TraceError::Member { place, message }))
}

pub(crate) fn as_u64(value: &Value, place: Place) -> Result<u64, TraceError> {
    let read = match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => digits(text),
        _ => None,
    };
    read.ok_or_else(|| shape(place, "an integer from 0 to 2^64 - 1", value))
}

pub(crate) fn as_i64(value: &Value, place: Place) -> Result<i64, TraceError> {
    let read = match value {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => digits(text),
        _ => None,
    };
    read.ok_or_else(|| shape(place, "an integer from -2^63 to 2^63 - 1", value))
}

/// Plain decimal digits, without the `+` that Rust's own parser lets pass.
pub(super) fn digits<T: FromStr>(text: &str) -> Option<T> {
    if text.starts_with('+') { None } else { text.parse().ok() }
}

pub(crate) fn shape(place: Place, expected: &'static str, found: &Value) -> TraceError {
    TraceError::Shape { place, expected, found: describe(found) }
}

/// A value as an error shows it: whole where it is short.
pub(crate) fn describe(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Array(elements) => format!("a list of {}", elements.len()),
        Value::Object(members) => format!("an object of {} members", members.len()),
        Value::String(text) if text.chars().count() > 40 => {
            format!("the text {:?}...", text.chars().take(40).collect::<String>())
        }
        Value::String(text) => format!("the text {text:?}"),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}
