//! A stream that was captured replays offline to the complete set of edges, by brute force.

use std::io::Write;
use std::sync::{Arc, Mutex};

use syncline_deps::{OracleLimits, SubmitOptions, check_edges, full_graph};
use syncline_runtime::stream::{Stream, StreamError, StreamOptions, Task};
use syncline_testing::for_seeds;
use syncline_trace::capture::CaptureReader;
use syncline_trace::replay;

use super::program::{Features, Program, initial};
use super::{LONG, ends, stream, words};

/// A capture's bytes, which outlive the stream's hold on them.
#[derive(Clone, Default)]
pub struct File(Arc<Mutex<Vec<u8>>>);

impl File {
    /// What was written so far.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.lock().expect("no panic").clone()
    }
}

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_captured_run_replays_to_every_edge_also_to_tasks_that_had_ended() {
    ends(|| {
        for_seeds("a_captured_run_replays_to_every_edge", 40, |rng| {
            let features =
                Features { manual: true, children: true, outputs: true, failures: false };
            let program = Program::random(rng, 40, features);
            // A ring of four: nearly every predecessor has ended and was forgotten before its
            // successor comes.
            let options = StreamOptions { ring_tasks: 4, workers: 2, ..Default::default() };
            let stream = Stream::new(options).expect("valid options");
            let make = |buffer| stream.buffer_of(&initial(buffer)).expect("small");
            let buffers: Vec<_> = (0..program.buffers).map(make).collect();
            stream
                .submit(Task::new("before the capture").inout(&buffers[0], words(1)))
                .expect("room");
            let file = File::default();
            stream.start_capture(file.clone()).expect("memory");
            program.submit(&stream, &buffers);
            stream.wait_all_within(LONG).expect("nothing fails");
            assert!(stream.stop_capture().expect("memory"), "it was on");
            stream.submit(Task::new("after it").inout(&buffers[0], words(1))).expect("room");
            let bytes = file.bytes();
            let trace = CaptureReader::read(&bytes).expect("a whole capture").trace;
            assert_eq!(trace.tasks.len(), program.steps.len());
            let replayed =
                replay(&trace, SubmitOptions::default()).expect("it was accepted before");
            let report = check_edges(&trace, &replayed.graph, OracleLimits::default());
            assert!(report.as_ref().is_ok_and(|report| report.is_clean()), "{report:?}");
            let full = full_graph(&trace, OracleLimits::default()).expect("small");
            let report = check_edges(&trace, &full, OracleLimits::default());
            assert!(report.is_ok_and(|report| report.is_clean()));
        });
    });
}

#[test]
fn a_capture_that_cannot_be_written_does_not_stop_the_stream() {
    struct Full(u32);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.checked_sub(1).ok_or_else(|| std::io::Error::other("disk full"))?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    ends(|| {
        let stream = stream(64, 1);
        stream.start_capture(Full(1)).expect("the first write succeeds");
        for _ in 0..100_000 {
            stream.submit(Task::new("task")).expect("the stream goes on");
        }
        stream.wait_all_within(LONG).expect("nothing fails");
        let error = stream.stop_capture().expect_err("the disk is full");
        assert!(
            matches!(&error, StreamError::Capture { message } if message.contains("disk full"))
        );
        assert!(!stream.stop_capture().expect("none is on"));
    });
}

/// A writer that is a function of the number of the write.
struct Calls<F>(u32, F);

impl<F: FnMut(u32) -> std::io::Result<()>> Write for Calls<F> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += 1;
        (self.1)(self.0).map(|()| bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Increments a word through tasks that each depend on the one before.
fn count_to(stream: &Stream, count: u64) {
    let word = stream.buffer(8).expect("small");
    for _ in 0..count {
        let task = Task::new("increment").inout(&word, words(1));
        let task = task.body(|args| args.slice_mut::<u64>(0).map(|word| word[0] += 1));
        stream.submit(task).expect("the stream goes on");
    }
    assert_eq!(super::read(stream, &word), [count], "no edge is lost");
}

#[test]
fn a_writer_that_panics_ends_the_capture_and_nothing_else() {
    ends(|| {
        let stream = stream(64, 2);
        let writer =
            Calls(0, |number| if number > 1 { panic!("at write {number}") } else { Ok(()) });
        stream.start_capture(writer).expect("the first write succeeds");
        count_to(&stream, 20_000);
        let error = stream.stop_capture().expect_err("the writer panicked");
        assert!(error.to_string().contains("panicked: at write 2"), "{error}");
        let file = File::default();
        stream.start_capture(file.clone()).expect("memory");
        count_to(&stream, 100);
        assert!(stream.stop_capture().expect("memory"));
        let bytes = file.bytes();
        assert_eq!(CaptureReader::read(&bytes).expect("whole").trace.tasks.len(), 101);
    });
}

#[test]
fn a_writer_may_call_back_into_the_stream_that_it_captures() {
    ends(|| {
        let stream = Arc::new(stream(64, 2));
        let (file, inner) = (File::default(), Arc::downgrade(&stream));
        let mut copy = file.clone();
        struct Back<F>(F);
        impl<F: FnMut(&[u8])> Write for Back<F> {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                (self.0)(bytes);
                Ok(bytes.len())
            }

            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let mut calls = 0;
        let back = Back(move |bytes: &[u8]| {
            copy.write_all(bytes).expect("memory");
            calls += 1;
            if let Some(stream) = inner.upgrade().filter(|_| calls > 1) {
                stream.submit(Task::new("from the writer")).expect("room");
                assert!(stream.stop_capture().is_err() || calls < 4, "it waits for itself");
            }
        });
        stream.start_capture(back).expect("memory");
        count_to(&stream, 20_000);
        // The writer ended the capture: its own error has gone to it.
        assert!(!stream.stop_capture().expect("none is on"));
        let bytes = file.bytes();
        let trace = CaptureReader::read(&bytes).expect("whole records in order").trace;
        assert!(trace.tasks.iter().any(|task| task.label() == "increment"));
    });
}
