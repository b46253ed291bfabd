//! One rank of a job.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use syncline_mpi::{MpiEndpoint, Options, Way, World};
use syncline_transport::{DataPlane, Transport, Wait};

use crate::groups::PATIENCE;
use crate::jobs::SCENARIO;
use crate::kills;
use crate::suite::{self, Fixture};

/// This rank of the job, and how it is to join groups.
pub struct Rank {
    pub world: World,
    way: Way,
    share_memory: bool,
}

impl Rank {
    /// A new group with these slots.
    pub fn try_join(&self, (depth, slot_bytes): (usize, usize)) -> Result<MpiEndpoint, String> {
        let options = Options { depth, slot_bytes, way: self.way, share_memory: self.share_memory };
        let joined = self.world.join(&options, &Wait::timeout(PATIENCE));
        joined.map_err(|error| error.to_string())
    }
}

impl Fixture for Rank {
    fn rank(&self) -> usize {
        self.world.rank()
    }

    fn size(&self) -> usize {
        self.world.size()
    }

    fn join(&self, slots: (usize, usize)) -> Result<Box<dyn Transport>, String> {
        let endpoint = self.try_join(slots)?;
        // Lanes fill slots in place exactly where those are in memory of the host.
        assert_eq!(endpoint.slots().is_some(), endpoint.way() == "shared memory");
        Ok(Box::new(endpoint))
    }

    fn gather(&self, text: &str) -> Vec<String> {
        self.world.gather(text, &Wait::timeout(PATIENCE)).unwrap()
    }
}

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
    let run = |name: &str, scenario: &dyn Fn()| {
        let started = Instant::now();
        let ran = catch_unwind(AssertUnwindSafe(scenario));
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
            let endpoint = rank.try_join((2, 1 << 20)).unwrap();
            if rank.rank() == 0 {
                println!("way: {}, {:?}", endpoint.way(), endpoint.probe());
            }
            drop(endpoint);
            suite::run(&rank, run);
        }
        "endless" => run("endless", &|| kills::endless(&rank)),
        other => panic!("no scenario {other}"),
    }
    println!("RESULT done");
}
