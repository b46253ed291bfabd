//! Gaps: when lanes stood idle, and for what.

use crate::graph::Graph;
use crate::walk::{PathLink, WalkPiece, Walker};
use crate::{RunOpKind, RunRecord};

/// Why a lane stood idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GapCause {
    /// The next op waited for one that computed elsewhere.
    Data,
    /// The next op waited for bytes to arrive.
    Transfer,
    /// What the next op waited for was itself queued behind other work on its lane.
    LaneBusy,
    /// The next op was ready and had not been started: waking, launching, submitting.
    Dispatch,
    /// There was no work for this lane.
    NothingReady,
}

impl GapCause {
    /// Every cause, in the order of the legend.
    pub const ALL: [GapCause; 5] = [
        GapCause::Data,
        GapCause::Transfer,
        GapCause::LaneBusy,
        GapCause::Dispatch,
        GapCause::NothingReady,
    ];

    /// Its name for people.
    pub const fn name(self) -> &'static str {
        match self {
            GapCause::Data => "data",
            GapCause::Transfer => "transfer",
            GapCause::LaneBusy => "lane busy",
            GapCause::Dispatch => "dispatch",
            GapCause::NothingReady => "nothing ready",
        }
    }
}

/// A lane stood idle for one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Position of the lane.
    pub lane: u32,
    /// Its beginning.
    pub start_ns: u64,
    /// Its end.
    pub end_ns: u64,
    /// What the lane stood idle for.
    pub cause: GapCause,
    /// The op that ended the wait; `None` after the lane's last one.
    pub before: Option<u32>,
    /// The op that it waited for in this piece, where there is one.
    pub on: Option<u32>,
}

/// All gaps between the run's first start and last end, by lane and time. With the ops they tile
/// every lane.
pub(crate) fn gaps(run: &RunRecord, graph: &Graph) -> Vec<Gap> {
    let Some((from_ns, until_ns)) = run.span_ns() else { return Vec::new() };
    let mut walker = Walker::new(run, graph);
    let mut gaps = Vec::new();
    for (lane, ops) in (0u32..).zip(graph.lanes()) {
        let mut idle_from = from_ns;
        for &op in ops {
            let timing = run.ops[op as usize].timing.expect("only timed ops are on lanes");
            if timing.start_ns > idle_from {
                let first = gaps.len();
                walker.leading_to(op, idle_from, |piece| {
                    add(&mut gaps, first, gap(run, lane, op, piece));
                });
                gaps[first..].reverse();
            }
            idle_from = idle_from.max(timing.end_ns);
        }
        if idle_from < until_ns {
            let cause = GapCause::NothingReady;
            let (start_ns, end_ns) = (idle_from, until_ns);
            gaps.push(Gap { lane, start_ns, end_ns, cause, before: None, on: None });
        }
    }
    gaps
}

fn gap(run: &RunRecord, lane: u32, before: u32, piece: WalkPiece) -> Gap {
    let (start_ns, end_ns, cause, on) = match piece {
        WalkPiece::Ran { op, link, start_ns, end_ns } => {
            let cause = match (link, run.ops[op as usize].kind) {
                (Some(PathLink::Lane), _) => GapCause::LaneBusy,
                (_, RunOpKind::Copy) => GapCause::Transfer,
                (_, RunOpKind::Compute) => GapCause::Data,
            };
            (start_ns, end_ns, cause, Some(op))
        }
        WalkPiece::Idle { start_ns, end_ns, .. } => (start_ns, end_ns, GapCause::Dispatch, None),
        WalkPiece::Unknown { start_ns, end_ns, .. } => {
            (start_ns, end_ns, GapCause::NothingReady, None)
        }
    };
    Gap { lane, start_ns, end_ns, cause, before: Some(before), on }
}

/// Appends an earlier piece, joining it with the last one where both say the same: a long chain of
/// small ops is one wait to a reader.
fn add(gaps: &mut Vec<Gap>, first: usize, gap: Gap) {
    if gap.start_ns == gap.end_ns {
        return;
    }
    match gaps[first..].last_mut() {
        Some(last) if last.cause == gap.cause => last.start_ns = gap.start_ns,
        _ => gaps.push(gap),
    }
}
