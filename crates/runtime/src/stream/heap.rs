//! The buffers of a stream: a table of them, and the memory of outputs within its bound.
//!
//! Everything here happens under the submit lock. A buffer goes when its handle has been dropped
//! and no unfinished task uses it; the count of users is therefore a plain number.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::HashMap;
use std::ptr::NonNull;

use syncline_device::ALIGNMENT;
use syncline_tensor::BufferId;

/// All buffers, by number.
#[derive(Debug)]
pub(crate) struct Heap {
    entries: Vec<Entry>,
    vacant: Vec<u32>,
    limit_bytes: u64,
    in_use_bytes: u64,
    high_bytes: u64,
    /// Memory of outputs that are gone, by size, for the next ones.
    cached: HashMap<u64, Vec<Block>>,
    cached_bytes: u64,
}

/// One buffer.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: BufferId,
    pub(crate) base: *mut u8,
    #[cfg_attr(not(feature = "capture"), allow(dead_code, reason = "for captures"))]
    pub(crate) bytes: u64,
    /// Arguments of unfinished tasks.
    users: u32,
    /// Whether the caller can still name it.
    has_handle: bool,
    /// Made by a task inside the task in this slot, which has not ended: others keep off.
    pub(crate) inside: bool,
    memory: Memory,
}

/// Where a buffer's bytes are.
#[derive(Debug)]
pub(crate) enum Memory {
    /// An output's, within the heap's bound.
    Output(Block),
    /// The caller's, on top of it.
    Own { _block: Block },
    /// The caller's own, from this byte on: it is not given back here.
    Lent(NonNull<u8>),
    /// There is no buffer at this place.
    Vacant,
}

// SAFETY: the addresses in here belong to blocks that the heap owns.
unsafe impl Send for Heap {}

/// Memory from the system, aligned, and initialised from the first day on.
#[derive(Debug)]
pub(crate) struct Block {
    base: NonNull<u8>,
    bytes: u64,
}

// SAFETY: the block owns its memory.
unsafe impl Send for Block {}

impl Block {
    /// `bytes` zeroes; `None` where the system has no more.
    pub(crate) fn new(bytes: u64) -> Option<Self> {
        let size = usize::try_from(bytes.max(1)).ok()?;
        let layout = Layout::from_size_align(size, ALIGNMENT as usize).ok()?;
        // SAFETY: the size is not zero.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self { base, bytes })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let layout = Layout::from_size_align(self.bytes.max(1) as usize, ALIGNMENT as usize);
        // SAFETY: allocated in `new` with this layout, which was valid there.
        unsafe { dealloc(self.base.as_ptr(), layout.expect("valid in `new`")) }
    }
}

/// Outputs are rounded up to whole cache lines, so that blocks fit again.
fn class(bytes: u64) -> u64 {
    bytes.next_multiple_of(ALIGNMENT)
}

impl Heap {
    pub(crate) fn new(limit_bytes: u64) -> Self {
        Self {
            entries: Vec::new(),
            vacant: Vec::new(),
            limit_bytes,
            in_use_bytes: 0,
            high_bytes: 0,
            cached: HashMap::new(),
            cached_bytes: 0,
        }
    }

    /// What an output of `bytes` takes from the bound.
    pub(crate) fn cost(bytes: u64) -> u64 {
        class(bytes)
    }

    /// Whether outputs of `bytes` in all fit now.
    pub(crate) fn fits(&self, bytes: u64) -> bool {
        bytes <= self.limit_bytes - self.in_use_bytes
    }

    /// Memory for an output, which must fit; `None` where the system has no more.
    pub(crate) fn output(&mut self, bytes: u64) -> Option<Memory> {
        let size = class(bytes);
        assert!(self.fits(size), "{size} bytes do not fit: {} in use", self.in_use_bytes);
        let block = match self.cached.get_mut(&size).and_then(Vec::pop) {
            Some(block) => {
                self.cached_bytes -= size;
                block
            }
            None => {
                if self.cached_bytes + self.in_use_bytes + size > self.limit_bytes {
                    self.cached.clear();
                    self.cached_bytes = 0;
                }
                Block::new(size)?
            }
        };
        self.in_use_bytes += size;
        self.high_bytes = self.high_bytes.max(self.in_use_bytes);
        Some(Memory::Output(block))
    }

    /// Adds a buffer and returns its number.
    pub(crate) fn add(&mut self, id: BufferId, bytes: u64, base: *mut u8, memory: Memory) -> u32 {
        let entry = Entry { id, base, bytes, users: 0, has_handle: true, inside: false, memory };
        match self.vacant.pop() {
            Some(index) => {
                self.entries[index as usize] = entry;
                index
            }
            None => {
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
        }
    }

    /// The buffer under `index`, if it still is `id`.
    #[inline]
    pub(crate) fn get(&self, index: u32, id: BufferId) -> Option<&Entry> {
        self.entries
            .get(index as usize)
            .filter(|entry| entry.id == id && !matches!(entry.memory, Memory::Vacant))
    }

    /// All buffers that exist.
    #[cfg_attr(not(feature = "capture"), allow(dead_code, reason = "for captures"))]
    pub(crate) fn buffers(&self) -> impl Iterator<Item = &Entry> + '_ {
        self.entries.iter().filter(|entry| !matches!(entry.memory, Memory::Vacant))
    }

    /// Says whether the buffer belongs to a running task's own tasks.
    pub(crate) fn set_inside(&mut self, index: u32, inside: bool) {
        self.entries[index as usize].inside = inside;
    }

    /// One more argument of an unfinished task uses the buffer.
    #[inline]
    pub(crate) fn hold(&mut self, index: u32) {
        self.entries[index as usize].users += 1;
    }

    /// One argument less. The buffer's id where it goes.
    #[inline]
    pub(crate) fn let_go(&mut self, index: u32) -> Option<BufferId> {
        let entry = &mut self.entries[index as usize];
        entry.users -= 1;
        if entry.users == 0 && !entry.has_handle { Some(self.remove(index)) } else { None }
    }

    /// The handle has been dropped. The buffer's id where it goes.
    pub(crate) fn drop_handle(&mut self, index: u32) -> Option<BufferId> {
        let entry = &mut self.entries[index as usize];
        entry.has_handle = false;
        if entry.users == 0 { Some(self.remove(index)) } else { None }
    }

    fn remove(&mut self, index: u32) -> BufferId {
        let entry = &mut self.entries[index as usize];
        let id = entry.id;
        if let Memory::Output(block) = std::mem::replace(&mut entry.memory, Memory::Vacant) {
            self.in_use_bytes -= block.bytes;
            self.cached_bytes += block.bytes;
            self.cached.entry(block.bytes).or_default().push(block);
        }
        self.vacant.push(index);
        id
    }

    /// Bytes of outputs now, and at most so far.
    pub(crate) fn use_bytes(&self) -> (u64, u64) {
        (self.in_use_bytes, self.high_bytes)
    }
}

impl Memory {
    pub(crate) fn own(bytes: u64) -> Option<Self> {
        Block::new(bytes).map(|block| Memory::Own { _block: block })
    }

    /// The first byte.
    pub(crate) fn base(&self) -> *mut u8 {
        match self {
            Memory::Output(block) | Memory::Own { _block: block } => block.base.as_ptr(),
            Memory::Lent(base) => base.as_ptr(),
            Memory::Vacant => std::ptr::null_mut(),
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn outputs_stay_within_the_bound_and_their_memory_is_used_again() {
        let mut heap = Heap::new(256);
        let add = |heap: &mut Heap, id, bytes| {
            let memory = heap.output(bytes).expect("small");
            let base = memory.base();
            (heap.add(BufferId(id), bytes, base, memory), base)
        };
        let (first, first_base) = add(&mut heap, 1, 100);
        let (second, _) = add(&mut heap, 2, 128);
        assert!(heap.fits(0) && !heap.fits(1));
        heap.hold(first);
        assert_eq!(heap.drop_handle(first), None, "a task uses it");
        assert!(heap.get(first, BufferId(1)).is_some() && heap.get(first, BufferId(9)).is_none());
        assert_eq!(heap.let_go(first), Some(BufferId(1)));
        assert!(heap.get(first, BufferId(1)).is_none());
        let (third, third_base) = add(&mut heap, 3, 65);
        assert_eq!((third, third_base), (first, first_base), "number and memory");
        assert_eq!(heap.drop_handle(third), Some(BufferId(3)));
        assert_eq!(heap.drop_handle(second), Some(BufferId(2)));
        let (whole, _) = add(&mut heap, 4, 256);
        assert_eq!(heap.use_bytes(), (256, 256));
        assert_eq!(heap.drop_handle(whole), Some(BufferId(4)));
    }
}
