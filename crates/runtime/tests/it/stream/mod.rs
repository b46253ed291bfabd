//! The stream runtime.
//!
//! - `program`: random programs, the serial run that decides, and what a failure must take with it.
//! - `random`: those programs in streams of all sizes.
//! - `bounds`: full rings, heaps and pools; what can never go on; memory that stays constant.
//! - `capture`: what was captured replays to every edge there was.
//! - `circles`: waits that could never end, and waits that only look like it.
//! - `scheduling`: priorities, fairness, blocks, gangs, parts.
//! - `failure`: panics and errors, poison, cancelling, deadlines.
//! - `host`: waiting, and the host's own access to buffers.
//! - `inside`: tasks that submit tasks.
//! - `waiting`: what a waiter does meanwhile, deadlines, and cancelling.
//! - `statistics`: what a stream says of itself, live and in captures.

mod bounds;
mod capture;
mod circles;
mod failure;
mod host;
mod inside;
mod program;
mod random;
mod scheduling;
mod statistics;
mod waiting;

use std::time::Duration;
use syncline_device::Buffer;

use syncline_runtime::stream::{Stream, StreamOptions};
use syncline_tensor::{Dtype, View};

/// Far more than anything here takes, so that a defect fails a test instead of hanging it.
const LONG: Duration = Duration::from_secs(60);

fn stream(ring_tasks: usize, workers: usize) -> Stream {
    Stream::new(StreamOptions { ring_tasks, workers, ..Default::default() }).expect("valid options")
}

fn words(count: u64) -> View {
    View::contiguous(Dtype::U64, &[count]).expect("small")
}

fn read(stream: &Stream, buffer: &Buffer) -> Vec<u64> {
    let guard = stream.read_within(buffer, LONG).expect("no task failed");
    guard.as_slice::<u64>().expect("whole words").to_vec()
}

/// Runs `test` on a thread of its own and fails when it does not end: submissions wait without a
/// deadline.
fn ends(test: impl FnOnce() + Send + 'static) {
    ends_within(2 * LONG, test);
}

/// As [`ends`], for a test that takes longer.
fn ends_within(limit: Duration, test: impl FnOnce() + Send + 'static) {
    let (done, ended) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(test));
        let _ = done.send(());
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
    assert!(ended.recv_timeout(limit).is_ok(), "the test hangs");
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}
