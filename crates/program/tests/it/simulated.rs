//! A simulation of the machine that a run was made on says what the run took.

use syncline_program::{EXAMPLES, Program, ProgramOptions, RunOptions, example, machine_from_toml};

/// The recorded run is itself computed, with known times between tasks, so that no other work of
/// this machine gets in the way; the simulation knows only what the record says.
#[test]
fn what_passes_between_tasks_is_learnt_from_the_record() {
    let device = "[[device]]\nname = \"cpu:0\"\nlanes = 2\n";
    let plain = machine_from_toml(device).unwrap();
    for (sync_ns, dispatch_ns, wake_ns) in [(200, 40, 0), (900, 150, 2_000), (300, 50, 30_000)] {
        let known = format!(
            "sync_ns = {sync_ns}\ndispatch_ns = {dispatch_ns}\nwake_ns = {wake_ns}\n{device}"
        );
        let known = machine_from_toml(&known).unwrap();
        for one in EXAMPLES {
            let load = |trace| Program::from_trace(trace, &ProgramOptions::default()).unwrap();
            let program = load(example(one.name, &[]).unwrap());
            let made = program.simulate(&known).unwrap();
            let recorded = load(program.timed_trace(&made));
            let predicted = recorded.simulate(&plain).unwrap().makespan_ns as f64;
            let off = predicted / made.makespan_ns as f64 - 1.0;
            println!("{}: {:+.1}%", one.name, 100.0 * off);
            assert!(off.abs() < 0.2, "{}: {:+.1}%", one.name, 100.0 * off);
        }
    }
}

/// Kernels without a body for a device are not placed there, whatever the trace and the costs say.
#[test]
fn tasks_are_placed_where_their_kernels_have_a_body() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/programs");
    let text = std::fs::read(format!("{folder}/collatz.json")).unwrap();
    let mut trace: serde_json::Value = serde_json::from_slice(&text).unwrap();
    // Its own kernel has no body for the CPU. Say that it may run anywhere.
    trace["tasks"][0].as_object_mut().unwrap().remove("device");
    let options = ProgramOptions::default().with_folder(folder).with_trusted_kernels(true);
    let program = Program::from_bytes(trace.to_string().as_bytes(), &options).unwrap();
    let machine = |names: &[&str]| {
        let device = |name: &&str| format!("[[device]]\nname = \"{name}\"\nlanes = 2\n");
        machine_from_toml(&names.iter().map(device).collect::<String>()).unwrap()
    };
    let run = program.simulate(&machine(&["cpu:0", "vulkan:0"])).unwrap();
    let plan = run.plan.expect("a simulation has a plan");
    let first = plan.tasks().next().unwrap();
    let device = plan.device_of(first.index());
    assert_eq!(plan.machine().devices()[device.index()].name, "vulkan:0");
    let nowhere = "tasks[0] (id 0).kernel: kernel `collatz` runs on none of cpu:0, cpu:1: ";
    let error = program.simulate(&machine(&["cpu:0", "cpu:1"])).unwrap_err().to_string();
    assert!(error.starts_with(nowhere) && error.contains("vulkan, opencl"), "{error}");
    let devices = vec!["cpu:0".parse().unwrap(), "cpu:1".parse().unwrap()];
    let options = RunOptions::default().with_devices(devices);
    let error = program.run_planned(&options).unwrap_err().to_string();
    assert!(error.starts_with(nowhere), "{error}");
}
