//! Failures, cancels, many runs, and plans dropped half way, over all devices.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use syncline::device::{Buffer, CancelToken, Device, DeviceSpec, Kernel, KernelArgs, Scalar};
use syncline::kernels::Library;
use syncline::plan::{
    BufferSpec, CompileOptions, ExecutionPlan, TaskGraph, TaskIndex, TaskInfo, TaskSpec,
};
use syncline::runtime::executor::machine_of;
use syncline::runtime::replay::{Bindings, LoadedPlan, RunError, TaskBody};
use syncline::tensor::{Arg, Dtype, View};

use crate::devices;

const ELEMENTS: u64 = 256;

/// A vector that goes round over the devices and is scaled by minus one on each.
fn ring(devices: &[Arc<dyn Device>], rounds: usize) -> Arc<ExecutionPlan> {
    let mut graph = TaskGraph::new();
    let x = graph.add_buffer(BufferSpec::external("x", ELEMENTS * 4)).unwrap();
    let y = graph.add_buffer(BufferSpec::temporary("y", ELEMENTS * 4)).unwrap();
    let view = View::contiguous(Dtype::I32, &[ELEMENTS]).unwrap();
    for at in 0..rounds * devices.len() {
        let (from, to) = if at % 2 == 0 { (x, y) } else { (y, x) };
        let device = devices[at % devices.len()].spec().to_string();
        let args = [Arg::input(from, view), Arg::output_existing(to, view)];
        graph.submit(&TaskSpec::new("scale", &args).on(&device)).unwrap();
    }
    let machine = machine_of(devices, &[]).unwrap();
    let plan = ExecutionPlan::compile(&graph, &machine, &CompileOptions::default()).unwrap();
    plan.check().unwrap();
    Arc::new(plan)
}

fn negate() -> TaskBody {
    TaskBody::kernel(&Library::builtin().get("scale").unwrap().kernel, [Scalar::I64(-1)])
}

fn numbers(device: &Arc<dyn Device>) -> Buffer {
    let buffer = device.buffer(ELEMENTS * 4);
    buffer.write(0, &(0..ELEMENTS as i32).collect::<Vec<_>>()).unwrap();
    buffer
}

fn load(
    plan: &Arc<ExecutionPlan>,
    devices: &[Arc<dyn Device>],
    mut body: impl FnMut(TaskInfo<'_>, DeviceSpec) -> TaskBody,
) -> LoadedPlan {
    LoadedPlan::load(plan.clone(), devices, |task, spec| Some(body(task, spec))).unwrap()
}

#[test]
fn a_thousand_runs_take_the_memory_of_one() {
    let Some(devices) = devices() else { return };
    let plan = ring(&devices, 2);
    let mut loaded = load(&plan, &devices, |_, _| negate());
    let buffer = numbers(&devices[0]);
    let bindings = Bindings::new().bind("x", &buffer);
    let mut bound = loaded.bind(&bindings).unwrap();
    // Drivers take what they need with the first runs.
    for _ in 0..50 {
        bound.run().unwrap();
    }
    let held =
        || -> Vec<u64> { devices.iter().map(|device| device.memory_use().in_use_bytes).collect() };
    let (before, process_before) = (held(), resident_bytes());
    for _ in 50..1_000 {
        bound.run().unwrap();
    }
    assert_eq!(held(), before);
    let grown = resident_bytes().saturating_sub(process_before);
    assert!(grown < 64 << 20, "{grown} bytes more after 950 runs");
    drop(bound);
    let expected: Vec<i32> = (0..ELEMENTS as i32).collect();
    assert_eq!(buffer.read::<i32>(0, ELEMENTS as usize).unwrap(), expected);
}

/// What the system says this process holds.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

/// A kernel on the CPU fails: batches on the devices that wait for it never begin, those before it
/// have completed, and the next run is as any.
#[test]
fn a_failure_on_the_cpu_ends_the_run_on_all_devices() {
    let Some(devices) = devices() else { return };
    let plan = ring(&devices, 4);
    let culprit = TaskIndex(devices.len() as u32);
    let is_armed = Arc::new(AtomicBool::new(true));
    let scale = Library::builtin().get("scale").unwrap().kernel.clone();
    let mut loaded = load(&plan, &devices, |task, _| {
        if task.index() != culprit {
            return negate();
        }
        let (is_armed, scale) = (is_armed.clone(), scale.clone());
        let kernel = scale.around(move |body| match is_armed.load(Ordering::SeqCst) {
            true => Err("on purpose".to_owned()),
            false => body(),
        });
        TaskBody::kernel(&kernel.unwrap(), [Scalar::I64(-1)])
    });
    let buffer = numbers(&devices[0]);
    let bindings = Bindings::new().bind("x", &buffer);
    for _ in 0..3 {
        is_armed.store(true, Ordering::SeqCst);
        let error = loaded.run(&bindings).unwrap_err();
        let expected =
            RunError::Failed { task: "scale".into(), index: culprit, cause: "on purpose".into() };
        assert_eq!(error, expected);
        is_armed.store(false, Ordering::SeqCst);
        buffer.write(0, &(0..ELEMENTS as i32).collect::<Vec<_>>()).unwrap();
        loaded.run(&bindings).unwrap();
        let sign = if plan.tasks().len().is_multiple_of(2) { 1 } else { -1 };
        let expected: Vec<i32> = (0..ELEMENTS as i32).map(|x| x * sign).collect();
        assert_eq!(buffer.read::<i32>(0, ELEMENTS as usize).unwrap(), expected);
    }
}

/// A lane of a device fails: the batch is refused by a device that has no such kernel, after others
/// were submitted.
#[test]
fn a_kernel_that_a_device_lacks_is_refused_before_anything_runs() {
    let Some(devices) = devices() else { return };
    let plan = ring(&devices, 1);
    let cpu_only = Kernel::cpu("scale", |_: &mut KernelArgs<'_>| ());
    let body = |_: TaskInfo<'_>, _| Some(TaskBody::kernel(&cpu_only, [Scalar::I64(-1)]));
    let error = LoadedPlan::load(plan, &devices, body).unwrap_err();
    assert!(error.to_string().contains("no implementation for vulkan"), "{error}");
}

#[test]
fn a_cancel_reaches_batches_that_wait_on_devices() {
    let Some(devices) = devices() else { return };
    let plan = ring(&devices, 40);
    let is_slow = Arc::new(AtomicBool::new(true));
    let scale = Library::builtin().get("scale").unwrap().kernel.clone();
    let mut loaded = load(&plan, &devices, |_, spec| {
        if spec != DeviceSpec::CPU {
            return negate();
        }
        let (is_slow, scale) = (is_slow.clone(), scale.clone());
        let kernel = scale.around(move |body| {
            if is_slow.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(5));
            }
            body()
        });
        TaskBody::kernel(&kernel.unwrap(), [Scalar::I64(-1)])
    });
    let buffer = numbers(&devices[0]);
    let bindings = Bindings::new().bind("x", &buffer);
    let token = CancelToken::new();
    loaded.set_cancel(&token);
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(30));
        token.cancel();
    });
    assert_eq!(loaded.run(&bindings), Err(RunError::Cancelled));
    thread.join().unwrap();
    is_slow.store(false, Ordering::SeqCst);
    loaded.set_cancel(&CancelToken::new());
    loaded.run(&bindings).unwrap();
}

#[test]
fn plans_are_dropped_with_their_lanes_and_devices() {
    let Some(devices) = devices() else { return };
    let plan = ring(&devices, 1);
    for _ in 0..3 {
        let mut loaded = load(&plan, &devices, |_, _| negate());
        let buffer = numbers(&devices[0]);
        loaded.run(&Bindings::new().bind("x", &buffer)).unwrap();
    }
    let loaded = load(&plan, &devices, |_, _| negate());
    drop(devices);
    drop(loaded);
}
