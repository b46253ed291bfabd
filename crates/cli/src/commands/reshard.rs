//! `syncline reshard`: from one parallel layout of tensors to another.

mod inspect;
mod launch;
mod maps;
mod mpi;
mod plan;
mod progress;
mod refit;
mod run;
mod simulate;
mod size;
mod text;
mod verify;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use syncline::checkpoint::{Checkpoint, CheckpointError};
use syncline::layout::DEFAULT_SLOT_BYTES;

use crate::outcome::{Failure, Outcome};

/// The commands about resharding.
#[derive(Subcommand)]
pub(crate) enum ReshardCommand {
    /// Show what moves where, in which round.
    Plan(PlanArgs),
    /// Convert a checkpoint; the destination appears whole or not at all.
    Run(RunArgs),
    /// Compare two checkpoints, every element of every tensor, and check the layout; exits 1 if
    /// they differ or it is not proven.
    Verify(VerifyArgs),
    /// Show what a checkpoint holds: format, family, sizes, and how each block would split.
    Inspect(inspect::InspectArgs),
    /// Move a made-up model from one layout to the other between processes or threads, check it,
    /// and say how fast that was.
    Refit(refit::RefitArgs),
}

/// Arguments of `reshard plan`.
#[derive(Args)]
pub(crate) struct PlanArgs {
    /// How the tensors lie: a layout in mesh form (TOML or JSON) or explicit form (JSON), or a
    /// sharded checkpoint.
    #[arg(long, value_name = "LAYOUT")]
    from: PathBuf,
    /// How they shall lie; a mesh that names no tensors takes those of the other layout.
    #[arg(long, value_name = "LAYOUT")]
    to: PathBuf,
    /// The form of the output.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// The same as --format json.
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Size of the slots that batches have to fit, a multiple of 64; units such as 16MiB may be
    /// given.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SLOT_BYTES, value_parser = size::parse)]
    slot_bytes: u64,
    /// List every transfer, however many there are.
    #[arg(long)]
    full: bool,
    /// Element types may differ between the layouts: elements are converted on the way.
    #[arg(long)]
    convert: bool,
    /// Predict time and traffic on the cluster in this file (TOML) instead of listing transfers.
    #[arg(long, value_name = "CLUSTER")]
    simulate: Option<PathBuf>,
}

/// Arguments of `reshard run`.
#[derive(Args)]
pub(crate) struct RunArgs {
    /// The checkpoint: a directory or file of safetensors or torch, a directory of
    /// torch.distributed.checkpoint, or a sharded one with layout.json.
    source: PathBuf,
    /// The directory to make.
    destination: PathBuf,
    /// What to make of it: axes such as tp=4,pp=2 (built-in rules), the file of a layout, hf, or
    /// dcp (a directory of torch.distributed.checkpoint).
    #[arg(long, value_name = "LAYOUT")]
    to: String,
    /// PEs that read and write: threads, or processes over shm; as many as there are processors if
    /// absent. Over mpi the launcher decides: mpirun -n N syncline reshard run ...
    #[arg(long, value_name = "N")]
    pes: Option<usize>,
    /// How PEs reach each other.
    #[arg(long, value_enum, default_value_t = Transport::Local)]
    transport: Transport,
    /// Seconds for which a process waits for the others.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    timeout: u64,
    /// Element type for all float tensors.
    #[arg(long, value_name = "D")]
    dtype: Option<String>,
    /// Rules (`[[tensor]]` entries, TOML) to try before the built-in ones.
    #[arg(long, value_name = "F")]
    rules: Option<PathBuf>,
    /// Turn the tensors into another form first: a file with `[[map]]` rules, or hf-to-megatron,
    /// megatron-to-hf, hf-to-vllm, vllm-to-hf. May be given several times.
    #[arg(long = "map", value_name = "MAP")]
    maps: Vec<String>,
    /// Take the tensors below this name only, such as `model` in a training checkpoint, and remove
    /// it from their names.
    #[arg(long, value_name = "NAME")]
    prefix: Option<String>,
    /// Memory of each thread for what has to be put together before it is written.
    #[arg(long, value_name = "N", default_value = "1MiB", value_parser = size::parse)]
    slot_bytes: u64,
    /// The files of ranks: rank-00000.safetensors, vLLM's sharded state, or Megatron's
    /// mp_rank_00/model_optim_rng.pt.
    #[arg(long, value_enum, value_name = "FORM")]
    rank_files: Option<RankForm>,
    /// With --to hf and dcp: bytes of tensors in one file.
    #[arg(long, value_name = "N", default_value = "5GiB", value_parser = size::parse)]
    file_bytes: u64,
    /// Only show what each tensor will become; alike tensors are shown once.
    #[arg(long)]
    dry_run: bool,
    /// With --dry-run: show every tensor.
    #[arg(long, requires = "dry_run")]
    verbose: bool,
    /// The summary for programs.
    #[arg(long, conflicts_with = "dry_run")]
    json: bool,
    /// Go on after an interruption; files that exist are checked, not written again.
    #[arg(long)]
    resume: bool,
    /// Write a layout that is not known to be right for the model; its layout.json and the summary
    /// say so.
    #[arg(long)]
    allow_unproven: bool,
    #[command(flatten)]
    role: launch::Role,
}

/// Arguments of `reshard verify`.
#[derive(Args)]
pub(crate) struct VerifyArgs {
    /// The checkpoint to compare with.
    source: PathBuf,
    /// The checkpoint to check.
    destination: PathBuf,
    /// Take the source's tensors below this name only; as for `reshard run`.
    #[arg(long, value_name = "NAME")]
    prefix: Option<String>,
    /// Compare with the source in another form; as for `reshard run`.
    #[arg(long = "map", value_name = "MAP")]
    maps: Vec<String>,
    /// Accept a layout that is not known to be right for the model.
    #[arg(long)]
    allow_unproven: bool,
    /// The findings for programs.
    #[arg(long)]
    json: bool,
}

/// Ways between PEs.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Transport {
    /// Threads of one process.
    Local,
    /// Processes of one machine.
    Shm,
    /// Processes of a cluster.
    Mpi,
}

/// Files of ranks.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RankForm {
    /// As `reshard run` reads them again.
    Safetensors,
    /// `model-rank-0-part-0.safetensors`.
    Vllm,
    /// `mp_rank_00/model_optim_rng.pt`.
    Megatron,
}

/// Forms of a plan.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Opens a checkpoint, or the part of it below `prefix`.
fn open(path: &Path, prefix: Option<&str>) -> Result<Checkpoint, CheckpointError> {
    match prefix {
        Some(prefix) => Checkpoint::open_below(path, prefix),
        None => Checkpoint::open(path),
    }
}

impl ReshardCommand {
    pub(crate) fn run(self) -> Result<Outcome, Failure> {
        match self {
            ReshardCommand::Plan(args) => plan::run(&args),
            ReshardCommand::Run(args) => run::run(&args),
            ReshardCommand::Verify(args) => verify::run(&args),
            ReshardCommand::Inspect(args) => inspect::run(&args),
            ReshardCommand::Refit(args) => refit::run(&args),
        }
    }
}
