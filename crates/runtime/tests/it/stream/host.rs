//! Waiting, and the host's own access to buffers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use syncline_runtime::stream::{Stream, StreamError, StreamOptions, Task};

use super::{LONG, ends, read, stream, words};

fn increment(buffer: &syncline_device::Buffer) -> Task {
    Task::new("increment")
        .inout(buffer, words(1))
        .body(|args| args.slice_mut::<u64>(0).map(|word| word[0] += 1))
}

#[test]
fn host_writes_and_tasks_take_turns_in_submission_order() {
    ends(|| {
        let stream = stream(8, 2);
        let buffer = stream.buffer(8).expect("small");
        for round in 0..200u64 {
            stream.submit(increment(&buffer)).expect("room");
            let mut guard = stream.write_within(&buffer, LONG).expect("nothing fails");
            let word = &mut guard.as_mut_slice::<u64>().expect("a word")[0];
            assert_eq!(*word, 2 * round + 1);
            *word += 1;
        }
        assert_eq!(read(&stream, &buffer), [400]);
    });
}

#[test]
fn readers_share_and_a_writer_waits_for_the_guard() {
    ends(|| {
        let stream = stream(16, 2);
        let buffer = stream.buffer_of(&[7u64]).expect("small");
        let (first, second) =
            (stream.read(&buffer).expect("free"), stream.read(&buffer).expect("shared"));
        let output = stream.submit(
            Task::new("copy").input(&buffer, words(1)).output(words(1)).body(|args| {
                let word = args.slice::<u64>(0)?[0];
                args.slice_mut::<u64>(1).map(|copy| copy[0] = word)
            }),
        );
        assert_eq!(read(&stream, output.expect("room").output(0)), [7], "a task may read beside");
        let writer = stream.submit(increment(&buffer)).expect("room");
        drop(first);
        let error = stream.wait(&writer).expect_err("it waits for `second`");
        assert!(matches!(error, StreamError::WaitsForOwnGuard { .. }), "{error}");
        let error = stream.write(&buffer).expect_err("so would this");
        assert!(matches!(error, StreamError::WaitsForOwnGuard { .. }), "{error}");
        assert!(matches!(stream.wait_all(), Err(StreamError::WaitsForOwnGuard { .. })));
        assert_eq!(second.as_slice::<u64>().expect("a word"), [7]);
        drop(second);
        stream.wait_within(&writer, LONG).expect("free");
        assert_eq!(read(&stream, &buffer), [8]);
        stream.wait_all_within(LONG).expect("nothing is left of what was refused");
    });
}

#[test]
fn a_scope_apart_from_an_open_guard_can_be_finished() {
    ends(|| {
        let stream = stream(16, 1);
        let (open, other) = (stream.buffer(8).expect("small"), stream.buffer(8).expect("small"));
        let guard = stream.read(&open).expect("free");
        let scope = stream.scope("apart");
        scope.submit(increment(&other)).expect("room");
        scope.finish().expect("it does not touch the open buffer");
        let scope = stream.scope("behind");
        scope.submit(increment(&open)).expect("room");
        assert!(matches!(scope.finish(), Err(StreamError::WaitsForOwnGuard { .. })));
        drop(guard);
        stream.wait_all_within(LONG).expect("nothing fails");
    });
}

#[test]
fn results_are_readable_while_others_still_run_and_waits_give_up_in_time() {
    ends(|| {
        let options = StreamOptions { workers: 2, help: false, ..Default::default() };
        let stream = Stream::new(options).expect("valid options");
        let (quick, slow) = (stream.buffer(8).expect("small"), stream.buffer(8).expect("small"));
        let open = Arc::new(AtomicBool::new(false));
        let gate = open.clone();
        let task = Task::new("slow").inout(&slow, words(1)).body(move |_| {
            while !gate.load(Ordering::Acquire) {
                std::thread::park_timeout(Duration::from_millis(1));
            }
        });
        let handle = stream.submit(task).expect("room");
        stream.submit(increment(&quick)).expect("room");
        assert_eq!(read(&stream, &quick), [1], "its producer is done");
        let soon = Duration::from_millis(10);
        assert!(matches!(stream.wait_within(&handle, soon), Err(StreamError::TimedOut { .. })));
        assert!(matches!(stream.wait_all_within(soon), Err(StreamError::TimedOut { .. })));
        assert!(matches!(stream.read_within(&slow, soon), Err(StreamError::TimedOut { .. })));
        assert!(matches!(stream.write_within(&slow, soon), Err(StreamError::TimedOut { .. })));
        assert_eq!(stream.stats().done, 2, "the increment and the host's read");
        open.store(true, Ordering::Release);
        stream.wait_all_within(LONG).expect("a wait that gave up leaves nothing behind");
        stream.wait_writable(&slow).expect("free");
        stream.wait_readable(&slow).expect("free");
    });
}

#[test]
fn a_task_cannot_wait_for_the_stream_that_runs_it() {
    ends(|| {
        let stream = Arc::new(stream(16, 1));
        let buffer = stream.buffer(8).expect("small");
        let (inner, inner_buffer) = (stream.clone(), buffer.clone());
        let (send, receive) = std::sync::mpsc::channel();
        let task = Task::new("itself").inout(&buffer, words(1)).body(move |_| {
            // The handle of this very task: a cycle. Refused at once, as is everything else that
            // waits for it.
            let handle: syncline_runtime::stream::TaskHandle =
                receive.recv_timeout(LONG).map_err(|error| error.to_string())?;
            let refused = [
                inner.wait(&handle).is_err(),
                inner.wait_all().is_err(),
                inner.read(&inner_buffer).is_err(),
                inner.submit(Task::new("from inside")).is_err(),
            ];
            if refused == [true; 4] { Ok(()) } else { Err(format!("{refused:?}")) }
        });
        let handle = stream.submit(task).expect("room");
        send.send(handle.clone()).expect("the task waits");
        stream.wait_within(&handle, LONG).expect("all were refused");
    });
}

#[test]
fn statistics_add_up() {
    ends(|| {
        let stream = stream(8, 1);
        let buffer = stream.buffer(8).expect("small");
        for _ in 0..100 {
            stream.submit(increment(&buffer)).expect("room");
        }
        stream.wait_all_within(LONG).expect("nothing fails");
        let stats = stream.stats();
        assert_eq!((stats.submitted, stats.done, stats.failed, stats.ready), (100, 100, 0, 0));
        assert_eq!((stats.ring_tasks.now, stats.edges.now), (0, 0));
        assert!((1..=8).contains(&stats.ring_tasks.high), "{stats:?}");
    });
}

#[test]
fn of_two_threads_that_wait_for_each_others_guards_one_is_told() {
    ends(|| {
        let stream = stream(16, 1);
        let (first, second) = (stream.buffer(8).expect("small"), stream.buffer(8).expect("small"));
        let both = std::sync::Barrier::new(2);
        let open = |mine, theirs| {
            let guard = stream.write(mine).expect("nothing holds it");
            both.wait();
            let opened = stream.write(theirs).map(drop);
            drop(guard);
            opened
        };
        let outcomes = std::thread::scope(|threads| {
            let one = threads.spawn(|| open(&first, &second));
            let other = threads.spawn(|| open(&second, &first));
            [one, other].map(|thread| thread.join().expect("no panic"))
        });
        let told = outcomes.iter().filter(|outcome| match outcome {
            Err(StreamError::WaitsInCircle { .. }) => true,
            Err(error) => panic!("{error}"),
            Ok(()) => false,
        });
        assert_eq!(told.count(), 1, "{outcomes:?}");
        stream.wait_all_within(LONG).expect("nothing is left");
    });
}

#[test]
fn a_forgotten_guard_does_not_hold_up_the_drop() {
    ends(|| {
        let stream = stream(16, 1);
        let buffer = stream.buffer(8).expect("small");
        std::mem::forget(stream.read(&buffer).expect("nothing holds it"));
        stream.submit(Task::new("behind").inout(&buffer, words(1)).body(|_| ())).expect("room");
        drop(stream);
    });
}

#[test]
fn waiting_for_an_outer_stream_from_a_task_that_its_task_helps_with_is_refused() {
    ends(|| {
        let (outer, inner) = (Arc::new(stream(16, 1)), Arc::new(stream(16, 1)));
        let (open, started) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        // The inner stream's own worker is busy, so that the waiting task helps.
        let (gate, has_started) = (open.clone(), started.clone());
        let busy = Task::new("busy").body(move |_| {
            has_started.store(true, Ordering::Release);
            while !gate.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
        });
        inner.submit(busy).expect("room");
        while !started.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let (outside, below) = (outer.clone(), inner.clone());
        let waits = Task::new("waits").body(move |_| {
            let back = Task::new("waits back").body(move |_| outside.wait_all().map_err(in_words));
            let back = below.submit(back).map_err(in_words)?;
            below.wait(&back).map_err(in_words)
        });
        let task = outer.submit(waits).expect("room");
        let error = outer.wait_within(&task, LONG).expect_err("it would wait for itself");
        open.store(true, Ordering::Release);
        assert!(error.to_string().contains("from inside a task"), "{error}");
    });
}

fn in_words(error: StreamError) -> String {
    error.to_string()
}
