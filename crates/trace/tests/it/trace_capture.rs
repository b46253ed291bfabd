//! Captures of running programs: killed ones, and ones that switch their capture on and off.

use std::fs::{self, File};
use std::io::{self, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use syncline_deps::{DepInputs, ScopeKind, SubmitOptions};
use syncline_tensor::{Arg, BufferId, TaskId, View};
use syncline_trace::capture::{
    CaptureEnd, CaptureOptions, CaptureReader, CaptureWriter, TaskLabel,
};
use syncline_trace::{Capturing, Trace, TraceLane};

const CHILD_FILE: &str = "SYNCLINE_TEST_CAPTURE_FILE";
const CHILD_TASKS: u64 = 300_000;
const CHILD_DEADLINE: Duration = Duration::from_secs(60);
const BUFFER: BufferId = BufferId(0);

/// The argument of task `index` of the child: known to the parent, so that it can check what it
/// reads.
fn child_arg(index: u64) -> Arg {
    Arg::inout(BUFFER, View::bytes_at(index % 1000, 1 + index % 24).expect("small"))
}

/// Not a test of its own: what the killed process does.
#[test]
fn child_that_captures_until_it_is_killed() {
    let Some(file) = std::env::var_os(CHILD_FILE) else { return };
    let mut writer = CaptureWriter::new(File::create(file).expect("a new file")).expect("a disk");
    writer.buffer(BUFFER, 1024, Some("x")).expect("a disk");
    let started = Instant::now();
    for index in 0..CHILD_TASKS {
        let args = [child_arg(index)];
        let inputs = DepInputs { args: &args, deps: &[] };
        writer.submit(TaskId::new(0, index), TaskLabel::named("work"), &inputs).expect("a disk");
    }
    while started.elapsed() < CHILD_DEADLINE {
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_killed_process_leaves_a_readable_prefix() {
    let file = std::env::temp_dir().join(format!("syncline-kill-{}.sltrace", std::process::id()));
    let _ = fs::remove_file(&file);
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "trace_capture::child_that_captures_until_it_is_killed"])
        .env(CHILD_FILE, &file)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("this test runs again");
    let started = Instant::now();
    while fs::metadata(&file).map_or(0, |file| file.len()) < 100_000 {
        assert!(started.elapsed() < CHILD_DEADLINE, "the child writes nothing");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().expect("it runs");
    child.wait().expect("it was killed");
    let bytes = fs::read(&file).expect("the child made it");
    let _ = fs::remove_file(&file);
    let read = CaptureReader::read(&bytes).expect("readable");
    assert_ne!(read.end, CaptureEnd::Complete);
    assert!(read.trace.tasks.len() > 1000, "{} tasks", read.trace.tasks.len());
    for (index, task) in read.trace.tasks.iter().enumerate() {
        assert_eq!(task.id, index as u64);
        assert_eq!((task.label(), task.args[0].arg), ("work", child_arg(index as u64)));
    }
}

#[test]
fn a_capture_switched_on_in_the_middle_stands_alone() {
    let mut submitter = Capturing::<Vec<u8>>::new(SubmitOptions::default());
    let (x, y) = (submitter.create_buffer(64, Some("x")), submitter.create_buffer(64, None));
    let whole = View::bytes_at(0, 64).expect("small");
    let gone = submitter.create_buffer(8, Some("gone"));
    submitter.release_buffer(gone).expect("declared");
    let before = [Arg::inout(x, whole)];
    let inputs = |args| DepInputs { args, deps: &[] };
    let early =
        submitter.submit(TaskLabel::named("early"), inputs(&before), |_| ()).expect("valid");
    submitter.enter_scope(ScopeKind::Auto, Some("outer"));
    submitter.enter_scope(ScopeKind::Manual, None);
    submitter.start(Vec::new(), CaptureOptions::default()).expect("memory");
    assert!(submitter.is_capturing());
    let args = [Arg::input(x, whole), Arg::output(y, whole)];
    let deps = [early];
    let first = submitter
        .submit(TaskLabel::named("first"), DepInputs { args: &args, deps: &deps }, |_| ())
        .expect("valid");
    submitter.leave_scope().expect("entered");
    submitter.retire(early);
    submitter.retire(first);
    submitter.timing(first, 10, 20, &TraceLane::Number(1));
    let deps = [first];
    submitter
        .submit(
            TaskLabel { name: None, extra: Some(r#"{"kernel": "k"}"#) },
            DepInputs { args: &args, deps: &deps },
            |_| (),
        )
        .expect("valid");
    let bytes = submitter.stop().expect("memory").expect("on");
    assert!(!submitter.is_capturing());
    submitter.submit(TaskLabel::default(), inputs(&before), |_| ()).expect("valid");

    let Trace { buffers, scopes, tasks, .. } = CaptureReader::read(&bytes).expect("valid").trace;
    assert_eq!(buffers.iter().map(|buffer| buffer.id).collect::<Vec<_>>(), [x, y]);
    assert_eq!((scopes.len(), scopes[1].parent), (2, Some(0)));
    assert_eq!(tasks.len(), 2);
    assert_eq!((tasks[0].scope, tasks[1].scope), (ScopeKind::Manual, ScopeKind::Auto));
    assert_eq!((tasks[0].deps.len(), tasks[1].deps[0]), (0, tasks[0].id));
    assert_eq!((tasks[0].start_ns, tasks[0].retired_at), (Some(10), Some(1)));
    assert_eq!(tasks[1].label(), "k");
}

/// A disk that is full after some bytes.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0 < bytes.len() {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "full"));
        }
        self.0 -= bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_ends_the_capture_and_not_the_program() {
    let mut submitter = Capturing::new(SubmitOptions::default());
    let x = submitter.create_buffer(64, None);
    submitter.start(Full(10_000), CaptureOptions::default().with_flush_bytes(512)).expect("room");
    let args = [Arg::inout(x, View::bytes_at(0, 64).expect("small"))];
    for _ in 0..2000 {
        let inputs = DepInputs { args: &args, deps: &[] };
        submitter.submit(TaskLabel::named("t"), inputs, |_| ()).expect("submission goes on");
    }
    assert!(!submitter.is_capturing());
    assert_eq!(submitter.stop().err().map(|error| error.kind()), Some(io::ErrorKind::StorageFull));
    assert!(submitter.stop().expect("told once").is_none());
}

#[test]
fn records_are_written_whole_and_soon() {
    let mut written = Vec::new();
    let options = CaptureOptions::default().with_flush_interval(Duration::ZERO);
    let mut writer = CaptureWriter::with_options(&mut written, options).expect("memory");
    writer.buffer(BUFFER, 1024, None).expect("memory");
    for index in 0..40 {
        let args = [child_arg(index)];
        let inputs = DepInputs { args: &args, deps: &[] };
        writer.submit(TaskId::new(0, index), TaskLabel::default(), &inputs).expect("memory");
    }
    // As after a kill: neither the destructor nor anything else runs.
    std::mem::forget(writer);
    let read = CaptureReader::read(&written).expect("whole records");
    assert_eq!(read.end, CaptureEnd::Unfinished);
    assert!(read.trace.tasks.len() > 20, "{}", read.trace.tasks.len());
}
