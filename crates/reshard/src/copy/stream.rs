//! One contiguous run: through the caches, or past them.
//!
//! Above a megabyte or so, reading the target's lines only to overwrite them costs a third of the
//! memory's bandwidth; stores that bypass the caches save it. Below, and wherever the target is
//! read again soon (a slot that the peer unpacks next), the caches are the faster way.

/// How the target is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    /// Through the caches: the target is small, or read again soon.
    Cached,
    /// Past the caches; a [`fence`] must follow before anyone is told of the data.
    Streaming,
}

use super::CopyShape;
use super::fan::Part;

/// Bytes that the memory moves at once.
const LINE: usize = 64;

/// Runs shorter than this, unless they are whole lines, are never worth the partial lines at both
/// ends.
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
unsafe fn copy_streaming(source: *const u8, target: *mut u8, bytes: usize) {
    let head = target.align_offset(LINE).min(bytes);
    let lines = (bytes - head) / LINE;
    let done = head + lines * LINE;
    // SAFETY: the three parts make up the run; the target's address is a multiple of 64 after
    // `head`.
    unsafe {
        std::ptr::copy_nonoverlapping(source, target, head);
        Lines::of_this_machine().copy(source.add(head), target.add(head), lines);
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
/// As [`copy_fan`](super::copy_fan), where [`has_whole_lines`] is true of every target.
pub(super) unsafe fn copy_lines(shape: &CopyShape, parts: &[Part]) {
    #[cfg(target_arch = "x86_64")]
    {
        let (each, lines) = (Lines::of_this_machine(), shape.target_run_bytes / LINE);
        // SAFETY: runs lie within what the caller vouches for; their targets are aligned to whole
        // lines.
        unsafe { shape.for_each_part(parts, |from, to| each.copy(from, to, lines)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    unreachable!("there are no whole lines here: {shape:?} {parts:?}");
}

/// How lines are stored past the caches.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lines {
    /// Half a line at a time.
    Avx2,
    /// A whole line at a time: it never waits for its other half.
    Avx512,
}

#[cfg(target_arch = "x86_64")]
impl Lines {
    /// The widest that the processor has; [`has_avx2`] is true.
    #[inline]
    fn of_this_machine() -> Self {
        match std::is_x86_feature_detected!("avx512f") {
            true => Lines::Avx512,
            false => Lines::Avx2,
        }
    }

    /// # Safety
    /// `source` must be readable and `target` writable for that many lines, `target` aligned to
    /// one, and the processor have what `self` says.
    #[inline]
    pub(super) unsafe fn copy(self, source: *const u8, target: *mut u8, lines: usize) {
        // SAFETY: the caller's promise is passed on.
        unsafe {
            match self {
                Lines::Avx2 => copy_avx2(source, target, lines),
                Lines::Avx512 => copy_avx512(source, target, lines),
            }
        }
    }
}

/// # Safety
/// As [`Lines::copy`], with AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn copy_avx2(source: *const u8, target: *mut u8, lines: usize) {
    use std::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_stream_si256};

    for line in 0..lines {
        // SAFETY: the line lies within what the caller vouches for.
        unsafe {
            let from = source.add(line * LINE).cast::<__m256i>();
            let to = target.add(line * LINE).cast::<__m256i>();
            let (low, high) = (_mm256_loadu_si256(from), _mm256_loadu_si256(from.add(1)));
            _mm256_stream_si256(to, low);
            _mm256_stream_si256(to.add(1), high);
        }
    }
}

/// Written out, because the oldest compiler that this crate builds with has no intrinsics for it.
///
/// # Safety
/// As [`Lines::copy`], with AVX-512.
#[cfg(target_arch = "x86_64")]
unsafe fn copy_avx512(source: *const u8, target: *mut u8, lines: usize) {
    if lines == 0 {
        return;
    }
    // SAFETY: the loop reads and writes the lines that the caller vouches for and nothing else.
    // `vzeroupper` changes the upper parts of all sixteen registers, each of which is declared.
    unsafe {
        std::arch::asm!(
            "2:",
            "vmovdqu64 zmm0, [{source}]",
            "vmovntdq [{target}], zmm0",
            "add {source}, 64",
            "add {target}, 64",
            "dec {lines}",
            "jnz 2b",
            "vzeroupper",
            source = inout(reg) source => _,
            target = inout(reg) target => _,
            lines = inout(reg) lines => _,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
            out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            options(nostack),
        );
    }
}
