//! Refits by processes over shared memory, by ranks over MPI, and what the simulation says of them.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use syncline_files::this_program;
use syncline_layout::simulate::{Cluster, simulate};
use syncline_layout::{Layout, PlanOptions, Schedule, TransferPlan};
use syncline_mpi::RankLauncher;
use syncline_reshard::{CopyService, ServiceOptions, Sources, Target, Versions};
use syncline_transport::{Transport, Wait, shm};

use super::{BENCH, TIMEOUT};
use crate::Effort;
use crate::measure::{Figure, figure, timed};
use crate::reshard::gloo::Gloo;
use crate::reshard::model::Case;
use crate::row::Row;

/// Where a process finds what it is to do.
const ENVIRONMENT: &str = "SYNCLINE_BENCH_RANK";
const PES: usize = 4;

/// Whether this process was started as a PE of these refits.
pub(crate) fn is_rank() -> bool {
    std::env::var_os(ENVIRONMENT).is_some()
}

/// TP4 -> TP2 over every transport that is here.
pub(super) fn rows(effort: Effort) -> Vec<Row> {
    // The first is the large model from TP4 to TP2.
    let case = Case::all(effort).swap_remove(0);
    let rounds = if effort == Effort::Smoke { 1 } else { 7 };
    let shared = by_processes(&case, rounds);
    let gloo = (effort != Effort::Smoke).then(Gloo::find).flatten();
    let gloo = gloo.map(|gloo| gloo.measure(&case, rounds).median);
    let work = |over: &str| format!("{}, {over}", case.describe());
    let mut rows = Vec::new();
    for way in ["shared memory", "put", "messages"] {
        if let Some(ranks) = by_ranks(&case, rounds, way) {
            let row = Row::new(BENCH, work(&format!("mpi, {way}")), "ms", case.bytes(), ranks);
            rows.push(row.beside("shm", shared.median));
            rows.extend(gloo.map(|gloo| row.beside(Gloo::NAME, gloo)));
        }
    }
    let row = Row::new(BENCH, work("shm"), "ms", case.bytes(), shared);
    rows.push(row.beside("limit:simulated", simulated_ms(&case)));
    rows
}

/// What the simulation says of this machine, whose memory is measured first.
fn simulated_ms(case: &Case) -> f64 {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let bytes = ((case.bytes() as usize) / PES).max(1 << 20);
    let mut buffers: Vec<(Vec<u8>, Vec<u8>)> =
        (0..cores).map(|_| (vec![1; bytes], vec![2; bytes])).collect();
    let copies = 3;
    let took = timed(|| {
        std::thread::scope(|scope| {
            for (from, to) in &mut buffers {
                scope.spawn(|| (0..copies).for_each(|_| to.copy_from_slice(from)));
            }
        });
    });
    let gb_per_s = (bytes * cores * copies) as f64 / 1e9 / took.as_secs_f64();
    let cluster = format!(
        "pes_per_node = {PES}\ndirect = true\n[memory]\ngb_per_s = {gb_per_s}\nshared_by = {PES}\n\
         [intra]\ngb_per_s = 1e6\n"
    );
    let cluster = Cluster::from_toml(&cluster).expect("written above");
    let (from, to) = case.layouts();
    let plan = TransferPlan::new(&from, &to, &PlanOptions::default()).expect("a plan");
    let schedule = Schedule::new(&plan, 1 << 20).expect("slots of whole lines");
    simulate(&plan, &schedule, &cluster).expect("one node").seconds * 1e3
}

/// A process that does not outlive its benchmark.
struct Process(Child);

impl Process {
    fn start(mut command: Command, told: String) -> Self {
        command.env(ENVIRONMENT, told).stdin(Stdio::null()).stdout(Stdio::piped());
        Self(command.spawn().expect("a program that was just found"))
    }

    fn milliseconds(&mut self) -> Vec<f64> {
        let mut text = String::new();
        let mut output = self.0.stdout.take().expect("asked for when started");
        output.read_to_string(&mut text).expect("text");
        let status = self.0.wait().expect("started by this process");
        assert!(status.success(), "a PE failed: {text}");
        let lines = text.lines().filter_map(|line| line.split_once("ROUND "));
        lines.map(|(_, number)| number.trim().parse().expect("a number")).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Already gone in the ordinary case.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// This program again; as a test, the one test that is a PE.
fn arguments() -> Vec<String> {
    let program = this_program().expect("this program has a path");
    let words = std::iter::once(program.get_program()).chain(program.get_args());
    let mut all: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    if cfg!(test) {
        let test = ["--exact", "checkpoint::ranks::tests::one_rank", "--nocapture"];
        all.extend(test.map(str::to_owned));
    }
    all
}

fn by_processes(case: &Case, rounds: usize) -> Figure {
    let name = format!("bench-checkpoint-{}", std::process::id());
    let start = |rank: usize| {
        let all = arguments();
        let mut command = Command::new(&all[0]);
        command.args(&all[1..]);
        let told = format!("shm {name} {rank} {rounds} {}", case.to_text());
        Process::start(command, told)
    };
    let mut started: Vec<Process> = (0..PES).map(start).collect();
    let all: Vec<Vec<f64>> = started.iter_mut().map(Process::milliseconds).collect();
    figure(all[0].clone())
}

/// `None`, with a word, where this program was built without MPI or there is no `mpirun`.
fn by_ranks(case: &Case, rounds: usize, way: &str) -> Option<Figure> {
    // Another crate may have asked for `syncline-mpi` with MPI where this one did not.
    if !cfg!(feature = "mpi") {
        eprintln!("no row over MPI: the benchmarks were built without the feature mpi");
        return None;
    }
    if let Err(unavailable) = syncline_mpi::check() {
        eprintln!("no row over MPI: {unavailable}");
        return None;
    }
    let Some(launcher) = RankLauncher::find() else {
        eprintln!("no row over MPI: no mpirun");
        return None;
    };
    let mut command = launcher.command(PES);
    command.args(arguments());
    let told = format!("mpi {} 0 {rounds} {}", way.replace(' ', "-"), case.to_text());
    Some(figure(Process::start(command, told).milliseconds()))
}

/// Does what the environment says, and prints what it measured.
pub(crate) fn run_rank() {
    let text = std::env::var(ENVIRONMENT).expect("asked before");
    let words: Vec<&str> = text.split(' ').collect();
    let (rank, rounds) = (words[2].parse().expect("a number"), words[3].parse().expect("a number"));
    let case = Case::parse(&words[4..]);
    let wait = Wait::timeout(TIMEOUT);
    if words[0] == "shm" {
        let options = shm::Options::default();
        measure(shm::join(words[1], rank, PES, &options, &wait).expect("a group"), rounds, &case);
        return;
    }
    over_mpi(words[1], rounds, &case, &wait);
}

#[cfg(feature = "mpi")]
fn over_mpi(way: &str, rounds: usize, case: &Case, wait: &Wait<'_>) {
    use syncline_mpi::{Options, Way, World};

    let (way, share_memory) = match way {
        "put" => (Way::Put, false),
        "messages" => (Way::Messages, false),
        _ => (Way::Auto, true),
    };
    let world = World::start().expect("MPI");
    let options = Options { way, share_memory, ..Default::default() };
    measure(world.join(&options, wait).expect("a group"), rounds, case);
}

#[cfg(not(feature = "mpi"))]
fn over_mpi(_: &str, _: usize, _: &Case, _: &Wait<'_>) {
    unreachable!("`by_ranks` starts no ranks without MPI")
}

fn measure(endpoint: impl Transport + 'static, rounds: usize, case: &Case) {
    let (from, to) = case.layouts();
    let options =
        ServiceOptions { timeout: TIMEOUT, versions: Versions::One, ..Default::default() };
    let mut service = CopyService::new(endpoint, options);
    let refit = service.prepare(&from, &to, &PlanOptions::default()).expect("a plan");
    let destination = service.destination(&refit).expect("memory for the destination");
    let held = shards(&from, service.rank());
    let mut sources = Sources::new(&refit);
    for (name, bytes) in &held {
        sources.bind(&refit, name, bytes).expect("a shard of the right size");
    }
    println!();
    // The first round touches all memory, and does not count.
    for round in 0..=rounds {
        let started = Instant::now();
        service.refit(&refit, &sources, Target::Destination(&destination)).expect("a refit");
        if round > 0 && service.rank() == 0 {
            println!("ROUND {}", started.elapsed().as_secs_f64() * 1e3);
        }
    }
}

/// Memory of this PE for each tensor that it holds, all of it touched.
fn shards(layout: &Layout, rank: usize) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for tensor in layout.tensors() {
        let Some(shard) = tensor.placement().shard(rank as u32) else { continue };
        let bytes = (shard.shape.volume() * tensor.dtype().bytes()) as usize;
        all.push((tensor.name().to_owned(), vec![rank as u8 + 1; bytes]));
    }
    all
}

#[cfg(test)]
mod tests {
    /// Not a test of its own: what the benchmark's test starts as its PEs.
    #[test]
    fn one_rank() {
        if super::is_rank() {
            super::run_rank();
        }
    }
}
