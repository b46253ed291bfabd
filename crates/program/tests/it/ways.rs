//! Plans and streams give what the serial run gives, bit for bit.

use syncline_device::DeviceSpec;
use syncline_program::{
    EXAMPLES, Program, ProgramOptions, ProgramRun, ProgramRunError, RunOptions, example,
};
use syncline_testing::for_seeds;

fn program(name: &str, settings: &[(&str, u64)]) -> Program {
    let settings: Vec<_> =
        settings.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    Program::from_trace(example(name, &settings).unwrap(), &ProgramOptions::default()).unwrap()
}

fn on(devices: u32) -> RunOptions {
    RunOptions::default().with_devices((0..devices).map(DeviceSpec::cpu)).with_repeats(2)
}

fn assert_same(name: &str, program: &Program, run: &ProgramRun, serial: &ProgramRun) {
    for (index, buffer) in program.trace().buffers.iter().enumerate() {
        assert!(
            run.contents[index] == serial.contents[index],
            "{name}: buffer {} differs",
            buffer.id
        );
    }
    assert_eq!(run.timings.len(), program.trace().tasks.len());
    let latest = run.timings.iter().map(|timing| timing.end_ns).max().unwrap_or(0);
    assert!(latest <= run.makespan_ns, "{name}");
}

#[test]
fn every_example_gives_the_same_in_every_way() {
    for example in EXAMPLES {
        let program = program(example.name, &[]);
        let serial = program.run_serially().unwrap();
        for devices in [1, 2] {
            let run = program.run_planned(&on(devices)).unwrap();
            assert_same(example.name, &program, &run, &serial);
        }
        let run = program.run_streamed(&on(1)).unwrap();
        assert_same(example.name, &program, &run, &serial);
    }
}

#[test]
fn random_programs_give_the_same_in_every_way() {
    for_seeds("random_programs_give_the_same_in_every_way", 40, |rng| {
        let settings = [
            ("tasks", rng.range(1..120)),
            ("buffers", rng.range(2..6)),
            ("elements", rng.range(16..400)),
            ("seed", rng.next_u64() >> 20),
        ];
        let program = program("random", &settings);
        let serial = program.run_serially().unwrap();
        assert_same("planned", &program, &program.run_planned(&on(1)).unwrap(), &serial);
        assert_same("two devices", &program, &program.run_planned(&on(2)).unwrap(), &serial);
        assert_same("streamed", &program, &program.run_streamed(&on(1)).unwrap(), &serial);
    });
}

#[test]
fn a_kernel_that_fails_is_named_in_every_way() {
    // Without its diagonal the matrix is not positive definite.
    let mut trace = example("cholesky", &[]).unwrap();
    trace.tasks.remove(0);
    let program = Program::from_trace(trace, &ProgramOptions::default()).unwrap();
    let planned = program.run_planned(&on(1)).unwrap_err();
    assert!(matches!(&planned, ProgramRunError::Task { name, .. } if name == "potrf"), "{planned}");
    for error in
        [planned, program.run_streamed(&on(1)).unwrap_err(), program.run_serially().unwrap_err()]
    {
        let text = error.to_string();
        assert!(text.contains("potrf") && text.contains("not positive definite"), "{text}");
    }
}

#[test]
fn devices_that_are_not_there_are_named() {
    let mut trace = example("mlp", &[]).unwrap();
    trace.tasks[3].device = Some("cpu:7".into());
    let program = Program::from_trace(trace, &ProgramOptions::default()).unwrap();
    let error = program.run_planned(&on(2)).unwrap_err().to_string();
    assert!(error.contains("tasks[3]") && error.contains("there are: cpu:0, cpu:1"), "{error}");
    let vulkan = RunOptions::default().with_devices(["vulkan:0".parse().unwrap()]);
    let error = program.run_planned(&vulkan).unwrap_err().to_string();
    assert!(error.contains("vulkan:0") && error.contains("not built into this program"), "{error}");
}

#[test]
fn a_stream_refuses_what_is_for_another_device() {
    let mut trace = example("mlp", &[]).unwrap();
    trace.tasks[3].device = Some(serde_json::json!(["vulkan:0", "cpu:1"]));
    let program = Program::from_trace(trace, &ProgramOptions::default()).unwrap();
    let error = program.run_streamed(&on(1)).unwrap_err().to_string();
    assert!(error.contains("tasks[3] (id 3).device: the task is for vulkan:0 or cpu:1"), "{error}");
    let error = program.run_streamed(&on(2)).unwrap_err().to_string();
    assert!(error.contains("not on cpu:0, cpu:1: its workers share the host's memory"), "{error}");
}
