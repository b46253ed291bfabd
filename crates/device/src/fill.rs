//! Fills: every element of a view set to one pattern.

use syncline_copy::CopyPlan;
use syncline_tensor::View;

use crate::{DeviceError, Fill, Pattern};

/// Sets every element of `view`, in the buffer at `base`, to `pattern`.
///
/// # Safety
/// The view lies inside what `base` is valid for, nothing else touches its bytes meanwhile, and the
/// pattern has as many bytes as an element.
///
/// # Panics
/// If elements of the view overlap.
pub unsafe fn run(base: *mut u8, view: &View, pattern: &Pattern) {
    if view.is_empty() {
        return;
    }
    let first = base.wrapping_add(view.offset() as usize);
    let bytes = pattern.bytes();
    if view.is_contiguous() {
        // SAFETY: all elements lie one after the other from `first` on.
        return unsafe { fill_run(first, view.bytes() as usize, bytes) };
    }
    let runs = CopyPlan::new(view, view).expect("elements do not overlap");
    runs.for_each_run(|_, start| {
        let target = base.wrapping_add(start as usize);
        // SAFETY: the run is whole elements of the view.
        unsafe { fill_run(target, runs.run_bytes() as usize, bytes) };
    });
}

/// # Safety
/// `len` bytes from `target` on may be written; `len` is a multiple of the pattern's length.
unsafe fn fill_run(target: *mut u8, len: usize, pattern: &[u8]) {
    if pattern.iter().all(|&byte| byte == pattern[0]) {
        // SAFETY: the caller's promise.
        return unsafe { std::ptr::write_bytes(target, pattern[0], len) };
    }
    // Doubles what is written already, up to a block that stays in the first cache.
    const BLOCK: usize = 4096;
    // SAFETY: each copy ends at `len` at the latest, and reads what was written before it.
    unsafe {
        std::ptr::copy_nonoverlapping(pattern.as_ptr(), target, pattern.len());
        let mut done = pattern.len();
        while done < len {
            let count = done.min(BLOCK).min(len - done);
            std::ptr::copy_nonoverlapping(target, target.add(done), count);
            done += count;
        }
    }
}

/// Refuses a pattern of another size than an element, and elements that overlap.
pub(crate) fn check(fill: &Fill) -> Result<(), DeviceError> {
    let (bytes, view) = (fill.pattern.bytes().len(), fill.target.view());
    if bytes as u64 != view.dtype().bytes() {
        return Err(DeviceError::FillPattern { bytes });
    }
    CopyPlan::new(view, view)?;
    Ok(())
}
