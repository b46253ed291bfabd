//! Cutting work into parts of a bounded size: ranges, boxes, and copies.

use std::ops::Range;

use syncline_tensor::{MAX_DIMS, View};

use crate::plan::CopyPlan;

/// Cuts `0..total` into ranges of `most`, the last of which may be shorter.
///
/// ```
/// let parts: Vec<_> = syncline_copy::cut::ranges(10, 4).collect();
/// assert_eq!(parts, [0..4, 4..8, 8..10]);
/// ```
///
/// # Panics
/// If `most` is 0.
pub fn ranges(total: u64, most: u64) -> impl Iterator<Item = Range<u64>> {
    let parts = total.div_ceil(most);
    (0..parts).map(move |part| part * most..total.min((part + 1).saturating_mul(most)))
}

/// Cuts a box into boxes of at most `most` elements, but at least one, and calls `each` with the
/// start and the size of every part.
///
/// Each part is one run of the box's elements in row-major order, and the parts follow each other.
///
/// ```
/// let mut sizes = Vec::new();
/// syncline_copy::cut::boxes(&[3, 4], 8, |_, size| sizes.push(size.to_vec()));
/// assert_eq!(sizes, [[2, 4], [1, 4]]);
/// ```
pub fn boxes(extents: &[u64], most: u64, mut each: impl FnMut(&[u64], &[u64])) {
    if !extents.contains(&0) {
        let (mut start, mut size) = (vec![0; extents.len()], extents.to_vec());
        cut(&mut start, &mut size, 0, most.max(1), &mut each);
    }
}

/// Cuts the box of `start` and `size`, which has one element in each dimension before `dim` and all
/// of them from there on.
fn cut(
    start: &mut [u64],
    size: &mut [u64],
    dim: usize,
    most: u64,
    each: &mut dyn FnMut(&[u64], &[u64]),
) {
    let row = size.iter().skip(dim + 1).fold(1, |all: u64, &count| all.saturating_mul(count));
    if dim == size.len() || row.saturating_mul(size[dim]) <= most {
        return each(start, size);
    }
    let whole = size[dim];
    for rows in ranges(whole, (most / row).max(1)) {
        (start[dim], size[dim]) = (rows.start, rows.end - rows.start);
        match row <= most {
            true => each(start, size),
            false => cut(start, size, dim + 1, most, each),
        }
    }
    (start[dim], size[dim]) = (0, whole);
}

/// Cuts views of one shape alike into parts of at most `bytes_max`, but at least an element, in
/// row-major order. Bytes are counted in the first view.
///
/// # Panics
/// If the shapes differ.
pub fn views<const N: usize>(views: [&View; N], bytes_max: u64) -> Vec<[View; N]> {
    let [first, ..] = views[..] else { return Vec::new() };
    let mut parts = Vec::new();
    boxes(first.shape(), bytes_max / first.dtype().bytes(), |start, size| {
        let part = |view: &View| {
            (0..size.len()).fold(*view, |part, dim| {
                let range = start[dim]..start[dim] + size[dim];
                part.slice(dim, range).expect("a part of views of one shape")
            })
        };
        parts.push(views.map(part));
    });
    parts
}

impl CopyPlan {
    /// Cuts the copy into copies of at most `bytes_max` at the target, but at least an element, in
    /// the order of the runs. Offsets still count from the same places.
    pub fn parts(&self, bytes_max: u64) -> Vec<Self> {
        if self.bytes() <= bytes_max {
            return if self.is_empty() { Vec::new() } else { vec![self.clone()] };
        }
        let mut extents = [0; MAX_DIMS + 1];
        let dims = self.extents(&mut extents);
        let mut parts = Vec::new();
        boxes(&extents[..dims], bytes_max / self.target_element(), |start, size| {
            parts.push(self.part(start, size));
        });
        parts
    }
}
