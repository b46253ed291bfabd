//! The buffers that are at home in a stream, and the memory of outputs within its bound.
//!
//! Everything here happens under the submit lock. A buffer goes when its handles have been dropped
//! and no unfinished task uses it; the count of users is therefore a plain number.

use std::collections::HashMap;

use syncline_device::cpu::HostMemory;
use syncline_device::{ALIGNMENT, Buffer, Memory, WeakBuffer};
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
    cached: HashMap<u64, Vec<HostMemory>>,
    cached_bytes: u64,
}

/// One buffer that is at home here.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: BufferId,
    pub(crate) base: *mut u8,
    pub(crate) bytes: u64,
    /// Arguments of unfinished tasks.
    users: u32,
    /// Whether the caller can still name it.
    has_handle: bool,
    /// Made by a task inside the task in this slot, which has not ended: others keep off.
    pub(crate) inside: bool,
    /// Tasks may use it without asking: it has no other user.
    pub(crate) is_occupied: bool,
    is_vacant: bool,
    buffer: Option<WeakBuffer>,
    /// An output's memory, within the heap's bound.
    output: Option<HostMemory>,
    /// The memory of a buffer whose handles are gone.
    kept: Option<Box<dyn Memory>>,
}

// SAFETY: the addresses in here belong to memory that lives as long as the entry is used.
unsafe impl Send for Heap {}

/// A buffer that has gone, and its memory, to be dropped under no lock.
#[derive(Debug)]
pub(crate) struct Gone {
    pub(crate) id: BufferId,
    pub(crate) memory: Option<Box<dyn Memory>>,
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
    pub(crate) fn output(&mut self, bytes: u64) -> Option<HostMemory> {
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
                HostMemory::zeroed(size)?
            }
        };
        self.in_use_bytes += size;
        self.high_bytes = self.high_bytes.max(self.in_use_bytes);
        Some(block)
    }

    /// The number that the next buffer gets.
    pub(crate) fn next(&self) -> u32 {
        self.vacant.last().copied().unwrap_or(self.entries.len() as u32)
    }

    /// Adds an output, which tasks may use.
    pub(crate) fn add_output(&mut self, buffer: &Buffer, output: HostMemory) {
        let base = output.start().as_ptr();
        let entry = Entry { base, output: Some(output), ..Entry::new(buffer) };
        self.add(Entry { is_occupied: true, ..entry });
    }

    /// Adds a buffer that tasks do not use yet, and returns its number.
    pub(crate) fn add_buffer(&mut self, buffer: &Buffer) -> u32 {
        self.add(Entry::new(buffer))
    }

    fn add(&mut self, entry: Entry) -> u32 {
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
        self.entries.get(index as usize).filter(|entry| entry.id == id && !entry.is_vacant)
    }

    /// The handle of a buffer, if there is one.
    pub(crate) fn handle(&self, index: u32, id: BufferId) -> Option<Buffer> {
        self.get(index, id)?.buffer.as_ref()?.upgrade()
    }

    /// Tasks may use the buffer from now on, whose first byte is at `base`, if it is still here.
    pub(crate) fn occupy(&mut self, index: u32, id: BufferId, base: *mut u8) {
        if self.get(index, id).is_none() {
            return;
        }
        let entry = &mut self.entries[index as usize];
        (entry.base, entry.is_occupied) = (base, true);
        if let Some(buffer) = &entry.buffer {
            buffer.occupied();
        }
    }

    /// Leaves a buffer that no task uses to others. Returns `false` where one does.
    pub(crate) fn vacate(&mut self, index: u32) -> bool {
        let entry = &mut self.entries[index as usize];
        if entry.users > 0 || entry.inside {
            return false;
        }
        entry.is_occupied = false;
        if let Some(buffer) = &entry.buffer {
            // SAFETY: no task uses it, and none begins to before it is occupied again: submissions
            // check that under the submit lock, which the caller holds.
            unsafe { buffer.leave() };
        }
        true
    }

    /// All buffers that exist.
    #[cfg_attr(not(feature = "capture"), allow(dead_code, reason = "for captures"))]
    pub(crate) fn buffers(&self) -> impl Iterator<Item = &Entry> + '_ {
        self.entries.iter().filter(|entry| !entry.is_vacant)
    }

    /// Buffers that no task uses and that could be at home elsewhere.
    pub(crate) fn movable(&self) -> Vec<WeakBuffer> {
        let unused = self.buffers().filter(|entry| entry.users == 0 && entry.output.is_none());
        unused.filter_map(|entry| entry.buffer.clone()).collect()
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

    /// One argument less. Returns the buffer where it goes.
    #[inline]
    pub(crate) fn let_go(&mut self, index: u32) -> Option<Gone> {
        let entry = &mut self.entries[index as usize];
        entry.users -= 1;
        if entry.users == 0 && !entry.has_handle { Some(self.remove(index)) } else { None }
    }

    /// The last handle has been dropped, and left `memory`. Returns the buffer where it goes.
    pub(crate) fn drop_handle(
        &mut self,
        index: u32,
        memory: Option<Box<dyn Memory>>,
    ) -> Option<Gone> {
        let entry = &mut self.entries[index as usize];
        (entry.has_handle, entry.kept) = (false, memory);
        if entry.users == 0 { Some(self.remove(index)) } else { None }
    }

    fn remove(&mut self, index: u32) -> Gone {
        let entry = &mut self.entries[index as usize];
        entry.is_vacant = true;
        entry.buffer = None;
        let (id, memory) = (entry.id, entry.kept.take());
        if let Some(block) = entry.output.take() {
            let size = class(entry.bytes);
            self.in_use_bytes -= size;
            self.cached_bytes += size;
            self.cached.entry(size).or_default().push(block);
        }
        self.vacant.push(index);
        Gone { id, memory }
    }

    /// Bytes of outputs now, and at most so far.
    pub(crate) fn use_bytes(&self) -> (u64, u64) {
        (self.in_use_bytes, self.high_bytes)
    }
}

impl Entry {
    fn new(buffer: &Buffer) -> Self {
        Self {
            id: buffer.id(),
            base: std::ptr::null_mut(),
            bytes: buffer.bytes(),
            users: 0,
            has_handle: true,
            inside: false,
            is_occupied: false,
            is_vacant: false,
            buffer: Some(buffer.downgrade()),
            output: None,
            kept: None,
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn outputs_stay_within_the_bound_and_their_memory_is_used_again() {
        let mut heap = Heap::new(256);
        let add = |heap: &mut Heap, bytes| {
            let memory = heap.output(bytes).expect("small");
            let (base, number) = (memory.start(), heap.next());
            let buffer = Buffer::zeroed(bytes).expect("small");
            heap.add_output(&buffer, memory);
            (number, base, buffer.id())
        };
        let dropped = |heap: &mut Heap, index| heap.drop_handle(index, None).map(|gone| gone.id);
        let (first, first_base, first_id) = add(&mut heap, 100);
        let (second, _, second_id) = add(&mut heap, 128);
        assert!(heap.fits(0) && !heap.fits(1));
        heap.hold(first);
        assert_eq!(dropped(&mut heap, first), None, "a task uses it");
        assert!(heap.get(first, first_id).is_some() && heap.get(first, second_id).is_none());
        assert_eq!(heap.let_go(first).map(|gone| gone.id), Some(first_id));
        assert!(heap.get(first, first_id).is_none());
        let (third, third_base, third_id) = add(&mut heap, 65);
        assert_eq!((third, third_base), (first, first_base), "number and memory");
        assert_eq!(dropped(&mut heap, third), Some(third_id));
        assert_eq!(dropped(&mut heap, second), Some(second_id));
        let (whole, _, whole_id) = add(&mut heap, 256);
        assert_eq!(heap.use_bytes(), (256, 256));
        assert_eq!(dropped(&mut heap, whole), Some(whole_id));
    }
}
