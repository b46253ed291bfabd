//! `syncline reshard run`: a checkpoint in another layout.

mod dry_run;
mod team;

use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use syncline::checkpoint::{
    Alone, Conversion, ConversionOptions, Destination, RankFiles, Summary, Unnamed, Wanted,
    disk_gb_per_s, parse_rules, target_specs, unmatched_rules,
};
use syncline::layout::{TensorRule, TensorSpec};
use syncline::tensor::Dtype;
use syncline::transport::shm;
use syncline_files::one_line;

use super::maps::mapped;
use super::plan::{in_file, load};
use super::progress::{Counter, ProgressBar};
use super::size::show;
use super::{RankForm, RunArgs, Transport, launch, mpi, open};
use crate::input::{name_of, read_bytes};
use crate::outcome::{Failure, Outcome};
use crate::output::{note, to_standard_output};
use team::TransportTeam;

/// Slots of the transport: PEs only meet, no tensor goes through them.
const SLOTS: (usize, usize) = (1, 4096);

/// Runs from this length on are compared with the disk's own speed.
const DISK_FROM_S: f64 = 1.0;
/// About how long that is measured.
const DISK_S: f64 = 0.5;
/// Enough to see past the cache of a moment; no more than a slow disk takes in a second or two.
const DISK_BYTES: Range<u64> = 64 << 20..1 << 30;

pub(super) fn run(args: &RunArgs) -> Result<Outcome, Failure> {
    let ranks = match args.transport {
        Transport::Mpi => Some(mpi::Ranks::start(args.pes)?),
        _ => None,
    };
    let speaks = !args.role.is_pe() && ranks.as_ref().is_none_or(mpi::Ranks::is_first);
    let dtype = args.dtype.as_deref().map(str::parse::<Dtype>).transpose();
    let dtype = dtype.map_err(|error| Failure::Usage(format!("--dtype: {error}")))?;
    let source = mapped(open(&args.source, args.prefix.as_deref())?, &args.maps, speaks)?;
    let specs = target_specs(&source, dtype);
    let rules = args.rules.as_deref().map(read_rules).transpose()?.unwrap_or_default();
    let unmatched = unmatched_rules(&rules, &specs);
    let (destination, unnamed) = destination(args, rules, &specs)?;
    let mut options = ConversionOptions::default();
    options.threads = threads(args, ranks.as_ref().map(mpi::Ranks::size));
    options.slot_bytes = args.slot_bytes.max(64);
    options.dtype = dtype;
    options.resume = args.resume;
    options.allow_unproven = args.allow_unproven;
    let conversion = Conversion::new(&source, &destination, options)?;
    for (pattern, count) in unnamed.iter().filter(|_| speaks) {
        note(&format!("warning: no rule names `{pattern}` ({count}): replicated"));
    }
    for pattern in unmatched.iter().filter(|_| speaks) {
        note(&format!("warning: no tensor matches the rule `{pattern}`"));
    }
    if args.dry_run {
        return to_standard_output(|out| {
            if speaks {
                dry_run::show_tensors(&source, &destination, &specs, args.verbose, out)?;
                writeln!(out, "{} would be written", show(conversion.bytes()))?;
                show_others(&conversion, out)?;
                show_unproven(&conversion, out)?;
            }
            Ok(Outcome::Success)
        });
    }
    match (args.transport, ranks) {
        (_, Some(ranks)) => by_ranks(args, &conversion, &ranks),
        (Transport::Shm, _) if args.role.is_pe() => as_pe(args, &conversion),
        (Transport::Shm, _) => by_processes(args, &conversion),
        _ => by_threads(args, &conversion),
    }
}

/// The first of `names`, and how many more there are.
fn some(names: &[String]) -> String {
    const NAMES_MAX: usize = 5;
    let listed = names.iter().take(NAMES_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMES_MAX) {
        0 => listed,
        more => format!("{listed} and {more} more"),
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// PEs in processes share the processors.
fn threads(args: &RunArgs, ranks: Option<usize>) -> usize {
    let pes = args.pes.unwrap_or_else(cores).max(1);
    match (args.transport, ranks) {
        (_, Some(ranks)) => (cores() / ranks).max(1),
        (Transport::Shm, _) => (cores() / pes).max(1),
        _ => pes,
    }
}

fn by_threads(args: &RunArgs, conversion: &Conversion<'_>) -> Result<Outcome, Failure> {
    let progress = ProgressBar::new(conversion.bytes());
    let summary = conversion.run_with(&Alone, &args.destination, &|done| progress.update(done));
    drop(progress);
    let summary = summary?;
    to_standard_output(|out| show_summary(args, conversion, &summary, out))
}

/// Every PE in a process of its own, which says on its output how far it is.
fn by_processes(args: &RunArgs, conversion: &Conversion<'_>) -> Result<Outcome, Failure> {
    let pes = args.pes.unwrap_or_else(cores).max(1);
    let progress = ProgressBar::new(conversion.bytes());
    let started = Instant::now();
    let mut done = vec![0; pes];
    let said = launch::processes(pes, None, |rank, line| {
        if let Some(bytes) = Counter::parse(line) {
            done[rank] = bytes;
            progress.update(done.iter().sum());
        }
    });
    drop(progress);
    let said = said.map_err(Failure::Usage)?;
    let missing = || Failure::Usage("PE 0 has not reported".to_owned());
    let mut summary = team::parse_summary(&said[0]).ok_or_else(missing)?;
    summary.elapsed = started.elapsed();
    to_standard_output(|out| show_summary(args, conversion, &summary, out))
}

/// This process is one of those PEs.
fn as_pe(args: &RunArgs, conversion: &Conversion<'_>) -> Result<Outcome, Failure> {
    let pes = args.pes.unwrap_or_else(cores).max(1);
    let timeout = Duration::from_secs(args.timeout);
    let options = shm::Options { depth: SLOTS.0, slot_bytes: SLOTS.1, ..Default::default() };
    let mut endpoint = args.role.join(pes, &options, timeout).map_err(Failure::Usage)?;
    let team = TransportTeam::new(&mut endpoint, timeout);
    let counter = Mutex::new(Counter::default());
    let total = conversion.bytes_of(&team);
    let summary = conversion.run_with(&team, &args.destination, &|done| {
        counter.lock().expect("no thread panics with it").print(done, total);
    })?;
    to_standard_output(|out| {
        writeln!(out, "{}", team::summary_text(&summary))?;
        Ok(Outcome::Success)
    })
}

/// Every rank of an MPI job; the first one speaks.
fn by_ranks(
    args: &RunArgs,
    conversion: &Conversion<'_>,
    ranks: &mpi::Ranks,
) -> Result<Outcome, Failure> {
    let timeout = Duration::from_secs(args.timeout);
    let mut done = None;
    let said = ranks.run(SLOTS, timeout, |mut endpoint| {
        let team = TransportTeam::new(&mut endpoint, timeout);
        // All have as much to do: the first one's progress stands for all.
        let progress = ranks.is_first().then(|| ProgressBar::new(conversion.bytes_of(&team)));
        let summary = conversion.run_with(&team, &args.destination, &|done| {
            progress.iter().for_each(|progress| progress.update(done));
        });
        drop(progress);
        done = Some(summary.map_err(|error| error.to_string())?);
        Ok(String::new())
    })?;
    match (said, done) {
        (Some(_), Some(summary)) => {
            to_standard_output(|out| show_summary(args, conversion, &summary, out))
        }
        _ => Ok(Outcome::Success),
    }
}

/// What to make, and the tensors that no rule names.
fn destination(
    args: &RunArgs,
    rules: Vec<TensorRule>,
    specs: &[TensorSpec],
) -> Result<(Destination, Unnamed), Failure> {
    let path = Path::new(&args.to);
    let wanted = match args.to.as_str() {
        "hf" => Wanted::HuggingFace { file_bytes_max: args.file_bytes },
        "dcp" => Wanted::Distributed { file_bytes_max: args.file_bytes },
        _ if path.exists() => Wanted::Layout(load(path)?),
        axes => Wanted::Axes(axes.to_owned()),
    };
    let (destination, unnamed) = wanted.resolve(rules, specs, &args.source)?;
    let Some(files) = args.rank_files else { return Ok((destination, unnamed)) };
    if destination.ranks().is_none() {
        let cause = format!("--rank-files: with --to {} there are no ranks", args.to);
        return Err(Failure::Usage(cause));
    }
    let files = match files {
        RankForm::Safetensors => RankFiles::Safetensors,
        RankForm::Vllm => RankFiles::Vllm,
        RankForm::Megatron => RankFiles::Megatron,
    };
    Ok((destination.with_files(files), unnamed))
}

fn read_rules(path: &Path) -> Result<Vec<TensorRule>, Failure> {
    let bytes = read_bytes(path)?;
    let text = String::from_utf8(bytes)
        .map_err(|_| Failure::Usage(format!("{}: expected UTF-8 text", name_of(path))))?;
    parse_rules(&text).map_err(in_file(path))
}

/// Says why the layout is not proven, where that was allowed.
fn show_unproven(conversion: &Conversion<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut reasons = conversion.unproven().iter();
    reasons.try_for_each(|reason| writeln!(out, "unproven {}", one_line(reason)))
}

/// Says what was left out.
fn show_others(conversion: &Conversion<'_>, out: &mut dyn Write) -> io::Result<()> {
    match conversion.others() {
        [] => Ok(()),
        others => writeln!(out, "left out {} (no tensors)", one_line(&some(others))),
    }
}

fn show_summary(
    args: &RunArgs,
    conversion: &Conversion<'_>,
    summary: &Summary,
    out: &mut dyn Write,
) -> io::Result<Outcome> {
    let seconds = summary.elapsed.as_secs_f64().max(1e-9);
    let rate = summary.bytes as f64 / 1e9 / seconds;
    if args.json {
        let Summary { tensors, files, files_kept, bytes, .. } = summary;
        let document = serde_json::json!({"format": "syncline-conversion", "version": 1,
            "tensors": tensors, "files_written": files, "files_kept": files_kept, "bytes": bytes,
            "seconds": seconds, "left_out": conversion.others(),
            "unproven": conversion.unproven()});
        writeln!(out, "{document:#}")?;
        return Ok(Outcome::Success);
    }
    show_others(conversion, out)?;
    show_unproven(conversion, out)?;
    writeln!(out, "tensors  {}", summary.tensors)?;
    writeln!(out, "files    {} written, {} kept", summary.files, summary.files_kept)?;
    writeln!(out, "bytes    {} in {seconds:.2} s", show(summary.bytes))?;
    writeln!(out, "rate     {rate:.2} GB/s")?;
    // Short runs say nothing about a disk, and must not wait for it either.
    let disk_bytes = ((rate * 1e9 * DISK_S) as u64).clamp(DISK_BYTES.start, DISK_BYTES.end);
    if seconds >= DISK_FROM_S
        && let Some(disk) = disk_gb_per_s(&args.destination, cores(), disk_bytes)
    {
        writeln!(out, "disk     {disk:.2} GB/s by itself: {:.0}% of that", rate / disk * 100.0)?;
    }
    Ok(Outcome::Success)
}
