//! Whole plans on lanes whose threads `shuttle` schedules at random: begin, wait, steal, overlap,
//! stop and drop.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test -p syncline-runtime --lib shuttle_`. There is no time in
//! these runs: a wake-up that is lost, or lanes that wait for each other, end as a deadlock that
//! `shuttle` reports with its schedule.

use std::sync::Arc;

use syncline_device::cpu::{CpuDevice, CpuOptions};
use syncline_device::{Buffer, CancelToken, Device};
use syncline_plan::{BufferSpec, CompileOptions, ExecutionPlan, Machine, TaskGraph, TaskSpec};
use syncline_tensor::{Arg, BufferId, Dtype, View};

use syncline_sync::shim::{AtomicU64, Ordering, thread};

use super::{Bindings, LoadOptions, LoadedPlan, RunError, Steal, TaskBody};

/// How many schedules each test tries; `SYNCLINE_SCHEDULES` for more.
fn schedules() -> usize {
    let asked = std::env::var("SYNCLINE_SCHEDULES").ok().and_then(|text| text.parse().ok());
    asked.unwrap_or(300)
}

/// A device with one or two workers, whose threads are scheduled, too.
fn device(workers: usize) -> Arc<dyn Device> {
    CpuDevice::open(CpuOptions::new(0).compute_lanes(1).workers(workers)).unwrap()
}

fn word(at: u64) -> View {
    View::strided(Dtype::U64, at * 8, &[1], &[8]).unwrap()
}

/// Every word of a step is the sum of two of the step before: lanes wait for each other in both
/// directions. The steps in between are temporaries, so that arenas are used again within a run and
/// from run to run.
fn braid(width: u64, steps: u64) -> TaskGraph {
    let mut graph = TaskGraph::new();
    let ends = graph.add_buffer(BufferSpec::external("words", width * 8)).unwrap();
    let mut from = ends;
    for step in 1..=steps {
        let name = format!("step {step}");
        let to: BufferId = match step == steps {
            true => ends,
            false => graph.add_buffer(BufferSpec::temporary(&name, width * 8)).unwrap(),
        };
        for at in 0..width {
            let inputs = [at, (at + 1) % width].map(|at| Arg::input(from, word(at)));
            let args = [inputs[0], inputs[1], Arg::output_existing(to, word(at))];
            graph.submit(&TaskSpec::new("add", &args)).unwrap();
        }
        from = to;
    }
    graph
}

/// What `runs` runs of [`braid`] make of `words`.
fn expected(words: &[u64], steps: u64, runs: u64) -> Vec<u64> {
    let mut words = words.to_vec();
    for _ in 0..steps * runs {
        let next = |at: usize| words[at].wrapping_add(words[(at + 1) % words.len()]);
        words = (0..words.len()).map(next).collect();
    }
    words
}

fn add() -> TaskBody {
    TaskBody::new(|args| {
        let args = args.open();
        let sum = args.slice::<u64>(0)?[0].wrapping_add(args.slice::<u64>(1)?[0]);
        // A pause in the middle of a body, for others to come in between.
        thread::yield_now();
        args.slice_mut::<u64>(2)?[0] = sum;
        Ok::<(), syncline_device::DeviceError>(())
    })
}

fn load(
    device: &Arc<dyn Device>,
    graph: &TaskGraph,
    lanes: u16,
    steal: Steal,
    body: impl Fn() -> TaskBody,
) -> LoadedPlan {
    let machine = Machine::cpu(lanes).with_sync_ns(0);
    let plan = ExecutionPlan::compile(graph, &machine, &CompileOptions::default()).unwrap();
    let options = LoadOptions::default().with_steal(steal);
    let devices = std::slice::from_ref(device);
    LoadedPlan::load_with(Arc::new(plan), devices, |_, _| Some(body()), options).unwrap()
}

fn filled(device: &Arc<dyn Device>, words: &[u64]) -> Buffer {
    let buffer = device.buffer(words.len() as u64 * 8);
    buffer.write(0, words).unwrap();
    buffer
}

const WORDS: [u64; 3] = [1, 10, 100];

fn explore(model: impl Fn() + Send + Sync + 'static) {
    shuttle::check_random(model, schedules());
}

fn runs_one_after_the_other(lanes: u16, workers: usize, steal: Steal) {
    explore(move || {
        let device = device(workers);
        let mut loaded = load(&device, &braid(3, 3), lanes, steal, add);
        let buffer = filled(&device, &WORDS);
        let bindings = Bindings::new().bind("words", &buffer);
        let mut bound = loaded.bind(&bindings).unwrap();
        bound.run().unwrap();
        bound.run().unwrap();
        drop(bound);
        drop(loaded);
        assert_eq!(buffer.read::<u64>(0, 3).unwrap(), expected(&WORDS, 3, 2));
    });
}

#[test]
fn shuttle_lanes_in_order() {
    runs_one_after_the_other(2, 1, Steal::Off);
    runs_one_after_the_other(3, 2, Steal::Off);
}

#[test]
fn shuttle_lanes_that_steal() {
    runs_one_after_the_other(2, 1, Steal::On);
    runs_one_after_the_other(3, 2, Steal::On);
}

fn runs_that_overlap(lanes: u16, workers: usize, steal: Steal) {
    explore(move || {
        let device = device(workers);
        let mut loaded = load(&device, &braid(3, 2), lanes, steal, add);
        let buffer = filled(&device, &WORDS);
        let bindings = Bindings::new().bind("words", &buffer);
        let mut bound = loaded.bind(&bindings).unwrap();
        // More than can be under way at a time, and a plain run among them.
        let tickets: Vec<_> = (0..3).map(|_| bound.start().unwrap()).collect();
        bound.run().unwrap();
        drop(bound.start().unwrap());
        drop(bound.start().unwrap());
        tickets.into_iter().for_each(|ticket| ticket.wait().unwrap());
        drop(bound);
        assert_eq!(buffer.read::<u64>(0, 3).unwrap(), expected(&WORDS, 2, 6));
    });
}

#[test]
fn shuttle_runs_that_overlap_in_order() {
    runs_that_overlap(2, 1, Steal::Off);
}

#[test]
fn shuttle_runs_that_overlap_and_steal() {
    runs_that_overlap(2, 1, Steal::On);
}

/// The caller takes its own lane over from the thread that ran it in the runs before, and gives it
/// back. The thread must have nothing left to say by then.
#[test]
fn shuttle_a_lane_changes_hands_between_runs() {
    let model = || {
        let device = device(1);
        let mut loaded = load(&device, &braid(2, 2), 2, Steal::Off, add);
        let buffer = filled(&device, &WORDS[..2]);
        let bindings = Bindings::new().bind("words", &buffer);
        let mut bound = loaded.bind(&bindings).unwrap();
        for _ in 0..2 {
            bound.start().unwrap().wait().unwrap();
            bound.run().unwrap();
        }
        drop(bound);
        assert_eq!(buffer.read::<u64>(0, 2).unwrap(), expected(&WORDS[..2], 2, 4));
    };
    explore(model);
    shuttle::check_pct(model, schedules(), 3);
}

/// One body fails, once: whoever was started before is done, whoever comes later works.
fn a_run_that_fails(steal: Steal) {
    let workers = 2;
    explore(move || {
        let calls = Arc::new(AtomicU64::new(0));
        let failing = {
            let calls = Arc::clone(&calls);
            move || {
                let calls = Arc::clone(&calls);
                TaskBody::new(move |_| match calls.fetch_add(1, Ordering::SeqCst) {
                    // The second of three runs of six bodies, or nearly.
                    8 => Err("on purpose"),
                    _ => Ok(()),
                })
            }
        };
        let device = device(workers);
        let mut loaded = load(&device, &braid(3, 2), 2, steal, failing);
        let buffer = filled(&device, &WORDS);
        let bindings = Bindings::new().bind("words", &buffer);
        let mut bound = loaded.bind(&bindings).unwrap();
        let tickets: Vec<_> = (0..3).map(|_| bound.start().unwrap()).collect();
        let outcomes: Vec<_> = tickets.into_iter().map(|ticket| ticket.wait()).collect();
        let mut errors = outcomes.iter().filter_map(|outcome| outcome.as_ref().err());
        let first = errors.next().expect("one of them failed");
        assert!(matches!(first, RunError::Failed { .. }), "{outcomes:?}");
        assert!(errors.all(|error| error == first), "{outcomes:?}");
        // The last one may be started only when the failed one has ended, and is as any then: with
        // all of its bodies.
        let fine = outcomes.iter().filter(|outcome| outcome.is_ok()).count() as u64;
        let calls_made = calls.load(Ordering::SeqCst);
        assert!(calls_made > 6 * fine, "{calls_made} calls: {outcomes:?}");
        calls.store(100, Ordering::SeqCst);
        bound.run().unwrap();
        bound.start().unwrap().wait().unwrap();
    });
}

#[test]
fn shuttle_a_failure_stops_its_run_and_those_under_way_after_it() {
    a_run_that_fails(Steal::Off);
    a_run_that_fails(Steal::On);
}

#[test]
fn shuttle_cancels_come_at_any_time() {
    for steal in [Steal::Off, Steal::On] {
        explore(move || {
            let device = device(1);
            let mut loaded = load(&device, &braid(2, 2), 2, steal, add);
            let token = CancelToken::new();
            loaded.set_cancel(&token);
            let buffer = filled(&device, &WORDS[..2]);
            let bindings = Bindings::new().bind("words", &buffer);
            let other = thread::spawn(move || token.cancel());
            let mut bound = loaded.bind(&bindings).unwrap();
            let ticket = bound.start().unwrap();
            let run = bound.run();
            let outcomes = [ticket.wait(), run];
            let fine = |outcome: &Result<(), RunError>| {
                matches!(outcome, Ok(()) | Err(RunError::Cancelled))
            };
            assert!(outcomes.iter().all(fine), "{outcomes:?}");
            other.join().unwrap();
            bound.set_cancel(&CancelToken::new());
            bound.run().unwrap();
        });
    }
}
