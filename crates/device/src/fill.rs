//! Fills: every element of a view set to one pattern.

use syncline_tensor::View;

use crate::{DeviceError, Fill, Pattern};

/// Sets every element of `view`, in the buffer at `base`, to `pattern`.
///
/// # Safety
/// The view lies inside what `base` is valid for, nobody else touches its bytes meanwhile, and the
/// pattern has as many bytes as an element.
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
    let (shape, strides) = (view.shape(), view.strides());
    let mut index = vec![0u64; shape.len()];
    let mut place = 0i64;
    loop {
        // SAFETY: `place` is where the element at `index` lies.
        unsafe {
            let target = first.wrapping_offset(place as isize);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len());
        }
        // Counts up like an odometer, the last dimension fastest.
        let Some(dim) = (0..shape.len()).rev().find(|&dim| index[dim] + 1 < shape[dim]) else {
            return;
        };
        index[dim] += 1;
        place += strides[dim];
        for after in dim + 1..shape.len() {
            place -= index[after] as i64 * strides[after];
            index[after] = 0;
        }
    }
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

/// Refuses a pattern of another size than an element.
pub(crate) fn check(fill: &Fill) -> Result<(), DeviceError> {
    let bytes = fill.pattern.bytes().len();
    match bytes as u64 == fill.target.view().dtype().bytes() {
        true => Ok(()),
        false => Err(DeviceError::FillPattern { bytes }),
    }
}
