//! What a run executed, as a trace: copies are ops like any other, and the times agree with the
//! edges.

use syncline_deps::SubmitOptions;
use syncline_device::DeviceSpec;
use syncline_program::{Program, ProgramOptions, RunOptions, RunProgress, example};
use syncline_testing::for_seeds;
use syncline_trace::replay;

fn random(rng: &mut syncline_testing::Rng) -> Program {
    let settings = [
        ("tasks".to_owned(), rng.range(1..150)),
        ("buffers".to_owned(), rng.range(2..6)),
        ("elements".to_owned(), rng.range(16..200)),
        ("seed".to_owned(), rng.next_u64() >> 20),
    ];
    let trace = example("random", &settings).unwrap();
    Program::from_trace(trace, &ProgramOptions::default()).unwrap()
}

#[test]
fn whoever_waits_begins_after_what_it_waits_for() {
    for_seeds("whoever_waits_begins_after_what_it_waits_for", 30, |rng| {
        let program = random(rng);
        let devices = (0..1 + rng.range(0..2) as u32).map(DeviceSpec::cpu);
        let run = program.run_planned(&RunOptions::default().with_devices(devices)).unwrap();
        let executed = program.executed(&run);
        let tasks = &executed.trace.tasks;
        assert_eq!(tasks.len(), program.tasks().len() + run.copies.len());
        let moved: u64 = run.copies.iter().map(|copy| copy.bytes).sum();
        let copies = tasks.iter().filter_map(|task| task.extra.get("bytes"));
        assert_eq!(copies.map(|bytes| bytes.as_u64().unwrap()).sum::<u64>(), moved);
        let found = replay(&executed.trace, SubmitOptions::default()).unwrap();
        for edge in found.graph.edges().iter().filter(|edge| edge.waits()) {
            let (pred, succ) = (&tasks[edge.pred as usize], &tasks[edge.succ as usize]);
            assert!(
                pred.end_ns <= succ.start_ns,
                "{} of {} ended at {:?}, {} began at {:?}",
                edge.kinds,
                pred.label(),
                pred.end_ns,
                succ.label(),
                succ.start_ns
            );
        }
    });
}

#[test]
fn ids_are_those_of_the_program() {
    let program =
        Program::from_trace(example("cholesky", &[]).unwrap(), &ProgramOptions::default());
    let program = program.unwrap();
    let devices = vec![DeviceSpec::cpu(0), DeviceSpec::cpu(1)];
    let run = program.run_planned(&RunOptions::default().with_devices(devices)).unwrap();
    let mut ids = program.executed(&run).ids;
    ids.sort_unstable();
    let copies = run.copies.len() as u64;
    let tasks = program.trace().tasks.iter().map(|task| task.id);
    let last = program.trace().tasks.last().unwrap().id;
    assert_eq!(ids, tasks.chain(last + 1..=last + copies).collect::<Vec<_>>());
}

#[test]
fn every_way_counts_its_tasks() {
    let program = Program::from_trace(example("mlp", &[]).unwrap(), &ProgramOptions::default());
    let program = program.unwrap();
    let tasks = program.tasks().len() as u64;
    let watched = |progress: &RunProgress| {
        RunOptions::default().with_repeats(2).with_progress(progress.clone())
    };
    let (planned, streamed, serial) = (RunProgress::new(), RunProgress::new(), RunProgress::new());
    program.run_planned(&watched(&planned)).unwrap();
    program.run_streamed(&watched(&streamed)).unwrap();
    program.run_serially_watched(Some(&serial)).unwrap();
    assert_eq!([planned.done(), streamed.done(), serial.done()], [2 * tasks, 2 * tasks, tasks]);
}
