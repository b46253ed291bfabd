//! A simulation of the machine that a run was made on says what the run took.

use syncline_program::{EXAMPLES, LoadOptions, Program, example, machine_from_toml};

/// The recorded run is itself computed, with known times between tasks, so that no other work of this machine gets in the
/// way; the simulation knows only what the record says.
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
            let load = |trace| Program::from_trace(trace, &LoadOptions::default()).unwrap();
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
