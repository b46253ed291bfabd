//! The writer: one record a call, gathered in memory and written whole.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use syncline_deps::{DepInputs, ScopeKind};
use syncline_tensor::{Arg, BufferId, TaskId};

use super::frame::PAYLOAD_MAX;
use super::gathered::Gathered;
use super::names::{Named, Names};
use super::records::{kind, put_args, submit, thing, timing};
use super::{MARK, VERSION};
use crate::TraceLane;

/// How many records pass between two reads of the clock.
const RECORDS_PER_LOOK: u32 = 16;

/// When gathered records are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CaptureOptions {
    /// Write as soon as this many bytes have gathered.
    pub flush_bytes: usize,
    /// Write a record that comes this long after the last write, and those before it.
    pub flush_interval: Duration,
}

impl Default for CaptureOptions {
    fn default() -> Self {
        Self { flush_bytes: 64 << 10, flush_interval: Duration::from_millis(100) }
    }
}

impl CaptureOptions {
    /// The same, written as soon as so many bytes have gathered.
    #[must_use]
    pub fn with_flush_bytes(self, flush_bytes: usize) -> Self {
        Self { flush_bytes, ..self }
    }

    /// The same, written with the first record that comes so long after the last write.
    #[must_use]
    pub fn with_flush_interval(self, flush_interval: Duration) -> Self {
        Self { flush_interval, ..self }
    }
}

/// What a capture says of a task beside its arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskLabel<'a> {
    /// What people call the task. Few different names cost least: each is written once.
    pub name: Option<&'a str>,
    /// Other members, such as `kernel` and `scalars`, as the text of a JSON object; a text that is
    /// none makes readers refuse the record.
    pub extra: Option<&'a str>,
}

impl<'a> TaskLabel<'a> {
    /// A label that is a name.
    pub const fn named(name: &'a str) -> Self {
        Self { name: Some(name), extra: None }
    }
}

/// Writes a capture to `W`, which needs no buffer of its own.
///
/// Nothing is lost silently: an error of `W` is returned by the call that met it and by every later
/// one.
#[derive(Debug)]
pub struct CaptureWriter<W: Write> {
    out: Option<W>,
    gathered: Gathered,
    options: CaptureOptions,
    names: Names,
    first_id: Option<u64>,
    last_id: Option<u64>,
    tasks: u64,
    records_until_look: u32,
    written_at: Instant,
    failed: Option<io::ErrorKind>,
}

impl<W: Write> CaptureWriter<W> {
    /// Starts a capture with the default options.
    pub fn new(out: W) -> io::Result<Self> {
        Self::with_options(out, CaptureOptions::default())
    }

    /// Starts a capture; its mark and version are written at once.
    pub fn with_options(out: W, options: CaptureOptions) -> io::Result<Self> {
        let mut gathered =
            Gathered::with_capacity(options.flush_bytes.saturating_add(4 << 10).min(1 << 24));
        gathered.put_bytes(MARK);
        gathered.put_bytes(VERSION.to_le_bytes());
        gathered.put_bytes([0, 0]);
        let mut writer = Self {
            out: Some(out),
            gathered,
            options,
            names: Names::new(),
            first_id: None,
            last_id: None,
            tasks: 0,
            records_until_look: RECORDS_PER_LOOK,
            written_at: Instant::now(),
            failed: None,
        };
        writer.flush()?;
        Ok(writer)
    }

    /// Writes members of the whole trace, as the text of a JSON object; once, before anything else.
    pub fn header(&mut self, extra: &str) -> io::Result<()> {
        self.record(kind::HEADER, |out| out.put_text(extra))
    }

    /// Declares a buffer. Tasks that use it come after.
    pub fn buffer(&mut self, buffer: BufferId, bytes: u64, name: Option<&str>) -> io::Result<()> {
        self.buffer_with(buffer, bytes, name, None)
    }

    pub(super) fn buffer_with(
        &mut self,
        buffer: BufferId,
        bytes: u64,
        name: Option<&str>,
        extra: Option<&str>,
    ) -> io::Result<()> {
        self.record(kind::BUFFER, |out| {
            out.put_bytes([thing_flags(name, extra)]);
            out.put_u64(buffer.0);
            out.put_u64(bytes);
            [name, extra].into_iter().flatten().for_each(|text| out.put_text(text));
        })
    }

    /// Says that no later task uses the buffer.
    pub fn release_buffer(&mut self, buffer: BufferId) -> io::Result<()> {
        self.record(kind::RELEASE, |out| out.put_u64(buffer.0))
    }

    /// Enters a scope: later tasks are in it, until it is left.
    pub fn enter_scope(&mut self, scope: ScopeKind, name: Option<&str>) -> io::Result<()> {
        self.enter_scope_with(scope, name, None)
    }

    pub(super) fn enter_scope_with(
        &mut self,
        scope: ScopeKind,
        name: Option<&str>,
        extra: Option<&str>,
    ) -> io::Result<()> {
        let manual = if scope == ScopeKind::Manual { thing::MANUAL } else { 0 };
        self.record(kind::ENTER, |out| {
            out.put_bytes([manual | thing_flags(name, extra)]);
            [name, extra].into_iter().flatten().for_each(|text| out.put_text(text));
        })
    }

    /// Leaves the innermost scope.
    pub fn leave_scope(&mut self) -> io::Result<()> {
        self.record(kind::LEAVE, |_| ())
    }

    /// Records a task, which was submitted in the innermost scope.
    ///
    /// Ids must grow from call to call. Dependencies on tasks before the first one of this capture
    /// are left out: readers take those tasks for retired.
    #[inline]
    pub fn submit(
        &mut self,
        task: TaskId,
        label: TaskLabel<'_>,
        inputs: &DepInputs<'_>,
    ) -> io::Result<()> {
        self.submit_with(Submission {
            id: task.to_bits(),
            flags: 0,
            label,
            arg_extra: None,
            deps: inputs.deps.iter().map(|dep| dep.to_bits()),
            args: inputs.args.iter(),
        })
    }

    #[inline]
    pub(super) fn submit_with<'a>(
        &mut self,
        task: Submission<
            'a,
            impl Iterator<Item = u64> + Clone,
            impl ExactSizeIterator<Item = &'a Arg>,
        >,
    ) -> io::Result<()> {
        let id_step = match self.last_id {
            None => task.id,
            Some(last) if last < task.id => task.id - last - 1,
            Some(last) => return Err(out_of_order(task.id, last)),
        };
        let (name_flag, number) = self.name(task.label.name)?;
        let first_id = *self.first_id.get_or_insert(task.id);
        let deps = task.deps.filter(|dep| (first_id..task.id).contains(dep));
        let deps_count = deps.clone().count() as u64;
        let flags = task.flags
            | name_flag
            | if deps_count > 0 { submit::DEPS } else { 0 }
            | if task.label.extra.is_some() { submit::EXTRA } else { 0 }
            | if task.arg_extra.is_some() { submit::ARG_EXTRA } else { 0 };
        self.record(kind::SUBMIT, |out| {
            out.put_u64(flags);
            out.put_u64(id_step);
            match task.label.name {
                Some(_) if name_flag == submit::NAMED => out.put_u64(number.into()),
                Some(name) => out.put_text(name),
                None => (),
            }
            if deps_count > 0 {
                out.put_u64(deps_count);
                deps.for_each(|dep| out.put_u64(task.id - dep));
            }
            put_args(out, task.args);
            let extras = [task.label.extra, task.arg_extra];
            extras.into_iter().flatten().for_each(|text| out.put_text(text));
        })?;
        self.last_id = Some(task.id);
        self.tasks += 1;
        Ok(())
    }

    /// Records when and where a captured task ran. Tasks before the capture's first are passed
    /// over.
    pub fn timing(
        &mut self,
        task: TaskId,
        start_ns: Option<u64>,
        end_ns: Option<u64>,
        lane: Option<&TraceLane>,
    ) -> io::Result<()> {
        let id = task.to_bits();
        if !self.has_captured(id) {
            return Ok(());
        }
        let (start, end) =
            (start_ns.map_or(0, |_| timing::START), end_ns.map_or(0, |_| timing::END));
        let lane_flag = match lane {
            None => 0,
            Some(TraceLane::Number(_)) => timing::LANE_NUMBER,
            Some(TraceLane::Name(_)) => timing::LANE_NAME,
        };
        self.record(kind::TIMING, |out| {
            out.put_bytes([start | end | lane_flag]);
            out.put_u64(id);
            [start_ns, end_ns].into_iter().flatten().for_each(|time| out.put_u64(time));
            match lane {
                None => (),
                Some(TraceLane::Number(number)) => out.put_u64(*number),
                Some(TraceLane::Name(name)) => out.put_text(name),
            }
        })
    }

    /// Records that a captured task has been retired. Tasks before the capture's first are passed
    /// over.
    pub fn retire(&mut self, task: TaskId) -> io::Result<()> {
        let id = task.to_bits();
        if !self.has_captured(id) {
            return Ok(());
        }
        self.record(kind::RETIRE, |out| out.put_u64(id))
    }

    /// Records statistics, as the text of a JSON value.
    pub fn stats(&mut self, json: &str) -> io::Result<()> {
        self.record(kind::STATS, |out| out.put_text(json))
    }

    /// Hands everything gathered to `W`.
    pub fn flush(&mut self) -> io::Result<()> {
        self.check_usable()?;
        self.records_until_look = RECORDS_PER_LOOK;
        self.written_at = Instant::now();
        let out = self.out.as_mut().expect("taken by `finish` only");
        let written = out.write_all(self.gathered.as_slice()).and_then(|()| out.flush());
        self.gathered.clear();
        written.inspect_err(|error| self.failed = Some(error.kind()))
    }

    /// Writes the end of the capture and gives `W` back.
    ///
    /// A capture without it can be read as well, but is known to be cut off. Dropping a writer only
    /// flushes it.
    pub fn finish(mut self) -> io::Result<W> {
        let tasks = self.tasks;
        self.record(kind::END, |out| out.put_u64(tasks))?;
        self.flush()?;
        Ok(self.out.take().expect("taken here only"))
    }

    /// Whether a task of this capture has the id.
    fn has_captured(&self, id: u64) -> bool {
        self.first_id.zip(self.last_id).is_some_and(|(first, last)| (first..=last).contains(&id))
    }

    #[inline]
    fn name(&mut self, name: Option<&str>) -> io::Result<(u64, u32)> {
        let Some(name) = name else { return Ok((0, 0)) };
        match self.names.look_up(name) {
            Named::Known(number) => Ok((submit::NAMED, number)),
            Named::New(number) => {
                self.record(kind::NAME, |out| out.put_text(name))?;
                Ok((submit::NAMED, number))
            }
            Named::Inline => Ok((submit::NAMED_INLINE, 0)),
        }
    }

    #[inline]
    fn record(&mut self, kind: u8, fill: impl FnOnce(&mut Gathered)) -> io::Result<()> {
        self.check_usable()?;
        let start = self.gathered.begin_record(kind);
        fill(&mut self.gathered);
        self.gathered.end_record(start).map_err(too_long)?;
        self.records_until_look -= 1;
        if self.gathered.len() >= self.options.flush_bytes {
            return self.flush();
        }
        if self.records_until_look == 0 {
            self.records_until_look = RECORDS_PER_LOOK;
            if self.written_at.elapsed() >= self.options.flush_interval {
                return self.flush();
            }
        }
        Ok(())
    }

    #[inline]
    fn check_usable(&self) -> io::Result<()> {
        match self.failed {
            None => Ok(()),
            Some(kind) => Err(io::Error::new(kind, "an earlier write of this capture failed")),
        }
    }
}

impl<W: Write> Drop for CaptureWriter<W> {
    fn drop(&mut self) {
        if self.out.is_some() {
            // Callers that need errors call `finish`.
            let _ = self.flush();
        }
    }
}

/// A task as the writer needs it, from a live submission or from a trace.
pub(super) struct Submission<'a, Deps, Args> {
    pub(super) id: u64,
    pub(super) flags: u64,
    pub(super) label: TaskLabel<'a>,
    pub(super) arg_extra: Option<&'a str>,
    pub(super) deps: Deps,
    pub(super) args: Args,
}

fn thing_flags(name: Option<&str>, extra: Option<&str>) -> u8 {
    name.map_or(0, |_| thing::NAMED) | extra.map_or(0, |_| thing::EXTRA)
}

#[cold]
fn out_of_order(id: u64, last: u64) -> io::Error {
    let text = format!("task {id} is captured after task {last}: ids must grow");
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

#[cold]
fn too_long(bytes: usize) -> io::Error {
    let text = format!("a record of {bytes} bytes: at most {PAYLOAD_MAX} fit");
    io::Error::new(io::ErrorKind::InvalidInput, text)
}
