//! Refits: enter together, move, finish together, commit.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{CopyService, Progress, ServiceError, Target, compare_tickets};
use crate::execute::{
    Control, Destination, Moved, Part, PipelineExecutor, Place, Refit, Sources, Targets,
};
use crate::hash::Hasher64;
use crate::transport::{Failure, Ticket, WindowId};

/// Bytes between two progress reports.
const PROGRESS_BYTES: u64 = 1 << 20;

impl CopyService<'_> {
    /// Moves everything of `refit` on all PEs, and commits it on all or on none.
    ///
    /// On `Err`, a [`Destination`] with two versions still has its old values, one with a single version
    /// refuses to be read, and memory of the caller's may be partly written.
    ///
    /// A PE does one thing at a time, in the same order as its peers; destinations can be read meanwhile, by any thread.
    pub fn refit(
        &mut self,
        refit: &Refit,
        sources: &Sources<'_>,
        target: Target<'_, '_>,
    ) -> Result<Moved, ServiceError> {
        let refitted = self.try_refit(refit, sources, target);
        // Whatever went wrong here, the others must not wait for this PE until their deadline.
        Ok(refitted.map_err(|failure| self.transport.fail(failure))?)
    }

    fn try_refit(
        &self,
        refit: &Refit,
        sources: &Sources<'_>,
        target: Target<'_, '_>,
    ) -> Result<Moved, Failure> {
        if let Some(failure) = self.transport.failure() {
            return Err(failure);
        }
        let local = |message: String| Failure::Local { rank: self.rank(), message };
        if refit.rank() != self.rank() {
            let message = format!("this refit was prepared for PE {}", refit.rank());
            return Err(local(message));
        }
        sources.bound.check(refit.sources()).map_err(|error| local(error.to_string()))?;
        match target {
            Target::Destination(destination) => self.refit_destination(refit, sources, destination),
            Target::Memory(targets) => self.refit_memory(refit, sources, targets),
            Target::Nothing => self.refit_memory(refit, sources, &Targets::new(refit)),
        }
    }

    fn refit_destination(
        &self,
        refit: &Refit,
        sources: &Sources<'_>,
        destination: &Destination,
    ) -> Result<Moved, Failure> {
        if !destination.fits(refit) {
            let message = "the destination was made for another plan".to_owned();
            return Err(Failure::Local { rank: self.rank(), message });
        }
        if !destination.belongs_to(&*self.transport) {
            let message = "the destination was made in another group, where it can still be read: make one with this service"
                .to_owned();
            return Err(Failure::Local { rank: self.rank(), message });
        }
        let control = self.control();
        let mut writing = destination.begin(&control.wait)?;
        // Peers may write as soon as this PE has entered, whatever becomes of it then.
        writing.touch();
        // Sums are computed by the host: of memory that it cannot reach, on the way there.
        let is_direct = !refit.has_checksums() || writing.is_on_host();
        let ticket = ticket(refit, writing.ticket().filter(|_| is_direct));
        let moved = self.run_refit(refit, sources, writing.place(), ticket, &control)?;
        writing.commit();
        Ok(moved)
    }

    fn refit_memory(
        &self,
        refit: &Refit,
        sources: &Sources<'_>,
        targets: &Targets<'_>,
    ) -> Result<Moved, Failure> {
        let unbound = |error: crate::BindError| Failure::Local {
            rank: self.rank(),
            message: error.to_string(),
        };
        targets.check(refit, sources).map_err(unbound)?;
        let ticket = ticket(refit, None);
        self.run_refit(refit, sources, Place::Targets(targets), ticket, &self.control())
    }

    fn run_refit(
        &self,
        refit: &Refit,
        sources: &Sources<'_>,
        place: Place<'_>,
        ticket: Ticket,
        control: &Control<'_>,
    ) -> Result<Moved, Failure> {
        let transport = &*self.transport;
        transport.enter(ticket, &control.wait)?;
        compare_tickets(transport, ticket.fingerprint)?;
        let mut executor = PipelineExecutor::new(transport).keeping(&self.lanes);
        if let Some(separate) = self.options.separate_lanes {
            executor = executor.separate_lanes(separate);
        }
        let is_announced = ticket.window.is_some();
        let received =
            refit.bytes_received(|peer| !(is_announced && transport.shares_memory(peer)));
        let (done, total) = (AtomicU64::new(0), refit.bytes_local() + received);
        let report = |bytes: u64| {
            let before = done.fetch_add(bytes, Ordering::Relaxed);
            let bytes_done = before + bytes;
            let is_due = before / PROGRESS_BYTES != bytes_done / PROGRESS_BYTES;
            if let Some(on_progress) = self.on_progress.as_ref().filter(|_| is_due) {
                on_progress(Progress { bytes_done: bytes_done.min(total), bytes_total: total });
            }
        };
        let control =
            Control { progress: self.on_progress.as_ref().map(|_| &report as _), ..*control };
        let moved = executor.execute(refit, sources, place, &control, Part::All)?;
        transport.finish(&control.wait)?;
        if let Some(on_progress) = &self.on_progress {
            on_progress(Progress { bytes_done: total, bytes_total: total });
        }
        Ok(moved)
    }

    fn control(&self) -> Control<'_> {
        Control { wait: self.wait(), progress: None }
    }
}

/// What a PE announces of a refit.
fn ticket(refit: &Refit, window: Option<(WindowId, [u64; 2])>) -> Ticket {
    let mut hasher = Hasher64::new(refit.fingerprint());
    hasher.word(refit.has_checksums().into());
    Ticket { fingerprint: hasher.finish(), window }
}
