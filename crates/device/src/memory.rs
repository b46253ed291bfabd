//! Memory of a device, and where it comes from.

mod host;
mod pool;

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;

pub(crate) use host::HostBytes;
pub use pool::Pool;

use crate::{DeviceError, DeviceSpec};

/// Alignment in bytes of every allocation and of every packed piece.
///
/// Below it, some sizes of copies are many times slower on common machines.
pub const ALIGNMENT: u64 = 64;

/// One piece of a device's memory, given back when dropped.
///
/// # Safety
/// [`Memory::bytes`] and [`Memory::host_pointer`] always return the same. Until the piece is
/// dropped, so many bytes from the pointer on, if there is one, are allocated, initialised, and
/// nobody else's. `read` fills its whole target.
pub unsafe trait Memory: Send + Sync + fmt::Debug {
    /// Its size, at least what was asked for.
    fn bytes(&self) -> u64;

    /// Where the host can reach it directly; `None` if it cannot.
    fn host_pointer(&self) -> Option<NonNull<u8>>;

    /// Copies `target.len()` bytes from `offset` on to the host, and returns when they are there.
    ///
    /// # Safety
    /// The range lies inside, and nobody writes it meanwhile.
    unsafe fn read(&self, offset: u64, target: &mut [u8]) -> Result<(), DeviceError>;

    /// Copies `source` to `offset`, and returns when it is there.
    ///
    /// # Safety
    /// The range lies inside, and nobody touches it meanwhile.
    unsafe fn write(&self, offset: u64, source: &[u8]) -> Result<(), DeviceError>;

    /// The backend's own type.
    fn as_any(&self) -> &dyn Any;
}

/// Where the memory of one device comes from.
///
/// Buffers hold the allocator and not the device, so that pending work that holds buffers never
/// keeps its own lane from being closed.
///
/// # Safety
/// [`Allocator::allocate`] returns memory of at least as many bytes as a buffer of this allocator
/// may have, and lanes of [`Allocator::device`], which is always the same, can use it.
pub unsafe trait Allocator: Send + Sync + fmt::Debug {
    /// The device.
    fn device(&self) -> DeviceSpec;

    /// `bytes` bytes, aligned to [`ALIGNMENT`], with unspecified but initialised contents.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] where they do not fit.
    fn allocate(&self, bytes: u64) -> Result<Box<dyn Memory>, DeviceError>;

    /// What is in use.
    fn memory_use(&self) -> MemoryUse;
}

/// How much of a device's memory is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes held by buffers.
    pub in_use_bytes: u64,
    /// The most that was ever in use at the same time.
    pub peak_bytes: u64,
    /// Bytes kept for reuse.
    pub cached_bytes: u64,
    /// The most that may be in use.
    pub cap_bytes: u64,
    /// Allocations answered so far.
    pub allocations: u64,
    /// Those of them that were answered with memory that had been given back.
    pub reused: u64,
}
