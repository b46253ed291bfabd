//! `syncline run`: execute a program, check it, and see what happened.

mod chrome;
mod numbers;
mod progress;
mod summary;
mod watch;

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use syncline::deps::EdgeKinds;
use syncline::device::DeviceSpec;
use syncline::program::{
    Keep, Program, ProgramOptions, ProgramRun, ProgramRunError, RunOptions, RunProgress, compare,
    machine_from_toml, npy,
};
use syncline::report::{Analysis, Detail, ReportError, RunEdge, render};
use syncline::tensor::{Dtype, View};
use syncline::trace::TraceBuffer;
use syncline_files::Escaped;

use crate::input::{is_standard, name_of, read_bytes};
use crate::outcome::{Failure, Outcome};
use crate::output::{expect_folder, is_quiet, to_file, to_standard_output};
use crate::provenance::Provenance;
use summary::{Facts, devices};
use watch::Watch;

/// Arguments of `run`.
#[derive(Args)]
pub(crate) struct RunArgs {
    /// A program: a trace with kernels, in JSON or a capture; `-` for standard input.
    trace: PathBuf,
    /// The devices to use, such as `cpu:0,cpu:1` or `cpu,vulkan:0,opencl:0`; `syncline devices`
    /// lists them.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "cpu:0")]
    devices: Vec<DeviceSpec>,
    /// How to run it.
    #[arg(long, value_enum, default_value_t = Mode::Plan)]
    mode: Mode,
    /// How often; the fastest run is shown.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Compare with the serial run on the CPU; exits 1 if they differ. On CPU devices every bit
    /// counts, on others floats may differ by what the tolerances of the kernels add up to. A plan
    /// that keeps intermediates to itself is run once more with every buffer kept, so that all are
    /// compared.
    #[arg(long)]
    check: bool,
    /// Write a buffer as an array that numpy reads; may be given several times.
    #[arg(long, value_name = "NAME=F.npy", value_parser = output)]
    output: Vec<(String, PathBuf)>,
    /// Write the program with the times of this run, as a capture.
    #[arg(long, value_name = "F.sltrace")]
    capture: Option<PathBuf>,
    /// Write a trace for Chrome's or Perfetto's viewer.
    #[arg(long = "trace", value_name = "F.json")]
    trace_file: Option<PathBuf>,
    /// Write a page that explains the run.
    #[arg(long, value_name = "F.html")]
    report: Option<PathBuf>,
    /// Show what the workers do while the program runs: rates, memory, failures. Plain lines on
    /// standard error where that is no terminal.
    #[arg(long, conflicts_with = "simulate")]
    watch: bool,
    /// The summary for programs.
    #[arg(long)]
    json: bool,
    /// Run nothing: say what the run would take on the machine of this file.
    #[arg(long, value_name = "MACHINE.toml", conflicts_with_all = ["check", "output", "mode", "devices", "repeat"])]
    simulate: Option<PathBuf>,
    /// Load the kernels in shared objects that the program names: they can do anything.
    #[arg(long)]
    trust_kernels: bool,
}

/// Ways to run a program.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Compile once, then replay.
    Plan,
    /// Submit while running.
    Stream,
    /// One task after the other.
    Serial,
}

impl RunArgs {
    pub(crate) fn run(self) -> Result<Outcome, Failure> {
        let file = name_of(&self.trace);
        let failed = |error: &dyn std::fmt::Display| Failure::Usage(format!("{file}: {error}"));
        let program = self.load().map_err(|error| match error {
            LoadFailure::Read(failure) => failure,
            LoadFailure::Program(error) => failed(&error),
        })?;
        for (name, _) in &self.output {
            program.buffer_named(name).map_err(|error| failed(&error))?;
        }
        let files = [&self.capture, &self.trace_file, &self.report];
        let outputs = self.output.iter().map(|(_, file)| file);
        let files: Vec<&PathBuf> = files.into_iter().flatten().chain(outputs).collect();
        files.iter().try_for_each(|file| expect_folder(file))?;
        let to_standard = files.iter().filter(|file| is_standard(file)).count();
        if to_standard > 1 {
            let text = "only one of the outputs can be `-`, standard output";
            return Err(Failure::Usage(text.to_owned()));
        }
        let run = match &self.simulate {
            Some(machine) => simulate(&program, machine)?,
            None => self.execute(&program).map_err(|error| failed(&error))?,
        };
        let differences = self.check.then(|| check(&program, &run, &self.options())).transpose();
        let differences = differences.map_err(|error| failed(&error))?;
        let provenance = self.provenance(&program, &run);
        self.write_outputs(&program, &run, &provenance)?;

        // Names of arguments and regions are for readers of the report.
        let is_read = self.report.is_some() || self.trace_file.is_some();
        let mut report = match numbers::of(&program, &run).filter(|_| !is_read) {
            Some(numbers) => numbers,
            None => {
                let detail = if is_read { Detail::Words } else { Detail::Numbers };
                report_of(&program, &run, detail, self.title()).map_err(|error| failed(&error))?
            }
        };
        let analysis = Analysis::of(&report).map_err(|error| failed(&error))?;
        if let Some(path) = &self.trace_file {
            to_file(path, |out| chrome::write(out, &report, &analysis, &provenance))?;
        }
        let facts = Facts::of(&program, &run, &report, &analysis, differences.as_deref());
        if let Some(path) = &self.report {
            report.facts = facts.lines();
            report.provenance = provenance.lines();
            let page = render(&[report]).map_err(|error| failed(&error))?;
            to_file(path, |out| out.write_all(page.as_bytes()))?;
        }
        let outcome = match &differences {
            Some(list) if !list.is_empty() => Outcome::Found,
            _ => Outcome::Success,
        };
        let print = |out: &mut dyn Write| {
            match self.json {
                true => writeln!(out, "{:#}", facts.to_json(&provenance))?,
                false => facts.print(out)?,
            }
            Ok(outcome)
        };
        // An output on standard output stays free of the summary.
        let said = match to_standard {
            0 => to_standard_output(print),
            _ => print(&mut Escaped::new(std::io::stderr().lock())).map_err(Failure::from),
        };
        // The process ends here: freeing a million tasks one by one would take a second.
        std::mem::forget((program, run, analysis));
        said
    }

    fn load(&self) -> Result<Program, LoadFailure> {
        let bytes = read_bytes(&self.trace).map_err(LoadFailure::Read)?;
        let folder = self.trace.parent().unwrap_or(Path::new("")).to_owned();
        let folder = if is_standard(&self.trace) { PathBuf::new() } else { folder };
        let options = ProgramOptions::default().with_folder(folder);
        let options = options.with_trusted_kernels(self.trust_kernels);
        Program::from_bytes(&bytes, &options).map_err(LoadFailure::Program)
    }

    fn execute(&self, program: &Program) -> Result<ProgramRun, ProgramRunError> {
        let repeats = self.repeats();
        let tasks = u64::from(repeats) * program.tasks().len() as u64;
        let watched = (self.watch && !is_quiet()).then(RunProgress::watching_workers);
        let _watch = watched.clone().map(|progress| Watch::start(progress, tasks));
        let (_bar, progress) = match watched {
            Some(progress) => (None, Some(progress)),
            None => progress::start(tasks).unzip(),
        };
        let asked = self.output.iter().map(|(name, _)| program.buffer_named(name));
        let keep = Keep::Results(asked.collect::<Result<_, _>>()?);
        let options = self.options().with_repeats(repeats).with_progress(progress).with_keep(keep);
        match self.mode {
            Mode::Plan => program.run_planned(&options),
            Mode::Stream => program.run_streamed(&options),
            Mode::Serial => program.run_serially_watched(options.progress.as_ref()),
        }
    }

    fn options(&self) -> RunOptions {
        let options = RunOptions::default().with_devices(self.devices.iter().copied());
        options.with_backends(syncline::register_backends)
    }

    fn title(&self) -> String {
        let stem = self.trace.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        stem.unwrap_or_else(|| name_of(&self.trace))
    }

    /// Where the run comes from. Nothing has run on the machine of a simulation.
    fn provenance(&self, program: &Program, run: &ProgramRun) -> Provenance {
        let mut provenance = Provenance::here();
        match &self.simulate {
            Some(machine) => {
                provenance.add("mode", format!("simulated on {}", name_of(machine)));
            }
            None => {
                let mode = self.mode.to_possible_value().expect("no mode is hidden");
                provenance.add("mode", mode.get_name());
                provenance.add("repeats", self.repeats());
                // The plan may have left devices out, or say more of them than was typed.
                let used = devices(run).iter().filter_map(|name| name.parse().ok()).collect();
                let used: Vec<DeviceSpec> = used;
                provenance.add_devices(&used);
            }
        }
        provenance.add_seeds(program);
        provenance
    }

    /// How often the program runs; one task after the other, once.
    fn repeats(&self) -> u32 {
        if self.mode == Mode::Serial { 1 } else { self.repeat }
    }

    fn write_outputs(
        &self,
        program: &Program,
        run: &ProgramRun,
        provenance: &Provenance,
    ) -> Result<(), Failure> {
        for (name, path) in &self.output {
            let index = program.buffer_named(name).expect("looked up before the run");
            let array = array_of(program, run, index);
            to_file(path, |mut out| npy::write(&mut out, &array))?;
        }
        match &self.capture {
            Some(path) => {
                let mut timed = program.timed_trace(run);
                timed.extra.insert("provenance".to_owned(), provenance.to_json());
                to_file(path, |out| timed.write_capture(out).map(|_| ()))
            }
            None => Ok(()),
        }
    }
}

/// Returns the run with its copies, as reports show it.
fn report_of(
    program: &Program,
    run: &ProgramRun,
    detail: Detail,
    title: String,
) -> Result<syncline::report::RunRecord, ReportError> {
    let executed = program.executed(run);
    let mut report = syncline::report::RunRecord::from_trace_in(&executed.trace, detail)?;
    for (op, id) in report.ops.iter_mut().zip(&executed.ids) {
        op.task = *id;
    }
    report.edges.extend(executed.reuses.into_iter().map(|reuse| RunEdge {
        pred: reuse.pred as u32,
        succ: reuse.succ as u32,
        kinds: EdgeKinds::WAR,
        region: reuse.region,
    }));
    report.title = title;
    Ok(report)
}

/// Returns the page that explains `run`; `differences` comes from [`check`].
pub(crate) fn page(
    program: &Program,
    run: &ProgramRun,
    title: &str,
    differences: Option<&[String]>,
) -> Result<String, ReportError> {
    let mut report = report_of(program, run, Detail::Words, title.to_owned())?;
    let analysis = Analysis::of(&report)?;
    report.facts = Facts::of(program, run, &report, &analysis, differences).lines();
    let mut provenance = Provenance::here();
    provenance.add_seeds(program);
    report.provenance = provenance.lines();
    render(&[report])
}

/// Returns the contents of buffer number `index` that `run` has left, as an array.
pub(crate) fn array_of(program: &Program, run: &ProgramRun, index: usize) -> npy::Array {
    let dtype = dtype_of(program, index);
    let shape = shape_of(program, index, dtype);
    npy::Array { dtype, shape, bytes: run.contents[index].clone() }
}

/// Returns what differs between `run` and the serial run. A plan that kept buffers to itself is run
/// once more by `options`, with all of them kept, so that every one is compared.
pub(crate) fn check(
    program: &Program,
    run: &ProgramRun,
    options: &RunOptions,
) -> Result<Vec<String>, ProgramRunError> {
    let serial = program.run_serially()?;
    let mut lines = differences(program, run, &serial);
    let is_whole = |(kept, buffer): (&Vec<u8>, &TraceBuffer)| kept.len() as u64 == buffer.bytes;
    if !run.contents.iter().zip(&program.trace().buffers).all(is_whole) {
        let whole = program.run_planned(options)?;
        lines.extend(differences(program, &whole, &serial));
        lines.dedup();
    }
    Ok(lines)
}

/// Where the buffers that `run` kept are not what the serial run left in them.
fn differences(program: &Program, run: &ProgramRun, serial: &ProgramRun) -> Vec<String> {
    let tolerance = program.tolerance(run);
    let mut lines = Vec::new();
    for (index, buffer) in program.trace().buffers.iter().enumerate() {
        let (found, wanted) = (&run.contents[index], &serial.contents[index]);
        if found.len() != wanted.len() {
            continue;
        }
        if let Some(off) = compare(found, wanted, dtype_of(program, index), tolerance) {
            let name = buffer.name.as_deref().map_or(buffer.id.to_string(), str::to_owned);
            lines.push(format!(
                "buffer {name}: {} elements differ; element {} is {}, the serial run gave {}",
                off.count, off.element, off.found, off.wanted
            ));
        }
    }
    lines
}

fn simulate(program: &Program, path: &Path) -> Result<ProgramRun, Failure> {
    let bytes = read_bytes(path)?;
    let failed =
        |error: &dyn std::fmt::Display| Failure::Usage(format!("{}: {error}", name_of(path)));
    let text = std::str::from_utf8(&bytes).map_err(|error| failed(&error))?;
    let machine = machine_from_toml(text).map_err(|error| failed(&error))?;
    program.simulate(&machine).map_err(|error| failed(&error))
}

enum LoadFailure {
    Read(Failure),
    Program(syncline::program::ProgramError),
}

fn output(text: &str) -> Result<(String, PathBuf), String> {
    let (name, path) = text.split_once('=').ok_or("expected NAME=F.npy")?;
    Ok((name.to_owned(), path.into()))
}

/// The element type of the largest view that a task takes of a buffer.
fn dtype_of(program: &Program, index: usize) -> Dtype {
    largest_view(program, index).map_or(Dtype::U8, |view| view.dtype())
}

/// The shape of a view that covers the whole buffer in order, or of what all views of its rank are
/// parts of by their strides; or else a plain row of elements.
fn shape_of(program: &Program, index: usize, dtype: Dtype) -> Vec<u64> {
    let bytes = program.trace().buffers[index].bytes;
    let row = || vec![bytes / dtype.bytes()];
    let Some(view) = largest_view(program, index) else { return row() };
    if view.bytes() == bytes && view.is_contiguous() {
        return view.shape().to_vec();
    }
    let mut alike =
        views_of(program, index).filter(|other| other.shape().len() == view.shape().len());
    let is_part = alike.all(|other| other.strides() == view.strides());
    is_part.then(|| shape_by_strides(bytes, &view)).flatten().unwrap_or_else(row)
}

/// The shape of a whole whose parts have the strides of `part`: rows of a tile have the distance of
/// those of its matrix.
fn shape_by_strides(bytes: u64, part: &View) -> Option<Vec<u64>> {
    let strides = part.strides().iter().map(|&stride| u64::try_from(stride).ok());
    let inner: Vec<u64> = strides.collect::<Option<_>>()?;
    if inner.last() != Some(&part.dtype().bytes()) {
        return None;
    }
    let outer = std::iter::once(bytes).chain(inner.iter().copied());
    let size = |(outer, inner): (u64, &u64)| {
        (*inner > 0 && outer.is_multiple_of(*inner)).then(|| outer / inner)
    };
    outer.zip(&inner).map(size).collect()
}

fn views_of(program: &Program, index: usize) -> impl Iterator<Item = View> {
    let id = program.trace().buffers[index].id;
    let args = program.trace().tasks.iter().flat_map(|task| &task.args);
    args.filter(move |arg| arg.arg.buffer == id).map(|arg| arg.arg.view)
}

fn largest_view(program: &Program, index: usize) -> Option<View> {
    views_of(program, index).max_by_key(|view| view.bytes())
}
