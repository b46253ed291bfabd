//! Buffers that a plan keeps to itself: results stay the same, arenas are shared by lifetime, and
//! who waited is said.

use std::ops::Range;

use serde_json::Value;
use syncline_deps::{OracleLimits, full_graph};
use syncline_device::DeviceSpec;
use syncline_program::{
    ByteReuse, Executed, Keep, Program, ProgramOptions, ProgramRun, RunOptions, example,
    machine_from_toml,
};
use syncline_tensor::{Access, Arg, BufferId, Dtype, View};
use syncline_testing::for_seeds;
use syncline_trace::{Trace, TraceBuffer, TraceTask};

fn options(devices: u32) -> RunOptions {
    RunOptions::default()
        .with_devices((0..devices).map(DeviceSpec::cpu))
        .with_repeats(2)
        .with_keep(Keep::Results(Vec::new()))
}

/// What was kept is what the serial run left, and nothing else was kept.
fn assert_kept(program: &Program, run: &ProgramRun, serial: &ProgramRun) {
    let is_inner = program.intermediates(&Keep::Results(Vec::new()));
    for (index, (found, wanted)) in run.contents.iter().zip(&serial.contents).enumerate() {
        match is_inner[index] {
            true => assert!(found.is_empty(), "buffer {index} is an intermediate"),
            false => assert!(found == wanted, "buffer {index} differs"),
        }
    }
}

/// From where to where, and from when to when, each memory of an arena was in use.
fn lives(executed: &Executed) -> Vec<(String, Range<u64>, Range<u64>)> {
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

/// What was executed, over the arenas themselves: memories that share bytes are views of one
/// buffer.
fn over_arenas(executed: &Executed) -> Trace {
    let buffers = &executed.trace.buffers;
    let mut arenas: Vec<&Value> = Vec::new();
    let mut trace = Trace::default();
    // By memory: its block and its offset there.
    let mut places: Vec<(BufferId, u64)> = Vec::new();
    for memory in buffers {
        let Some(offset) = memory.extra.get("offset").and_then(Value::as_u64) else {
            places.push((memory.id, 0));
            trace.buffers.push(TraceBuffer::new(memory.id, memory.bytes));
            continue;
        };
        let device = &memory.extra["device"];
        let at = arenas.iter().position(|known| *known == device).unwrap_or_else(|| {
            arenas.push(device);
            arenas.len() - 1
        });
        places.push((BufferId((buffers.len() + at) as u64), offset));
    }
    for at in 0..arenas.len() {
        let mut arena = TraceBuffer::new(BufferId((buffers.len() + at) as u64), 0);
        let inside = buffers.iter().zip(&places).filter(|(_, place)| place.0 == arena.id);
        arena.bytes = inside.map(|(memory, place)| place.1 + memory.bytes).max().unwrap();
        trace.buffers.push(arena);
    }
    for task in &executed.trace.tasks {
        let args = task.args.iter().map(|arg| {
            let (block, offset) = places[arg.arg.buffer.0 as usize];
            let (view, dtype) = (&arg.arg.view, arg.arg.view.dtype());
            let offset = view.offset() + offset;
            let view = View::strided(dtype, offset, view.shape(), view.strides()).unwrap();
            match arg.arg.access {
                Access::Output => Arg::output_existing(block, view),
                access => Arg::new(access, block, view),
            }
        });
        trace.tasks.push(TraceTask::new(task.id, task.label(), args));
    }
    trace
}

/// All that use a byte for one memory ended before any that use it for the next one began, and an
/// op that waited for bytes began after those it waited for. Every two ops are compared, by brute
/// force.
///
/// Lanes in order give a memory up as a whole. Lanes that steal may use a part of a memory for the
/// next one while other parts of it are in use.
fn assert_apart(executed: &Executed, steals: bool) {
    let tasks = &executed.trace.tasks;
    let conflicts = full_graph(&over_arenas(executed), OracleLimits::default()).unwrap();
    for edge in conflicts.edges().iter().filter(|edge| edge.waits()) {
        let (pred, succ) = (&tasks[edge.pred as usize], &tasks[edge.succ as usize]);
        assert!(pred.end_ns <= succ.start_ns, "{edge:?}: {pred:?}, {succ:?}");
    }
    let is_conflict = |reuse: &ByteReuse| {
        let ends = (reuse.pred, reuse.succ);
        let mut edges = conflicts.edges().iter();
        edges.any(|edge| (edge.pred as usize, edge.succ as usize) == ends && edge.waits())
    };
    for reuse in &executed.reuses {
        let (pred, succ) = (&tasks[reuse.pred], &tasks[reuse.succ]);
        assert!(pred.end_ns <= succ.start_ns, "{reuse:?}");
        assert!(reuse.region.contains(" arena["), "{reuse:?}");
        assert!(!steals || is_conflict(reuse), "{reuse:?}");
    }
    assert!(steals || lives_that_meet(executed) == 0, "{:?}", lives(executed));
}

/// Returns how many pairs of memories shared bytes of an arena at one time, each taken as a whole.
fn lives_that_meet(executed: &Executed) -> usize {
    let meets = |a: &Range<u64>, b: &Range<u64>| a.start < b.end && b.start < a.end;
    let lives = lives(executed);
    let pairs = lives
        .iter()
        .enumerate()
        .flat_map(|(at, one)| lives[..at].iter().map(move |other| (one, other)));
    let shared = pairs.filter(|((place, bytes, time), (other, other_bytes, other_time))| {
        place == other && meets(bytes, other_bytes) && meets(time, other_time)
    });
    shared.count()
}

#[test]
fn networks_keep_their_activations_to_themselves() {
    for name in ["mlp", "attention"] {
        let program = Program::from_trace(example(name, &[]).unwrap(), &ProgramOptions::default());
        let program = program.unwrap();
        let serial = program.run_serially().unwrap();
        for devices in [1, 2] {
            let run = program.run_planned(&options(devices)).unwrap();
            assert_kept(&program, &run, &serial);
            assert_apart(&program.executed(&run), run.steals);
            let plan = run.plan.as_ref().unwrap();
            assert!(plan.arena_bytes().iter().sum::<u64>() > 0, "{name}");
        }
    }
    // The hidden layer of the feed-forward part lies where queries, keys and scores were.
    let program =
        Program::from_trace(example("attention", &[]).unwrap(), &ProgramOptions::default());
    let program = program.unwrap();
    let run = program.run_planned(&options(1)).unwrap();
    let plan = run.plan.as_ref().unwrap();
    let sizes = program.trace().buffers.iter().map(|buffer| buffer.bytes);
    let is_inner = program.intermediates(&Keep::Results(Vec::new()));
    let separate: u64 =
        sizes.zip(is_inner).filter(|(_, inner)| *inner).map(|(bytes, _)| bytes).sum();
    assert!(plan.arena_bytes()[0] < separate, "{} bytes of {separate}", plan.arena_bytes()[0]);
    let named = |name: &str| program.buffer_named(name).unwrap();
    let asked = options(1).with_keep(Keep::Results(vec![named("scores")]));
    let run = program.run_planned(&asked).unwrap();
    assert!(!run.contents[named("scores")].is_empty() && run.contents[named("q")].is_empty());
}

/// Tasks that each write one buffer, in one piece or in two, from one or two earlier ones.
fn random(rng: &mut syncline_testing::Rng, halves: Range<u64>) -> Program {
    let elements = 2 * rng.range(halves);
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
    Program::from_trace(trace, &ProgramOptions::default()).unwrap()
}

#[test]
fn random_chains_give_the_same_with_shared_bytes() {
    for_seeds("random_chains_give_the_same_with_shared_bytes", 60, |rng| {
        let program = random(rng, 8..64);
        let serial = program.run_serially().unwrap();
        for devices in [1, 2] {
            let run = program.run_planned(&options(devices)).unwrap();
            assert_kept(&program, &run, &serial);
            assert_apart(&program.executed(&run), run.steals);
        }
    });
}

/// Tasks are so long that lanes steal: by computed times, for an order that does not depend on the
/// load of this machine, and in runs.
#[test]
fn parts_of_a_memory_are_used_for_the_next_one_where_lanes_steal() {
    const TEST: &str = "parts_of_a_memory_are_used_for_the_next_one_where_lanes_steal";
    let (mut met, mut seeds) = (0, 0);
    for_seeds(TEST, 30, |rng| {
        seeds += 1;
        let program = random(rng, 3_000..4_000);
        for (lanes, wake_ns) in [(2, 0), (2, 1_000_000_000), (3, 0), (4, 5_000)] {
            let times = format!("sync_ns = 100\ndispatch_ns = 10\nwake_ns = {wake_ns}\n");
            let device = format!("[[device]]\nname = \"cpu:0\"\nlanes = {lanes}\n");
            let machine = machine_from_toml(&(times + &device)).unwrap();
            let run = program.simulate(&machine).unwrap();
            let executed = program.executed(&run);
            assert_apart(&executed, run.steals);
            met += lives_that_meet(&executed);
        }
        let run = program.run_planned(&options(1).with_repeats(1)).unwrap();
        assert_kept(&program, &run, &program.run_serially().unwrap());
        assert_apart(&program.executed(&run), run.steals);
    });
    assert!(met > 0 || seeds < 30, "no memory was used in parts");
}
