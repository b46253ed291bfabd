//! Cholesky, a network's layers and attention, each in one plan over CPU, Vulkan and OpenCL.

use serde_json::json;
use syncline::device::{Backend, DeviceSpec};
use syncline_program::{FloatTolerance, Program, ProgramOptions, RunOptions, compare, example};

fn all_three() -> Vec<DeviceSpec> {
    [Backend::Cpu, Backend::Vulkan, Backend::OpenCl]
        .map(|backend| DeviceSpec::new(backend, 0))
        .to_vec()
}

/// Whether all drivers are there; CI must have them.
fn has_drivers() -> bool {
    crate::devices().is_some()
}

fn options(repeats: u32) -> RunOptions {
    let options = RunOptions::default().with_devices(all_three()).with_repeats(repeats);
    options.with_backends(syncline::register_backends)
}

/// The example with its tasks shared out over the devices in turn; whatever a device has no kernel
/// for stays on the CPU.
fn program(name: &str, settings: &[(&str, u64)]) -> Program {
    let settings: Vec<_> =
        settings.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    let mut trace = example(name, &settings).unwrap();
    for (at, task) in trace.tasks.iter_mut().enumerate() {
        task.device = Some(json!(["cpu:0", "vulkan:0", "opencl:0"][at % 3]));
    }
    Program::from_trace(trace, &ProgramOptions::default()).unwrap()
}

fn check(program: &Program, repeats: u32) {
    let run = program.run_planned(&options(repeats)).unwrap();
    let serial = program.run_serially().unwrap();
    let tolerance = program.tolerance(&run);
    assert!(matches!(tolerance, FloatTolerance::Relative(limit) if limit < 1e-2), "{tolerance:?}");
    for (index, buffer) in program.trace().buffers.iter().enumerate() {
        let (found, wanted) = (&run.contents[index], &serial.contents[index]);
        let off = compare(found, wanted, syncline::tensor::Dtype::F32, tolerance);
        assert_eq!(off, None, "{:?} of {tolerance:?}", buffer.name);
    }
    let plan = run.plan.unwrap();
    plan.check().unwrap();
    assert_eq!(run.timings.len(), plan.tasks().len());
    assert!(run.timings.iter().all(|timing| timing.end_ns >= timing.start_ns));
    assert!(!run.copies.is_empty(), "three devices that share buffers must copy");
    let on = |name: &str| {
        let device = plan.machine().find(name).unwrap();
        plan.tasks().filter(|task| plan.device_of(task.index()) == device).count()
    };
    for device in ["cpu:0", "vulkan:0", "opencl:0"] {
        assert!(on(device) > 0, "nothing ran on {device}\n{}", plan.to_text());
    }
}

#[test]
fn cholesky_over_all_three_equals_the_serial_run() {
    if has_drivers() {
        check(&program("cholesky", &[("tiles", 4), ("tile", 24)]), 1);
    }
}

#[test]
fn a_network_over_all_three_equals_the_serial_run() {
    if has_drivers() {
        check(&program("mlp", &[]), 1);
    }
}

#[test]
fn attention_over_all_three_equals_the_serial_run() {
    if has_drivers() {
        check(&program("attention", &[]), 1);
    }
}

/// Without a choice in the trace, the first repeat measures every kernel on every device, and the
/// others go by that, which a test of replays decides: here the speeds are the machine's.
#[test]
fn what_is_placed_by_measurement_equals_the_serial_run() {
    if !has_drivers() {
        return;
    }
    let trace = example("cholesky", &[]).unwrap();
    let program = Program::from_trace(trace, &ProgramOptions::default()).unwrap();
    let run = program.run_planned(&options(3)).unwrap();
    let serial = program.run_serially().unwrap();
    for index in 0..program.trace().buffers.len() {
        let (found, wanted) = (&run.contents[index], &serial.contents[index]);
        let tolerance = program.tolerance(&run);
        assert_eq!(compare(found, wanted, syncline::tensor::Dtype::F32, tolerance), None);
    }
}

#[test]
fn without_a_cpu_device_bytes_still_go_through_the_host() {
    if !has_drivers() {
        return;
    }
    let mut trace = example("cholesky", &[]).unwrap();
    for (at, task) in trace.tasks.iter_mut().enumerate() {
        task.device = Some(json!(["vulkan:0", "opencl:0"][at % 2]));
    }
    let program = Program::from_trace(trace, &ProgramOptions::default()).unwrap();
    let options = options(1).with_devices(all_three()[1..].to_vec());
    let run = program.run_planned(&options).unwrap();
    let serial = program.run_serially().unwrap();
    let tolerance = program.tolerance(&run);
    let (found, wanted) = (&run.contents[0], &serial.contents[0]);
    assert_eq!(compare(found, wanted, syncline::tensor::Dtype::F32, tolerance), None);
    assert!(run.copies.iter().any(|copy| copy.route == "vulkan:0 -> cpu:0"), "{:?}", run.copies);
}

#[test]
fn a_stream_refuses_other_devices_before_anything_runs() {
    let program =
        Program::from_trace(example("mlp", &[]).unwrap(), &ProgramOptions::default()).unwrap();
    let error = program.run_streamed(&options(1)).unwrap_err();
    assert!(error.to_string().contains("a stream runs on one CPU device"), "{error}");
}
