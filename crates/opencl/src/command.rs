//! What the driver is told to do: commands that are prepared once and enqueued as often as needed.

use std::ffi::c_void;
use std::ptr;

use opencl3::command_queue as queue;
use opencl3::types::{CL_FALSE, cl_event, cl_mem};
use syncline_copy::CopyPlan;
use syncline_device::Pattern;
use syncline_tensor::View;

use crate::api::{Code, Event, Mem, Queue, wait_list};
use crate::memory::OpenClMemory;
use crate::program::Taken;

/// One command of the driver. The lane that enqueues it keeps it, and the leases of the buffers in
/// it, until it has ended.
pub(crate) enum Op {
    /// Runs a kernel whose arguments are set.
    Launch(Launch),
    /// Copies bytes between buffers.
    Copy { source: Place, target: Place, bytes: usize },
    /// Copies rows between buffers.
    Rows { source: Place, target: Place, rows: Rows },
    /// Copies bytes from memory of the host.
    Upload { source: *const u8, target: Place, bytes: usize },
    /// Copies rows from memory of the host.
    UploadRows { source: *const u8, target: Place, rows: Rows },
    /// Copies bytes to memory of the host.
    Download { source: Place, target: *mut u8, bytes: usize },
    /// Copies rows to memory of the host.
    DownloadRows { source: Place, target: *mut u8, rows: Rows },
    /// Repeats a pattern.
    Fill { target: Place, pattern: Pattern, bytes: usize },
    /// Our own code, on a thread of the device. Boxed: the driver has its address.
    Native(Box<Native>),
}

// SAFETY: the addresses in it are used by the driver and by `Native::run` alone, on whatever
// thread, while leases keep the memory and the order of work keeps others off.
unsafe impl Send for Op {}
// SAFETY: as above; nothing in it changes.
unsafe impl Sync for Op {}

/// A byte in a buffer.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) mem: cl_mem,
    pub(crate) offset: usize,
}

/// `count[1]` times `count[0]` runs of `bytes` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rows {
    pub(crate) bytes: usize,
    pub(crate) count: [usize; 2],
    /// From a row to the next, and from a group of rows to the next.
    pub(crate) source: [usize; 2],
    pub(crate) target: [usize; 2],
}

/// A kernel with its arguments.
pub(crate) struct Launch {
    pub(crate) kernel: Taken,
    pub(crate) global: [usize; 3],
    pub(crate) local: [usize; 3],
    /// Its parameter block and other memory that only it uses.
    #[allow(dead_code)]
    pub(crate) holds: Vec<Hold>,
}

/// Memory that lives as long as a launch.
pub(crate) enum Hold {
    Pooled(#[allow(dead_code)] OpenClMemory),
    Own(#[allow(dead_code)] Mem),
}

/// A copy or fill by our own code.
pub(crate) enum Native {
    Copy { plan: CopyPlan, source: *const u8, target: *mut u8 },
    Within { plan: CopyPlan, base: *mut u8 },
    Fill { base: *mut u8, view: View, pattern: Pattern },
}

impl Native {
    /// # Safety
    /// The memory exists, and no work that conflicts runs.
    unsafe fn run(&self) {
        // SAFETY: the views lie inside their buffers; the caller's promise.
        unsafe {
            match self {
                Native::Copy { plan, source, target } => plan.run(*source, *target),
                Native::Within { plan, base } => plan.run_within(*base),
                Native::Fill { base, view, pattern } => {
                    syncline_device::fill::run(*base, view, pattern);
                }
            }
        }
    }
}

/// What the driver calls: its argument is a copy of the address of a [`Native`].
unsafe extern "C" fn run_native(args: *mut c_void) {
    // SAFETY: `enqueue` passed eight bytes that are such an address; the command that it belongs to
    // runs, so that what lies there is kept, the leases hold, and the order of work keeps others
    // off.
    unsafe { (**args.cast::<*const Native>()).run() };
}

impl Op {
    /// Gives the command to the driver, to run after `after` and all that was enqueued before.
    ///
    /// # Safety
    /// Until the returned event has ended, `self` stays where it is, and so does the memory in it;
    /// no work that conflicts runs at the same time.
    pub(crate) unsafe fn enqueue(&self, on: &Queue, after: &[cl_event]) -> Result<Event, Code> {
        let (count, list) = wait_list(after);
        let on = on.0;
        // SAFETY: all objects are of one context; sizes and places were checked when the command
        // was prepared; the caller keeps everything that the driver may touch.
        let event = unsafe {
            match self {
                Op::Launch(launch) => queue::enqueue_nd_range_kernel(
                    on,
                    launch.kernel.kernel().0,
                    3,
                    ptr::null(),
                    launch.global.as_ptr(),
                    launch.local.as_ptr(),
                    count,
                    list,
                ),
                Op::Copy { source, target, bytes } => queue::enqueue_copy_buffer(
                    on,
                    source.mem,
                    target.mem,
                    source.offset,
                    target.offset,
                    *bytes,
                    count,
                    list,
                ),
                Op::Rows { source, target, rows } => queue::enqueue_copy_buffer_rect(
                    on,
                    source.mem,
                    target.mem,
                    [source.offset, 0, 0].as_ptr(),
                    [target.offset, 0, 0].as_ptr(),
                    rows.region().as_ptr(),
                    rows.source[0],
                    rows.source[1],
                    rows.target[0],
                    rows.target[1],
                    count,
                    list,
                ),
                Op::Upload { source, target, bytes } => queue::enqueue_write_buffer(
                    on,
                    target.mem,
                    CL_FALSE,
                    target.offset,
                    *bytes,
                    source.cast(),
                    count,
                    list,
                ),
                Op::UploadRows { source, target, rows } => queue::enqueue_write_buffer_rect(
                    on,
                    target.mem,
                    CL_FALSE,
                    [target.offset, 0, 0].as_ptr(),
                    [0; 3].as_ptr(),
                    rows.region().as_ptr(),
                    rows.target[0],
                    rows.target[1],
                    rows.source[0],
                    rows.source[1],
                    source.cast(),
                    count,
                    list,
                ),
                Op::Download { source, target, bytes } => queue::enqueue_read_buffer(
                    on,
                    source.mem,
                    CL_FALSE,
                    source.offset,
                    *bytes,
                    target.cast(),
                    count,
                    list,
                ),
                Op::DownloadRows { source, target, rows } => queue::enqueue_read_buffer_rect(
                    on,
                    source.mem,
                    CL_FALSE,
                    [source.offset, 0, 0].as_ptr(),
                    [0; 3].as_ptr(),
                    rows.region().as_ptr(),
                    rows.source[0],
                    rows.source[1],
                    rows.target[0],
                    rows.target[1],
                    target.cast(),
                    count,
                    list,
                ),
                Op::Fill { target, pattern, bytes } => queue::enqueue_fill_buffer(
                    on,
                    target.mem,
                    pattern.bytes().as_ptr().cast(),
                    pattern.bytes().len(),
                    target.offset,
                    *bytes,
                    count,
                    list,
                ),
                Op::Native(native) => {
                    let address: *const Native = &**native;
                    queue::enqueue_native_kernel(
                        on,
                        Some(run_native),
                        ptr::from_ref(&address).cast_mut().cast(),
                        size_of_val(&address),
                        0,
                        ptr::null(),
                        ptr::null(),
                        count,
                        list,
                    )
                }
            }
        };
        Ok(Event(event?))
    }
}

impl Rows {
    fn region(&self) -> [usize; 3] {
        [self.bytes, self.count[0], self.count[1]]
    }
}

/// A command that does nothing but wait for `after` and all that was enqueued before.
pub(crate) fn marker(on: &Queue, after: &[cl_event]) -> Result<Event, Code> {
    let (count, list) = wait_list(after);
    // SAFETY: the events are of the queue's context and live until the call returns.
    Ok(Event(unsafe { queue::enqueue_barrier_with_wait_list(on.0, count, list) }?))
}
