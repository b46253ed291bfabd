//! Ranks that are killed or stopped: the job ends, and says why.

use std::io::{BufRead, BufReader};
use std::process::Command;
use std::time::{Duration, Instant};

use syncline_layout::PlanOptions;
use syncline_mpi::RankLauncher;
use syncline_reshard::{CopyService, ServiceOptions, Target};

use crate::jobs::{self, launcher, on_one_host};
use crate::models::{bind, shards};
use crate::ranks::Rank;
use crate::suite::{Fixture, tp};

/// How long ranks wait for each other here.
const DEADLINE: Duration = Duration::from_secs(4);

/// For the rank: refits until something fails, then says what.
pub fn endless(rank: &Rank) {
    println!("PID {} {}", rank.rank(), std::process::id());
    let options = ServiceOptions { timeout: DEADLINE, ..Default::default() };
    let mut service = CopyService::new(rank.try_join((2, 1024)).unwrap(), options);
    let (from, to) = (tp(rank.size()), tp(rank.size() - 1));
    let refit = service.prepare(&from, &to, &PlanOptions::default()).unwrap();
    let mine = shards(&from, rank.rank());
    let destination = service.destination(&refit).unwrap();
    loop {
        let target = Target::Destination(&destination);
        if let Err(error) = service.refit(&refit, &bind(&refit, &mine), target) {
            eprintln!("FAILED {error}");
            // What a program does then: it cannot end MPI with a rank that may be stuck.
            rank.world.abort(7);
        }
    }
}

/// Starts three endless ranks, sends `signal` to one of them after a while, and returns what the
/// job says.
fn signal_one(launcher: &RankLauncher, ways: &str, victim: usize, signal: &str) -> jobs::Said {
    let mut job = jobs::start(on_one_host(launcher, 3), &format!("endless {ways}"));
    let mut lines = BufReader::new(job.0.stdout.take().unwrap()).lines();
    let mut pids = [0u32; 3];
    while pids.contains(&0) {
        let line = lines.next().expect("every rank says its number").unwrap();
        let Some(at) = line.find("PID ") else { continue };
        let words: Vec<&str> = line[at + 4..].split(' ').collect();
        pids[words[0].parse::<usize>().unwrap()] = words[1].trim().parse().unwrap();
    }
    std::thread::sleep(Duration::from_millis(700));
    let pid = pids[victim].to_string();
    assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    let started = Instant::now();
    let rest = std::thread::spawn(move || lines.map_while(Result::ok).collect::<Vec<_>>());
    let mut said = jobs::wait(job, DEADLINE * 4);
    said.stdout = rest.join().unwrap().join("\n");
    // A stopped process does not even end by the launcher's word.
    let _ = Command::new("kill").args(["-KILL", &pid]).output();
    assert!(!said.success, "{}", said.stderr);
    assert!(started.elapsed() < DEADLINE * 4);
    said
}

#[test]
fn a_killed_rank_ends_the_job_which_says_so() {
    let Some(launcher) = launcher() else { return };
    for (ways, victim) in [("auto shared", 1), ("put apart", 2), ("messages apart", 0)] {
        let said = signal_one(&launcher, ways, victim, "-KILL");
        // The launcher's word, which MPICH's says on standard output, or a survivor's.
        let names_it = [&said.stdout, &said.stderr].iter().any(|text| text.contains("signal 9"))
            || said.stderr.contains(&format!("PE {victim} died"));
        assert!(names_it, "{ways}: {}{}", said.stdout, said.stderr);
    }
}

#[test]
fn a_stopped_rank_ends_the_job_at_the_deadline() {
    let Some(launcher) = launcher() else { return };
    for (ways, victim) in [("auto shared", 1), ("put apart", 2), ("messages apart", 0)] {
        let said = signal_one(&launcher, ways, victim, "-STOP");
        // Whoever gives up first names whom it waits for: the stopped one, or one that waits for it
        // in turn.
        let names_it = said.stderr.contains("FAILED PE") && said.stderr.contains("ms for PE");
        assert!(names_it, "{ways}: {}", said.stderr);
    }
}
