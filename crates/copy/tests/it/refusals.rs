//! Copies that are refused.

use std::collections::HashSet;

use syncline_copy::{CopyError, CopyPlan, Strides};
use syncline_tensor::{Dtype, View};
use syncline_testing::for_seeds;

use crate::{any_shape, any_source, any_view, memory_of, places};

#[test]
fn targets_that_overlap_themselves_are_refused() {
    for_seeds("targets_that_overlap_themselves_are_refused", 2_000, |rng| {
        let dtype = *rng.pick(&[Dtype::U8, Dtype::F16, Dtype::F32]);
        let shape: Vec<u64> = (0..rng.range(0..4)).map(|_| rng.range(0..6)).collect();
        let strides: Vec<i64> = shape.iter().map(|_| rng.range(0..24) as i64 - 12).collect();
        let reach = |(&size, &stride): (&u64, &i64)| stride.min(0) * size.saturating_sub(1) as i64;
        let offset = -shape.iter().zip(&strides).map(reach).sum::<i64>();
        let target = View::strided(dtype, offset as u64, &shape, &strides).unwrap();
        let mut bytes = HashSet::new();
        let overlaps = places(&target)
            .into_iter()
            .flat_map(|at| at..at + dtype.bytes() as usize)
            .any(|byte| !bytes.insert(byte));
        let source = View::contiguous(dtype, &shape).unwrap();
        match CopyPlan::new(&source, &target) {
            Ok(_) => assert!(!overlaps, "{target:?}"),
            Err(error) => {
                assert!(matches!(error, CopyError::TargetOverlaps { .. }), "{error}");
                assert!(overlaps, "{target:?}");
            }
        }
        let side = |strides| Strides { strides, element_bytes: dtype.bytes() };
        let plan = CopyPlan::strided(&shape, side(source.strides()), side(&strides));
        assert!(plan.is_err() || !overlaps, "{target:?}");
        if let Ok(plan) = plan {
            let runs = |plan: CopyPlan| {
                let mut runs = Vec::new();
                plan.for_each_run(|from, to| runs.push((from, to, plan.run_bytes())));
                runs
            };
            let placed = runs(plan.shifted(0, target.offset() as i64));
            assert_eq!(placed, runs(CopyPlan::new(&source, &target).unwrap()));
        }
    });
}

#[test]
fn slices_that_are_too_short_are_refused() {
    for_seeds("slices_that_are_too_short_are_refused", 500, |rng| {
        let (dtype, shape) = (Dtype::F16, any_shape(rng));
        let (from, to) = (any_source(rng, dtype, &shape), any_view(rng, dtype, &shape));
        let (mut source, mut target) = (memory_of(rng, &from), memory_of(rng, &to));
        let plan = CopyPlan::new(&from, &to).unwrap();
        if plan.is_empty() {
            return;
        }
        match rng.one_in(2) {
            true => source.truncate(source.len() - 1 - rng.below(source.len())),
            false => target.truncate(target.len() - 1 - rng.below(target.len())),
        }
        let before = target.clone();
        let error = plan.copy(&source, &mut target, None).unwrap_err();
        assert!(matches!(error, CopyError::OutOfBounds { .. }), "{error}");
        assert_eq!(target, before);
    });
}

#[test]
fn other_shapes_and_elements_are_refused() {
    let view = |dtype, shape: &[u64]| View::contiguous(dtype, shape).unwrap();
    let error = CopyPlan::new(&view(Dtype::F32, &[4]), &view(Dtype::F32, &[2, 2])).unwrap_err();
    assert!(matches!(error, CopyError::ShapeMismatch { .. }), "{error}");
    let error = CopyPlan::new(&view(Dtype::F32, &[4]), &view(Dtype::F16, &[4])).unwrap_err();
    assert!(matches!(error, CopyError::ElementSize { .. }), "{error}");
}

#[test]
fn copies_beyond_the_address_space_are_refused() {
    let refused = |extents: &[u64], strides: &[i64], element_bytes: u64| {
        let side = Strides { strides, element_bytes };
        let error = CopyPlan::strided(extents, side, side).unwrap_err();
        assert!(matches!(error, CopyError::TooLarge { .. }), "{error}");
    };
    refused(&[2, 2], &[i64::MAX, 1], 1);
    refused(&[2, 2], &[i64::MIN, 1], 1);
    refused(&[u64::MAX], &[1], 1);
    refused(&[1 << 33, 1 << 33], &[1, 1], 1);
    refused(&[3], &[1 << 62], 1);
    refused(&[1; 9], &[1; 9], 1);
    refused(&[1, 1], &[1], 1);
    refused(&[1], &[0], u64::MAX);
}
