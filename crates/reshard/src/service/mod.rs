//! The copy service: refits and requests for one PE of a group.
//!
//! Every PE of a group has a service on its endpoint and calls the same things in the same order. A
//! call returns `Ok` on all PEs or, within the deadline, the same [`Failure`] on all of them. A
//! group that has failed stays failed until every PE calls [`CopyService::recover`].
//!
//! Where the transport can go on after a death (`local`, `shm` and `tcp` can), a refit outlives the
//! death of members: if other members hold what they were to send, it is done again from those, and
//! commits on all that are left; if not, all return [`ServiceError::Lost`] and keep their old
//! version. Either way the group goes on without them, in a new epoch.
//!
//! ```
//! use syncline_transport::local;
//! use syncline_layout::{Layout, PlanOptions};
//! use syncline_reshard::{CopyService, ServiceOptions, Sources, Target};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! // Rows 0..2 on PE 0 and 2..4 on PE 1 become columns.
//! let layout = |boxes: [&str; 2], shape: &str| {
//!     Layout::from_json(&format!(
//!         r#"{{"format": "syncline-layout", "version": 1, "tensors": [
//!           {{"name": "w", "dtype": "u8", "shape": [4, 4], "shards": [
//!             {{"rank": 0, "shape": {shape}, "pieces": [{{"global": {}, "local": [0, 0]}}]}},
//!             {{"rank": 1, "shape": {shape}, "pieces": [{{"global": {}, "local": [0, 0]}}]}}
//!           ]}}]}}"#,
//!         boxes[0], boxes[1]
//!     ))
//! };
//! let rows = layout(["[[0, 2], [0, 4]]", "[[2, 4], [0, 4]]"], "[2, 4]")?;
//! let columns = layout(["[[0, 4], [0, 2]]", "[[0, 4], [2, 4]]"], "[4, 2]")?;
//! std::thread::scope(|scope| {
//!     let threads = local::group(2, &local::Options::default())?.into_iter().map(|endpoint| {
//!         let (rows, columns) = (&rows, &columns);
//!         scope.spawn(move || {
//!             let mut service = CopyService::new(endpoint, ServiceOptions::default());
//!             let refit = service.prepare(rows, columns, &PlanOptions::default())?;
//!             let destination = service.destination(&refit)?;
//!             let mine: Vec<u8> = (0..8).map(|i| service.rank() as u8 * 8 + i).collect();
//!             let mut sources = Sources::new(&refit);
//!             sources.bind(&refit, "w", &mine)?;
//!             service.refit(&refit, &sources, Target::Destination(&destination))?;
//!             let column = service.rank() as u8 * 2;
//!             let firsts = (0..4).map(|row| row * 4 + column);
//!             let expected: Vec<u8> = firsts.flat_map(|first| [first, first + 1]).collect();
//!             assert_eq!(destination.read()?.tensor("w"), Some(&expected[..]));
//!             Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//!         })
//!     });
//!     threads.collect::<Vec<_>>().into_iter().try_for_each(|thread| thread.join().unwrap())
//! })
//! # }
//! ```

mod refits;
mod requests;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use syncline_device::{CancelToken, Device, DeviceError};

use crate::execute::{
    Destination, Kept, PipelineLanes, Refit, RefitEvent, ShardStrides, Targets, Timeline, Versions,
};
pub use requests::Requests;
use syncline_layout::Layout;
use syncline_layout::LayoutError;
use syncline_layout::PlanOptions;
use syncline_transport::{Failure, Transport, Wait};

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// The group failed: the same on every PE.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The layouts make no plan: the same on every PE that has the same layouts.
    #[error(transparent)]
    Plan(#[from] LayoutError),
    /// A reader held the memory that the refit would have overwritten, until half of the time was
    /// over. The refit was left out on every PE, which all return this, and the group is as before.
    #[error(
        "a reader on PE {rank} holds the version that this refit would overwrite: drop its Reading, and refit again"
    )]
    Held {
        /// The PE.
        rank: usize,
    },
    /// Members are gone, and with them bytes that no other member holds. Every PE that is left
    /// returns this and keeps its old version. The group goes on, with whatever can still be moved.
    #[error("{failure}, and what it held is nowhere else: {cause}")]
    Lost {
        /// Who is gone.
        failure: Failure,
        /// The part of a tensor that no member holds.
        cause: LayoutError,
    },
    /// A request that cannot be submitted.
    #[error("cannot submit a request with PE {peer}: {problem}")]
    Submit {
        /// The other PE.
        peer: usize,
        /// What is wrong.
        problem: &'static str,
    },
}

/// What a service does beyond moving bytes; the same on every PE of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceOptions {
    /// How long a call may take, waiting included.
    pub timeout: Duration,
    /// Whether every segment has a checksum, which its receiver verifies; a corrupt one fails the
    /// refit on every PE, and is named with its tensor. What is in memory of a device then goes
    /// through slots, also where it could be written directly.
    pub checksums: bool,
    /// What [`CopyService::destination`] makes.
    pub versions: Versions,
    /// Whether packing, sending, unpacking and copying have lanes of their own; by the number of
    /// cores if unset. What is in memory of a device always goes by lanes.
    pub separate_lanes: Option<bool>,
}

impl Default for ServiceOptions {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(60),
            checksums: false,
            versions: Versions::Two,
            separate_lanes: None,
        }
    }
}

/// How far a refit has come on this PE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes sent, placed, copied and unpacked so far.
    pub bytes_done: u64,
    /// Bytes to send, place, copy and unpack in all; what peers place in memory of this PE is
    /// theirs to count.
    pub bytes_total: u64,
}

/// Where a refit puts this PE's tensors.
#[derive(Debug)]
pub enum Target<'t, 'a> {
    /// Into a destination: committed as a whole.
    Destination(&'t Destination),
    /// Into memory of the caller's, in place.
    Memory(&'t mut Targets<'a>),
    /// Nowhere: this PE holds nothing afterwards.
    Nothing,
}

type OnProgress = Box<dyn Fn(Progress) + Send + Sync>;

/// One PE's service.
pub struct CopyService {
    transport: Box<dyn Transport>,
    options: ServiceOptions,
    cancel: CancelToken,
    on_progress: Option<OnProgress>,
    timeline: Option<Timeline>,
    plans: HashMap<(u64, u64), (Arc<Refit>, PlanOptions)>,
    /// What those are for the members of an epoch, by what they announce.
    plans_left: HashMap<u64, (u64, Arc<Refit>)>,
    /// What was sent and received last by refits of changes, by what they announce.
    kept: HashMap<u64, Kept>,
    /// Why members are gone.
    loss: Option<Failure>,
    /// The plan of the requests that were run last, by its layouts.
    requested: Option<((u64, u64), Arc<Refit>)>,
    /// Opened when they are first needed.
    lanes: OnceLock<PipelineLanes>,
}

impl fmt::Debug for CopyService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.transport.shape().size;
        write!(f, "CopyService(PE {} of {size}, {:?})", self.rank(), self.options)
    }
}

/// Plans kept for repeated refits; past this, all are made anew.
const PLANS_MAX: usize = 16;

impl CopyService {
    /// A service on this PE's endpoint.
    pub fn new(transport: impl Transport + 'static, options: ServiceOptions) -> Self {
        Self::of(Box::new(transport), options)
    }

    /// A service on this PE's endpoint, of a type that is not known.
    pub fn of(transport: Box<dyn Transport>, options: ServiceOptions) -> Self {
        Self {
            transport,
            options,
            cancel: CancelToken::new(),
            on_progress: None,
            timeline: None,
            plans: HashMap::new(),
            plans_left: HashMap::new(),
            kept: HashMap::new(),
            loss: None,
            requested: None,
            lanes: OnceLock::new(),
        }
    }

    /// This PE.
    pub fn rank(&self) -> usize {
        self.transport.rank()
    }

    /// The endpoint.
    pub fn transport(&self) -> &dyn Transport {
        &*self.transport
    }

    /// The endpoint, to use it between two calls of the service.
    pub fn transport_mut(&mut self) -> &mut dyn Transport {
        &mut *self.transport
    }

    /// Gives the calls from now on this long.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.options.timeout = timeout;
    }

    /// Switches checksums on or off for later preparations and runs; the same on every PE.
    pub fn set_checksums(&mut self, checksums: bool) {
        self.options.checksums = checksums;
    }

    /// Has `on_progress` called after every message and every larger copy of a refit, by the thread
    /// that runs it and under no lock. The last call comes before the refit is committed.
    ///
    /// If it panics, the refit fails on every PE.
    pub fn set_progress(&mut self, on_progress: impl Fn(Progress) + Send + Sync + 'static) {
        self.on_progress = Some(Box::new(on_progress));
    }

    /// Records from now on what this PE does in its refits, one thread doing all of it.
    pub fn record_timeline(&mut self) {
        self.timeline = Some(Timeline::default());
    }

    /// Takes what was recorded, in the order of time; nothing where it was not asked for.
    pub fn take_timeline(&mut self) -> Vec<RefitEvent> {
        self.timeline.as_ref().map_or_else(Vec::new, Timeline::take)
    }

    /// Has calls end when `cancel` is cancelled; it may be shared with streams and plans.
    ///
    /// The call under way, or else the next one, then fails on every PE.
    pub fn set_cancel(&mut self, cancel: CancelToken) {
        self.cancel = cancel;
    }

    /// Returns the members of the group, in ascending order.
    pub fn members(&self) -> Vec<usize> {
        self.transport.members()
    }

    /// Counts changes of the members, from 1.
    pub fn epoch(&self) -> u64 {
        self.transport.epoch()
    }

    /// Goes on after a failure: every PE that is left calls it, and may then refit again.
    ///
    /// Calls after the loss of members do so by themselves. Returns the failure where the transport
    /// cannot go on, or the group has gone on without this PE. Does nothing in a group that has not
    /// failed.
    pub fn recover(&mut self) -> Result<(), ServiceError> {
        let wait = Wait::timeout(self.options.timeout).cancelled_by(&self.cancel);
        // SAFETY: the service is borrowed exclusively, and no call of it is under way.
        let recovered = unsafe { self.transport.recover(&wait) };
        recovered.map_err(ServiceError::from)
    }

    /// Returns the token that ends this service's calls.
    pub fn cancel_token(&self) -> CancelToken {
        self.cancel.clone()
    }

    /// This PE's part in turning `from` into `to`, made once and kept for the next time.
    pub fn prepare(
        &mut self,
        from: &Layout,
        to: &Layout,
        options: &PlanOptions,
    ) -> Result<Arc<Refit>, ServiceError> {
        let key = (from.fingerprint(), to.fingerprint());
        if let Some((refit, made_with)) = self.plans.get(&key)
            && made_with == options
            && refit.has_checksums() == self.options.checksums
        {
            return Ok(refit.clone());
        }
        let slot_bytes = self.transport.shape().slot_bytes;
        let refit = Arc::new(self.plan(from, to, options, slot_bytes)?);
        if self.plans.len() >= PLANS_MAX {
            self.plans.clear();
            self.plans_left.clear();
            self.kept.clear();
        }
        self.plans.insert(key, (refit.clone(), options.clone()));
        Ok(refit)
    }

    /// The same as [`prepare`](Self::prepare) for shards of this PE that have `strides`: peers
    /// prepare as ever, and run it together. It is not kept, and has no
    /// [`destination`](Self::destination).
    pub fn prepare_strided(
        &mut self,
        from: &Layout,
        to: &Layout,
        options: &PlanOptions,
        strides: &ShardStrides,
    ) -> Result<Arc<Refit>, ServiceError> {
        let dense = self.prepare(from, to, options)?;
        let mut refit = Refit::strided(from, to, options, &dense, strides)?;
        if self.transport.can_recover() {
            refit = refit.keeping(from, to, options);
        }
        Ok(Arc::new(refit))
    }

    /// This PE's part in turning `from` into `to`, cut to `slot_bytes`.
    fn plan(
        &self,
        from: &Layout,
        to: &Layout,
        options: &PlanOptions,
        slot_bytes: usize,
    ) -> Result<Refit, ServiceError> {
        let size = self.transport.shape().size;
        let make = if self.options.checksums { Refit::with_checksums } else { Refit::new };
        let mut refit = make(from, to, options, slot_bytes, self.rank())?;
        if self.transport.can_recover() {
            refit = refit.keeping(from, to, options);
        }
        match refit.world() {
            world if world > size => Err(LayoutError::GroupTooSmall { world, size }.into()),
            _ => Ok(refit),
        }
    }

    /// Memory for what `refit` leaves on this PE.
    ///
    /// Where there is none to be had, the group fails, so that the others do not wait for this PE.
    pub fn destination(&self, refit: &Refit) -> Result<Destination, ServiceError> {
        let made = Destination::new(&*self.transport, refit, self.options.versions);
        made.map_err(|failure| self.transport.fail(failure).into())
    }

    /// Opens lanes on `device`, so that tensors in its memory can be bound.
    ///
    /// Where that cannot be done, the group fails, so that the others do not wait for this PE.
    pub fn add_device(&mut self, device: &Arc<dyn Device>) -> Result<(), ServiceError> {
        self.lanes()?;
        let lanes = self.lanes.get_mut().expect("opened above");
        let added = lanes.add(device);
        added.map_err(|error| self.no_lanes(&error).into())
    }

    /// Memory on `device` for what `refit` leaves on this PE, in as many versions as
    /// [`ServiceOptions::versions`] says.
    pub fn destination_on(
        &mut self,
        refit: &Refit,
        device: &Arc<dyn Device>,
    ) -> Result<Destination, ServiceError> {
        self.add_device(device)?;
        let (_, lanes) = self.lanes()?.device(device.spec()).expect("added above");
        let lane = lanes.copy.clone();
        let (transport, versions) = (&*self.transport, self.options.versions);
        let made = Destination::on_device(transport, refit, versions, device, &lane);
        made.map_err(|failure| self.transport.fail(failure).into())
    }

    /// The lanes, opened if that has not happened yet.
    fn lanes(&self) -> Result<&PipelineLanes, Failure> {
        if self.lanes.get().is_none() {
            let lanes = PipelineLanes::new().map_err(|error| self.no_lanes(&error))?;
            // Somebody else may have been faster; one of the two is as good as the other.
            let _ = self.lanes.set(lanes);
        }
        Ok(self.lanes.get().expect("set above"))
    }

    fn no_lanes(&self, error: &DeviceError) -> Failure {
        let message = format!("no lanes for a refit: {error}");
        self.transport.fail(Failure::Local { rank: self.rank(), message })
    }
}
