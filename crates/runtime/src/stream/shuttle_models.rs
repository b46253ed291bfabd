//! Whole streams whose threads `shuttle` schedules at random: submit, run, wait, help, steal, fail,
//! guard, nest and drop.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test -p syncline-runtime --release --lib shuttle_`. There is no
//! time in these runs: a wake-up that is lost, or threads that wait for each other, end as a
//! deadlock that `shuttle` reports with its schedule.

use syncline_device::Buffer;
use syncline_tensor::{Dtype, View};

use syncline_sync::shim::thread;

use super::{Cause, Stream, StreamError, StreamOptions, Task};

/// Tries `test` under as many schedules as `SYNCLINE_SCHEDULES` says, 300 unless it does.
fn explore(test: impl Fn() + Send + Sync + 'static) {
    let asked = std::env::var("SYNCLINE_SCHEDULES").ok().and_then(|text| text.parse().ok());
    shuttle::check_random(test, asked.unwrap_or(300));
}

fn stream(ring_tasks: usize, workers: usize, help: bool) -> Stream {
    let options = StreamOptions { ring_tasks, workers, help, edge_pool: 8, ..Default::default() };
    Stream::new(options).expect("valid options")
}

fn word() -> View {
    View::contiguous(Dtype::U64, &[1]).expect("small")
}

/// `buffer = 3 * buffer + number`: the order shows in the result.
fn step(buffer: &Buffer, number: u64) -> Task {
    Task::new("step").inout(buffer, word()).body(move |args| {
        args.slice_mut::<u64>(0).map(|word| word[0] = word[0].wrapping_mul(3).wrapping_add(number))
    })
}

fn expected(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().fold(0, |word, number| word * 3 + number)
}

fn read(stream: &Stream, buffer: &Buffer) -> u64 {
    stream.read(buffer).expect("nothing fails").as_slice::<u64>().expect("a word")[0]
}

#[test]
fn chains_over_a_ring_of_two_come_out_in_order_whoever_runs_them() {
    for (workers, help) in [(1, true), (2, true), (1, false)] {
        explore(move || {
            let stream = stream(2, workers, help);
            let buffers = [8, 8].map(|bytes| stream.buffer(bytes).expect("small"));
            for number in 0..4 {
                buffers.iter().for_each(|buffer| {
                    stream.submit(step(buffer, number)).expect("there will be room");
                });
            }
            stream.wait_all().expect("nothing fails");
            buffers.iter().for_each(|buffer| assert_eq!(read(&stream, buffer), expected(0..4)));
        });
    }
}

#[test]
fn two_submitters_and_a_waiter_for_one_task() {
    explore(|| {
        let stream = std::sync::Arc::new(stream(4, 1, true));
        let buffers = [8, 8].map(|bytes| stream.buffer(bytes).expect("small"));
        let threads = buffers.clone().map(|buffer| {
            let stream = stream.clone();
            thread::spawn(move || {
                let mut last = None;
                for number in 0..3 {
                    last = Some(stream.submit(step(&buffer, number)).expect("there will be room"));
                }
                stream.wait(&last.expect("three were submitted")).expect("nothing fails");
            })
        });
        for thread in threads {
            thread.join().expect("no panic");
        }
        buffers.iter().for_each(|buffer| assert_eq!(read(&stream, buffer), expected(0..3)));
    });
}

#[test]
fn a_guard_holds_up_what_comes_after_it_and_is_awaited_by_others() {
    explore(|| {
        let stream = std::sync::Arc::new(stream(4, 1, true));
        let buffer = stream.buffer(8).expect("small");
        stream.submit(step(&buffer, 1)).expect("room");
        let other = {
            let (stream, buffer) = (stream.clone(), buffer.clone());
            thread::spawn(move || {
                let mut guard = stream.write(&buffer).expect("nothing fails");
                let word = &mut guard.as_mut_slice::<u64>().expect("a word")[0];
                *word += 10;
            })
        };
        other.join().expect("no panic");
        stream.submit(step(&buffer, 2)).expect("room");
        assert_eq!(read(&stream, &buffer), (1 + 10) * 3 + 2);
        stream.wait_all().expect("nothing fails");
    });
}

#[test]
fn a_failure_reaches_every_dependant_and_nothing_else() {
    explore(|| {
        let stream = stream(3, 2, true);
        let (sick, sound) = (stream.buffer(8).expect("small"), stream.buffer(8).expect("small"));
        let failing = Task::new("fails").inout(&sick, word()).body(|_| Err::<(), _>("on purpose"));
        let failing = stream.submit(failing).expect("room");
        let after = stream.submit(step(&sick, 1)).expect("room");
        for number in 0..3 {
            stream.submit(step(&sound, number)).expect("room");
        }
        let error = stream.wait(&after).expect_err("it depends on the failure");
        assert_eq!(error.failure().map(|failure| failure.task), Some(failing.id()), "{error}");
        assert_eq!(read(&stream, &sound), expected(0..3));
        let error = stream.wait_all().expect_err("it is reported once");
        assert!(
            matches!(&error, StreamError::TaskFailed { failure, .. }
            if failure.cause == Cause::Failed("on purpose".into())),
            "{error}"
        );
        stream.submit(step(&sick, 1)).expect("the stream stays usable");
        stream.wait_all().expect("forgotten once reported");
    });
}

#[test]
fn parents_wait_for_their_children_and_gangs_for_each_other() {
    explore(|| {
        let stream = stream(4, 2, true);
        let buffer = stream.buffer(8).expect("small");
        let inner = buffer.clone();
        let parent = Task::new("parent").inout(&buffer, word()).parent(move |task| {
            for number in 0..3 {
                task.submit(step(&inner, number))?;
            }
            Ok::<(), StreamError>(())
        });
        stream.submit(parent).expect("room");
        for _ in 0..2 {
            stream.submit(Task::new("gang").gang(2, |_| ())).expect("room");
        }
        stream.submit(step(&buffer, 3)).expect("room");
        assert_eq!(read(&stream, &buffer), expected(0..4));
        stream.wait_all().expect("nothing fails");
    });
}

#[test]
fn a_stream_that_is_dropped_ends_whatever_is_in_it() {
    explore(|| {
        let stream = stream(4, 2, true);
        let buffer = stream.buffer(8).expect("small");
        for number in 0..4 {
            stream.submit(step(&buffer, number)).expect("room");
        }
        let scope = stream.scope("cancelled");
        scope.submit(step(&buffer, 9)).expect("room");
        scope.cancel();
        drop(scope);
        drop(stream);
    });
}
