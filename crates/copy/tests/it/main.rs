//! The copy engine against loops over single elements.
//!
//! | file | decides |
//! | --- | --- |
//! | `views.rs` | Copies between random views, in every way to run a plan, and programs of them. |
//! | `boxes.rs` | Copies of boxes, converted or not, several in one pass, and cut into parts. |
//! | `refusals.rs` | Targets that overlap themselves, and bytes outside of slices, are refused. |
//!
//! Memories are exactly as large as what a copy touches, so that AddressSanitizer sees any access
//! beside it.

mod boxes;
mod refusals;
mod views;

use syncline_tensor::{Dtype, View};
use syncline_testing::Rng;

/// The first byte of every element of `view`, in its order.
fn places(view: &View) -> Vec<usize> {
    let place_of = |number: u64| {
        let (mut rest, mut place) = (number, view.offset() as i64);
        for (&size, &stride) in view.shape().iter().zip(view.strides()).rev() {
            place += (rest % size) as i64 * stride;
            rest /= size;
        }
        place as usize
    };
    (0..view.elements()).map(place_of).collect()
}

/// A random shape; now and then with one dimension that makes long runs, or none.
fn any_shape(rng: &mut Rng) -> Vec<u64> {
    let mut shape: Vec<u64> = (0..rng.range(0..5)).map(|_| rng.range(0..6)).collect();
    if rng.one_in(3) && !shape.is_empty() {
        let at = rng.below(shape.len());
        shape[at] = rng.range(1..2_000);
    }
    if rng.one_in(10) {
        shape.extend([1, 2, 1, 2]);
        shape.truncate(syncline_tensor::MAX_DIMS);
    }
    shape
}

/// A random view of `shape` in any order of dimensions, with gaps and reversals.
fn any_view(rng: &mut Rng, dtype: Dtype, shape: &[u64]) -> View {
    let mut order: Vec<usize> = (0..shape.len()).rev().collect();
    if rng.one_in(2) {
        rng.shuffle(&mut order);
    }
    let gaps = rng.one_in(2);
    let (mut strides, mut extent, mut offset) = (vec![0i64; shape.len()], dtype.bytes(), 0);
    for dim in order {
        let gap = if gaps { rng.range(0..5) } else { 0 };
        // Whole lines now and then: those are copied in another way.
        let stride = match rng.one_in(8) {
            true => (extent + gap).next_multiple_of(64),
            false => extent + gap,
        };
        strides[dim] = stride as i64;
        extent = stride * shape[dim].max(1);
        if rng.one_in(5) {
            strides[dim] = -strides[dim];
            offset += stride * shape[dim].saturating_sub(1);
        }
    }
    View::strided(dtype, offset + rng.range(0..3), shape, &strides).unwrap()
}

/// The same with elements that are read more than once.
fn any_source(rng: &mut Rng, dtype: Dtype, shape: &[u64]) -> View {
    let view = any_view(rng, dtype, shape);
    if !rng.one_in(3) {
        return view;
    }
    let mut strides = view.strides().to_vec();
    for stride in &mut strides {
        match rng.below(4) {
            0 => *stride = 0,
            1 => *stride = dtype.bytes() as i64,
            _ => {}
        }
    }
    // Strides that were made smaller, or 0, keep within what the others reached.
    View::strided(dtype, view.offset(), shape, &strides).unwrap_or(view)
}

/// As many random bytes as `view` needs.
fn memory_of(rng: &mut Rng, view: &View) -> Vec<u8> {
    let bytes = view.span().map_or(0, |(_, end)| end);
    (0..bytes).map(|_| rng.next_u64() as u8).collect()
}

/// Copies element by element, as if all of `source` were read first.
fn expected(source: &[u8], from: &View, target: &mut [u8], to: &View) {
    let size = from.dtype().bytes() as usize;
    let read: Vec<Vec<u8>> =
        places(from).into_iter().map(|at| source[at..at + size].to_vec()).collect();
    for (at, element) in places(to).into_iter().zip(read) {
        target[at..at + size].copy_from_slice(&element);
    }
}
