//! Checkpoints: conversion, comparison, and reading in place.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use syncline::layout::{LayoutFile, TensorRule};
use syncline::tensor::Dtype;
use syncline_checkpoint::{
    Checkpoint, CheckpointError as Refusal, Conversion, ConversionOptions, Destination, Difference,
    Wanted, parse_rules, target_specs, unproven, verify_until as compare,
};

use crate::call::{self, Meter, call};
use crate::errors::{CheckpointError, Raise, UnknownTensorError, contained};
use crate::layout::{PyLayout, text_of};
use crate::tensor::{Tensor, dtype_of};

/// Bytes of tensors in one file of a checkpoint for the Hugging Face tools.
const FILE_BYTES_MAX: u64 = 5 << 30;

/// What a conversion did.
#[pyclass(name = "Summary", module = "syncline", frozen, get_all)]
pub(crate) struct PySummary {
    tensors: u64,
    files: u64,
    files_kept: u64,
    bytes: u64,
    seconds: f64,
    unproven: Vec<String>,
    unnamed: Vec<String>,
}

#[pymethods]
impl PySummary {
    fn __repr__(&self) -> String {
        let Self { tensors, files, bytes, seconds, .. } = self;
        format!("Summary({tensors} tensors, {files} files, {bytes} bytes in {seconds:.2} s)")
    }
}

/// Converts a checkpoint; the destination appears whole or not at all.
#[pyfunction]
#[pyo3(signature = (src, dst, to, rules = None, dtype = None, pes = None, resume = false, progress = None, allow_unproven = false, file_bytes = FILE_BYTES_MAX))]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub(crate) fn convert(
    py: Python<'_>,
    src: PathBuf,
    dst: PathBuf,
    to: &Bound<'_, PyAny>,
    rules: Option<&Bound<'_, PyAny>>,
    dtype: Option<&Bound<'_, PyAny>>,
    pes: Option<usize>,
    resume: bool,
    progress: Option<Bound<'_, PyAny>>,
    allow_unproven: bool,
    file_bytes: u64,
) -> PyResult<PySummary> {
    let progress = call::progress(py, progress)?;
    let mut options = ConversionOptions::default();
    options.threads = pes.unwrap_or(options.threads).max(1);
    options.dtype = dtype.map(dtype_of).transpose()?;
    options.resume = resume;
    options.allow_unproven = allow_unproven;
    let wanted = Goal::of(to, file_bytes)?;
    let rules = rules.map(rules_of).transpose()?.unwrap_or_default();
    let meter = Meter::default();
    let stop = options.stop.clone();
    let end = || stop.store(true, Ordering::Relaxed);
    let done = call(py, &end, progress.as_ref(), &meter, || {
        let source = Checkpoint::open(&src)?;
        let specs = target_specs(&source, options.dtype);
        let (destination, unnamed) = match wanted {
            Goal::Made(destination) => (destination, Default::default()),
            Goal::Wanted(wanted) => wanted.resolve(rules, &specs, &src)?,
        };
        let conversion = Conversion::new(&source, &destination, options)?;
        let total = conversion.bytes();
        let summary = conversion.run(&dst, &|done| meter.update(done, total))?;
        let unnamed = unnamed.into_keys().collect();
        Ok::<_, Refusal>((summary, conversion.unproven().to_vec(), unnamed))
    })?;
    let (summary, unproven, unnamed) = done.or_checkpoint()?;
    Ok(PySummary {
        tensors: summary.tensors,
        files: summary.files,
        files_kept: summary.files_kept,
        bytes: summary.bytes,
        seconds: summary.elapsed.as_secs_f64(),
        unproven,
        unnamed,
    })
}

/// What `to` asks for.
enum Goal {
    Made(Destination),
    Wanted(Wanted),
}

impl Goal {
    fn of(to: &Bound<'_, PyAny>, file_bytes_max: u64) -> PyResult<Self> {
        if let Ok(layout) = to.cast::<PyLayout>() {
            return Ok(Self::Made(Destination::Sharded((*layout.get().0).clone())));
        }
        if let Ok(text) = to.extract::<String>()
            && (["hf", "dcp"].contains(&&*text) || !Path::new(&text).exists())
            && !text.contains(['\n', '{'])
        {
            return Ok(Self::Wanted(match text.as_str() {
                "hf" => Wanted::HuggingFace { file_bytes_max },
                "dcp" => Wanted::Distributed { file_bytes_max },
                _ => Wanted::Axes(text),
            }));
        }
        let text = text_of(to)?;
        let layout = contained(|| LayoutFile::parse(&text))?.or_layout()?;
        Ok(Self::Wanted(Wanted::Layout(layout)))
    }
}

fn rules_of(rules: &Bound<'_, PyAny>) -> PyResult<Vec<TensorRule>> {
    parse_rules(&text_of(rules)?).or_layout()
}

/// A shard that is not what the other checkpoint says.
#[pyclass(name = "Difference", module = "syncline", frozen, get_all)]
pub(crate) struct PyDifference {
    tensor: String,
    rank: u32,
    element: u64,
    index: Vec<u64>,
    count: u64,
    expected: String,
    held: String,
}

#[pymethods]
impl PyDifference {
    fn __repr__(&self) -> String {
        let Self { tensor, rank, index, count, expected, held, .. } = self;
        format!(
            "tensor `{tensor}`, rank {rank}: {count} elements differ, the first at {index:?}: \
             {held} for {expected}"
        )
    }
}

/// How two checkpoints compare.
#[pyclass(name = "Report", module = "syncline", frozen, get_all)]
pub(crate) struct PyReport {
    same: bool,
    differences: Py<PyList>,
    unproven: Vec<String>,
}

#[pymethods]
impl PyReport {
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(match self.same {
            true => "Report(the same, every element)".to_owned(),
            false => format!("Report({})", self.differences.bind(py).repr()?),
        })
    }

    fn __bool__(&self) -> bool {
        self.same
    }
}

/// Compares two checkpoints, every element of every tensor.
#[pyfunction]
pub(crate) fn verify(py: Python<'_>, a: PathBuf, b: PathBuf) -> PyResult<PyReport> {
    type Found = (Result<Vec<Difference>, String>, Vec<String>);
    let stop = AtomicBool::new(false);
    let end = || stop.store(true, Ordering::Relaxed);
    let found = call(py, &end, None, &Meter::default(), || {
        let (source, target) = (Checkpoint::open(&a)?, Checkpoint::open(&b)?);
        let differences = match compare(&source, &target, &stop) {
            // Tensors that do not match at all are a finding, not a failure of the comparison.
            Err(Refusal::Reshard(cause)) => Err(cause.to_string()),
            compared => Ok(compared?),
        };
        Ok::<Found, Refusal>((differences, unproven(&target, &source)))
    })?;
    let (differences, unproven) = found.or_checkpoint()?;
    let list = PyList::empty(py);
    match differences {
        Err(cause) => list.append(cause)?,
        Ok(differences) => {
            for Difference { tensor, rank, element, index, count, expected, held, .. } in
                differences
            {
                let found = PyDifference { tensor, rank, element, index, count, expected, held };
                list.append(Py::new(py, found)?)?;
            }
        }
    }
    Ok(PyReport { same: list.is_empty(), differences: list.unbind(), unproven })
}

/// An open checkpoint: what `syncline.Checkpoint` reads.
#[pyclass(name = "CheckpointFiles", module = "syncline._native", frozen)]
pub(crate) struct PyCheckpoint(Arc<Checkpoint>);

#[pymethods]
impl PyCheckpoint {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let opened = py.detach(|| contained(|| Checkpoint::open(&path)))?;
        Ok(Self(Arc::new(opened.or_checkpoint()?)))
    }

    #[getter]
    fn layout(&self) -> PyLayout {
        PyLayout(Arc::new(self.0.layout().clone()))
    }

    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (name, text) in self.0.metadata() {
            dict.set_item(name, text)?;
        }
        Ok(dict)
    }

    /// `safetensors`, `sharded` for a file a rank, `torch`, `dcp` or `adapter`.
    #[getter]
    fn format(&self) -> &'static str {
        self.0.format().name()
    }

    fn names(&self) -> Vec<&str> {
        self.0.layout().tensors().iter().map(|tensor| tensor.name()).collect()
    }

    fn has(&self, name: &str) -> bool {
        self.0.layout().tensor(name).is_some()
    }

    /// Element type as files name it, the type that it is moved as, and the shape in that type.
    fn spec<'py>(
        &self,
        py: Python<'py>,
        name: &str,
    ) -> PyResult<(&'static str, &'static str, Bound<'py, PyTuple>)> {
        let at = self.find(name)?;
        let element = self.0.element(at);
        let shape = self.0.layout().tensors()[at as usize].shape();
        Ok((element.name(), element.dtype().name(), PyTuple::new(py, shape.iter())?))
    }

    /// What each rank holds: the rank, its bytes, its local shape, and its pieces.
    fn shards<'py>(
        slf: &Bound<'py, Self>,
        name: &str,
        rank: Option<u32>,
    ) -> PyResult<Bound<'py, PyList>> {
        let py = slf.py();
        let checkpoint = &slf.get().0;
        let at = slf.get().find(name)?;
        let list = PyList::empty(py);
        let placement = checkpoint.layout().tensors()[at as usize].placement();
        let shards = placement.shards().iter();
        for shard in shards.filter(|shard| rank.is_none_or(|rank| rank == shard.rank)) {
            let (checkpoint, together) = (checkpoint.clone(), OnceLock::new());
            let memory = Memory { checkpoint, tensor: at, rank: shard.rank, together };
            let pieces = PyList::empty(py);
            for piece in &shard.pieces {
                let start = PyTuple::new(py, piece.global.start.iter())?;
                let size = PyTuple::new(py, piece.global.size.iter())?;
                pieces.append((start, size, PyTuple::new(py, piece.local.iter())?))?;
            }
            let shape = PyTuple::new(py, shard.shape.iter())?;
            list.append((shard.rank, Py::new(py, memory)?, shape, pieces))?;
        }
        Ok(list)
    }
}

impl PyCheckpoint {
    fn find(&self, name: &str) -> PyResult<u32> {
        let missing = || {
            let names = self.0.layout().tensors().iter().map(|tensor| tensor.name());
            let near = meant(name, names);
            UnknownTensorError::new_err(format!("the checkpoint has no tensor `{name}`{near}"))
        };
        self.0.layout().index_of(name).map(|at| at as u32).ok_or_else(missing)
    }
}

fn meant<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> String {
    let nearest = syncline_spelling::nearest(name, names);
    nearest.map(|nearest| format!(": did you mean `{nearest}`?")).unwrap_or_default()
}

/// Bytes of an open checkpoint, which numpy reads where they are.
#[pyclass(module = "syncline._native", frozen)]
pub(crate) struct Memory {
    checkpoint: Arc<Checkpoint>,
    tensor: u32,
    rank: u32,
    /// The bytes where they are no one run of a file.
    together: OnceLock<Vec<u8>>,
}

#[pymethods]
impl Memory {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let bytes = self.checkpoint.shard(self.tensor, self.rank);
        let bytes = bytes.ok_or_else(|| {
            CheckpointError::new_err("the file has become shorter since it was opened".to_owned())
        })?;
        let bytes = match bytes {
            Cow::Borrowed(bytes) => bytes,
            Cow::Owned(bytes) => self.together.get_or_init(|| bytes),
        };
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", "|u1")?;
        interface.set_item("shape", (bytes.len(),))?;
        interface.set_item("data", (bytes.as_ptr() as usize, true))?;
        Ok(interface)
    }
}

/// Our name of an element type of numpy or torch.
#[pyfunction]
pub(crate) fn dtype_name(dtype: &Bound<'_, PyAny>) -> PyResult<&'static str> {
    Ok(dtype_of(dtype)?.name())
}

/// Bytes of an element.
#[pyfunction]
pub(crate) fn dtype_bytes(name: &str) -> PyResult<u64> {
    Ok(name.parse::<Dtype>().or_layout()?.bytes())
}

/// Shape and element type of a tensor.
#[pyfunction]
pub(crate) fn describe<'py>(
    tensor: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyTuple>, &'static str)> {
    let found = Tensor::new(tensor)?;
    Ok((PyTuple::new(tensor.py(), found.shape())?, found.dtype().name()))
}

/// The names of all element types.
#[pyfunction]
pub(crate) fn dtypes() -> Vec<&'static str> {
    Dtype::ALL.iter().map(|dtype| dtype.name()).collect()
}
