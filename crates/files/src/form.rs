//! Strict reading of JSON and TOML forms.
//!
//! A form that is derived with `serde` is read by [`from_json`] or [`from_toml`]. Readers written
//! by hand run inside [`read_strictly`] or read values through [`Strict`], which refuse doubled
//! members, and check the names that are left over with [`unknown_member`].

mod strict;

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, DeserializeOwned, DeserializeSeed, Deserializer};

use strict::{Context, Path, StrictDeserializer};
use syncline_spelling::meant;

/// How the names of members begin that are for other programs.
const FOREIGN: &str = "x-";

/// Why a text is not the form that it should be, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormError {
    /// The line, counted from 1.
    pub line: usize,
    /// The column, counted from 1; 0 if the text ended.
    pub column: usize,
    /// The member or element, such as `tensors[3].shards[0]`; empty for the whole.
    pub place: String,
    /// The problem.
    pub message: String,
}

impl FormError {
    /// Separates the position from the words of an error of the JSON parser.
    pub fn of_json(error: &serde_json::Error, place: Option<String>) -> Self {
        let text = error.to_string();
        let words = text.split(" at line ").next().unwrap_or_default();
        let (place, message) = match error.classify() {
            serde_json::error::Category::Data => (place.unwrap_or_default(), words.to_owned()),
            _ => (String::new(), format!("not JSON: {words}")),
        };
        Self { line: error.line(), column: error.column(), place, message }
    }

    fn of_toml(error: &toml::de::Error, text: &str, place: Option<String>) -> Self {
        let at = error.span().map_or(0, |span| span.start.min(text.len()));
        let before = text.get(..at).unwrap_or("");
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        let message = error.message().to_owned();
        Self { line, column, place: place.unwrap_or_default(), message }
    }

    /// The place in the text, such as `line 3, column 7`.
    pub fn position(&self) -> String {
        format!("line {}, column {}", self.line, self.column)
    }

    /// The problem, after the member or element that it is about.
    pub fn cause(&self) -> String {
        match self.place.as_str() {
            "" => self.message.clone(),
            place => format!("{place}: {}", self.message),
        }
    }
}

impl fmt::Display for FormError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.position(), self.cause())
    }
}

impl std::error::Error for FormError {}

/// Reads a form in JSON strictly.
///
/// ```
/// #[derive(Debug, serde::Deserialize)]
/// struct Link { latency_us: f64 }
///
/// let error = syncline_files::from_json::<Link>(br#"{"latency_ms": 3}"#).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "line 1, column 13: unknown member `latency_ms` (did you mean `latency_us`?)"
/// );
/// let link: Link = syncline_files::from_json(br#"{"latency_us": 3, "x-note": 1}"#)?;
/// assert_eq!(link.latency_us, 3.0);
/// # Ok::<(), syncline_files::FormError>(())
/// ```
pub fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, FormError> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let mut place = None;
    read_strictly(&mut deserializer, PhantomData, &mut place)
        .and_then(|form| deserializer.end().map(|()| form))
        .map_err(|error| FormError::of_json(&error, place))
}

/// Reads a form in TOML strictly.
pub fn from_toml<T: DeserializeOwned>(text: &str) -> Result<T, FormError> {
    let mut place = None;
    toml::Deserializer::parse(text)
        .and_then(|deserializer| read_strictly(deserializer, PhantomData, &mut place))
        .map_err(|error| FormError::of_toml(&error, text, place))
}

/// Reads what `seed` stands for, refusing doubled members everywhere and unknown ones of derived
/// structs.
///
/// In case of an error, `place` becomes the member or element that it is about.
pub fn read_strictly<'de, D: Deserializer<'de>, S: DeserializeSeed<'de>>(
    deserializer: D,
    seed: S,
    place: &mut Option<String>,
) -> Result<S::Value, D::Error> {
    let context = Context::default();
    let result = seed.deserialize(StrictDeserializer {
        inner: deserializer,
        path: Path::Root,
        context: &context,
    });
    if result.is_err() {
        *place = context.into_place();
    }
    result
}

/// A seed that reads a `T` strictly in the midst of another reader.
#[derive(Debug)]
pub struct Strict<T>(PhantomData<T>);

impl<T> Strict<T> {
    /// The seed.
    pub const NEW: Self = Self(PhantomData);
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for Strict<T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        read_strictly(deserializer, PhantomData, &mut None)
    }
}

/// Returns `true` for the name of a member that is for other programs.
pub fn is_foreign(name: &str) -> bool {
    name.starts_with(FOREIGN)
}

/// Returns what to say of a member that the form does not have, or `None` if it may have it.
pub fn unknown_member(name: &str, known: &[&str]) -> Option<String> {
    if is_foreign(name) || known.contains(&name) {
        return None;
    }
    let near = meant(name, known.iter().copied());
    if !near.is_empty() {
        return Some(format!("unknown member `{name}`{near}"));
    }
    let known: Vec<_> = known.iter().map(|name| format!("`{name}`")).collect();
    Some(format!("unknown member `{name}`; known are {}", known.join(", ")))
}

#[cfg(test)]
mod tests;
