//! One buffer in streams, plans, transfers, kernels and the host's hands:
//! conflicting uses are ordered, or refused.

use std::sync::Arc;
use std::sync::mpsc::channel;

use syncline_device::{Buffer, Deadline, DeviceError, Kernel, KernelArg, KernelArgs};
use syncline_plan::{
    BufferSpec, CompileOptions, ExecutionPlan, Machine, TaskGraph, TaskInfo, TaskSpec,
};
use syncline_runtime::replay::{Bindings, LoadedPlan, TaskBody};
use syncline_runtime::stream::{Stream, StreamError, StreamOptions, Task};
use syncline_runtime::{ExecutorOptions, UnifiedExecutor};
use syncline_tensor::{Arg, Dtype, View};
use syncline_testing::for_seeds;

use super::{in_time, two_devices};

fn stream() -> Stream {
    Stream::new(StreamOptions { ring_tasks: 16, workers: 2, ..Default::default() }).expect("valid")
}

fn word() -> View {
    View::contiguous(Dtype::U64, &[1]).expect("small")
}

/// The order of any two of these shows in the result.
fn advance(word: &mut u64, number: u64) {
    *word = word.wrapping_mul(3).wrapping_add(number);
}

fn on_args(args: &KernelArgs<'_>, number: u64) -> Result<(), DeviceError> {
    args.slice_mut::<u64>(0).map(|word| advance(&mut word[0], number))
}

fn task(buffer: &Buffer, number: u64) -> Task {
    Task::new("advance").inout(buffer, word()).body(move |args| on_args(args, number))
}

/// A plan that advances its buffer `x` by 7.
fn plan(executor: &UnifiedExecutor) -> LoadedPlan {
    let mut graph = TaskGraph::new();
    let x = graph.add_buffer(BufferSpec::external("x", 8)).expect("room");
    graph.submit(&TaskSpec::new("advance", &[Arg::inout(x, word())])).expect("room");
    let (machine, options) = (Machine::cpu(2), CompileOptions::default());
    let plan = Arc::new(ExecutionPlan::compile(&graph, &machine, &options).expect("a plan"));
    let body = |_: TaskInfo<'_>, _| Some(TaskBody::new(|args| on_args(&args.open(), 7)));
    executor.load_plan(plan, body).expect("loads")
}

#[test]
fn conflicting_uses_of_a_buffer_come_in_submission_order() {
    let (executor, cpu, _) = two_devices(ExecutorOptions::default());
    let device = executor.context(cpu).expect("it has it").device().clone();
    for_seeds("conflicting_uses_of_a_buffer_come_in_submission_order", 60, |rng| {
        let streams = [stream(), stream()];
        let mut plan = plan(&executor);
        let buffers =
            [Buffer::from(vec![1u64]), device.buffer(8), streams[0].buffer(8).expect("small")];
        buffers[1].write(0, &[2u64]).expect("in range");
        let mut expected = [1u64, 2, 0];
        for number in 0..60u64 {
            let (at, from) = (rng.range(0..3) as usize, rng.range(0..3) as usize);
            let buffer = &buffers[at];
            match rng.range(0..7) {
                0 | 1 => {
                    streams[0].adopt(buffer).expect("at home anywhere");
                    streams[0].submit(task(buffer, number)).expect("room");
                    advance(&mut expected[at], number);
                }
                2 => {
                    streams[1].adopt(buffer).expect("at home anywhere");
                    streams[1].submit(task(buffer, number)).expect("room");
                    advance(&mut expected[at], number);
                }
                3 => {
                    let kernel = Kernel::cpu("advance", move |args| on_args(args, number));
                    let view = buffer.tensor(Dtype::U64, &[1]).expect("in range");
                    let args = vec![KernelArg::inout(view)];
                    executor.execute_kernel(cpu, &kernel, args, vec![]).expect("runs");
                    advance(&mut expected[at], number);
                }
                4 if at != from => {
                    let view = |at: usize| buffers[at].tensor(Dtype::U64, &[1]).expect("in range");
                    executor.execute_transfer(&view(from), &view(at)).expect("goes");
                    expected[at] = expected[from];
                }
                5 => {
                    plan.run(&Bindings::new().bind("x", buffer)).expect("runs");
                    advance(&mut expected[at], 7);
                }
                _ => {
                    let mut value = buffer.read::<u64>(0, 1).expect("in range")[0];
                    assert_eq!(value, expected[at]);
                    advance(&mut value, number);
                    buffer.write(0, &[value]).expect("in range");
                    advance(&mut expected[at], number);
                }
            }
        }
        for (buffer, expected) in buffers.iter().zip(expected) {
            assert_eq!(buffer.read::<u64>(0, 1).expect("in range"), [expected]);
        }
    });
}

#[test]
fn threads_that_use_one_buffer_in_different_ways_lose_no_update() {
    let (executor, cpu, _) = two_devices(ExecutorOptions::default());
    let (stream, buffer) = (stream(), Buffer::from(vec![0u64]));
    let add = |args: &mut KernelArgs<'_>| args.slice_mut::<u64>(0).map(|word| word[0] += 1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..200 {
                stream.submit(Task::new("add").inout(&buffer, word()).body(add)).expect("room");
            }
        });
        scope.spawn(|| {
            let kernel = Kernel::cpu("add", add);
            for _ in 0..200 {
                let view = buffer.tensor(Dtype::U64, &[1]).expect("in range");
                let args = vec![KernelArg::inout(view)];
                executor.execute_kernel(cpu, &kernel, args, vec![]).expect("runs");
            }
        });
        scope.spawn(|| {
            let mut last = 0;
            for _ in 0..100 {
                let now = buffer.read::<u64>(0, 1).expect("in range")[0];
                assert!(now >= last, "{now} after {last}");
                last = now;
                // A guard of the stream beside them.
                stream.write(&buffer).expect("free").as_mut_slice::<u64>().expect("a word")[0] += 1;
            }
        });
    });
    executor.synchronize_all(in_time()).expect("nothing fails");
    assert_eq!(buffer.read::<u64>(0, 1).expect("in range"), [500]);
}

#[test]
fn waits_for_oneself_are_refused() {
    let (stream, buffer) = (stream(), Buffer::from(vec![0u64]));
    let inner = buffer.clone();
    let reads_itself =
        Task::new("self").inout(&buffer, word()).body(move |_| match inner.read::<u64>(0, 1) {
            Err(DeviceError::UsedByStream { .. }) => Ok(()),
            other => Err(format!("{other:?}")),
        });
    stream.submit(reads_itself).expect("room");
    stream.wait_all().expect("the read was refused");

    let guard = stream.read(&buffer).expect("free");
    let error = buffer.write(0, &[1u64]).expect_err("the guard is this thread's");
    assert!(error.to_string().contains("host guard of this thread"), "{error}");
    drop(guard);

    let map = buffer.map(Deadline::NEVER).expect("free");
    let error = stream.submit(task(&buffer, 1)).expect_err("the map is this thread's");
    assert!(error.to_string().contains("drop the map first"), "{error}");
    drop(map);
    stream.submit(task(&buffer, 1)).expect("free again");
    assert_eq!(buffer.read::<u64>(0, 1).expect("in range"), [1]);
}

#[test]
fn the_bytes_of_a_failed_task_are_refused_to_all_users() {
    let (stream, buffer) = (stream(), Buffer::from(vec![0u64]));
    let fails = Task::new("fails").inout(&buffer, word()).body(|_| Err("no such luck"));
    stream.submit(fails).expect("room");
    let error = buffer.read::<u64>(0, 1).expect_err("its writer failed");
    assert!(error.to_string().contains("no such luck"), "{error}");
    stream.wait_all().expect_err("reports it");
    buffer.read::<u64>(0, 1).expect("it was reported");
}

#[test]
fn a_deadline_of_another_user_is_kept_while_a_task_runs() {
    let (stream, buffer) = (stream(), Buffer::from(vec![0u64]));
    let (begin, began) = channel();
    let (end, ended) = channel::<()>();
    let waits = Task::new("waits").inout(&buffer, word()).body(move |_| {
        begin.send(()).expect("awaited");
        ended.recv().map_err(|error| error.to_string())
    });
    stream.submit(waits).expect("room");
    began.recv().expect("it begins");
    let mut target = [0u64];
    let soon = Deadline::after(std::time::Duration::from_millis(20));
    let error = buffer.read_into(0, &mut target, soon).expect_err("the task runs");
    assert!(matches!(error, DeviceError::UsedByStream { .. }), "{error}");
    end.send(()).expect("awaited");
    buffer.read_into(0, &mut target, in_time()).expect("it has ended");
}

#[test]
fn a_buffer_over_a_vector_is_used_in_place_by_all() {
    let numbers = vec![1u64; 4096];
    let address = numbers.as_ptr() as usize;
    let buffer = Buffer::from(numbers);
    let stream = stream();
    let all = View::contiguous(Dtype::U64, &[4096]).expect("small");
    let seen = stream.submit(Task::new("see").inout(&buffer, all).output(word()).body(
        |args: &mut KernelArgs<'_>| {
            let start = args.pointer(0)? as u64;
            args.slice_mut::<u64>(1).map(|word| word[0] = start)
        },
    ));
    let seen = seen.expect("room").output(0).read::<u64>(0, 1).expect("in range")[0];
    assert_eq!(seen, address as u64);
    assert_eq!(buffer.map(Deadline::NEVER).expect("free").as_ptr() as usize, address);
}

#[test]
fn buffers_outlive_their_stream_and_unfinished_tasks_outlive_handles() {
    let buffer = Buffer::from(vec![0u64]);
    let output = {
        let stream = stream();
        stream.submit(task(&buffer, 5)).expect("room");
        let kept = Task::new("keep").input(&buffer, word()).output(word());
        let kept = kept.body(|args: &mut KernelArgs<'_>| {
            let word = args.slice::<u64>(0)?[0];
            args.slice_mut::<u64>(1).map(|copy| copy[0] = word + 1)
        });
        let output = stream.submit(kept).expect("room").output(0).clone();
        stream.wait_all().expect("nothing fails");
        let short = Buffer::from(vec![1u64; 1 << 16]);
        let (end, ended) = channel::<()>();
        let view = View::contiguous(Dtype::U64, &[1 << 16]).expect("small");
        let sums = Task::new("sum").input(&short, view).inout(&buffer, word()).body(
            move |args: &mut KernelArgs<'_>| {
                ended.recv().map_err(|error| error.to_string())?;
                let sum: u64 = args.slice::<u64>(0).map_err(|e| e.to_string())?.iter().sum();
                args.slice_mut::<u64>(1).map(|word| word[0] += sum).map_err(|e| e.to_string())
            },
        );
        stream.submit(sums).expect("room");
        drop(short);
        end.send(()).expect("awaited");
        stream.wait_all().expect("the memory was there");
        output
    };
    assert_eq!(output.read::<u64>(0, 1).expect("the stream's memory"), [6]);
    assert_eq!(buffer.read::<u64>(0, 1).expect("in range"), [5 + (1 << 16)]);
    let other = stream();
    other.submit(task(&buffer, 0)).expect("at home here now");
    let error = other.adopt(&output).expect_err("its memory is the first stream's");
    assert!(matches!(error, StreamError::Buffer { .. }), "{error}");
}
