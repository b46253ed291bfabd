//! The critical path: what the run's time consisted of, from the first start to the last end.
//!
//! It is found backwards from the op that ended last. Before each op comes what ended last of all
//! that it followed: an op that it waited for, or the one before it on its lane. Time between the
//! two is a stall.

use crate::graph::Graph;
use crate::walk::{PathLink, WalkPiece, Walker};
use crate::{RunOpKind, RunRecord};

/// What happened in one piece of the critical path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// A kernel ran.
    Compute,
    /// Bytes moved.
    Copy,
    /// The op could have started, and had not: waking, launching, submitting.
    Stall,
    /// Nothing that the op depends on had to end first, and it had not started: lanes that wake
    /// late, submission that has not come to it.
    Late,
}

impl StepKind {
    /// Every kind.
    pub const ALL: [StepKind; 4] =
        [StepKind::Compute, StepKind::Copy, StepKind::Stall, StepKind::Late];

    /// Returns `true` if an op ran in steps of this kind.
    pub fn ran(self) -> bool {
        matches!(self, StepKind::Compute | StepKind::Copy)
    }
}

/// One piece of the critical path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathStep {
    /// What happened.
    pub kind: StepKind,
    /// Position of the op that ran, or that the stall came before.
    pub op: u32,
    /// How the op depends on the step's predecessor in time; `None` for the first op, and for
    /// stalls.
    pub link: Option<PathLink>,
    /// Its beginning.
    pub start_ns: u64,
    /// Its end, where the next step begins.
    pub end_ns: u64,
}

impl PathStep {
    /// How long it took.
    pub fn duration_ns(&self) -> u64 {
        self.end_ns - self.start_ns
    }
}

/// Work and copies on the critical path, by what made them follow one another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkTimes {
    /// The next step needed the result; the last step counts here.
    pub data_ns: u64,
    /// The next step needed nothing of it: their lane was busy.
    pub lane_ns: u64,
}

/// The steps that determined how long a run took, from early to late, without gap or overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CriticalPath {
    /// The steps. Steps without duration are kept: they belong to the chain.
    pub steps: Vec<PathStep>,
}

impl CriticalPath {
    /// The critical path of `run`; empty if nothing was timed.
    pub fn of(run: &RunRecord, graph: &Graph) -> Self {
        let timed = |op: &u32| run.ops[*op as usize].timing;
        let last = (0..run.ops.len() as u32)
            .filter(|op| timed(op).is_some())
            .max_by_key(|op| timed(op).map(|timing| timing.end_ns));
        let (Some(last), Some((from_ns, _))) = (last, run.span_ns()) else {
            return Self::default();
        };
        let mut steps: Vec<PathStep> = Vec::new();
        Walker::new(run, graph).ending_with(last, from_ns, |piece| steps.push(step(run, piece)));
        steps.reverse();
        shift_links(&mut steps);
        Self { steps }
    }

    /// Time spent in steps of `kind`.
    pub fn time_ns(&self, kind: StepKind) -> u64 {
        self.steps.iter().filter(|step| step.kind == kind).map(PathStep::duration_ns).sum()
    }

    /// Time of the steps that ran, by why the next one came after each.
    pub fn link_times(&self) -> LinkTimes {
        let mut times = LinkTimes::default();
        let mut before_ns = 0;
        for step in self.steps.iter().filter(|step| step.kind.ran()) {
            match step.link {
                Some(PathLink::Lane) => times.lane_ns += before_ns,
                Some(PathLink::Edge(_)) | None => times.data_ns += before_ns,
            }
            before_ns = step.duration_ns();
        }
        times.data_ns += before_ns;
        times
    }

    /// First start to last end.
    pub fn makespan_ns(&self) -> u64 {
        match (self.steps.first(), self.steps.last()) {
            (Some(first), Some(last)) => last.end_ns - first.start_ns,
            _ => 0,
        }
    }
}

fn step(run: &RunRecord, piece: WalkPiece) -> PathStep {
    match piece {
        WalkPiece::Ran { op, link, start_ns, end_ns } => {
            let kind = match run.ops[op as usize].kind {
                RunOpKind::Compute => StepKind::Compute,
                RunOpKind::Copy => StepKind::Copy,
            };
            PathStep { kind, op, link, start_ns, end_ns }
        }
        WalkPiece::Idle { before: op, start_ns, end_ns } => {
            PathStep { kind: StepKind::Stall, op, link: None, start_ns, end_ns }
        }
        WalkPiece::Unknown { before: op, start_ns, end_ns } => {
            PathStep { kind: StepKind::Late, op, link: None, start_ns, end_ns }
        }
    }
}

/// A walk says of an earlier op how the later one depends on it; a reader of the list wants it at
/// the later one.
fn shift_links(steps: &mut [PathStep]) {
    let mut link = None;
    for step in steps.iter_mut().filter(|step| step.kind.ran()) {
        link = std::mem::replace(&mut step.link, link);
    }
}
