//! From a batch to work: checks, leases and order, the same for every backend.

use std::sync::MutexGuard;

use syncline_copy::CopyPlan;
use syncline_tensor::{Access, BufferId, Region};

use crate::buffer::{Hazards, Touch};
use crate::lane::gate;
use crate::{
    Backend, Batch, Buffer, BufferView, CancelToken, Command, DeviceError, Dispatch, Lane, Point,
    PointStatus, Work,
};

/// Who sees to it that conflicting work is ordered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ordered {
    /// This module adds the waits.
    Yes,
    /// The caller has.
    ByCaller,
}

/// # Safety
/// With [`Ordered::ByCaller`], all conflicting work submitted before is ordered before this batch.
pub(crate) unsafe fn submit(
    lane: &dyn Lane,
    batch: Batch,
    ordered: Ordered,
) -> Result<Point, DeviceError> {
    let cancel = batch.cancel.clone();
    let (mut work, mut uses) = checked(lane, batch)?;
    if uses.buffers.is_empty() {
        // SAFETY: the work was checked and touches no buffer.
        return unsafe { lane.enqueue(&mut work) };
    }

    // Leases before locks: a lease waits for the host's reads and writes under way, and those take
    // the lock to look for failures before they end.
    uses.sort();
    work.leases.reserve_exact(uses.buffers.len());
    for buffer in &uses.buffers {
        work.leases.push(buffer.lease(uses.access_to(buffer), lane.info().id())?);
    }
    // All buffers are locked in one order and stay locked until the work is in the queue. So of any
    // two batches that share buffers one comes first on all of them, and no two batches wait for
    // each other. User code that the batch brought goes with `work`, after the locks.
    let mut hazards: Vec<MutexGuard<'_, Hazards>> =
        uses.buffers.iter().map(|buffer| buffer.hazards()).collect();
    if ordered == Ordered::Yes {
        match &cancel {
            None => uses.for_each(|at, touch| hazards[at].collect(touch, &mut work.waits)),
            Some(token) => {
                let mut behind = Vec::new();
                uses.for_each(|at, touch| hazards[at].collect(touch, &mut behind));
                add_cancellable(lane, behind, token, &mut work.waits);
            }
        }
    }
    // SAFETY: the work was checked; what conflicts with it is awaited, or ordered by the caller.
    let point = unsafe { lane.enqueue(&mut work) }?;
    uses.for_each(|at, touch| hazards[at].note(touch, &point));
    Ok(point)
}

/// # Safety
/// All buffers of the batch are the caller's alone until it has ended, and conflicting work of its
/// own is ordered.
pub(crate) unsafe fn submit_claimed(lane: &dyn Lane, batch: Batch) -> Result<Point, DeviceError> {
    let id = lane.info().id();
    let mut leases = lane.info().spares.take_leases();
    let mut work = match batch.commands.as_recording() {
        // A recording knows its buffers: nothing is looked for, and nothing allocated.
        Some(recording) => {
            check_all(lane, &batch)?;
            for (buffer, writes) in recording.buffers() {
                leases.push(buffer.lease_under_claim(*writes, id)?);
            }
            let Batch { waits, commands, signals, task, .. } = batch;
            Work { waits, commands, signals, task, leases }
        }
        None => {
            let (work, uses) = checked(lane, batch)?;
            for buffer in &uses.buffers {
                leases.push(buffer.lease_under_claim(uses.access_to(buffer).writes(), id)?);
            }
            Work { leases, ..work }
        }
    };
    // SAFETY: the work was checked; the caller orders what conflicts with it.
    unsafe { lane.enqueue(&mut work) }
}

/// Adds `behind`, the points of conflicting work, so that `token` ends the wait for those pending.
fn add_cancellable(
    lane: &dyn Lane,
    mut behind: Vec<Point>,
    token: &CancelToken,
    waits: &mut Vec<Point>,
) {
    // Earlier work of the same lane comes first anyhow.
    let own = lane.timeline().id();
    behind.retain(|point| point.timeline().id() != own);
    match behind.iter().any(|point| point.status() == PointStatus::Pending) {
        true => waits.push(gate(&behind, token)),
        false => waits.extend(behind),
    }
}

/// The work of a batch that could run on `lane`, without leases yet, and what it uses.
fn checked(lane: &dyn Lane, batch: Batch) -> Result<(Work, Uses), DeviceError> {
    check_all(lane, &batch)?;
    let mut uses = Uses::default();
    for command in batch.commands.iter() {
        command.for_each_access(|view, access| uses.note(view, access));
    }
    let Batch { waits, commands, signals, task, .. } = batch;
    Ok((Work { waits, commands, signals, task, leases: Vec::new() }, uses))
}

fn check_all(lane: &dyn Lane, batch: &Batch) -> Result<(), DeviceError> {
    batch.signals.iter().try_for_each(|point| point.timeline().refuse_if_owned())?;
    batch.commands.iter().try_for_each(|command| check(lane, command))
}

/// The buffers that a batch uses, each once, and how it touches them.
#[derive(Default)]
struct Uses {
    buffers: Vec<Buffer>,
    touches: Vec<(BufferId, Touch)>,
}

impl Uses {
    fn note(&mut self, target: &BufferView, access: Access) {
        let buffer = target.buffer();
        if !self.buffers.iter().any(|other| other.id() == buffer.id()) {
            self.buffers.push(buffer.clone());
        }
        // What orders nothing is leased all the same: the buffer must live, and have memory.
        if access != Access::NoDep && !target.view().is_empty() {
            let region = Region::of(target.view());
            let touch = Touch { region, reads: access.reads(), writes: access.writes() };
            self.touches.push((buffer.id(), touch));
        }
    }

    fn sort(&mut self) {
        self.buffers.sort_by_key(Buffer::id);
    }

    fn for_each(&self, mut visit: impl FnMut(usize, &Touch)) {
        for (id, touch) in &self.touches {
            let at = self.buffers.binary_search_by_key(id, Buffer::id);
            visit(at.expect("noted together, and sorted"), touch);
        }
    }

    fn access_to(&self, buffer: &Buffer) -> Access {
        let id = buffer.id();
        match self.touches.iter().any(|(of, touch)| *of == id && touch.writes) {
            true => Access::InOut,
            false => Access::Input,
        }
    }
}

/// Refuses what could not run, before anything does.
fn check(lane: &dyn Lane, command: &Command) -> Result<(), DeviceError> {
    let mut refused = Ok(());
    command.for_each_access(|target, access| {
        if refused.is_ok() {
            refused = check_access(lane, target, access);
        }
    });
    refused?;
    match command {
        Command::Copy(copy) => {
            CopyPlan::new(copy.source.view(), copy.target.view())?;
            Ok(())
        }
        Command::Fill(fill) => crate::fill::check(fill),
        Command::Dispatch(dispatch) => check_kernel(lane, dispatch),
        Command::Host(_) => Ok(()),
        Command::Recording(recording) => {
            recording.check_once(lane.info().id(), |command| check(lane, command))
        }
    }
}

fn check_kernel(lane: &dyn Lane, dispatch: &Dispatch) -> Result<(), DeviceError> {
    let backend = lane.info().device.backend;
    dispatch.kernel.check(backend, &dispatch.described(), &dispatch.scalars, 1)?;
    match backend {
        Backend::Cpu => Ok(()),
        _ => dispatch.choose_source(backend),
    }
}

fn check_access(lane: &dyn Lane, target: &BufferView, access: Access) -> Result<(), DeviceError> {
    let buffer = target.buffer();
    if !lane.can_access(buffer.device()) {
        return Err(DeviceError::WrongDevice {
            buffer: buffer.id(),
            buffer_device: buffer.device(),
            lane_device: lane.info().device,
        });
    }
    if access.writes() && target.view().is_broadcast() {
        return Err(DeviceError::BroadcastWrite { buffer: buffer.id() });
    }
    Ok(())
}
