//! Host functions of a lane: called on a thread of its own, since they may take their time.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;

use super::Driver;
use super::queue::LaneQueue;
use crate::{DeviceError, HostFunction};

/// Starts the thread that calls functions for `lane`, until the sender is dropped.
pub(super) fn start<D: Driver>(
    name: &str,
    lane: Weak<LaneQueue<D>>,
) -> Option<Sender<HostFunction>> {
    let (sender, functions) = channel::<HostFunction>();
    let thread = thread::Builder::new().name(format!("{name} host"));
    let started = thread.spawn(move || {
        for function in functions {
            let Some(lane) = lane.upgrade() else { return drop_quietly(function) };
            let name = function.name().clone();
            let result = catch_unwind(AssertUnwindSafe(|| function.call()))
                .unwrap_or_else(|panic| Err(panicked(&name, lane.task(), panic)));
            lane.called(result);
        }
    });
    started.ok().map(|_| sender)
}

fn panicked(name: &Arc<str>, task: Option<Arc<str>>, panic: Box<dyn Any + Send>) -> DeviceError {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let message = text.unwrap_or("(no message)").into();
    // What is thrown may panic again when dropped.
    std::mem::forget(panic);
    DeviceError::KernelPanicked { kernel: name.clone(), task, message }
}

/// What a closure captured may panic when it is dropped, and what it throws then may do so again.
pub(super) fn drop_quietly<T>(value: T) {
    catch_unwind(AssertUnwindSafe(|| drop(value))).unwrap_or_else(std::mem::forget);
}
