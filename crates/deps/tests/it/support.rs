//! Programs as data, what runs them, and a brute-force oracle that shares nothing with the crate
//! but its types.

use std::collections::BTreeMap;

use syncline_deps::*;
use syncline_tensor::*;

/// One step of a program.
#[derive(Clone, Debug)]
pub enum Step {
    Task { args: Vec<Arg>, deps: Vec<u64> },
    Enter(ScopeKind),
    Leave,
    Retire(u64),
}

/// What a submitter said about a program: the edges of each task.
pub type Edges = Vec<Vec<Edge>>;

/// Runs `steps` over buffers `0..buffers` of `bytes` bytes.
pub fn run(
    options: SubmitOptions,
    buffers: u64,
    bytes: u64,
    steps: &[Step],
) -> (Edges, SubmitStats) {
    let mut submitter = Submitter::new(options);
    for buffer in 0..buffers {
        submitter.declare_buffer(BufferId(buffer), bytes).unwrap();
    }
    let mut edges = Vec::new();
    for step in steps {
        match step {
            Step::Enter(kind) => submitter.enter_scope(*kind),
            Step::Leave => assert!(submitter.leave_scope().is_ok()),
            Step::Retire(task) => {
                submitter.retire(TaskId::new(options.ring, *task));
            }
            Step::Task { args, deps } => {
                let deps: Vec<TaskId> =
                    deps.iter().map(|&dep| TaskId::new(options.ring, dep)).collect();
                let mut found = Vec::new();
                let inputs = DepInputs { args, deps: &deps };
                let task = submitter.submit(inputs, |edge| found.push(edge)).unwrap();
                assert_eq!(task, TaskId::new(options.ring, edges.len() as u64));
                edges.push(found);
            }
        }
    }
    (edges, submitter.stats())
}

/// A task with these arguments and no explicit dependency.
pub fn task(args: &[Arg]) -> Step {
    Step::Task { args: args.to_vec(), deps: Vec::new() }
}

/// Bytes `start..end` of buffer `buffer`, used as `access`.
pub fn bytes(access: Access, buffer: u64, start: u64, end: u64) -> Arg {
    Arg::new(access, BufferId(buffer), View::bytes_at(start, end - start).unwrap())
}

/// The edges of `steps` as `pred -> succ` with what they are for, sorted.
pub fn described(steps: &[Step]) -> Vec<String> {
    let (edges, _) = run(SubmitOptions::default(), 8, 1 << 20, steps);
    let mut lines = Vec::new();
    for (succ, preds) in edges.iter().enumerate() {
        for edge in preds {
            lines.push((edge.pred.sequence(), succ, format!("{} {}", edge.kinds, edge.flags)));
        }
    }
    lines.sort();
    lines.into_iter().map(|(pred, succ, what)| format!("{pred}->{succ} {what}")).collect()
}

/// The edges of `steps` as pairs, sorted.
pub fn pairs(steps: &[Step]) -> Vec<(u64, u64)> {
    let (edges, _) = run(SubmitOptions::default(), 8, 1 << 20, steps);
    let mut pairs: Vec<(u64, u64)> = (0..)
        .zip(&edges)
        .flat_map(|(succ, preds)| preds.iter().map(move |edge| (edge.pred.sequence(), succ)))
        .collect();
    pairs.sort_unstable();
    pairs
}

/// What orders two accesses to the same byte, read off the documentation of [`Access`].
fn ordered(earlier: Access, later: Access) -> bool {
    let alike = [Access::Input, Access::Commutative, Access::Reduce];
    let never = earlier == Access::NoDep || later == Access::NoDep;
    !(never || earlier == later && alike.contains(&earlier))
}

fn byte_set(view: &View) -> Vec<u64> {
    let mut places = vec![view.offset() as i64];
    for (&count, &stride) in view.shape().iter().zip(view.strides()) {
        let steps = 0..count as i64;
        places = places
            .iter()
            .flat_map(|place| steps.clone().map(move |step| place + step * stride))
            .collect();
    }
    let mut words = Vec::new();
    for place in places {
        for byte in place as usize..place as usize + view.dtype().bytes() as usize {
            words.resize(words.len().max(byte / 64 + 1), 0);
            words[byte / 64] |= 1 << (byte % 64);
        }
    }
    words
}

/// Whether two tasks' arguments conflict, byte by byte.
pub struct Conflicts {
    tasks: Vec<Vec<(Arg, Vec<u64>)>>,
}

impl Conflicts {
    pub fn of(steps: &[Step]) -> Self {
        let mut known: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        let mut set = |arg: &Arg| {
            known.entry(format!("{:?}", arg.view)).or_insert_with(|| byte_set(&arg.view)).clone()
        };
        let tasks = steps.iter().filter_map(|step| match step {
            Step::Task { args, .. } => Some(args.iter().map(|arg| (*arg, set(arg))).collect()),
            _ => None,
        });
        Self { tasks: tasks.collect() }
    }

    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    pub fn conflict(&self, earlier: usize, later: usize) -> bool {
        self.tasks[earlier].iter().any(|(a, in_a)| {
            self.tasks[later].iter().any(|(b, in_b)| {
                a.buffer == b.buffer
                    && ordered(a.access, b.access)
                    && in_a.iter().zip(in_b).any(|(a, b)| a & b != 0)
            })
        })
    }
}

/// Which tasks come before which, as bits.
#[derive(Clone, PartialEq, Eq)]
pub struct Order {
    before: Vec<Vec<u64>>,
}

impl Order {
    pub fn new(tasks: usize) -> Self {
        Self { before: vec![vec![0; tasks.div_ceil(64)]; tasks] }
    }

    pub fn contains(&self, earlier: usize, later: usize) -> bool {
        self.before[later][earlier / 64] >> (earlier % 64) & 1 != 0
    }

    /// Adds `earlier -> later` and what follows; later tasks must be added after earlier ones.
    pub fn add(&mut self, earlier: usize, later: usize) {
        let (early, late) = self.before.split_at_mut(later);
        late[0][earlier / 64] |= 1 << (earlier % 64);
        for (late, early) in late[0].iter_mut().zip(&early[earlier]) {
            *late |= early;
        }
    }

    /// The order that the waits among `edges` make.
    pub fn of_edges(edges: &Edges) -> Self {
        let mut order = Self::new(edges.len());
        for (succ, preds) in edges.iter().enumerate() {
            for edge in preds.iter().filter(|edge| edge.flags.contains(EdgeFlags::WAIT)) {
                order.add(edge.pred.sequence() as usize, succ);
            }
        }
        order
    }
}

/// The order that a program must have: an auto task after all that it conflicts with, every task
/// after its explicit dependencies.
pub fn required_order(steps: &[Step], conflicts: &Conflicts) -> Order {
    let mut order = Order::new(conflicts.len());
    let (mut scopes, mut next) = (Vec::new(), 0);
    for step in steps {
        match step {
            Step::Enter(kind) => scopes.push(*kind),
            Step::Leave => drop(scopes.pop()),
            Step::Retire(_) => {}
            Step::Task { deps, .. } => {
                deps.iter().for_each(|&dep| order.add(dep as usize, next));
                if scopes.last() != Some(&ScopeKind::Manual) {
                    for earlier in 0..next {
                        if conflicts.conflict(earlier, next) {
                            order.add(earlier, next);
                        }
                    }
                }
                next += 1;
            }
        }
    }
    order
}
