//! Plans and streams on the workers of one device: no threads of their own, no deadlock, nobody
//! starves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use syncline_device::cpu::{CpuDevice, CpuOptions};
use syncline_device::{Buffer, Device};
use syncline_plan::{
    BufferSpec, CompileOptions, DeviceModel, ExecutionPlan, Machine, TaskGraph, TaskSpec,
};
use syncline_runtime::replay::{Bindings, LoadOptions, LoadedPlan, Steal, TaskBody};
use syncline_runtime::stream::{Stream, StreamError, StreamOptions, Task};
use syncline_tensor::{Arg, BufferId, Dtype, View};

use super::in_time;

fn device(index: u32, workers: usize) -> Arc<dyn Device> {
    CpuDevice::open(CpuOptions::new(index).compute_lanes(1).workers(workers)).unwrap()
}

fn word(at: u64) -> View {
    View::strided(Dtype::U64, at * 8, &[1], &[8]).unwrap()
}

/// Every word of a step is the sum of two of the step before, so that all lanes wait for each
/// other.
fn braid(width: u64, steps: u64) -> TaskGraph {
    let mut graph = TaskGraph::new();
    let ends = graph.add_buffer(BufferSpec::external("words", width * 8)).unwrap();
    let mut from = ends;
    for step in 1..=steps {
        let to: BufferId = match step == steps {
            true => ends,
            false => {
                let name = format!("step {step}");
                graph.add_buffer(BufferSpec::temporary(&name, width * 8)).unwrap()
            }
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

fn expected(words: &[u64], rounds: u64) -> Vec<u64> {
    let mut words = words.to_vec();
    for _ in 0..rounds {
        words = (0..words.len())
            .map(|at| words[at].wrapping_add(words[(at + 1) % words.len()]))
            .collect();
    }
    words
}

fn plan(width: u64, steps: u64, lanes: u16, index: u32) -> Arc<ExecutionPlan> {
    let model = DeviceModel::new(format!("cpu:{index}"), lanes).without_copy_lane();
    let machine = Machine::new(vec![model]).unwrap().with_sync_ns(0);
    let compiled =
        ExecutionPlan::compile(&braid(width, steps), &machine, &CompileOptions::default());
    Arc::new(compiled.unwrap())
}

fn load(
    plan: &Arc<ExecutionPlan>,
    device: &Arc<dyn Device>,
    steal: Steal,
    bodies: &Arc<AtomicU64>,
) -> LoadedPlan {
    let options = LoadOptions::default().with_steal(steal);
    let body = |_: syncline_plan::TaskInfo<'_>, _| {
        let bodies = bodies.clone();
        Some(TaskBody::new(move |args| {
            bodies.fetch_add(1, Ordering::Relaxed);
            let args = args.open();
            let sum = args.slice::<u64>(0)?[0].wrapping_add(args.slice::<u64>(1)?[0]);
            args.slice_mut::<u64>(2)?[0] = sum;
            Ok::<(), syncline_device::DeviceError>(())
        }))
    };
    LoadedPlan::load_with(plan.clone(), std::slice::from_ref(device), body, options).unwrap()
}

fn filled(device: &Arc<dyn Device>, words: &[u64]) -> Buffer {
    let buffer = device.buffer(words.len() as u64 * 8);
    buffer.write(0, words).unwrap();
    buffer
}

const WORDS: [u64; 8] = [1, 10, 100, 1_000, 10_000, 7, 8, 9];

#[test]
fn plans_of_eight_lanes_run_on_any_number_of_workers() {
    for workers in [1, 2, 4] {
        for steal in [Steal::Off, Steal::On] {
            let device = device(0, workers);
            let mut loaded = load(&plan(8, 20, 8, 0), &device, steal, &Arc::default());
            let buffer = filled(&device, &WORDS);
            let bindings = Bindings::new().bind("words", &buffer);
            let mut bound = loaded.bind(&bindings).unwrap();
            for _ in 0..5 {
                bound.run().unwrap();
                let tickets = [bound.start().unwrap(), bound.start().unwrap()];
                tickets.into_iter().for_each(|ticket| ticket.wait().unwrap());
            }
            // Nobody waits for this one: workers alone run it.
            let ticket = bound.start().unwrap();
            let deadline = in_time();
            while !ticket.has_ended() {
                assert!(!deadline.has_passed(), "{workers} workers, {steal:?}");
                std::thread::yield_now();
            }
            drop(bound);
            let result = buffer.read::<u64>(0, 8).unwrap();
            assert_eq!(result, expected(&WORDS, 16 * 20), "{workers} workers, {steal:?}");
        }
    }
}

/// Counted in bodies, not by the clock: while two plans and a stream have work, none of them gets
/// far ahead of another that is held up by nothing but the workers.
#[test]
fn two_plans_and_a_stream_share_one_worker() {
    let device = device(82, 1);
    let counts: [Arc<AtomicU64>; 3] = Default::default();
    let plans = [(); 2].map(|()| plan(8, 50, 8, 82));
    let [mut one, mut other] = [0, 1].map(|at| load(&plans[at], &device, Steal::Off, &counts[at]));
    let stream = Stream::on(&*device, StreamOptions::default()).unwrap();
    let gate = Arc::new(std::sync::Barrier::new(2));
    let (held, opened) = (gate.clone(), gate);
    // The worker is held until everything has work.
    let (sender, begun) = std::sync::mpsc::channel();
    stream
        .submit(Task::new("gate").body(move |_| {
            sender.send(()).unwrap();
            held.wait();
        }))
        .unwrap();
    begun.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
    let buffers = [filled(&device, &WORDS), filled(&device, &WORDS)];
    let bindings = buffers.each_ref().map(|buffer| Bindings::new().bind("words", buffer));
    let (mut one, mut other) = (one.bind(&bindings[0]).unwrap(), other.bind(&bindings[1]).unwrap());
    let total = 400;
    // What the others had done when each of them was half-way.
    let at_half = Arc::new(std::sync::Mutex::new(Vec::new()));
    for number in 0..total {
        let (counts, at_half) = (counts.clone(), at_half.clone());
        let task = Task::new("count").body(move |_| {
            counts[2].fetch_add(1, Ordering::Relaxed);
            if number == total / 2 {
                let done = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
                at_half.lock().unwrap().push(done);
            }
        });
        stream.submit(task).unwrap();
    }
    let tickets = [one.start().unwrap(), other.start().unwrap()];
    opened.wait();
    let deadline = in_time();
    while !tickets.iter().all(|ticket| ticket.has_ended())
        || counts[2].load(Ordering::Relaxed) < total
    {
        assert!(!deadline.has_passed(), "{counts:?}");
        std::thread::yield_now();
    }
    let at_half = at_half.lock().unwrap();
    let done = at_half[0];
    assert!(done[0] > 0 && done[1] > 0, "the stream went ahead of the plans: {done:?}");
    assert!(done[0] < 400 || done[1] < 400, "the plans went ahead of the stream: {done:?}");
    drop((one, other));
    let results = buffers.each_ref().map(|buffer| buffer.read::<u64>(0, 8).unwrap());
    assert_eq!(results, [expected(&WORDS, 50), expected(&WORDS, 50)]);
}

/// A task of a stream runs a plan on the one worker that both have.
#[test]
fn a_task_runs_a_plan_on_its_own_worker() {
    let device = device(83, 1);
    let mut loaded = load(&plan(8, 10, 8, 83), &device, Steal::Off, &Arc::default());
    let buffer = filled(&device, &WORDS);
    let bindings = Bindings::new().bind("words", &buffer);
    let stream = Stream::on(&*device, StreamOptions { help: false, ..Default::default() }).unwrap();
    let task = Task::new("runs a plan").body(move |_| loaded.run(&bindings));
    let task = stream.submit(task).unwrap();
    stream.wait_within(&task, in_time()).unwrap();
    assert_eq!(buffer.read::<u64>(0, 8).unwrap(), expected(&WORDS, 10));
}

/// Two streams call gangs together that need all workers that they share.
#[test]
fn gangs_of_two_streams_do_not_hold_half_of_the_workers_each() {
    let device = device(84, 2);
    let options = StreamOptions { help: false, workers: 2, ..Default::default() };
    let streams = [(); 2].map(|()| Stream::on(&*device, options).unwrap());
    for _ in 0..200 {
        for stream in &streams {
            let barrier = std::sync::Barrier::new(2);
            stream.submit(Task::new("gang").gang(2, move |_| _ = barrier.wait())).unwrap();
        }
    }
    streams.iter().for_each(|stream| stream.wait_all_within(in_time()).unwrap());
    let refused = streams[0].submit(Task::new("gang").gang(3, |_| ()));
    assert!(matches!(refused, Err(StreamError::NeverFits { need: 3, size: 2, .. })), "{refused:?}");
}
