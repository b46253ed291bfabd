//! One contiguous run: through the caches, or past them.
//!
//! Reading the target's lines only to overwrite them costs a third of the memory's bandwidth, which
//! stores that bypass the caches save. For little data, and wherever the target is read again soon
//! (a slot that the peer unpacks next), the caches are faster. See `tuning.rs` for the bounds.

use super::tuning::{LINE_BYTES as LINE, STREAM_RUN_BYTES};
use super::{Part, Store};
use crate::plan::CopyPlan;

/// Copies `bytes` from `source` to `target`.
///
/// # Safety
/// `source` must be readable and `target` writable for `bytes`, without overlap.
#[inline]
pub(super) unsafe fn copy_run(source: *const u8, target: *mut u8, bytes: usize, store: Store) {
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

/// Makes streaming stores visible before anything that this thread stores afterwards: they are not
/// ordered with other stores.
#[inline]
pub fn fence() {
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

/// Returns `true` if every run of `plan` is whole lines at `target`.
pub(super) fn has_whole_lines(plan: &CopyPlan, target: *mut u8) -> bool {
    let is_whole = |bytes: u64| bytes.is_multiple_of(LINE as u64);
    cfg!(target_arch = "x86_64")
        && is_whole(plan.run_bytes())
        && is_whole(target.addr() as u64 + plan.target_offset())
        && plan.loops().iter().all(|each| is_whole(each.target_stride as u64))
        && has_avx2()
}

/// Copies runs of whole lines past the caches.
///
/// # Safety
/// As [`CopyPlan::run_fan`], where [`has_whole_lines`] is true of every target.
pub(super) unsafe fn copy_lines(plan: &CopyPlan, parts: &[Part]) {
    #[cfg(target_arch = "x86_64")]
    {
        let (each, lines) = (Lines::of_this_machine(), plan.run_bytes() as usize / LINE);
        // SAFETY: runs lie within what the caller vouches for; their targets are aligned to whole
        // lines.
        unsafe { plan.for_each_part(parts, |from, to| each.copy(from, to, lines)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    unreachable!("there are no whole lines here: {plan:?} {parts:?}");
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

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn lines_are_copied_alike_with_every_instruction_set() {
        let mut all = Vec::new();
        if std::is_x86_feature_detected!("avx2") {
            all.push(Lines::Avx2);
        }
        if std::is_x86_feature_detected!("avx512f") {
            all.push(Lines::Avx512);
        }
        let source: Vec<u8> = (0..8 * 64 + 5).map(|at| (at * 7) as u8).collect();
        for lines in all {
            for count in 0..8 {
                let mut target = vec![0xee; 10 * 64];
                let start = target.as_ptr().align_offset(64);
                // SAFETY: at most eight lines from byte 5 of the source, to an aligned place with
                // room for nine.
                unsafe {
                    lines.copy(source.as_ptr().add(5), target.as_mut_ptr().add(start), count);
                }
                fence();
                let (copied, rest) = target[start..].split_at(count * 64);
                assert_eq!(copied, &source[5..][..count * 64], "{count} by {lines:?}");
                assert!(rest.iter().all(|byte| *byte == 0xee));
            }
        }
    }
}
