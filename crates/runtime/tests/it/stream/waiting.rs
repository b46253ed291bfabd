//! What a thread does while it waits, deadlines, and cancelling.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use syncline_device::CancelToken;
use syncline_runtime::stream::{
    Scope, ScopeOptions, Stream, StreamError, StreamOptions, Task, TaskHandle,
};

use super::{LONG, ends, stream, words};

/// A flag that bodies wait for.
#[derive(Clone, Default)]
struct Gate(Arc<AtomicBool>);

impl Gate {
    fn open(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn wait(&self) {
        while !self.0.load(Ordering::Acquire) {
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }
}

/// Keeps a worker of `stream` busy until the gate opens.
fn occupy(stream: &Stream) -> (TaskHandle, Gate) {
    let (gate, begun) = (Gate::default(), Gate::default());
    let (inner, flag) = (gate.clone(), begun.clone());
    let busy = Task::new("busy").body(move |_| {
        flag.open();
        inner.wait();
    });
    let busy = stream.submit(busy).expect("room");
    begun.wait();
    (busy, gate)
}

/// The stream's worker helps nobody: only the calling thread can run anything.
fn occupied() -> (Stream, TaskHandle, Gate) {
    let options = StreamOptions { ring_tasks: 64, workers: 1, ..Default::default() };
    let stream = Stream::new(options).expect("valid options");
    let (busy, gate) = occupy(&stream);
    (stream, busy, gate)
}

#[test]
fn a_waiter_begins_no_other_task_once_its_own_has_ended() {
    ends(|| {
        let (stream, _, gate) = occupied();
        let ran = Arc::new(AtomicUsize::new(0));
        let awaited = stream.submit(Task::new("awaited").body(|_| ())).expect("room");
        for _ in 0..20 {
            let ran = ran.clone();
            let other = Task::new("other").body(move |_| _ = ran.fetch_add(1, Ordering::AcqRel));
            stream.submit(other).expect("room");
        }
        stream.wait(&awaited).expect("it does not fail");
        assert_eq!(ran.load(Ordering::Acquire), 0, "these could have taken an hour each");
        let scope = stream.scope("after the others");
        scope.submit(Task::new("awaited").body(|_| ())).expect("room");
        let late = ran.clone();
        let other = Task::new("other").body(move |_| _ = late.fetch_add(1, Ordering::AcqRel));
        stream.submit(other).expect("room");
        scope.finish().expect("it does not fail");
        assert_eq!(ran.load(Ordering::Acquire), 20, "what came before it, and nothing behind it");
        gate.open();
        stream.wait_all_within(LONG).expect("nothing fails");
    });
}

#[test]
fn a_waiter_for_everything_begins_nothing_that_was_submitted_later() {
    ends(|| {
        let (stream, _, gate) = occupied();
        let [begun, ready, late_begun, end] = std::array::from_fn(|_| Gate::default());
        let (inner, outer) = (begun.clone(), ready.clone());
        let last = Task::new("last").body(move |_| {
            inner.open();
            outer.wait();
        });
        stream.submit(last).expect("room");
        std::thread::scope(|threads| {
            let waiter = threads.spawn(|| stream.wait_all());
            begun.wait();
            for _ in 0..20 {
                let (late_begun, end) = (late_begun.clone(), end.clone());
                let late = Task::new("late").body(move |_| {
                    late_begun.open();
                    end.wait();
                });
                stream.submit(late).expect("room");
            }
            // The worker turns to one of these; the waiter must not, or it would never return.
            gate.open();
            late_begun.wait();
            ready.open();
            waiter.join().expect("it does not panic").expect("nothing fails");
            end.open();
        });
        stream.wait_all_within(LONG).expect("nothing fails");
    });
}

#[test]
fn a_waiter_begins_no_task_after_its_deadline() {
    ends(|| {
        type Wait = fn(&Stream, &TaskHandle, Duration) -> Result<(), StreamError>;
        let waits: [Wait; 5] = [
            |stream, task, soon| stream.wait_within(task, soon),
            |stream, _, soon| stream.wait_all_within(soon),
            |stream, task, soon| stream.read_within(task.output(0), soon).map(drop),
            |stream, task, soon| stream.write_within(task.output(0), soon).map(drop),
            |stream, busy, soon| {
                let options = ScopeOptions::default().with_deadline(soon);
                let scope = stream.scope_with("late", options);
                scope.submit(Task::new("behind").after(busy).body(|_| ()))?;
                scope.finish()
            },
        ];
        for wait in waits {
            let (stream, busy, gate) = occupied();
            let behind = Task::new("behind").after(&busy).output(words(1)).body(|_| ());
            let behind = stream.submit(behind).expect("room");
            let ran = Arc::new(AtomicUsize::new(0));
            for _ in 0..20 {
                let ran = ran.clone();
                let long = Task::new("long").body(move |_| {
                    ran.fetch_add(1, Ordering::AcqRel);
                    std::thread::sleep(Duration::from_millis(40));
                });
                stream.submit(long).expect("room");
            }
            let error = wait(&stream, &behind, Duration::from_millis(20)).expect_err("too early");
            assert!(
                matches!(error, StreamError::TimedOut { .. } | StreamError::ScopeDeadline { .. }),
                "{error}"
            );
            assert!(ran.load(Ordering::Acquire) <= 1, "one body runs past the deadline at most");
            gate.open();
            stream.wait_within(&behind, LONG).expect("it goes on");
        }
    });
}

/// A task with children that have children, `levels` deep. Each level notes that it has begun,
/// waits for the gate, and then goes on submitting for as long as it may.
fn family(levels: u32, begun: &Arc<AtomicUsize>, gate: &Gate, late: &Arc<AtomicUsize>) -> Task {
    let (begun, gate, late) = (begun.clone(), gate.clone(), late.clone());
    Task::new("family").parent(move |task| {
        begun.fetch_add(1, Ordering::AcqRel);
        if levels > 0 {
            task.submit(family(levels - 1, &begun, &gate, &late))?;
        }
        if levels == 0 {
            gate.wait();
        } else {
            // Runs the child, which waits for the gate.
            task.args();
        }
        for _ in 0..10 {
            let late = late.clone();
            let child = Task::new("late").body(move |_| _ = late.fetch_add(1, Ordering::AcqRel));
            task.submit(child)?;
        }
        Ok::<(), StreamError>(())
    })
}

#[test]
fn cancelling_a_scope_reaches_children_of_children_and_is_not_waited_for() {
    ends(|| {
        type Cancel = fn(&Scope<'_>, &CancelToken);
        let cancels: [Cancel; 2] = [|scope, _| scope.cancel(), |_, token| token.cancel()];
        for cancel in cancels {
            let options = StreamOptions { workers: 1, help: false, ..Default::default() };
            let stream = Stream::new(options).expect("valid options");
            let token = CancelToken::new();
            let options = ScopeOptions::default().with_cancel(&token);
            let scope = stream.scope_with("doomed", options);
            let (gate, late) = (Gate::default(), Arc::new(AtomicUsize::new(0)));
            let begun = Arc::new(AtomicUsize::new(0));
            let parent = scope.submit(family(2, &begun, &gate, &late)).expect("room");
            while begun.load(Ordering::Acquire) < 3 {
                std::thread::yield_now();
            }
            cancel(&scope, &token);
            let error = scope.finish().expect_err("cancelled");
            assert!(matches!(error, StreamError::ScopeCancelled { .. }), "{error}");
            assert!(stream.stats().done == 0, "it did not wait for what is running");
            gate.open();
            let error = stream.wait_within(&parent, LONG).expect_err("it was refused children");
            assert!(error.failure().is_some_and(|it| it.cause.is_cancellation()), "{error}");
            assert_eq!(late.load(Ordering::Acquire), 0, "no child begins after the cancel");
            stream.wait_all_within(LONG).expect("what was cancelled is no failure");
        }
    });
}

#[test]
fn a_cancel_ends_a_finish_that_sleeps_and_a_submission_that_waits_for_room() {
    ends(|| {
        let options =
            StreamOptions { ring_tasks: 2, workers: 1, help: false, ..Default::default() };
        let stream = Stream::new(options).expect("valid options");
        let (busy, gate) = occupy(&stream);
        let scope = stream.scope("doomed");
        scope.submit(Task::new("behind").after(&busy)).expect("room");
        let token = scope.cancel_token().clone();
        let error = std::thread::scope(|threads| {
            threads.spawn(move || {
                std::thread::sleep(Duration::from_millis(20));
                token.cancel();
            });
            scope.submit(Task::new("no room")).expect_err("the ring stays full")
        });
        assert!(matches!(error, StreamError::ScopeCancelled { .. }), "{error}");
        drop(scope);
        let soon = ScopeOptions::default().with_deadline(Duration::from_millis(20));
        let scope = stream.scope_with("late", soon);
        let error = scope.submit(Task::new("no room")).expect_err("the ring stays full");
        assert!(matches!(error, StreamError::ScopeDeadline { .. }), "{error}");
        gate.open();
        stream.wait_all_within(LONG).expect("nothing fails");
        let (_, gate) = occupy(&stream);
        let scope = stream.scope("asleep");
        scope.submit(Task::new("queued").body(|_| ())).expect("room");
        let token = scope.cancel_token().clone();
        std::thread::scope(|threads| {
            threads.spawn(move || {
                std::thread::sleep(Duration::from_millis(20));
                token.cancel();
            });
            assert!(matches!(scope.finish(), Err(StreamError::ScopeCancelled { .. })));
        });
        gate.open();
        stream.wait_all_within(LONG).expect("what was cancelled is no failure");
    });
}

#[test]
fn a_stream_that_is_dropped_runs_no_task_of_a_scope_either() {
    ends(|| {
        let stream = stream(64, 1);
        let (_, gate) = occupy(&stream);
        let ran = Arc::new(AtomicUsize::new(0));
        let scope = stream.scope("left behind");
        for _ in 0..20 {
            let ran = ran.clone();
            let task = Task::new("pending").body(move |_| _ = ran.fetch_add(1, Ordering::AcqRel));
            scope.submit(task).expect("room");
        }
        drop(scope);
        let opener = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            gate.open();
        });
        drop(stream);
        opener.join().expect("no panic");
        assert_eq!(ran.load(Ordering::Acquire), 0);
    });
}
