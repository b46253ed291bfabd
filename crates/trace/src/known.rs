//! The members of a trace: what the form has, for reading, running and reporting alike.
//!
//! One table for all readers. A misspelt member would otherwise mean its default without a word.

use serde_json::Value;

use super::member::check_names;
use super::{Extra, Place, Trace, TraceError};

/// The members of an object: the ones that this crate keeps in fields, and the ones in [`Extra`].
struct Members(&'static [&'static str], &'static [&'static str]);

const TRACE: Members = Members(
    &["format", "version", "buffers", "scopes", "tasks", "stats"],
    &["kernels", "lanes", "arena_bytes", "peak_bytes", "provenance"],
);
const BUFFER: Members =
    Members(&["id", "bytes", "name", "released_at"], &["init", "device", "offset"]);
const SCOPE: Members = Members(&["kind", "parent", "name"], &[]);
const TASK: Members = Members(
    &[
        "id",
        "name",
        "scope",
        "scope_id",
        "deps",
        "args",
        "device",
        "lane",
        "start_ns",
        "end_ns",
        "retired_at",
    ],
    &["kernel", "scalars", "priority", "blocks", "kind", "bytes"],
);
const ARG: Members = Members(&["access", "buffer", "offset", "dtype", "shape", "strides"], &[]);
const INIT: Members = Members(&[], &["fill", "random", "dtype", "file", "tensor"]);
const KERNEL: Members =
    Members(&[], &["name", "cpu", "wgsl", "opencl", "args", "scalars", "entry", "grid", "group"]);
const GRID: Members = Members(&[], &["elements", "rows", "tiles", "height", "width"]);

impl Members {
    fn check(&self, extra: &Extra, place: Place) -> Result<(), TraceError> {
        check_names(extra, self.0, self.1, place)
    }

    /// Checks `value`; one that is no object is left to its reader.
    fn check_value(&self, value: Option<&Value>, place: Place) -> Result<(), TraceError> {
        value.and_then(Value::as_object).map_or(Ok(()), |members| self.check(members, place))
    }
}

impl Trace {
    /// Refuses members that the form does not have, unless their names begin with `x-`.
    pub(super) fn check_members(&self) -> Result<(), TraceError> {
        TRACE.check(&self.extra, Place::ROOT)?;
        let kernels = self.extra.get("kernels").and_then(Value::as_array);
        for (index, kernel) in kernels.into_iter().flatten().enumerate() {
            let place = Place::entry("kernels", index);
            KERNEL.check_value(Some(kernel), place)?;
            GRID.check_value(kernel.get("grid"), place.member("grid"))?;
        }
        for (index, buffer) in self.buffers.iter().enumerate() {
            let place = Place { id: Some(buffer.id.0), ..Place::entry("buffers", index) };
            BUFFER.check(&buffer.extra, place)?;
            INIT.check_value(buffer.extra.get("init"), place.member("init"))?;
        }
        for (index, scope) in self.scopes.iter().enumerate() {
            SCOPE.check(&scope.extra, Place::entry("scopes", index))?;
        }
        for (index, task) in self.tasks.iter().enumerate() {
            let place = Place::task(index, task.id);
            TASK.check(&task.extra, place)?;
            for (position, arg) in task.args.iter().enumerate() {
                ARG.check(&arg.extra, place.arg(position))?;
            }
        }
        Ok(())
    }
}
