use syncline_testing::{Rng, for_seeds};

use super::*;

fn any_copy(rng: &mut Rng) -> CopyBox {
    let dims = rng.below(5);
    let mut copy = [0; 5].map(|_: u8| Dims::splat(dims, 0).unwrap());
    for dim in 0..dims {
        let size = rng.range(1..5);
        // Full on a side more often than not, so that runs span dimensions.
        let mut place = || {
            let (before, after) =
                if rng.one_in(2) { (0, 0) } else { (rng.range(0..3), rng.range(0..3)) };
            (before, before + size + after)
        };
        let ((src, src_shape), (dst, dst_shape)) = (place(), place());
        for (target, value) in copy.iter_mut().zip([src, dst, size, src_shape, dst_shape]) {
            target[dim] = value;
        }
    }
    let [src_start, dst_start, size, src_shape, dst_shape] = copy;
    CopyBox { src_start, dst_start, size, src_shape, dst_shape }
}

/// Positions on both sides of every element of the box, one by one.
fn by_element(copy: &CopyBox) -> Vec<(u64, u64)> {
    let place = |number: u64, start: &Dims, shape: &Dims| {
        let mut rest = number;
        let mut place = 0;
        let mut stride = 1;
        for dim in (0..copy.size.len()).rev() {
            place += (start[dim] + rest % copy.size[dim]) * stride;
            rest /= copy.size[dim];
            stride *= shape[dim];
        }
        place
    };
    (0..copy.elements())
        .map(|number| {
            (
                place(number, &copy.src_start, &copy.src_shape),
                place(number, &copy.dst_start, &copy.dst_shape),
            )
        })
        .collect()
}

#[test]
fn runs_name_every_element_of_the_range_in_order() {
    for_seeds("runs_name_every_element_of_the_range_in_order", 400, |rng| {
        let copy = any_copy(rng);
        let all = by_element(&copy);
        let first = rng.range(0..all.len() as u64 + 1);
        let last = rng.range(first..all.len() as u64 + 1);
        for side in [Side::Src, Side::Dst, Side::Both] {
            let mut number = first;
            for run in copy.runs(side, first..last) {
                assert!(run.count > 0);
                assert_eq!(run.packed, number - first);
                for step in 0..run.count {
                    let (src, dst) = all[number as usize];
                    if side != Side::Dst {
                        assert_eq!(run.src + step, src, "{copy:?} {side:?}");
                    }
                    if side != Side::Src {
                        assert_eq!(run.dst + step, dst, "{copy:?} {side:?}");
                    }
                    number += 1;
                }
            }
            assert_eq!(number, last.max(first));
        }
    });
}

#[test]
fn runs_are_as_long_as_the_side_allows() {
    for_seeds("runs_are_as_long_as_the_side_allows", 400, |rng| {
        let copy = any_copy(rng);
        let all = by_element(&copy);
        let breaks = |position: fn(&(u64, u64)) -> u64| {
            all.windows(2).filter(|pair| position(&pair[0]) + 1 != position(&pair[1])).count()
        };
        let count = |side| copy.runs(side, 0..copy.elements()).count();
        assert_eq!(count(Side::Src), 1 + breaks(|both| both.0));
        assert_eq!(count(Side::Dst), 1 + breaks(|both| both.1));
        assert_eq!(copy.is_contiguous(Side::Src), count(Side::Src) == 1);
        assert_eq!(copy.is_contiguous(Side::Both), count(Side::Both) == 1);
    });
}

#[test]
fn boxes_of_a_range_are_its_elements_in_order() {
    for_seeds("boxes_of_a_range_are_its_elements_in_order", 400, |rng| {
        let copy = any_copy(rng);
        let total = copy.elements();
        let first = rng.range(0..total + 1);
        let last = rng.range(first..total + 1);
        let boxes = copy.boxes(first..last);
        assert!(boxes.len() < (2 * copy.size.len()).max(2));
        let strides = copy.size.row_major_strides(1);
        let mut number = first;
        for one in boxes {
            let inner = CopyBox {
                src_start: one.start,
                dst_start: one.start,
                size: one.size,
                src_shape: copy.size,
                dst_shape: copy.size,
            };
            assert_eq!(
                one.start.iter().zip(&strides[..]).map(|(at, step)| at * step).sum::<u64>(),
                number
            );
            for run in inner.runs(Side::Src, 0..inner.elements()) {
                assert_eq!(run.src, number);
                number += run.count;
            }
        }
        assert_eq!(number, last.max(first));
    });
}
