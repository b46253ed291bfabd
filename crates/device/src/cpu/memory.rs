//! Memory of a CPU device: pages from the system for large pieces, the heap for small ones.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::memory::HostBytes;
use crate::{ALIGNMENT, Allocator, DeviceError, DeviceSpec, Memory, MemoryUse, Pool};

/// From this size on pieces are mapped: the system's fresh pages are zero without being touched,
/// which the heap cannot promise for aligned memory.
const MAP_BYTES: u64 = 128 << 10;

/// The allocator of one CPU device.
#[derive(Debug)]
pub(super) struct CpuAllocator {
    pool: Arc<Pool<HostMemory>>,
}

impl CpuAllocator {
    pub(super) fn new(device: DeviceSpec, cap_bytes: u64) -> Self {
        Self { pool: Arc::new(Pool::new(device, cap_bytes)) }
    }
}

// SAFETY: the pool returns pieces of at least the size; lanes of CPU devices reach memory of the
// host.
unsafe impl Allocator for CpuAllocator {
    fn device(&self) -> DeviceSpec {
        self.pool.device()
    }

    fn allocate(&self, bytes: u64) -> Result<Box<dyn Memory>, DeviceError> {
        let piece = self.pool.take(bytes, HostMemory::new)?;
        let (start, bytes) = (piece.start, piece.bytes);
        let owner = Pooled { piece: Some(piece), pool: self.pool.clone() };
        // SAFETY: the piece is such memory until its owner gives it back.
        Ok(Box::new(unsafe { HostBytes::new(start, bytes, owner) }))
    }

    fn memory_use(&self) -> MemoryUse {
        self.pool.memory_use()
    }
}

/// A piece that goes back to its pool when dropped.
struct Pooled {
    piece: Option<HostMemory>,
    pool: Arc<Pool<HostMemory>>,
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let piece = self.piece.take().expect("dropped once");
        self.pool.give(piece.bytes, piece);
    }
}

/// Memory of its own, zero at first, aligned to [`ALIGNMENT`].
#[derive(Debug)]
pub struct HostMemory {
    start: NonNull<u8>,
    bytes: u64,
    mapped: bool,
}

// SAFETY: a piece owns its memory, as a `Box<[u8]>` would; access goes through raw pointers under
// the callers' promises.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// `bytes` zeroes; `None` if the system has no more.
    pub fn zeroed(bytes: u64) -> Option<Self> {
        i64::try_from(bytes).ok().and_then(|_| Self::new(bytes.max(1)))
    }

    /// The first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    fn new(bytes: u64) -> Option<Self> {
        let size = usize::try_from(bytes).ok()?;
        let mapped = cfg!(unix) && bytes >= MAP_BYTES;
        let start = if mapped { map(size)? } else { allocate(size)? };
        Some(Self { start, bytes, mapped })
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        let size = self.bytes as usize;
        match self.mapped {
            true => unmap(self.start, size),
            // SAFETY: `allocate` returned this address for a layout of the same size.
            false => unsafe {
                dealloc(self.start.as_ptr(), layout(size).expect("it was allocated"))
            },
        }
    }
}

fn layout(size: usize) -> Option<Layout> {
    Layout::from_size_align(size, ALIGNMENT as usize).ok()
}

fn allocate(size: usize) -> Option<NonNull<u8>> {
    let layout = layout(size)?;
    assert!(size > 0, "the smallest class of the pool is not empty");
    // SAFETY: the layout is not empty.
    NonNull::new(unsafe { alloc_zeroed(layout) })
}

#[cfg(unix)]
fn map(size: usize) -> Option<NonNull<u8>> {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new private mapping at an address of the system's choice touches nothing that
    // exists.
    let start = unsafe { mmap_anonymous(std::ptr::null_mut(), size, access, MapFlags::PRIVATE) };
    NonNull::new(start.ok()?.cast())
}

#[cfg(unix)]
fn unmap(start: NonNull<u8>, size: usize) {
    // SAFETY: `map` returned this address for this size, and the piece that owned it is gone.
    let result = unsafe { rustix::mm::munmap(start.as_ptr().cast(), size) };
    debug_assert!(result.is_ok(), "munmap of our own mapping: {result:?}");
}

#[cfg(not(unix))]
fn map(size: usize) -> Option<NonNull<u8>> {
    allocate(size)
}

#[cfg(not(unix))]
fn unmap(_start: NonNull<u8>, _size: usize) {
    unreachable!("nothing is mapped on this system");
}
