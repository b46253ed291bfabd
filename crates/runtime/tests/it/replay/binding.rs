//! What may be bound to a plan, and what is refused.

use syncline_device::{DeviceError, DeviceSpec};
use syncline_plan::{BufferSpec, CostModel, Machine, TaskGraph, TaskSpec};
use syncline_runtime::UnifiedExecutor;
use syncline_runtime::replay::{
    BindError, Bindings, BoundPlan, LoadError, LoadedPlan, RunError, RunTicket, TaskBody,
};
use syncline_tensor::{Arg, View};

use super::{compile, devices, increment, load, words, zeroed};

#[test]
fn buffers_can_change_from_run_to_run() {
    let plan = compile(&words(8, 3), &Machine::cpu(2));
    let mut loaded = load(&plan, |_| increment());
    let (first, second) = (zeroed(64), zeroed(128));
    for _ in 0..3 {
        loaded.run(&Bindings::new().bind("words", &first)).unwrap();
    }
    loaded.run(&Bindings::new().bind("words", &second)).unwrap();
    assert_eq!(first.read::<u64>(0, 8).unwrap(), [9; 8]);
    assert_eq!(second.read::<u64>(0, 16).unwrap()[..9], [3, 3, 3, 3, 3, 3, 3, 3, 0]);
}

#[test]
fn what_does_not_fit_is_refused_before_anything_runs() {
    let plan = compile(&words(8, 3), &Machine::cpu(2));
    let mut loaded = load(&plan, |_| increment());
    let mut refused = |bindings: Bindings| match loaded.run(&bindings) {
        Err(RunError::Bind(error)) => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(Bindings::new()), BindError::Unbound { buffer: "words".into() });
    let small = zeroed(63);
    assert_eq!(
        refused(Bindings::new().bind("words", &small)),
        BindError::WrongSize { buffer: "words".into(), needed: 64, given: 63 }
    );
    let elsewhere = devices()[1].buffer(64);
    assert_eq!(
        refused(Bindings::new().bind("words", &elsewhere)),
        BindError::WrongDevice {
            buffer: "words".into(),
            needed: DeviceSpec::cpu(0),
            given: DeviceSpec::cpu(1)
        }
    );
    let unknown = Bindings::new().bind("words", &zeroed(64)).bind("verbs", &zeroed(64));
    assert_eq!(refused(unknown), BindError::NoSuchBuffer { buffer: "verbs".into() });
    assert_eq!(small.read::<u8>(0, 63).unwrap(), [0; 63]);
}

#[test]
fn an_alias_that_the_plan_did_not_know_is_refused() {
    let mut graph = TaskGraph::new();
    let all = View::bytes_at(0, 64).unwrap();
    let [a, b, c] =
        ["a", "b", "c"].map(|name| graph.add_buffer(BufferSpec::external(name, 64)).unwrap());
    let args = [Arg::input(a, all), Arg::input(b, all), Arg::output_existing(c, all)];
    graph.submit(&TaskSpec::new("k", &args)).unwrap();
    let plan = compile(&graph, &Machine::cpu(1));
    let mut loaded = load(&plan, |_| TaskBody::new(|_| ()));
    let (one, other) = (zeroed(64), zeroed(64));
    let bind = |c| Bindings::new().bind("a", &one).bind("b", &one).bind("c", c);
    loaded.run(&bind(&other)).unwrap();
    let error = loaded.run(&bind(&one)).unwrap_err();
    assert!(matches!(error, RunError::Bind(BindError::Aliased { .. })), "{error}");
}

#[test]
fn a_bind_that_is_refused_half_way_does_not_spoil_the_next() {
    let mut graph = TaskGraph::new();
    let view = View::contiguous(syncline_tensor::Dtype::U64, &[1]).unwrap();
    for name in ["a", "b"] {
        let buffer = graph.add_buffer(BufferSpec::external(name, 8)).unwrap();
        graph.submit(&TaskSpec::new("word", &[Arg::inout(buffer, view)])).unwrap();
    }
    let mut loaded = load(&compile(&graph, &Machine::cpu(1)), |_| increment());
    let [a, b, other] = [0; 3].map(|_| zeroed(8));
    // Buffers are claimed by age: `other` is claimed before the one that has no memory is refused.
    let late = devices()[0].buffer(u64::MAX);
    let bind = |a, b| Bindings::new().bind("a", a).bind("b", b);
    loaded.run(&bind(&a, &b)).unwrap();
    let error = loaded.run(&bind(&other, &late)).unwrap_err();
    assert!(matches!(error, RunError::Bind(BindError::Device { .. })), "{error}");
    loaded.run(&bind(&other, &b)).unwrap();
    let words = [&a, &b, &other].map(|buffer| buffer.read::<u64>(0, 1).unwrap()[0]);
    assert_eq!(words, [1, 2, 1]);
}

#[test]
fn while_bound_the_host_keeps_off_and_afterwards_it_sees_the_results() {
    let plan = compile(&words(4, 1), &Machine::cpu(2));
    let mut loaded = load(&plan, |_| increment());
    let buffer = zeroed(32);
    let bindings = Bindings::new().bind("words", &buffer);
    let mut bound = loaded.bind(&bindings).unwrap();
    bound.run().unwrap();
    let soon = syncline_device::Deadline::after(std::time::Duration::from_millis(1));
    assert!(buffer.map(soon).is_err(), "the plan may run again at any moment");
    bound.run_timed().unwrap();
    let mut costs = CostModel::default();
    bound.observe(&mut costs);
    drop(bound);
    assert!(costs.estimate("word", "cpu", 8).is_some());
    assert!(loaded.times().iter().all(|time| time.end_ns >= time.start_ns && time.end_ns > 0));
    assert_eq!(buffer.read::<u64>(0, 4).unwrap(), [2; 4]);
}

#[test]
fn a_plan_without_a_body_or_a_device_is_not_loaded() {
    let plan = compile(&words(2, 1), &Machine::cpu(1));
    let error = LoadedPlan::load(plan.clone(), devices(), |_, _| None).unwrap_err();
    assert!(matches!(error, LoadError::NoBody { .. }) && error.to_string().contains("word"));
    let error = LoadedPlan::load(plan, &devices()[1..], |_, _| Some(increment())).unwrap_err();
    assert_eq!(error, LoadError::MissingDevice { device: DeviceSpec::cpu(0) });
}

#[test]
fn a_plan_that_could_race_is_not_loaded() {
    let plan = compile(&words(4, 8), &Machine::cpu(1));
    assert!(plan.waits().is_empty());
    let mut graph = TaskGraph::new();
    let a = graph.add_buffer(BufferSpec::external("a", 8)).unwrap();
    let all = View::bytes_at(0, 8).unwrap();
    graph.enter_scope(syncline_deps::ScopeKind::Manual);
    for _ in 0..2 {
        graph.submit(&TaskSpec::new("k", &[Arg::inout(a, all)])).unwrap();
    }
    graph.leave_scope().unwrap();
    let racy = compile(&graph, &Machine::cpu(2));
    let error = LoadedPlan::load(racy, devices(), |_, _| Some(increment())).unwrap_err();
    assert!(matches!(error, LoadError::Unsafe(_)), "{error}");
}

#[test]
fn an_executor_runs_plans_on_its_devices() {
    let mut executor = UnifiedExecutor::new();
    executor.add_device(devices()[0].clone()).unwrap();
    let plan = compile(&words(4, 2), &Machine::cpu(2));
    let mut loaded = executor.load_plan(plan, |_, _| Some(increment())).unwrap();
    let buffer = zeroed(32);
    executor.run(&mut loaded, &Bindings::new().bind("words", &buffer)).unwrap();
    assert_eq!(buffer.read::<u64>(0, 4).unwrap(), [2; 4]);
}

#[test]
fn a_deadline_counts_while_buffers_are_bound() {
    let plan = compile(&words(2, 1), &Machine::cpu(1));
    let mut loaded = load(&plan, |_| increment());
    let buffer = zeroed(16);
    let bindings = Bindings::new().bind("words", &buffer);
    let soon = || syncline_device::Deadline::after(std::time::Duration::from_millis(10));
    std::thread::scope(|scope| {
        // Another thread has the buffer, and keeps it until the run has given up.
        let (mapped, is_mapped) = std::sync::mpsc::channel();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let holder = &buffer;
        scope.spawn(move || {
            let map = holder.map_mut(syncline_device::Deadline::NEVER).unwrap();
            mapped.send(()).unwrap();
            let _ = released.recv();
            drop(map);
        });
        is_mapped.recv().unwrap();
        assert_eq!(loaded.run_until(&bindings, soon()), Err(RunError::DeadlinePassed));
        drop(release);
    });
    loaded.run(&bindings).unwrap();
    // A map of the calling thread's own will never be dropped while it waits.
    let map = buffer.map(soon()).unwrap();
    let error = loaded.run(&bindings).unwrap_err();
    assert!(error.to_string().contains("drop the map"), "{error}");
    drop(map);
    assert_eq!(buffer.read::<u64>(0, 2).unwrap(), [1; 2]);
}

// The thread that bound the buffers is known as their holder. On another thread, a bound plan would
// wait for itself.
syncline_testing::assert_not_impl!(BoundPlan<'static>, Send);

const _: fn() = || {
    fn is_send<T: Send>() {}
    is_send::<LoadedPlan>();
    is_send::<RunTicket>();
};

#[test]
fn the_thread_that_bound_a_buffer_is_refused_instead_of_waiting_for_itself() {
    let plan = compile(&words(1, 1), &Machine::cpu(1));
    let mut loaded = load(&plan, |_| increment());
    let buffer = zeroed(8);
    let bindings = Bindings::new().bind("words", &buffer);
    let mut bound = loaded.bind(&bindings).unwrap();
    let error = buffer.read::<u64>(0, 1).unwrap_err();
    assert!(matches!(error, DeviceError::MappedByCaller { .. }), "{error}");
    bound.run().unwrap();
    drop(bound);
    assert_eq!(buffer.read::<u64>(0, 1).unwrap(), [1]);
}

#[test]
fn a_body_that_opens_a_bound_buffer_is_refused_on_every_lane() {
    let plan = compile(&words(8, 1), &Machine::cpu(2));
    let buffer = zeroed(64);
    let mut loaded = load(&plan, |_| {
        let opened = buffer.clone();
        TaskBody::new(move |_| match opened.read::<u64>(0, 1) {
            Err(DeviceError::MappedByCaller { .. }) => Ok(()),
            outcome => Err(format!("{outcome:?}")),
        })
    });
    loaded.run(&Bindings::new().bind("words", &buffer)).unwrap();
    let bindings = Bindings::new().bind("words", &buffer);
    loaded.bind(&bindings).unwrap().start().unwrap().wait().unwrap();
}
