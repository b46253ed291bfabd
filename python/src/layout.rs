//! Layouts and plans.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use syncline::layout::{
    DEFAULT_SLOT_BYTES, Dims, Layout, LayoutFile, NdBox, Piece, PlanOptions, Schedule, Shard,
    TensorSpec, TransferPlan, write_transfers,
};
use syncline::tensor::Dtype;
use syncline_checkpoint::Checkpoint;

use crate::errors::{LayoutError, Raise, contained};
use crate::tensor::{Tensor, dtype_of};

/// Where tensors lie.
#[pyclass(name = "Layout", module = "syncline", frozen)]
pub(crate) struct PyLayout(pub(crate) Arc<Layout>);

/// A text, the contents of a file, or a dict in JSON.
pub(crate) fn text_of(source: &Bound<'_, PyAny>) -> PyResult<String> {
    let py = source.py();
    if source.cast::<PyDict>().is_ok() {
        return py.import("json")?.getattr("dumps")?.call1((source,))?.extract();
    }
    if let Ok(text) = source.cast::<PyString>() {
        let text = text.to_str()?;
        // No file is called like a layout in JSON or TOML.
        if text.contains(['\n', '{']) {
            return Ok(text.to_owned());
        }
    }
    if let Ok(bytes) = source.cast::<PyBytes>() {
        return String::from_utf8(bytes.as_bytes().to_vec()).or_layout();
    }
    let path: PathBuf = source.extract().map_err(|_| {
        LayoutError::new_err("expected a path, a text in JSON or TOML, or a dict".to_owned())
    })?;
    let inside = path.join("layout.json");
    let path = if path.is_dir() { inside } else { path };
    let bytes = syncline_files::read_file(&path)
        .map_err(|error| LayoutError::new_err(format!("{}: {error}", path.display())))?;
    String::from_utf8(bytes)
        .map_err(|_| LayoutError::new_err(format!("{}: expected UTF-8 text", path.display())))
}

/// Names, element types and shapes: of a dict of tensors, or of `(dtype, shape)`.
fn specs_of(tensors: &Bound<'_, PyAny>) -> PyResult<Vec<TensorSpec>> {
    let items = tensors.call_method0("items").map_err(|_| {
        LayoutError::new_err("tensors: expected a dict of (dtype, shape) or of tensors".to_owned())
    })?;
    let mut specs = Vec::new();
    for item in items.try_iter()? {
        let (name, value): (String, Bound<'_, PyAny>) = item?.extract()?;
        specs.push(spec_of(name, &value)?);
    }
    Ok(specs)
}

fn spec_of(name: String, value: &Bound<'_, PyAny>) -> PyResult<TensorSpec> {
    let (dtype, shape) = if let Ok(layout) = value.cast::<PyTuple>() {
        let (dtype, shape): (Bound<'_, PyAny>, Vec<u64>) = layout.extract()?;
        (dtype_of(&dtype)?, shape)
    } else if let (Some(dtype), Some(shape)) =
        (value.getattr_opt("dtype")?, value.getattr_opt("shape")?)
    {
        // Also of tensors without memory, which only have a type and a shape.
        (dtype_of(&dtype)?, shape.extract()?)
    } else {
        let tensor = Tensor::new(value)?;
        (tensor.dtype(), tensor.shape().to_vec())
    };
    let shape = dims(&name, &shape)?;
    Ok(TensorSpec { name, dtype, shape })
}

fn dims(name: &str, values: &[u64]) -> PyResult<Dims> {
    let too_many = || {
        LayoutError::new_err(format!("tensor `{name}`: {} dimensions are too many", values.len()))
    };
    Dims::from_slice(values).ok_or_else(too_many)
}

/// `(dtype, shape, [(rank, local shape, [(start, size, local start)])])` by name.
type Placed = (String, String, Vec<u64>, Vec<(u32, Vec<u64>, Vec<[Vec<u64>; 3]>)>);

#[pymethods]
impl PyLayout {
    #[staticmethod]
    #[pyo3(signature = (source, tensors = None))]
    fn from_mesh(source: &Bound<'_, PyAny>, tensors: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let text = text_of(source)?;
        let specs = tensors.map(specs_of).transpose()?.unwrap_or_default();
        let layout = contained(|| match LayoutFile::parse(&text)? {
            LayoutFile::Mesh(mesh) if specs.is_empty() => mesh.compile(mesh.specs()),
            file @ LayoutFile::Mesh(_) => file.resolve(&specs),
            LayoutFile::Explicit(layout) => Ok(layout),
        });
        Ok(Self(Arc::new(layout?.or_layout()?)))
    }

    #[staticmethod]
    fn from_json(source: &Bound<'_, PyAny>) -> PyResult<Self> {
        let text = text_of(source)?;
        let layout = contained(|| Layout::from_json(&text))?.or_layout()?;
        Ok(Self(Arc::new(layout)))
    }

    #[staticmethod]
    fn from_checkpoint(path: PathBuf) -> PyResult<Self> {
        let checkpoint = contained(|| Checkpoint::open(&path))?.or_checkpoint()?;
        Ok(Self(Arc::new(checkpoint.layout().clone())))
    }

    #[staticmethod]
    #[pyo3(signature = (state_dict, offset = 0))]
    fn from_dtensors(state_dict: Bound<'_, PyAny>, offset: u32) -> PyResult<Bound<'_, PyAny>> {
        let module = state_dict.py().import("syncline._dtensor")?;
        module.getattr("layout_from_dtensors")?.call1((state_dict, offset))
    }

    /// A layout of these shards.
    #[staticmethod]
    fn _from_shards(tensors: Vec<Placed>) -> PyResult<Self> {
        let mut builder = Layout::builder();
        for (name, dtype, shape, shards) in tensors {
            let dtype: Dtype = dtype.parse().or_layout()?;
            let shape = dims(&name, &shape)?;
            let mut made = Vec::new();
            for (rank, local_shape, pieces) in shards {
                let piece = |[start, size, local]: &[Vec<u64>; 3]| {
                    let global = NdBox { start: dims(&name, start)?, size: dims(&name, size)? };
                    Ok(Piece { global, local: dims(&name, local)? })
                };
                let pieces = pieces.iter().map(piece).collect::<PyResult<_>>()?;
                made.push(Shard { rank, shape: dims(&name, &local_shape)?, pieces });
            }
            builder.tensor(&name, dtype, &shape, made).or_layout()?;
        }
        Ok(Self(Arc::new(builder.finish())))
    }

    #[getter]
    fn world(&self) -> u32 {
        self.0.world()
    }

    #[getter]
    fn names(&self) -> Vec<&str> {
        self.0.tensors().iter().map(|tensor| tensor.name()).collect()
    }

    fn spec<'py>(&self, py: Python<'py>, name: &str) -> PyResult<(&str, Bound<'py, PyTuple>)> {
        let tensor = self.find(name)?;
        Ok((tensor.dtype().name(), PyTuple::new(py, tensor.shape().iter())?))
    }

    fn pieces<'py>(&self, py: Python<'py>, name: &str, rank: u32) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        let shard = self.find(name)?.placement().shard(rank);
        for piece in shard.iter().flat_map(|shard| &shard.pieces) {
            let dims = 0..piece.global.start.len();
            let span = |dim| (piece.global.start[dim], piece.global.stop(dim));
            let spans = PyTuple::new(py, dims.map(span))?;
            list.append((spans, PyTuple::new(py, piece.local.iter())?))?;
        }
        Ok(list)
    }

    /// The shape of what a rank holds of a tensor, or None where it holds nothing.
    fn local_shape<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        rank: u32,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let shard = self.find(name)?.placement().shard(rank);
        shard.map(|shard| PyTuple::new(py, shard.shape.iter())).transpose()
    }

    /// What a rank itself calls a tensor.
    fn local_name(&self, name: &str, rank: u32) -> PyResult<&str> {
        Ok(self.find(name)?.local_name(rank))
    }

    /// Why it is not known to be right for its model.
    #[getter]
    fn unproven(&self) -> Vec<String> {
        self.0.unproven().to_vec()
    }

    fn to_json(&self) -> String {
        self.0.to_json()
    }

    fn __len__(&self) -> usize {
        self.0.tensors().len()
    }

    fn __contains__(&self, name: &str) -> bool {
        self.0.tensor(name).is_some()
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        let other = other.cast::<Self>();
        other.is_ok_and(|other| other.get().0.fingerprint() == self.0.fingerprint())
    }

    fn __hash__(&self) -> u64 {
        self.0.fingerprint()
    }

    fn __repr__(&self) -> String {
        format!("Layout({} tensors over {} ranks)", self.0.tensors().len(), self.0.world())
    }
}

impl PyLayout {
    fn find(&self, name: &str) -> PyResult<&syncline::layout::TensorLayout> {
        let unknown = || LayoutError::new_err(format!("the layout has no tensor `{name}`"));
        self.0.tensor(name).ok_or_else(unknown)
    }
}

/// The changes of element type that `convert` allows: None, True for all that can be done, a dict
/// or pairs of source and target.
pub(crate) fn options_of(convert: Option<&Bound<'_, PyAny>>) -> PyResult<PlanOptions> {
    let mut options = PlanOptions::default();
    let Some(convert) = convert.filter(|convert| !convert.is_none()) else { return Ok(options) };
    if let Ok(all) = convert.extract::<bool>() {
        return Ok(if all { options.convert_all() } else { options });
    }
    let pairs = match convert.cast::<PyDict>() {
        Ok(dict) => dict.items().into_any(),
        Err(_) => convert.clone(),
    };
    let wrong = || {
        LayoutError::new_err(
            "convert: expected True, or pairs of element types such as {\"f32\": \"bf16\"}",
        )
    };
    for pair in pairs.try_iter().map_err(|_| wrong())? {
        let pair: (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair?.extract().map_err(|_| wrong())?;
        options = options.convert(dtype_of(&pair.0)?, dtype_of(&pair.1)?);
    }
    Ok(options)
}

/// What moves where.
#[pyclass(name = "Plan", module = "syncline", frozen)]
pub(crate) struct PyPlan {
    from: Arc<Layout>,
    to: Arc<Layout>,
    plan: TransferPlan,
    schedule: Schedule,
}

/// Plans the way from one layout to another.
#[pyfunction]
#[pyo3(signature = (src, dst, convert = None, slot_bytes = DEFAULT_SLOT_BYTES))]
pub(crate) fn plan(
    py: Python<'_>,
    src: &Bound<'_, PyLayout>,
    dst: &Bound<'_, PyLayout>,
    convert: Option<&Bound<'_, PyAny>>,
    slot_bytes: u64,
) -> PyResult<PyPlan> {
    let options = options_of(convert)?;
    let (from, to) = (src.get().0.clone(), dst.get().0.clone());
    let planned = py.detach(|| {
        contained(|| {
            let plan = TransferPlan::new(&from, &to, &options)?;
            let schedule = Schedule::new(&plan, slot_bytes)?;
            Ok::<_, syncline::layout::LayoutError>((plan, schedule))
        })
    });
    let (plan, schedule) = planned?.or_layout()?;
    Ok(PyPlan { from, to, plan, schedule })
}

#[pymethods]
impl PyPlan {
    #[getter]
    fn bytes_total(&self) -> u64 {
        self.plan.bytes_total()
    }

    #[getter]
    fn bytes_moved(&self) -> u64 {
        self.plan.bytes_moved()
    }

    #[getter]
    fn rounds(&self) -> u32 {
        self.schedule.rounds()
    }

    #[getter]
    fn rounds_lower_bound(&self) -> u32 {
        self.schedule.rounds_lower_bound()
    }

    /// One more than the highest rank of either layout.
    #[getter]
    fn world(&self) -> u32 {
        self.plan.world()
    }

    /// The transfers as dicts, as in the JSON form.
    #[getter]
    fn ops<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let plan = py.import("json")?.getattr("loads")?.call1((self.to_json(py)?,))?;
        plan.get_item("ops")
    }

    fn to_json(&self, py: Python<'_>) -> PyResult<String> {
        let text = py.detach(|| {
            let mut text = Vec::new();
            write_transfers(&self.plan, &self.schedule, &mut text).map(|()| text)
        });
        String::from_utf8(text.or_layout()?).or_layout()
    }

    /// Where an element comes from and where it goes.
    fn explain<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        index: Vec<u64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let unknown = || LayoutError::new_err(format!("the plan moves no tensor `{name}`"));
        let at = self.to.index_of(name).ok_or_else(unknown)?;
        let mut tensors = (0u32..).zip(self.plan.tensors());
        let (number, tensor) =
            tensors.find(|(_, tensor)| tensor.to as usize == at).ok_or_else(unknown)?;
        let shape = self.to.tensors()[at].shape();
        let is_inside = index.len() == shape.len()
            && index.iter().zip(shape.iter()).all(|(index, size)| index < size);
        if !is_inside {
            return Err(LayoutError::new_err(format!(
                "tensor `{name}` of shape {shape} has no element {index:?}"
            )));
        }
        let holders = |layout: &Layout, at: usize| {
            let shards = layout.tensors()[at].placement().shards().iter();
            let found = shards.flat_map(|shard| {
                let local = shard.pieces.iter().find_map(|piece| local_index(piece, &index));
                local.map(|local| (shard.rank, local))
            });
            found.collect::<Vec<_>>()
        };
        let sources = holders(&self.from, tensor.from as usize);
        let mut moves = Vec::new();
        for (rank, target) in holders(&self.to, at) {
            let ops = self.plan.ops().iter().filter(|op| op.tensor == number && op.dst == rank);
            let found = ops.clone().find_map(|op| {
                let copy = self.plan.copy_box(op);
                let (_, unit) = tensor.unit_elements();
                let within = inside(&copy.dst_box(), &target, unit);
                let source = sources.iter().find(|(rank, _)| *rank == op.src);
                within.then(|| (op.src, source.map(|(_, local)| local.clone())))
            });
            if let Some((source_rank, source)) = found {
                moves.push((source_rank, source, rank, target));
            }
        }
        let explanation = py.import("syncline._explain")?.getattr("Explanation")?;
        let types = (tensor.src_dtype.name(), tensor.dst_dtype.name());
        explanation.call1((name, PyTuple::new(py, index)?, types, sources, moves))
    }

    /// What a notebook shows: the numbers, and the bytes between each two ranks.
    fn _repr_html_<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let pairs = self.plan.traffic().pairs().iter();
        let pairs: Vec<_> = pairs.map(|pair| (pair.src, pair.dst, pair.bytes)).collect();
        let page = py.import("syncline._explain")?.getattr("plan_html")?;
        page.call1((self.__repr__(), self.plan.world(), pairs))
    }

    fn __repr__(&self) -> String {
        let (total, moved) = (self.plan.bytes_total(), self.plan.bytes_moved());
        let rounds = self.schedule.rounds();
        format!("Plan({total} bytes, {moved} between ranks, in {rounds} rounds)")
    }
}

/// Where a shard keeps the element `index` of the whole tensor, if `piece` has it.
fn local_index(piece: &Piece, index: &[u64]) -> Option<Vec<u64>> {
    let dims = index.iter().enumerate();
    dims.map(|(dim, &at)| {
        let start = piece.global.start[dim];
        (at >= start && at < piece.global.stop(dim)).then(|| piece.local[dim] + at - start)
    })
    .collect()
}

/// Returns `true` if `place`, which counts `unit` elements of the last dimension as one, has the
/// element `index`.
fn inside(place: &NdBox, index: &[u64], unit: u64) -> bool {
    let last = index.len().wrapping_sub(1);
    index.iter().enumerate().all(|(dim, &at)| {
        let at = if dim == last { at / unit } else { at };
        at >= place.start[dim] && at < place.stop(dim)
    })
}
