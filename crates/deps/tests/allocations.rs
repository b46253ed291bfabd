//! The warm path allocates nothing.
//!
//! The only test of its process, because allocations are counted for the process as a whole.

use syncline_deps::*;
use syncline_tensor::*;
use syncline_testing::{CountingAllocator, Rng};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

/// One pass over a tiled matrix, halves and the whole, with all accesses and both kinds of scope.
fn pass(submitter: &mut Submitter, args: &[[Arg; 3]], edges: &mut usize) {
    for (at, args) in args.iter().enumerate() {
        if at % 16 == 0 {
            let manual = at % 64 == 0;
            submitter.enter_scope(if manual { ScopeKind::Manual } else { ScopeKind::Auto });
        }
        let before = submitter.next_task().sequence().saturating_sub(3);
        let deps = [TaskId::new(0, before); 2];
        let deps = if at > 3 && at % 5 == 0 { &deps[..] } else { &[] };
        submitter.submit(DepInputs { args, deps }, |_| *edges += 1).unwrap();
        if at % 16 == 15 {
            submitter.leave_scope().unwrap();
        }
        let next = submitter.next_task().sequence();
        if next > 100 {
            submitter.retire(TaskId::new(0, next - 100));
        }
    }
}

#[test]
fn submitting_to_known_views_allocates_nothing() {
    let mut submitter = Submitter::new(SubmitOptions::default());
    let buffers = [submitter.create_buffer(1 << 16), submitter.create_buffer(1 << 16)];
    let matrix = View::contiguous(Dtype::F32, &[128, 128]).unwrap();
    let mut rng = Rng::new(3);
    let args: Vec<[Arg; 3]> = (0..4096)
        .map(|_| {
            [0; 3].map(|_| {
                let (row, column) = (16 * rng.range(0..8), 16 * rng.range(0..8));
                let view = match rng.below(20) {
                    0 => matrix,
                    1 => matrix.slice(1, column..column + 16).unwrap(),
                    _ => matrix
                        .slice(0, row..row + 16)
                        .unwrap()
                        .slice(1, column..column + 16)
                        .unwrap(),
                };
                Arg::new(*rng.pick(&Access::ALL), *rng.pick(&buffers), view)
            })
        })
        .collect();
    let mut edges = 0;
    for _ in 0..3 {
        pass(&mut submitter, &args, &mut edges);
    }
    let (warm, before) = (edges, ALLOCATOR.allocations());
    pass(&mut submitter, &args, &mut edges);
    assert_eq!(ALLOCATOR.allocations(), before, "allocations in {} tasks", args.len());
    assert!(edges > warm, "edges were found");
}
