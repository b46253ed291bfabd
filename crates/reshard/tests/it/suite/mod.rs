//! The one suite of every transport: what a PE of any group does, and what must then hold.
//!
//! A [`Fixture`] is one PE of a job, which joins as many groups as the suite asks for. Every PE of
//! the job runs [`SET`] in the same order: threads over `local`, `shm` and `tcp` (`threads`), ranks
//! of MPI in that crate's own tests.

mod refits;
mod services;

use syncline_layout::Layout;
use syncline_reshard::{CopyService, ServiceError, ServiceOptions};
use syncline_tensor::Dtype;
use syncline_transport::{Transport, conformance};

use crate::groups::PATIENCE;
use crate::models::model;

/// One PE of a job.
pub trait Fixture {
    /// This PE.
    fn rank(&self) -> usize;
    /// PEs of the job.
    fn size(&self) -> usize;
    /// Joins a new group of all PEs with this many slots of this many bytes.
    fn join(&self, slots: (usize, usize)) -> Result<Box<dyn Transport>, String>;
    /// Returns what every PE has said, by rank; waits for all.
    fn gather(&self, text: &str) -> Vec<String>;
    /// Returns `true` if PEs join a group one by one, so that they can disagree on what it is.
    fn can_disagree(&self) -> bool {
        true
    }
}

impl dyn Fixture + '_ {
    /// A new group with these slots, which every PE knows to be complete.
    fn group(&self, slots: (usize, usize)) -> Box<dyn Transport> {
        let transport = self.join(slots).unwrap();
        // A PE that fails at once would end the join of one that has not heard of the last yet.
        self.gather("");
        transport
    }

    /// A service on a new group.
    fn service(&self, slots: (usize, usize), options: ServiceOptions) -> CopyService {
        CopyService::new(self.group(slots), options)
    }

    /// Returns the failure that every PE returned.
    #[track_caller]
    fn agreed<T: std::fmt::Debug>(&self, result: Result<T, ServiceError>) -> String {
        let mine = result.unwrap_err().to_string();
        let all = self.gather(&mine);
        assert!(all.iter().all(|error| *error == all[0]), "not the same: {all:#?}");
        mine
    }
}

/// Split in `size` ways.
pub fn tp(size: usize) -> Layout {
    model(2, 48, Dtype::BF16, &format!(r#"[["tp", {size}]]"#))
}

/// The checks of the transport crate itself.
fn conforms(pe: &dyn Fixture) {
    for slots in [(1, 192), (3, 192), (2, 65_536)] {
        conformance::check(&mut pe.group(slots), PATIENCE).unwrap();
    }
}

/// Runs on every PE of a job at the same time.
type Scenario = (&'static str, fn(&dyn Fixture));

/// Everything that a transport must do.
const SET: &[Scenario] = &[
    ("the set of every transport", conforms),
    ("random layouts", refits::random_layouts),
    ("megabytes through slots", refits::megabytes),
    ("conversions", refits::conversions),
    ("there and back", refits::there_and_back),
    ("the executor alone", refits::executor_alone),
    ("many refits", refits::many),
    ("single transfers", services::single_transfers),
    ("mismatched transfers", services::mismatched),
    ("cleared submissions", services::cleared),
    ("other plans", services::other_plans),
    ("one that leaves", services::leaving),
    ("one that never starts", services::never_starting),
    ("failed stays failed", services::failed_stays_failed),
    ("cancelled in the middle", services::cancelled),
    ("progress", services::progress),
    ("unbound", services::unbound),
    ("plans interleaved", services::interleaved),
    ("a reader keeps its version", services::reader),
    ("corrupt segments", services::corrupt),
    ("too large a destination", services::too_large),
    ("other slots", services::other_slots),
];

/// Runs the whole set; `observe` is told the name of each scenario and runs it.
pub fn run(pe: &dyn Fixture, observe: impl Fn(&str, &dyn Fn())) {
    for (name, scenario) in SET {
        observe(name, &|| scenario(pe));
    }
}
