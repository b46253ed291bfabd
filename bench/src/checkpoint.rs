//! Checkpoints from one layout to another on disk, beside `cp -r` of the same bytes and the same in
//! Python; and refits over MPI beside shared memory.
//!
//! The source is in the page cache on all sides, and all sides count until their data is on disk:
//! ours syncs every file before the destination has its name, the files that `cp` wrote are synced
//! by `sync`, Python syncs each file that it has saved. `cp` alone, whose bytes are only in memory
//! when it ends, stands beside them. Rounds are interleaved.

mod model;
mod ranks;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use syncline_checkpoint::{
    Checkpoint, Conversion, ConversionOptions, Destination, add_builtin_rules, parse_target,
    target_specs,
};
use syncline_layout::MeshLayout;

use crate::Effort;
use crate::measure::{figure, timed};
use crate::peers;
use crate::row::Row;
use model::Model;

pub(crate) use ranks::{is_rank, run_rank};

const BENCH: &str = "checkpoint";

/// A conversion: its name, its source checkpoint, its target.
const CASES: [(&str, &str, &str); 3] =
    [("hf-tp4", "hf", "tp=4"), ("tp4-tp2pp2", "tp4", "tp=2,pp=2"), ("tp2-hf", "tp2", "hf")];

/// Conversions and refits.
pub(crate) fn run(effort: Effort) -> Vec<Row> {
    let model = Model::new(effort);
    let folder = Folder::new();
    model.write(&folder.join("hf"));
    convert(&folder.join("hf"), &folder.join("tp4"), "tp=4");
    convert(&folder.join("hf"), &folder.join("tp2"), "tp=2");
    let rounds = match effort {
        Effort::Smoke => 1,
        Effort::Quick => 5,
        Effort::Full => 3,
    };
    let python = match effort {
        Effort::Smoke => None,
        _ => peers::python("safetensors and numpy", "import safetensors.numpy"),
    };
    let mut rows = Vec::new();
    for (name, from, to) in CASES {
        let from = folder.join(from);
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        let (mut copied, mut synced) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let target = folder.join("out");
            ours.push(timed(|| convert(&from, &target, to)).as_secs_f64());
            remove(&target);
            copied.push(timed(|| copy(&from, &target)).as_secs_f64());
            synced.push(copied[copied.len() - 1] + timed(|| sync(&target)).as_secs_f64());
            remove(&target);
            if let Some(python) = &python {
                theirs.extend(in_python(python, name, &from, &target, model.layers));
                remove(&target);
            }
        }
        let bytes = model.bytes();
        let rate = |seconds: &f64| bytes as f64 / 1e9 / seconds;
        let row = Row::new(
            BENCH,
            format!("{name}, {} MiB", bytes >> 20),
            "gb_per_s",
            bytes,
            figure(ours.iter().map(rate).collect()),
        );
        rows.push(row.beside("cp -r and sync", figure(synced.iter().map(rate).collect()).median));
        rows.push(row.beside("cp -r alone", figure(copied.iter().map(rate).collect()).median));
        if !theirs.is_empty() {
            let theirs = figure(theirs.iter().map(rate).collect()).median;
            rows.push(row.beside("Python, safetensors and numpy", theirs));
        }
    }
    rows.extend(ranks::rows(effort));
    rows
}

fn convert(from: &Path, to: &Path, target: &str) {
    let source = Checkpoint::open(from).expect("it was just written");
    let destination = match target {
        "hf" => Destination::HuggingFace { file_bytes_max: 1 << 30 },
        _ => {
            let specs = target_specs(&source, None);
            let mut mesh = MeshLayout::new(parse_target(target).expect("axes"), Vec::new());
            add_builtin_rules(&mut mesh, &specs, from).expect("a target that fits");
            Destination::Sharded(mesh.compile(&specs).expect("shapes that divide"))
        }
    };
    let conversion = Conversion::new(&source, &destination, ConversionOptions::default());
    conversion.expect("a plan").run(to, &|_| ()).expect("room on the disk");
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-r").args([from, to]).status();
    assert!(copied.is_ok_and(|status| status.success()), "cp -r {}", from.display());
}

fn sync(to: &Path) {
    let files = to.read_dir().expect("it was just made").map(|entry| entry.expect("a file").path());
    let synced = Command::new("sync").args(files).status();
    assert!(synced.is_ok_and(|status| status.success()), "sync of {}", to.display());
}

fn remove(folder: &Path) {
    fs::remove_dir_all(folder).expect("it was just made");
}

fn in_python(python: &str, what: &str, from: &Path, to: &Path, layers: u64) -> Option<f64> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/checkpoint.py");
    let mut command = Command::new(python);
    command.arg(script).arg(what).args([from, to]).arg(layers.to_string());
    let output = command.output().expect("it has just been run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().parse().ok()
}

/// Where checkpoints are made, removed at the end; `SYNCLINE_BENCH_FOLDER` says on which disk.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let parent = std::env::var_os("SYNCLINE_BENCH_FOLDER").map(PathBuf::from);
        let parent = parent.unwrap_or_else(std::env::temp_dir);
        let folder = parent.join(format!("syncline-checkpoint-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder for checkpoints");
        Self(folder)
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Longer than any refit takes on the slowest machine that is worth measuring on.
const TIMEOUT: Duration = Duration::from_secs(120);
