//! Kills processes of refitting groups at random, as often as asked:
//! `cargo run --example kill_soak -- 300`.
//!
//! Every survivor must end alike, hold old or whole values, and leave nothing in shared memory:
//! with an error where bytes are lost, with a refit without the dead PE where none are.

use std::error::Error;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use syncline_layout::{Dims, Layout, MeshLayout, PlanOptions, TensorSpec};
use syncline_reshard::{CopyService, ServiceOptions, Sources, Target, Targets};
use syncline_transport::{Wait, shm};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const PES: usize = 4;
const TIMEOUT: Duration = Duration::from_secs(5);

/// A tensor of 1,024 rows of 64 bytes, split by rows over `pes`.
fn layout(pes: usize) -> Result<Layout> {
    let toml = format!(
        "[mesh]\naxes = [[\"tp\", {pes}]]\n[[tensor]]\nmatch = \"w\"\nshard = [{{dim = 0, axis = \"tp\"}}]"
    );
    let shape = Dims::from_slice(&[1_024, 64]).ok_or("too many dimensions")?;
    let spec = TensorSpec { name: "w".to_owned(), dtype: "u8".parse()?, shape };
    Ok(MeshLayout::from_toml(&toml)?.compile(&[spec])?)
}

/// One PE: refits until something fails, then says what, and whether its values are whole.
fn run_pe(name: &str, rank: usize) -> Result<()> {
    let (from, to) = (layout(PES)?, layout(PES - 1)?);
    let options = shm::Options { slot_bytes: 4096, ..Default::default() };
    let endpoint = match shm::join(name, rank, PES, &options, &Wait::timeout(TIMEOUT)) {
        Ok(endpoint) => endpoint,
        Err(error) => {
            println!("whole: {error}");
            return Ok(());
        }
    };
    // Of three groups one places directly, one does so with checksums, one goes through slots: all
    // are killed.
    let way = name.bytes().map(usize::from).sum::<usize>() % 3;
    let checksums = way == 1;
    // So do lanes and the calling thread.
    let separate_lanes = Some(rank % 2 == 1);
    let options =
        ServiceOptions { timeout: TIMEOUT, checksums, separate_lanes, ..Default::default() };
    let mut service = CopyService::new(endpoint, options);
    let refit = service.prepare(&from, &to, &PlanOptions::default())?;
    let destination = service.destination(&refit)?;
    // What is in use and what is written next, where it goes through slots.
    let (mut used, mut next) = (vec![0; refit.targets().bytes_total()], Vec::new());
    for version in 1u64.. {
        let mine = vec![version as u8; refit.sources().bytes_total()];
        let mut sources = Sources::new(&refit);
        sources.bind(&refit, "w", &mine)?;
        next.resize(used.len(), 0);
        let mut targets = Targets::new(&refit);
        targets.bind(&refit, "w", &mut next)?;
        let target = match way {
            2 => Target::Memory(&mut targets),
            _ => Target::Destination(&destination),
        };
        let refitted = service.refit(&refit, &sources, target);
        drop(targets);
        let mut last = version - 1;
        if refitted.is_ok() {
            std::mem::swap(&mut used, &mut next);
            if service.members().len() == PES {
                continue;
            }
            last = version;
        }
        let reading = destination.read()?;
        let (held, stamp) = match way {
            2 => (Some(&used[..]), last as u8),
            _ => (reading.tensor("w"), reading.version() as u8),
        };
        let is_whole = held.is_none_or(|held| held.iter().all(|&byte| byte == stamp));
        let state = if is_whole { "whole" } else { "TORN" };
        match refitted {
            Ok(_) => println!("{state}: went on"),
            Err(error) => println!("{state}: {error}"),
        }
        return Ok(());
    }
    Ok(())
}

/// A process that does not outlive the soak.
struct Pe(Child);

impl Drop for Pe {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(name: &str, rank: usize) -> Result<Pe> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["pe", name, &rank.to_string()]).stdout(Stdio::piped());
    Ok(Pe(command.spawn()?))
}

/// Kills PE `victim` of a new group after `delay`; the survivors' last words.
fn kill_one(name: &str, victim: usize, delay: Duration) -> Result<Vec<String>> {
    let mut pes = (0..PES).map(|rank| start(name, rank)).collect::<Result<Vec<_>>>()?;
    std::thread::sleep(delay);
    pes[victim].0.kill()?;
    let killed = Instant::now();
    let mut words = Vec::new();
    for (_, pe) in pes.iter_mut().enumerate().filter(|(rank, _)| *rank != victim) {
        while pe.0.try_wait()?.is_none() {
            if killed.elapsed() > 4 * TIMEOUT {
                return Err("a survivor hangs".into());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let mut text = String::new();
        pe.0.stdout.take().ok_or("no output")?.read_to_string(&mut text)?;
        words.push(text.trim().to_owned());
    }
    Ok(words)
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, _, name, rank] = &arguments[..] {
        return run_pe(name, rank.parse()?);
    }
    let kills: u64 = arguments.get(1).map_or(Ok(100), |count| count.parse())?;
    let (mut died, mut absent) = (0, 0);
    for kill in 0..kills {
        let name = format!("soak-{}-{kill}", std::process::id());
        // A walk over a tenth of a second that meets every phase, from starting on.
        let delay = Duration::from_micros(kill * 7_919 % 100_000);
        let victim = (kill % PES as u64) as usize;
        let words = kill_one(&name, victim, delay)?;
        // The first PE alone gets what it holds itself.
        let has_died = match victim {
            0 => words[0] == "whole: went on",
            _ => words[0].starts_with(&format!("whole: PE {victim} died, and what it held")),
        };
        let is_absent = words[0].starts_with(&format!("whole: PE {victim} did not join"));
        if !(has_died || is_absent) || words.iter().any(|word| *word != words[0]) {
            return Err(format!("kill {kill} of PE {victim} after {delay:?}: {words:?}").into());
        }
        if std::fs::exists(format!("/dev/shm/syncline-{name}"))? {
            return Err(format!("kill {kill} has left a file behind").into());
        }
        died += u64::from(has_died);
        absent += u64::from(is_absent);
    }
    println!("{kills} kills: {died} noticed as deaths, {absent} before the PE had joined");
    println!("every survivor said the same, nothing was torn, nothing was left behind");
    Ok(())
}
