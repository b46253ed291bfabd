//! How much a simulation takes for each task: counted, since times would not be the same on two
//! machines.

use syncline_program::{Program, ProgramOptions, example, machine_from_toml};
use syncline_testing::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

/// Allocations and bytes kept for each task, from the bytes of a file to the end of the simulation.
fn simulated(bytes: &[u8], tasks: u64) -> (f64, f64) {
    let machine = machine_from_toml("[[device]]\nname = \"cpu:0\"\nlanes = 16\n").unwrap();
    let (count, live) = (ALLOCATOR.allocations(), ALLOCATOR.bytes_live());
    let program = Program::from_bytes(bytes, &ProgramOptions::default()).unwrap();
    let run = program.simulate(&machine).unwrap();
    let per_task = |now: u64, before: u64| now.saturating_sub(before) as f64 / tasks as f64;
    let found = (per_task(ALLOCATOR.allocations(), count), per_task(ALLOCATOR.bytes_live(), live));
    drop((program, run));
    found
}

#[test]
fn a_simulated_task_takes_little_and_no_more_in_a_large_program() {
    for (tiles, steps) in [(10, 100), (20, 100)] {
        let settings = [("tiles", tiles), ("tile", 1), ("steps", steps)];
        let settings = settings.map(|(name, value)| (name.to_owned(), value));
        let trace = example("stencil", &settings).unwrap();
        let tasks = trace.tasks.len() as u64;
        let mut capture = Vec::new();
        trace.write_capture(&mut capture).unwrap();
        for (form, bytes) in [("capture", capture), ("JSON", trace.to_json().into_bytes())] {
            let (allocations, bytes) = simulated(&bytes, tasks);
            println!("{form}, {tasks} tasks: {allocations:.1} allocations, {bytes:.0} bytes each");
            // By way of generic values, reading JSON allocates for the name and the value of every
            // member.
            assert!(allocations < 20.0, "{form}: {allocations} allocations a task");
            assert!(bytes < 2_500.0, "{form}: {bytes} bytes a task");
        }
    }
}
