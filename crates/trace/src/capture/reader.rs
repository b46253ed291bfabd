//! The reader: from any bytes to a trace, to a readable prefix of one, or to an error.
//!
//! It never panics and never takes more memory than a small multiple of its input: every count is
//! checked against the bytes that are left before anything is allocated for it.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use syncline_deps::ScopeKind;
use syncline_tensor::BufferId;

use super::frame::{Frame, Malformed, Payload, SKIPPABLE, next_frame};
use super::records::{ArgError, get_args, kind, submit, thing, timing};
use super::{MARK, VERSION};
use crate::{
    Extra, Place, Trace, TraceArg, TraceBuffer, TraceError, TraceLane, TraceScope, TraceTask,
    Unwritten, device,
};

/// Bytes before the first record.
const PREAMBLE_BYTES: usize = MARK.len() + 4;

/// What was read, and how it ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Captured {
    /// Everything up to the end.
    pub trace: Trace,
    /// How the capture ended.
    pub end: CaptureEnd,
}

/// How a capture ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureEnd {
    /// As its writer meant it to.
    Complete,
    /// After a whole record, but without the record that marks the end: the program was killed, or
    /// still runs.
    Unfinished,
    /// Inside record `record`, which begins at byte `offset`.
    Truncated {
        /// Where the incomplete record begins.
        offset: usize,
        /// Its number, counted from zero.
        record: u64,
    },
}

impl fmt::Display for CaptureEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CaptureEnd::Complete => f.write_str("the capture is complete"),
            CaptureEnd::Unfinished => f.write_str(
                "the capture has no end: its program was killed or is still running; what was written is intact",
            ),
            CaptureEnd::Truncated { offset, record } => write!(
                f,
                "the capture is cut off at byte {offset}, inside record {record}; what stands before it is intact"
            ),
        }
    }
}

/// Reads captures.
#[derive(Debug)]
pub struct CaptureReader<'a> {
    bytes: &'a [u8],
    offset: usize,
    record: u64,
    names: Vec<Arc<str>>,
    buffers: HashMap<BufferId, usize>,
    open: Vec<u32>,
    trace: Trace,
}

/// Why a record cannot be taken in.
enum Refused {
    Malformed(Malformed),
    Trace(TraceError),
}

impl From<Malformed> for Refused {
    fn from(what: Malformed) -> Self {
        Self::Malformed(what)
    }
}

impl<'a> CaptureReader<'a> {
    /// Whether `bytes` begin like a capture, or are the beginning of one.
    pub fn is_capture(bytes: &[u8]) -> bool {
        let length = bytes.len().min(MARK.len());
        length > 0 && bytes[..length] == MARK[..length]
    }

    /// Reads a whole capture and checks it with [`Trace::validate`].
    ///
    /// A capture that is cut off gives what stands before the cut. One whose bytes are damaged is
    /// an error, which says where.
    pub fn read(bytes: &'a [u8]) -> Result<Captured, TraceError> {
        check_preamble(bytes)?;
        let mut reader = Self {
            bytes,
            offset: PREAMBLE_BYTES,
            record: 0,
            names: Vec::new(),
            buffers: HashMap::new(),
            open: Vec::new(),
            trace: Trace::default(),
        };
        let end = reader.read_records()?;
        reader.trace.validate()?;
        Ok(Captured { trace: reader.trace, end })
    }

    fn read_records(&mut self) -> Result<CaptureEnd, TraceError> {
        loop {
            let (offset, record) = (self.offset, self.record);
            match next_frame(&self.bytes[offset..]) {
                Frame::End => return Ok(CaptureEnd::Unfinished),
                Frame::Truncated => return Ok(CaptureEnd::Truncated { offset, record }),
                Frame::Corrupt(what) => return Err(self.corrupt(what)),
                Frame::Record { kind: kind::END, payload, bytes } => {
                    return self.end_record(payload, bytes);
                }
                Frame::Record { kind, payload, bytes } => {
                    self.take_in(kind, payload).map_err(|refused| match refused {
                        Refused::Malformed(what) => self.corrupt(what),
                        Refused::Trace(error) => error,
                    })?;
                    self.offset += bytes;
                    self.record += 1;
                }
            }
        }
    }

    fn end_record(&self, payload: &[u8], bytes: usize) -> Result<CaptureEnd, TraceError> {
        let mut payload = Payload(payload);
        let tasks = payload.u64().map_err(|what| self.corrupt(what))?;
        payload.end().map_err(|what| self.corrupt(what))?;
        if tasks != self.trace.tasks.len() as u64 {
            return Err(self.corrupt("it counts other tasks than there are"));
        }
        if self.offset + bytes != self.bytes.len() {
            return Err(self.corrupt("it marks the end, but the file goes on"));
        }
        Ok(CaptureEnd::Complete)
    }

    fn corrupt(&self, what: Malformed) -> TraceError {
        TraceError::Corrupt {
            offset: self.offset,
            record: self.record,
            tasks: self.trace.tasks.len(),
            what: what.to_owned(),
        }
    }

    fn take_in(&mut self, kind: u8, payload: &[u8]) -> Result<(), Refused> {
        let payload = &mut Payload(payload);
        match kind {
            kind::HEADER => self.header(payload)?,
            kind::NAME => self.names.push(payload.text()?.into()),
            kind::BUFFER => self.buffer(payload)?,
            kind::RELEASE => self.release(payload)?,
            kind::ENTER => self.enter(payload)?,
            kind::LEAVE => self.leave()?,
            kind::SUBMIT => self.submit(payload)?,
            kind::TIMING => self.timing(payload)?,
            kind::RETIRE => {
                let at = self.trace.tasks.len() as u64;
                self.task(payload)?.retired_at = Some(at);
            }
            kind::STATS => self.trace.stats.push(json(payload.text()?)?),
            unknown if unknown & SKIPPABLE != 0 => return Ok(()),
            kind => {
                let (offset, record) = (self.offset, self.record);
                return Err(Refused::Trace(TraceError::UnknownRecord { offset, record, kind }));
            }
        }
        Ok(payload.end()?)
    }

    fn header(&mut self, payload: &mut Payload<'_>) -> Result<(), Refused> {
        if self.record != 0 {
            return Err("a header that is not the first record".into());
        }
        self.trace.extra = extra(payload.text()?)?;
        Ok(())
    }

    fn buffer(&mut self, payload: &mut Payload<'_>) -> Result<(), Refused> {
        let flags = payload.byte()?;
        let mut buffer = TraceBuffer::new(BufferId(payload.u64()?), payload.u64()?);
        (buffer.name, buffer.extra) = name_and_extra(flags, payload)?;
        self.buffers.insert(buffer.id, self.trace.buffers.len());
        self.trace.buffers.push(buffer);
        Ok(())
    }

    fn release(&mut self, payload: &mut Payload<'_>) -> Result<(), Refused> {
        let id = BufferId(payload.u64()?);
        let at = self.trace.tasks.len() as u64;
        let position = self.buffers.get(&id).ok_or("it releases a buffer that was not declared")?;
        let buffer = &mut self.trace.buffers[*position];
        if buffer.released_at.replace(at).is_some() {
            return Err("it releases a buffer a second time".into());
        }
        Ok(())
    }

    fn enter(&mut self, payload: &mut Payload<'_>) -> Result<(), Refused> {
        let flags = payload.byte()?;
        let kind = if flags & thing::MANUAL == 0 { ScopeKind::Auto } else { ScopeKind::Manual };
        let (name, extra) = name_and_extra(flags, payload)?;
        let id = u32::try_from(self.trace.scopes.len()).map_err(|_| "too many scopes")?;
        self.trace.scopes.push(TraceScope { kind, parent: self.open.last().copied(), name, extra });
        self.open.push(id);
        Ok(())
    }

    fn leave(&mut self) -> Result<(), Refused> {
        if self.open.pop().is_some() {
            return Ok(());
        }
        let what = format!(
            "byte {}: record {} leaves a scope that was never entered",
            self.offset, self.record
        );
        Err(Refused::Trace(TraceError::Scope { place: Place::ROOT, what }))
    }

    fn submit(&mut self, payload: &mut Payload<'_>) -> Result<(), Refused> {
        let flags = payload.u64()?;
        if flags & !submit::ALL != 0 {
            return Err("it has flags that are not known".into());
        }
        let step = payload.u64()?;
        let id = match self.trace.tasks.last() {
            None => Some(step),
            Some(last) => last.id.checked_add(1).and_then(|next| next.checked_add(step)),
        };
        let mut task = TraceTask::bare(id.ok_or("its id is above 2^64 - 1")?);
        task.name = self.task_name(flags, payload)?;
        if flags & submit::DEPS != 0 {
            for _ in 0..payload.count(1)? {
                let back = payload.u64()?;
                task.deps.push(task.id.checked_sub(back).ok_or("a dependency is below zero")?);
            }
        }
        self.arguments(&mut task, payload)?;
        if flags & submit::EXTRA != 0 {
            task.extra = extra(payload.text()?)?;
            let place = Place::task(self.trace.tasks.len(), task.id);
            let named = task.extra.shift_remove("device");
            task.device =
                named.map(|value| device(value, place)).transpose().map_err(Refused::Trace)?;
        }
        if flags & submit::ARG_EXTRA != 0 {
            arg_extras(&mut task, payload.text()?)?;
        }
        task.scope_id = self.open.last().copied();
        task.scope = match task.scope_id {
            Some(scope) => self.trace.scopes[scope as usize].kind,
            None if flags & submit::MANUAL != 0 => ScopeKind::Manual,
            None => ScopeKind::Auto,
        };
        task.unwritten = Unwritten {
            scope: flags & submit::SCOPE_UNWRITTEN != 0,
            deps: flags & submit::DEPS_UNWRITTEN != 0,
        };
        self.trace.tasks.push(task);
        Ok(())
    }

    fn task_name(
        &self,
        flags: u64,
        payload: &mut Payload<'_>,
    ) -> Result<Option<Arc<str>>, Refused> {
        if flags & submit::NAMED != 0 {
            // Shared, not copied: else a long name would be taken in as often as it is referred to.
            let number = usize::try_from(payload.u64()?).unwrap_or(usize::MAX);
            let name = self.names.get(number).ok_or("it refers to a name that is not there")?;
            return Ok(Some(name.clone()));
        }
        if flags & submit::NAMED_INLINE != 0 {
            return Ok(Some(payload.text()?.into()));
        }
        Ok(None)
    }

    fn arguments(&self, task: &mut TraceTask, payload: &mut Payload<'_>) -> Result<(), Refused> {
        let args = get_args(payload).map_err(|error| match error {
            ArgError::Malformed(what) => Refused::Malformed(what),
            ArgError::View { position, source } => {
                let place = Place::task(self.trace.tasks.len(), task.id).arg(position);
                Refused::Trace(TraceError::View { place, source })
            }
        })?;
        task.args = args.into_iter().map(TraceArg::from).collect();
        Ok(())
    }

    fn timing(&mut self, payload: &mut Payload<'_>) -> Result<(), Refused> {
        let flags = payload.byte()?;
        let task = self.task(payload)?;
        if flags & timing::START != 0 {
            task.start_ns = Some(payload.u64()?);
        }
        if flags & timing::END != 0 {
            task.end_ns = Some(payload.u64()?);
        }
        if flags & timing::LANE_NUMBER != 0 {
            task.lane = Some(TraceLane::Number(payload.u64()?));
        }
        if flags & timing::LANE_NAME != 0 {
            task.lane = Some(TraceLane::Name(payload.text()?.into()));
        }
        Ok(())
    }

    /// The task whose id comes next in `payload`.
    fn task(&mut self, payload: &mut Payload<'_>) -> Result<&mut TraceTask, Malformed> {
        let id = payload.u64()?;
        let position = self.trace.position(id).ok_or("it is about a task that is not there")?;
        Ok(&mut self.trace.tasks[position])
    }
}

fn check_preamble(bytes: &[u8]) -> Result<(), TraceError> {
    if !bytes.starts_with(&MARK) {
        return Err(TraceError::NotACapture);
    }
    let Some(&[low, high, _, _]) = bytes[MARK.len()..].first_chunk::<4>() else {
        let what = "the file ends before its first record".to_owned();
        return Err(TraceError::Corrupt { offset: bytes.len(), record: 0, tasks: 0, what });
    };
    match u16::from_le_bytes([low, high]) {
        VERSION => Ok(()),
        found => Err(TraceError::CaptureVersion { found, supported: VERSION }),
    }
}

fn name_and_extra(
    flags: u8,
    payload: &mut Payload<'_>,
) -> Result<(Option<Arc<str>>, Extra), Refused> {
    let name = if flags & thing::NAMED != 0 { Some(payload.text()?.into()) } else { None };
    let extra = if flags & thing::EXTRA != 0 { extra(payload.text()?)? } else { Extra::new() };
    Ok((name, extra))
}

fn json(text: &str) -> Result<Value, Malformed> {
    syncline_files::from_json(text.as_bytes())
        .map_err(|_| "it has a text that is not JSON, or a member that is given twice")
}

fn extra(text: &str) -> Result<Extra, Malformed> {
    match json(text)? {
        Value::Object(members) => Ok(members),
        _ => Err("it has a JSON text that is not an object"),
    }
}

/// Other members of arguments, by position.
fn arg_extras(task: &mut TraceTask, text: &str) -> Result<(), Malformed> {
    for (position, value) in extra(text)? {
        let position: usize =
            position.parse().map_err(|_| "an argument's position is no number")?;
        let arg = task.args.get_mut(position).ok_or("members of an argument that is not there")?;
        arg.extra = match value {
            Value::Object(members) => members,
            _ => return Err("an argument's members are not an object"),
        };
    }
    Ok(())
}
