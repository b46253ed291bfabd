//! Groups of real processes over shared memory, and what happens when some of them die.
//!
//! A PE is this test binary started again with the scenario in its environment. Each prints one
//! line that starts with `RESULT`, which the parent compares. Nothing here waits without a limit,
//! and every process is killed when its test ends, however it ends.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use syncline_layout::{Layout, PlanOptions};
use syncline_reshard::{
    CopyService, Destination, Refit, ServiceError, ServiceOptions, Sources, Target, Targets,
    Versions,
};
use syncline_tensor::Dtype;
use syncline_testing::{Rng, for_seeds};
use syncline_transport::{Wait, conformance, shm};

use crate::corruption;
use crate::models::shards;
use crate::pipelines::model;

const SCENARIO: &str = "SYNCLINE_TEST_SCENARIO";

/// What a child is told, and tells the parent in turn.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: String,
    pub rank: usize,
    pub size: usize,
    pub what: String,
    pub timeout: Duration,
}

impl Scenario {
    fn to_text(&self) -> String {
        let Scenario { name, rank, size, what, timeout } = self;
        format!("{name} {rank} {size} {what} {}", timeout.as_millis())
    }

    fn parse(text: &str) -> Self {
        let words: Vec<&str> = text.split(' ').collect();
        Self {
            name: words[0].to_owned(),
            rank: words[1].parse().unwrap(),
            size: words[2].parse().unwrap(),
            what: words[3].to_owned(),
            timeout: Duration::from_millis(words[4].parse().unwrap()),
        }
    }
}

/// A child that does not outlive its test.
pub struct Pe(Child);

impl Drop for Pe {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Pe {
    /// Ends it by SIGKILL.
    pub fn kill(&mut self) {
        self.0.kill().unwrap();
    }

    pub fn start(scenario: &Scenario) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "processes::one_pe_of_another_test",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(SCENARIO, scenario.to_text())
            .env_remove("SYNCLINE_SEED")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }

    /// What the child says at its end; panics if that does not come in time.
    pub fn result(&mut self, limit: Duration) -> String {
        let started = Instant::now();
        while self.0.try_wait().unwrap().is_none() {
            assert!(started.elapsed() < limit, "a PE is still running after {limit:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
        let mut text = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        // The harness prints the test's name on the same line before the test runs.
        let at = text.find("RESULT ").unwrap_or_else(|| panic!("a PE said nothing: {text}"));
        text[at + 7..].lines().next().unwrap().to_owned()
    }
}

/// A name that no other test uses.
pub fn fresh_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn is_left_behind(name: &str) -> bool {
    std::path::Path::new(&format!("/dev/shm/syncline-{name}")).exists()
}

pub fn scenarios(size: usize, what: &str, timeout: Duration) -> Vec<Scenario> {
    let name = fresh_name();
    (0..size)
        .map(|rank| Scenario { name: name.clone(), rank, size, what: what.to_owned(), timeout })
        .collect()
}

fn options() -> shm::Options {
    shm::Options { depth: 2, slot_bytes: 4096, ..Default::default() }
}

fn layouts(size: usize) -> (Layout, Layout) {
    let axes = |tp: usize| format!(r#"[["tp", {tp}]]"#);
    (model(2, 96, Dtype::F32, &axes(size)), model(2, 96, Dtype::F32, &axes(size - 1)))
}

/// The values of refit number `version`.
pub fn stamped(shards: &[(String, Vec<u8>)], version: u64) -> Vec<(String, Vec<u8>)> {
    let stamp = |bytes: &Vec<u8>| bytes.iter().map(|byte| byte ^ version as u8).collect();
    shards.iter().map(|(name, bytes)| (name.clone(), stamp(bytes))).collect()
}

/// Whether `destination` holds exactly the values of the version that it claims.
pub fn is_whole(destination: &Destination, expected: &[(String, Vec<u8>)]) -> bool {
    let Ok(reading) = destination.read() else { return false };
    if reading.version() == 0 {
        return true;
    }
    let expected = stamped(expected, reading.version());
    expected.iter().all(|(name, bytes)| reading.tensor(name) == Some(&bytes[..]))
}

fn bind<'a>(refit: &Refit, shards: &'a [(String, Vec<u8>)]) -> Sources<'a> {
    crate::models::bind(refit, shards)
}

/// Where a PE has its tensors: in a destination that peers write directly, or in memory of its own,
/// filled from slots.
enum Home {
    Shared(Destination),
    /// What is in use, and what the next refit writes.
    Private {
        version: u64,
        halves: [Vec<(String, Vec<u8>)>; 2],
    },
}

impl Home {
    fn new(service: &CopyService, refit: &Refit, is_private: bool) -> Self {
        if !is_private {
            return Home::Shared(service.destination(refit).unwrap());
        }
        let zeros = |(name, bytes): (&str, usize)| (name.to_owned(), vec![0; bytes]);
        let half: Vec<(String, Vec<u8>)> = refit.targets().iter().map(zeros).collect();
        Home::Private { version: 0, halves: [half.clone(), half] }
    }

    fn version(&self) -> u64 {
        match self {
            Home::Shared(destination) => destination.version(),
            Home::Private { version, .. } => *version,
        }
    }

    fn refit(
        &mut self,
        service: &mut CopyService,
        refit: &Refit,
        sources: &Sources<'_>,
    ) -> Result<(), ServiceError> {
        match self {
            Home::Shared(destination) => {
                service.refit(refit, sources, Target::Destination(destination))?;
            }
            Home::Private { version, halves } => {
                let mut targets = Targets::new(refit);
                for (name, bytes) in &mut halves[1] {
                    targets.bind(refit, name, bytes).unwrap();
                }
                service.refit(refit, sources, Target::Memory(&mut targets))?;
                drop(targets);
                halves.swap(0, 1);
                *version += 1;
            }
        }
        Ok(())
    }

    fn is_whole(&self, expected: &[(String, Vec<u8>)]) -> bool {
        match self {
            Home::Shared(destination) => is_whole(destination, expected),
            Home::Private { version: 0, .. } => true,
            Home::Private { version, halves } => halves[0] == stamped(expected, *version),
        }
    }
}

/// Refits until something fails or `refits` are done; says what failed and what the PE holds.
fn refit_on(scenario: &Scenario, refits: u64) -> String {
    let wait = Wait::timeout(scenario.timeout);
    let Scenario { name, rank, size, what, .. } = scenario;
    let endpoint = match shm::join(name, *rank, *size, &options(), &wait) {
        Ok(endpoint) => endpoint,
        Err(error) => return format!("whole at 0: {error}"),
    };
    let (from, mut to) = layouts(*size);
    if what == "other-plan" && *rank == 1 {
        to = from.clone();
    }
    let service_options = ServiceOptions {
        timeout: scenario.timeout,
        checksums: what.contains("checked"),
        versions: Versions::Two,
        separate_lanes: Some(*rank == 0),
    };
    let mut service = CopyService::new(endpoint, service_options);
    let refit = service.prepare(&from, &to, &PlanOptions::default()).unwrap();
    let mut home = Home::new(&service, &refit, what.contains("packed"));
    let mine = shards(&from, *rank);
    let expected = shards(&to, *rank);
    let mut refit_all = || -> Result<(), ServiceError> {
        for version in 1..=refits {
            let mine = stamped(&mine, version);
            home.refit(&mut service, &refit, &bind(&refit, &mine))?;
            assert_eq!(home.version(), version);
            if service.members().len() < *size {
                break;
            }
        }
        Ok(())
    };
    let outcome = refit_all();
    let state = if home.is_whole(&expected) { "whole" } else { "TORN" };
    match outcome {
        Ok(()) => format!("{state} at {}: done", home.version()),
        Err(error) => format!("{state} at {}: {error}", home.version()),
    }
}

/// A number of KiB that the kernel keeps of this process.
fn status_kib(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The most private memory that planning and refitting 48 MiB has taken beside the tensors
/// themselves.
fn memory_beside(scenario: &Scenario) -> String {
    let Scenario { name, rank, size, what, timeout } = scenario;
    let axes = |tp: usize| format!(r#"[["tp", {tp}]]"#);
    let (from, to) =
        (model(6, 1024, Dtype::F32, &axes(*size)), model(6, 1024, Dtype::F32, &axes(size - 1)));
    let held = |layout: &Layout| -> Vec<(String, Vec<u8>)> {
        let tensors = layout.tensors().iter();
        let shard = |tensor: &syncline_layout::TensorLayout| {
            let shard = tensor.placement().shard(*rank as u32)?;
            let bytes = shard.shape.volume() * tensor.dtype().bytes();
            Some((tensor.name().to_owned(), vec![7; bytes as usize]))
        };
        tensors.filter_map(shard).collect()
    };
    let (mine, mut received) = (held(&from), held(&to));
    let group = shm::Options { slot_bytes: 1 << 20, ..options() };
    let endpoint = shm::join(name, *rank, *size, &group, &Wait::timeout(*timeout)).unwrap();
    let (before, is_over) = (status_kib("RssAnon"), AtomicBool::new(false));
    let most = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut most = 0;
            while !is_over.load(Ordering::Relaxed) {
                most = status_kib("RssAnon").max(most);
                std::thread::sleep(Duration::from_micros(200));
            }
            most
        });
        let options = ServiceOptions {
            timeout: *timeout,
            checksums: what.contains("checked"),
            separate_lanes: Some(what.contains("lanes")),
            ..Default::default()
        };
        let mut service = CopyService::new(endpoint, options);
        let refit = service.prepare(&from, &to, &PlanOptions::default()).unwrap();
        let destination = service.destination(&refit).unwrap();
        let mut targets = Targets::new(&refit);
        for (name, bytes) in &mut received {
            targets.bind(&refit, name, bytes).unwrap();
        }
        for _ in 0..3 {
            let target = match what.contains("packed") {
                true => Target::Memory(&mut targets),
                false => Target::Destination(&destination),
            };
            service.refit(&refit, &bind(&refit, &mine), target).unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        watcher.join().unwrap()
    });
    let beside_kib = most.saturating_sub(before);
    if beside_kib <= 10 << 10 { "bounded".to_owned() } else { format!("{beside_kib} KiB beside") }
}

fn many_refits(scenario: &Scenario) -> String {
    let mut resident = 0;
    let wait = Wait::timeout(scenario.timeout);
    let endpoint =
        shm::join(&scenario.name, scenario.rank, scenario.size, &options(), &wait).unwrap();
    let (from, to) = layouts(scenario.size);
    let service_options = ServiceOptions { timeout: scenario.timeout, ..Default::default() };
    let mut service = CopyService::new(endpoint, service_options);
    let mine = shards(&from, scenario.rank);
    let expected = shards(&to, scenario.rank);
    let refit = service.prepare(&from, &to, &PlanOptions::default()).unwrap();
    let destination = service.destination(&refit).unwrap();
    for version in 1..=1_000 {
        let mine = stamped(&mine, version);
        service.refit(&refit, &bind(&refit, &mine), Target::Destination(&destination)).unwrap();
        if version % 100 == 0 {
            assert!(is_whole(&destination, &expected), "refit {version}");
        }
        if version == 100 {
            resident = status_kib("VmRSS");
        }
    }
    let grown_kib = status_kib("VmRSS").saturating_sub(resident);
    format!("done, {}", if grown_kib < 2_048 { "bounded" } else { "memory has grown" })
}

/// Not a test of its own: what the other tests start as their PEs.
#[test]
fn one_pe_of_another_test() {
    let Ok(text) = std::env::var(SCENARIO) else { return };
    let scenario = Scenario::parse(&text);
    let result = match scenario.what.as_str() {
        what if what.starts_with("refit-on-and-on") => refit_on(&scenario, 1_000_000),
        what if what.starts_with("refit") || what == "other-plan" => refit_on(&scenario, 3),
        "many" => many_refits(&scenario),
        "conform" => conform(&scenario),
        what if what.starts_with("epochs-") => crate::epochs::live(&scenario),
        what if what.starts_with("memory") => memory_beside(&scenario),
        "flip-a-byte" => corruption::flip_a_byte(&scenario),
        what if what.starts_with("corrupt-") => corruption::refit_corrupted(&scenario),
        "join-twice-as-large" => {
            let options = shm::Options { slot_bytes: 8192, ..options() };
            let wait = Wait::timeout(scenario.timeout);
            let joined = shm::join(&scenario.name, scenario.rank, scenario.size, &options, &wait);
            joined.map_or_else(|error| error.to_string(), |_| "joined".to_owned())
        }
        other => panic!("no scenario {other}"),
    };
    println!("RESULT {result}");
}

pub const LIMIT: Duration = Duration::from_secs(60);

pub fn run_all(scenarios: &[Scenario]) -> Vec<String> {
    let mut pes: Vec<Pe> = scenarios.iter().map(Pe::start).collect();
    let results = pes.iter_mut().map(|pe| pe.result(LIMIT)).collect();
    assert!(!is_left_behind(&scenarios[0].name), "the group's file is still there");
    results
}

#[test]
fn processes_refit_directly_and_through_slots() {
    for what in ["refit", "refit-packed", "refit-checked", "refit-packed-checked"] {
        let results = run_all(&scenarios(4, what, LIMIT));
        assert_eq!(results, vec!["whole at 3: done"; 4]);
    }
}

#[test]
fn a_thousand_refits_take_no_more_memory_than_a_hundred() {
    assert_eq!(run_all(&scenarios(3, "many", LIMIT)), vec!["done, bounded"; 3]);
}

#[test]
fn a_refit_takes_little_memory_beside_slots_and_tensors() {
    for what in ["memory", "memory-packed", "memory-checked", "memory-packed-checked-lanes"] {
        assert_eq!(run_all(&scenarios(3, what, LIMIT)), vec!["bounded"; 3], "{what}");
    }
}

#[test]
fn a_process_that_never_comes_is_named() {
    let all = scenarios(3, "refit", Duration::from_millis(700));
    let results = run_all(&all[..2]);
    assert_eq!(results[0], results[1]);
    assert!(results[0].contains("PE 2 did not join within"), "{}", results[0]);
}

#[test]
fn a_process_with_another_plan_is_noticed_by_all() {
    let results = run_all(&scenarios(3, "other-plan", LIMIT));
    assert!(results.iter().all(|result| *result == results[0]), "{results:?}");
    assert!(results[0].starts_with("whole at 0: ") && results[0].contains("has plan"));
}

#[test]
fn a_process_with_other_slots_is_noticed_by_all() {
    let mut all = scenarios(3, "refit", LIMIT);
    all[2].what = "join-twice-as-large".to_owned();
    let results = run_all(&all);
    // Whoever comes first makes the group; whoever differs from it is the one named.
    let is_named = |result: &String| result.contains("every PE must pass the same");
    assert!(results.iter().all(is_named), "{results:?}");
}

#[test]
fn a_rank_taken_twice_is_refused() {
    let mut all = scenarios(2, "refit", Duration::from_millis(700));
    all[1].rank = 0;
    let results = run_all(&all);
    let refused = results.iter().filter(|result| result.contains("is taken")).count();
    let waited = results.iter().filter(|result| result.contains("PE 1 did not join")).count();
    assert_eq!((refused, waited), (1, 1), "{results:?}");
}

/// Kills one PE of a running group after `delay` and returns what the survivors say.
fn kill_one(scenarios: &[Scenario], victim: usize, delay: Duration) -> Vec<String> {
    let mut pes: Vec<Pe> = scenarios.iter().map(Pe::start).collect();
    std::thread::sleep(delay);
    pes[victim].kill();
    let killed = Instant::now();
    let survivors = pes.iter_mut().enumerate().filter(|(rank, _)| *rank != victim);
    let results: Vec<String> = survivors.map(|(_, pe)| pe.result(LIMIT)).collect();
    assert!(killed.elapsed() < LIMIT);
    assert!(!is_left_behind(&scenarios[0].name), "the group's file is still there");
    results
}

fn check_kill(rng: &mut Rng, timeout: Duration) {
    let size = rng.below(3) + 2;
    let ways = ["", "-packed", "-checked", "-packed-checked"];
    let what = &format!("refit-on-and-on{}", rng.pick(&ways));
    let victim = rng.below(size);
    // The start of a process takes some milliseconds, a refit about one: early kills hit the
    // joining.
    let delay = Duration::from_micros(rng.range(0..120_000));
    let results = kill_one(&scenarios(size, what, timeout), victim, delay);
    let cause = |result: &String| result.split_once(": ").map(|(_, cause)| cause.to_owned());
    let agreed = cause(&results[0]).unwrap();
    let died = format!("PE {victim} died, and what it held is nowhere else");
    let absent = format!("PE {victim} did not join within");
    // Only the first itself gets anything of what it holds.
    let is_expected = if victim > 0 { agreed.starts_with(&died) } else { agreed == "done" };
    assert!(is_expected || agreed.starts_with(&absent), "{results:?}");
    for result in &results {
        assert_eq!(cause(result).as_deref(), Some(&agreed[..]), "{results:?}");
        assert!(result.starts_with("whole at "), "{results:?}");
    }
}

#[test]
fn a_killed_process_fails_the_others_alike_and_tears_nothing() {
    for_seeds("a_killed_process_fails_the_others_alike_and_tears_nothing", 20, |rng| {
        check_kill(rng, Duration::from_secs(3));
    });
}

#[test]
fn what_killed_processes_left_behind_is_cleared_by_the_next() {
    for is_same_group in [true, false] {
        let all = scenarios(2, "refit", LIMIT);
        let mut lonely = Pe::start(&all[0]);
        let started = Instant::now();
        while !is_left_behind(&all[0].name) {
            assert!(started.elapsed() < LIMIT, "PE 0 has made no file");
            std::thread::sleep(Duration::from_millis(2));
        }
        // Killed while it waits for the other: nobody is left to clear.
        lonely.0.kill().unwrap();
        lonely.0.wait().unwrap();
        let next = if is_same_group { all.clone() } else { scenarios(2, "refit", LIMIT) };
        assert_eq!(run_all(&next), vec!["whole at 3: done"; 2]);
        assert!(!is_left_behind(&all[0].name), "same group: {is_same_group}");
    }
}

#[test]
fn a_file_that_is_not_ours_is_refused() {
    let name = fresh_name();
    let path = format!("/dev/shm/syncline-{name}");
    std::fs::write(&path, vec![0; 8192]).unwrap();
    let wait = Wait::timeout(Duration::from_secs(5));
    let refused = shm::join(&name, 0, 1, &options(), &wait).unwrap_err().to_string();
    std::fs::remove_file(&path).unwrap();
    assert!(refused.contains("permissions are not 0600"), "{refused}");
    let unnamed = shm::join("a/b", 0, 1, &options(), &wait).unwrap_err().to_string();
    assert!(unnamed.contains("no group name"), "{unnamed}");
}

#[test]
fn a_full_file_system_is_an_error_and_not_a_signal() {
    let wait = Wait::timeout(Duration::from_secs(5));
    let name = fresh_name();
    let huge = shm::Options { slot_bytes: 1 << 50, ..options() };
    let refused = shm::join(&name, 0, 1, &huge, &wait).unwrap_err().to_string();
    assert!(refused.contains("/dev/shm has no room for"), "{refused}");
    assert!(!is_left_behind(&name));
    // The same for a destination, once the group is there.
    let endpoint = shm::join(&name, 0, 1, &options(), &wait).unwrap();
    let full = syncline_transport::MemoryPlane::allocate(&endpoint, 1 << 50);
    let full = full.unwrap_err().to_string();
    assert!(full.contains("PE 0: /dev/shm has no room for"), "{full}");
}

#[test]
fn the_file_is_private_and_gone_once_all_have_joined() {
    let all = scenarios(2, "refit-on-and-on", LIMIT);
    let path = format!("/dev/shm/syncline-{}", all[0].name);
    let _first = Pe::start(&all[0]);
    let started = Instant::now();
    while !is_left_behind(&all[0].name) {
        assert!(started.elapsed() < LIMIT, "PE 0 has made no file");
        std::thread::sleep(Duration::from_millis(2));
    }
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let _second = Pe::start(&all[1]);
    while is_left_behind(&all[0].name) {
        assert!(started.elapsed() < LIMIT, "both have joined, and the file is still there");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn conform(scenario: &Scenario) -> String {
    let wait = Wait::timeout(scenario.timeout);
    let Scenario { name, rank, size, .. } = scenario;
    let mut endpoint = shm::join(name, *rank, *size, &options(), &wait).unwrap();
    match conformance::check(&mut endpoint, scenario.timeout) {
        Ok(()) => "conforms".to_owned(),
        Err(violation) => violation.to_string(),
    }
}

#[test]
fn the_transport_between_processes_conforms() {
    for size in [1, 2, 5] {
        assert_eq!(run_all(&scenarios(size, "conform", LIMIT)), vec!["conforms"; size]);
    }
}
