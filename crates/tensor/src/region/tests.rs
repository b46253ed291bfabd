//! Regions against sets of bytes, enumerated one by one.

use syncline_testing::{Rng, for_seeds};

use super::*;
use crate::Dtype;

fn bytes_of(view: &View) -> Vec<bool> {
    let mut places = vec![view.offset() as i64];
    for (&count, &stride) in view.shape().iter().zip(view.strides()) {
        places = places
            .iter()
            .flat_map(|&place| (0..count as i64).map(move |index| place + index * stride))
            .collect();
    }
    let mut set = vec![false; view.span().map_or(0, |(_, end)| end as usize)];
    for place in places {
        for byte in 0..view.dtype().bytes() as usize {
            set[place as usize + byte] = true;
        }
    }
    set
}

fn share_a_byte(a: &[bool], b: &[bool]) -> bool {
    a.iter().zip(b).any(|(&in_a, &in_b)| in_a && in_b)
}

fn is_within(inner: &[bool], outer: &[bool]) -> bool {
    inner.iter().enumerate().all(|(at, &inside)| !inside || outer.get(at) == Some(&true))
}

/// Any view at all: strides of any sign and size, zeros in strides and shapes.
fn wild_view(rng: &mut Rng) -> View {
    loop {
        let rank = rng.below(MAX_DIMS + 1);
        let mut elements = 1;
        let mut shape = Vec::new();
        for _ in 0..rank {
            let size = if rng.one_in(60) { 0 } else { 1 + rng.range(0..5).min(64 / elements) };
            elements *= size.max(1);
            shape.push(size);
        }
        let strides: Vec<i64> = (0..rank)
            .map(|_| match rng.below(4) {
                0 => 0,
                1 => rng.range(0..12) as i64 - 6,
                2 => 8 * (rng.range(0..20) as i64 - 10),
                _ => rng.range(0..200) as i64 - 100,
            })
            .collect();
        let dtype = *rng.pick(&Dtype::ALL);
        if let Ok(view) = View::strided(dtype, rng.range(0..600), &shape, &strides) {
            return view;
        }
    }
}

/// A slice of a tensor, as programs have them: tiles, rows, columns, steps, transposes, flips.
fn tame_view(rng: &mut Rng, shape: &[u64]) -> View {
    let dtype = *rng.pick(&[Dtype::U8, Dtype::F16, Dtype::F32]);
    let mut view = View::contiguous(dtype, shape).unwrap();
    for (dim, &size) in shape.iter().enumerate() {
        let start = rng.range(0..size);
        let end = rng.range(start..size) + 1;
        view = view.slice(dim, start..end).unwrap();
    }
    let (mut counts, mut strides) = (view.shape().to_vec(), view.strides().to_vec());
    let mut offset = view.offset();
    for dim in 0..shape.len() {
        if rng.one_in(4) {
            let step = rng.range(1..4);
            counts[dim] = counts[dim].div_ceil(step);
            strides[dim] *= step as i64;
        }
        if rng.one_in(4) {
            offset += (counts[dim] - 1) * strides[dim] as u64;
            strides[dim] = -strides[dim];
        }
    }
    View::strided(dtype, offset, &counts, &strides).unwrap()
}

fn check_pair(a: &View, b: &View) -> (bool, bool) {
    let (region_a, region_b) = (Region::of(a), Region::of(b));
    let (set_a, set_b) = (bytes_of(a), bytes_of(b));
    let test = region_a.test_overlap(&region_b);
    let overlap = test.overlaps;
    assert_eq!(overlap, share_a_byte(&set_a, &set_b), "{a:?} {region_a:?} and {b:?} {region_b:?}");
    assert_eq!(overlap, region_b.overlaps(&region_a), "{a:?} and {b:?} are symmetric");
    assert!(!test.exhausted, "{a:?} and {b:?}");
    let covers = region_a.covers(&region_b);
    assert!(!covers || is_within(&set_b, &set_a), "{region_a:?} does not cover {region_b:?}");
    (overlap, covers)
}

#[test]
fn wild_views_agree_with_their_byte_sets() {
    let mut seen = [0; 2];
    for_seeds("wild_views_agree_with_their_byte_sets", 400, |rng| {
        let views: Vec<View> = (0..12).map(|_| wild_view(rng)).collect();
        for a in &views {
            for b in &views {
                seen[usize::from(check_pair(a, b).0)] += 1;
            }
        }
    });
    assert!(seen[0] > 1000 && seen[1] > 1000, "both answers occur: {seen:?}");
}

#[test]
fn views_of_tensors_agree_with_their_byte_sets() {
    for_seeds("views_of_tensors_agree_with_their_byte_sets", 400, |rng| {
        let shapes: [&[u64]; 5] = [&[12, 16], &[6, 8, 10], &[4, 3, 5, 6], &[96], &[2; 8]];
        let (shape, other) = (*rng.pick(&shapes), *rng.pick(&shapes));
        let views: Vec<View> =
            (0..10).map(|at| tame_view(rng, if at % 3 == 0 { other } else { shape })).collect();
        for a in &views {
            for b in &views {
                check_pair(a, b);
            }
        }
    });
}

#[test]
fn boxes_of_one_tensor_cover_exactly_when_they_contain() {
    for_seeds("boxes_of_one_tensor_cover_exactly_when_they_contain", 300, |rng| {
        let shape = [5, 7, 11];
        let mut boxes = Vec::new();
        for _ in 0..8 {
            let mut view = View::contiguous(Dtype::U16, &shape).unwrap();
            for (dim, &size) in shape.iter().enumerate() {
                let start = rng.range(0..size);
                view = view.slice(dim, start..rng.range(start..size) + 1).unwrap();
            }
            boxes.push(view);
        }
        for a in &boxes {
            for b in &boxes {
                let contains = is_within(&bytes_of(b), &bytes_of(a));
                assert_eq!(Region::of(a).covers(&Region::of(b)), contains, "{a:?} and {b:?}");
            }
        }
    });
}

fn bytes_of_region(region: &Region) -> Vec<usize> {
    let mut places = vec![region.start()];
    for (stride, count) in region.dims() {
        places = (0..count)
            .flat_map(|index| places.iter().map(move |place| place + index * stride))
            .collect();
    }
    let run = region.run_bytes();
    places.iter().flat_map(|&place| (place..place + run).map(|byte| byte as usize)).collect()
}

/// Cuts `b` out of `a`; checks the parts, and returns whether there are any that are exact.
fn check_cut(a: &View, b: &View) -> Option<Vec<Region>> {
    let (region_a, region_b) = (Region::of(a), Region::of(b));
    let mut left = bytes_of(a);
    for (byte, &inside) in bytes_of(b).iter().enumerate() {
        if inside && let Some(left) = left.get_mut(byte) {
            *left = false;
        }
    }
    let mut parts = vec![Region::EMPTY];
    let done = region_a.without(&region_b, &mut parts);
    assert_eq!(parts.remove(0), Region::EMPTY, "what was there stays");
    if !done {
        assert!(parts.is_empty());
        return None;
    }
    let mut found = vec![0; left.len()];
    for part in &parts {
        let bytes = bytes_of_region(part);
        assert_eq!(bytes.iter().max(), Some(&(part.end() as usize - 1)), "{part:?}");
        bytes.into_iter().for_each(|byte| found[byte] += 1);
    }
    for (byte, &left) in left.iter().enumerate() {
        let times = usize::from(left);
        assert_eq!(found[byte], times, "byte {byte} of {region_a:?} without {region_b:?}");
    }
    Some(parts)
}

#[test]
fn what_is_left_of_tensors_views_is_exact() {
    let (mut cut, mut kept) = (0, 0);
    for_seeds("what_is_left_of_tensors_views_is_exact", 400, |rng| {
        let shapes: [&[u64]; 5] = [&[12, 16], &[6, 8, 10], &[4, 3, 5, 6], &[96], &[2; 8]];
        let (shape, other) = (*rng.pick(&shapes), *rng.pick(&shapes));
        let views: Vec<View> =
            (0..8).map(|at| tame_view(rng, if at % 3 == 0 { other } else { shape })).collect();
        for a in &views {
            for b in views.iter().filter(|b| Region::of(a).overlaps(&Region::of(b))) {
                match check_cut(a, b) {
                    Some(_) => cut += 1,
                    None => kept += 1,
                }
            }
        }
    });
    assert!(cut > 20 * kept, "{cut} pairs are cut, {kept} are not");
}

#[test]
fn what_is_left_of_wild_views_is_exact_or_refused() {
    let mut seen = [0; 2];
    for_seeds("what_is_left_of_wild_views_is_exact_or_refused", 400, |rng| {
        let views: Vec<View> = (0..8).map(|_| wild_view(rng)).collect();
        for a in &views {
            for b in views.iter().filter(|b| Region::of(a).overlaps(&Region::of(b))) {
                seen[usize::from(check_cut(a, b).is_some())] += 1;
            }
        }
    });
    assert!(seen[0] > 100 && seen[1] > 1000, "both answers occur: {seen:?}");
}

/// Boxes of one tensor, of any element size and at any offset, and runs of any bytes.
#[test]
fn boxes_and_runs_are_always_cut() {
    for_seeds("boxes_and_runs_are_always_cut", 400, |rng| {
        let shapes: [&[u64]; 3] = [&[9, 14], &[5, 7, 11], &[3, 4, 2, 5]];
        let shape = *rng.pick(&shapes);
        let offset = rng.range(0..100);
        let mut any = || {
            if rng.one_in(3) {
                return View::bytes_at(rng.range(0..400), rng.range(1..300)).unwrap();
            }
            let mut view = View::contiguous(Dtype::U16, shape).unwrap();
            for (dim, &size) in shape.iter().enumerate() {
                let start = rng.range(0..size);
                view = view.slice(dim, start..rng.range(start..size) + 1).unwrap();
            }
            let (shape, strides) = (view.shape().to_vec(), view.strides().to_vec());
            View::strided(Dtype::U16, view.offset() + offset, &shape, &strides).unwrap()
        };
        for _ in 0..40 {
            let (a, b) = (any(), any());
            if Region::of(&a).overlaps(&Region::of(&b)) {
                assert!(check_cut(&a, &b).is_some(), "{a:?} and {b:?}");
            }
        }
    });
}

#[test]
fn regions_that_are_joined_are_the_union() {
    let mut joined = 0;
    for_seeds("regions_that_are_joined_are_the_union", 400, |rng| {
        let shapes: [&[u64]; 3] = [&[12, 16], &[5, 6, 7], &[96]];
        let shape = *rng.pick(&shapes);
        // One cut after another leaves neighbours.
        let mut parts = vec![Region::of(&View::contiguous(Dtype::U8, shape).unwrap())];
        for _ in 0..3 {
            let cut = Region::of(&tame_view(rng, shape));
            let whole = std::mem::take(&mut parts);
            for part in &whole {
                if !part.without(&cut, &mut parts) {
                    parts.push(*part);
                }
            }
        }
        for (at, one) in parts.iter().enumerate() {
            for other in &parts[at + 1..] {
                let Some(union) = one.joined(other) else { continue };
                let mut expected = bytes_of_region(one);
                expected.extend(bytes_of_region(other));
                let mut found = bytes_of_region(&union);
                expected.sort_unstable();
                found.sort_unstable();
                assert_eq!(found, expected, "{one:?} and {other:?} are {union:?}");
                assert_eq!(other.joined(one), Some(union));
                joined += 1;
            }
        }
    });
    assert!(joined > 100, "{joined} pairs");
}

#[test]
fn same_bytes_have_one_canonical_form() {
    let matrix = View::contiguous(Dtype::F32, &[8, 16]).unwrap();
    let whole = Region::of(&matrix);
    assert!(whole.is_contiguous() && whole.end() == 512);
    let others = [
        matrix.transpose(0, 1).unwrap(),
        matrix.reshape(&[2, 4, 4, 4]).unwrap(),
        View::contiguous(Dtype::U8, &[512]).unwrap(),
        View::strided(Dtype::F32, 508, &[128], &[-4]).unwrap(),
        View::strided(Dtype::F32, 0, &[3, 128], &[0, 4]).unwrap(),
        // Windows of four that overlap by three.
        View::strided(Dtype::F32, 0, &[125, 4], &[4, 4]).unwrap(),
    ];
    for other in others {
        assert_eq!(Region::of(&other), whole, "{other:?}");
    }
}

#[test]
fn large_views_are_decided_without_enumeration() {
    let large = 1u64 << 40;
    let meet = |a: Region, b: Region| {
        let test = a.test_overlap(&b);
        assert!(!test.exhausted);
        test.overlaps
    };
    // Columns of a matrix of a trillion rows.
    let column =
        |at: u64| Region::of(&View::strided(Dtype::F32, 4 * at, &[large], &[1 << 18]).unwrap());
    assert!(!meet(column(3), column(4)));
    assert!(meet(column(3), column(3)));
    // Two pitches with no common divisor but the element size.
    let every = |offset, stride| {
        Region::of(&View::strided(Dtype::U8, offset, &[1 << 30], &[stride]).unwrap())
    };
    assert!(meet(every(1, 1_000_003), every(0, 1_000_033)));
    assert!(!meet(every(1, 1_000_002), every(0, 1_000_008)));
}

#[test]
fn a_search_that_is_given_up_counts_and_says_overlap() {
    // Sums of many unrelated large strides: subset-sum, with no answer that a bound or a divisor
    // would show.
    let odd = [100_003, 110_017, 120_011, 130_003, 140_009, 150_001, 160_001, 170_003];
    let even: Vec<i64> = odd.iter().map(|stride| stride + 50_004).collect();
    let a = View::strided(Dtype::U8, 0, &[7; 8], &odd).unwrap();
    let mut gave_up = 0;
    for offset in 0..64 {
        let b = View::strided(Dtype::U8, 1_000_000 + offset, &[2; 8], &even).unwrap();
        let test = Region::of(&a).test_overlap(&Region::of(&b));
        assert!(test.overlaps || !test.exhausted, "giving up means overlap");
        gave_up += u32::from(test.exhausted);
    }
    let far = View::strided(Dtype::U8, 1 << 61, &[2, 2], &[1000, 3]).unwrap();
    let test = Region::of(&far).test_overlap(&Region::of(&far));
    let wanted = OverlapTest { overlaps: true, solved: true, exhausted: true };
    assert_eq!(test, wanted, "beyond the solver's range; of the others {gave_up} gave up");
}

#[test]
fn empty_regions_touch_nothing() {
    let empty = Region::of(&View::contiguous(Dtype::F32, &[4, 0]).unwrap());
    let some = Region::of(&View::contiguous(Dtype::F32, &[4]).unwrap());
    assert!(empty.is_empty() && !empty.overlaps(&some) && !some.overlaps(&empty));
    assert!(some.covers(&empty) && !empty.covers(&some));
}
