//! One contiguous run: through the caches, or past them.
//!
//! Above a megabyte or so, reading the target's lines only to overwrite them costs a third of the
//! memory's bandwidth; stores that bypass the caches save it. Below, and wherever the target is read
//! again soon (a slot that the peer unpacks next), the caches are the faster way.

/// How the target is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    /// Through the caches: the target is small, or read again soon.
    Cached,
    /// Past the caches; a [`fence`] must follow before anyone is told of the data.
    Streaming,
}

use super::CopyShape;

/// Bytes that the memory moves at once.
const LINE: usize = 64;

/// Runs shorter than this, unless they are whole lines, are never worth the partial lines at both ends.
const STREAM_RUN_BYTES: usize = 512;

/// Copies `bytes` from `source` to `target`.
///
/// # Safety
/// `source` must be readable and `target` writable for `bytes`, without overlap.
#[inline]
pub(crate) unsafe fn copy_run(source: *const u8, target: *mut u8, bytes: usize, store: Store) {
    #[cfg(target_arch = "x86_64")]
    if store == Store::Streaming && bytes >= STREAM_RUN_BYTES && has_avx2() {
        // SAFETY: the caller's promise is passed on, and the processor has AVX2.
        unsafe { copy_streaming(source, target, bytes) };
        return;
    }
    let _ = store;
    // SAFETY: the caller's promise is passed on.
    unsafe { std::ptr::copy_nonoverlapping(source, target, bytes) };
}

/// Makes streaming stores visible before whatever is stored after it.
#[inline]
pub(crate) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64; the instruction touches no memory of its own.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

#[inline]
fn has_avx2() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::is_x86_feature_detected!("avx2");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// # Safety
/// As [`copy_run`], with at least 64 bytes.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn copy_streaming(source: *const u8, target: *mut u8, bytes: usize) {
    let head = target.align_offset(LINE).min(bytes);
    // SAFETY: `head` bytes lie within the run on both sides.
    unsafe { std::ptr::copy_nonoverlapping(source, target, head) };
    let lines = (bytes - head) / LINE;
    for line in 0..lines {
        let at = head + line * LINE;
        // SAFETY: the line ends within the run; the target's address is a multiple of 64 after `head`.
        unsafe { copy_line(source.add(at), target.add(at)) };
    }
    let done = head + lines * LINE;
    // SAFETY: the rest of the run, less than a line.
    unsafe {
        std::ptr::copy_nonoverlapping(source.add(done), target.add(done), bytes - done);
    };
}

/// Whether every run of `shape` is whole lines at `target`.
pub(super) fn has_whole_lines(shape: &CopyShape, target: *mut u8) -> bool {
    let is_whole = |bytes: usize| bytes.is_multiple_of(LINE);
    cfg!(target_arch = "x86_64")
        && is_whole(shape.target_run_bytes)
        && is_whole(target.addr())
        && shape.loops.iter().all(|each| is_whole(each.target_step))
        && has_avx2()
}

/// Copies runs of whole lines past the caches.
///
/// # Safety
/// As [`copy_box`](super::copy_box), where [`has_whole_lines`] is true.
pub(super) unsafe fn copy_lines(shape: &CopyShape, source: *const u8, target: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise is passed on, which includes that the processor has AVX2.
    unsafe {
        copy_lines_avx2(shape, source, target);
    }
    #[cfg(not(target_arch = "x86_64"))]
    unreachable!("there are no whole lines here: {shape:?} {source:?} {target:?}");
}

/// # Safety
/// As [`copy_lines`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn copy_lines_avx2(shape: &CopyShape, source: *const u8, target: *mut u8) {
    let lines = shape.target_run_bytes / LINE;
    shape.for_each_run(|from, to| {
        for line in 0..lines {
            // SAFETY: the line lies within a run, and runs within what the caller vouches for; the target
            // is aligned to whole lines.
            unsafe {
                copy_line(source.add(from + line * LINE), target.add(to + line * LINE));
            }
        }
    });
}

/// # Safety
/// `source` must be readable and `target` writable for a line, and `target` aligned to one.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn copy_line(source: *const u8, target: *mut u8) {
    use std::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_stream_si256};

    // SAFETY: the caller's promise.
    unsafe {
        let (from, to) = (source.cast::<__m256i>(), target.cast::<__m256i>());
        let (low, high) = (_mm256_loadu_si256(from), _mm256_loadu_si256(from.add(1)));
        _mm256_stream_si256(to, low);
        _mm256_stream_si256(to.add(1), high);
    }
}
