//! Hints to the cache: lines that another processor has written and this one is about to write.

/// Begins to fetch the first two cache lines of `place`, to write them.
#[inline]
pub(crate) fn prefetch<T>(place: &T) {
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle))))]
    {
        let first = std::ptr::from_ref(place).cast::<u8>();
        // The hint for reading would leave the line with its other owner, who is then asked a second time.
        // SAFETY: a hint, which has no effect but on the cache; processors that do not know it do nothing.
        unsafe {
            std::arch::asm!(
                "prefetchw [{first}]",
                "prefetchw [{first} + 64]",
                first = in(reg) first,
                options(nostack, preserves_flags, readonly),
            );
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, loom, shuttle)))))]
    let _ = place;
}
