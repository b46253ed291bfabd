//! Calls to user code: bodies, wakers, writers, callbacks, and the destructors of what they
//! captured.
//!
//! User code may panic, also in a destructor, and the panic's payload may panic again when it is
//! dropped. None of that may end a thread of the runtime, or keep other user code from being
//! called. User code is never called while a lock is held: it may call back into the API.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Calls user code. Returns the panic's text if it panics.
///
/// ```
/// use syncline_device::guarded;
///
/// assert_eq!(guarded(|| 1), Ok(1));
/// assert_eq!(guarded(|| panic!("no")).err().as_deref(), Some("no"));
/// ```
#[inline]
pub fn guarded<T>(call: impl FnOnce() -> T) -> Result<T, Arc<str>> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|payload| {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let text = text.unwrap_or("(no message)").into();
        // The payload may panic when it is dropped.
        std::mem::forget(payload);
        text
    })
}

/// Drops a value that may hold user code. A panic of a destructor ends here, after the panic hook
/// has reported it.
pub fn drop_guarded<T>(value: T) {
    let _ = guarded(|| drop(value));
}
