//! Waits that could never end, and waits that only look like it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::Duration;
use syncline_device::Buffer;

use syncline_device::Deadline;
use syncline_device::cpu::CpuDevice;
use syncline_runtime::stream::{
    ScopeOptions, Stream, StreamError, StreamOptions, Task, TaskHandle,
};
use syncline_testing::for_seeds;

use super::{LONG, ends, stream, words};

fn word(stream: &Stream) -> Buffer {
    stream.buffer(8).expect("small")
}

/// Runs both on threads of their own, and returns what they found when both have ended.
fn both<T: Send>(one: impl FnOnce() -> T + Send, other: impl FnOnce() -> T + Send) -> [T; 2] {
    thread::scope(|threads| {
        let (one, other) = (threads.spawn(one), threads.spawn(other));
        [one.join().expect("no panic"), other.join().expect("no panic")]
    })
}

/// Asserts that one of the two was told, and returns its error.
fn one_is_told(outcomes: [Result<(), StreamError>; 2]) -> StreamError {
    match outcomes {
        [Err(error), Ok(())] | [Ok(()), Err(error)] => error,
        outcomes => panic!("{outcomes:?}"),
    }
}

#[test]
fn guards_crossed_over_two_streams_end_with_an_error() {
    ends(|| {
        let streams = [stream(16, 1), stream(16, 1)];
        let buffers = [word(&streams[0]), word(&streams[1])];
        let barrier = Barrier::new(2);
        let open = |mine: usize, theirs: usize| {
            let guard = streams[mine].write(&buffers[mine]).expect("nothing holds it");
            barrier.wait();
            let opened = streams[theirs].write(&buffers[theirs]).map(drop);
            drop(guard);
            opened
        };
        let error = one_is_told(both(|| open(0, 1), || open(1, 0)));
        assert!(matches!(error, StreamError::WaitsInCircle { .. }), "{error}");
        streams.iter().for_each(|stream| stream.wait_all_within(LONG).expect("nothing is left"));
    });
}

#[test]
fn guards_held_while_both_threads_wait_for_room_end_with_an_error() {
    ends(|| {
        let stream = stream(4, 1);
        let (first, second) = (word(&stream), word(&stream));
        let (holds, full) = (Barrier::new(2), Barrier::new(2));
        let outcomes = both(
            || {
                let guard = stream.write(&first).expect("nothing holds it");
                holds.wait();
                // Two guards and two tasks behind this one: the ring is full.
                for _ in 0..2 {
                    stream.submit(Task::new("behind").inout(&first, words(1))).expect("room");
                }
                full.wait();
                let opened = stream.write(&second).map(drop);
                drop(guard);
                opened
            },
            || {
                let guard = stream.write(&second).expect("nothing holds it");
                holds.wait();
                full.wait();
                let submitted = stream.submit(Task::new("no room")).map(drop);
                drop(guard);
                submitted
            },
        );
        let error = one_is_told(outcomes);
        assert!(matches!(error, StreamError::WaitsInCircle { .. }), "{error}");
        stream.wait_all_within(LONG).expect("nothing is left");
    });
}

#[test]
fn a_guard_and_a_map_of_a_device_crossed_end_with_an_error() {
    ends(|| {
        let (stream, device) = (stream(16, 1), CpuDevice::open_default().expect("a CPU"));
        let (guarded, mapped) = (word(&stream), device.buffer(64));
        let barrier = Barrier::new(2);
        let outcomes = both(
            || {
                let guard = stream.write(&guarded).expect("nothing holds it");
                barrier.wait();
                let read = mapped.read::<u8>(0, 1).map(drop).is_ok();
                drop(guard);
                read
            },
            || {
                let map = mapped.map_mut(Deadline::NEVER).expect("nothing holds it");
                barrier.wait();
                let opened = stream.write(&guarded).map(drop).is_ok();
                drop(map);
                opened
            },
        );
        assert_eq!(outcomes.iter().filter(|is_ok| !**is_ok).count(), 1, "one is told");
    });
}

#[test]
fn a_guard_that_a_thread_forgot_and_took_along_is_not_waited_for() {
    ends(|| {
        let stream = stream(16, 1);
        let buffer = word(&stream);
        let (leave, gate) = mpsc::channel::<()>();
        thread::scope(|threads| {
            let (opened, has_opened) = mpsc::channel();
            let (stream, buffer) = (&stream, &buffer);
            let holder = threads.spawn(move || {
                std::mem::forget(stream.write(buffer).expect("nothing holds it"));
                let _ = opened.send(());
                let _ = gate.recv();
            });
            has_opened.recv().expect("it opens");
            let waiter = threads.spawn(|| stream.read(buffer).map(drop));
            // It sleeps by now, most probably; the outcome is the same.
            thread::sleep(Duration::from_millis(20));
            drop(leave);
            holder.join().expect("no panic");
            let told = waiter.join().expect("no panic");
            assert!(matches!(told, Err(StreamError::WaitsInCircle { .. })), "{told:?}");
        });
        assert!(matches!(stream.wait_all(), Err(StreamError::WaitsInCircle { .. })));
    });
}

#[test]
fn tasks_that_wait_for_each_other_over_two_streams_end_with_an_error() {
    ends(|| {
        for workers in [1, 2] {
            let streams = [Arc::new(stream(16, workers)), Arc::new(stream(16, workers))];
            let (senders, handles): (Vec<_>, Vec<_>) =
                (0..2).map(|_| mpsc::channel::<TaskHandle>()).unzip();
            let mut handles = handles.into_iter();
            let submit = |own: usize, handle: mpsc::Receiver<TaskHandle>| {
                let other = streams[1 - own].clone();
                let task = Task::new("waits").body(move |_| {
                    let awaited = handle.recv_timeout(LONG).map_err(|error| error.to_string())?;
                    other.wait(&awaited).map_err(|error| error.to_string())
                });
                streams[own].submit(task).expect("room")
            };
            let tasks: Vec<_> =
                (0..2).map(|own| submit(own, handles.next().expect("two"))).collect();
            for (sender, awaited) in senders.iter().zip([&tasks[1], &tasks[0]]) {
                sender.send(awaited.clone()).expect("it waits for that");
            }
            let outcomes: Vec<_> = (streams.iter().zip(&tasks))
                .map(|(stream, task)| stream.wait_within(task, LONG))
                .collect();
            // One wait is refused; its task fails, and so does the other one, which waits for that
            // task.
            assert!(outcomes.iter().all(|outcome| match outcome {
                Err(error) => error.failure().is_some(),
                Ok(()) => false,
            }));
        }
    });
}

#[test]
fn what_a_task_may_wait_for_in_its_own_stream() {
    ends(|| {
        for help in [true, false] {
            let options = StreamOptions { ring_tasks: 64, workers: 1, help, ..Default::default() };
            let stream = Arc::new(Stream::new(options).expect("valid options"));
            let (own, other) = (word(&stream), word(&stream));
            let (send, handles) = mpsc::channel::<[TaskHandle; 3]>();
            let (inner, written, free) = (stream.clone(), own.clone(), other.clone());
            let task = Task::new("waits").inout(&own, words(1)).body(move |_| {
                let [itself, behind, unrelated] =
                    handles.recv_timeout(LONG).map_err(|error| error.to_string())?;
                inner.wait(&unrelated).map_err(|error| error.to_string())?;
                let opened = inner.write(&free).map_err(|error| error.to_string())?;
                let is_inside = |outcome: Result<(), StreamError>| {
                    matches!(outcome, Err(StreamError::InsideTask { .. }))
                };
                let refused = [
                    is_inside(inner.wait(&itself)),
                    is_inside(inner.wait(&behind)),
                    is_inside(inner.read(&written).map(drop)),
                    matches!(inner.wait_all(), Err(StreamError::WaitsForOwnGuard { .. })),
                    is_inside(inner.submit(Task::new("from inside")).map(drop)),
                ];
                drop(opened);
                let everything = is_inside(inner.wait_all());
                if refused == [true; 5] && everything {
                    Ok(())
                } else {
                    Err(format!("{refused:?} {everything}"))
                }
            });
            let itself = stream.submit(task).expect("room");
            let behind = Task::new("behind").inout(&own, words(1)).body(|_| ());
            let behind = stream.submit(behind).expect("room");
            let unrelated = stream.submit(Task::new("unrelated").body(|_| ())).expect("room");
            send.send([itself.clone(), behind, unrelated]).expect("it waits");
            stream.wait_within(&itself, LONG).expect("as it should be");
            stream.wait_all_within(LONG).expect("nothing fails");
        }
    });
}

#[test]
fn a_task_that_excludes_another_one_may_not_wait_for_what_is_behind_that() {
    ends(|| {
        let stream = Arc::new(stream(16, 2));
        let buffer = word(&stream);
        let (send, handles) = mpsc::channel::<TaskHandle>();
        let inner = stream.clone();
        let commutes =
            |task: Task| task.arg(syncline_tensor::Access::Commutative, &buffer, words(1));
        let holder = commutes(Task::new("holder")).body(move |_| {
            let awaited = handles.recv_timeout(LONG).map_err(|error| error.to_string())?;
            match inner.wait(&awaited) {
                Err(StreamError::InsideTask { .. }) => Ok(()),
                outcome => Err(format!("{outcome:?}")),
            }
        });
        let holder = stream.submit(holder).expect("room");
        let aside = stream.submit(commutes(Task::new("aside")).body(|_| ())).expect("room");
        let behind = stream.submit(Task::new("behind").after(&aside)).expect("room");
        send.send(behind).expect("it waits");
        stream.wait_within(&holder, LONG).expect("it was told");
        stream.wait_all_within(LONG).expect("nothing fails");
    });
}

/// Every task waits, while it runs, for tasks that were submitted before it, to either stream, or
/// opens what they wrote. No such wait is in a circle, so that none may be refused, whichever
/// thread runs what.
#[test]
fn waits_of_tasks_for_earlier_tasks_of_two_streams_all_succeed() {
    ends(|| {
        for_seeds("waits_of_tasks_for_earlier_tasks_of_two_streams", 40, |rng| {
            let workers = [1 + rng.below(2), 1 + rng.below(3)];
            let streams = workers.map(|workers| Arc::new(stream(64, workers)));
            let gates: [Arc<AtomicBool>; 2] = Default::default();
            for (stream, gate) in streams.iter().zip(&gates) {
                // So that much is submitted before anything runs.
                let gate = gate.clone();
                let hold = Task::new("hold").body(move |_| {
                    while !gate.load(Ordering::Acquire) {
                        thread::yield_now();
                    }
                });
                stream.submit(hold).expect("room");
            }
            let chain = [word(&streams[0]), word(&streams[1])];
            let mut earlier: Vec<(usize, TaskHandle, Buffer)> = Vec::new();
            for number in 0..30u64 {
                let own = rng.below(2);
                let mut awaited = Vec::new();
                for _ in 0..rng.below(3).min(earlier.len()) {
                    let (of, handle, buffer) = rng.pick(&earlier).clone();
                    awaited.push((streams[of].clone(), handle, buffer, rng.one_in(2)));
                }
                let buffer = word(&streams[own]);
                let mut task = Task::new("waits").inout(&buffer, words(1));
                if rng.one_in(3) {
                    task = task.inout(&chain[own], words(1));
                }
                let task = task.body(move |args| {
                    for (stream, handle, buffer, opens) in &awaited {
                        let waited = match opens {
                            true => stream.read(buffer).map(drop),
                            false => stream.wait(handle),
                        };
                        waited.map_err(|error| format!("task {number}: {error}"))?;
                    }
                    let own = args.slice_mut::<u64>(0).map(|word| word[0] = number);
                    own.map_err(|error| error.to_string())
                });
                let handle = streams[own].submit(task).expect("room");
                earlier.push((own, handle, buffer));
            }
            gates.iter().for_each(|gate| gate.store(true, Ordering::Release));
            for stream in &streams {
                stream.wait_all_within(LONG).expect("no wait is refused");
            }
        });
    });
}

#[test]
fn a_scope_behind_a_guard_of_a_thread_that_waits_for_it_is_told() {
    ends(|| {
        let streams = [stream(16, 1), stream(16, 1)];
        let buffers = [word(&streams[0]), word(&streams[1])];
        let barrier = Barrier::new(2);
        let finish = |mine: usize, theirs: usize| {
            let guard = streams[mine].write(&buffers[mine]).expect("nothing holds it");
            barrier.wait();
            let scope = streams[theirs].scope_with("behind", ScopeOptions::default());
            scope.submit(Task::new("behind").inout(&buffers[theirs], words(1))).expect("room");
            let finished = scope.finish();
            drop(guard);
            finished
        };
        let error = one_is_told(both(|| finish(0, 1), || finish(1, 0)));
        assert!(matches!(error, StreamError::WaitsInCircle { .. }), "{error}");
    });
}
