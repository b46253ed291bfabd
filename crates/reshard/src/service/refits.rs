//! Refits: enter together, move, finish together, commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use syncline_device::guarded;

use super::{CopyService, Progress, ServiceError, Target};
use crate::execute::{
    Control, Delta, Destination, Kept, Moved, Part, PipelineExecutor, Place, Refit, RefitActivity,
    Sources, Targets, Timeline, Writing,
};
use syncline_transport::{FailOnPanic, Failure, Session, Ticket, Wait};

/// Bytes between two progress reports.
const PROGRESS_BYTES: u64 = 1 << 20;

impl CopyService {
    /// Moves everything of `refit` on all PEs, and commits it on all or on none.
    ///
    /// On `Err`, a [`Destination`] with two versions still has its old values, one with a single
    /// version refuses to be read, and memory of the caller's may be partly written.
    /// [`ServiceError::Held`] leaves everything as it was.
    ///
    /// The death of members ends it only where bytes are lost with them
    /// ([`ServiceError::Lost`]).
    ///
    /// A PE does one thing at a time, in the same order as its peers; destinations can be read
    /// meanwhile, by any thread.
    pub fn refit(
        &mut self,
        refit: &Refit,
        sources: &Sources<'_>,
        target: Target<'_, '_>,
    ) -> Result<Moved, ServiceError> {
        self.refit_by(refit, sources, target, false)
    }

    /// Does the same as [`refit`](Self::refit), and sends only what has changed since the last time
    /// that this was called for the same plan. All PEs call it.
    ///
    /// Sender and receiver keep the messages that they sent and received last, which takes as much
    /// memory again as this PE sends and receives; nothing is placed directly. All bytes are sent
    /// to and from a PE that was not there the last time, after a refit that failed, where tensors
    /// are in memory of a device, and of messages most of which has changed.
    pub fn refit_changes(
        &mut self,
        refit: &Refit,
        sources: &Sources<'_>,
        target: Target<'_, '_>,
    ) -> Result<Moved, ServiceError> {
        self.refit_by(refit, sources, target, true)
    }

    /// Forgets what [`refit_changes`](Self::refit_changes) has kept on this PE, and gives back its
    /// memory: the next one sends everything.
    pub fn forget_changes(&mut self) {
        self.kept.clear();
    }

    /// Returns the bytes that [`refit_changes`](Self::refit_changes) keeps on this PE.
    pub fn kept_bytes(&self) -> usize {
        self.kept.values().map(Kept::bytes).sum()
    }

    fn refit_by(
        &mut self,
        refit: &Refit,
        sources: &Sources<'_>,
        mut target: Target<'_, '_>,
        by_changes: bool,
    ) -> Result<Moved, ServiceError> {
        let cancel = self.cancel.clone();
        let wait = Wait::timeout(self.options.timeout).cancelled_by(&cancel);
        loop {
            self.go_on(&wait)?;
            let left = self.for_members(refit)?;
            let key = left.as_deref().unwrap_or(refit).announced();
            let mut kept = by_changes.then(|| self.kept.remove(&key).unwrap_or_default());
            let guard = FailOnPanic::new(&*self.transport, "a refit");
            let refit = left.as_deref().unwrap_or(refit);
            // SAFETY: the service is borrowed exclusively.
            let refitted = unsafe { self.try_refit(refit, sources, &mut target, &mut kept, &wait) };
            guard.disarm();
            if let Some(kept) = kept {
                self.kept.insert(key, kept);
            }
            let Err(ServiceError::Failed(failure)) = refitted else { return refitted };
            // Whatever went wrong here, the others must not wait for this PE until their deadline.
            let failure = self.transport.fail(failure);
            // Each turn of the loop takes a member out of the group.
            if !failure.is_loss() || !self.transport.can_recover() {
                return Err(failure.into());
            }
        }
    }

    /// Goes on without the members that the group has lost. Returns any other failure of it.
    pub(super) fn go_on(&mut self, wait: &Wait<'_>) -> Result<(), ServiceError> {
        let Some(failure) = self.transport.failure() else { return Ok(()) };
        if !failure.is_loss() {
            return Err(failure.into());
        }
        // SAFETY: the service is borrowed exclusively, and its last call has ended.
        unsafe { self.transport.recover(wait)? };
        self.loss = Some(failure);
        Ok(())
    }

    /// The part of this PE in `refit` among the members that are left; `None` if none is missing.
    fn for_members(&mut self, refit: &Refit) -> Result<Option<Arc<Refit>>, ServiceError> {
        let (members, epoch) = (self.transport.members(), self.transport.epoch());
        if (0..refit.world()).all(|rank| members.binary_search(&rank).is_ok()) {
            return Ok(None);
        }
        let key = refit.identity();
        if let Some((of, left)) = self.plans_left.get(&key)
            && *of == epoch
        {
            return Ok(Some(left.clone()));
        }
        let missing = (0..refit.world()).find(|rank| members.binary_search(rank).is_err());
        let failure = self.loss.clone();
        let failure = failure.unwrap_or(Failure::PeerLeft { rank: missing.unwrap_or(0) });
        match refit.for_members(&members) {
            None => Err(failure.into()),
            Some(Err(cause)) => Err(ServiceError::Lost { failure, cause }),
            Some(Ok(left)) => {
                let left = Arc::new(left);
                self.plans_left.insert(key, (epoch, left.clone()));
                Ok(Some(left))
            }
        }
    }

    /// Refits by changes where something is `kept`, and takes it away unless it is still right.
    ///
    /// # Safety
    /// Nothing else uses the service meanwhile.
    unsafe fn try_refit(
        &self,
        refit: &Refit,
        sources: &Sources<'_>,
        target: &mut Target<'_, '_>,
        kept: &mut Option<Kept>,
        wait: &Wait<'_>,
    ) -> Result<Moved, ServiceError> {
        if let Some(failure) = self.transport.failure() {
            return Err(failure.into());
        }
        if refit.rank() != self.rank() {
            return Err(self.refuse(format!("this refit was prepared for PE {}", refit.rank())));
        }
        sources.check(refit).map_err(|error| self.refuse(error))?;
        let nothing = Targets::new(refit);
        let targets = match target {
            // SAFETY: the caller's promise.
            Target::Destination(destination) => unsafe {
                return self.refit_destination(refit, sources, destination, kept, wait);
            },
            Target::Memory(targets) => targets,
            Target::Nothing => &nothing,
        };
        targets.check(refit, sources).map_err(|error| self.refuse(error))?;
        // SAFETY: the caller's promise; no memory is announced.
        unsafe {
            let place = Some(Place::Targets(targets));
            self.run_refit(refit, sources, place, Ticket::default(), kept, wait)
        }
    }

    /// # Safety
    /// Nothing else uses the service meanwhile.
    unsafe fn refit_destination(
        &self,
        refit: &Refit,
        sources: &Sources<'_>,
        destination: &Destination,
        kept: &mut Option<Kept>,
        wait: &Wait<'_>,
    ) -> Result<Moved, ServiceError> {
        if !refit.targets().is_dense() {
            return Err(
                self.refuse("a destination is dense, and this refit was prepared for strides")
            );
        }
        if !destination.fits(refit) {
            return Err(self.refuse("the destination was made for another plan"));
        }
        if !destination.belongs_to(&*self.transport) {
            let message = "the destination was made in another group, where it can still be read: make one with this service";
            return Err(self.refuse(message));
        }
        let mut writing = destination.begin(wait)?;
        // Peers may write as soon as this PE has entered, whatever becomes of it then.
        writing.as_mut().into_iter().for_each(Writing::touch);
        // Sums are computed by the host: of memory that it cannot reach, on the way there.
        // Bytes that peers write directly cannot be compared.
        let is_direct = |writing: &&Writing<'_>| {
            kept.is_none() && (!refit.has_checksums() || writing.is_on_host())
        };
        let direct = writing.as_ref().filter(is_direct);
        let ticket = Ticket {
            window: direct.and_then(Writing::ticket),
            is_held: writing.is_none(),
            ..Ticket::default()
        };
        let place = writing.as_ref().map(Writing::place);
        // SAFETY: the caller's promise; while `writing` lives, nobody reads the version that is
        // announced, and if it is not committed, it is not read before another refit has written
        // all of it.
        let run = unsafe { self.run_refit(refit, sources, place, ticket, kept, wait) };
        match (&run, writing) {
            (Ok(_), Some(writing)) => writing.commit(),
            (Err(ServiceError::Held { .. }), Some(writing)) => writing.leave_out(),
            _ => {}
        }
        run
    }

    /// Runs a refit from the start on which all agree to the end on which all agree. `place` is
    /// `None` where a reader holds it.
    ///
    /// # Safety
    /// As for [`Session::announce`].
    unsafe fn run_refit(
        &self,
        refit: &Refit,
        sources: &Sources<'_>,
        place: Option<Place<'_>>,
        mut ticket: Ticket,
        kept: &mut Option<Kept>,
        wait: &Wait<'_>,
    ) -> Result<Moved, ServiceError> {
        let transport = &*self.transport;
        ticket.fingerprint = match kept {
            None => refit.announced(),
            Some(_) => refit.announced_changes(),
        };
        let has_views = sources.bound.has_views() || place.is_some_and(|place| place.has_views());
        // Tensors in memory of devices go whole: nothing is kept of them.
        let before = kept.take().filter(|_| !has_views);
        ticket.version = before.as_ref().map_or(0, Kept::version);
        let met = |timeline: &Timeline| timeline.add(RefitActivity::Meet, self.rank(), 0);
        self.timeline.iter().for_each(Timeline::begin);
        // SAFETY: the caller's promise.
        let session = unsafe { Session::announce(transport, ticket, wait)? };
        self.timeline.iter().for_each(met);
        let place = match (session.held_by(), place) {
            (None, Some(place)) => place,
            (holder, _) => {
                session.finish(wait)?;
                *kept = before;
                return Err(ServiceError::Held { rank: holder.unwrap_or(self.rank()) });
            }
        };
        let mut executor = PipelineExecutor::new(&session).keeping(&self.lanes);
        // One thread that does all of it is what a timeline shows.
        let separate = self.timeline.is_none().then_some(self.options.separate_lanes);
        if let Some(separate) = separate.unwrap_or(Some(false)) {
            executor = executor.separate_lanes(separate);
        }
        let is_announced = ticket.window.is_some();
        let received =
            refit.bytes_by_slots(|peer| !(is_announced && transport.shares_memory(peer)));
        let (done, total) = (AtomicU64::new(0), refit.bytes_local() + received);
        let report = |bytes: u64| {
            let before = done.fetch_add(bytes, Ordering::Relaxed);
            let bytes_done = before + bytes;
            if before / PROGRESS_BYTES != bytes_done / PROGRESS_BYTES {
                self.report(Progress { bytes_done: bytes_done.min(total), bytes_total: total });
            }
        };
        let progress = self.on_progress.as_ref().map(|_| &report as _);
        let delta = before.map(|kept| Delta::new(kept, refit.program(), transport));
        let (timeline, delta_of) = (self.timeline.as_ref(), delta.as_ref());
        let control = Control { wait: *wait, progress, timeline, delta: delta_of };
        let moved = executor.execute(refit, sources, place, &control, Part::All);
        // Before the session is dropped, which fails the group for a lesser reason.
        let moved = moved.map_err(|failure| transport.fail(failure))?;
        // Before the end on which all agree: no code of the caller's runs between that and the
        // commit.
        self.report(Progress { bytes_done: total, bytes_total: total });
        session.finish(wait)?;
        *kept = delta.map(Delta::commit);
        self.timeline.iter().for_each(met);
        Ok(moved)
    }

    /// Calls `on_progress`, unless the group has failed. If it panics, the group fails.
    fn report(&self, progress: Progress) {
        let Some(on_progress) = &self.on_progress else { return };
        if self.transport.failure().is_none()
            && let Err(text) = guarded(|| on_progress(progress))
        {
            let message = format!("on_progress panicked: {text}");
            self.transport.fail(Failure::Local { rank: self.rank(), message });
        }
    }

    fn refuse(&self, message: impl ToString) -> ServiceError {
        Failure::Local { rank: self.rank(), message: message.to_string() }.into()
    }
}
