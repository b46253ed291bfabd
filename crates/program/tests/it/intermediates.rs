//! Buffers that a plan keeps to itself: results stay the same, arenas are shared by lifetime, and who waited is said.

use serde_json::Value;
use syncline_deps::trace::{Trace, TraceBuffer, TraceTask};
use syncline_deps::{Arg, BufferId, Dtype, View};
use syncline_device::DeviceSpec;
use syncline_program::{Executed, Keep, LoadOptions, Program, Run, RunOptions, example};
use syncline_testing::for_seeds;

fn options(devices: u32) -> RunOptions {
    RunOptions {
        devices: (0..devices).map(DeviceSpec::cpu).collect(),
        repeats: 2,
        keep: Keep::Results(Vec::new()),
        ..RunOptions::default()
    }
}

/// What was kept is what the serial run left, and nothing else was kept.
fn assert_kept(program: &Program, run: &Run, serial: &Run) {
    let is_inner = program.intermediates(&Keep::Results(Vec::new()));
    for (index, (found, wanted)) in run.contents.iter().zip(&serial.contents).enumerate() {
        match is_inner[index] {
            true => assert!(found.is_empty(), "buffer {index} is an intermediate"),
            false => assert!(found == wanted, "buffer {index} differs"),
        }
    }
}

/// From where to where, and from when to when, each memory of an arena was in use.
fn lives(executed: &Executed) -> Vec<(String, std::ops::Range<u64>, std::ops::Range<u64>)> {
    let life = |buffer: &TraceBuffer| {
        let offset = buffer.extra.get("offset").and_then(Value::as_u64)?;
        let users = executed.trace.tasks.iter();
        let users = users.filter(|task| task.args.iter().any(|arg| arg.arg.buffer == buffer.id));
        let times = users.map(|task| (task.start_ns.unwrap(), task.end_ns.unwrap()));
        let (start, end) = times.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))?;
        let place = buffer.extra["device"].as_str().unwrap().to_owned();
        Some((place, offset..offset + buffer.bytes, start..end))
    };
    executed.trace.buffers.iter().filter_map(life).collect()
}

/// No byte is two memories' at one time, and who waited for bytes began after whoever had them.
fn assert_apart(executed: &Executed) {
    let lives = lives(executed);
    for (at, (place, bytes, time)) in lives.iter().enumerate() {
        for (other, other_bytes, other_time) in &lives[..at] {
            let meets = |a: &std::ops::Range<u64>, b: &std::ops::Range<u64>| {
                a.start < b.end && b.start < a.end
            };
            let shared = place == other && meets(bytes, other_bytes) && meets(time, other_time);
            assert!(!shared, "{place}: {bytes:?} at {time:?} and at {other_time:?}");
        }
    }
    for reuse in &executed.reuses {
        let (pred, succ) = (&executed.trace.tasks[reuse.pred], &executed.trace.tasks[reuse.succ]);
        assert!(pred.end_ns <= succ.start_ns, "{reuse:?}");
        assert!(reuse.region.contains(" arena["), "{reuse:?}");
    }
}

#[test]
fn networks_keep_their_activations_to_themselves() {
    for name in ["mlp", "attention"] {
        let program = Program::from_trace(example(name, &[]).unwrap(), &LoadOptions::default());
        let program = program.unwrap();
        let serial = program.run_serially().unwrap();
        for devices in [1, 2] {
            let run = program.run_planned(&options(devices)).unwrap();
            assert_kept(&program, &run, &serial);
            assert_apart(&program.executed(&run));
            let plan = run.plan.as_ref().unwrap();
            assert!(plan.arena_bytes().iter().sum::<u64>() > 0, "{name}");
        }
    }
    // The hidden layer of the feed-forward part lies where queries, keys and scores were.
    let program = Program::from_trace(example("attention", &[]).unwrap(), &LoadOptions::default());
    let program = program.unwrap();
    let run = program.run_planned(&options(1)).unwrap();
    let plan = run.plan.as_ref().unwrap();
    let sizes = program.trace().buffers.iter().map(|buffer| buffer.bytes);
    let is_inner = program.intermediates(&Keep::Results(Vec::new()));
    let apart: u64 = sizes.zip(is_inner).filter(|(_, inner)| *inner).map(|(bytes, _)| bytes).sum();
    assert!(plan.arena_bytes()[0] < apart, "{} bytes of {apart}", plan.arena_bytes()[0]);
    let named = |name: &str| program.buffer_named(name).unwrap();
    let asked = RunOptions { keep: Keep::Results(vec![named("scores")]), ..options(1) };
    let run = program.run_planned(&asked).unwrap();
    assert!(!run.contents[named("scores")].is_empty() && run.contents[named("q")].is_empty());
}

/// Tasks that each write one buffer, in one piece or in two, from one or two earlier ones.
fn random(rng: &mut syncline_testing::Rng) -> Program {
    let elements = 2 * rng.range(8..64);
    let whole = View::contiguous(Dtype::F32, &[elements]).unwrap();
    let mut trace = Trace::default();
    let mut source = TraceBuffer::new(BufferId(0), 4 * elements).named("source");
    source.extra.insert("init".to_owned(), serde_json::json!({"random": 1, "dtype": "f32"}));
    trace.buffers.push(source);
    for id in 1..rng.range(3..40) {
        let target = BufferId(id);
        trace.buffers.push(TraceBuffer::new(target, 4 * elements).named(&format!("b{id}")));
        let mut pick = || BufferId(id - 1 - rng.below(id.min(6) as usize) as u64);
        let (a, b) = (pick(), pick());
        let halves = [0..elements / 2, elements / 2..elements];
        let parts = if rng.one_in(3) {
            halves.map(|half| whole.slice(0, half).unwrap()).to_vec()
        } else {
            vec![whole]
        };
        for (part, view) in parts.into_iter().enumerate() {
            let write = match part {
                0 => Arg::output(target, view),
                _ => Arg::output_existing(target, view),
            };
            let args = [Arg::input(a, view), Arg::input(b, view), write];
            let mut task = TraceTask::new(trace.tasks.len() as u64, "add", args);
            task.extra.insert("kernel".to_owned(), "add".into());
            trace.tasks.push(task);
        }
    }
    Program::from_trace(trace, &LoadOptions::default()).unwrap()
}

#[test]
fn random_chains_give_the_same_with_shared_bytes() {
    for_seeds("random_chains_give_the_same_with_shared_bytes", 60, |rng| {
        let program = random(rng);
        let serial = program.run_serially().unwrap();
        for devices in [1, 2] {
            let run = program.run_planned(&options(devices)).unwrap();
            assert_kept(&program, &run, &serial);
            assert_apart(&program.executed(&run));
        }
    });
}
