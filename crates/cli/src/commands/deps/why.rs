//! Why one task waits for another, in words.

use syncline::deps::{ArgPair, DepEdge, DepGraph, EdgeKinds, hazards};
use syncline::tensor::Arg;
use syncline::trace::{Naming, Trace, TraceArg};
use syncline_files::one_line;

/// The most pairs of arguments that are named for one edge.
const PAIRS_SHOWN: usize = 4;
const OF_TASKS: [EdgeKinds; 2] = [EdgeKinds::EXPLICIT, EdgeKinds::BARRIER];

/// Puts edges of a trace into words.
pub(super) struct Reasons<'a> {
    trace: &'a Trace,
    naming: Naming,
}

impl<'a> Reasons<'a> {
    pub(super) fn of(trace: &'a Trace) -> Self {
        Self { trace, naming: Naming::of(trace) }
    }

    /// The id and the name of a task.
    pub(super) fn task(&self, position: u32) -> String {
        let task = &self.trace.tasks[position as usize];
        one_line(format!("{} {}", task.id, task.label()).trim_end())
    }

    /// Kinds of an edge, and where they lie, such as `raw A[64:128, 0:64]`.
    pub(super) fn why(&self, graph: &DepGraph, edge: &DepEdge) -> String {
        let mut parts = Vec::new();
        for kind in OF_TASKS {
            // A barrier is told with the accesses that it stands for, as long as there are any.
            let told_later = kind == EdgeKinds::BARRIER && !graph.args(edge).is_empty();
            if edge.kinds.contains(kind) && !told_later {
                parts.push(kind.to_string());
            }
        }
        let pairs = graph.args(edge);
        for pair in pairs.iter().take(PAIRS_SHOWN) {
            let part = self.pair(edge, *pair);
            if !parts.contains(&part) {
                parts.push(part);
            }
        }
        if pairs.len() > PAIRS_SHOWN {
            parts.push(format!("and {} more", pairs.len() - PAIRS_SHOWN));
        }
        if parts.is_empty() {
            parts.push(edge.kinds.to_string());
        }
        parts.join(", ")
    }

    fn pair(&self, edge: &DepEdge, (pred_arg, succ_arg): ArgPair) -> String {
        let arg = |task: u32, position: u32| -> Option<&Arg> {
            let TraceArg { arg, .. } =
                self.trace.tasks[task as usize].args.get(position as usize)?;
            Some(arg)
        };
        let (Some(pred), Some(succ)) = (arg(edge.pred, pred_arg), arg(edge.succ, succ_arg)) else {
            // Edges from elsewhere may name tasks that do not exist.
            return format!("arguments {pred_arg} and {succ_arg}");
        };
        let kinds = self.kinds(edge, pred, succ);
        let place = one_line(&self.naming.overlap(pred, succ));
        if kinds.is_empty() { place.to_string() } else { format!("{kinds} {place}") }
    }

    /// The kinds that these two arguments account for.
    fn kinds(&self, edge: &DepEdge, pred: &Arg, succ: &Arg) -> String {
        let of_pair = hazards(pred.access, succ.access) | EdgeKinds::BARRIER;
        let names: Vec<&str> = (edge.kinds.names())
            .filter(|name| EdgeKinds::from_name(name).is_some_and(|kind| of_pair.contains(kind)))
            .collect();
        names.join("+")
    }
}
