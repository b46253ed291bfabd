//! What a recorded run spent between tasks: learnt from its times, so that a simulation does not
//! leave it out.

use std::collections::HashMap;

use serde_json::Value;
use syncline_deps::{EdgeFlags, SubmitOptions};
use syncline_trace::{Trace, TraceLane, TraceTask, replay_edges};

/// The member of a trace that lists the lanes that its tasks could have run on, by name.
pub(crate) const LANES: &str = "lanes";

/// What passed besides the tasks, and in the median; `None` where the recorded run does not show
/// it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Overheads {
    /// What passed before each task; empty where nothing is known.
    before: Vec<Gap>,
    /// On one lane from the end of a task to the start of the next, which was ready already.
    pub dispatch_ns: Option<u64>,
    /// From the end of a task on one lane to the start of one on another lane that waited for it
    /// alone.
    pub sync_ns: Option<u64>,
    /// From the start of the run to that of a lane which waited for nothing but its own waking; the
    /// whole run, where it slept through it.
    pub wake_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gap {
    /// That of a lane's first task belongs to the lane; that of others may be given by another
    /// source else.
    Unknown,
    Dispatch(u64),
    Sync(u64),
}

impl Overheads {
    /// What passes before `task` where it is ready: what did, or else the median.
    pub(crate) fn dispatch_before(&self, task: usize) -> Option<u64> {
        match self.before.get(task) {
            Some(&Gap::Dispatch(ns)) => Some(ns),
            _ => self.dispatch_ns,
        }
    }

    /// What passes before `task` where it waits for another lane: what did, or else the median.
    pub(crate) fn sync_before(&self, task: usize) -> Option<u64> {
        match self.before.get(task) {
            Some(&Gap::Sync(ns)) => Some(ns),
            _ => self.sync_ns,
        }
    }

    /// The same, with given values for all tasks instead of learnt ones.
    pub(crate) fn unless_said(
        mut self,
        dispatch_ns: Option<u64>,
        sync_ns: Option<u64>,
        wake_ns: Option<u64>,
    ) -> Self {
        for gap in &mut self.before {
            let is_said = match gap {
                Gap::Dispatch(_) => dispatch_ns.is_some(),
                Gap::Sync(_) => sync_ns.is_some(),
                Gap::Unknown => false,
            };
            if is_said {
                *gap = Gap::Unknown;
            }
        }
        self.dispatch_ns = dispatch_ns.or(self.dispatch_ns);
        self.sync_ns = sync_ns.or(self.sync_ns);
        self.wake_ns = wake_ns.or(self.wake_ns);
        self
    }

    /// Those of the run that `trace` records. If lanes were to `steal`, one that ran nothing had
    /// not woken.
    pub(crate) fn of(trace: &Trace, steal: bool) -> Self {
        let Some(times) = trace.tasks.iter().map(Time::of).collect::<Option<Vec<Time<'_>>>>()
        else {
            return Self::default();
        };
        // When the last predecessor of each task ended.
        let mut ready_ns = vec![0; times.len()];
        let found = replay_edges(trace, SubmitOptions::default(), |succ, edge| {
            if edge.flags.contains(EdgeFlags::WAIT) {
                let end_ns = times[edge.pred.sequence() as usize].end_ns;
                ready_ns[succ as usize] = end_ns.max(ready_ns[succ as usize]);
            }
        });
        if found.is_err() {
            return Self::default();
        }
        let lanes = by_lane(&times);
        let mut before = vec![Gap::Unknown; times.len()];
        let (mut dispatches, mut syncs) = (Vec::new(), Vec::new());
        for lane in &lanes {
            for pair in lane.windows(2) {
                let (before_ns, start_ns) = (times[pair[0]].end_ns, times[pair[1]].start_ns);
                let ready_ns = ready_ns[pair[1]];
                let gap_ns = start_ns.saturating_sub(before_ns.max(ready_ns));
                let (gap, gaps) = match ready_ns > before_ns {
                    true => (Gap::Sync(gap_ns), &mut syncs),
                    false => (Gap::Dispatch(gap_ns), &mut dispatches),
                };
                before[pair[1]] = gap;
                gaps.push(gap_ns);
            }
        }
        let sync_ns = median(syncs);
        let began_ns = times.iter().map(|time| time.start_ns).min().unwrap_or(0);
        let wakes = lanes.iter().filter_map(|lane| {
            let (start_ns, ready_ns) = (times[lane[0]].start_ns, ready_ns[lane[0]]);
            // Where the first task waited for data, that hides how long its lane took to wake.
            let is_late = start_ns > ready_ns.max(began_ns) + sync_ns.unwrap_or(0);
            is_late.then_some(start_ns - began_ns)
        });
        let run_ns = times.iter().map(|time| time.end_ns).max().unwrap_or(0) - began_ns;
        let idle = if steal { idle_lanes(trace, lanes.len()) } else { 0 };
        let wake_ns = median(wakes.chain(std::iter::repeat_n(run_ns, idle)).collect());
        Self { before, dispatch_ns: median(dispatches), sync_ns, wake_ns }
    }
}

struct Time<'a> {
    lane: Option<&'a TraceLane>,
    start_ns: u64,
    end_ns: u64,
}

impl<'a> Time<'a> {
    fn of(task: &'a TraceTask) -> Option<Self> {
        Some(Self { lane: task.lane.as_ref(), start_ns: task.start_ns?, end_ns: task.end_ns? })
    }
}

/// How many of the lanes that the trace lists ran nothing, if `busy` ran something.
fn idle_lanes(trace: &Trace, busy: usize) -> usize {
    let listed = trace.extra.get(LANES).and_then(Value::as_array).map_or(0, Vec::len);
    listed.saturating_sub(busy)
}

/// The tasks of each lane, by the time at which they started.
fn by_lane(times: &[Time<'_>]) -> Vec<Vec<usize>> {
    let mut lanes: HashMap<Option<&TraceLane>, Vec<usize>> = HashMap::new();
    for (task, time) in times.iter().enumerate() {
        lanes.entry(time.lane).or_default().push(task);
    }
    let mut lanes: Vec<Vec<usize>> = lanes.into_values().collect();
    lanes.iter_mut().for_each(|lane| lane.sort_by_key(|&task| times[task].start_ns));
    lanes
}

fn median(mut values: Vec<u64>) -> Option<u64> {
    let middle = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable(middle).1)
}

#[cfg(test)]
mod tests {
    use syncline_tensor::{Arg, BufferId, Dtype, View};
    use syncline_trace::TraceBuffer;

    use super::*;

    /// Tasks over one buffer each, on lanes, with start and end; all read what task 0 writes.
    fn trace(times: &[(u64, u64, u64)]) -> Trace {
        let whole = View::contiguous(Dtype::F32, &[4]).unwrap();
        let mut trace = Trace::default();
        trace.buffers.push(TraceBuffer::new(BufferId(0), 16));
        for (id, &(lane, start_ns, end_ns)) in times.iter().enumerate() {
            let shared = BufferId(0);
            let arg = if id == 0 { Arg::inout(shared, whole) } else { Arg::input(shared, whole) };
            let mut task = TraceTask::new(id as u64, "t", [arg]);
            (task.start_ns, task.end_ns) = (Some(start_ns), Some(end_ns));
            task.lane = Some(TraceLane::Number(lane));
            trace.tasks.push(task);
        }
        trace
    }

    #[test]
    fn gaps_are_told_apart_by_what_was_waited_for() {
        // Lane 1 runs something before task 0 has ended, then waits for it; lane 0 goes on at once.
        let mut trace = trace(&[(0, 0, 100), (0, 130, 200), (0, 230, 300), (1, 350, 400)]);
        let mut early = TraceTask::new(4, "early", []);
        (early.start_ns, early.end_ns, early.lane) =
            (Some(0), Some(10), Some(TraceLane::Number(1)));
        trace.tasks.push(early);
        let found = Overheads::of(&trace, false);
        assert_eq!((found.dispatch_ns, found.sync_ns), (Some(30), Some(250)));
    }

    #[test]
    fn a_trace_without_times_says_nothing() {
        let mut trace = trace(&[(0, 0, 100), (0, 130, 200)]);
        trace.tasks[1].end_ns = None;
        assert_eq!(Overheads::of(&trace, true), Overheads::default());
    }

    #[test]
    fn lanes_that_begin_late_had_to_wake() {
        let mut trace = trace(&[(0, 0, 100)]);
        for (id, lane, start_ns) in [(1, 1, 40_000), (2, 1, 40_500)] {
            let mut task = TraceTask::new(id, "free", []);
            (task.start_ns, task.end_ns) = (Some(start_ns), Some(start_ns + 400));
            task.lane = Some(TraceLane::Number(lane));
            trace.tasks.push(task);
        }
        assert_eq!(Overheads::of(&trace, true).wake_ns, Some(40_000));
        trace.tasks.iter_mut().for_each(|task| task.lane = Some(TraceLane::Number(0)));
        assert_eq!(Overheads::of(&trace, true).wake_ns, None, "nothing is known of other lanes");
        trace.extra.insert(LANES.to_owned(), serde_json::json!(["0", "1"]));
        assert_eq!(Overheads::of(&trace, true).wake_ns, Some(40_900), "one slept through it");
        assert_eq!(Overheads::of(&trace, false).wake_ns, None, "one had nothing to do");
    }
}
