//! Reading the JSON form, one task at a time.
//!
//! The lists are read as streams: a task is turned into a [`TraceTask`] as soon as its object has
//! ended, so that the generic form of the whole file never exists. At first tasks are read straight
//! from the text (`json_task`); a file that is not as usual is read anew with the generic form of
//! each task, which can name its defect.

use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use syncline_deps::ScopeKind;
use syncline_files::{FormError, Strict, read_strictly};
use syncline_tensor::{Access, Arg, BufferId, Dtype, View};

use super::json_task::Tasks;
use super::member::{Members, as_i64, as_u64, describe, shape};
use super::{
    Place, Trace, TraceArg, TraceBuffer, TraceError, TraceLane, TraceScope, TraceTask, Unwritten,
};

/// The name of the format in the file's head.
pub(super) const FORMAT: &str = "syncline-trace";
/// The version of the format that is written, and the only one that is read.
pub(super) const VERSION: u64 = 1;

impl Trace {
    /// Reads the JSON form and checks it with [`Trace::validate`].
    pub fn from_json(bytes: &[u8]) -> Result<Self, TraceError> {
        let document = match Document::read(bytes, Way::Straight) {
            Ok(document) => document,
            Err(_) => Document::read(bytes, Way::Careful)?,
        };
        check_head(document.format, document.version, FORMAT, VERSION)?;
        for (member, seen) in [("buffers", document.buffers_seen), ("tasks", document.tasks_seen)] {
            if !seen {
                return Err(TraceError::Missing { place: Place::ROOT, member });
            }
        }
        document.trace.validate()?;
        Ok(document.trace)
    }
}

/// Checks the members `format` and `version` of a file.
pub(crate) fn check_head(
    format: Option<Value>,
    version: Option<Value>,
    expected: &'static str,
    supported: u64,
) -> Result<(), TraceError> {
    let place = Place::ROOT;
    match format.ok_or(TraceError::Missing { place, member: "format" })? {
        Value::String(found) if found == expected => (),
        other => return Err(TraceError::Format { expected, found: describe(&other) }),
    }
    let version = version.ok_or(TraceError::Missing { place, member: "version" })?;
    if as_u64(&version, place.member("version"))? != supported {
        return Err(TraceError::Version { found: version.to_string(), supported });
    }
    Ok(())
}

/// How tasks are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Way {
    /// Straight from the text; an error says nothing.
    Straight,
    /// By way of generic values.
    #[default]
    Careful,
}

#[derive(Default)]
struct Document {
    way: Way,
    trace: Trace,
    format: Option<Value>,
    version: Option<Value>,
    buffers_seen: bool,
    tasks_seen: bool,
    /// The error behind the one that the parser was stopped with.
    failure: Option<TraceError>,
}

impl Document {
    fn read(bytes: &[u8], way: Way) -> Result<Self, TraceError> {
        let mut document = Self { way, ..Self::default() };
        let mut deserializer = serde_json::Deserializer::from_slice(bytes);
        let mut place = None;
        let seed = DocumentSeed(&mut document);
        let read = match way {
            Way::Straight => seed.deserialize(&mut deserializer),
            Way::Careful => read_strictly(&mut deserializer, seed, &mut place),
        };
        match read.and_then(|()| deserializer.end()) {
            Ok(()) => Ok(document),
            Err(error) => {
                let of_parser = || FormError::of_json(&error, place).into();
                Err(document.failure.unwrap_or_else(of_parser))
            }
        }
    }
}

struct DocumentSeed<'a>(&'a mut Document);

impl<'de> DeserializeSeed<'de> for DocumentSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for DocumentSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with the members format, version, buffers and tasks")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Document { way, trace, format, version, buffers_seen, tasks_seen, failure } = self.0;
        let mut seen = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            // The careful way says so by itself, with the place.
            if !seen.insert(key.clone()) {
                return Err(A::Error::custom("a member that is given twice"));
            }
            match key.as_str() {
                "format" => {
                    // Told at once: the rest of another format's file would be refused for odd
                    // reasons.
                    let found = map.next_value_seed(Strict::<Value>::NEW)?;
                    if found.as_str() != Some(FORMAT) {
                        let error =
                            TraceError::Format { expected: FORMAT, found: describe(&found) };
                        return Err(stop(failure, error));
                    }
                    *format = Some(found);
                }
                "version" => *version = Some(map.next_value_seed(Strict::NEW)?),
                "buffers" => {
                    *buffers_seen = true;
                    let list = List::new("buffers", &mut trace.buffers, buffer, failure);
                    map.next_value_seed(list)?;
                }
                "scopes" => {
                    let list = List::new("scopes", &mut trace.scopes, scope, failure);
                    map.next_value_seed(list)?;
                }
                "tasks" => {
                    *tasks_seen = true;
                    match way {
                        Way::Straight => {
                            trace.tasks.clear();
                            map.next_value_seed(Tasks(&mut trace.tasks))?;
                        }
                        Way::Careful => {
                            let list = List::new("tasks", &mut trace.tasks, task, failure);
                            map.next_value_seed(list)?;
                        }
                    }
                }
                "stats" => {
                    let list = List::new("stats", &mut trace.stats, |value, _| Ok(value), failure);
                    map.next_value_seed(list)?;
                }
                _ => drop(trace.extra.insert(key, map.next_value_seed(Strict::NEW)?)),
            }
        }
        Ok(())
    }
}

fn stop<E: Error>(failure: &mut Option<TraceError>, error: TraceError) -> E {
    let stopped = E::custom(&error);
    *failure = Some(error);
    stopped
}

type Read<T> = fn(Value, Place) -> Result<T, TraceError>;

/// A list whose elements are turned into `T` one by one.
struct List<'a, T> {
    name: &'static str,
    into: &'a mut Vec<T>,
    read: Read<T>,
    failure: &'a mut Option<TraceError>,
}

impl<'a, T> List<'a, T> {
    fn new(
        name: &'static str,
        into: &'a mut Vec<T>,
        read: Read<T>,
        failure: &'a mut Option<TraceError>,
    ) -> Self {
        into.clear();
        Self { name, into, read, failure }
    }
}

impl<'de, T> DeserializeSeed<'de> for List<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        // By way of `any`, so that a wrong kind of value is named in the error.
        deserializer.deserialize_any(self)
    }
}

impl<'de, T> Visitor<'de> for List<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list for the member `{}`", self.name)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        while let Some(value) = elements.next_element_seed(Strict::<Value>::NEW)? {
            match (self.read)(value, Place::entry(self.name, self.into.len())) {
                Ok(element) => self.into.push(element),
                Err(error) => return Err(stop(self.failure, error)),
            }
        }
        Ok(())
    }
}

fn buffer(value: Value, place: Place) -> Result<TraceBuffer, TraceError> {
    let mut members = Members::new(value, place)?;
    let id = members.u64("id")?;
    members.place.id = Some(id);
    Ok(TraceBuffer {
        id: BufferId(id),
        bytes: members.u64("bytes")?,
        name: members.optional_text("name")?,
        released_at: members.optional_u64("released_at")?,
        extra: members.rest(),
    })
}

fn scope(value: Value, place: Place) -> Result<TraceScope, TraceError> {
    let mut members = Members::new(value, place)?;
    Ok(TraceScope {
        kind: scope_kind(&members.require("kind")?, place.member("kind"))?,
        parent: optional_u32(&mut members, "parent")?,
        name: members.optional_text("name")?,
        extra: members.rest(),
    })
}

fn task(value: Value, place: Place) -> Result<TraceTask, TraceError> {
    let mut members = Members::new(value, place)?;
    let id = members.u64("id")?;
    members.place.id = Some(id);
    let place = members.place;
    let scope = members.take("scope");
    let deps = members.optional_list("deps", |value, place| as_u64(&value, place))?;
    let unwritten = Unwritten { scope: scope.is_none(), deps: deps.is_none() };
    let args = members.take("args").ok_or(TraceError::Missing { place, member: "args" })?;
    Ok(TraceTask {
        name: members.optional_text("name")?,
        scope: scope
            .map_or(Ok(ScopeKind::Auto), |kind| scope_kind(&kind, place.member("scope")))?,
        scope_id: optional_u32(&mut members, "scope_id")?,
        deps: deps.unwrap_or_default(),
        args: arguments(args, place)?,
        device: members.take("device").map(|value| device(value, place)).transpose()?,
        start_ns: members.optional_u64("start_ns")?,
        end_ns: members.optional_u64("end_ns")?,
        lane: members.take("lane").map(|value| lane(value, place)).transpose()?,
        retired_at: members.optional_u64("retired_at")?,
        unwritten,
        extra: members.rest(),
        ..TraceTask::bare(id)
    })
}

fn arguments(value: Value, task: Place) -> Result<Vec<TraceArg>, TraceError> {
    let Value::Array(values) = value else {
        return Err(shape(task.member("args"), "a list", &value));
    };
    (values.into_iter().enumerate())
        .map(|(index, value)| argument(value, task.arg(index)))
        .collect()
}

fn argument(value: Value, place: Place) -> Result<TraceArg, TraceError> {
    let mut members = Members::new(value, place)?;
    let access: Access =
        members.name("access", |place, source| TraceError::Access { place, source })?;
    let buffer = BufferId(members.u64("buffer")?);
    let offset = members.u64("offset")?;
    let dtype: Dtype =
        members.name("dtype", |place, source| TraceError::Dtype { place, source })?;
    let shape = members.list("shape", |value, place| as_u64(&value, place))?;
    let strides = members.list("strides", |value, place| as_i64(&value, place))?;
    let view = View::strided(dtype, offset, &shape, &strides)
        .map_err(|source| TraceError::View { place, source })?;
    Ok(TraceArg { arg: Arg::new(access, buffer, view), extra: members.rest() })
}

fn scope_kind(value: &Value, place: Place) -> Result<ScopeKind, TraceError> {
    match value.as_str() {
        Some("auto") => Ok(ScopeKind::Auto),
        Some("manual") => Ok(ScopeKind::Manual),
        _ => Err(shape(place, "\"auto\" or \"manual\"", value)),
    }
}

fn optional_u32(members: &mut Members, member: &'static str) -> Result<Option<u32>, TraceError> {
    let place = members.place.member(member);
    match members.take(member) {
        None => Ok(None),
        Some(value) => match as_u64(&value, place).map(u32::try_from) {
            Ok(Ok(number)) => Ok(Some(number)),
            _ => Err(shape(place, "the position of a scope", &value)),
        },
    }
}

pub(crate) fn device(value: Value, task: Place) -> Result<Value, TraceError> {
    let fits = match &value {
        Value::String(_) => true,
        Value::Array(choices) => choices.iter().all(Value::is_string),
        _ => false,
    };
    if fits {
        Ok(value)
    } else {
        Err(shape(task.member("device"), "a device or a list of devices", &value))
    }
}

pub(super) fn lane(value: Value, task: Place) -> Result<TraceLane, TraceError> {
    match &value {
        Value::String(name) => Ok(TraceLane::Name(name.as_str().into())),
        Value::Number(number) if number.is_u64() => {
            Ok(TraceLane::Number(number.as_u64().unwrap_or_default()))
        }
        _ => Err(shape(task.member("lane"), "a number or a name", &value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the straight way takes must equal the result of the careful way, and it must take
    /// usual tasks.
    fn both(task: &str) -> (bool, Result<Trace, String>) {
        let text = format!(
            r#"{{"format": "syncline-trace", "version": 1, "buffers": [{{"id": 0, "bytes": 64}}], "tasks": [{task}]}}"#
        );
        let careful = Document::read(text.as_bytes(), Way::Careful);
        let careful = careful.map(|read| read.trace).map_err(|error| error.to_string());
        let straight = Document::read(text.as_bytes(), Way::Straight);
        if let Ok(straight) = &straight {
            assert_eq!(Ok(&straight.trace), careful.as_ref(), "{text}");
        }
        (straight.is_ok(), careful)
    }

    const ARG: &str = r#"{"access": "inout", "buffer": 0, "offset": "4", "dtype": "f32", "shape": [2, 3], "strides": [-16, "4"]}"#;

    #[test]
    fn usual_tasks_are_read_straight() {
        let full = format!(
            r#"{{"id": 3, "name": "a", "kernel": "fill", "scope": "manual", "deps": [], "args": [{ARG}, {ARG}],
               "device": ["cpu:0", "cpu"], "start_ns": 1, "end_ns": "9007199254740993", "lane": "cpu:0/1",
               "scope_id": 0, "retired_at": 7, "scalars": {{"alpha": -1.5}}, "blocks": null}}"#
        );
        let shifted = ARG.replace(r#""offset": "4""#, r#""offset": 40"#);
        for task in [
            full.replace(ARG, &shifted),
            format!(r#"{{"args": [{}], "id": 0}}"#, shifted.replace("}", r#", "note": [1, {}]}"#)),
            r#"{"id": 1, "args": [], "lane": 4, "device": "cpu"}"#.to_owned(),
        ] {
            let (is_straight, careful) = both(&task);
            assert!(is_straight, "{task}\n{careful:?}");
        }
    }

    #[test]
    fn unusual_tasks_are_left_to_the_careful_way() {
        let wrong = [
            ("\"access\": \"inout\"", "\"access\": \"in\""),
            ("\"access\": \"inout\", ", ""),
            ("\"buffer\": 0", "\"buffer\": -1"),
            ("\"buffer\": 0", "\"buffer\": 0.5"),
            ("\"offset\": \"4\"", "\"offset\": \"+4\""),
            ("\"shape\": [2, 3]", "\"shape\": [1, 1, 1, 1, 1, 1, 1, 1, 1]"),
            ("\"shape\": [2, 3]", "\"shape\": [2]"),
            ("\"shape\": [2, 3]", "\"shape\": 2"),
            ("\"id\": 0", "\"id\": null"),
            ("\"id\": 0", "\"id\": 0, \"id\": 1"),
            ("\"id\": 0", "\"id\": 0, \"name\": 3"),
            ("\"id\": 0", "\"id\": 0, \"name\": null"),
            ("\"id\": 0", "\"id\": 0, \"scope\": \"autos\""),
            ("\"id\": 0", "\"id\": 0, \"lane\": 1.5"),
            ("\"id\": 0", "\"id\": 0, \"device\": 1"),
            ("\"id\": 0", "\"id\": 0, \"device\": null"),
            ("\"id\": 0", "\"id\": 0, \"deps\": [\"x\"]"),
            ("\"id\": 0", "\"id\": 0, \"scope_id\": 4294967296"),
            ("\"id\": 0", "\"id\": 0, \"x\": 1, \"x\": 2"),
            ("\"args\": ", "\"argz\": "),
        ];
        let good = format!(r#"{{"id": 0, "args": [{}]}}"#, ARG.replace("[-16", "[16"));
        assert!(both(&good).0);
        for (from, to) in wrong {
            assert!(good.contains(from), "{from}");
            assert!(!both(&good.replace(from, to)).0, "{to}");
        }
    }
}
