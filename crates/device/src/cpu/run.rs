//! What a worker does with the batches of a CPU lane.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use syncline_copy::CopyPlan;
use syncline_sync::Spin;

use super::queue::{Item, Queue, Taken, Waiting};
use super::ready::ReadyLanes;
use super::workers::Turn;
use crate::blocked::{LANES, run_above};
use crate::lane::fail_signals;
use crate::{
    BufferView, Command, Copy, DeviceError, Dispatch, Fill, HostFunction, Kernel, KernelArgs,
    PointStatus, RawArg, TimelineOwner, Watch, Work, drop_guarded, guarded,
};

/// Batches of a lane that run in a row while another lane is ready.
const SHARE: usize = 16;

thread_local! {
    /// Arguments of the kernel that runs, kept for their room.
    static SCRATCH: RefCell<Vec<RawArg>> = const { RefCell::new(Vec::new()) };
}

/// Runs a share of the batches of a lane that was ready. Returns `false` if the turn is over.
pub(super) fn run_lane(ready: &ReadyLanes, queue: &Arc<Queue>, turn: &mut Turn<'_>) -> bool {
    let Some(Taken { mut items, mut waiting, owner }) = queue.take() else { return true };
    let _lane = run_above([(LANES, queue.info.id())]);
    let mut goes_on = true;
    for count in 1.. {
        if queue.is_closing() {
            give_up(queue, Taken { items, waiting, owner });
            return turn.goes_on();
        }
        let (item, reached) = match waiting.take() {
            Some(Waiting { item, reached, .. }) => (item, reached),
            None => match items.pop_front() {
                Some(item) => (item, 0),
                None => break,
            },
        };
        match wait(ready, queue, &item.work, reached) {
            Waited::Decided(waited) => {
                if let Err(Failed { cause, behind }) = run_item(queue, item, waited, &owner) {
                    discard(queue, &cause, items.drain(..));
                    discard(queue, &cause, behind.into_iter());
                }
            }
            Waited::Pending { reached, watch } => {
                match queue.leave_waiting(Waiting { item, reached, _watch: watch }, items) {
                    Ok(()) => return turn.goes_on(),
                    Err(left) => (waiting, items) = (Some(left.0), left.1),
                }
                continue;
            }
        }
        goes_on = turn.goes_on();
        if !goes_on || count >= SHARE && ready.any() {
            break;
        }
    }
    if let Some(left) = queue.leave(items) {
        give_up(queue, left);
    }
    goes_on
}

/// Gives up the rest of a lane that closes, which the calling thread has.
pub(super) fn give_up(queue: &Queue, left: Taken) {
    let Taken { items, waiting, owner } = left;
    let rest: Vec<Item> = waiting.map(|waiting| waiting.item).into_iter().chain(items).collect();
    if !rest.is_empty() {
        let closed = DeviceError::Closed { lane: queue.info.name.clone() };
        owner.fail(closed.clone());
        discard(queue, &closed, rest.into_iter());
    }
    queue.end();
}

/// What came of the waits of a batch.
enum Waited {
    /// All points were reached, or one has failed.
    Decided(Result<(), DeviceError>),
    /// So many were reached, and the next one is watched.
    Pending { reached: usize, watch: Watch },
}

/// Waits for the points of a batch, of which `reached` were reached before: for a moment, unless
/// another lane is ready.
fn wait(ready: &ReadyLanes, queue: &Queue, work: &Work, mut reached: usize) -> Waited {
    while let Some(point) = work.waits.get(reached) {
        Spin::point().until(|| point.status() != PointStatus::Pending || ready.any());
        match point.status() {
            PointStatus::Reached => reached += 1,
            PointStatus::Failed(cause) => {
                return Waited::Decided(Err(cause.inherited(&queue.info.name, work.task.as_ref())));
            }
            PointStatus::Pending => {
                if let Some(watch) = queue.watch(point) {
                    return Waited::Pending { reached, watch };
                }
            }
        }
    }
    Waited::Decided(Ok(()))
}

/// Runs a batch that has waited.
fn run_item(
    queue: &Queue,
    item: Item,
    waited: Result<(), DeviceError>,
    owner: &TimelineOwner,
) -> Result<(), Failed> {
    let Item { work, value } = item;
    let mut scratch = SCRATCH.take();
    // User code is guarded where it is called. This guard is for the rest: a lane that no
    // thread runs any more would leave everyone waiting.
    let ran = guarded(|| run_batch(queue, *work, value, waited, owner, &mut scratch));
    SCRATCH.set(scratch);
    ran.unwrap_or_else(|message| {
        let name = &queue.info.name;
        Err(fail(queue, owner, panicked(name, None, message)))
    })
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

/// Runs one batch to its end. Its leases are released before any thread learns that it has
/// completed, and after it is known that it failed.
fn run_batch(
    queue: &Queue,
    work: Work,
    value: u64,
    waited: Result<(), DeviceError>,
    owner: &TimelineOwner,
    scratch: &mut Vec<RawArg>,
) -> Result<(), Failed> {
    let Work { commands, signals, task, mut leases, .. } = work;
    let mut result = waited;
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
