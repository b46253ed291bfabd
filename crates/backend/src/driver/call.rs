//! Host functions of a lane: called on a thread of its own, since they may take their time.

use std::sync::Weak;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use super::Driver;
use super::queue::LaneQueue;
use syncline_device::blocked::{LANES, run_above};
use syncline_device::{DeviceError, HostFunction, drop_guarded, guarded};

/// Starts the thread that calls functions for `lane`, until the sender is dropped.
pub(super) fn start<D: Driver>(
    name: &str,
    id: u64,
    lane: Weak<LaneQueue<D>>,
) -> Option<Sender<HostFunction>> {
    let (sender, functions) = channel::<HostFunction>();
    let thread = thread::Builder::new().name(format!("{name} host"));
    let started = thread.spawn(move || {
        let _lane = run_above([(LANES, id)]);
        for function in functions {
            let Some(lane) = lane.upgrade() else { return drop_guarded(function) };
            let name = function.name().clone();
            let result = guarded(|| function.call()).unwrap_or_else(|message| {
                Err(DeviceError::KernelPanicked { kernel: name, task: lane.task(), message })
            });
            lane.called(result);
        }
    });
    started.ok().map(|_| sender)
}
