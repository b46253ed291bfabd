//! The PEs of a group as threads of this process.

use syncline::transport::local;

use super::pe::{PeReport, Setup};

/// Every PE on a thread of this process.
pub(super) fn run(setup: &Setup) -> Result<Vec<PeReport>, String> {
    let options = local::Options { depth: setup.depth, slot_bytes: setup.slot_bytes };
    let endpoints = local::group(setup.pes, &options).map_err(|error| error.to_string())?;
    std::thread::scope(|scope| {
        let start = |endpoint| scope.spawn(|| setup.run(endpoint));
        let threads: Vec<_> = endpoints.into_iter().map(start).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err("a PE has panicked".to_owned()))
        };
        threads.into_iter().map(join).collect()
    })
}
