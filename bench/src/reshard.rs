//! Refits between processes, beside one memcpy of the same bytes by as many processes.
//!
//! Four processes hold a model in one layout and move it to another over shared memory: directly
//! into the destination, and through slots. In the same run, between the same barriers, each copies
//! as many bytes as it has to move from one private buffer to another: with memcpy, and with stores
//! that bypass the caches, which is what the memory can do. Rounds are interleaved, so that a noisy
//! neighbour disturbs all alike. Where there is a torch with gloo, it moves the same plan right
//! after them.

pub(crate) mod gloo;
pub(crate) mod model;
mod pe;
mod plan;

use std::io::Read;
use std::process::{Child, Stdio};
use std::time::Duration;

use syncline_files::this_program;

use crate::Effort;
use crate::measure::{Figure, figure};
use crate::row::Row;
use gloo::Gloo;
use model::Case;

pub(crate) use pe::{is_pe, run_pe};

const BENCH: &str = "reshard";
const PES: usize = 4;

/// What every PE measures in each round, in this order.
const WAYS: [&str; 4] = ["direct", "packed", "memcpy", "streaming"];

/// Measures planning, and refits of a large model and of many small tensors.
pub(crate) fn run(effort: Effort) -> Vec<Row> {
    let mut rows = plan::run(effort);
    rows.extend(refits(effort));
    rows
}

fn refits(effort: Effort) -> Vec<Row> {
    let gloo = (effort != Effort::Smoke).then(Gloo::find).flatten();
    let cases = Case::all(effort);
    cases.iter().flat_map(|case| measure(case, effort, gloo.as_ref())).collect()
}

fn measure(case: &Case, effort: Effort, gloo: Option<&Gloo>) -> Vec<Row> {
    let rounds = match effort {
        Effort::Smoke => 1,
        Effort::Quick => 5,
        Effort::Full => 15,
    };
    let name = format!("bench-{}-{}", std::process::id(), case.to_text().replace(' ', "-"));
    let mut pes: Vec<Pe> = (0..PES).map(|rank| Pe::start(&name, rank, case, rounds)).collect();
    let reports: Vec<String> = pes.iter_mut().map(Pe::report).collect();
    let samples = parse(&reports[0]);
    let of = |way: &str| -> Figure {
        let at = WAYS.iter().position(|known| *known == way).expect("one of the ways");
        figure(samples.iter().map(|round| round[at]).collect())
    };
    let (memcpy, streaming) = (of("memcpy").median, of("streaming").median);
    let gloo = gloo.map(|gloo| gloo.measure(case, rounds).median);
    let mut rows = Vec::new();
    for way in ["direct", "packed"] {
        let work = format!("{}, {way}", case.describe());
        let row = Row::new(BENCH, work, "ms", case.bytes(), of(way));
        rows.push(row.beside("memcpy", memcpy));
        rows.push(row.beside("limit:streaming-stores", streaming));
        rows.extend(gloo.map(|gloo| row.beside(Gloo::NAME, gloo)));
    }
    let extra = reports.iter().map(|report| extra_mib(report)).fold(0.0, f64::max);
    let extra = Figure { median: extra, spread: 0.0 };
    let work = format!("{}, memory beside slots and tensors", case.describe());
    rows.push(
        Row::new(BENCH, work, "mib_extra", case.bytes(), extra).beside("limit:allowed", 10.0),
    );
    rows
}

/// Milliseconds of each way, by round.
fn parse(report: &str) -> Vec<Vec<f64>> {
    let rounds = report.lines().filter_map(|line| line.split_once("ROUND "));
    let numbers =
        |text: &str| text.split(' ').map(|word| word.parse().expect("a number")).collect();
    rounds.map(|(_, text)| numbers(text)).collect()
}

fn extra_mib(report: &str) -> f64 {
    let line = report.lines().find_map(|line| line.split_once("EXTRA_MIB "));
    line.expect("every PE reports its memory").1.parse().expect("a number")
}

/// A process that does not outlive its benchmark.
struct Pe(Child);

impl Pe {
    fn start(name: &str, rank: usize, case: &Case, rounds: usize) -> Self {
        let mut command = this_program().expect("this program has a path");
        if cfg!(test) {
            command.args(["--exact", "reshard::pe::tests::one_pe", "--nocapture"]);
        }
        let environment = format!("{name} {rank} {rounds} {}", case.to_text());
        let child = command.env(pe::ENVIRONMENT, environment).stdout(Stdio::piped()).spawn();
        Self(child.expect("this program can be started again"))
    }

    fn report(&mut self) -> String {
        let mut text = String::new();
        let mut output = self.0.stdout.take().expect("asked for when started");
        // Ends when the process does, which its own deadlines see to.
        output.read_to_string(&mut text).expect("text");
        let status = self.0.wait().expect("started by this process");
        assert!(status.success(), "a PE failed: {text}");
        text
    }
}

impl Drop for Pe {
    fn drop(&mut self) {
        // Already gone in the ordinary case.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Longer than any round takes on the slowest machine that is worth measuring on.
const TIMEOUT: Duration = Duration::from_secs(120);
