//! What the driver is told to do: commands that are prepared once and enqueued as often as needed.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUDA_MEMCPY2D, CUdeviceptr, CUmemorytype};
use syncline_copy::CopyPlan;
use syncline_device::Pool;

use crate::api::{Pinned, Stream, check};
use crate::memory::CudaMemory;
use crate::program::Entry;

/// One command of the driver. The lane that enqueues it keeps it, and the leases of the buffers in
/// it, until it has ended.
pub(crate) enum Op {
    /// Runs a kernel.
    Launch(Launch),
    /// Copies bytes or rows between places that the device reaches.
    Copy(Rows),
    /// Sets units of memory.
    Set(Set),
    /// Our own code, on a thread of the driver. Boxed: the driver has its address.
    Call(Box<Call>),
    /// Nothing to enqueue: a slot that commands before this one use.
    Keep(#[allow(dead_code)] Arc<Slot>),
}

// SAFETY: the addresses in it are used by the driver and by `Call::run` alone, on whatever thread,
// while leases keep the memory and the order of work keeps others off.
unsafe impl Send for Op {}
// SAFETY: as above; nothing in it changes.
unsafe impl Sync for Op {}

/// A place that the device reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Device(CUdeviceptr),
    Pinned(*mut u8),
}

impl Place {
    /// `bytes` further on.
    pub(crate) fn at(self, bytes: u64) -> Self {
        match self {
            Place::Device(start) => Place::Device(start + bytes),
            Place::Pinned(start) => Place::Pinned(start.wrapping_add(bytes as usize)),
        }
    }
}

/// `count` runs of `bytes` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rows {
    pub(crate) source: Place,
    pub(crate) target: Place,
    pub(crate) bytes: usize,
    pub(crate) count: usize,
    pub(crate) source_pitch: usize,
    pub(crate) target_pitch: usize,
}

/// `count` units of one value, each `pitch` bytes behind the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Set {
    pub(crate) target: CUdeviceptr,
    pub(crate) unit: Unit,
    pub(crate) pitch: usize,
    pub(crate) count: usize,
}

/// What memory can be set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    One(u8),
    Two(u16),
    Four(u32),
}

impl Unit {
    pub(crate) fn bytes(self) -> usize {
        match self {
            Unit::One(_) => 1,
            Unit::Two(_) => 2,
            Unit::Four(_) => 4,
        }
    }
}

/// A kernel with its arguments.
pub(crate) struct Launch {
    pub(crate) entry: Arc<Entry>,
    pub(crate) groups: [u32; 3],
    pub(crate) items: [u32; 3],
    /// The buffers, and behind them the parameter block.
    pub(crate) args: Vec<CUdeviceptr>,
    /// The memory of the parameter block.
    #[allow(dead_code)]
    pub(crate) block: CudaMemory,
}

/// Copies between memory of the host and a pinned slot.
pub(crate) struct Call {
    pub(crate) plan: CopyPlan,
    pub(crate) source: *const u8,
    pub(crate) target: *mut u8,
    /// The slot.
    #[allow(dead_code)]
    pub(crate) slot: Arc<Slot>,
}

/// A pinned slot, which goes back to its pool when dropped.
pub(crate) struct Slot {
    pinned: Option<Pinned>,
    pool: Arc<Pool<Pinned>>,
}

impl Slot {
    pub(crate) fn new(pinned: Pinned, pool: &Arc<Pool<Pinned>>) -> Arc<Self> {
        Arc::new(Self { pinned: Some(pinned), pool: pool.clone() })
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.pinned.as_ref().expect("taken only by drop").start
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let pinned = self.pinned.take().expect("dropped once");
        self.pool.give(pinned.bytes, pinned);
    }
}

/// What the driver calls, in order with the stream.
unsafe extern "C" fn run_call(data: *mut c_void) {
    // SAFETY: `enqueue` passed the address of a `Call`; the command that it belongs to runs, so
    // that it is kept, the leases hold, and the order of work keeps others off.
    unsafe {
        let call = &*data.cast::<Call>();
        call.plan.run(call.source, call.target);
    }
}

impl Op {
    /// Gives the command to the driver, to run after all that `stream` has. The context has been
    /// entered.
    ///
    /// # Safety
    /// Until it has ended, `self` stays where it is, and so does the memory in it; no work that
    /// conflicts runs at the same time.
    pub(crate) unsafe fn enqueue(&self, stream: &Stream) -> Result<(), DriverError> {
        // SAFETY: places and sizes were checked when the command was prepared; the caller keeps
        // everything that the driver may touch.
        unsafe {
            match self {
                Op::Launch(launch) => {
                    let address =
                        |arg: &CUdeviceptr| ptr::from_ref(arg).cast_mut().cast::<c_void>();
                    // The driver copies the arguments during the call.
                    let mut args: Vec<*mut c_void> = launch.args.iter().map(address).collect();
                    let [x, y, z] = launch.groups;
                    let [items_x, items_y, items_z] = launch.items;
                    result::launch_kernel(
                        launch.entry.function.0,
                        (x, y, z),
                        (items_x, items_y, items_z),
                        0,
                        stream.handle,
                        &mut args,
                    )
                }
                Op::Copy(rows) => check(match (rows.count, rows.source, rows.target) {
                    (1, Place::Device(source), Place::Device(target)) => {
                        sys::cuMemcpyDtoDAsync_v2(target, source, rows.bytes, stream.handle)
                    }
                    (1, Place::Pinned(source), Place::Device(target)) => {
                        sys::cuMemcpyHtoDAsync_v2(target, source.cast(), rows.bytes, stream.handle)
                    }
                    (1, Place::Device(source), Place::Pinned(target)) => {
                        sys::cuMemcpyDtoHAsync_v2(target.cast(), source, rows.bytes, stream.handle)
                    }
                    _ => sys::cuMemcpy2DAsync_v2(&rows.rectangle(), stream.handle),
                }),
                Op::Set(set) => {
                    let Set { target, unit, pitch, count } = *set;
                    let packed = pitch == unit.bytes();
                    check(match (unit, packed) {
                        (Unit::One(value), true) => {
                            sys::cuMemsetD8Async(target, value, count, stream.handle)
                        }
                        (Unit::Two(value), true) => {
                            sys::cuMemsetD16Async(target, value, count, stream.handle)
                        }
                        (Unit::Four(value), true) => {
                            sys::cuMemsetD32Async(target, value, count, stream.handle)
                        }
                        (Unit::One(value), false) => {
                            sys::cuMemsetD2D8Async(target, pitch, value, 1, count, stream.handle)
                        }
                        (Unit::Two(value), false) => {
                            sys::cuMemsetD2D16Async(target, pitch, value, 1, count, stream.handle)
                        }
                        (Unit::Four(value), false) => {
                            sys::cuMemsetD2D32Async(target, pitch, value, 1, count, stream.handle)
                        }
                    })
                }
                Op::Call(call) => {
                    let data = ptr::from_ref::<Call>(call).cast_mut().cast();
                    result::stream::launch_host_function(stream.handle, run_call, data)
                }
                Op::Keep(_) => Ok(()),
            }
        }
    }
}

impl Rows {
    fn rectangle(&self) -> CUDA_MEMCPY2D {
        let part = |place| match place {
            Place::Device(start) => (CUmemorytype::CU_MEMORYTYPE_DEVICE, start, ptr::null_mut()),
            Place::Pinned(start) => (CUmemorytype::CU_MEMORYTYPE_HOST, 0, start),
        };
        let (source_type, source_device, source_host) = part(self.source);
        let (target_type, target_device, target_host) = part(self.target);
        CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: source_type,
            srcHost: source_host.cast_const().cast(),
            srcDevice: source_device,
            srcArray: ptr::null_mut(),
            srcPitch: self.source_pitch,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: target_type,
            dstHost: target_host.cast(),
            dstDevice: target_device,
            dstArray: ptr::null_mut(),
            dstPitch: self.target_pitch,
            WidthInBytes: self.bytes,
            Height: self.count,
        }
    }
}
