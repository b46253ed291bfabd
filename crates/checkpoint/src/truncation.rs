//! Files that are cut short while they are mapped.
//!
//! Touching a page behind the end of a mapped file raises SIGBUS, which ends the process. Within
//! [`reading`] a handler puts zeros in the place of the pages that are gone, and notes that it did.
//! The reader then asks [`MappedRange::is_cut`], and drops the bytes that it has read. Signals from
//! elsewhere go to the handler that was there before.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

thread_local! {
    /// The thread reads mapped files, and asks afterwards whether they were cut short.
    static IS_READING: Cell<bool> = const { Cell::new(false) };
}

/// The ranges of all files that are mapped. Its lock is never held while one of them is touched,
/// and the handler takes it on a thread that touches one: so it is free then, or soon.
static RANGES: Mutex<Vec<Arc<Range>>> = Mutex::new(Vec::new());

/// What did with the signal before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

#[derive(Debug)]
struct Range {
    start: usize,
    bytes: usize,
    is_cut: AtomicBool,
}

/// A mapped file of which pages may go, until this is dropped.
#[derive(Debug)]
pub(crate) struct MappedRange(Arc<Range>);

impl MappedRange {
    /// Has faults in `mapped` handled, which is a mapping of a file, read only.
    pub(crate) fn new(mapped: &[u8]) -> Self {
        install();
        let (start, bytes) = (mapped.as_ptr().addr(), mapped.len());
        let range = Arc::new(Range { start, bytes, is_cut: AtomicBool::new(false) });
        RANGES.lock().expect("no thread panics with it").push(range.clone());
        Self(range)
    }

    /// Returns `true` if zeros were read in the place of bytes that the file no longer has.
    pub(crate) fn is_cut(&self) -> bool {
        self.0.is_cut.load(Ordering::Relaxed)
    }
}

impl Drop for MappedRange {
    fn drop(&mut self) {
        let mut ranges = RANGES.lock().expect("no thread panics with it");
        ranges.retain(|range| !Arc::ptr_eq(range, &self.0));
    }
}

/// Calls `body`, which may read mapped files that are cut short: what it read counts only if none
/// was.
pub(crate) fn reading<T>(body: impl FnOnce() -> T) -> T {
    struct Ends(bool);
    impl Drop for Ends {
        fn drop(&mut self) {
            IS_READING.set(self.0);
        }
    }
    let _ends = Ends(IS_READING.replace(true));
    body()
}

fn install() {
    BEFORE.get_or_init(|| {
        // SAFETY: an action of zeros is the default one, and all of it is set that the system
        // reads. The handler fits `SA_SIGINFO`.
        unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_bus_error;
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            let mut before: libc::sigaction = mem::zeroed();
            // Where the system refuses, which it has no reason to, the signal does what it did.
            let _ = libc::sigaction(libc::SIGBUS, &action, &mut before);
            before
        }
    });
}

extern "C" fn on_bus_error(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the system passes a description of the signal; for this kind it has an address.
    let at = unsafe {
        match (*info).si_code == libc::BUS_ADRERR {
            true => Some((*info).si_addr().addr()),
            false => None,
        }
    };
    if !at.is_some_and(|at| IS_READING.get() && replace(at)) {
        pass_on(signal, info, context);
    }
}

/// Puts zeros in the place of the page at `at`, and of all behind it in its file.
fn replace(at: usize) -> bool {
    let Ok(ranges) = RANGES.lock() else { return false };
    let holds = |range: &&Arc<Range>| (range.start..range.start + range.bytes).contains(&at);
    let Some(range) = ranges.iter().find(holds) else { return false };
    // SAFETY: asks for a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let first = at / page * page;
    let bytes = range.start + range.bytes - first;
    range.is_cut.store(true, Ordering::Relaxed);
    // SAFETY: from a page of the file's mapping to its end, which is unmapped as a whole;
    // any bytes are valid in it.
    let mapped = unsafe {
        libc::mmap(
            ptr::without_provenance_mut(first),
            bytes,
            libc::PROT_READ,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            -1,
            0,
        )
    };
    mapped != libc::MAP_FAILED
}

/// Does what was done with the signal before.
fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let before = BEFORE.get().filter(|before| before.sa_sigaction > libc::SIG_IGN);
    let Some(before) = before else {
        // SAFETY: the default action, which ends the process when the access is made again.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        return;
    };
    // SAFETY: the address of a handler that was installed for this signal, of the kind that its
    // flags say.
    unsafe {
        if before.sa_flags & libc::SA_SIGINFO != 0 {
            type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
            mem::transmute::<usize, Handler>(before.sa_sigaction)(signal, info, context);
        } else {
            mem::transmute::<usize, extern "C" fn(c_int)>(before.sa_sigaction)(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use memmap2::Mmap;

    use super::*;

    #[test]
    fn pages_that_are_gone_read_as_zeros_and_are_noticed() {
        let path = std::env::temp_dir().join(format!("syncline-cut-{}", std::process::id()));
        let mut file = File::options().create(true).truncate(true).write(true).open(&path).unwrap();
        file.write_all(&vec![7; 1 << 20]).unwrap();
        // SAFETY: read only, as plain bytes, within `reading`.
        let map = unsafe { Mmap::map(&File::open(&path).unwrap()) }.unwrap();
        std::fs::remove_file(&path).unwrap();
        let range = MappedRange::new(&map);
        let sum = || reading(|| map.iter().map(|&byte| u64::from(byte)).sum::<u64>());
        assert_eq!((sum(), range.is_cut()), (7 << 20, false));
        file.set_len(1 << 16).unwrap();
        assert_eq!((sum(), range.is_cut()), (7 << 16, true));
        file.set_len(1 << 20).unwrap();
        assert_eq!((sum(), range.is_cut()), (7 << 16, true));
        drop((range, map));
        assert!(!IS_READING.get());
    }
}
