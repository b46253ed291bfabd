//! The bytes of a view as a list of intervals, written out one by one.

use syncline_tensor::View;

/// Sorted intervals of bytes that neither overlap nor touch.
pub(super) struct Intervals(Vec<(u64, u64)>);

impl Intervals {
    /// Returns the bytes of `view`; `None` where that takes more than `limit` intervals.
    pub(super) fn of(view: &View, limit: u64) -> Option<Self> {
        if view.is_empty() {
            return Some(Self(Vec::new()));
        }
        let mut dims: Vec<(u64, u64)> = Vec::new();
        let mut start = i128::from(view.offset());
        for (&size, &stride) in view.shape().iter().zip(view.strides()) {
            if stride < 0 {
                start += i128::from(size - 1) * i128::from(stride);
            }
            if size > 1 && stride != 0 {
                dims.push((stride.unsigned_abs(), size));
            }
        }
        // Smallest stride first: contiguous bytes grow into one run before it is repeated.
        dims.sort_unstable();
        let start = u64::try_from(start).expect("a view begins inside its buffer");
        let mut runs = vec![(start, start + view.dtype().bytes())];
        for (stride, size) in dims {
            runs = repeat(&runs, stride, size, limit)?;
        }
        Some(Self(runs))
    }

    pub(super) fn len(&self) -> u64 {
        self.0.len() as u64
    }

    /// Returns the first byte; past every other where there is none.
    pub(super) fn start(&self) -> u64 {
        self.0.first().map_or(u64::MAX, |&(start, _)| start)
    }

    /// Returns the byte after the last; zero where there is none.
    pub(super) fn end(&self) -> u64 {
        self.0.last().map_or(0, |&(_, end)| end)
    }

    pub(super) fn overlaps(&self, other: &Self) -> bool {
        let (few, many) = if self.0.len() < other.0.len() { (self, other) } else { (other, self) };
        few.0.iter().any(|&(start, end)| {
            let first = many.0.partition_point(|&(_, many_end)| many_end <= start);
            many.0.get(first).is_some_and(|&(many_start, _)| many_start < end)
        })
    }
}

/// `size` copies of `runs`, each `stride` bytes after the one before, merged.
fn repeat(runs: &[(u64, u64)], stride: u64, size: u64, limit: u64) -> Option<Vec<(u64, u64)>> {
    if let [(start, end)] = *runs
        && stride <= end - start
    {
        return Some(vec![(start, end + stride * (size - 1))]);
    }
    // Copies may run into one another: more may be written out than are left after merging.
    let written = size.checked_mul(runs.len() as u64)?;
    if written > limit {
        return None;
    }
    let mut all: Vec<(u64, u64)> = (0..size)
        .flat_map(|copy| {
            runs.iter().map(move |(start, end)| (start + copy * stride, end + copy * stride))
        })
        .collect();
    all.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (start, end) in all {
        match merged.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => merged.push((start, end)),
        }
    }
    Some(merged)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use syncline_testing::for_seeds;

    use super::*;
    use syncline_tensor::Dtype;

    /// Byte by byte: the check of the check.
    fn byte_set(view: &View) -> BTreeSet<u64> {
        let mut places = vec![view.offset() as i64];
        for (&size, &stride) in view.shape().iter().zip(view.strides()) {
            places = places
                .iter()
                .flat_map(|place| (0..size as i64).map(move |index| place + index * stride))
                .collect();
        }
        let bytes = view.dtype().bytes();
        places.iter().flat_map(|&place| place as u64..place as u64 + bytes).collect()
    }

    #[test]
    fn intervals_are_the_bytes_of_the_view() {
        for_seeds("intervals_are_the_bytes_of_the_view", 2000, |rng| {
            let rank = rng.below(5);
            let shape: Vec<u64> = (0..rank).map(|_| rng.range(0..5)).collect();
            let strides: Vec<i64> = (0..rank).map(|_| rng.range(0..40) as i64 - 20).collect();
            let dtype = *rng.pick(&Dtype::ALL);
            let Ok(view) = View::strided(dtype, 400, &shape, &strides) else { return };
            let intervals = Intervals::of(&view, 10_000).expect("few");
            let bytes: BTreeSet<u64> =
                intervals.0.iter().flat_map(|&(start, end)| start..end).collect();
            assert_eq!(bytes, byte_set(&view), "{view:?}");
            assert!(intervals.0.windows(2).all(|two| two[0].1 < two[1].0), "{view:?}");
        });
    }
}
