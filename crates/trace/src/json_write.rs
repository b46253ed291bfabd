//! Writing the JSON form: one buffer, scope or task a line, so that people and `diff` can read it.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{Formatter, Serializer};
use syncline_deps::ScopeKind;

use super::json::{FORMAT, VERSION};
use super::{Extra, Trace, TraceArg, TraceBuffer, TraceLane, TraceScope, TraceTask};

/// The largest integer up to which every reader of JSON is exact.
const EXACT_MAX: u64 = 1 << 53;

impl Trace {
    /// The JSON form as a text.
    pub fn to_json(&self) -> String {
        let mut bytes = Vec::new();
        self.write_json(&mut bytes).expect("writing to memory does not fail");
        String::from_utf8(bytes).expect("JSON is UTF-8")
    }

    /// Writes the JSON form. Many small writes: give it a buffered writer.
    pub fn write_json(&self, mut out: impl Write) -> io::Result<()> {
        write!(out, "{{\"format\": \"{FORMAT}\", \"version\": {VERSION}")?;
        for (key, value) in &self.extra {
            write!(out, ",\n {}: {}", spaced(key), spaced(value))?;
        }
        list(&mut out, "buffers", &self.buffers, buffer)?;
        if !self.scopes.is_empty() {
            list(&mut out, "scopes", &self.scopes, scope)?;
        }
        list(&mut out, "tasks", &self.tasks, task)?;
        if !self.stats.is_empty() {
            list(&mut out, "stats", &self.stats, spaced)?;
        }
        out.write_all(b"}\n")
    }
}

fn list<T>(
    out: &mut impl Write,
    name: &str,
    elements: &[T],
    one: impl Fn(&T) -> String,
) -> io::Result<()> {
    write!(out, ",\n \"{name}\": [")?;
    for (index, element) in elements.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        write!(out, "{comma}\n  {}", one(element))?;
    }
    out.write_all(b"]")
}

fn buffer(buffer: &TraceBuffer) -> String {
    let mut object = Object::default();
    object.put("id", integer(buffer.id.0));
    object.put("bytes", integer(buffer.bytes));
    object.text("name", buffer.name.as_deref());
    object.integer("released_at", buffer.released_at);
    object.extra(&buffer.extra);
    object.end()
}

fn scope(scope: &TraceScope) -> String {
    let mut object = Object::default();
    object.put("kind", spaced(kind_name(scope.kind)));
    object.integer("parent", scope.parent.map(u64::from));
    object.text("name", scope.name.as_deref());
    object.extra(&scope.extra);
    object.end()
}

fn task(task: &TraceTask) -> String {
    let mut object = Object::default();
    object.put("id", integer(task.id));
    object.text("name", task.name.as_deref());
    object.extra(&task.extra);
    if let Some(device) = &task.device {
        object.put("device", spaced(device));
    }
    if task.scope != ScopeKind::Auto || !task.unwritten.scope {
        object.put("scope", spaced(kind_name(task.scope)));
    }
    object.integer("scope_id", task.scope_id.map(u64::from));
    object.integer("start_ns", task.start_ns);
    object.integer("end_ns", task.end_ns);
    match &task.lane {
        Some(TraceLane::Number(number)) => object.put("lane", integer(*number)),
        Some(TraceLane::Name(name)) => object.text("lane", Some(name)),
        None => (),
    }
    object.integer("retired_at", task.retired_at);
    if !task.deps.is_empty() || !task.unwritten.deps {
        object.put("deps", array(task.deps.iter().map(|&dep| integer(dep))));
    }
    object.put("args", array(task.args.iter().map(argument)));
    object.end()
}

fn argument(argument: &TraceArg) -> String {
    let (arg, view) = (&argument.arg, &argument.arg.view);
    let mut object = Object::default();
    object.put("access", spaced(arg.access.name()));
    object.put("buffer", integer(arg.buffer.0));
    object.put("offset", integer(view.offset()));
    object.put("dtype", spaced(view.dtype().name()));
    object.put("shape", array(view.shape().iter().map(|&size| integer(size))));
    object.put("strides", array(view.strides().iter().map(|&stride| signed(stride))));
    object.extra(&argument.extra);
    object.end()
}

pub(super) fn kind_name(kind: ScopeKind) -> &'static str {
    match kind {
        ScopeKind::Auto => "auto",
        ScopeKind::Manual => "manual",
    }
}

/// An integer as this project's files spell it: a text where readers that only have doubles would
/// round it.
pub(crate) fn integer(value: u64) -> String {
    if value > EXACT_MAX { format!("\"{value}\"") } else { value.to_string() }
}

fn signed(value: i64) -> String {
    if value.unsigned_abs() > EXACT_MAX { format!("\"{value}\"") } else { value.to_string() }
}

fn array(elements: impl Iterator<Item = String>) -> String {
    format!("[{}]", elements.collect::<Vec<_>>().join(", "))
}

/// Any value as JSON in one line, with a space after commas and colons.
pub(crate) fn spaced<T: Serialize + ?Sized>(value: &T) -> String {
    let mut bytes = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut bytes, Spaced);
    value.serialize(&mut serializer).expect("values with text keys can be written");
    String::from_utf8(bytes).expect("JSON is UTF-8")
}

struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }
}

/// An object that is written member by member, in the order that reads best.
#[derive(Default)]
struct Object(String);

impl Object {
    fn put(&mut self, member: &str, value: String) {
        self.0 += if self.0.is_empty() { "{" } else { ", " };
        self.0 += &format!("{}: {value}", spaced(member));
    }

    fn text(&mut self, member: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.put(member, spaced(value));
        }
    }

    fn integer(&mut self, member: &str, value: Option<u64>) {
        if let Some(value) = value {
            self.put(member, integer(value));
        }
    }

    fn extra(&mut self, extra: &Extra) {
        for (member, value) in extra {
            self.put(member, spaced::<Value>(value));
        }
    }

    fn end(self) -> String {
        self.0 + "}"
    }
}
