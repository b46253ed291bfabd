//! Memory of a device: pieces of large blocks, and how the host reads and writes those it cannot
//! reach.

mod block;
mod staging;

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

pub(crate) use block::{Heap, Piece};
use staging::Staging;
use syncline_device::{Allocator, DeviceError, DeviceSpec, Memory, MemoryUse, Pool};

use crate::gpu::Gpu;

/// Where the memory of one device comes from.
#[derive(Debug)]
pub(crate) struct VulkanAllocator(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    pool: Pool<Piece>,
    heap: Heap,
    /// For what the host writes for the device, or reads from it: not counted as memory of buffers.
    uploads: Uploads,
    staging: Staging,
    gpu: Arc<Gpu>,
}

/// Small pieces that the host reaches: parameters of kernels, patterns of fills, and bytes on their
/// way.
#[derive(Clone, Debug)]
pub(crate) struct Uploads(Arc<(Pool<Piece>, Heap)>);

/// A piece for the host and the device, given back when dropped.
#[derive(Debug)]
pub(crate) struct Upload {
    piece: Option<Piece>,
    class_bytes: u64,
    from: Uploads,
}

impl Uploads {
    fn new(gpu: &Arc<Gpu>) -> Self {
        let heap = Heap::new(gpu, gpu.candidate.staging_type, true);
        // The driver alone limits these: they are as large as work in flight needs.
        Self(Arc::new((Pool::new(gpu.spec, u64::MAX), heap)))
    }

    /// A piece of at least `bytes` bytes.
    pub(crate) fn take(&self, bytes: u64) -> Result<Upload, DeviceError> {
        let piece = self.0.0.take(bytes, |class| self.0.1.piece(class))?;
        let class_bytes = Pool::<Piece>::class_bytes(bytes);
        Ok(Upload { piece: Some(piece), class_bytes, from: self.clone() })
    }
}

impl Upload {
    pub(crate) fn piece(&self) -> &Piece {
        self.piece.as_ref().expect("taken only by drop")
    }

    /// Its first byte.
    pub(crate) fn host(&self) -> *mut u8 {
        self.piece().host().expect("uploads are mapped").as_ptr()
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let piece = self.piece.take().expect("dropped once");
        self.from.0.0.give(self.class_bytes, piece);
    }
}

impl VulkanAllocator {
    /// An allocator of at most `cap_bytes` bytes, which the host reaches if `mapped`.
    pub(crate) fn new(gpu: &Arc<Gpu>, cap_bytes: u64, mapped: bool) -> Arc<Self> {
        let uploads = Uploads::new(gpu);
        let shared = Shared {
            pool: Pool::new(gpu.spec, cap_bytes),
            heap: Heap::new(gpu, gpu.candidate.memory_type, mapped),
            staging: Staging::new(gpu, &uploads),
            uploads,
            gpu: gpu.clone(),
        };
        Arc::new(Self(Arc::new(shared)))
    }

    pub(crate) fn uploads(&self) -> &Uploads {
        &self.0.uploads
    }

    pub(crate) fn take(&self, bytes: u64) -> Result<VulkanMemory, DeviceError> {
        let piece = self.0.pool.take(bytes, |class| self.0.heap.piece(class))?;
        let class_bytes = Pool::<Piece>::class_bytes(bytes);
        Ok(VulkanMemory { piece: Some(piece), class_bytes, shared: self.0.clone() })
    }
}

// SAFETY: the pool returns pieces of at least the size, in memory of the device.
unsafe impl Allocator for VulkanAllocator {
    fn device(&self) -> DeviceSpec {
        self.0.gpu.spec
    }

    fn allocate(&self, bytes: u64) -> Result<Box<dyn Memory>, DeviceError> {
        Ok(Box::new(self.take(bytes)?))
    }

    fn memory_use(&self) -> MemoryUse {
        self.0.pool.memory_use()
    }
}

/// A piece of memory that goes back to its pool when dropped.
#[derive(Debug)]
pub(crate) struct VulkanMemory {
    piece: Option<Piece>,
    /// As which it was taken: the piece is larger where the device aligns more.
    class_bytes: u64,
    shared: Arc<Shared>,
}

impl VulkanMemory {
    pub(crate) fn piece(&self) -> &Piece {
        self.piece.as_ref().expect("taken only by drop")
    }

    /// Whether it is memory of `gpu`.
    pub(crate) fn belongs_to(&self, gpu: &Arc<Gpu>) -> bool {
        Arc::ptr_eq(&self.shared.gpu, gpu)
    }
}

impl Drop for VulkanMemory {
    fn drop(&mut self) {
        let piece = self.piece.take().expect("dropped once");
        self.shared.pool.give(self.class_bytes, piece);
    }
}

// SAFETY: a piece has one place and one size, and belongs to one owner until it goes back; device
// memory is mapped once.
unsafe impl Memory for VulkanMemory {
    fn bytes(&self) -> u64 {
        self.piece().bytes()
    }

    fn host_pointer(&self) -> Option<NonNull<u8>> {
        self.piece().host()
    }

    unsafe fn read(&self, offset: u64, target: &mut [u8]) -> Result<(), DeviceError> {
        let Some(start) = self.host_pointer() else {
            // SAFETY: the caller's promise.
            return unsafe { self.shared.staging.read(self.piece(), offset, target) };
        };
        // SAFETY: the caller vouches for the range and that no thread writes it; work that did has
        // completed, and made its writes visible to the host before it did.
        unsafe {
            copy_bytes(start.as_ptr().add(offset as usize), target.as_mut_ptr(), target.len())
        };
        Ok(())
    }

    unsafe fn write(&self, offset: u64, source: &[u8]) -> Result<(), DeviceError> {
        let Some(start) = self.host_pointer() else {
            // SAFETY: the caller's promise.
            return unsafe { self.shared.staging.write(self.piece(), offset, source) };
        };
        // SAFETY: the caller vouches for the range and that no thread touches it; work submitted
        // later sees the bytes, since submitting makes the host's writes visible.
        unsafe { copy_bytes(source.as_ptr(), start.as_ptr().add(offset as usize), source.len()) };
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Copies as fast as the machine can, past the cache where there is much.
///
/// # Safety
/// Both ranges are valid and do not overlap, and no other thread touches them.
unsafe fn copy_bytes(source: *const u8, target: *mut u8, bytes: usize) {
    let view = syncline_tensor::View::bytes_at(0, bytes as u64).expect("slices are no longer");
    let plan = syncline_copy::CopyPlan::new(&view, &view).expect("one shape");
    // SAFETY: the caller's promise.
    unsafe { plan.run(source, target) };
}
