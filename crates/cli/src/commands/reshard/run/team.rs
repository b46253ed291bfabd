//! A transport as the team of a conversion.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use syncline::checkpoint::{Summary, Team};
use syncline::transport::{Failure, Session, Transport, Wait};
use syncline_sync::lock;

/// The PEs of a group, who meet at the barriers that every refit has.
pub(super) struct TransportTeam<'a> {
    rank: usize,
    size: usize,
    /// One meeting at a time.
    transport: Mutex<&'a mut dyn Transport>,
    timeout: Duration,
}

impl<'a> TransportTeam<'a> {
    pub(super) fn new(transport: &'a mut dyn Transport, timeout: Duration) -> Self {
        let (rank, size) = (transport.rank(), transport.shape().size);
        Self { rank, size, transport: transport.into(), timeout }
    }

    fn transport(&self) -> MutexGuard<'_, &'a mut dyn Transport> {
        lock(&self.transport)
    }

    fn try_meet(&self) -> Result<(), Failure> {
        let wait = Wait::timeout(self.timeout);
        Session::enter(&mut **self.transport(), 0, &wait)?.finish(&wait)
    }
}

impl Team for TransportTeam<'_> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn meet(&self) -> Result<(), String> {
        self.try_meet().map_err(|failure| failure.to_string())
    }

    fn fail(&self, why: &str) {
        let (rank, message) = (self.rank(), why.to_owned());
        self.transport().fail(Failure::Local { rank, message });
    }
}

/// One line, by which a process tells the one that started it.
pub(super) fn summary_text(summary: &Summary) -> String {
    let Summary { tensors, files, files_kept, bytes, .. } = summary;
    format!("SUMMARY {tensors} {files} {files_kept} {bytes}")
}

/// Reads that line, wherever it is in `text`.
pub(super) fn parse_summary(text: &str) -> Option<Summary> {
    let line = text.lines().find_map(|line| line.strip_prefix("SUMMARY "))?;
    let numbers: Vec<u64> = line.split(' ').map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let [tensors, files, files_kept, bytes] = numbers[..] else { return None };
    Some(Summary { tensors, files, files_kept, bytes, ..Default::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_survives_its_line() {
        let summary =
            Summary { tensors: 1, files: 2, files_kept: 3, bytes: 4, ..Default::default() };
        assert_eq!(parse_summary(&format!("DONE 7\n{}\n", summary_text(&summary))), Some(summary));
    }
}
