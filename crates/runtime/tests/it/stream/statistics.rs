//! What a stream says of itself, while it runs and in captures.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use syncline_runtime::stream::{Stream, StreamOptions, Task};
use syncline_trace::capture::CaptureReader;

use super::capture::File;
use super::{LONG, ends, words};

#[test]
fn a_slow_task_is_waited_for_and_the_wait_is_told_live() {
    const SLOW: Duration = Duration::from_millis(600);
    ends(|| {
        let options =
            StreamOptions { ring_tasks: 1, workers: 1, help: false, ..Default::default() };
        let stream = Stream::new(options).expect("valid options");
        stream.submit(Task::new("slow").body(|_| std::thread::sleep(SLOW))).expect("room");
        let (submitted, live) = (AtomicBool::new(false), Mutex::new(Vec::new()));
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while !submitted.load(Ordering::Acquire) {
                    live.lock().expect("no panic").push(stream.stats());
                    std::thread::sleep(SLOW / 20);
                }
            });
            // The ring is full of one task that takes long: that is no reason to give up.
            stream.submit(Task::new("next").body(|_| ())).expect("room, after a while");
            submitted.store(true, Ordering::Release);
        });
        stream.wait_all_within(LONG).expect("nothing fails");
        let live = live.into_inner().expect("no panic");
        let running = |stats: &&syncline_runtime::stream::StreamStats| stats.running == 1;
        let seen = live.iter().find(running).expect("it was seen running");
        assert_eq!((seen.done, seen.ring_tasks.now), (0, 1), "{seen:?}");
        let stats = stream.stats();
        assert!(stats.blocked_on_ring > SLOW / 2, "{stats:?}");
        assert_eq!((stats.blocked_on_heap, stats.blocked_on_edges), Default::default());
    });
}

#[test]
fn captures_say_what_was_used_at_most() {
    ends(|| {
        let options = StreamOptions { ring_tasks: 16, workers: 1, ..Default::default() };
        let stream = Stream::new(options).expect("valid options");
        let file = File::default();
        stream.start_capture(file.clone()).expect("memory");
        let gate = Arc::new(AtomicBool::new(false));
        let open = gate.clone();
        let hold = Task::new("hold").output(words(8)).body(move |_| {
            while !open.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
        });
        let hold = stream.submit(hold).expect("room");
        for _ in 0..4 {
            stream.submit(Task::new("reader").input(hold.output(0), words(8))).expect("room");
        }
        gate.store(true, Ordering::Release);
        stream.wait_all_within(LONG).expect("nothing fails");
        stream.stop_capture().expect("memory");
        let bytes = file.bytes();
        let trace = CaptureReader::read(&bytes).expect("a whole capture").trace;
        let told = trace.stats.last().expect("written when the capture ends");
        let number = |path: [&str; 2]| match path {
            [member, ""] => told[member].as_u64(),
            [member, part] => told[member][part].as_u64(),
        };
        assert_eq!((number(["submitted", ""]), number(["done", ""])), (Some(5), Some(5)), "{told}");
        assert_eq!(number(["ring_tasks", "high"]), Some(5), "{told}");
        assert_eq!(number(["edges", "high"]), Some(4), "{told}");
        assert_eq!(number(["map_entries", "high"]), Some(5), "{told}");
        assert_eq!(number(["heap_bytes", "high"]), Some(64), "{told}");
    });
}
