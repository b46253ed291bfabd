//! Random programs against the oracle: nothing missing, nothing superfluous.

use syncline_deps::*;
use syncline_tensor::*;
use syncline_testing::{Rng, for_seeds};

use crate::support::*;

pub const BUFFERS: u64 = 3;
pub const BYTES: u64 = 192;

/// A view that ends within the buffer; the pool of a program mixes all kinds.
fn any_view(rng: &mut Rng) -> View {
    let dtype = *rng.pick(&[Dtype::U8, Dtype::U8, Dtype::F16, Dtype::F32, Dtype::F64]);
    loop {
        let view = match rng.below(6) {
            0 => View::bytes_at(rng.range(0..BYTES), rng.range(0..64)),
            // Tiles, rows and columns of a matrix with rows of 16 bytes.
            1 | 2 => {
                let (row, column) = (rng.range(0..12), 4 * rng.range(0..4));
                let shape = [rng.range(1..5), 4 * rng.range(1..4)];
                View::strided(Dtype::U8, 16 * row + column, &shape, &[16, 1])
            }
            3 => View::bytes_at(0, BYTES),
            4 => {
                let stride = rng.range(0..24) as i64 - 12;
                View::strided(dtype, rng.range(0..BYTES), &[rng.range(1..12)], &[stride])
            }
            _ => {
                let rank = rng.below(5);
                let shape: Vec<u64> = (0..rank).map(|_| rng.range(1..4)).collect();
                let strides: Vec<i64> = (0..rank).map(|_| rng.range(0..60) as i64 - 30).collect();
                View::strided(dtype, rng.range(0..BYTES), &shape, &strides)
            }
        };
        match view {
            Ok(view) if view.span().is_none_or(|(_, end)| end <= BYTES) => return view,
            _ => {}
        }
    }
}

/// What a random program may contain.
#[derive(Clone, Copy)]
pub struct Mix {
    pub tasks: u64,
    pub views: usize,
    pub accesses: &'static [Access],
    pub manual: bool,
    pub deps: bool,
    pub retire: bool,
}

fn random_arg(rng: &mut Rng, mix: &Mix, pool: &[View]) -> Arg {
    let view = if rng.one_in(20) { any_view(rng) } else { *rng.pick(pool) };
    let mut access = *rng.pick(mix.accesses);
    if access.writes() && view.is_broadcast() {
        access = Access::Input;
    }
    Arg::new(access, BufferId(rng.range(0..BUFFERS)), view)
}

fn random_program(rng: &mut Rng, mix: &Mix) -> Vec<Step> {
    let pool: Vec<View> = (0..mix.views).map(|_| any_view(rng)).collect();
    program_of(rng, mix, |rng| random_arg(rng, mix, &pool))
}

/// A program whose arguments are as `arg` makes them.
pub fn program_of(rng: &mut Rng, mix: &Mix, mut arg: impl FnMut(&mut Rng) -> Arg) -> Vec<Step> {
    let (mut steps, mut depth, mut issued) = (Vec::new(), 0, 0);
    while issued < mix.tasks {
        if mix.manual && rng.one_in(12) {
            if depth > 0 && rng.one_in(2) {
                steps.push(Step::Leave);
                depth -= 1;
            } else if depth < 8 {
                let kind = *rng.pick(&[ScopeKind::Auto, ScopeKind::Manual]);
                steps.push(Step::Enter(kind));
                depth += 1;
            }
        }
        if mix.retire && issued > 0 && rng.one_in(3) {
            steps.push(Step::Retire(rng.range(issued.saturating_sub(12)..issued)));
        }
        let args = (0..1 + rng.below(3)).map(|_| arg(rng)).collect();
        let mut deps = Vec::new();
        while mix.deps && issued > 0 && rng.one_in(4) {
            deps.push(rng.range(0..issued));
        }
        steps.push(Step::Task { args, deps });
        issued += 1;
    }
    steps
}

/// Checks a program against the oracle, with and without pruning.
pub fn check(steps: &[Step]) {
    let conflicts = Conflicts::of(steps);
    let required = required_order(steps, &conflicts);
    for full in [false, true] {
        let options = SubmitOptions { full, ..SubmitOptions::default() };
        let (edges, stats) = run(options, BUFFERS, BYTES, steps);
        assert_eq!(stats.map.overlap.exhausted, 0);
        check_edges(&edges, steps, &conflicts);
        let found = Order::of_edges(&edges);
        for later in 0..conflicts.len() {
            for earlier in 0..later {
                let (must, does) =
                    (required.contains(earlier, later), found.contains(earlier, later));
                assert_eq!(
                    does,
                    must,
                    "{earlier} before {later} (full: {full}) in {:#?}",
                    minimal(steps, earlier, later)
                );
            }
        }
    }
}

/// Every wait stands for a conflict or an explicit dependency of its own, and comes once.
fn check_edges(edges: &Edges, steps: &[Step], conflicts: &Conflicts) {
    let tasks: Vec<_> = steps
        .iter()
        .filter_map(|step| match step {
            Step::Task { args, deps } => Some((args, deps)),
            _ => None,
        })
        .collect();
    for (succ, preds) in edges.iter().enumerate() {
        for (at, edge) in preds.iter().enumerate() {
            let pred = edge.pred.sequence();
            assert!(preds[..at].iter().all(|other| other.pred != edge.pred), "{pred} twice");
            let explicit = tasks[succ].1.contains(&pred);
            assert_eq!(edge.kinds.contains(EdgeKinds::EXPLICIT), explicit);
            if edge.flags.contains(EdgeFlags::WAIT) {
                assert!(explicit || conflicts.conflict(pred as usize, succ), "{pred}->{succ}");
            } else {
                assert_eq!(edge.kinds, EdgeKinds::CREATOR, "{pred}->{succ} only retains");
            }
            if let (Some(pred_arg), Some(succ_arg)) = (edge.pred_arg, edge.succ_arg) {
                let a = &tasks[pred as usize].0[usize::from(pred_arg)];
                let b = &tasks[succ].0[usize::from(succ_arg)];
                assert_eq!(a.buffer, b.buffer, "the arguments named are in one buffer");
            }
        }
    }
}

/// The steps that a failure is about, for reading.
fn minimal(steps: &[Step], earlier: usize, later: usize) -> Vec<(usize, Step)> {
    let mut tasks = 0;
    let mut kept = Vec::new();
    for step in steps {
        let inside = (earlier..=later).contains(&tasks);
        if matches!(step, Step::Task { .. }) {
            tasks += 1;
        }
        if inside {
            kept.push((tasks - 1, step.clone()));
        }
    }
    kept.truncate(40);
    kept
}

#[test]
fn plain_reads_and_writes() {
    for_seeds("plain_reads_and_writes", 150, |rng| {
        check(&random_program(
            rng,
            &Mix {
                tasks: 70,
                views: 8,
                accesses: &[Access::Input, Access::Input, Access::InOut, Access::OutputExisting],
                manual: false,
                deps: false,
                retire: false,
            },
        ));
    });
}

#[test]
fn all_accesses() {
    for_seeds("all_accesses", 200, |rng| {
        let views = 2 + rng.below(8);
        let mix = Mix {
            tasks: 70,
            views,
            accesses: &Access::ALL,
            manual: false,
            deps: false,
            retire: false,
        };
        check(&random_program(rng, &mix));
    });
}

#[test]
fn groups_on_few_views() {
    for_seeds("groups_on_few_views", 300, |rng| {
        let views = 2 + rng.below(3);
        let accesses: &[&[Access]] = &[
            &[Access::Commutative, Access::Commutative, Access::Input],
            &[Access::Commutative, Access::Reduce, Access::InOut],
            &[Access::Reduce, Access::Reduce, Access::Reduce, Access::Input, Access::InOut],
        ];
        let accesses = *rng.pick(accesses);
        let mix = Mix { tasks: 50, views, accesses, manual: false, deps: false, retire: false };
        check(&random_program(rng, &mix));
    });
}

#[test]
fn all_accesses_with_scopes_and_explicit_deps() {
    for_seeds("all_accesses_with_scopes_and_explicit_deps", 200, |rng| {
        let views = 2 + rng.below(8);
        let mix = Mix {
            tasks: 70,
            views,
            accesses: &Access::ALL,
            manual: true,
            deps: true,
            retire: false,
        };
        check(&random_program(rng, &mix));
    });
}

#[test]
fn many_views_of_one_buffer() {
    for_seeds("many_views_of_one_buffer", 6, |rng| {
        let mix = Mix {
            tasks: 500,
            views: 400,
            accesses: &[Access::Input, Access::InOut, Access::Commutative],
            manual: false,
            deps: false,
            retire: false,
        };
        check(&random_program(rng, &mix));
    });
}

/// With tasks retired at random, and their ancestors perhaps not: an order may be missing only
/// where the earlier task had certainly finished.
#[test]
fn retired_tasks_are_not_waited_for_and_no_other_is_missed() {
    for_seeds("retired_tasks_are_not_waited_for_and_no_other_is_missed", 200, |rng| {
        let mix = Mix {
            tasks: 100,
            views: 5,
            accesses: &Access::ALL,
            manual: true,
            deps: true,
            retire: true,
        };
        check_retiring(&random_program(rng, &mix));
    });
}

/// Checks a program that retires tasks.
pub fn check_retiring(steps: &[Step]) {
    let conflicts = Conflicts::of(steps);
    let required = required_order(steps, &conflicts);
    let (edges, _) = run(SubmitOptions::default(), BUFFERS, BYTES, steps);
    let found = Order::of_edges(&edges);
    let (mut retired, mut finished) = (vec![false; conflicts.len()], vec![false; conflicts.len()]);
    let mut next = 0;
    for step in steps {
        match step {
            Step::Retire(task) => {
                retired[*task as usize] = true;
                for (earlier, finished) in finished.iter_mut().enumerate() {
                    *finished |=
                        earlier == *task as usize || required.contains(earlier, *task as usize);
                }
            }
            Step::Task { .. } => {
                let preds = edges[next].iter().map(|edge| edge.pred.sequence() as usize);
                preds.for_each(|pred| assert!(!retired[pred], "{pred} is gone"));
                for (earlier, &finished) in finished[..next].iter().enumerate() {
                    if found.contains(earlier, next) {
                        assert!(required.contains(earlier, next), "{earlier}->{next}");
                    } else if required.contains(earlier, next) {
                        assert!(finished, "{earlier}->{next} is missing");
                    }
                }
                next += 1;
            }
            _ => {}
        }
    }
}
