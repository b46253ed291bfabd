//! Copies of boxes between row-major memories.

use syncline_copy::convert::{Converter, converter};
use syncline_copy::{CopyPlan, ElementChange, FAN_MAX, Part, Store, Strides, cut, fence};
use syncline_tensor::Dtype;
use syncline_testing::{Rng, for_seeds};

fn strides(shape: &[u64], element: u64) -> Vec<u64> {
    let mut strides = vec![element; shape.len()];
    for dim in (0..shape.len().saturating_sub(1)).rev() {
        strides[dim] = strides[dim + 1] * shape[dim + 1];
    }
    strides
}

/// A box in the corner of two memories that have room for more.
struct Corner {
    extents: Vec<u64>,
    shapes: [Vec<u64>; 2],
    elements: [u64; 2],
}

impl Corner {
    fn any(rng: &mut Rng, elements: [u64; 2]) -> Self {
        let dims = rng.below(5);
        let large = rng.one_in(4);
        let extents: Vec<u64> = (0..dims)
            .map(|dim| if large && dim + 1 == dims { rng.range(0..3_000) } else { rng.range(0..7) })
            .collect();
        let mut pad = || {
            let room = |&extent: &u64| extent + if rng.one_in(2) { 0 } else { rng.range(0..5) };
            extents.iter().map(room).collect::<Vec<u64>>()
        };
        let shapes = [pad(), pad()];
        Self { extents, shapes, elements }
    }

    fn strides(&self, side: usize) -> Vec<u64> {
        strides(&self.shapes[side], self.elements[side])
    }

    fn plan(&self) -> CopyPlan {
        let [source, target] = [0, 1].map(|side| self.strides(side));
        let signed = |strides: Vec<u64>| strides.into_iter().map(|stride| stride as i64);
        let (source, target): (Vec<i64>, Vec<i64>) =
            (signed(source).collect(), signed(target).collect());
        let [from, to] = self.elements;
        CopyPlan::strided(
            &self.extents,
            Strides { strides: &source, element_bytes: from },
            Strides { strides: &target, element_bytes: to },
        )
        .unwrap()
    }

    /// Places of every element on both sides, one by one.
    fn places(&self) -> Vec<(u64, u64)> {
        let (source, target) = (self.strides(0), self.strides(1));
        let place = |number: u64| {
            let (mut rest, mut from, mut to) = (number, 0, 0);
            for dim in (0..self.extents.len()).rev() {
                let at = rest % self.extents[dim];
                rest /= self.extents[dim];
                (from, to) = (from + at * source[dim], to + at * target[dim]);
            }
            (from, to)
        };
        (0..self.extents.iter().product()).map(place).collect()
    }

    /// Bytes up to the end of the last element of a side.
    fn bytes(&self, side: usize) -> usize {
        let place = |pair: &(u64, u64)| [pair.0, pair.1][side] + self.elements[side];
        self.places().iter().map(place).max().unwrap_or(0) as usize
    }
}

#[test]
fn any_box_equals_the_elementwise_copy() {
    for_seeds("any_box_equals_the_elementwise_copy", 400, |rng| {
        let convert = rng.one_in(3);
        let (from, to) = if convert { (Dtype::F32, Dtype::BF16) } else { (Dtype::F16, Dtype::F16) };
        let corner = Corner::any(rng, [from.bytes(), to.bytes()]);
        let one: Converter = converter(from, to).unwrap();
        let source: Vec<u8> = (0..corner.bytes(0)).map(|_| rng.next_u64() as u8 & 0x3f).collect();
        let mut found = vec![0xee; corner.bytes(1)];
        let mut wanted = found.clone();
        for (read, write) in corner.places() {
            let read = &source[read as usize..][..from.bytes() as usize];
            one(read, &mut wanted[write as usize..][..to.bytes() as usize]);
        }
        let plan = corner.plan();
        let elements: u64 = corner.extents.iter().product();
        assert_eq!(plan.bytes(), elements * to.bytes());
        let ends = (plan.source_span().end as usize, plan.target_span().end as usize);
        assert_eq!(ends, (source.len(), found.len()));
        let change = if convert { ElementChange::Each(one) } else { ElementChange::Nothing };
        let store = *rng.pick(&[Store::Cached, Store::Streaming]);
        if rng.one_in(2) {
            // SAFETY: the spans lie within the two vectors, which are disjoint.
            unsafe { plan.run_as((source.as_ptr(), found.as_mut_ptr()), change, store) };
            fence();
        } else {
            // By way of packed memories on both sides.
            let packed_bytes = elements as usize * from.bytes() as usize;
            let (mut gathered, mut changed) =
                (vec![0; packed_bytes], vec![0; plan.bytes() as usize]);
            plan.gathered().copy(&source, &mut gathered, None).unwrap();
            let between = plan.from_packed().to_packed();
            between.copy(&gathered, &mut changed, convert.then_some(one)).unwrap();
            plan.scattered().copy(&changed, &mut found, None).unwrap();
        }
        assert!(found == wanted, "{:?} of {:?}, {plan:?}", corner.extents, corner.shapes);
    });
}

/// Column blocks of one matrix, each to a matrix of its own, together and one after the other.
#[test]
fn boxes_side_by_side_are_copied_as_each_alone() {
    for_seeds("boxes_side_by_side_are_copied_as_each_alone", 300, |rng| {
        let rows = rng.below(6) + 1;
        let run_bytes = *rng.pick(&[1, 3, 16, 32, 48, 64, 100, 128, 192, 600, 1024]);
        let count = rng.below(FAN_MAX) + 1;
        // Some of them are wanted twice, and between some of them there is a gap.
        let mut offsets = vec![0];
        for _ in 1..count {
            let last = offsets[offsets.len() - 1];
            offsets.push(last + [0, run_bytes, run_bytes + 8][rng.below(3)]);
        }
        let source_stride = offsets[count - 1] + run_bytes + rng.below(70);
        let target_stride = run_bytes + *rng.pick(&[0, 1, 64]);
        let plan = CopyPlan::strided(
            &[rows as u64, run_bytes as u64],
            Strides { strides: &[source_stride as i64, 1], element_bytes: 1 },
            Strides { strides: &[target_stride as i64, 1], element_bytes: 1 },
        )
        .unwrap();
        let source: Vec<u8> = (0..rows * source_stride).map(|_| rng.next_u64() as u8).collect();
        let target_bytes = (rows * target_stride).next_multiple_of(64);
        let mut targets = vec![0xee; count * target_bytes + 64];
        let mut wanted = targets.clone();
        let first = match rng.one_in(2) {
            true => targets.as_ptr().align_offset(64),
            false => rng.below(64),
        };
        let start = |part: usize| first + part * target_bytes;
        let store = *rng.pick(&[Store::Cached, Store::Streaming]);
        for (part, offset) in offsets.iter().enumerate() {
            for row in 0..rows {
                let run = &source[offset + row * source_stride..][..run_bytes];
                wanted[start(part) + row * target_stride..][..run_bytes].copy_from_slice(run);
            }
        }
        let base = targets.as_mut_ptr();
        // SAFETY: every box lies within its vector, and no two targets overlap.
        unsafe {
            let parts: Vec<Part> = (0..count)
                .map(|part| (source.as_ptr().add(offsets[part]), base.add(start(part))))
                .collect();
            plan.run_fan(&parts, store);
        }
        fence();
        assert!(targets == wanted, "{plan:?}, {offsets:?}, {store:?}");
    });
}

#[test]
fn parts_of_a_copy_make_up_the_whole() {
    for_seeds("parts_of_a_copy_make_up_the_whole", 300, |rng| {
        let corner = Corner::any(rng, [4, 2]);
        let whole = corner.plan();
        let bytes_max = rng.range(2..4_000);
        let mut found = Vec::new();
        for part in whole.parts(bytes_max) {
            assert!(part.bytes() <= bytes_max && part.bytes() > 0);
            let elements = part.run_bytes() / 2;
            part.for_each_run(|from, to| {
                found.extend((0..elements).map(|at| (from + at * 4, to + at * 2)));
            });
        }
        let mut wanted = corner.places();
        found.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(found, wanted);
    });
}

#[test]
fn boxes_of_a_size_follow_each_other_and_fill_the_whole() {
    for_seeds("boxes_of_a_size_follow_each_other_and_fill_the_whole", 300, |rng| {
        let shape: Vec<u64> = (0..rng.range(0..4)).map(|_| rng.range(0..9)).collect();
        let most = rng.range(1..40);
        let total: u64 = shape.iter().product();
        let strides = strides(&shape, 1);
        let (mut next, mut parts) = (0, 0);
        cut::boxes(&shape, most, |start, size| {
            let first: u64 = start.iter().zip(&strides).map(|(at, stride)| at * stride).sum();
            let volume: u64 = size.iter().product();
            assert_eq!(first, next, "one run after the other");
            assert!((1..=most).contains(&volume), "{start:?} {size:?}");
            let last: u64 = start
                .iter()
                .zip(size)
                .zip(&strides)
                .map(|((at, size), stride)| (at + size - 1) * stride)
                .sum();
            assert_eq!(last + 1 - first, volume, "one run each");
            (next, parts) = (first + volume, parts + 1);
        });
        assert_eq!(next, total);
        if shape.len() == 1 {
            assert_eq!(parts, total.div_ceil(most));
        }
    });
}
