//! From a trace in memory to a capture, and from any file to a trace.

use std::io::{self, Write};

use serde_json::Value;
use syncline_deps::ScopeKind;
use syncline_tensor::{BufferId, TaskId};

use super::records::submit;
use super::writer::Submission;
use super::{CaptureEnd, CaptureReader, CaptureWriter, Captured, TaskLabel};
use crate::{Extra, ScopeStep, ScopeWalk, Trace, TraceError, TraceTask};

impl Trace {
    /// Reads either form: a capture is known by its mark, everything else is taken for JSON.
    pub fn from_bytes(bytes: &[u8]) -> Result<Captured, TraceError> {
        if CaptureReader::is_capture(bytes) {
            return CaptureReader::read(bytes);
        }
        Ok(Captured { trace: Self::from_json(bytes)?, end: CaptureEnd::Complete })
    }

    /// Writes the trace, which must be valid, as a capture.
    pub fn write_capture<W: Write>(&self, out: W) -> io::Result<W> {
        let mut writer = CaptureWriter::new(out)?;
        if let Some(extra) = text_of(&self.extra) {
            writer.header(&extra)?;
        }
        for buffer in &self.buffers {
            let extra = text_of(&buffer.extra);
            writer.buffer_with(
                buffer.id,
                buffer.bytes,
                buffer.name.as_deref(),
                extra.as_deref(),
            )?;
        }
        let mut events = self.events().into_iter().peekable();
        let mut walk = ScopeWalk::new(&self.scopes);
        for (index, task) in self.tasks.iter().enumerate() {
            while let Some((_, event)) = events.next_if(|&(at, _)| at <= index as u64) {
                event.write(&mut writer)?;
            }
            let mut steps = Vec::new();
            walk.move_to(task.scope_id, |step| steps.push(step)).map_err(invalid)?;
            self.write_steps(&mut writer, &steps)?;
            write_task(&mut writer, task)?;
        }
        events.try_for_each(|(_, event)| event.write(&mut writer))?;
        let mut steps = Vec::new();
        walk.finish(|step| steps.push(step)).map_err(invalid)?;
        self.write_steps(&mut writer, &steps)?;
        self.stats.iter().try_for_each(|stats| writer.stats(&stats.to_string()))?;
        writer.finish()
    }

    /// Releases and retirements, by the number of tasks that had been submitted.
    fn events(&self) -> Vec<(u64, Event)> {
        let releases = self
            .buffers
            .iter()
            .filter_map(|buffer| buffer.released_at.map(|at| (at, Event::Release(buffer.id))));
        let retirements = self.tasks.iter().filter_map(|task| {
            task.retired_at.map(|at| (at, Event::Retire(TaskId::from_bits(task.id))))
        });
        let mut events: Vec<_> = releases.chain(retirements).collect();
        events.sort_by_key(|&(at, _)| at);
        events
    }

    fn write_steps<W: Write>(
        &self,
        writer: &mut CaptureWriter<W>,
        steps: &[ScopeStep],
    ) -> io::Result<()> {
        steps.iter().try_for_each(|step| match step {
            ScopeStep::Leave => writer.leave_scope(),
            ScopeStep::Enter(id) => {
                let scope = &self.scopes[*id as usize];
                let extra = text_of(&scope.extra);
                writer.enter_scope_with(scope.kind, scope.name.as_deref(), extra.as_deref())
            }
        })
    }
}

enum Event {
    Release(BufferId),
    Retire(TaskId),
}

impl Event {
    fn write<W: Write>(self, writer: &mut CaptureWriter<W>) -> io::Result<()> {
        match self {
            Event::Release(buffer) => writer.release_buffer(buffer),
            Event::Retire(task) => writer.retire(task),
        }
    }
}

fn write_task<W: Write>(writer: &mut CaptureWriter<W>, task: &TraceTask) -> io::Result<()> {
    let mut members = task.extra.clone();
    if let Some(device) = &task.device {
        members.insert("device".to_owned(), device.clone());
    }
    let extra = text_of(&members);
    let arg_extra: Extra = (task.args.iter().enumerate())
        .filter(|(_, arg)| !arg.extra.is_empty())
        .map(|(position, arg)| (position.to_string(), Value::Object(arg.extra.clone())))
        .collect();
    let manual = task.scope == ScopeKind::Manual && task.scope_id.is_none();
    let flag = |set: bool, bit: u64| if set { bit } else { 0 };
    writer.submit_with(Submission {
        id: task.id,
        flags: flag(manual, submit::MANUAL)
            | flag(task.unwritten.scope, submit::SCOPE_UNWRITTEN)
            | flag(task.unwritten.deps, submit::DEPS_UNWRITTEN),
        label: TaskLabel { name: task.name.as_deref(), extra: extra.as_deref() },
        arg_extra: text_of(&arg_extra).as_deref(),
        deps: task.deps.iter().copied(),
        args: task.args.iter().map(|arg| &arg.arg),
    })?;
    if task.start_ns.is_none() && task.end_ns.is_none() && task.lane.is_none() {
        return Ok(());
    }
    writer.timing(TaskId::from_bits(task.id), task.start_ns, task.end_ns, task.lane.as_ref())
}

fn text_of(extra: &Extra) -> Option<String> {
    if extra.is_empty() {
        return None;
    }
    Some(serde_json::to_string(extra).expect("values with text keys can be written"))
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}
