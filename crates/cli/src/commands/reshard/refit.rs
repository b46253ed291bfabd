//! `syncline reshard refit`: a made-up model from one layout to another, moved, checked and timed.
//!
//! Over `shm` the program starts itself once for each PE; over `local` the PEs are threads; over
//! `mpi` they are the ranks that `mpirun` started. With `--group` this process is one PE of a group
//! that processes of any hosts join by its address.

mod group;
mod page;
mod pe;
mod threads;
mod values;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};

use super::launch::{self, Role};
use super::{mpi, plan, size};
use crate::outcome::{Failure, Outcome};
use crate::output::{expect_folder, to_file, to_standard_output};
use crate::units;
use pe::{PeReport, Setup};

/// Arguments of `reshard refit`.
#[derive(Args)]
pub(crate) struct RefitArgs {
    /// How the tensors lie: as for `reshard plan`.
    #[arg(long, value_name = "LAYOUT")]
    from: PathBuf,
    /// How they shall lie.
    #[arg(long, value_name = "LAYOUT")]
    to: PathBuf,
    /// PEs to start; as many as the layouts need if absent.
    #[arg(long, value_name = "N")]
    pes: Option<usize>,
    /// Processes or threads.
    #[arg(long, value_enum, default_value_t = TransportName::Shm)]
    transport: TransportName,
    /// Refits after the first, which only touches the memory.
    #[arg(long, value_name = "N", default_value_t = 5)]
    repeat: usize,
    /// Size of a slot, a multiple of 64; units such as 1MiB may be given.
    #[arg(long, value_name = "N", default_value_t = 256 << 10, value_parser = size::parse)]
    slot_bytes: u64,
    /// Slots of each PE.
    #[arg(long, value_name = "N", default_value_t = 8)]
    depth: usize,
    /// Give every segment a checksum, and verify it where it arrives.
    #[arg(long)]
    checksums: bool,
    /// Seconds after which a PE gives up.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    /// Write a page of the last refit: what each PE did when, bytes of each link, who waited for
    /// whom. One thread of each PE then does all of it.
    #[arg(long, value_name = "F.html", conflicts_with = "group")]
    report: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    group: group::GroupArgs,
    #[command(flatten)]
    role: Role,
}

/// How PEs reach each other.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TransportName {
    /// Threads of this process.
    Local,
    /// Processes of this host.
    Shm,
    /// Ranks that mpirun has started.
    Mpi,
}

impl TransportName {
    fn name(self) -> &'static str {
        match self {
            TransportName::Local => "local",
            TransportName::Shm => "shm",
            TransportName::Mpi => "mpi",
        }
    }
}

pub(super) fn run(args: &RefitArgs) -> Result<Outcome, Failure> {
    let (from, to) = plan::load_pair(&args.from, &args.to)?;
    let world = from.world().max(to.world()).max(1) as usize;
    let transport = match args.group.join((args.depth, args.slot_bytes as usize), args.timeout)? {
        Some(transport) if transport.shape().size < world => {
            let size = transport.shape().size;
            let message = format!(
                "a group of {size} PEs, and the layouts place tensors on {world}: pass --size {world}"
            );
            return Err(Failure::Usage(message));
        }
        transport => transport,
    };
    let ranks = match args.transport {
        TransportName::Mpi => Some(mpi::Ranks::start(args.pes)?),
        _ => None,
    };
    let pes = ranks.as_ref().map_or(args.pes.unwrap_or(world), mpi::Ranks::size);
    let pes = transport.as_ref().map_or(pes, |transport| transport.shape().size);
    if pes < world && ranks.is_some() {
        let message = format!(
            "started as {pes} ranks, and the layouts place tensors on {world} PEs: mpirun -n {world} syncline ..."
        );
        return Err(Failure::Usage(message));
    }
    if pes < world {
        let message = format!("--pes {pes}: the layouts place tensors on {world} PEs");
        return Err(Failure::Usage(message));
    }
    let setup = Setup {
        from,
        to,
        pes,
        repeat: args.repeat,
        slot_bytes: args.slot_bytes as usize,
        depth: args.depth,
        checksums: args.checksums,
        timeout: Duration::from_secs(args.timeout),
        records: args.report.is_some(),
    };
    if let Some(path) = &args.report {
        expect_folder(path)?;
    }
    if let Some(transport) = transport {
        let reports = setup.run_and_gather(transport).map_err(Failure::Usage)?;
        // PE 0 speaks for all.
        return reports.map_or(Ok(Outcome::Success), |reports| {
            show(args, args.group.name(), &setup, &reports)
        });
    }
    if args.role.is_pe() {
        let report = setup.join_and_run(&args.role).map_err(Failure::Usage)?;
        return to_standard_output(|out| {
            writeln!(out, "{}", report.to_text())?;
            Ok(Outcome::Success)
        });
    }
    let reports = match (args.transport, ranks) {
        (_, Some(ranks)) => {
            let slots = (setup.depth, setup.slot_bytes);
            let said = ranks.run(slots, setup.timeout, |endpoint| {
                setup.run(endpoint).map(|report| report.to_text())
            })?;
            // The first rank speaks for all.
            let Some(said) = said else { return Ok(Outcome::Success) };
            parse_reports(&said)
        }
        (TransportName::Shm, _) => processes(&setup),
        _ => threads::run(&setup),
    };
    show(args, args.transport.name(), &setup, &reports.map_err(Failure::Usage)?)
}

/// Every PE in a process of its own.
fn processes(setup: &Setup) -> Result<Vec<PeReport>, String> {
    let limit = Instant::now() + setup.timeout.saturating_mul(setup.repeat as u32 + 4);
    parse_reports(&launch::processes(setup.pes, Some(limit), |_, _| ())?)
}

/// What every PE has printed, by rank.
fn parse_reports(said: &[String]) -> Result<Vec<PeReport>, String> {
    let parse = |(rank, said): (usize, &String)| {
        PeReport::parse(said).ok_or_else(|| format!("PE {rank} has not reported"))
    };
    said.iter().enumerate().map(parse).collect()
}

/// Prints what the PEs reported; a wrong element anywhere is something found.
fn show(
    args: &RefitArgs,
    transport: &str,
    setup: &Setup,
    reports: &[PeReport],
) -> Result<Outcome, Failure> {
    // A refit has ended when it has ended everywhere.
    let slowest = |at: usize| reports.iter().map(|report| report.refit_ms[at]).fold(0.0, f64::max);
    let mut refit_ms: Vec<f64> = (0..setup.repeat.max(1)).map(slowest).collect();
    refit_ms.sort_by(f64::total_cmp);
    let median_ms = refit_ms[refit_ms.len() / 2];
    let sum = |of: fn(&PeReport) -> u64| reports.iter().map(of).sum::<u64>();
    let (bytes_total, bytes_moved) = (sum(|report| report.bytes_total), reports[0].bytes_moved);
    let wrong = sum(|report| report.wrong_tensors);
    let gb_per_s = bytes_total as f64 / median_ms.max(1e-6) / 1e6;
    if let Some(path) = &args.report {
        let facts = vec![
            ("transport".to_owned(), transport.to_owned()),
            ("written".to_owned(), size::show(bytes_total)),
            ("between PEs".to_owned(), size::show(bytes_moved)),
            ("median".to_owned(), units::duration((median_ms * 1e6) as u64)),
        ];
        let page = page::page(reports, "refit", facts);
        let page = page.map_err(|error| Failure::Usage(error.to_string()))?;
        to_file(path, |out| out.write_all(page.as_bytes()))?;
    }
    to_standard_output(|out| {
        if args.json {
            let value = serde_json::json!({
                "format": "syncline-refit", "version": 1,
                "pes": setup.pes, "transport": transport, "bytes_total": bytes_total,
                "bytes_moved": bytes_moved, "refit_ms": refit_ms, "median_ms": median_ms,
                "gb_per_s": gb_per_s, "wrong_tensors": wrong,
            });
            writeln!(out, "{value}")?;
        } else {
            let (total, moved) = (size::show(bytes_total), size::show(bytes_moved));
            writeln!(
                out,
                "{} PEs over {transport}: {total} written, {moved} of it between PEs",
                setup.pes
            )?;
            writeln!(
                out,
                "{} a refit (median of {}), {gb_per_s:.2} GB/s",
                units::duration((median_ms * 1e6) as u64),
                refit_ms.len()
            )?;
            match wrong {
                0 => writeln!(out, "every element is right")?,
                _ => writeln!(out, "{wrong} tensors are wrong")?,
            }
        }
        Ok(if wrong == 0 { Outcome::Success } else { Outcome::Found })
    })
}
