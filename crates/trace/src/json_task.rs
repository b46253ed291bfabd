//! Reading tasks of the JSON form straight from the text, without a generic form in between.
//!
//! A million tasks are read in half the time that way. An unusual task (a member given twice, a
//! `null`, a wrong type) is refused here without a word: the reader then begins anew by the careful
//! way, which names the defect and its place.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use syncline_deps::ScopeKind;
use syncline_files::Strict;
use syncline_tensor::{Access, Arg, BufferId, Dtype, MAX_DIMS, View};

use super::json::lane;
use super::member::digits;
use super::{Extra, Place, TraceArg, TraceTask, Unwritten, device};

/// A list of tasks, appended to the tasks read before.
pub(super) struct Tasks<'a>(pub(super) &'a mut Vec<TraceTask>);

impl<'de> DeserializeSeed<'de> for Tasks<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Tasks<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of tasks")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        let mut scratch = Scratch::default();
        while let Some(task) = elements.next_element_seed(Task(&mut scratch))? {
            self.0.push(task);
        }
        Ok(())
    }
}

/// What tasks are put together in: their own lists are then made as long as they must be.
#[derive(Default)]
struct Scratch {
    args: Vec<TraceArg>,
    numbers: Vec<u64>,
}

struct Task<'a>(&'a mut Scratch);

impl<'de> DeserializeSeed<'de> for Task<'_> {
    type Value = TraceTask;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<TraceTask, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Task<'_> {
    type Value = TraceTask;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a task")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TraceTask, A::Error> {
        const MEMBERS: [&str; 11] = [
            "id",
            "name",
            "scope",
            "deps",
            "args",
            "device",
            "start_ns",
            "end_ns",
            "lane",
            "scope_id",
            "retired_at",
        ];
        let Scratch { args, numbers } = self.0;
        let mut task = TraceTask::bare(0);
        task.unwritten = Unwritten { scope: true, deps: true };
        let mut seen = Seen::default();
        while let Some(key) = map.next_key_seed(Key(&MEMBERS))? {
            let member = match key {
                Member::Known(at) => MEMBERS[seen.once(at)?],
                Member::Other(name) => {
                    insert(&mut task.extra, name, map.next_value_seed(Strict::NEW)?)?;
                    continue;
                }
            };
            match member {
                "id" => task.id = map.next_value_seed(Number::NEW)?,
                "name" => {
                    task.name = Some(map.next_value_seed(Text(|text: &str| Some(Arc::from(text))))?)
                }
                "scope" => {
                    task.unwritten.scope = false;
                    task.scope = map.next_value_seed(Text(scope_kind))?;
                }
                "deps" => {
                    task.unwritten.deps = false;
                    numbers.clear();
                    map.next_value_seed(Each(Number::<u64>::NEW, |dep| push(numbers, dep)))?;
                    task.deps = numbers.as_slice().to_vec();
                }
                "args" => {
                    args.clear();
                    map.next_value_seed(Each(Argument, |arg| push(args, arg)))?;
                    task.args = Vec::with_capacity(args.len());
                    task.args.append(args);
                }
                "device" => task.device = Some(map.next_value_seed(Generic(device))?),
                "lane" => task.lane = Some(map.next_value_seed(Generic(lane))?),
                "start_ns" => task.start_ns = Some(map.next_value_seed(Number::NEW)?),
                "end_ns" => task.end_ns = Some(map.next_value_seed(Number::NEW)?),
                "scope_id" => task.scope_id = Some(map.next_value_seed(Number::NEW)?),
                _ => task.retired_at = Some(map.next_value_seed(Number::NEW)?),
            }
        }
        // `id` and `args`.
        seen.all(0b10001)?;
        Ok(task)
    }
}

#[derive(Clone, Copy)]
struct Argument;

impl<'de> DeserializeSeed<'de> for Argument {
    type Value = TraceArg;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<TraceArg, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Argument {
    type Value = TraceArg;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an argument")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TraceArg, A::Error> {
        const MEMBERS: [&str; 6] = ["access", "buffer", "offset", "dtype", "shape", "strides"];
        let (mut access, mut dtype) = (Access::Input, Dtype::U8);
        let (mut buffer, mut offset) = (0u64, 0u64);
        let (mut shape, mut strides) = (Sizes::<u64>::default(), Sizes::<i64>::default());
        let mut extra = Extra::new();
        let mut seen = Seen::default();
        while let Some(key) = map.next_key_seed(Key(&MEMBERS))? {
            let member = match key {
                Member::Known(at) => MEMBERS[seen.once(at)?],
                Member::Other(name) => {
                    insert(&mut extra, name, map.next_value_seed(Strict::NEW)?)?;
                    continue;
                }
            };
            match member {
                "access" => access = map.next_value_seed(Text(|text: &str| text.parse().ok()))?,
                "buffer" => buffer = map.next_value_seed(Number::NEW)?,
                "offset" => offset = map.next_value_seed(Number::NEW)?,
                "dtype" => dtype = map.next_value_seed(Text(|text: &str| text.parse().ok()))?,
                "shape" => map.next_value_seed(Each(Number::NEW, |size| shape.push(size)))?,
                _ => map.next_value_seed(Each(Number::NEW, |stride| strides.push(stride)))?,
            }
        }
        seen.all(0b111111)?;
        let view =
            View::strided(dtype, offset, shape.all(), strides.all()).map_err(A::Error::custom)?;
        Ok(TraceArg { arg: Arg::new(access, BufferId(buffer), view), extra })
    }
}

/// The sizes of a view, in place.
#[derive(Default)]
struct Sizes<T> {
    values: [T; MAX_DIMS],
    count: usize,
}

impl<T> Sizes<T> {
    fn push(&mut self, value: T) -> bool {
        let place = self.values.get_mut(self.count);
        self.count += 1;
        place.map(|place| *place = value).is_some()
    }

    fn all(&self) -> &[T] {
        &self.values[..self.count]
    }
}

fn push<T>(list: &mut Vec<T>, value: T) -> bool {
    list.push(value);
    true
}

fn insert<E: Error>(extra: &mut Extra, name: String, value: Value) -> Result<(), E> {
    match extra.insert(name, value) {
        None => Ok(()),
        Some(_) => Err(refused()),
    }
}

fn scope_kind(text: &str) -> Option<ScopeKind> {
    match text {
        "auto" => Some(ScopeKind::Auto),
        "manual" => Some(ScopeKind::Manual),
        _ => None,
    }
}

/// The careful way knows better; this text is never shown.
fn refused<E: Error>() -> E {
    E::custom("not as usual")
}

/// Which of the known members have come, as bits.
#[derive(Default)]
struct Seen(u32);

impl Seen {
    fn once<E: Error>(&mut self, at: usize) -> Result<usize, E> {
        let before = self.0;
        self.0 |= 1 << at;
        if before == self.0 { Err(refused()) } else { Ok(at) }
    }

    fn all<E: Error>(&self, wanted: u32) -> Result<(), E> {
        if self.0 & wanted == wanted { Ok(()) } else { Err(refused()) }
    }
}

/// The name of a member.
enum Member {
    Known(usize),
    Other(String),
}

struct Key<'a>(&'a [&'a str]);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = Member;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Member, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = Member;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Member, E> {
        let known = self.0.iter().position(|known| *known == name);
        Ok(known.map_or_else(|| Member::Other(name.to_owned()), Member::Known))
    }
}

/// A whole number, or one as a text.
#[derive(Clone, Copy)]
struct Number<T>(PhantomData<T>);

impl<T> Number<T> {
    const NEW: Self = Self(PhantomData);
}

impl<'de, T: TryFrom<u64> + TryFrom<i64> + FromStr> DeserializeSeed<'de> for Number<T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<T: TryFrom<u64> + TryFrom<i64> + FromStr> Visitor<'_> for Number<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number")
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<T, E> {
        T::try_from(value).map_err(|_| refused())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<T, E> {
        T::try_from(value).map_err(|_| refused())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        digits(text).ok_or_else(refused)
    }
}

/// A text that stands for something.
struct Text<F>(F);

impl<'de, T, F: FnOnce(&str) -> Option<T>> DeserializeSeed<'de> for Text<F> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<T, F: FnOnce(&str) -> Option<T>> Visitor<'_> for Text<F> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.0)(text).ok_or_else(refused)
    }
}

/// A value of any kind, and what it stands for.
struct Generic<T>(fn(Value, Place) -> Result<T, super::TraceError>);

impl<'de, T> DeserializeSeed<'de> for Generic<T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        let value = Strict::<Value>::NEW.deserialize(deserializer)?;
        // A `null` is as good as none; the careful way knows.
        (self.0)(value, Place::ROOT).map_err(D::Error::custom)
    }
}

/// A list, each element read by the first and taken by the second, which says whether it has room.
struct Each<S, F>(S, F);

impl<'de, S, F> DeserializeSeed<'de> for Each<S, F>
where
    S: DeserializeSeed<'de> + Copy,
    F: FnMut(S::Value) -> bool,
{
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, S, F> Visitor<'de> for Each<S, F>
where
    S: DeserializeSeed<'de> + Copy,
    F: FnMut(S::Value) -> bool,
{
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut elements: A) -> Result<(), A::Error> {
        while let Some(element) = elements.next_element_seed(self.0)? {
            if !(self.1)(element) {
                return Err(refused());
            }
        }
        Ok(())
    }
}
