//! Panics and errors, poison, cancelling and deadlines.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use syncline_device::{Kernel, KernelArgs};
use syncline_runtime::stream::{Cause, ScopeOptions, Stream, StreamError, StreamOptions, Task};

use super::{LONG, ends, read, stream, words};

fn cause(error: &StreamError) -> Cause {
    error.failure().unwrap_or_else(|| panic!("no failure of a task: {error}")).cause.clone()
}

#[test]
fn a_panic_and_an_error_reach_their_waiters_with_their_text() {
    ends(|| {
        let stream = stream(16, 1);
        let panics =
            stream.submit(Task::new("panics").body(|_| -> () { panic!("on {}", "purpose") }));
        let fails = stream.submit(Task::new("fails").body(|_| Err::<(), _>("as well")));
        let error = stream.wait_within(&panics.expect("room"), LONG).expect_err("it panics");
        assert_eq!(cause(&error), Cause::Panicked("on purpose".into()));
        assert!(error.to_string().contains("`panics` panicked: on purpose"), "{error}");
        let fails = fails.expect("room");
        let error = stream.wait_within(&fails, LONG).expect_err("it fails");
        assert_eq!(cause(&error), Cause::Failed("as well".into()));
        assert!(stream.wait_all_within(LONG).is_err());
        stream.wait_all_within(LONG).expect("reported once");
        assert!(stream.wait_within(&fails, LONG).is_err(), "the outcome of a task stays");
    });
}

#[test]
fn what_comes_after_a_failure_inherits_it_until_it_was_reported() {
    ends(|| {
        let stream = stream(4, 1);
        let buffer = stream.buffer(8).expect("small");
        let other = stream.buffer(8).expect("small");
        let task = |name| Task::new(name).inout(&buffer, words(1));
        let failing = stream.submit(task("origin").body(|_| Err::<(), _>("spoilt"))).expect("room");
        assert!(stream.wait_within(&failing, LONG).is_err());
        // The origin has long ended and its slot is used by others.
        for _ in 0..20 {
            stream.submit(Task::new("other").inout(&other, words(1)).body(|_| ())).expect("room");
        }
        let late = stream.submit(task("late").body(|_| ())).expect("room");
        let error = stream.wait_within(&late, LONG).expect_err("inherited");
        assert_eq!(error.failure().expect("a failure").task, failing.id());
        let explicit =
            stream.submit(Task::new("explicit").after(&late).body(|_| ())).expect("room");
        assert!(stream.wait_within(&explicit, LONG).is_err(), "an explicit dependency counts");
        assert!(stream.read(&buffer).is_err(), "and the host sees it");
        assert!(stream.read(&other).is_ok(), "while the rest goes on");
        let error = stream.wait_all_within(LONG).expect_err("reported");
        assert_eq!(error.failure().expect("a failure").task, failing.id());
        let again = stream.submit(task("again").body(|_| ())).expect("room");
        stream.wait_within(&again, LONG).expect("forgotten");
        assert_eq!(read(&stream, &buffer), [0]);
    });
}

#[test]
fn a_block_that_fails_fails_its_task_once() {
    ends(|| {
        let stream = stream(16, 2);
        let ran = Arc::new(AtomicUsize::new(0));
        let count = ran.clone();
        let task = Task::new("blocks").blocks(10, move |args| {
            count.fetch_add(1, Ordering::AcqRel);
            if args.block().0 == 3 { Err("block 3") } else { Ok(()) }
        });
        let error =
            stream.wait_within(&stream.submit(task).expect("room"), LONG).expect_err("block 3");
        assert_eq!(cause(&error), Cause::Failed("block 3".into()));
        assert_eq!((ran.load(Ordering::Acquire), stream.stats().failed), (10, 1));
    });
}

#[test]
fn cancelling_a_scope_stops_what_has_not_begun_and_only_that() {
    ends(|| {
        let options = StreamOptions { workers: 1, help: false, ..Default::default() };
        let stream = Stream::new(options).expect("valid options");
        let (open, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (gate, flag) = (open.clone(), begun.clone());
        let scope = stream.scope("doomed");
        let running = scope.submit(Task::new("running").body(move |_| {
            flag.store(true, Ordering::Release);
            while !gate.load(Ordering::Acquire) {
                std::thread::park_timeout(Duration::from_millis(1));
            }
        }));
        let running = running.expect("room");
        let waiting =
            scope.submit(Task::new("waiting").after(&running).body(|_| ())).expect("room");
        let outside =
            stream.submit(Task::new("outside").after(&running).body(|_| ())).expect("room");
        let follows =
            stream.submit(Task::new("follows").after(&waiting).body(|_| ())).expect("room");
        while !begun.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        scope.cancel();
        let refused = scope.submit(Task::new("late")).expect_err("cancelled");
        assert!(matches!(refused, StreamError::ScopeCancelled { .. }), "{refused}");
        open.store(true, Ordering::Release);
        assert!(matches!(scope.finish(), Err(StreamError::ScopeCancelled { .. })));
        stream.wait_within(&running, LONG).expect("it had begun");
        stream.wait_within(&outside, LONG).expect("it depends on nothing that was cancelled");
        for task in [&waiting, &follows] {
            let error = stream.wait_within(task, LONG).expect_err("cancelled");
            assert_eq!(cause(&error), Cause::Cancelled("doomed".into()));
        }
    });
}

#[test]
fn a_deadline_returns_control_though_a_task_is_slow() {
    ends(|| {
        let options = StreamOptions { workers: 1, help: false, ..Default::default() };
        let stream = Stream::new(options).expect("valid options");
        let open = Arc::new(AtomicBool::new(false));
        let gate = open.clone();
        let scope = stream
            .scope_with("late", ScopeOptions::default().with_deadline(Duration::from_millis(20)));
        let slow = scope.submit(Task::new("slow").body(move |_| {
            while !gate.load(Ordering::Acquire) {
                std::thread::park_timeout(Duration::from_millis(1));
            }
        }));
        let slow = slow.expect("room");
        let never = scope.submit(Task::new("never").after(&slow).body(|_| ())).expect("room");
        let error = scope.finish().expect_err("the deadline passes");
        assert!(matches!(error, StreamError::ScopeDeadline { .. }), "{error}");
        open.store(true, Ordering::Release);
        let error = stream.wait_within(&never, LONG).expect_err("too late");
        assert_eq!(cause(&error), Cause::DeadlinePassed("late".into()));
    });
}

#[test]
fn dropping_a_stream_with_work_pending_runs_nothing_more_and_frees_everything() {
    ends(|| {
        for workers in [1, 3] {
            let token = Arc::new(());
            let ran = Arc::new(AtomicUsize::new(0));
            let stream = stream(64, workers);
            let buffer = stream.buffer(8).expect("small");
            for _ in 0..50 {
                let (token, ran) = (token.clone(), ran.clone());
                let task = Task::new("pending").inout(&buffer, words(1)).body(move |_| {
                    std::thread::sleep(Duration::from_millis(2));
                    ran.fetch_add(1, Ordering::AcqRel);
                    drop(token);
                });
                stream.submit(task).expect("room");
            }
            stream.submit(Task::new("gang").gang(workers as u32, |_| ())).expect("room");
            drop(stream);
            assert!(ran.load(Ordering::Acquire) < 50, "not everything was run");
            assert_eq!(
                Arc::strong_count(&token),
                1,
                "every body was dropped, and no thread is left"
            );
            drop(buffer);
        }
    });
}

#[test]
fn a_stream_dropped_by_its_own_task_does_not_hang() {
    ends(|| {
        let stream = Arc::new(stream(16, 2));
        let (inner, (done, ended)) = (stream.clone(), std::sync::mpsc::channel());
        let (gate, open) = std::sync::mpsc::channel::<()>();
        let task = Task::new("last owner").body(move |_| {
            let _ = open.recv_timeout(LONG);
            drop(inner);
            let _ = done.send(());
        });
        stream.submit(task).expect("room");
        drop(stream);
        gate.send(()).expect("the task waits");
        ended.recv_timeout(LONG).expect("the task ends");
    });
}

/// Throws another one whenever it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            std::panic::panic_any(Bomb);
        }
    }
}

#[test]
fn what_panics_when_it_is_dropped_ends_no_worker() {
    ends(|| {
        let stream = Stream::new(StreamOptions { workers: 1, help: false, ..Default::default() });
        let stream = stream.expect("valid options");
        let throw = |_: &mut KernelArgs<'_>| -> () { std::panic::panic_any(Bomb) };
        let thrown = stream.submit(Task::new("throws").body(throw)).expect("room");
        assert!(stream.wait_within(&thrown, LONG).is_err());
        let bomb = Bomb;
        let skipped = Task::new("skipped").after(&thrown).body(move |_| drop(bomb));
        let skipped = stream.submit(skipped).expect("room");
        assert!(stream.wait_within(&skipped, LONG).is_err());
        let bomb = Bomb;
        let blocks = stream.submit(Task::new("one block").blocks(1, move |_| _ = &bomb));
        stream.wait_within(&blocks.expect("room"), LONG).expect("the body itself went well");
        let bomb = Bomb;
        let kernel = Kernel::cpu("kernel", move |_: &mut KernelArgs<'_>| _ = &bomb);
        let task = Task::new("kernel").kernel(&kernel, &[]);
        drop(kernel);
        stream.wait_within(&stream.submit(task).expect("room"), LONG).expect("as above");
        let after = stream.submit(Task::new("after").body(|_| ())).expect("room");
        stream.wait_within(&after, LONG).expect("the worker is alive");
    });
}
