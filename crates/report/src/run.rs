//! What the report is made from: lanes, timed ops, edges with their reasons, and memory.

use syncline_deps::EdgeKinds;

/// The longest time that a browser's numbers hold exactly.
const NS_MAX: u64 = 1 << 53;

/// One run of a program, or a program that has not run yet: then no op has a [`RunTiming`].
///
/// Ops are referred to by their position in [`RunRecord::ops`], lanes by theirs in
/// [`RunRecord::lanes`]. Times may start anywhere: the report counts from the first start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunRecord {
    /// What the page calls this run.
    pub title: String,
    /// The in-order streams of work.
    pub lanes: Vec<RunLane>,
    /// Tasks, copies, packs and sends alike, in any order.
    pub ops: Vec<RunOp>,
    /// What waited for what, and why.
    pub edges: Vec<RunEdge>,
    /// What lay in memory, and how long.
    pub memory: Vec<Allocation>,
    /// Further lines for the summary: a label and its value, shown as they are.
    pub facts: Vec<(String, String)>,
    /// Where the run comes from: a label and its value, such as `host` and `processor`.
    pub provenance: Vec<(String, String)>,
}

/// An in-order stream of work on one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunLane {
    /// Its name, such as `worker 0` or `copy`.
    pub name: String,
    /// The device that it belongs to, such as `cpu:0`; may be empty.
    pub device: String,
}

impl RunLane {
    /// A lane `name` of `device`.
    pub fn new(name: impl Into<String>, device: impl Into<String>) -> Self {
        Self { name: name.into(), device: device.into() }
    }
}

/// What an op does with its lane's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunOpKind {
    /// Runs a kernel.
    Compute,
    /// Moves bytes: a transfer, a pack, a send or an unpack.
    Copy,
}

/// One piece of work.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOp {
    /// The id of the task that it belongs to; several ops may share one (blocks of an SPMD task).
    pub task: u64,
    /// The kernel's or the copy's name. Ops of one name are counted together.
    pub name: String,
    /// Whether it computes or moves.
    pub kind: RunOpKind,
    /// Where and when it ran; `None` if it has not.
    pub timing: Option<RunTiming>,
    /// Bytes moved, for copies; zero elsewhere.
    pub bytes: u64,
    /// Its arguments as people read them, such as `inout A[0:64, 0:64]`.
    pub args: Vec<String>,
}

impl RunOp {
    /// An op that has not run, without arguments.
    pub fn new(task: u64, name: impl Into<String>, kind: RunOpKind) -> Self {
        Self { task, name: name.into(), kind, timing: None, bytes: 0, args: Vec::new() }
    }
}

/// Where and when an op ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunTiming {
    /// Position of the lane in [`RunRecord::lanes`].
    pub lane: u32,
    /// When the body began.
    pub start_ns: u64,
    /// When the body had ended.
    pub end_ns: u64,
}

/// `succ` waited for `pred`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunEdge {
    /// Position of the op that comes first.
    pub pred: u32,
    /// Position of the op that waits.
    pub succ: u32,
    /// The hazards.
    pub kinds: EdgeKinds,
    /// The bytes concerned as people read them, such as `A[0:64, 0:64]`; empty where there are none
    /// to name.
    pub region: String,
}

/// Bytes that were in use for a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// The buffer's name.
    pub name: String,
    /// The device or arena that it lay in.
    pub place: String,
    /// Its size.
    pub bytes: u64,
    /// Where in its arena it began, if it lay in one.
    pub offset: Option<u64>,
    /// From when on it was needed.
    pub start_ns: u64,
    /// When its last user had ended.
    pub end_ns: u64,
}

/// Why no report can be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum ReportError {
    #[error("task {task} `{name}` ends at {end_ns} ns, before it starts at {start_ns} ns")]
    EndsBeforeStart { task: u64, name: String, start_ns: u64, end_ns: u64 },
    #[error("task {task} `{name}` ran on lane {lane}, but the run has {lanes} lanes")]
    NoSuchLane { task: u64, name: String, lane: u32, lanes: usize },
    #[error("an edge from op {pred} to op {succ}, but the run has {ops} ops")]
    NoSuchOp { pred: u32, succ: u32, ops: usize },
    #[error("the edges form a cycle through task {task} `{name}`")]
    Cycle { task: u64, name: String },
    #[error("{0}")]
    Replay(Box<syncline_trace::ReplayError>),
    #[error("{runs} runs: a report shows one, or compares two")]
    Runs { runs: usize },
    #[error(
        "the run lasts {ns} ns: at most 2^53 ns (104 days) can be shown; do all lanes use one clock?"
    )]
    TooLong { ns: u64 },
    #[error("buffer `{name}` is released at {end_ns} ns, before it is needed at {start_ns} ns")]
    ReleasedBeforeUse { name: String, start_ns: u64, end_ns: u64 },
    #[error("a run of {ops} ops: at most {max} can be shown", max = u32::MAX)]
    TooManyOps { ops: usize },
}

impl RunRecord {
    /// A run with nothing in it.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    /// Whether any op was timed.
    pub fn is_timed(&self) -> bool {
        self.ops.iter().any(|op| op.timing.is_some())
    }

    /// First start and last end of all timed ops.
    pub fn span_ns(&self) -> Option<(u64, u64)> {
        let mut timings = self.ops.iter().filter_map(|op| op.timing);
        let first = timings.next()?;
        Some(timings.fold((first.start_ns, first.end_ns), |(start, end), timing| {
            (start.min(timing.start_ns), end.max(timing.end_ns))
        }))
    }

    /// Whether everything refers to something, and times run forwards.
    pub fn check(&self) -> Result<(), ReportError> {
        self.check_ops()?;
        self.check_memory()?;
        let ops = self.ops.len();
        match self.edges.iter().find(|edge| edge.pred.max(edge.succ) as usize >= ops) {
            Some(edge) => Err(ReportError::NoSuchOp { pred: edge.pred, succ: edge.succ, ops }),
            None => Ok(()),
        }
    }

    fn check_ops(&self) -> Result<(), ReportError> {
        if u32::try_from(self.ops.len()).is_err() {
            return Err(ReportError::TooManyOps { ops: self.ops.len() });
        }
        for op in &self.ops {
            let Some(RunTiming { lane, start_ns, end_ns }) = op.timing else { continue };
            let (task, name) = (op.task, || op.name.clone());
            if end_ns < start_ns {
                return Err(ReportError::EndsBeforeStart { task, name: name(), start_ns, end_ns });
            }
            let lanes = self.lanes.len();
            if lane as usize >= lanes {
                return Err(ReportError::NoSuchLane { task, name: name(), lane, lanes });
            }
        }
        match self.span_ns() {
            Some((start, end)) if end - start > NS_MAX => {
                Err(ReportError::TooLong { ns: end - start })
            }
            _ => Ok(()),
        }
    }

    fn check_memory(&self) -> Result<(), ReportError> {
        match self.memory.iter().find(|one| one.end_ns < one.start_ns) {
            Some(Allocation { name, start_ns, end_ns, .. }) => {
                let (name, start_ns, end_ns) = (name.clone(), *start_ns, *end_ns);
                Err(ReportError::ReleasedBeforeUse { name, start_ns, end_ns })
            }
            None => Ok(()),
        }
    }
}
