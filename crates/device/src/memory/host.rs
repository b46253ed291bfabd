//! Memory that the host reaches, of any owner.

use std::any::Any;
use std::ptr::NonNull;

use crate::{DeviceError, Memory};

/// Bytes of the host that live as long as their owner.
pub(crate) struct HostBytes<O> {
    base: NonNull<u8>,
    bytes: u64,
    _owner: O,
}

// SAFETY: an address, a size and an owner that may go to other threads; access goes through raw
// pointers under the callers' promises.
unsafe impl<O: Send> Send for HostBytes<O> {}
// SAFETY: as above; the owner is not touched before it is dropped.
unsafe impl<O: Send> Sync for HostBytes<O> {}

impl<O> std::fmt::Debug for HostBytes<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes at {:?}", self.bytes, self.base)
    }
}

// SAFETY: address and size never change; `HostBytes::new` was promised the bytes until it is
// dropped.
unsafe impl<O: Send + 'static> Memory for HostBytes<O> {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn host_pointer(&self) -> Option<NonNull<u8>> {
        Some(self.base)
    }

    unsafe fn read(&self, offset: u64, target: &mut [u8]) -> Result<(), DeviceError> {
        // SAFETY: the caller vouches for the range and that no other writes it.
        unsafe {
            let source = self.base.as_ptr().add(offset as usize);
            std::ptr::copy_nonoverlapping(source, target.as_mut_ptr(), target.len());
        }
        Ok(())
    }

    unsafe fn write(&self, offset: u64, source: &[u8]) -> Result<(), DeviceError> {
        // SAFETY: the caller vouches for the range and that no other touches it.
        unsafe {
            let target = self.base.as_ptr().add(offset as usize);
            std::ptr::copy_nonoverlapping(source.as_ptr(), target, source.len());
        }
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl<O> HostBytes<O> {
    /// `bytes` bytes from `base` on.
    ///
    /// # Safety
    /// They stay allocated, initialised and no other's until `owner` is dropped.
    pub(crate) unsafe fn new(base: NonNull<u8>, bytes: u64, owner: O) -> Self {
        Self { base, bytes, _owner: owner }
    }
}
