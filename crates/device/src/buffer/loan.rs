//! Slices of the caller's, lent to buffers for the time of a call.
//!
//! A buffer is a handle that can be kept anywhere, so no lifetime ends its use. Instead, when the
//! call ends, each lent buffer is *revoked*: that waits until no user is left, and refuses every
//! use from then on. All uses of a buffer's memory, by hosts, lanes, claims and streams, enter it
//! first (`Uses`), so none is left and none can begin when the borrow ends.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Mutex;

use syncline_sync::lock;

use super::Buffer;
use crate::{DeviceError, Element};

/// What [`lending`] gives to lend slices with.
#[derive(Debug)]
pub struct Loans<'env> {
    lent: Mutex<Vec<Buffer>>,
    // Invariant, as that of `std::thread::Scope`: a shorter one would let shorter borrows in.
    env: PhantomData<&'env mut &'env ()>,
}

/// Calls `call`, which may lend slices to buffers. Returns, also by a panic, when these buffers
/// have no user any more; later uses of them are errors.
///
/// ```
/// use syncline_device::{DeviceError, lending};
///
/// let mut numbers = [1u32, 2, 3];
/// let kept = lending(|loans| {
///     let buffer = loans.lend(&mut numbers)?;
///     buffer.write(4, &[7u32])?;
///     Ok::<_, DeviceError>(buffer)
/// })?;
/// assert_eq!(numbers, [1, 7, 3]);
/// assert!(matches!(kept.read::<u32>(0, 3), Err(DeviceError::LoanEnded { .. })));
/// # Ok::<(), DeviceError>(())
/// ```
///
/// A map or claim of a lent buffer that this thread keeps beyond the call, or forgets, would leave
/// a reference to memory that is no longer lent: the process is aborted then.
pub fn lending<'env, R>(call: impl FnOnce(&Loans<'env>) -> R) -> R {
    let loans = Loans { lent: Mutex::default(), env: PhantomData };
    call(&loans)
}

impl<'env> Loans<'env> {
    /// A buffer over `elements`, which are used in place.
    ///
    /// # Errors
    /// No memory is as large.
    pub fn lend<T: Element>(&self, elements: &'env mut [T]) -> Result<Buffer, DeviceError> {
        let bytes = size_of_val(elements) as u64;
        let base = NonNull::from(elements).cast();
        // SAFETY: the elements are borrowed for `'env`, which outlives `self`; when `self` is
        // dropped, the buffer is revoked, and no use of it is left.
        let buffer = unsafe { Buffer::lend(base, bytes) }?;
        lock(&self.lent).push(buffer.clone());
        Ok(buffer)
    }
}

impl Drop for Loans<'_> {
    fn drop(&mut self) {
        // Wherever a wait is refused, a reference could outlive the borrow: a second panic while
        // this one unwinds aborts the process.
        struct Abort;
        impl Drop for Abort {
            fn drop(&mut self) {
                panic!("a lent buffer is still in use, by a map or a claim: aborting");
            }
        }
        for buffer in std::mem::take(&mut *lock(&self.lent)) {
            if let Err(error) = buffer.revoke() {
                let _abort = Abort;
                panic!("{error}");
            }
        }
    }
}
