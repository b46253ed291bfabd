//! Regions: page-aligned memory of a process, its own or mapped from a file.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::io;
use rustix::mm::{self, Advice, MapFlags, ProtFlags};

/// The granularity of everything that is placed in shared memory.
pub(crate) const PAGE: usize = 4096;

/// `bytes` rounded up to whole pages.
pub(crate) const fn pages(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE)
}

/// A mapping, unmapped when dropped.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a region is an address range that stays mapped while the region lives; what it holds is
// reached through raw pointers and atomics only, whose users argue for themselves.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Zeroed memory of this process.
    pub fn anonymous(bytes: usize) -> io::Result<Self> {
        let bytes = pages(bytes.max(1));
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe {
            mm::mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )?
        };
        let region = Self::new(start.cast(), bytes);
        region.advise_huge();
        Ok(region)
    }

    /// `bytes` of `file` from `offset` on, shared with every other process that maps them.
    pub fn shared(file: BorrowedFd<'_>, offset: u64, bytes: usize) -> io::Result<Self> {
        let bytes = pages(bytes.max(1));
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe {
            mm::mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                offset,
            )?
        };
        let region = Self::new(start.cast(), bytes);
        region.advise_huge();
        Ok(region)
    }

    fn new(start: *mut u8, bytes: usize) -> Self {
        Self { start: NonNull::new(start).expect("a mapping is never at address zero"), bytes }
    }

    /// Asks for huge pages, which cost a fraction of the faults; a kernel that has none says no.
    fn advise_huge(&self) {
        if self.bytes >= 4 << 20 {
            // SAFETY: the range is this region's own, and the advice does not change its contents.
            let _ = unsafe {
                mm::madvise(self.start.as_ptr().cast(), self.bytes, Advice::LinuxHugepage)
            };
        }
    }

    /// The first byte.
    pub fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// The size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is this region's, and nothing borrowed from the region is left.
        let unmapped = unsafe { mm::munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert_eq!(unmapped, Ok(()), "unmapping {} bytes", self.bytes);
    }
}
