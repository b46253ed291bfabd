//! Handles of CUDA objects that are released when dropped, and the driver's errors as text.
//!
//! A thread must have made a context its own before it calls the driver: every function here that
//! does so says which.

use std::fmt;
use std::ptr;
use std::sync::{Arc, Mutex};

use syncline_sync::{ignore_poison, lock};

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUcontext, CUevent, CUmodule, CUresult, CUstream};
use syncline_device::{DeviceError, DeviceSpec};

/// The driver's name and words for an error.
pub(crate) fn text(error: DriverError) -> String {
    let known = |found: Result<&std::ffi::CStr, DriverError>| {
        found.map_or_else(|_| String::new(), |text| text.to_string_lossy().into_owned())
    };
    format!("{} ({})", known(error.error_name()), known(error.error_string()))
}

/// The outcome of a call.
pub(crate) fn check(result: CUresult) -> Result<(), DriverError> {
    result.result()
}

/// The driver would not give something.
pub(crate) fn refused(device: DeviceSpec, what: &str, error: DriverError) -> DeviceError {
    let message = format!("the driver refuses {what}: {}", text(error));
    DeviceError::Backend { device, message: message.into() }
}

/// The device's primary context, which all users of the device in this process share.
pub(crate) struct Primary {
    device: sys::CUdevice,
    handle: CUcontext,
}

// SAFETY: a context may be made current on any thread, also on several at once.
unsafe impl Send for Primary {}
// SAFETY: as above.
unsafe impl Sync for Primary {}

impl Primary {
    /// Retains the primary context of `device`.
    pub(crate) fn retain(device: sys::CUdevice) -> Result<Self, DriverError> {
        // SAFETY: the driver is initialised, since there is a device.
        let handle = unsafe { result::primary_ctx::retain(device) }?;
        Ok(Self { device, handle })
    }

    /// Makes the context that of the calling thread.
    pub(crate) fn enter(&self) -> Result<(), DriverError> {
        // SAFETY: the context is retained as long as `self` lives.
        unsafe { result::ctx::set_current(self.handle) }
    }
}

impl Drop for Primary {
    fn drop(&mut self) {
        // SAFETY: retained once, by `retain`. About a failure nothing can be done.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

/// A stream.
pub(crate) struct Stream {
    pub(crate) handle: CUstream,
    primary: Arc<Primary>,
}

// SAFETY: streams may be used from any thread that has entered their context.
unsafe impl Send for Stream {}

impl Stream {
    /// A stream that does not wait for the default one, nor that for it.
    pub(crate) fn new(primary: &Arc<Primary>) -> Result<Self, DriverError> {
        primary.enter()?;
        let handle = result::stream::create(result::stream::StreamKind::NonBlocking)?;
        Ok(Self { handle, primary: primary.clone() })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.primary.enter().is_ok() {
            // SAFETY: made by `new`; pending work completes before the driver lets go of
            // it.
            let _ = unsafe { result::stream::destroy(self.handle) };
        }
    }
}

/// A module, which its functions live in.
pub(crate) struct Module {
    pub(crate) handle: CUmodule,
    primary: Arc<Primary>,
}

// SAFETY: modules may be used from any thread that has entered their context.
unsafe impl Send for Module {}
// SAFETY: as above; nothing changes a loaded module.
unsafe impl Sync for Module {}

impl Module {
    /// Loads PTX, which ends with a zero byte.
    pub(crate) fn load(primary: &Arc<Primary>, ptx: &std::ffi::CStr) -> Result<Self, DriverError> {
        primary.enter()?;
        // SAFETY: the driver reads the text, up to its zero byte, during the call.
        let handle = unsafe { result::module::load_data(ptx.as_ptr().cast()) }?;
        Ok(Self { handle, primary: primary.clone() })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if self.primary.enter().is_ok() {
            // SAFETY: loaded by `load`; a lane that launches its functions holds it until they have
            // ended.
            let _ = unsafe { result::module::unload(self.handle) };
        }
    }
}

/// Events that are not in use: making one takes longer than recording it.
pub(crate) struct EventPool {
    primary: Arc<Primary>,
    idle: Mutex<Vec<RawEvent>>,
}

/// An event's handle.
#[derive(Clone, Copy)]
struct RawEvent(CUevent);

// SAFETY: events may be used from any thread that has entered their context.
unsafe impl Send for RawEvent {}
// SAFETY: as above.
unsafe impl Sync for RawEvent {}

impl EventPool {
    pub(crate) fn new(primary: Arc<Primary>) -> Arc<Self> {
        Arc::new(Self { primary, idle: Mutex::default() })
    }

    /// An event that marks the end of what `stream` has. The context has been entered.
    pub(crate) fn record(self: &Arc<Self>, stream: &Stream) -> Result<Event, DriverError> {
        let idle = lock(&self.idle).pop();
        let raw = match idle {
            Some(raw) => raw,
            None => RawEvent(result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)?),
        };
        let event = Event(Arc::new(Recorded { raw, pool: self.clone() }));
        // SAFETY: event and stream are of one context and live. A stream that waits for an earlier
        // use of this event is not affected: it waits for what was recorded when it was told to.
        unsafe { result::event::record(raw.0, stream.handle) }?;
        Ok(event)
    }
}

impl Drop for EventPool {
    fn drop(&mut self) {
        if self.primary.enter().is_ok() {
            for RawEvent(event) in ignore_poison(self.idle.get_mut()) {
                // SAFETY: it is idle, and so in no other hands.
                let _ = unsafe { result::event::destroy(*event) };
            }
        }
    }
}

/// A place in a stream. Clones are handles of the same place.
#[derive(Clone)]
pub(crate) struct Event(Arc<Recorded>);

struct Recorded {
    raw: RawEvent,
    pool: Arc<EventPool>,
}

impl Event {
    /// Has `stream` wait for this place. The context has been entered.
    pub(crate) fn hold_up(&self, stream: &Stream) -> Result<(), DriverError> {
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: both are of one context and live.
        unsafe { result::stream::wait_event(stream.handle, self.0.raw.0, flags) }
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        lock(&self.pool.idle).push(self.raw);
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({:p})", self.0.raw.0)
    }
}

/// Memory of the host that the device reaches without help, so that copies run beside everything
/// else.
pub(crate) struct Pinned {
    pub(crate) start: *mut u8,
    pub(crate) bytes: u64,
    primary: Arc<Primary>,
}

// SAFETY: it owns its memory; access goes through raw pointers under the callers' promises.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

impl Pinned {
    pub(crate) fn new(primary: &Arc<Primary>, bytes: u64) -> Option<Self> {
        primary.enter().ok()?;
        let mut start = ptr::null_mut();
        // SAFETY: the driver writes the address.
        check(unsafe { sys::cuMemHostAlloc(&mut start, usize::try_from(bytes).ok()?, 0) }).ok()?;
        Some(Self { start: start.cast(), bytes, primary: primary.clone() })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.primary.enter().is_ok() {
            // SAFETY: allocated by `new`; the work that used it has ended.
            let _ = unsafe { result::free_host(self.start.cast()) };
        }
    }
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pinned({} bytes)", self.bytes)
    }
}
