//! What a recorded run spent between tasks: learnt from its times, so that a simulation does not leave it out.

use std::collections::HashMap;

use syncline_deps::trace::{Lane, Trace, TraceTask};
use syncline_deps::{EdgeFlags, SubmitOptions, replay_edges};

/// The usual time between the end of one task and the start of the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overheads {
    /// On one lane, when the next task was ready already; zero where no run is recorded.
    pub dispatch_ns: u64,
    /// From the end of a task on one lane to the start of one on another lane that waited for it alone; `None` where
    /// the run has no such pair.
    pub sync_ns: Option<u64>,
}

impl Overheads {
    /// The medians of the run that `trace` records.
    pub fn of(trace: &Trace) -> Self {
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
        let (mut dispatches, mut syncs) = (Vec::new(), Vec::new());
        for lane in by_lane(&times) {
            for pair in lane.windows(2) {
                let (before_ns, start_ns) = (times[pair[0]].end_ns, times[pair[1]].start_ns);
                let ready_ns = ready_ns[pair[1]];
                let gaps = if ready_ns > before_ns { &mut syncs } else { &mut dispatches };
                gaps.push(start_ns.saturating_sub(before_ns.max(ready_ns)));
            }
        }
        Self { dispatch_ns: median(dispatches).unwrap_or(0), sync_ns: median(syncs) }
    }
}

struct Time<'a> {
    lane: Option<&'a Lane>,
    start_ns: u64,
    end_ns: u64,
}

impl<'a> Time<'a> {
    fn of(task: &'a TraceTask) -> Option<Self> {
        Some(Self { lane: task.lane.as_ref(), start_ns: task.start_ns?, end_ns: task.end_ns? })
    }
}

/// The tasks of each lane, by the time at which they started.
fn by_lane(times: &[Time<'_>]) -> Vec<Vec<usize>> {
    let mut lanes: HashMap<Option<&Lane>, Vec<usize>> = HashMap::new();
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
    use syncline_deps::trace::TraceBuffer;
    use syncline_deps::{Arg, BufferId, Dtype, View};

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
            task.lane = Some(Lane::Number(lane));
            trace.tasks.push(task);
        }
        trace
    }

    #[test]
    fn gaps_are_told_apart_by_what_was_waited_for() {
        // Lane 1 runs something before task 0 has ended, then waits for it; lane 0 goes on at once.
        let mut trace = trace(&[(0, 0, 100), (0, 130, 200), (0, 230, 300), (1, 350, 400)]);
        let mut early = TraceTask::new(4, "early", []);
        (early.start_ns, early.end_ns, early.lane) = (Some(0), Some(10), Some(Lane::Number(1)));
        trace.tasks.push(early);
        let found = Overheads::of(&trace);
        assert_eq!(found, Overheads { dispatch_ns: 30, sync_ns: Some(250) });
    }

    #[test]
    fn a_trace_without_times_says_nothing() {
        let mut trace = trace(&[(0, 0, 100), (0, 130, 200)]);
        trace.tasks[1].end_ns = None;
        assert_eq!(Overheads::of(&trace), Overheads::default());
    }
}
