//! Full rings, heaps and pools, what can never go on, and memory that stays constant.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use syncline_deps::SubmitError;
use syncline_runtime::stream::{Stream, StreamError, StreamOptions, Task};
use syncline_tensor::{Dtype, View};

use super::{LONG, ends, ends_within, read, stream, words};

#[test]
fn a_ring_of_four_takes_any_number_of_tasks_of_one_scope() {
    ends(|| {
        let stream = stream(4, 1);
        let counter = stream.buffer(8).expect("small");
        let scope = stream.scope("eight");
        for _ in 0..1000 {
            let task = Task::new("count").inout(&counter, words(1));
            let task = task.body(|args| args.slice_mut::<u64>(0).map(|count| count[0] += 1));
            scope.submit(task).expect("a ring of four is enough");
        }
        scope.finish().expect("nothing fails");
        assert_eq!(read(&stream, &counter), [1000]);
        assert!(stream.stats().ring_tasks.high <= 4);
    });
}

#[test]
fn one_slow_task_holds_back_only_itself() {
    ends(|| {
        let options =
            StreamOptions { ring_tasks: 4, workers: 2, help: false, ..Default::default() };
        let stream = Stream::new(options).expect("valid options");
        let open = Arc::new(AtomicBool::new(false));
        let gate = open.clone();
        let slow = stream.submit(Task::new("slow").body(move |_| {
            while !gate.load(Ordering::Acquire) {
                std::thread::park_timeout(std::time::Duration::from_millis(1));
            }
        }));
        let slow = slow.expect("there is room");
        // Far more than the ring holds: they pass the slow one.
        for _ in 0..1000 {
            stream.submit(Task::new("quick").body(|_| ())).expect("the ring goes on");
        }
        assert!(stream.stats().done >= 1000 - 4);
        open.store(true, Ordering::Release);
        stream.wait_within(&slow, LONG).expect("it ends");
    });
}

#[test]
fn an_output_larger_than_the_heap_is_refused_at_once() {
    let options = StreamOptions { heap_bytes: 1024, ..Default::default() };
    let stream = Stream::new(options).expect("valid options");
    let large = View::contiguous(Dtype::U8, &[32 << 10]).expect("small");
    let error = stream.submit(Task::new("large").output(large)).expect_err("it cannot fit");
    let text = error.to_string();
    assert!(
        matches!(
            error,
            StreamError::NeverFits { setting: "heap_bytes", size: 1024, need: 32768, .. }
        ),
        "{text}"
    );
    assert!(
        text.contains("`large`") && text.contains("32768") && text.contains("`heap_bytes`"),
        "{text}"
    );
    let fits = View::contiguous(Dtype::U8, &[1024]).expect("small");
    stream.submit(Task::new("exact").output(fits)).expect("an exact fit");
    stream.wait_all_within(LONG).expect("the stream stays usable");
}

#[test]
fn a_heap_that_the_program_itself_holds_is_refused_and_a_busy_one_is_awaited() {
    ends(|| {
        let options = StreamOptions { heap_bytes: 64, workers: 1, ..Default::default() };
        let stream = Stream::new(options).expect("valid options");
        for _ in 0..100 {
            stream
                .submit(Task::new("output").output(words(8)).body(|_| ()))
                .expect("awaits the one before");
        }
        let held =
            stream.submit(Task::new("held").output(words(8))).expect("awaits the one before");
        let error =
            stream.submit(Task::new("more").output(words(1))).expect_err("held by a handle");
        assert!(
            matches!(error, StreamError::Exhausted { setting: "heap_bytes", in_use: 64, .. }),
            "{error}"
        );
        assert!(error.to_string().contains("drop some of their handles"), "{error}");
        drop(held);
        stream.submit(Task::new("more").output(words(1))).expect("given back");
        let zero =
            stream.submit(Task::new("nothing").output(words(0))).expect("zero bytes always fit");
        assert_eq!(stream.read(zero.output(0)).expect("written").len(), 0);
        assert_eq!(stream.stats().heap_bytes.high, 64);
    });
}

#[test]
fn many_producers_fit_through_a_small_edge_pool() {
    ends(|| {
        let options =
            StreamOptions { edge_pool: 4, ring_tasks: 256, workers: 1, ..Default::default() };
        let stream = Stream::new(options).expect("valid options");
        let buffer = stream.buffer(8 * 128).expect("small");
        let gate = stream.write(&buffer).expect("nothing uses it");
        let word = |at| words(128).slice(0, at..at + 1).expect("inside");
        // All 128 wait for the guard; edges beyond the pool's size would block, so open it first.
        drop(gate);
        for at in 0..128 {
            let task = Task::new("produce").inout(&buffer, word(at));
            let task = task.body(move |args| args.slice_mut::<u64>(0).map(|word| word[0] = at));
            stream.submit(task).expect("awaits edges where it must");
        }
        let sum = stream.submit(Task::new("sum").input(&buffer, words(128)).output(words(1)).body(
            |args| {
                let total = args.slice::<u64>(0)?.iter().sum();
                args.slice_mut::<u64>(1).map(|sum| sum[0] = total)
            },
        ));
        assert_eq!(read(&stream, sum.expect("128 edges for one task").output(0)), [128 * 127 / 2]);
    });
}

#[test]
fn a_ring_behind_ones_own_guard_is_refused_and_the_stream_goes_on() {
    ends(|| {
        let stream = stream(4, 1);
        let buffer = stream.buffer(8).expect("small");
        let guard = stream.read(&buffer).expect("nothing writes it");
        let task = || {
            Task::new("write")
                .inout(&buffer, words(1))
                .body(|args| args.slice_mut::<u64>(0).map(|word| word[0] += 1))
        };
        for _ in 0..3 {
            stream.submit(task()).expect("there is room");
        }
        let error = stream.submit(task()).expect_err("only this thread could make room");
        assert!(
            matches!(error, StreamError::Exhausted { setting: "ring_tasks", size: 4, .. }),
            "{error}"
        );
        assert!(error.to_string().contains("drop the guard"), "{error}");
        assert_eq!(guard.as_slice::<u64>().expect("a word"), [0], "nobody has written");
        drop(guard);
        stream.submit(task()).expect("there is room again");
        assert_eq!(read(&stream, &buffer), [4]);
    });
}

#[test]
fn a_full_tensor_map_pushes_back() {
    ends(|| {
        let options =
            StreamOptions { map_entries: 8, ring_tasks: 64, workers: 1, ..Default::default() };
        let stream = Stream::new(options).expect("valid options");
        let buffer = stream.buffer(8 * 64).expect("small");
        for round in 0..2000 {
            let at = round % 64;
            let view = words(64).slice(0, at..at + 1).expect("inside");
            stream
                .submit(Task::new("touch").inout(&buffer, view).body(|_| ()))
                .expect("awaits entries");
        }
        stream.wait_all_within(LONG).expect("nothing fails");
    });
}

#[test]
fn options_out_of_range_are_refused_by_name() {
    for (options, setting) in [
        (StreamOptions { ring_tasks: 0, ..Default::default() }, "ring_tasks"),
        (StreamOptions { workers: 0, ..Default::default() }, "workers"),
        (StreamOptions { edge_pool: 0, ..Default::default() }, "edge_pool"),
        (StreamOptions { map_entries: 0, ..Default::default() }, "map_entries"),
        (StreamOptions { ring_tasks: usize::MAX, ..Default::default() }, "ring_tasks"),
    ] {
        let error = Stream::new(options).expect_err("out of range");
        assert!(
            matches!(error, StreamError::BadOption { setting: found, .. } if found == setting),
            "{error}"
        );
    }
}

#[test]
fn a_submission_that_is_refused_leaves_nothing_behind() {
    let stream = stream(4, 1);
    let buffer = stream.buffer(8).expect("small");
    let before = stream.stats();
    let error = stream.submit(Task::new("outside").output(words(4)).inout(&buffer, words(2)));
    let error = error.expect_err("two words of one");
    assert!(
        matches!(error, StreamError::Submit(SubmitError::OutsideBuffer { arg: 1, .. })),
        "{error}"
    );
    let other = super::stream(4, 1);
    let error =
        other.submit(Task::new("stranger").input(&buffer, words(1))).expect_err("not its own");
    assert!(matches!(error, StreamError::WrongStream { .. }), "{error}");
    stream.submit(Task::new("next").inout(&buffer, words(1))).expect("as if nothing had come");
    stream.wait_all_within(LONG).expect("nothing fails");
    let after = stream.stats();
    assert_eq!((after.submitted, after.heap_bytes.now), (before.submitted + 1, 0));
}

#[test]
fn ten_million_tasks_in_constant_memory() {
    const TASKS: u64 = 10_000_000;
    ends_within(9 * LONG, || {
        let options =
            StreamOptions { ring_tasks: 256, heap_bytes: 4096, workers: 1, ..Default::default() };
        let stream = Stream::new(options).expect("valid options");
        let buffers: Vec<_> = (0..8).map(|_| stream.buffer(8).expect("small")).collect();
        let total = Arc::new(AtomicU64::new(0));
        let mut live_after_warm_up = 0;
        for round in 0..TASKS {
            let total = total.clone();
            let task = Task::new("tiny").inout(&buffers[round as usize % 8], words(1));
            let task = if round % 64 == 0 { task.output(words(8)) } else { task };
            stream
                .submit(task.body(move |_| _ = total.fetch_add(1, Ordering::Relaxed)))
                .expect("bounded");
            if round == TASKS / 10 {
                live_after_warm_up = crate::ALLOCATOR.bytes_live();
            }
        }
        stream.wait_all_within(LONG).expect("nothing fails");
        assert_eq!(total.load(Ordering::Relaxed), TASKS);
        let stats = stream.stats();
        assert!(stats.ring_tasks.high <= 256 && stats.heap_bytes.high <= 4096, "{stats:?}");
        // Other tests of this binary allocate at the same time; a leak of one byte a task would
        // show nevertheless.
        let grown = crate::ALLOCATOR.bytes_live().saturating_sub(live_after_warm_up);
        assert!(grown < 64 << 20, "{grown} bytes more");
    });
}
