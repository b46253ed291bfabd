//! Hints to the cache, which change nothing else.

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// Fetches the first two cache lines of `place`, a pair, to write them.
#[inline]
pub fn prefetch<T>(place: &T) {
    fetch(place, 2);
}

/// Fetches all cache lines of `place`, to write them.
#[inline]
pub fn prefetch_all<T>(place: &T) {
    fetch(place, size_of::<T>().div_ceil(LINE_BYTES));
}

/// Fetches the cache line at `address`, to read it. Any address will do, even one that is not
/// mapped.
#[inline]
pub fn prefetch_read(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint, which reads nothing and never faults.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

#[inline(always)]
fn fetch<T>(place: &T, lines: usize) {
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle))))]
    {
        let first = std::ptr::from_ref(place).cast::<u8>();
        for line in 0..lines {
            // The hint for reading would leave the line with its other owner, who is then asked a
            // second time. SAFETY: a hint, which has no effect but on the cache; processors that do
            // not know it do nothing.
            unsafe {
                std::arch::asm!(
                    "prefetchw [{line}]",
                    line = in(reg) first.wrapping_add(LINE_BYTES * line),
                    options(nostack, preserves_flags, readonly),
                );
            }
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, loom, shuttle)))))]
    let _ = (place, lines);
}
