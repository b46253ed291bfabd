//! Buffers over memory that exists: a vector's, fresh zeroes, or bytes that are lent.

use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use super::Buffer;
use crate::cpu::HostMemory;
use crate::memory::HostBytes;
use crate::{Allocator, DeviceError, DeviceSpec, Element, Memory, MemoryUse};

/// In place of an allocator, for a buffer that has its memory from the start.
#[derive(Debug)]
struct Existing;

// SAFETY: it never returns memory. Lanes of CPU devices reach all memory of the host.
unsafe impl Allocator for Existing {
    fn device(&self) -> DeviceSpec {
        DeviceSpec::CPU
    }

    fn allocate(&self, bytes: u64) -> Result<Box<dyn Memory>, DeviceError> {
        let (device, cap_bytes) = (self.device(), self.memory_use().cap_bytes);
        Err(DeviceError::OutOfMemory { device, bytes, in_use_bytes: 0, cap_bytes })
    }

    fn memory_use(&self) -> MemoryUse {
        MemoryUse { cap_bytes: syncline_files::machine_memory_bytes(), ..MemoryUse::default() }
    }
}

/// In place of an allocator, for a buffer that stands for others.
#[derive(Debug)]
struct Nowhere;

/// The device of buffers that stand for others.
const NOWHERE: DeviceSpec = DeviceSpec::cpu(u32::MAX);

// SAFETY: it never returns memory.
unsafe impl Allocator for Nowhere {
    fn device(&self) -> DeviceSpec {
        NOWHERE
    }

    fn allocate(&self, _: u64) -> Result<Box<dyn Memory>, DeviceError> {
        Err(DeviceError::Placeholder)
    }

    fn memory_use(&self) -> MemoryUse {
        MemoryUse::default()
    }
}

impl Buffer {
    /// A buffer without memory, which stands for one that each run of a plan has.
    pub fn placeholder(bytes: u64) -> Self {
        Self::new(Arc::new(Nowhere), bytes)
    }

    /// Returns `true` for a [`Buffer::placeholder`].
    pub fn is_placeholder(&self) -> bool {
        self.device() == NOWHERE
    }

    /// A buffer over memory of the host.
    pub(crate) fn over(memory: Box<dyn Memory>, bytes: u64) -> Self {
        static EXISTING: OnceLock<Arc<dyn Allocator>> = OnceLock::new();
        let allocator = EXISTING.get_or_init(|| Arc::new(Existing)).clone();
        Self::with_memory(allocator, bytes, OnceLock::from(memory))
    }

    /// A buffer of `bytes` zeroes in memory of the host, which belongs to no device's pool.
    ///
    /// # Errors
    /// The system has no memory.
    pub fn zeroed(bytes: u64) -> Result<Self, DeviceError> {
        match HostMemory::zeroed(bytes) {
            Some(memory) => {
                let base = memory.start();
                // SAFETY: `memory` owns the bytes.
                let memory = unsafe { HostBytes::new(base, bytes, memory) };
                Ok(Self::over(Box::new(memory), bytes))
            }
            None => Existing.allocate(bytes).map(|memory| Self::over(memory, bytes)),
        }
    }

    /// A buffer over `bytes` bytes from `base` on, which are used in place.
    ///
    /// # Errors
    /// No memory is as large.
    ///
    /// # Safety
    /// The bytes are allocated and initialised until every handle of the buffer has been dropped
    /// and all work that uses it has ended. Until then they are touched through the buffer only,
    /// and other buffers over the same bytes are not used at once.
    pub unsafe fn lend(base: NonNull<u8>, bytes: u64) -> Result<Self, DeviceError> {
        match i64::try_from(bytes) {
            // SAFETY: the caller's promise.
            Ok(_) => Ok(Self::over(Box::new(unsafe { HostBytes::new(base, bytes, ()) }), bytes)),
            Err(_) => Existing.allocate(bytes).map(|memory| Self::over(memory, bytes)),
        }
    }
}

/// A buffer over the vector's own memory: nothing is copied.
///
/// ```
/// use syncline_device::Buffer;
///
/// let buffer = Buffer::from(vec![1.0f32, 2.0]);
/// assert_eq!(buffer.read::<f32>(4, 1)?, [2.0]);
/// # Ok::<(), syncline_device::DeviceError>(())
/// ```
impl<T: Element> From<Vec<T>> for Buffer {
    fn from(mut elements: Vec<T>) -> Self {
        let bytes = size_of_val(elements.as_slice()) as u64;
        let base = NonNull::from(elements.as_mut_slice()).cast();
        // SAFETY: the vector owns the bytes, which are initialised as elements have no padding, and
        // is not touched again before it is dropped.
        Self::over(Box::new(unsafe { HostBytes::new(base, bytes, elements) }), bytes)
    }
}
