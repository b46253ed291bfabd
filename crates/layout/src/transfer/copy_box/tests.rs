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
fn plans_of_parts_name_every_element_of_both_shards() {
    for_seeds("plans_of_parts_name_every_element_of_both_shards", 400, |rng| {
        let copy = any_copy(rng);
        let all = by_element(&copy);
        let first = rng.range(0..all.len() as u64 + 1);
        let last = rng.range(first..all.len() as u64 + 1);
        let mut number = first;
        for part in copy.boxes(first..last) {
            let part = copy.part(&part);
            // Packed and unpacked, the parts lie one after the other.
            let between = |copy: CopyBox| {
                let plan = copy.plan(2, 4).unwrap();
                let mut pairs = Vec::new();
                plan.for_each_run(|from, to| {
                    let elements = 0..plan.run_bytes() / 4;
                    pairs.extend(elements.map(|at| (from / 2 + at, to / 4 + at)));
                });
                pairs.sort_by_key(|pair| pair.1);
                pairs
            };
            let wanted = &all[number as usize..][..part.elements() as usize];
            let packed: Vec<_> = (0..).zip(wanted).map(|(at, pair)| (pair.0, at)).collect();
            assert_eq!(between(part), wanted, "{part:?}");
            assert_eq!(between(part.pack()), packed, "{part:?}");
            let mut unpacked: Vec<_> = (0..).zip(wanted).map(|(at, pair)| (at, pair.1)).collect();
            unpacked.sort_by_key(|pair| pair.1);
            assert_eq!(between(part.unpack()), unpacked, "{part:?}");
            number += part.elements();
        }
        assert_eq!(number, last.max(first));
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
        let mut number = first;
        for one in boxes {
            let inner = CopyBox { size: copy.size, src_shape: copy.size, ..copy };
            let inner = CopyBox { src_start: copy.size.zeros(), ..inner }.part(&one).pack();
            let plan = inner.plan(1, 1).unwrap();
            assert_eq!((plan.source_offset(), plan.runs()), (number, 1), "one run each");
            number += plan.bytes();
        }
        assert_eq!(number, last.max(first));
    });
}
