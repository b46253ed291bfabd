//! Box copies against a loop over single elements.

use syncline_tensor::Dtype;
use syncline_testing::for_seeds;

use super::*;
use syncline_copy::convert::converter;

fn steps(shape: &[usize], element: usize) -> Vec<usize> {
    let mut steps = vec![element; shape.len()];
    for dim in (0..shape.len().saturating_sub(1)).rev() {
        steps[dim] = steps[dim + 1] * shape[dim + 1];
    }
    steps
}

#[test]
fn any_box_equals_the_elementwise_copy() {
    for_seeds("any_box_equals_the_elementwise_copy", 300, |rng| {
        let dims = rng.below(5);
        let large = rng.one_in(4);
        let extent = |rng: &mut syncline_testing::Rng, dim: usize| {
            if large && dim + 1 == dims { rng.below(3_000) } else { rng.below(7) }
        };
        let extents: Vec<usize> = (0..dims).map(|dim| extent(rng, dim)).collect();
        let pad = |rng: &mut syncline_testing::Rng| -> Vec<usize> {
            extents
                .iter()
                .map(|extent| extent + if rng.one_in(2) { 0 } else { rng.below(5) })
                .collect()
        };
        let (source_shape, target_shape) = (pad(rng), pad(rng));
        let convert = rng.one_in(3);
        let (from, to) = if convert { (Dtype::F32, Dtype::BF16) } else { (Dtype::F16, Dtype::F16) };
        let (source_element, target_element) = (from.bytes() as usize, to.bytes() as usize);
        let source_steps = steps(&source_shape, source_element);
        let target_steps = steps(&target_shape, target_element);
        let source: Vec<u8> = (0..source_shape.iter().product::<usize>() * source_element + 64)
            .map(|_| rng.next_u64() as u8 & 0x3f)
            .collect();
        let mut target = vec![0xee; target_shape.iter().product::<usize>() * target_element + 64];
        let mut expected = target.clone();
        let mut index = vec![0; dims];
        let one = converter(from, to).unwrap();
        'elements: while extents.iter().all(|&extent| extent > 0) {
            let at = |steps: &[usize]| index.iter().zip(steps).map(|(i, s)| i * s).sum::<usize>();
            let (source_at, target_at) = (at(&source_steps), at(&target_steps));
            one(
                &source[source_at..][..source_element],
                &mut expected[target_at..][..target_element],
            );
            for dim in (0..=dims).rev() {
                if dim == 0 {
                    break 'elements;
                }
                index[dim - 1] += 1;
                if index[dim - 1] < extents[dim - 1] {
                    break;
                }
                index[dim - 1] = 0;
            }
        }
        let shape =
            CopyShape::new(&extents, &source_steps, &target_steps, source_element, target_element);
        assert_eq!(shape.target_bytes(), extents.iter().product::<usize>() * target_element);
        let (source_span, target_span) = shape.spans();
        assert!(source_span <= source.len() && target_span <= target.len());
        let store = *rng.pick(&[Store::Cached, Store::Streaming]);
        // SAFETY: the spans lie within the two vectors, which are apart.
        unsafe {
            copy_box(
                &shape,
                source.as_ptr(),
                target.as_mut_ptr(),
                if convert { Change::Each(one) } else { Change::Nothing },
                store,
            );
        }
        fence();
        assert!(target == expected, "{extents:?} of {source_shape:?} to {target_shape:?}");
    });
}

#[test]
fn a_whole_tensor_is_one_run() {
    let shape = CopyShape::new(&[4, 8, 2], &[32, 4, 2], &[32, 4, 2], 2, 2);
    assert_eq!((shape.runs(), shape.source_run_bytes), (1, 128));
    let rows = CopyShape::new(&[4, 8, 2], &[64, 8, 2], &[32, 4, 2], 2, 2);
    assert_eq!(rows.loops.len(), 1, "rows of one step merge: {rows:?}");
    assert_eq!((rows.runs(), rows.source_run_bytes), (32, 4));
}

#[cfg(target_arch = "x86_64")]
#[test]
fn lines_are_copied_alike_by_whatever_the_processor_has() {
    use super::stream::Lines;

    let mut all = Vec::new();
    if std::is_x86_feature_detected!("avx2") {
        all.push(Lines::Avx2);
    }
    if std::is_x86_feature_detected!("avx512f") {
        all.push(Lines::Avx512);
    }
    let source: Vec<u8> = (0..8 * 64 + 5).map(|at| (at * 7) as u8).collect();
    for lines in all {
        for count in 0..8 {
            let mut target = vec![0xee; 10 * 64];
            let start = target.as_ptr().align_offset(64);
            // SAFETY: at most eight lines from byte 5 of the source, to an aligned place with room
            // for nine.
            unsafe { lines.copy(source.as_ptr().add(5), target.as_mut_ptr().add(start), count) };
            fence();
            let (copied, rest) = target[start..].split_at(count * 64);
            assert_eq!(copied, &source[5..][..count * 64], "{count} by {lines:?}");
            assert!(rest.iter().all(|byte| *byte == 0xee));
        }
    }
}

/// Column blocks of one matrix, each to a matrix of its own, together and one after the other.
#[test]
fn boxes_side_by_side_are_copied_as_each_alone() {
    for_seeds("boxes_side_by_side_are_copied_as_each_alone", 200, |rng| {
        let rows = rng.below(6) + 1;
        let run_bytes = *rng.pick(&[1, 3, 16, 32, 48, 64, 100, 128, 192, 600, 1024]);
        let count = rng.below(PARTS_MAX) + 1;
        // Some of them are wanted twice, and between some of them there is a gap.
        let mut offsets = vec![0];
        for _ in 1..count {
            let last = offsets[offsets.len() - 1];
            offsets.push(last + [0, run_bytes, run_bytes + 8][rng.below(3)]);
        }
        let source_step = offsets[count - 1] + run_bytes + rng.below(70);
        let target_step = run_bytes + *rng.pick(&[0, 1, 64]);
        let shape = CopyShape::new(&[rows, run_bytes], &[source_step, 1], &[target_step, 1], 1, 1);
        let source: Vec<u8> = (0..rows * source_step).map(|_| rng.next_u64() as u8).collect();
        let target_bytes = (rows * target_step).next_multiple_of(64);
        let mut targets = vec![0xee; count * target_bytes + 64];
        let mut expected = targets.clone();
        let first = match rng.one_in(2) {
            true => targets.as_ptr().align_offset(64),
            false => rng.below(64),
        };
        let start = |part: usize| first + part * target_bytes;
        let store = *rng.pick(&[Store::Cached, Store::Streaming]);
        for (part, offset) in offsets.iter().enumerate() {
            for row in 0..rows {
                let run = &source[offset + row * source_step..][..run_bytes];
                expected[start(part) + row * target_step..][..run_bytes].copy_from_slice(run);
            }
        }
        let base = targets.as_mut_ptr();
        // SAFETY: every box lies within its vector, and no two targets overlap.
        unsafe {
            let parts: Vec<Part> = (0..count)
                .map(|part| (source.as_ptr().add(offsets[part]), base.add(start(part))))
                .collect();
            copy_fan(&shape, &parts, store);
        }
        fence();
        assert!(targets == expected, "{shape:?}, {offsets:?}, {store:?}");
    });
}

#[test]
fn parts_of_a_copy_make_up_the_whole() {
    for_seeds("parts_of_a_copy_make_up_the_whole", 100, |rng| {
        let dims = rng.below(4);
        let extents: Vec<usize> = (0..dims).map(|_| rng.below(9) + 1).collect();
        let pad = |rng: &mut syncline_testing::Rng| -> Vec<usize> {
            extents.iter().map(|extent| extent + rng.below(3)).collect()
        };
        let (source_shape, target_shape) = (pad(rng), pad(rng));
        let whole =
            CopyShape::new(&extents, &steps(&source_shape, 4), &steps(&target_shape, 2), 4, 2);
        let bytes_max = rng.below(60) + 2;
        let mut runs = Vec::new();
        for (part, source, target) in whole.parts(bytes_max) {
            assert!(part.target_bytes() <= bytes_max && part.target_bytes() > 0);
            part.for_each_run(|from, to| {
                let elements = 0..part.run_elements;
                runs.extend(elements.map(|at| (source + from + at * 4, target + to + at * 2)));
            });
        }
        let mut expected = Vec::new();
        whole.for_each_run(|from, to| {
            expected.extend((0..whole.run_elements).map(|at| (from + at * 4, to + at * 2)));
        });
        runs.sort_unstable();
        expected.sort_unstable();
        assert_eq!(runs, expected);
    });
}
