//! Programs and devices.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyString, PyTuple};
use syncline::device::{CancelToken, DeviceSpec};
use syncline_program::{Keep, Program, ProgramOptions, ProgramRun, RunOptions, RunProgress};

use crate::call::{self, Meter, call};
use crate::errors::{ProgramError, Raise, contained};
use crate::tensor::Tensor;

/// Reads devices: a name, several with commas, or a list of names.
pub(crate) fn devices_of(devices: &Bound<'_, PyAny>) -> PyResult<Vec<DeviceSpec>> {
    let names: Vec<String> = match devices.extract::<String>() {
        Ok(text) => text.split(',').map(|name| name.trim().to_owned()).collect(),
        Err(_) => devices.extract().map_err(|_| {
            ProgramError::new_err(
                "devices: expected names such as \"cpu\" or [\"cpu\", \"vulkan:0\"]",
            )
        })?,
    };
    names.iter().map(|name| name.parse().or_program()).collect()
}

/// Every device found, as dicts, as `syncline devices --json` lists them.
#[pyfunction]
pub(crate) fn devices(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let found = py.detach(|| contained(syncline_cli::devices))?;
    let text = found["devices"].to_string();
    py.import("json")?.getattr("loads")?.call1((text,))
}

/// A program that has run.
#[pyclass(name = "RunResult", module = "syncline._native", frozen)]
pub(crate) struct PyRun {
    program: Program,
    run: ProgramRun,
    title: String,
    differences: Option<Vec<String>>,
}

/// Runs a program; `source` is a path, or the bytes of a trace.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "`syncline.run` has them as keywords")]
pub(crate) fn run_program(
    py: Python<'_>,
    source: &Bound<'_, PyAny>,
    devices: &Bound<'_, PyAny>,
    mode: &str,
    repeat: u32,
    check: bool,
    inputs: &Bound<'_, PyDict>,
    outputs: Vec<String>,
    trust_kernels: bool,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<PyRun> {
    let progress = call::progress(py, progress)?;
    let devices = devices_of(devices)?;
    if !["plan", "stream", "serial"].contains(&mode) {
        let text = format!("mode: expected plan, stream or serial, got {mode}");
        return Err(ProgramError::new_err(text));
    }
    let (program, title) = if let Ok(bytes) = source.cast::<PyBytes>() {
        let options = ProgramOptions::default().with_trusted_kernels(trust_kernels);
        (contained(|| Program::from_bytes(bytes.as_bytes(), &options))?, "program".to_owned())
    } else {
        let path: PathBuf = source.extract()?;
        let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let program = contained(|| Program::load(&path, trust_kernels))?;
        (program, stem.unwrap_or_else(|| "program".to_owned()))
    };
    let mut program = program.or_program()?;
    for (name, value) in inputs {
        let tensor = Tensor::new(&value)?;
        // SAFETY: the interpreter's lock is held, and Python code that writes arrays without it
        // answers for that itself.
        let bytes = unsafe { tensor.packed() };
        program.set_contents(name.cast::<PyString>()?.to_str()?, bytes).or_program()?;
    }
    let keep = outputs.iter().map(|name| program.buffer_named(name)).collect::<Result<_, _>>();
    let keep = Keep::Results(keep.or_program()?);
    let repeats = if mode == "serial" { 1 } else { repeat.max(1) };
    let cancel = CancelToken::new();
    let count = RunProgress::ended_by(&cancel);
    let meter = match progress.is_some() {
        true => {
            let (count, total) = (count.clone(), u64::from(repeats) * program.tasks().len() as u64);
            Meter::counting(move || (count.done(), total))
        }
        false => Meter::default(),
    };
    let options = RunOptions::default().with_devices(devices).with_repeats(repeats);
    let options = options.with_backends(syncline::register_backends);
    let options = options.with_progress(Some(count)).with_keep(keep);
    let ran = call(py, &|| cancel.cancel(), progress.as_ref(), &meter, || {
        let run = match mode {
            "plan" => program.run_planned(&options),
            "stream" => program.run_streamed(&options),
            _ => program.run_serially_watched(options.progress.as_ref()),
        }?;
        let uncounted = Some(RunProgress::ended_by(&cancel));
        let all = options.with_keep(Keep::All).with_repeats(1).with_progress(uncounted);
        let differences = check.then(|| syncline_cli::check(&program, &run, &all)).transpose()?;
        Ok::<_, syncline_program::ProgramRunError>((run, differences))
    })?;
    let (run, differences) = ran.or_program()?;
    if let Some(first) = differences.iter().flatten().next() {
        let count = differences.iter().flatten().count();
        let text = format!("the run differs from the serial run in {count} places: {first}");
        return Err(ProgramError::new_err(text));
    }
    Ok(PyRun { program, run, title, differences })
}

#[pymethods]
impl PyRun {
    /// From the start of the first task to the end of the last.
    #[getter]
    fn seconds(&self) -> f64 {
        self.run.makespan_ns as f64 / 1e9
    }

    /// The names of the buffers that the run kept; a number where one has no name.
    fn names(&self) -> Vec<String> {
        let buffers = self.program.trace().buffers.iter().zip(&self.run.contents);
        let kept = buffers.filter(|(buffer, contents)| contents.len() as u64 == buffer.bytes);
        let name = |buffer: &syncline::trace::TraceBuffer| {
            buffer.name.as_deref().map_or_else(|| buffer.id.0.to_string(), str::to_owned)
        };
        kept.map(|(buffer, _)| name(buffer)).collect()
    }

    /// Element type, shape and bytes of a buffer.
    fn array<'py>(
        &self,
        py: Python<'py>,
        name: &str,
    ) -> PyResult<(&'static str, Bound<'py, PyTuple>, Bound<'py, PyByteArray>)> {
        let index = self.program.buffer_named(name).or_program()?;
        if self.run.contents[index].len() as u64 != self.program.trace().buffers[index].bytes {
            let text = format!("buffer `{name}` was not kept: name it in outputs=[...]");
            return Err(ProgramError::new_err(text));
        }
        let array = contained(|| syncline_cli::array_of(&self.program, &self.run, index))?;
        let shape = PyTuple::new(py, &array.shape)?;
        Ok((array.dtype.name(), shape, PyByteArray::new(py, &array.bytes)))
    }

    /// The page that explains the run.
    fn page(&self, py: Python<'_>) -> PyResult<String> {
        let differences = self.differences.as_deref();
        let page = py.detach(|| {
            contained(|| syncline_cli::page(&self.program, &self.run, &self.title, differences))
        });
        page?.or_program()
    }
}
