//! Hints to the cache: lines that another processor has written and this one is about to write.

/// Begins to fetch the first two cache lines of `place`, to write them.
#[inline]
pub(crate) fn prefetch<T>(place: &T) {
    fetch(place, 2);
}

/// Begins to fetch all cache lines of `place`, to write them.
#[inline]
pub(crate) fn prefetch_all<T>(place: &T) {
    fetch(place, size_of::<T>().div_ceil(64));
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
                    line = in(reg) first.wrapping_add(64 * line),
                    options(nostack, preserves_flags, readonly),
                );
            }
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, loom, shuttle)))))]
    let _ = (place, lines);
}
