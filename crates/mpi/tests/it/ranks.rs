//! One rank of a job, and what the scenarios of `refits` and `services` use.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use syncline_layout::Layout;
use syncline_mpi::{MpiEndpoint, Options, Way, World};
use syncline_reshard::{CopyService, ServiceError, ServiceOptions};
use syncline_tensor::Dtype;
use syncline_transport::{Transport, Wait, conformance};

use crate::jobs::SCENARIO;
use crate::models::model;
use crate::{kills, refits, services};

pub use crate::groups::PATIENCE;

/// This rank of the job, and how it is to join groups.
pub struct Rank {
    pub world: World,
    pub way: Way,
    pub share_memory: bool,
}

impl Rank {
    pub fn rank(&self) -> usize {
        self.world.rank()
    }

    pub fn size(&self) -> usize {
        self.world.size()
    }

    /// A new group with these slots.
    pub fn join(&self, depth: usize, slot_bytes: usize) -> MpiEndpoint {
        let options = Options { depth, slot_bytes, way: self.way, share_memory: self.share_memory };
        self.world.join(&options, &Wait::timeout(PATIENCE)).unwrap()
    }

    /// A service on a new group.
    pub fn service<'a>(
        &self,
        (depth, slot_bytes): (usize, usize),
        options: ServiceOptions,
    ) -> CopyService<'a> {
        CopyService::new(self.join(depth, slot_bytes), options)
    }

    /// The failure that every rank returned.
    #[track_caller]
    pub fn agreed<T: std::fmt::Debug>(&self, result: Result<T, ServiceError>) -> String {
        let mine = result.unwrap_err().to_string();
        let all = self.world.gather(&mine, &Wait::timeout(PATIENCE)).unwrap();
        assert!(all.iter().all(|error| *error == all[0]), "not the same: {all:#?}");
        mine
    }
}

/// Split in `size` ways.
pub fn tp(size: usize) -> Layout {
    model(2, 48, Dtype::BF16, &format!(r#"[["tp", {size}]]"#))
}

/// The checks that threads and processes of one host run too.
fn conforms(rank: &Rank) {
    for (depth, slot_bytes) in [(1, 192), (3, 192), (2, 65_536)] {
        let mut endpoint = rank.join(depth, slot_bytes);
        // Lanes fill slots in place exactly where those are in memory of the host.
        assert_eq!(endpoint.slots().is_some(), endpoint.way() == "shared memory");
        conformance::check(&mut endpoint, PATIENCE).unwrap();
    }
}

type Scenario = (&'static str, fn(&Rank));

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

/// Not a test of its own: what the other tests start as their ranks. `mpirun` passes the
/// environment on.
#[test]
fn one_rank_of_a_job() {
    let Ok(text) = std::env::var(SCENARIO) else { return };
    let words: Vec<&str> = text.split(' ').collect();
    let way = match words[1] {
        "auto" => Way::Auto,
        "put" => Way::Put,
        "messages" => Way::Messages,
        other => panic!("no way {other}"),
    };
    let share_memory = words[2] == "shared";
    let rank = Rank { world: World::start().unwrap(), way, share_memory };
    if rank.rank() == 0 {
        println!("{} hosts, {}", rank.world.hosts(), rank.world.library());
    }
    let run = |(name, scenario): &Scenario| {
        let started = Instant::now();
        let ran = catch_unwind(AssertUnwindSafe(|| scenario(&rank)));
        if rank.rank() == 0 {
            println!("{name}: {} ms", started.elapsed().as_millis());
        }
        if ran.is_err() {
            // The others would wait for this rank until their deadlines.
            eprintln!("rank {} failed in: {name}", rank.rank());
            rank.world.abort(3);
        }
    };
    match words[0] {
        "set" => {
            let endpoint = rank.join(2, 1 << 20);
            if rank.rank() == 0 {
                println!("way: {}, {:?}", endpoint.way(), endpoint.probe());
            }
            drop(endpoint);
            SET.iter().for_each(run);
        }
        "endless" => run(&("endless", kills::endless)),
        other => panic!("no scenario {other}"),
    }
    println!("RESULT done");
}
