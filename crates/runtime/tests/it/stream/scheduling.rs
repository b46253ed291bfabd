//! Priorities, fairness, blocks, gangs and parts.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use syncline_device::{Kernel, KernelArgs, Scalar};
use syncline_runtime::stream::{Stream, StreamError, StreamOptions, Task};

use super::{LONG, ends, read, stream, words};

/// A task that occupies its worker until the flag is set.
fn gate(open: &Arc<AtomicBool>, started: &Arc<AtomicUsize>) -> Task {
    let (open, started) = (open.clone(), started.clone());
    Task::new("gate").body(move |_| {
        started.fetch_add(1, Ordering::AcqRel);
        while !open.load(Ordering::Acquire) {
            std::thread::park_timeout(Duration::from_micros(200));
        }
    })
}

fn until(what: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !what() {
        assert!(start.elapsed() < LONG, "it never happens");
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn one_worker() -> Stream {
    let options = StreamOptions { workers: 1, help: false, ..Default::default() };
    Stream::new(options).expect("valid options")
}

#[test]
fn ready_tasks_run_by_priority_then_first_in_first_out() {
    ends(|| {
        let stream = one_worker();
        let (open, started) = (Arc::default(), Arc::default());
        stream.submit(gate(&open, &started)).expect("there is room");
        until(|| started.load(Ordering::Acquire) == 1);
        let order: Arc<Mutex<Vec<(i32, usize)>>> = Arc::default();
        for number in 0..40 {
            let priority = [0, 7, -3, 2][number % 4];
            let order = order.clone();
            let task = Task::new("note").priority(priority);
            let note = move |_: &mut KernelArgs<'_>| {
                order.lock().expect("no panic").push((-priority, number))
            };
            stream.submit(task.body(note)).expect("there is room");
        }
        open.store(true, Ordering::Release);
        stream.wait_all_within(LONG).expect("nothing fails");
        let order = order.lock().expect("no panic");
        // One in 64 is taken by age: with 40 there is at most one that stands elsewhere.
        let out_of_order = order.windows(2).filter(|pair| pair[0] > pair[1]).count();
        assert!(out_of_order <= 1, "{order:?}");
    });
}

#[test]
fn low_priorities_plain_tasks_blocks_and_gangs_all_run_beside_an_endless_stream_of_urgent_ones() {
    ends(|| {
        let options = StreamOptions { workers: 2, ring_tasks: 64, ..Default::default() };
        let stream = Stream::new(options).expect("valid options");
        let done = Arc::new(AtomicUsize::new(0));
        let count = |done: &Arc<AtomicUsize>| {
            let done = done.clone();
            move |_: &mut KernelArgs<'_>| _ = done.fetch_add(1, Ordering::AcqRel)
        };
        stream.submit(Task::new("low").priority(-1000).body(count(&done))).expect("room");
        stream.submit(Task::new("plain").body(count(&done))).expect("room");
        stream.submit(Task::new("blocks").priority(-1).blocks(3, count(&done))).expect("room");
        stream.submit(Task::new("gang").priority(-2).gang(2, count(&done))).expect("room");
        stream.submit(Task::new("gang").gang(2, count(&done))).expect("room");
        let expected = 1 + 1 + 3 + 2 + 2;
        let start = std::time::Instant::now();
        while done.load(Ordering::Acquire) < expected {
            assert!(
                start.elapsed() < LONG,
                "starved: {} of {expected}",
                done.load(Ordering::Acquire)
            );
            stream.submit(Task::new("urgent").priority(1000).body(|_| ())).expect("room");
        }
        stream.wait_all_within(LONG).expect("nothing fails");
    });
}

#[test]
fn blocks_cover_the_output_once_whatever_the_number_of_workers() {
    ends(|| {
        for (workers, blocks) in [(1, 1), (1, 7), (2, 2), (3, 16), (2, 1000)] {
            let stream = stream(16, workers);
            let buffer = stream.buffer(8 * 500).expect("small");
            for _ in 0..3 {
                let task = Task::new("add").inout(&buffer, words(500));
                let task = task.blocks(blocks, |args| {
                    let words = args.block_slice_mut::<u64>(0)?;
                    words.iter_mut().for_each(|word| *word += 1);
                    Ok::<(), syncline_device::DeviceError>(())
                });
                stream.submit(task).expect("there is room");
            }
            assert_eq!(read(&stream, &buffer), [3; 500]);
        }
    });
}

#[test]
fn gangs_run_together_and_several_never_deadlock() {
    ends(|| {
        let stream = stream(64, 3);
        let together = Arc::new(AtomicU64::new(0));
        for number in 0..60u32 {
            let blocks = 1 + number % 3;
            let (arrived, together) = (AtomicUsize::new(0), together.clone());
            let gang = Task::new("gang").priority(number as i32 % 5 - 2).gang(blocks, move |_| {
                arrived.fetch_add(1, Ordering::AcqRel);
                // A barrier: it opens only when all blocks are running.
                let start = std::time::Instant::now();
                while arrived.load(Ordering::Acquire) < blocks as usize {
                    if start.elapsed() > LONG {
                        return Err("the others never came");
                    }
                    std::thread::yield_now();
                }
                together.fetch_add(1, Ordering::AcqRel);
                Ok(())
            });
            stream.submit(gang).expect("there is room");
            stream.submit(Task::new("between").body(|_| ())).expect("there is room");
        }
        stream.wait_all_within(LONG).expect("nobody waits for ever");
        assert_eq!(together.load(Ordering::Acquire), 20 * (1 + 2 + 3));
    });
}

#[test]
fn a_gang_larger_than_the_workers_is_refused() {
    let stream = stream(16, 2);
    let error = stream.submit(Task::new("huge").gang(1000, |_| ())).expect_err("two workers");
    assert!(
        matches!(error, StreamError::NeverFits { setting: "workers", size: 2, need: 1000, .. }),
        "{error}"
    );
    let error = stream.submit(Task::new("none").blocks(0, |_| ())).expect_err("no blocks");
    assert!(matches!(error, StreamError::NoBlocks { .. }), "{error}");
}

#[test]
fn parts_run_as_one_task_and_must_not_overlap() {
    ends(|| {
        let stream = stream(16, 2);
        let (left, right) = (stream.buffer(8).expect("small"), stream.buffer(8).expect("small"));
        let write = |value: u64| {
            move |args: &mut KernelArgs<'_>| args.slice_mut::<u64>(0).map(|word| word[0] = value)
        };
        let task = Task::new("both").inout(&left, words(1)).part(write(1));
        let both =
            stream.submit(task.inout(&right, words(1)).part(write(2))).expect("they are apart");
        stream.wait_within(&both, LONG).expect("nothing fails");
        assert_eq!((read(&stream, &left), read(&stream, &right)), (vec![1], vec![2]));
        let task = Task::new("clash").input(&left, words(1)).part(|_| ());
        let error =
            stream.submit(task.inout(&left, words(1)).part(write(3))).expect_err("they touch");
        assert!(matches!(error, StreamError::PartsOverlap { first: 0, second: 1, .. }), "{error}");
    });
}

#[test]
fn kernels_with_scalars_run_and_one_without_a_cpu_body_is_refused() {
    ends(|| {
        let stream = stream(16, 1);
        let buffer = stream.buffer(8 * 4).expect("small");
        let add = Kernel::cpu("add", |args| {
            let add = args.scalar(0)?.as_u64().unwrap_or(0);
            args.slice_mut::<u64>(0).map(|words| words.iter_mut().for_each(|word| *word += add))
        });
        stream
            .submit(Task::new("add").inout(&buffer, words(4)).kernel(&add, &[Scalar::U64(5)]))
            .expect("room");
        assert_eq!(read(&stream, &buffer), [5; 4]);
        let nowhere = Kernel::builder("nowhere").build();
        let error = stream.submit(Task::new("nowhere").kernel(&nowhere, &[])).expect_err("no body");
        assert!(matches!(error, StreamError::Device { .. }), "{error}");
    });
}

#[test]
fn commutative_tasks_never_run_at_the_same_time_on_the_same_bytes() {
    ends(|| {
        let stream = stream(64, 3);
        let buffer = stream.buffer(16).expect("small");
        let inside = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        for number in 0..300u64 {
            let half = number % 2;
            let view = words(2).slice(0, half..half + 1).expect("inside");
            let inside = inside.clone();
            let task = Task::new("add").arg(syncline_tensor::Access::Commutative, &buffer, view);
            let add = move |args: &mut KernelArgs<'_>| {
                let others = inside[half as usize].fetch_add(1, Ordering::AcqRel);
                let words = args.slice_mut::<u64>(0).map_err(|error| error.to_string())?;
                words[0] += 1;
                inside[half as usize].fetch_sub(1, Ordering::AcqRel);
                if others == 0 { Ok(()) } else { Err("two at the same time".to_owned()) }
            };
            stream.submit(task.body(add)).expect("there is room");
        }
        stream.wait_all_within(LONG).expect("one at a time");
        assert_eq!(read(&stream, &buffer), [150, 150]);
    });
}

#[test]
fn bodies_that_run_once_take_no_number_of_blocks() {
    let stream = stream(8, 2);
    let tasks = [
        Task::new("once").body(|_| ()).kernel_blocks(4),
        Task::new("parent").parent(|_| ()).kernel_blocks(2),
        Task::new("parts").part(|_| ()).part(|_| ()).kernel_blocks(5),
        Task::new("part left out").part(|_| ()).part(|_| ()).kernel_blocks(1),
    ];
    for task in tasks {
        let error = stream.submit(task).unwrap_err();
        assert!(matches!(error, StreamError::BlocksOfBodies { .. }), "{error}");
    }
    stream.wait_all_within(LONG).expect("nothing was submitted");
}
