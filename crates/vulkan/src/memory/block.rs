//! Blocks: large allocations of the driver, handed out in pieces.

use std::collections::BTreeMap;
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, Weak};

use crate::gpu::Gpu;
use ash::vk;
use syncline_sync::lock;

/// The size of a block for many pieces. Drivers allow few allocations (often 4,096), and each takes
/// a while.
const BLOCK_BYTES: u64 = 32 << 20;
/// From this size on a piece is a block of its own.
const OWN_BLOCK_BYTES: u64 = 8 << 20;

/// Where pieces of one type of memory come from.
pub(crate) struct Heap {
    gpu: Arc<Gpu>,
    memory_type: u32,
    mapped: bool,
    /// Blocks with room, perhaps. Pieces keep their block alive; a block without pieces is gone.
    blocks: Mutex<Vec<Weak<Block>>>,
}

impl Heap {
    /// A heap of pieces of `memory_type`, which the host reaches if `mapped`.
    pub(crate) fn new(gpu: &Arc<Gpu>, memory_type: u32, mapped: bool) -> Self {
        Self { gpu: gpu.clone(), memory_type, mapped, blocks: Mutex::default() }
    }

    /// A piece of `bytes` bytes, if the driver has them.
    pub(crate) fn piece(&self, bytes: u64) -> Option<Piece> {
        let alignment = self.gpu.candidate.piece_alignment();
        let bytes = bytes.checked_next_multiple_of(alignment)?;
        if bytes >= OWN_BLOCK_BYTES {
            let block = Arc::new(Block::new(self, bytes)?);
            return block.piece(bytes);
        }
        let mut blocks = lock(&self.blocks);
        let found = blocks.iter().filter_map(Weak::upgrade).find_map(|block| block.piece(bytes));
        if found.is_some() {
            return found;
        }
        blocks.retain(|block| block.strong_count() > 0);
        let block = Arc::new(Block::new(self, BLOCK_BYTES)?);
        blocks.push(Arc::downgrade(&block));
        block.piece(bytes)
    }
}

impl fmt::Debug for Heap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Heap(type {}, {} blocks)", self.memory_type, lock(&self.blocks).len())
    }
}

/// One allocation of the driver, with one buffer over all of it, mapped for as long as it lives.
struct Block {
    memory: vk::DeviceMemory,
    buffer: vk::Buffer,
    host: Option<NonNull<u8>>,
    /// Free ranges by where they begin; neighbours are merged.
    free: Mutex<BTreeMap<u64, u64>>,
    gpu: Arc<Gpu>,
}

// SAFETY: the mapping belongs to the block, which hands out disjoint pieces of it; handles of
// Vulkan may be used from any thread.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    fn new(heap: &Heap, bytes: u64) -> Option<Self> {
        let gpu = &heap.gpu;
        if bytes > gpu.candidate.limits.allocation_bytes {
            return None;
        }
        let sharing = match gpu.families.len() {
            1 => vk::SharingMode::EXCLUSIVE,
            // Handing over ownership at every change of lane would cost more than it saves for
            // plain buffers.
            _ => vk::SharingMode::CONCURRENT,
        };
        let info = vk::BufferCreateInfo::default()
            .size(bytes)
            .usage(
                vk::BufferUsageFlags::STORAGE_BUFFER
                    | vk::BufferUsageFlags::TRANSFER_SRC
                    | vk::BufferUsageFlags::TRANSFER_DST,
            )
            .sharing_mode(sharing)
            .queue_family_indices(&gpu.families);
        // SAFETY: a new buffer of the device.
        let buffer = unsafe { gpu.raw.create_buffer(&info, None) }.ok()?;
        // From here on, dropping the block gives back what there is of it.
        let mut block = Self {
            memory: vk::DeviceMemory::null(),
            buffer,
            host: None,
            free: Mutex::new(BTreeMap::from([(0, bytes)])),
            gpu: gpu.clone(),
        };
        // SAFETY: the buffer is alive.
        let needs = unsafe { gpu.raw.get_buffer_memory_requirements(buffer) };
        if needs.memory_type_bits & (1 << heap.memory_type) == 0 {
            return None;
        }
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(needs.size)
            .memory_type_index(heap.memory_type);
        // SAFETY: the type exists; the memory is bound once, to a buffer that accepts it, at its
        // start; it is mapped once, if it is of a type that the host reaches.
        unsafe {
            block.memory = gpu.raw.allocate_memory(&info, None).ok()?;
            gpu.raw.bind_buffer_memory(buffer, block.memory, 0).ok()?;
            if heap.mapped {
                let flags = vk::MemoryMapFlags::empty();
                let host = gpu.raw.map_memory(block.memory, 0, vk::WHOLE_SIZE, flags).ok()?;
                block.host = Some(NonNull::new(host.cast())?);
            }
        }
        Some(block)
    }

    /// The first free range that is large enough, as a piece.
    fn piece(self: &Arc<Self>, bytes: u64) -> Option<Piece> {
        let mut free = lock(&self.free);
        let (&offset, &length) = free.iter().find(|(_, length)| **length >= bytes)?;
        free.remove(&offset);
        if length > bytes {
            free.insert(offset + bytes, length - bytes);
        }
        drop(free);
        Some(Piece { block: self.clone(), offset, bytes })
    }

    fn give_back(&self, mut offset: u64, mut bytes: u64) {
        let mut free = lock(&self.free);
        if let Some((&before, &length)) = free.range(..offset).next_back()
            && before + length == offset
        {
            free.remove(&before);
            offset = before;
            bytes += length;
        }
        if let Some(length) = free.remove(&(offset + bytes)) {
            bytes += length;
        }
        free.insert(offset, bytes);
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: no piece is left, and work in flight holds the pieces that it uses. Freeing
        // unmaps; null handles are ignored.
        unsafe {
            self.gpu.raw.destroy_buffer(self.buffer, None);
            self.gpu.raw.free_memory(self.memory, None);
        }
    }
}

/// A part of a block, given back when dropped.
pub(crate) struct Piece {
    block: Arc<Block>,
    offset: u64,
    bytes: u64,
}

impl Piece {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The buffer that it is a part of, and where it begins there.
    pub(crate) fn place(&self) -> (vk::Buffer, u64) {
        (self.block.buffer, self.offset)
    }

    /// Where the host reaches it.
    pub(crate) fn host(&self) -> Option<NonNull<u8>> {
        // SAFETY: the mapping covers the whole block, of which the piece is a part.
        self.block.host.map(|start| unsafe { start.add(self.offset as usize) })
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.block.give_back(self.offset, self.bytes);
    }
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Piece({} bytes at {})", self.bytes, self.offset)
    }
}
