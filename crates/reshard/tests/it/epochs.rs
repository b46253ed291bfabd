//! Groups of real processes that go on after some of them were killed.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use syncline_layout::{Layout, PlanOptions};
use syncline_reshard::{CopyService, ServiceError, ServiceOptions, Target};
use syncline_tensor::Dtype;
use syncline_testing::{Rng, for_seeds};
use syncline_transport::{Transport, Wait, shm, tcp};

use crate::models::{bind, model, shards};
use crate::processes::{LIMIT, Pe, Scenario, is_whole, scenarios, stamped};

/// Refits that a PE runs.
const REFITS: u64 = 60;

const SIZE: usize = 5;

/// Where the PEs of a scenario say that they have joined.
fn meeting(scenario: &Scenario) -> PathBuf {
    std::env::temp_dir().join(format!("syncline-{}", scenario.name))
}

/// Joins as `what` says: `epochs-shm-…`, or `epochs-PORT-…` for a group over TCP.
fn join(scenario: &Scenario) -> Box<dyn Transport> {
    let Scenario { name, rank, size, what, timeout } = scenario;
    let (wait, over) = (Wait::timeout(*timeout), what.split('-').nth(1).unwrap());
    if over == "shm" {
        let options = shm::Options { depth: 2, slot_bytes: 4096, ..Default::default() };
        return Box::new(shm::join(name, *rank, *size, &options, &wait).unwrap());
    }
    let (host, port) = ("127.0.0.1".to_owned(), over.parse().unwrap());
    let place = tcp::MeetingPlace { host, port, name: name.clone() };
    // A death shows by its connections; silence on a busy machine means nothing.
    let silence = LIMIT;
    let options = tcp::Options { depth: 2, slot_bytes: 4096, silence, ..Default::default() };
    Box::new(tcp::join(&place, *rank, *size, &options, &wait).unwrap())
}

/// Four PEs hold everything, each part once or twice; all five get a part.
fn layouts(what: &str) -> (Layout, Layout) {
    let axes = if what.ends_with("twice") { r#"[["dp", 2], ["tp", 2]]"# } else { r#"[["tp", 4]]"# };
    (model(2, 120, Dtype::F32, axes), model(2, 120, Dtype::F32, r#"[["tp", 5]]"#))
}

/// One PE: refits until it has done all, or bytes are lost; then meets the members
/// that are left.
pub fn live(scenario: &Scenario) -> String {
    let Scenario { rank, what, timeout, .. } = scenario;
    let options = ServiceOptions {
        timeout: *timeout,
        checksums: what.contains("checked"),
        separate_lanes: Some(*rank == 0),
        ..Default::default()
    };
    let mut service = CopyService::of(join(scenario), options);
    let (from, to) = layouts(what);
    let refit = service.prepare(&from, &to, &PlanOptions::default()).unwrap();
    let destination = service.destination(&refit).unwrap();
    let (mine, expected) = (shards(&from, *rank), shards(&to, *rank));
    std::fs::write(meeting(scenario).join(rank.to_string()), []).unwrap();
    let mut refit_all = || -> Result<(), ServiceError> {
        for version in 1..=REFITS {
            let mine = stamped(&mine, version);
            let (sources, target) = (bind(&refit, &mine), Target::Destination(&destination));
            match what.contains("changes") {
                true => service.refit_changes(&refit, &sources, target)?,
                false => service.refit(&refit, &sources, target)?,
            };
            assert_eq!(destination.version(), version);
            assert!(is_whole(&destination, &expected), "PE {rank} is torn at {version}");
        }
        Ok(())
    };
    let said = match refit_all() {
        Ok(()) => "done".to_owned(),
        Err(error @ ServiceError::Lost { .. }) => error.to_string(),
        Err(error) => panic!("PE {rank}: {error}"),
    };
    let state = if is_whole(&destination, &expected) { "whole" } else { "TORN" };
    let version = destination.version();
    meet(&mut service);
    format!("{state} at {version}: {said}; epoch {}", service.epoch())
}

/// Meets the members that are left.
fn meet(service: &mut CopyService) {
    let started = Instant::now();
    // Another may be killed meanwhile: the members are others then.
    while let Err(error) = service.requests().run() {
        let is_loss = matches!(&error, ServiceError::Failed(failure) if failure.is_loss());
        assert!(is_loss && started.elapsed() < LIMIT, "{error}");
        service.recover().unwrap();
    }
}

/// Starts a group, kills `victims` one by one after random delays, and returns what the survivors
/// say.
fn kill(rng: &mut Rng, what: &str, victims: &[usize]) -> Vec<String> {
    let all = scenarios(SIZE, what, LIMIT);
    let place = meeting(&all[0]);
    std::fs::create_dir_all(&place).unwrap();
    let mut pes: Vec<Pe> = all.iter().map(Pe::start).collect();
    let started = Instant::now();
    while (0..SIZE).any(|rank| !place.join(rank.to_string()).exists()) {
        assert!(started.elapsed() < LIMIT, "the group does not form: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
    for victim in victims {
        std::thread::sleep(Duration::from_micros(rng.range(0..40_000)));
        pes[*victim].kill();
    }
    let survivors = pes.iter_mut().enumerate().filter(|(rank, _)| !victims.contains(rank));
    let results = survivors.map(|(_, pe)| pe.result(LIMIT)).collect();
    std::fs::remove_dir_all(&place).unwrap();
    results
}

/// Kills up to two of five; returns whether the survivors went on without them.
fn check(rng: &mut Rng, over: &str) -> bool {
    let copies = *rng.pick(&["once", "twice"]);
    let checked = *rng.pick(&["", "checked-", "changes-", "checked-changes-"]);
    let what = format!("epochs-{over}-{checked}{copies}");
    let first = rng.below(SIZE);
    let second = (first + 1 + rng.below(SIZE - 1)) % SIZE;
    let victims = if rng.one_in(3) { vec![first, second] } else { vec![first] };
    let results = kill(rng, &what, &victims);
    // Of two deaths, some may have heard of both when they searched for lost bytes.
    let said = |text: &String| {
        let end = text.find(" is nowhere else").or(text.find("; epoch"));
        text[..end.unwrap()].to_owned()
    };
    let agreed = said(&results[0]);
    let is_agreed = results.iter().all(|text| said(text) == agreed);
    assert!(is_agreed, "{what} without {victims:?}: {results:#?}");
    assert!(agreed.starts_with("whole at "), "{agreed}");
    let is_done = agreed == format!("whole at {REFITS}: done");
    let lost = victims.iter().any(|victim| agreed.contains(&format!("PE {victim} died, and what")));
    assert!(is_done || lost, "{what} without {victims:?}: {agreed}");
    // With one PE gone, what two held is still there.
    assert!(is_done || copies == "once" || victims.len() == 2, "{what}: {agreed}");
    is_done && results.iter().all(|text| !text.ends_with("; epoch 1"))
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn processes_over_tcp_go_on_without_those_that_were_killed() {
    let mut went_on = 0;
    for_seeds("processes_over_tcp_go_on_without_those_that_were_killed", 25, |rng| {
        went_on += usize::from(check(rng, &free_port().to_string()));
    });
    assert!(went_on > 0, "no kill has hit a refit that could go on");
}

#[test]
fn processes_over_shm_go_on_without_those_that_were_killed() {
    let mut went_on = 0;
    for_seeds("processes_over_shm_go_on_without_those_that_were_killed", 25, |rng| {
        went_on += usize::from(check(rng, "shm"));
    });
    assert!(went_on > 0, "no kill has hit a refit that could go on");
}
