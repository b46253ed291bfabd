//! One PE of a refit of made-up values.

use std::time::{Duration, Instant};

use syncline::layout::{Layout, PlanOptions};
use syncline::reshard::{
    CopyService, RefitEvent, ServiceError, ServiceOptions, Sources, Target, Versions,
};
use syncline::transport::{Transport, shm};

use super::super::launch::Role;
use super::{page, values};

/// What every PE of a group is told.
pub(super) struct Setup {
    pub from: Layout,
    pub to: Layout,
    pub pes: usize,
    pub repeat: usize,
    pub slot_bytes: usize,
    pub depth: usize,
    pub checksums: bool,
    pub timeout: Duration,
    /// Whether PEs record what they do in the last refit.
    pub records: bool,
}

/// What one PE has seen.
#[derive(Debug, Default, PartialEq)]
pub(super) struct PeReport {
    /// By refit.
    pub refit_ms: Vec<f64>,
    /// Bytes that this PE holds afterwards.
    pub bytes_total: u64,
    /// Bytes between PEs, of the whole plan.
    pub bytes_moved: u64,
    /// Tensors of this PE that are not as they must be.
    pub wrong_tensors: u64,
    /// What it did in the last refit, where that is recorded.
    pub events: Vec<RefitEvent>,
}

impl PeReport {
    /// One line, or with events two, by which a process tells the one that started it.
    pub(super) fn to_text(&self) -> String {
        let numbers =
            [self.bytes_total, self.bytes_moved, self.wrong_tensors].map(|n| n.to_string());
        let times = self.refit_ms.iter().map(f64::to_string);
        let line = format!("PE {}", numbers.into_iter().chain(times).collect::<Vec<_>>().join(" "));
        match self.events.is_empty() {
            true => line,
            false => format!("{line}\nEVENTS {}", page::to_text(&self.events)),
        }
    }

    /// Reads those lines.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("PE "))?;
        let words: Vec<&str> = line.split(' ').collect();
        let [total, moved, wrong, times @ ..] = &words[..] else { return None };
        let events = text.lines().find_map(|line| line.strip_prefix("EVENTS "));
        Some(Self {
            bytes_total: total.parse().ok()?,
            bytes_moved: moved.parse().ok()?,
            wrong_tensors: wrong.parse().ok()?,
            refit_ms: times.iter().map(|time| time.parse().ok()).collect::<Option<_>>()?,
            events: events.map_or(Some(Vec::new()), page::parse)?,
        })
    }
}

impl Setup {
    /// Joins the group that this process was started for and does this PE's part.
    pub(super) fn join_and_run(&self, role: &Role) -> Result<PeReport, String> {
        let options =
            shm::Options { depth: self.depth, slot_bytes: self.slot_bytes, ..Default::default() };
        self.run(role.join(self.pes, &options, self.timeout)?)
    }

    /// This PE's part over any transport.
    pub(super) fn run(&self, endpoint: impl Transport + 'static) -> Result<PeReport, String> {
        let mut service = CopyService::new(endpoint, self.options());
        self.refit(&mut service).map_err(|error| error.to_string())
    }

    /// The same; then PE 0 gets the reports of all.
    pub(super) fn run_and_gather(
        &self,
        endpoint: impl Transport + 'static,
    ) -> Result<Option<Vec<PeReport>>, String> {
        // Lines of one length: every number has room.
        let line_bytes = 96 + 32 * self.repeat.max(1);
        let mut lines = vec![vec![b' '; line_bytes]; self.pes];
        let mut service = CopyService::new(endpoint, self.options());
        let (rank, said) = (service.rank(), |error: ServiceError| error.to_string());
        let mut line = self.refit(&mut service).map_err(said)?.to_text().into_bytes();
        line.resize(line_bytes, b' ');
        let mut requests = service.requests();
        requests.submit_send(0, None, &line).map_err(said)?;
        if rank == 0 {
            for (peer, line) in lines.iter_mut().enumerate() {
                requests.submit_recv(peer, None, line).map_err(said)?;
            }
        }
        requests.run().map_err(said)?;
        drop(service);
        if rank > 0 {
            return Ok(None);
        }
        let parse = |(peer, line): (usize, &Vec<u8>)| {
            let report = PeReport::parse(String::from_utf8_lossy(line).trim_end());
            report.ok_or_else(|| format!("PE {peer} has not reported"))
        };
        lines.iter().enumerate().map(parse).collect::<Result<_, _>>().map(Some)
    }

    fn options(&self) -> ServiceOptions {
        ServiceOptions {
            timeout: self.timeout,
            checksums: self.checksums,
            versions: Versions::One,
            ..Default::default()
        }
    }

    fn refit(&self, service: &mut CopyService) -> Result<PeReport, ServiceError> {
        let refit = service.prepare(&self.from, &self.to, &PlanOptions::default())?;
        let destination = service.destination(&refit)?;
        let held = values::shards(&self.from, &self.from, service.rank());
        let mut sources = Sources::new(&refit);
        for (name, bytes) in &held {
            sources.bind(&refit, name, bytes).expect("made for this layout");
        }
        let mut refit_ms = Vec::new();
        for number in 0..=self.repeat.max(1) {
            if self.records && number == self.repeat.max(1) {
                service.record_timeline();
            }
            let started = Instant::now();
            service.refit(&refit, &sources, Target::Destination(&destination))?;
            refit_ms.push(started.elapsed().as_secs_f64() * 1e3);
        }
        let reading = destination.read().expect("the last refit was committed");
        let expected = values::shards(&self.to, &self.from, service.rank());
        let is_wrong =
            |(name, bytes): &&(String, Vec<u8>)| reading.tensor(name) != Some(&bytes[..]);
        Ok(PeReport {
            refit_ms: refit_ms.split_off(1),
            bytes_total: refit.targets().bytes_total() as u64,
            bytes_moved: refit.bytes_moved(),
            wrong_tensors: expected.iter().filter(is_wrong).count() as u64,
            events: service.take_timeline(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_survives_its_line() {
        let report = PeReport {
            refit_ms: vec![1.5, 0.25],
            bytes_total: 7,
            bytes_moved: 5,
            wrong_tensors: 0,
            events: Vec::new(),
        };
        assert_eq!(PeReport::parse(&format!("noise\n{}\n", report.to_text())), Some(report));
    }
}
