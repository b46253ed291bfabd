//! Everything that is found out about one run.

use crate::chain::DataChain;
use crate::compare::Comparison;
use crate::gaps::{Gap, gaps};
use crate::graph::Graph;
use crate::layout::GraphLayout;
use crate::memory::{PlaceUse, places};
use crate::outliers::{Outlier, outliers};
use crate::path::CriticalPath;
use crate::reduce::{Redundant, redundant};
use crate::summary::RunSummary;
use crate::whatif::{Scenario, scenarios};
use crate::{ReportError, RunRecord};

/// What a report says about a run.
///
/// ```
/// use syncline_report::{Analysis, RunLane, RunOp, RunOpKind, RunRecord, StepKind, RunTiming};
///
/// let mut run = RunRecord::new("one kernel");
/// run.lanes.push(RunLane::new("worker 0", "cpu"));
/// let timing = RunTiming { lane: 0, start_ns: 1_000, end_ns: 3_000 };
/// run.ops.push(RunOp { timing: Some(timing), ..RunOp::new(0, "scale", RunOpKind::Compute) });
/// let analysis = Analysis::of(&run)?;
/// assert_eq!(analysis.path.time_ns(StepKind::Compute), 2_000);
/// assert_eq!(analysis.summary.lanes[0].busy_ns, 2_000);
/// # Ok::<(), syncline_report::ReportError>(())
/// ```
#[derive(Debug)]
pub struct Analysis {
    /// Edges and lanes by op.
    pub graph: Graph,
    /// What determined the run's length.
    pub path: CriticalPath,
    /// What dependencies alone make it take.
    pub chain: DataChain,
    /// Ops that took far longer than others of their name, the one that costs most first.
    pub outliers: Vec<Outlier>,
    /// When and why lanes stood idle.
    pub gaps: Vec<Gap>,
    /// What would shorten the run, the best first.
    pub scenarios: Vec<Scenario>,
    /// Memory by device or arena.
    pub places: Vec<PlaceUse>,
    /// The numbers.
    pub summary: RunSummary,
}

impl Analysis {
    /// Analyses `run`.
    pub fn of(run: &RunRecord) -> Result<Self, ReportError> {
        let graph = Graph::new(run)?;
        let path = CriticalPath::of(run, &graph);
        let gaps = gaps(run, &graph);
        let (chain, outliers) = (DataChain::of(run, &graph), outliers(run));
        let scenarios = scenarios(run, &graph, &path, &outliers);
        let summary = RunSummary::of(run, &graph, &path, &gaps, &outliers, &scenarios);
        Ok(Self { path, chain, outliers, gaps, scenarios, places: places(run), summary, graph })
    }

    /// Which edges others imply: what a graph need not show. Takes longer than all else, and the
    /// numbers do not need it.
    pub fn redundant(&self, run: &RunRecord) -> Redundant {
        redundant(run, &self.graph)
    }

    /// Where the graph's ops are drawn, given the edges that are not.
    pub fn layout(&self, run: &RunRecord, redundant: &Redundant) -> GraphLayout {
        GraphLayout::of(run, &self.graph, redundant)
    }

    /// What changed from `before` to `after`.
    pub fn compare(before: &RunRecord, after: &RunRecord) -> Comparison {
        Comparison::of(before, after)
    }
}
