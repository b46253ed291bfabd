//! Recordings: commands that are written down once and submitted often.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use syncline_sync::lock;
use syncline_tensor::Access;

use super::Command;
use crate::{Buffer, BufferView, DeviceError};

/// Commands that are written down once and submitted often, with the same arguments each time.
///
/// What is submitted is one [`Command::Recording`]: to a lane, it is as if its commands stood
/// there. A backend that can prepare commands (a Vulkan command buffer) does it at the first
/// submission and keeps the result here, so that each further submission costs the same however
/// many commands there are.
///
/// ```
/// use std::sync::Arc;
/// use syncline_device::cpu::CpuDevice;
/// use syncline_device::{Command, Deadline, Kernel, KernelArg, LaneKind, Recording};
/// use syncline_tensor::Dtype;
///
/// let device = CpuDevice::open_default()?;
/// let view = device.buffer(8).tensor(Dtype::F32, &[2])?;
/// view.buffer().write(0, &[1.0f32, 2.0])?;
/// let double = Kernel::cpu("double", |args| {
///     args.slice_mut::<f32>(0).map(|xs| xs.iter_mut().for_each(|x| *x *= 2.0))
/// });
/// let twice = || Command::dispatch(&double, vec![KernelArg::inout(view.clone())], vec![]);
/// let recording = Arc::new(Recording::new(vec![twice(), twice()])?);
/// for _ in 0..3 {
///     device.lane(LaneKind::Compute).submit(Command::recording(&recording).into())?;
/// }
/// assert_eq!(view.to_vec::<f32>()?, [64.0, 128.0]);
/// # Ok::<(), syncline_device::DeviceError>(())
/// ```
pub struct Recording {
    commands: Vec<Command>,
    /// The task that each command is, if that was said.
    tasks: Vec<Arc<str>>,
    /// What the commands touch, each view once.
    accesses: Vec<(BufferView, Access)>,
    /// What they touch, each buffer once, and whether they write it.
    buffers: Vec<(Buffer, bool)>,
    /// The lanes against which the commands were checked.
    checked: Mutex<Vec<u64>>,
    kept: Mutex<Vec<(u64, Arc<dyn Any + Send + Sync>)>>,
}

impl Recording {
    /// A recording of `commands`, which run in order.
    ///
    /// # Errors
    /// A host function, which runs once, or another recording.
    pub fn new(commands: Vec<Command>) -> Result<Self, DeviceError> {
        let refused = commands.iter().find_map(|command| match command {
            Command::Host(function) => Some(format!("host function `{}`", function.name())),
            Command::Recording(_) => Some("a recording".to_owned()),
            _ => None,
        });
        if let Some(what) = refused {
            return Err(DeviceError::NotRecordable { what });
        }
        let accesses = merged(&commands);
        let (buffers, tasks) = (buffers(&accesses), Vec::new());
        let (checked, kept) = (Mutex::default(), Mutex::default());
        Ok(Self { commands, tasks, accesses, buffers, checked, kept })
    }

    /// The same; command number `n` is task `tasks[n]` in errors and traces.
    #[must_use]
    pub fn with_tasks(mut self, tasks: Vec<Arc<str>>) -> Self {
        assert_eq!(tasks.len(), self.commands.len(), "a task for each command");
        self.tasks = tasks;
        self
    }

    /// The task that command number `command` is, if that was said: goes before the name of the
    /// batch.
    pub fn task(&self, command: usize) -> Option<&Arc<str>> {
        self.tasks.get(command)
    }

    /// The commands in order: copies, fills and dispatches.
    pub fn commands(&self) -> &[Command] {
        &self.commands
    }

    /// The buffers that the commands touch, each once, and whether they write it.
    pub fn buffers(&self) -> &[(Buffer, bool)] {
        &self.buffers
    }

    /// What the backend keeps here under `key`, made by `make` if there is nothing yet.
    ///
    /// The key is the identity of a lane ([`LaneInfo::id`](crate::LaneInfo::id)) or of whatever
    /// else in the process the result belongs to: one recording may be submitted to several lanes
    /// and devices. What is returned stays alive while somebody holds it, so a backend holds on to
    /// it (or to the recording) until the device is done.
    pub fn keep<T: Any + Send + Sync, E>(
        &self,
        key: u64,
        make: impl FnOnce(&[Command]) -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        // Held while it is made, so that it is made once.
        let mut kept = lock(&self.kept);
        let found = kept.iter().filter(|(of, _)| *of == key);
        if let Some(found) = found.filter_map(|(_, it)| it.clone().downcast().ok()).next() {
            return Ok(found);
        }
        let made = Arc::new(make(&self.commands)?);
        kept.push((key, made.clone()));
        Ok(made)
    }

    /// Drops what was kept under `key`, for a lane that closes.
    pub fn forget(&self, key: u64) {
        let mut kept = lock(&self.kept);
        let (gone, rest) = kept.drain(..).partition(|(of, _)| *of == key);
        *kept = rest;
        drop(kept);
        // Outside of the lock: what a backend keeps may do anything when it is dropped.
        let _: Vec<_> = gone;
    }

    pub(super) fn for_each_access(&self, mut visit: impl FnMut(&BufferView, Access)) {
        self.accesses.iter().for_each(|(view, access)| visit(view, *access));
    }

    /// Checks every command, unless that was done for this lane before.
    pub(crate) fn check_once(
        &self,
        lane: u64,
        check: impl FnMut(&Command) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        if lock(&self.checked).contains(&lane) {
            return Ok(());
        }
        self.commands.iter().try_for_each(check)?;
        lock(&self.checked).push(lane);
        Ok(())
    }
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recording({} commands)", self.commands.len())
    }
}

/// The views that `commands` touch, each once with all that is done to it.
fn merged(commands: &[Command]) -> Vec<(BufferView, Access)> {
    let mut accesses: Vec<(BufferView, Access)> = Vec::new();
    let mut places = HashMap::new();
    for command in commands {
        command.for_each_access(|view, access| {
            let key = (view.buffer().id(), *view.view(), access == Access::NoDep);
            let place = *places.entry(key).or_insert(accesses.len());
            match accesses.get_mut(place) {
                Some((_, before)) if *before != access => *before = Access::InOut,
                Some(_) => {}
                None => accesses.push((view.clone(), access)),
            }
        });
    }
    accesses
}

/// The buffers of `accesses`, each once, and whether any byte of it is written.
fn buffers(accesses: &[(BufferView, Access)]) -> Vec<(Buffer, bool)> {
    let mut buffers: Vec<(Buffer, bool)> = Vec::new();
    let mut places = HashMap::new();
    for (view, access) in accesses {
        let buffer = view.buffer();
        let place = *places.entry(buffer.id()).or_insert(buffers.len());
        if place == buffers.len() {
            buffers.push((buffer.clone(), false));
        }
        buffers[place].1 |= access.writes() && !view.view().is_empty();
    }
    buffers
}
