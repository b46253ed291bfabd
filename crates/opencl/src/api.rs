//! Handles of OpenCL objects that are released when dropped, and the driver's error codes as text.
//!
//! `opencl3` has such handles too, but they panic where a release fails, and events among them
//! cannot be shared.

use std::ffi::c_void;
use std::fmt;
use std::ptr;

use opencl3::command_queue as queue;
use opencl3::error_codes::ClError;
use opencl3::types::{cl_command_queue, cl_event, cl_int, cl_kernel, cl_mem, cl_program};
use opencl3::{event, kernel, memory, program};

/// What a call of the driver returned instead of success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) cl_int);

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", ClError(self.0), self.0)
    }
}

impl From<cl_int> for Code {
    fn from(code: cl_int) -> Self {
        Code(code)
    }
}

impl From<ClError> for Code {
    fn from(error: ClError) -> Self {
        Code(error.0)
    }
}

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident($raw:ty), $release:path) => {
        $(#[$doc])*
        pub(crate) struct $name(pub(crate) $raw);

        // SAFETY: OpenCL objects may be used from any thread; what must not be called from two at
        // once (`clSetKernelArg` on one kernel) is reached by exclusive owners only.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: the handle holds one reference, which is given up here. A release fails
                // only for handles that are not valid, about which nothing can be done.
                let _ = unsafe { $release(self.0) };
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({:p})", stringify!($name), self.0)
            }
        }
    };
}

handle!(
    /// A command queue.
    Queue(cl_command_queue), queue::release_command_queue
);
handle!(
    /// One command's event.
    Event(cl_event), event::release_event
);
handle!(
    /// A buffer or a part of one.
    Mem(cl_mem), memory::release_mem_object
);
handle!(
    /// A program.
    ClProgram(cl_program), program::release_program
);
handle!(
    /// A kernel and its arguments.
    ClKernel(cl_kernel), kernel::release_kernel
);

impl Clone for Event {
    fn clone(&self) -> Self {
        // SAFETY: the event is valid, since `self` holds a reference.
        let retained = unsafe { event::retain_event(self.0) };
        assert!(retained.is_ok(), "clRetainEvent on a valid event: {retained:?}");
        Event(self.0)
    }
}

/// A list of events as drivers take it: its length, and no address where it is empty.
pub(crate) fn wait_list(events: &[cl_event]) -> (u32, *const cl_event) {
    match events {
        [] => (0, ptr::null()),
        _ => (events.len() as u32, events.as_ptr()),
    }
}

/// Asks for `call` when `of` has ended, on whatever thread the driver likes.
///
/// # Safety
/// `call` may be called with `data` once, at any time until `of` has ended.
pub(crate) unsafe fn on_end(
    of: &Event,
    call: extern "C" fn(cl_event, cl_int, *mut c_void),
    data: *mut c_void,
) -> Result<(), Code> {
    Ok(event::set_event_callback(of.0, event::CL_COMPLETE, call, data)?)
}
