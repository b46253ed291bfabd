//! Runs: the bytes of a view as intervals, and intervals as views.

use syncline_copy::cut;
use syncline_tensor::{Dtype, MAX_DIMS, View};

/// Bytes `start..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteRun {
    /// The first byte.
    pub start: u64,
    /// The first byte after it.
    pub end: u64,
}

/// The bytes of the innermost run of `view`, which is not empty, and the strides and counts at
/// which it is repeated, smallest first.
fn nested(view: &View) -> (u64, Vec<(u64, u64)>) {
    // A negative stride visits the same bytes as the positive one, from the other end.
    let mut dims: Vec<(u64, u64)> = (view.shape().iter().zip(view.strides()))
        .filter(|&(&size, &stride)| size > 1 && stride != 0)
        .map(|(&size, &stride)| (stride.unsigned_abs(), size))
        .collect();
    dims.sort_unstable();
    let mut bytes = view.dtype().bytes();
    let joined = dims.iter().take_while(|&&(stride, size)| {
        let joins = stride <= bytes;
        if joins {
            bytes += stride * (size - 1);
        }
        joins
    });
    let joined = joined.count();
    dims.drain(..joined);
    (bytes, dims)
}

/// How many intervals [`runs_of`] visits for `view`.
pub(crate) fn runs_count(view: &View) -> u64 {
    if view.is_empty() {
        return 0;
    }
    nested(view).1.iter().fold(1, |count, &(_, size)| count.saturating_mul(size))
}

/// The bytes that `view` touches, as sorted intervals that neither overlap nor touch.
pub fn runs_of(view: &View) -> Vec<ByteRun> {
    if view.is_empty() {
        return Vec::new();
    }
    let (low, _) = view.span().expect("not empty");
    let (bytes, outer) = nested(view);
    let mut runs = Vec::with_capacity(outer.iter().map(|&(_, size)| size as usize).product());
    let mut index = [0u64; MAX_DIMS];
    let mut start = low;
    loop {
        runs.push(ByteRun { start, end: start + bytes });
        // Counts up like an odometer, the smallest stride fastest, so that the runs come nearly
        // sorted.
        let mut dim = 0;
        loop {
            let Some(&(stride, size)) = outer.get(dim) else {
                merge(&mut runs);
                return runs;
            };
            index[dim] += 1;
            start += stride;
            if index[dim] < size {
                break;
            }
            start -= stride * size;
            index[dim] = 0;
            dim += 1;
        }
    }
}

/// Sorts `runs` and joins runs that overlap or touch.
pub(crate) fn merge(runs: &mut Vec<ByteRun>) {
    if !runs.is_sorted() {
        runs.sort_unstable();
    }
    runs.dedup_by(|next, last| {
        let joins = next.start <= last.end;
        if joins {
            last.end = last.end.max(next.end);
        }
        joins
    });
}

/// Views that together touch exactly `runs`, which are sorted and disjoint: runs of one length at
/// one distance share a view.
pub(crate) fn views_of(runs: &[ByteRun]) -> Vec<View> {
    let mut views = Vec::new();
    let mut rest = runs;
    while let [first, ..] = rest {
        let length = first.end - first.start;
        let distance = rest.get(1).map_or(0, |second| second.start - first.start);
        let alike = (rest.windows(2))
            .take_while(|pair| {
                pair[1].end - pair[1].start == length && pair[1].start - pair[0].start == distance
            })
            .count();
        let count = alike as u64 + 1;
        let view = if count == 1 {
            View::bytes_at(first.start, length)
        } else {
            View::strided(Dtype::U8, first.start, &[count, length], &[distance as i64, 1])
        };
        views.push(view.expect("inside a view that was checked"));
        rest = &rest[count as usize..];
    }
    views
}

/// The bytes of `views`, in order, in groups of at most `bytes_max` bytes, and of one element at
/// least.
pub(crate) fn pieces_of(views: &[View], bytes_max: u64) -> Vec<Box<[View]>> {
    let mut parts = Vec::new();
    views.iter().for_each(|view| parts.extend(cut::views([view], bytes_max).into_iter().flatten()));
    let (mut pieces, mut piece, mut bytes) = (Vec::new(), Vec::new(), 0);
    for part in parts {
        if bytes + part.bytes() > bytes_max && !piece.is_empty() {
            pieces.push(std::mem::take(&mut piece).into());
            bytes = 0;
        }
        bytes += part.bytes();
        piece.push(part);
    }
    if !piece.is_empty() {
        pieces.push(piece.into());
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use syncline_testing::{Rng, for_seeds};

    fn any_view(rng: &mut Rng) -> View {
        loop {
            let rank = rng.below(4);
            let shape: Vec<u64> = (0..rank).map(|_| rng.range(0..5)).collect();
            let strides: Vec<i64> = (0..rank).map(|_| rng.range(0..40) as i64 - 15).collect();
            let dtype = *rng.pick(&[Dtype::U8, Dtype::F16, Dtype::F32]);
            if let Ok(view) = View::strided(dtype, rng.range(0..200), &shape, &strides) {
                return view;
            }
        }
    }

    fn bytes_of(view: &View) -> BTreeSet<u64> {
        let mut places = vec![view.offset() as i64];
        for (&size, &stride) in view.shape().iter().zip(view.strides()) {
            places = (places.iter())
                .flat_map(|&place| (0..size as i64).map(move |at| place + at * stride))
                .collect();
        }
        let size = view.dtype().bytes();
        places.iter().flat_map(|&place| place as u64..place as u64 + size).collect()
    }

    #[test]
    fn runs_and_views_are_the_bytes_of_the_view() {
        for_seeds("runs_and_views_are_the_bytes_of_the_view", 2000, |rng| {
            let view = any_view(rng);
            let runs = runs_of(&view);
            assert!(runs.windows(2).all(|pair| pair[0].end < pair[1].start), "{runs:?}");
            let bytes: BTreeSet<u64> = runs.iter().flat_map(|run| run.start..run.end).collect();
            assert_eq!(bytes, bytes_of(&view), "{view:?}");
            let again: BTreeSet<u64> = views_of(&runs).iter().flat_map(bytes_of).collect();
            assert_eq!(again, bytes, "{view:?}");
        });
    }

    #[test]
    fn pieces_are_small_and_together_the_views() {
        for_seeds("pieces_are_small_and_together_the_views", 1000, |rng| {
            let views = views_of(&runs_of(&any_view(rng)));
            let bytes_max = rng.range(1..60);
            let pieces = pieces_of(&views, bytes_max);
            let mut seen = BTreeSet::new();
            for piece in &pieces {
                let bytes: u64 = piece.iter().map(View::bytes).sum();
                assert!(bytes <= bytes_max, "{bytes} of {bytes_max}");
                for place in piece.iter().flat_map(bytes_of) {
                    assert!(seen.insert(place), "byte {place} twice");
                }
            }
            assert_eq!(seen, views.iter().flat_map(bytes_of).collect());
        });
    }
}
