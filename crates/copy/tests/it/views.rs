//! Copies between views.

use syncline_copy::{CopyPlan, ElementChange, Store, fence};
use syncline_tensor::{Dtype, View};
use syncline_testing::{Rng, for_seeds};

use crate::{any_shape, any_source, any_view, expected, memory_of};

const DTYPES: [Dtype; 4] = [Dtype::U8, Dtype::F16, Dtype::F32, Dtype::F64];

#[test]
fn any_views_are_copied_element_by_element() {
    for_seeds("any_views_are_copied_element_by_element", 1_500, |rng| {
        let (dtype, shape) = (*rng.pick(&DTYPES), any_shape(rng));
        let (from, to) = (any_source(rng, dtype, &shape), any_view(rng, dtype, &shape));
        let (source, mut found) = (memory_of(rng, &from), memory_of(rng, &to));
        let mut wanted = found.clone();
        expected(&source, &from, &mut wanted, &to);
        let plan = CopyPlan::new(&from, &to).unwrap();
        assert_eq!((plan.bytes(), plan.is_empty()), (from.bytes(), from.is_empty()));
        assert_eq!(plan.bytes(), plan.runs() * plan.run_bytes());
        let way = rng.below(6);
        let (start, base) = (source.as_ptr(), found.as_mut_ptr());
        let run = |store| {
            // SAFETY: the views lie within the two vectors.
            unsafe { plan.run_as((start, base), ElementChange::Nothing, store) };
            fence();
        };
        match way {
            0 => plan.copy(&source, &mut found, None).unwrap(),
            // SAFETY: as in `run`.
            1 => unsafe { plan.run(start, base) },
            2 => run(Store::Cached),
            3 => run(Store::Streaming),
            4 => {
                let (out, back) = plan.through_packed();
                let mut packed = vec![0; plan.bytes() as usize];
                out.copy(&source, &mut packed, None).unwrap();
                back.copy(&packed, &mut found, None).unwrap();
            }
            _ => {
                for part in plan.parts(rng.range(1..4_000)) {
                    part.copy(&source, &mut found, None).unwrap();
                }
            }
        }
        assert!(found == wanted, "way {way}: {from:?} to {to:?}, {plan:?}");
    });
}

#[test]
fn copies_within_a_buffer_read_all_before_they_write() {
    for_seeds("copies_within_a_buffer_read_all_before_they_write", 500, |rng| {
        let (dtype, shape) = (*rng.pick(&DTYPES), any_shape(rng));
        let (from, to) = (any_source(rng, dtype, &shape), any_view(rng, dtype, &shape));
        let mut found = memory_of(rng, &from);
        found.extend(memory_of(rng, &to));
        let mut wanted = found.clone();
        expected(&found, &from, &mut wanted, &to);
        let plan = CopyPlan::new(&from, &to).unwrap();
        // SAFETY: both views lie within the vector.
        unsafe { plan.run_within(found.as_mut_ptr()) };
        assert!(found == wanted, "{from:?} to {to:?}, {plan:?}");
    });
}

/// Many copies between parts of a few tensors, one after the other.
#[test]
fn programs_of_copies_equal_their_serial_run() {
    fn any_part(rng: &mut Rng, whole: &View) -> View {
        let mut part = *whole;
        for dim in 0..whole.rank() {
            let size = whole.shape()[dim];
            let start = rng.range(0..size);
            part = part.slice(dim, start..rng.range(start + 1..size + 1)).unwrap();
        }
        part
    }

    /// `view` cut down to the shape that it has in common with `other`.
    fn common(view: &View, other: &View) -> View {
        (0..view.rank()).fold(*view, |view, dim| {
            let size = view.shape()[dim].min(other.shape()[dim]);
            view.slice(dim, 0..size).unwrap()
        })
    }

    for_seeds("programs_of_copies_equal_their_serial_run", 60, |rng| {
        let dtype = *rng.pick(&DTYPES);
        let rank = rng.below(4);
        let tensors: Vec<View> = (0..3)
            .map(|_| {
                let shape: Vec<u64> = (0..rank).map(|_| rng.range(1..24)).collect();
                any_view(rng, dtype, &shape)
            })
            .collect();
        let mut found: Vec<Vec<u8>> = tensors.iter().map(|view| memory_of(rng, view)).collect();
        let mut wanted = found.clone();
        for _ in 0..30 {
            let (a, b) = (rng.below(3), rng.below(3));
            let (from, to) = (any_part(rng, &tensors[a]), any_part(rng, &tensors[b]));
            let (from, to) = (common(&from, &to), common(&to, &from));
            let source = wanted[a].clone();
            expected(&source, &from, &mut wanted[b], &to);
            let plan = CopyPlan::new(&from, &to).unwrap();
            match a == b {
                // SAFETY: both views lie within the vector.
                true => unsafe { plan.run_within(found[a].as_mut_ptr()) },
                false => {
                    let source = std::mem::take(&mut found[a]);
                    plan.copy(&source, &mut found[b], None).unwrap();
                    found[a] = source;
                }
            }
        }
        assert!(found == wanted, "{tensors:?}");
    });
}

#[test]
fn what_follows_on_both_sides_is_one_run() {
    let plan = |from: &View, to: &View| CopyPlan::new(from, to).unwrap();
    let whole = View::contiguous(Dtype::F16, &[4, 8, 2]).unwrap();
    assert_eq!((plan(&whole, &whole).runs(), plan(&whole, &whole).run_bytes()), (1, 128));
    let rows = View::strided(Dtype::F16, 0, &[4, 8, 2], &[64, 8, 2]).unwrap();
    let between = plan(&rows, &whole);
    assert_eq!((between.runs(), between.run_bytes(), between.loops().len()), (32, 4, 1));
    // Reversed on both sides: the same bytes, forwards.
    let reversed = View::strided(Dtype::F16, 126, &[64], &[-2]).unwrap();
    assert_eq!(plan(&reversed, &reversed).runs(), 1);
}
