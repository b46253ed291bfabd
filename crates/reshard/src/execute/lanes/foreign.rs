//! Buffers over memory that belongs to somebody else: slots, windows, and what callers have bound.
//!
//! Lanes copy between buffers. This makes a buffer of any memory that the process can reach, so
//! that a device copies from and to it as from and to memory of a CPU device.

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use syncline_device::{Allocator, Buffer, DeviceError, DeviceSpec, Memory, MemoryUse};

/// What keeps the memory mapped, if anything has to.
pub(super) type Keep = Option<Arc<dyn Any + Send + Sync>>;

/// A buffer over `bytes` from `start` on.
///
/// # Safety
/// The memory must be readable and writable for as long as work on the buffer is pending, and
/// whoever submits such work orders it with everything else that touches the memory.
pub(super) unsafe fn foreign(start: NonNull<u8>, bytes: usize, keep: Keep) -> Buffer {
    Buffer::new(Arc::new(Foreign { start, bytes: bytes as u64, keep }), bytes as u64)
}

#[derive(Clone)]
struct Foreign {
    start: NonNull<u8>,
    bytes: u64,
    keep: Keep,
}

// SAFETY: it is an address and a size; whoever reads and writes through it argues for itself, by
// `foreign`'s promise.
unsafe impl Send for Foreign {}
// SAFETY: as above.
unsafe impl Sync for Foreign {}

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = if self.keep.is_some() { ", kept" } else { "" };
        write!(f, "Foreign({} bytes at {:?}{kept})", self.bytes, self.start)
    }
}

// SAFETY: its one buffer has the size of the memory; lanes of CPU devices reach memory of the
// process.
unsafe impl Allocator for Foreign {
    fn device(&self) -> DeviceSpec {
        DeviceSpec::CPU
    }

    fn allocate(&self, _: u64) -> Result<Box<dyn Memory>, DeviceError> {
        Ok(Box::new(self.clone()))
    }

    fn memory_use(&self) -> MemoryUse {
        MemoryUse::default()
    }
}

// SAFETY: address and size never change; `foreign`'s caller promises the rest.
unsafe impl Memory for Foreign {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn host_pointer(&self) -> Option<NonNull<u8>> {
        Some(self.start)
    }

    unsafe fn read(&self, offset: u64, target: &mut [u8]) -> Result<(), DeviceError> {
        // SAFETY: the caller vouches for the range and that nobody writes it.
        unsafe {
            let source = self.start.as_ptr().add(offset as usize);
            std::ptr::copy_nonoverlapping(source, target.as_mut_ptr(), target.len());
        }
        Ok(())
    }

    unsafe fn write(&self, offset: u64, source: &[u8]) -> Result<(), DeviceError> {
        // SAFETY: the caller vouches for the range and that nobody touches it.
        unsafe {
            let target = self.start.as_ptr().add(offset as usize);
            std::ptr::copy_nonoverlapping(source.as_ptr(), target, source.len());
        }
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
