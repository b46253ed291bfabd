//! Tasks that submit tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use syncline_device::Buffer;

use syncline_device::KernelArgs;
use syncline_runtime::stream::{StreamError, Task, TaskContext};

use super::{LONG, ends, read, stream, words};

fn add(buffer: &Buffer, amount: u64) -> Task {
    Task::new("add").inout(buffer, words(1)).body(move |args| {
        args.slice_mut::<u64>(0).map(|word| word[0] = word[0].wrapping_mul(3).wrapping_add(amount))
    })
}

#[test]
fn more_children_than_any_ring_holds_run_in_order() {
    ends(|| {
        for (ring, workers) in [(2, 1), (4, 1), (4, 3), (1024, 2)] {
            let stream = stream(ring, workers);
            let buffer = stream.buffer(8).expect("small");
            for _ in 0..6 {
                let inner = buffer.clone();
                let parent = Task::new("parent").inout(&buffer, words(1)).parent(move |task| {
                    (0..500).try_for_each(|amount| task.submit(add(&inner, amount)).map(drop))
                });
                stream.submit(parent).expect("room");
            }
            let once = |word: u64| {
                (0..500).fold(word, |word, amount| word.wrapping_mul(3).wrapping_add(amount))
            };
            let expected = (0..6).fold(0, |word, _| once(word));
            assert_eq!(read(&stream, &buffer), [expected], "ring {ring}, {workers} workers");
        }
    });
}

#[test]
fn children_with_more_edges_than_the_pool_holds_all_run() {
    ends(|| {
        let stream = stream(1024, 1);
        let ran = Arc::new(AtomicUsize::new(0));
        let counted = ran.clone();
        let task = stream.submit(Task::new("parent").parent(move |task| {
            let child = |counted: &Arc<AtomicUsize>| {
                let counted = counted.clone();
                Task::new("child").body(move |_| _ = counted.fetch_add(1, Ordering::Relaxed))
            };
            let firsts = (0..60).map(|_| task.submit(child(&counted)));
            let firsts = firsts.collect::<Result<Vec<_>, _>>()?;
            for _ in 0..60 {
                task.submit(firsts.iter().fold(child(&counted), Task::after))?;
            }
            Ok::<(), StreamError>(())
        }));
        stream.wait_within(&task.expect("room"), LONG).expect("all children fit");
        assert_eq!(ran.load(Ordering::Relaxed), 120);
    });
}

/// Adds one to the buffer at every leaf of a binary tree of tasks.
fn tree(task: &mut TaskContext<'_>, buffer: &Buffer, depth: u32) -> Result<(), StreamError> {
    if depth == 0 {
        let args = task.args();
        if let Ok(words) = args.slice_mut::<u64>(0) {
            words[0] += 1;
        }
        return Ok(());
    }
    for _ in 0..2 {
        let inner = buffer.clone();
        let child = Task::new("node").inout(buffer, words(1));
        task.submit(child.parent(move |task| tree(task, &inner, depth - 1)))?;
    }
    Ok(())
}

#[test]
fn eight_levels_of_scopes_end_with_one_worker_and_with_three() {
    ends(|| {
        for workers in [1, 3] {
            let stream = stream(4, workers);
            let buffer = stream.buffer(8).expect("small");
            for _ in 0..4 {
                let inner = buffer.clone();
                let root = Task::new("root").inout(&buffer, words(1));
                stream.submit(root.parent(move |task| tree(task, &inner, 8))).expect("room");
            }
            assert_eq!(read(&stream, &buffer), [4 * 256]);
        }
    });
}

#[test]
fn outputs_of_children_are_for_siblings_and_last_until_the_parent_ends() {
    ends(|| {
        let stream = stream(8, 2);
        let buffer = stream.buffer(8).expect("small");
        let inner = buffer.clone();
        let (send, escaped) = std::sync::mpsc::channel();
        let (go_on, wait) = std::sync::mpsc::channel::<()>();
        let parent = Task::new("parent").inout(&buffer, words(1)).parent(move |task| {
            let made = task.submit(
                Task::new("make")
                    .output(words(1))
                    .body(|args| args.slice_mut::<u64>(0).map(|word| word[0] = 41)),
            )?;
            let output = made.output(0).clone();
            task.submit(Task::new("use").input(&output, words(1)).inout(&inner, words(1)).body(
                |args| {
                    let word = args.slice::<u64>(0)?[0];
                    args.slice_mut::<u64>(1).map(|sum| sum[0] = word + 1)
                },
            ))?;
            let _ = send.send(output);
            let _ = wait.recv_timeout(LONG);
            Ok::<(), StreamError>(())
        });
        let parent = stream.submit(parent).expect("room");
        let output = escaped.recv_timeout(LONG).expect("the parent sends it");
        assert!(
            stream.submit(Task::new("spy").input(&output, words(1))).is_err(),
            "the parent is running"
        );
        go_on.send(()).expect("the parent waits");
        stream.wait_within(&parent, LONG).expect("nothing fails");
        assert_eq!(read(&stream, &buffer), [42]);
        assert_eq!(read(&stream, &output), [41], "it is anybody's now");
        drop((output, parent));
        stream.wait_all_within(LONG).expect("nothing fails");
        assert_eq!(stream.stats().heap_bytes.now, 0);
    });
}

#[test]
fn children_may_touch_only_what_their_parent_has() {
    ends(|| {
        let stream = stream(8, 1);
        let (own, other) = (stream.buffer(16).expect("small"), stream.buffer(8).expect("small"));
        let (inner, stranger) = (own.clone(), other.clone());
        let first = words(2).slice(0, 0..1).expect("inside");
        let parent = Task::new("parent").input(&own, first).parent(move |task| {
            let refused = [
                task.submit(Task::new("stranger").input(&stranger, words(1))),
                task.submit(Task::new("writer").inout(&inner, first)),
                task.submit(Task::new("wider").input(&inner, words(2))),
            ];
            for error in
                refused.into_iter().map(|refused| refused.map(drop).expect_err("not covered"))
            {
                assert!(matches!(error, StreamError::NotCovered { .. }), "{error}");
            }
            task.submit(Task::new("reader").input(&inner, first)).map(drop)
        });
        let parent = stream.submit(parent).expect("room");
        stream.wait_within(&parent, LONG).expect("all were refused but the last");
    });
}

#[test]
fn a_child_that_fails_fails_its_siblings_that_depend_on_it_and_its_parent() {
    ends(|| {
        let stream = stream(8, 2);
        let (buffer, other) = (stream.buffer(8).expect("small"), stream.buffer(8).expect("small"));
        let (inner, ran) = (buffer.clone(), Arc::new(AtomicUsize::new(0)));
        let (apart, count) = (other.clone(), ran.clone());
        let task = Task::new("parent").inout(&buffer, words(1)).inout(&other, words(1));
        let parent = task.parent(move |task| {
            task.submit(Task::new("bad").inout(&inner, words(1)).body(|_| Err::<(), _>("child")))?;
            let counts = |count: &Arc<AtomicUsize>| {
                let count = count.clone();
                move |_: &mut KernelArgs<'_>| _ = count.fetch_add(1, Ordering::AcqRel)
            };
            task.submit(Task::new("after").inout(&inner, words(1)).body(counts(&count)))?;
            task.submit(Task::new("apart").inout(&apart, words(1)).body(counts(&count)))?;
            assert!(task.wait().is_err(), "the parent can see it");
            Ok::<(), StreamError>(())
        });
        let parent = stream.submit(parent).expect("room");
        let error = stream.wait_within(&parent, LONG).expect_err("its child failed");
        assert_eq!(error.failure().map(|failure| failure.name.as_ref()), Some("bad"));
        assert_eq!(ran.load(Ordering::Acquire), 1, "only the one apart");
        assert!(stream.wait_all_within(LONG).is_err());
        let inner = buffer.clone();
        let again = Task::new("again").inout(&buffer, words(1));
        let again = stream.submit(again.parent(move |task| task.submit(add(&inner, 1)).map(drop)));
        stream.wait_within(&again.expect("room"), LONG).expect("nothing is left of the failure");
    });
}

#[test]
fn blocks_and_gangs_inside_tasks_end_though_all_workers_are_parents() {
    ends(|| {
        let stream = stream(16, 2);
        let total = Arc::new(AtomicUsize::new(0));
        for _ in 0..6 {
            let total = total.clone();
            let parent = Task::new("parent").parent(move |task| {
                let (arrived, sum) = (AtomicUsize::new(0), total.clone());
                task.submit(Task::new("gang").gang(2, move |_| {
                    arrived.fetch_add(1, Ordering::AcqRel);
                    let start = std::time::Instant::now();
                    while arrived.load(Ordering::Acquire) < 2 {
                        if start.elapsed() > LONG {
                            return Err("the other never came");
                        }
                        std::thread::yield_now();
                    }
                    sum.fetch_add(1, Ordering::AcqRel);
                    Ok(())
                }))?;
                let sum = total.clone();
                task.submit(
                    Task::new("blocks").blocks(5, move |_| _ = sum.fetch_add(1, Ordering::AcqRel)),
                )?;
                Ok::<(), StreamError>(())
            });
            stream.submit(parent).expect("room");
        }
        stream.wait_all_within(LONG).expect("nobody waits for ever");
        assert_eq!(total.load(Ordering::Acquire), 6 * 7);
    });
}
