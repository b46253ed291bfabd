//! Idle lanes take ready ops of busy ones.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use syncline_plan::{BufferSpec, LaneIndex, Machine, TaskGraph, TaskSpec};
use syncline_runtime::replay::{Bindings, LoadOptions, LoadedPlan, Steal, TaskBody};
use syncline_tensor::{Arg, Dtype, View};

use super::{compile, devices, zeroed};

/// A place where two threads meet; who waits for too long is told so.
#[derive(Default)]
struct Meeting {
    /// Threads that wait (zero or one), and pairs that have met.
    state: Mutex<(u32, u64)>,
    changed: Condvar,
}

impl Meeting {
    fn meet(&self) -> Result<(), String> {
        let mut state = self.state.lock().unwrap();
        if state.0 == 1 {
            *state = (0, state.1 + 1);
            self.changed.notify_all();
            return Ok(());
        }
        state.0 = 1;
        let (pairs, until) = (state.1, Instant::now() + Duration::from_secs(60));
        while state.1 == pairs {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err("nobody came".to_owned());
            }
            state = self.changed.wait_timeout(state, left).unwrap().0;
        }
        Ok(())
    }
}

/// `count` independent tasks that are all planned on the first lane: their costs are declared far
/// too low, that of one task for the second lane far too high.
fn unbalanced(count: u64) -> TaskGraph {
    let mut graph = TaskGraph::new();
    let buffer = graph.add_buffer(BufferSpec::external("words", (count + 1) * 8)).unwrap();
    let word = |at: u64| View::strided(Dtype::U64, at * 8, &[1], &[8]).unwrap();
    let light = [Arg::inout(buffer, word(count))];
    graph.submit(&TaskSpec::new("light", &light).cost_ns(1_000_000_000)).unwrap();
    for at in 0..count {
        let heavy = [Arg::inout(buffer, word(at))];
        graph.submit(&TaskSpec::new("heavy", &heavy).cost_ns(1_000)).unwrap();
    }
    graph
}

fn load(graph: &TaskGraph, steal: Steal, body: impl Fn(&str) -> TaskBody) -> LoadedPlan {
    let plan = compile(graph, &Machine::cpu(2));
    let options = LoadOptions::default().with_steal(steal);
    LoadedPlan::load_with(plan, devices(), |task, _| Some(body(task.kernel())), options).unwrap()
}

#[test]
fn two_lanes_share_what_was_planned_for_one() {
    const COUNT: u64 = 16;
    let graph = unbalanced(COUNT);
    let plan = compile(&graph, &Machine::cpu(2));
    let heavy_lane = plan.position_of(plan.op_of(syncline_plan::TaskIndex(1))).0;
    assert_eq!(plan.lane_ops(heavy_lane).len() as u64, COUNT, "the plan is as bad as it should be");
    // Declared costs are long on average, so that `Auto` steals as well.
    for steal in [Steal::On, Steal::Auto] {
        let meeting = Arc::new(Meeting::default());
        let ran: Arc<Mutex<HashMap<ThreadId, u64>>> = Arc::default();
        let mut loaded = load(&graph, steal, |kernel| {
            if kernel == "light" {
                return TaskBody::new(|_| ());
            }
            let (meeting, ran) = (Arc::clone(&meeting), Arc::clone(&ran));
            // A body ends only when the other lane runs one, too.
            TaskBody::new(move |_| {
                *ran.lock().unwrap().entry(std::thread::current().id()).or_default() += 1;
                meeting.meet()
            })
        });
        let buffer = zeroed((COUNT + 1) * 8);
        let bindings = Bindings::new().bind("words", &buffer);
        let mut bound = loaded.bind(&bindings).unwrap();
        bound.run_timed().unwrap();
        drop(bound);
        let mut counts: Vec<u64> = ran.lock().unwrap().values().copied().collect();
        counts.sort_unstable();
        assert_eq!(counts, [COUNT / 2; 2], "each lane ran half of them");
        let elsewhere = loaded.ran_on();
        let moved = elsewhere.iter().filter(|&&lane| lane != heavy_lane).count() as u64;
        assert!((COUNT / 2..=COUNT / 2 + 1).contains(&moved), "{elsewhere:?}");
    }
}

#[test]
fn a_lane_without_any_op_helps_too() {
    let mut graph = TaskGraph::new();
    let buffer = graph.add_buffer(BufferSpec::external("words", 64)).unwrap();
    for at in 0..4 {
        let view = View::strided(Dtype::U64, at * 8, &[1], &[8]).unwrap();
        graph.submit(&TaskSpec::new("heavy", &[Arg::inout(buffer, view)]).cost_ns(1)).unwrap();
    }
    // Waits are said to cost so much that one lane gets everything.
    let plan = compile(&graph, &Machine::cpu(2).with_sync_ns(1_000_000));
    let counts = [0, 1].map(|lane| plan.lane_ops(LaneIndex(lane)).len());
    assert!(counts.contains(&0) || counts == [2, 2], "{counts:?}");
    let meeting = Arc::new(Meeting::default());
    let options = LoadOptions::default().with_steal(Steal::On);
    let body = || {
        let meeting = Arc::clone(&meeting);
        TaskBody::new(move |_| meeting.meet())
    };
    let mut loaded = LoadedPlan::load_with(plan, devices(), |_, _| Some(body()), options).unwrap();
    let buffer = zeroed(64);
    for _ in 0..3 {
        loaded.run(&Bindings::new().bind("words", &buffer)).unwrap();
    }
}

#[test]
fn without_stealing_every_op_stays_on_its_lane() {
    let graph = unbalanced(6);
    let mut loaded = load(&graph, Steal::Off, |_| TaskBody::new(|_| ()));
    let planned: Vec<LaneIndex> = {
        let plan = loaded.plan();
        (0..plan.ops().len() as u32)
            .map(|op| plan.position_of(syncline_plan::OpIndex(op)).0)
            .collect()
    };
    let buffer = zeroed(56);
    let bindings = Bindings::new().bind("words", &buffer);
    let mut bound = loaded.bind(&bindings).unwrap();
    bound.run_timed().unwrap();
    drop(bound);
    assert_eq!(loaded.ran_on(), planned);
}

/// Bodies were declared to be long, and are not: lanes steal, in runs that were started and in runs
/// that were waited for alike.
#[test]
fn runs_of_both_kinds_follow_each_other_where_lanes_steal() {
    let mut graph = TaskGraph::new();
    let buffer = graph.add_buffer(BufferSpec::external("words", 64)).unwrap();
    for _ in 0..3 {
        for at in 0..8 {
            let view = View::strided(Dtype::U64, at * 8, &[1], &[8]).unwrap();
            let args = [Arg::inout(buffer, view)];
            graph.submit(&TaskSpec::new("word", &args).cost_ns(1_000_000)).unwrap();
        }
    }
    for starts_early in [false, true] {
        let mut loaded = load(&graph, Steal::Auto, |_| super::increment());
        let buffer = zeroed(64);
        let bindings = Bindings::new().bind("words", &buffer);
        let mut bound = loaded.bind(&bindings).unwrap();
        let mut runs = 0;
        if starts_early {
            drop([bound.start().unwrap(), bound.start().unwrap()]);
            runs += 2;
        }
        for _ in 0..5 {
            bound.run().unwrap();
            let tickets = [bound.start().unwrap(), bound.start().unwrap()];
            tickets.into_iter().for_each(|ticket| ticket.wait().unwrap());
            runs += 3;
        }
        drop(bound);
        assert_eq!(buffer.read::<u64>(0, 8).unwrap(), [3 * runs; 8]);
    }
}

/// A plan that is dropped right after its run tells its threads to end, and they must not take that
/// for another run.
#[test]
fn no_body_runs_after_the_last_run() {
    let count = 4;
    let mut graph = TaskGraph::new();
    let buffer = graph.add_buffer(BufferSpec::external("words", 8)).unwrap();
    for _ in 0..count {
        let word = [Arg::inout(buffer, View::contiguous(Dtype::U64, &[1]).unwrap())];
        graph.submit(&TaskSpec::new("step", &word).cost_ns(100_000)).unwrap();
    }
    for round in 0..100 {
        let calls = Arc::new(AtomicU64::new(0));
        let mut loaded = load(&graph, Steal::On, |_| {
            let calls = Arc::clone(&calls);
            // Long enough for the lane that has nothing to do to fall asleep.
            TaskBody::new(move |_| {
                std::thread::sleep(Duration::from_micros(100));
                calls.fetch_add(1, Ordering::Relaxed);
            })
        });
        let words = zeroed(8);
        loaded.run(&Bindings::new().bind("words", &words)).unwrap();
        drop(loaded);
        assert_eq!(calls.load(Ordering::Relaxed), count, "round {round}");
    }
}
