//! What a CPU lane's worker does with its batches.

use std::collections::VecDeque;
use std::sync::Arc;

use syncline_copy::CopyPlan;

use super::queue::{Item, Queue, Taken};
use crate::blocked::{LANES, run_above};
use crate::lane::fail_signals;
use crate::{
    BufferView, Command, Copy, Deadline, DeviceError, Dispatch, Fill, HostFunction, Kernel,
    KernelArgs, Point, RawArg, TimelineOwner, Work, drop_guarded, guarded, wait_any,
};

/// Runs batches until the lane closes.
pub(super) fn work(queue: &Queue) {
    let _lane = run_above([(LANES, queue.info.id())]);
    let mut items = VecDeque::new();
    let mut scratch = Vec::new();
    let mut seen = 0;
    while let Taken::Items(owner) = queue.take(&mut items, &mut seen) {
        let mut left = items.drain(..);
        while let Some(item) = left.next() {
            // User code is guarded where it is called. This guard is for what is overlooked: a lane
            // whose thread has ended without a word would leave everyone waiting.
            let Item { work, value } = item;
            let ran = guarded(|| run_batch(queue, *work, value, &owner, &mut scratch));
            let ran = ran.unwrap_or_else(|message| {
                let name = &queue.info.name;
                Err(fail(queue, &owner, panicked(name, None, message)))
            });
            if let Err(Failed { cause, behind }) = ran {
                // A lane that closes hands everything back below; one that fails does so here, and
                // goes on.
                discard(queue, &cause, left.by_ref());
                discard(queue, &cause, behind.into_iter());
                break;
            }
        }
    }
    let (rest, owner) = queue.take_rest();
    if !rest.is_empty() {
        let closed = DeviceError::Closed { lane: queue.info.name.clone() };
        owner.fail(closed.clone());
        discard(queue, &closed, rest.into_iter());
    }
}

/// A batch failed, and with it the lane: the cause, and what was queued behind.
struct Failed {
    cause: DeviceError,
    behind: VecDeque<Item>,
}

/// Fails the lane. Before any lease is released: who waits for a buffer must find the failure when
/// it gets there.
fn fail(queue: &Queue, owner: &TimelineOwner, cause: DeviceError) -> Failed {
    // The queue first: who learns of the failure from the timeline may recover the lane at once.
    let behind = queue.fail(&cause);
    owner.fail(cause.clone());
    Failed { cause, behind }
}

fn signal(owner: &TimelineOwner, value: u64) {
    owner.signal(value).expect("values of one lane grow, and only it can fail");
}

fn refuse_if_closing(queue: &Queue) -> Result<(), DeviceError> {
    match queue.is_closing() {
        true => Err(DeviceError::Closed { lane: queue.info.name.clone() }),
        false => Ok(()),
    }
}

/// Runs one batch to its end. Its leases are released before anybody learns that it has completed,
/// and after it is known that it failed.
fn run_batch(
    queue: &Queue,
    work: Work,
    value: u64,
    owner: &TimelineOwner,
    scratch: &mut Vec<RawArg>,
) -> Result<(), Failed> {
    let Work { waits, commands, signals, task, mut leases } = work;
    let mut result = waits.iter().try_for_each(|point| wait(queue, point, task.as_ref()));
    for command in commands {
        result = run_command(queue, command, result, task.as_ref(), scratch);
    }
    if result.is_ok() {
        drop_guarded(std::mem::take(&mut leases));
    }
    for point in &signals {
        if result.is_ok() {
            result = point.timeline().signal(point.value());
        }
    }
    result.map(|()| signal(owner, value)).map_err(|cause| {
        let failed = fail(queue, owner, cause);
        drop_guarded(leases);
        fail_signals(&signals, &failed.cause);
        failed
    })
}

/// Gives up batches that come after a failure.
fn discard(queue: &Queue, cause: &DeviceError, items: impl Iterator<Item = Item>) {
    for item in items {
        let Work { commands, signals, task, leases, .. } = *item.work;
        drop_guarded(commands);
        drop_guarded(leases);
        fail_signals(&signals, &cause.inherited(&queue.info.name, task.as_ref()));
    }
}

/// Waits for `point`, or until the lane closes.
fn wait(queue: &Queue, point: &Point, task: Option<&Arc<str>>) -> Result<(), DeviceError> {
    if point.is_reached() {
        return Ok(());
    }
    let either = [point.clone(), queue.stop().point(1)];
    match wait_any(&either, Deadline::NEVER) {
        Ok(0) => Ok(()),
        Ok(_) => Err(DeviceError::Closed { lane: queue.info.name.clone() }),
        Err(cause) => Err(cause.inherited(&queue.info.name, task)),
    }
}

/// Runs a command, or only drops it where something failed before.
fn run_command(
    queue: &Queue,
    command: Command,
    before: Result<(), DeviceError>,
    task: Option<&Arc<str>>,
    scratch: &mut Vec<RawArg>,
) -> Result<(), DeviceError> {
    let result = before.and_then(|()| refuse_if_closing(queue));
    if result.is_err() {
        drop_guarded(command);
        return result;
    }
    if let Command::Host(function) = command {
        let name = function.name().clone();
        return guarded(|| HostFunction::call(function))
            .unwrap_or_else(|message| Err(panicked(&name, task, message)));
    }
    let result = match &command {
        Command::Recording(recording) => {
            recording.commands().iter().enumerate().try_for_each(|(at, command)| {
                refuse_if_closing(queue)?;
                run_borrowed(command, recording.task(at).or(task), scratch)
            })
        }
        command => run_borrowed(command, task, scratch),
    };
    drop_guarded(command);
    result
}

/// Runs a command that can run more than once.
fn run_borrowed(
    command: &Command,
    task: Option<&Arc<str>>,
    scratch: &mut Vec<RawArg>,
) -> Result<(), DeviceError> {
    // What a failed call leaves half done is memory of buffers, which stays marked as failed.
    let ran = guarded(|| match command {
        Command::Copy(copy) => run_copy(copy),
        Command::Fill(fill) => run_fill(fill),
        Command::Dispatch(dispatch) => run_dispatch(dispatch, task, scratch),
        Command::Host(_) | Command::Recording(_) => unreachable!("they are never recorded"),
    });
    ran.unwrap_or_else(|message| match command {
        Command::Dispatch(dispatch) => Err(panicked(dispatch.kernel.name(), task, message)),
        _ => Err(panicked(&"copy or fill".into(), task, message)),
    })
}

fn run_copy(copy: &Copy) -> Result<(), DeviceError> {
    let plan = CopyPlan::new(copy.source.view(), copy.target.view())?;
    let (source, target) = (base(&copy.source), base(&copy.target));
    // SAFETY: both views lie inside their buffers, whose memory the batch's leases keep; whoever
    // submitted the batch has ordered it with all conflicting work; different buffers never
    // overlap.
    unsafe {
        match source == target {
            true => plan.run_within(target),
            false => plan.run(source, target),
        }
    }
    Ok(())
}

fn run_fill(fill: &Fill) -> Result<(), DeviceError> {
    // SAFETY: as in `run_copy`; the pattern was checked when the batch was submitted.
    unsafe { crate::fill::run(base(&fill.target), fill.target.view(), &fill.pattern) };
    Ok(())
}

fn run_dispatch(
    dispatch: &Dispatch,
    task: Option<&Arc<str>>,
    scratch: &mut Vec<RawArg>,
) -> Result<(), DeviceError> {
    scratch.clear();
    scratch.extend(dispatch.args.iter().map(|arg| RawArg {
        base: base(&arg.target),
        view: arg.view(),
        writes: arg.access.writes(),
    }));
    // SAFETY: as in `run_copy`; the views of one batch may overlap each other, which `KernelArgs`
    // looks after.
    let args = unsafe { KernelArgs::from_raw(scratch, &dispatch.scalars) };
    // SAFETY: the call was checked when the batch was submitted.
    unsafe { dispatch.kernel.call_checked(&mut args.with_grid(dispatch.grid)) }
        .map_err(|message| failed(&dispatch.kernel, task, message))
}

#[cold]
fn failed(kernel: &Kernel, task: Option<&Arc<str>>, message: String) -> DeviceError {
    DeviceError::KernelFailed {
        kernel: kernel.name().clone(),
        task: task.cloned(),
        message: message.into(),
    }
}

/// The first byte of a view's buffer.
fn base(target: &BufferView) -> *mut u8 {
    let start = target.buffer().host_pointer();
    start.expect("leased memory of a CPU device, which the host reaches").as_ptr()
}

#[cold]
fn panicked(name: &Arc<str>, task: Option<&Arc<str>>, message: Arc<str>) -> DeviceError {
    DeviceError::KernelPanicked { kernel: name.clone(), task: task.cloned(), message }
}
