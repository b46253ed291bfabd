//! Plans on lanes of devices: failures, cancels, deadlines, rebinding, many runs.
//!
//! The devices are CPU devices, whose kernels can do what no driver's would: fail, panic, and take
//! their time. That results are right is for `random`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use syncline_device::{Buffer, CancelToken, Deadline, DeviceSpec, Kernel, KernelArgs};
use syncline_plan::{
    BufferSpec, CompileOptions, CostModel, DeviceIndex, DeviceModel, ExecutionPlan, Machine, Route,
    TaskGraph, TaskIndex, TaskInfo, TaskSpec,
};
use syncline_runtime::UnifiedExecutor;
use syncline_runtime::executor::machine_of;
use syncline_runtime::replay::{Bindings, LoadError, LoadOptions, LoadedPlan, RunError, TaskBody};
use syncline_tensor::{Arg, Dtype, View};
use syncline_testing::for_seeds;

use super::{compile, devices, words, zeroed};

/// Threads on the first device, lanes of their own on the two others.
fn options() -> LoadOptions {
    LoadOptions::default().on_lanes_of(DeviceSpec::cpu(1)).on_lanes_of(DeviceSpec::cpu(2))
}

fn machine() -> Machine {
    let host = DeviceIndex(0);
    let machine = Machine::new((0..3).map(|at| DeviceModel::new(format!("cpu:{at}"), 1)).collect());
    let mut machine = machine.unwrap().with_piece_bytes(16).unwrap();
    for (source, target) in [(1, 2), (2, 1)].map(|(a, b)| (DeviceIndex(a), DeviceIndex(b))) {
        machine = machine.with_route(source, host, Route::Push).unwrap();
        machine = machine.with_route(source, target, Route::Through(host)).unwrap();
    }
    machine
}

/// A word that goes round over three devices, `rounds` times, and is one more after each task.
fn ring(rounds: u64) -> TaskGraph {
    let mut graph = TaskGraph::new();
    let word = graph.add_buffer(BufferSpec::external("words", 8)).unwrap();
    let view = View::contiguous(Dtype::U64, &[1]).unwrap();
    for at in 0..rounds * 3 {
        let device = format!("cpu:{}", at % 3);
        graph.submit(&TaskSpec::new("word", &[Arg::inout(word, view)]).on(&device)).unwrap();
    }
    graph
}

fn add_one(args: &mut KernelArgs<'_>) -> Result<(), syncline_device::DeviceError> {
    args.slice_mut::<u64>(0).map(|words| words[0] += 1)
}

fn increment() -> TaskBody {
    TaskBody::kernel(&Kernel::cpu("word", add_one), [])
}

fn load(plan: &Arc<ExecutionPlan>, mut body: impl FnMut(TaskInfo<'_>) -> TaskBody) -> LoadedPlan {
    LoadedPlan::load_with(Arc::clone(plan), devices(), |task, _| Some(body(task)), options())
        .unwrap()
}

fn word_of(buffer: &Buffer) -> u64 {
    buffer.read::<u64>(0, 1).unwrap()[0]
}

#[test]
fn a_word_goes_round_over_threads_and_device_lanes() {
    let plan = compile(&ring(5), &machine());
    let mut loaded = load(&plan, |_| increment());
    let (one, other) = (zeroed(8), zeroed(8));
    for _ in 0..3 {
        loaded.run(&Bindings::new().bind("words", &one)).unwrap();
        loaded.run(&Bindings::new().bind("words", &other)).unwrap();
    }
    assert_eq!((word_of(&one), word_of(&other)), (45, 45));
}

#[test]
fn a_thousand_runs_take_the_memory_of_one() {
    let plan = compile(&ring(2), &machine());
    let mut loaded = load(&plan, |_| increment());
    let buffer = zeroed(8);
    let bindings = Bindings::new().bind("words", &buffer);
    let mut bound = loaded.bind(&bindings).unwrap();
    bound.run().unwrap();
    let before: Vec<_> = devices().iter().map(|device| device.memory_use()).collect();
    for _ in 1..1000 {
        bound.run().unwrap();
    }
    for (device, before) in devices().iter().zip(before) {
        let allocations = device.memory_use().allocations;
        // Other tests of this process may use the devices too, so that only growth without bound
        // can be told.
        assert!(allocations < before.allocations + 500, "{allocations} after {before:?}");
    }
    drop(bound);
    assert_eq!(word_of(&buffer), 6000);
}

#[test]
fn a_failure_on_any_lane_is_named_and_the_next_run_works() {
    for_seeds("a_failure_on_any_lane_is_named_and_the_next_run_works", 60, |rng| {
        let rounds = rng.range(1..5);
        let culprit = TaskIndex(rng.range(0..rounds * 3) as u32);
        let panics = rng.one_in(2);
        let is_armed = Arc::new(AtomicBool::new(true));
        let plan = compile(&ring(rounds), &machine());
        let mut loaded = load(&plan, |task| {
            if task.index() != culprit {
                return increment();
            }
            let is_armed = Arc::clone(&is_armed);
            let kernel = Kernel::cpu("word", move |args: &mut KernelArgs<'_>| {
                if is_armed.load(Ordering::SeqCst) {
                    match panics {
                        true => std::panic::resume_unwind(Box::new("on purpose")),
                        false => return Err("on purpose".to_owned()),
                    }
                }
                add_one(args).map_err(|error| error.to_string())
            });
            TaskBody::kernel(&kernel, [])
        });
        let buffer = zeroed(8);
        let bindings = Bindings::new().bind("words", &buffer);
        for _ in 0..2 {
            is_armed.store(true, Ordering::SeqCst);
            let (task, index, cause) = match loaded.run(&bindings).unwrap_err() {
                RunError::Failed { task, index, cause } if !panics => (task, index, cause),
                RunError::Panicked { task, index, cause } if panics => (task, index, cause),
                other => panic!("{other}"),
            };
            assert_eq!((&*task, index, &*cause), ("word", culprit, "on purpose"));
            buffer.write(0, &[0u64]).unwrap();
            is_armed.store(false, Ordering::SeqCst);
            loaded.run(&bindings).unwrap();
            assert_eq!(word_of(&buffer), rounds * 3);
            buffer.write(0, &[0u64]).unwrap();
        }
    });
}

/// Of several tasks in one batch the one that failed is named, and nothing behind it runs, on
/// whatever lane.
#[test]
fn nothing_behind_a_failure_runs() {
    let mut graph = TaskGraph::new();
    let word = graph.add_buffer(BufferSpec::external("words", 8)).unwrap();
    let view = View::contiguous(Dtype::U64, &[1]).unwrap();
    for at in 0..60 {
        let device = format!("cpu:{}", at / 20);
        let name = format!("task {at}");
        let args = [Arg::inout(word, view)];
        graph.submit(&TaskSpec::new(&name, &args).on(&device)).unwrap();
    }
    let plan = compile(&graph, &machine());
    let behind = Arc::new(AtomicU64::new(0));
    let mut loaded = load(&plan, |task| {
        let (at, behind) = (task.index().0, Arc::clone(&behind));
        let kernel = Kernel::cpu("word", move |_: &mut KernelArgs<'_>| {
            behind.fetch_add(u64::from(at > 30), Ordering::SeqCst);
            if at == 30 { Err("stop here") } else { Ok(()) }
        });
        TaskBody::kernel(&kernel, [])
    });
    let error = loaded.run(&Bindings::new().bind("words", &zeroed(8))).unwrap_err();
    assert_eq!(
        error,
        RunError::Failed {
            task: "task 30".into(),
            index: TaskIndex(30),
            cause: "stop here".into()
        }
    );
    assert_eq!(behind.load(Ordering::SeqCst), 0);
}

fn slow(is_slow: &Arc<AtomicBool>) -> TaskBody {
    let is_slow = Arc::clone(is_slow);
    let kernel = Kernel::cpu("word", move |_: &mut KernelArgs<'_>| {
        if is_slow.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    TaskBody::kernel(&kernel, [])
}

#[test]
fn a_cancel_stops_the_run_and_leaves_the_plan_usable() {
    let plan = compile(&ring(100), &machine());
    let token = CancelToken::new();
    let mut loaded = load(&plan, |task| {
        let (at, token) = (task.index().0, token.clone());
        let kernel = Kernel::cpu("word", move |_: &mut KernelArgs<'_>| {
            if at == 20 {
                token.cancel();
            }
        });
        TaskBody::kernel(&kernel, [])
    });
    loaded.set_cancel(&token);
    let buffer = zeroed(8);
    let bindings = Bindings::new().bind("words", &buffer);
    assert_eq!(loaded.run(&bindings), Err(RunError::Cancelled));
    loaded.set_cancel(&CancelToken::new());
    loaded.run(&bindings).unwrap();
}

/// What was queued on a device before the deadline does not begin after it either.
#[test]
fn no_batch_begins_after_the_deadline() {
    let deadline = Deadline::after(Duration::from_millis(30));
    let begun = Arc::new(AtomicU64::new(0));
    let plan = compile(&words(1, 20), &Machine::cpu(1));
    let options = LoadOptions::default().split().on_lanes_of(DeviceSpec::cpu(0));
    let body = || {
        let begun = Arc::clone(&begun);
        let kernel = Kernel::cpu("word", move |_: &mut KernelArgs<'_>| {
            begun.fetch_add(1, Ordering::SeqCst);
            while !deadline.has_passed() {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        TaskBody::kernel(&kernel, [])
    };
    let mut loaded = LoadedPlan::load_with(plan, devices(), |_, _| Some(body()), options).unwrap();
    let bindings = Bindings::new().bind("words", &zeroed(8));
    assert_eq!(loaded.run_until(&bindings, deadline), Err(RunError::DeadlinePassed));
    assert!(begun.swap(0, Ordering::SeqCst) <= 1);
    loaded.run(&bindings).unwrap();
    assert_eq!(begun.load(Ordering::SeqCst), 20);
}

#[test]
fn a_deadline_stops_the_run() {
    let plan = compile(&ring(200), &machine());
    let is_slow = Arc::new(AtomicBool::new(true));
    let mut loaded = load(&plan, |_| slow(&is_slow));
    let buffer = zeroed(8);
    let bindings = Bindings::new().bind("words", &buffer);
    let deadline = Deadline::after(Duration::from_millis(20));
    assert_eq!(loaded.run_until(&bindings, deadline), Err(RunError::DeadlinePassed));
    let passed = Deadline::at(Instant::now());
    assert_eq!(loaded.run_until(&bindings, passed), Err(RunError::DeadlinePassed));
    is_slow.store(false, Ordering::SeqCst);
    loaded.run(&bindings).unwrap();
}

/// A plan that fails takes no other work of the device along.
#[test]
fn a_failed_run_leaves_other_work_of_the_device_alone() {
    let plan = compile(&ring(1), &machine());
    let fail = Kernel::cpu("word", |_: &mut KernelArgs<'_>| Err::<(), _>("on purpose"));
    let mut loaded = load(&plan, |_| TaskBody::kernel(&fail, []));
    let mut executor = UnifiedExecutor::new();
    let device = executor.add_device(devices()[1].clone()).unwrap();
    loaded.run(&Bindings::new().bind("words", &zeroed(8))).unwrap_err();
    let buffer = devices()[1].buffer(8);
    buffer.write(0, &[0u64]).unwrap();
    let arg = syncline_device::KernelArg::inout(buffer.tensor(Dtype::U64, &[1]).unwrap());
    let kernel = Kernel::cpu("word", add_one);
    executor.execute_kernel(device, &kernel, vec![arg], vec![]).unwrap();
    assert_eq!(word_of(&buffer), 1);
}

/// While a plan is bound, neither the host nor other work gets at its buffers, though no thread
/// maps them.
#[test]
fn while_bound_the_buffers_are_the_plans_alone() {
    let mut graph = TaskGraph::new();
    let word = graph.add_buffer(BufferSpec::external("words", 8).on("cpu:1")).unwrap();
    let view = View::contiguous(Dtype::U64, &[1]).unwrap();
    graph.submit(&TaskSpec::new("word", &[Arg::inout(word, view)]).on("cpu:1")).unwrap();
    let mut loaded = load(&compile(&graph, &machine()), |_| increment());
    let buffer = devices()[1].buffer(8);
    buffer.write(0, &[0u64]).unwrap();
    let bindings = Bindings::new().bind("words", &buffer);
    let mut bound = loaded.bind(&bindings).unwrap();
    bound.run().unwrap();
    let soon = || Deadline::after(Duration::from_millis(1));
    assert!(buffer.map(soon()).is_err() && buffer.claim(true, soon()).is_err());
    let lane = devices()[1].lane(syncline_device::LaneKind::Compute);
    let arg = syncline_device::KernelArg::inout(buffer.tensor(Dtype::U64, &[1]).unwrap());
    let command =
        syncline_device::Command::dispatch(&Kernel::cpu("word", add_one), vec![arg], vec![]);
    let refused = lane.submit(command.into()).unwrap_err();
    assert!(matches!(refused, syncline_device::DeviceError::Mapped { .. }), "{refused}");
    bound.run().unwrap();
    drop(bound);
    assert_eq!(word_of(&buffer), 2);
}

#[test]
fn what_cannot_run_on_a_device_is_refused_when_it_is_loaded() {
    let plan = compile(&ring(1), &machine());
    let closure = |_: TaskInfo<'_>, _| Some(TaskBody::new(|_| ()));
    let error = LoadedPlan::load_with(plan.clone(), devices(), closure, options()).unwrap_err();
    assert!(matches!(error, LoadError::NotAKernel { .. }), "{error}");
    let nothing = Kernel::builder("word").build();
    let kernel = |_: TaskInfo<'_>, _| Some(TaskBody::kernel(&nothing, []));
    let error = LoadedPlan::load_with(plan.clone(), devices(), kernel, options()).unwrap_err();
    assert!(matches!(error, LoadError::NoKernel { .. }), "{error}");
    assert!(error.to_string().contains("no implementation for cpu"), "{error}");
    let error = LoadedPlan::load(plan, devices(), kernel).unwrap_err();
    assert!(matches!(error, LoadError::NoKernel { .. }), "{error}");
}

#[test]
fn timed_runs_say_when_every_op_ran() {
    let plan = compile(&ring(3), &machine());
    for options in [options(), options().split()] {
        let kernel = |_: TaskInfo<'_>, _| Some(increment());
        let mut loaded = LoadedPlan::load_with(plan.clone(), devices(), kernel, options).unwrap();
        let buffer = zeroed(8);
        let bindings = Bindings::new().bind("words", &buffer);
        loaded.bind(&bindings).unwrap().run_timed().unwrap();
        let times = loaded.times();
        assert_eq!(times.len(), plan.ops().len());
        for (at, time) in times.iter().enumerate() {
            assert!(time.end_ns > 0 && time.end_ns >= time.start_ns, "op {at}: {time:?}");
        }
        // Tasks depend on each other in a row: each begins when the one before has ended.
        let of = |task: usize| times[plan.op_of(TaskIndex(task as u32)).index()];
        for task in 1..9 {
            assert!(of(task).start_ns >= of(task - 1).end_ns, "{task}: {times:?}");
        }
        let mut costs = CostModel::default();
        loaded.observe(&mut costs);
        assert!(costs.estimate("word", "cpu:1", 8).is_some());
    }
}

#[test]
fn a_machine_is_what_its_devices_are() {
    let machine = machine_of(devices(), &[DeviceSpec::cpu(2)]).unwrap();
    let names: Vec<&str> = machine.devices().iter().map(|device| &*device.name).collect();
    assert_eq!(names, ["cpu:0", "cpu:1", "cpu:2"]);
    let runs: Vec<bool> = machine.devices().iter().map(|device| device.runs_tasks).collect();
    assert_eq!(runs, [true, true, false]);
    let plan = ExecutionPlan::compile(&words(4, 4), &machine, &CompileOptions::default()).unwrap();
    assert!(plan.tasks().all(|task| plan.device_of(task.index()) != DeviceIndex(2)));
}
