//! Memory of a CPU device: pages from the system for large pieces, the heap for small ones.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::{ALIGNMENT, Allocator, DeviceError, DeviceSpec, Memory, MemoryUse, Pool};

/// From this size on pieces are mapped: the system's fresh pages are zero without being touched,
/// which the heap cannot promise for aligned memory.
const MAP_BYTES: u64 = 128 << 10;

/// The allocator of one CPU device.
#[derive(Debug)]
pub(super) struct CpuAllocator {
    pool: Arc<Pool<Piece>>,
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
        let piece = self.pool.take(bytes, Piece::new)?;
        Ok(Box::new(CpuMemory { piece: Some(piece), pool: self.pool.clone() }))
    }

    fn memory_use(&self) -> MemoryUse {
        self.pool.memory_use()
    }
}

/// A piece that goes back to its pool when dropped.
#[derive(Debug)]
struct CpuMemory {
    piece: Option<Piece>,
    pool: Arc<Pool<Piece>>,
}

impl CpuMemory {
    fn piece(&self) -> &Piece {
        self.piece.as_ref().expect("taken only by drop")
    }
}

impl Drop for CpuMemory {
    fn drop(&mut self) {
        let piece = self.piece.take().expect("dropped once");
        self.pool.give(piece.bytes, piece);
    }
}

// SAFETY: a piece has one address and one size, is zero at first, and belongs to one owner until it
// goes back.
unsafe impl Memory for CpuMemory {
    fn bytes(&self) -> u64 {
        self.piece().bytes
    }

    fn host_pointer(&self) -> Option<NonNull<u8>> {
        Some(self.piece().start)
    }

    unsafe fn read(&self, offset: u64, target: &mut [u8]) -> Result<(), DeviceError> {
        // SAFETY: the caller vouches for the range and that nobody writes it.
        unsafe {
            let source = self.piece().start.as_ptr().add(offset as usize);
            std::ptr::copy_nonoverlapping(source, target.as_mut_ptr(), target.len());
        }
        Ok(())
    }

    unsafe fn write(&self, offset: u64, source: &[u8]) -> Result<(), DeviceError> {
        // SAFETY: the caller vouches for the range and that nobody touches it.
        unsafe {
            let target = self.piece().start.as_ptr().add(offset as usize);
            std::ptr::copy_nonoverlapping(source.as_ptr(), target, source.len());
        }
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Memory of its own, zero at first, aligned to [`ALIGNMENT`].
#[derive(Debug)]
struct Piece {
    start: NonNull<u8>,
    bytes: u64,
    mapped: bool,
}

// SAFETY: a piece owns its memory, as a `Box<[u8]>` would; access goes through raw pointers under
// the callers' promises.
unsafe impl Send for Piece {}
// SAFETY: as above.
unsafe impl Sync for Piece {}

impl Piece {
    fn new(bytes: u64) -> Option<Self> {
        let size = usize::try_from(bytes).ok()?;
        let mapped = cfg!(unix) && bytes >= MAP_BYTES;
        let start = if mapped { map(size)? } else { allocate(size)? };
        Some(Self { start, bytes, mapped })
    }
}

impl Drop for Piece {
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
