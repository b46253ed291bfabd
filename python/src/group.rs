//! Groups, refits and single copies.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use syncline::device::CancelToken;
use syncline::layout::Layout;
use syncline::layout::PlanOptions;
use syncline::reshard::{
    CopyService, Moved, Refit, ServiceError, ServiceOptions, ShardStrides, Sources, Target, Targets,
};
use syncline::tensor::Dtype;

use crate::address::Address;
use crate::call::{self, Meter, call};
use crate::errors::{GroupError, LayoutError, Raise, contained};
use crate::layout::{PyLayout, options_of};
use crate::tensor::{Tensor, overlap};

type Service = CopyService;

/// This process's place in a group.
#[pyclass(name = "Group", module = "syncline", frozen)]
pub(crate) struct PyGroup {
    service: Mutex<Option<Service>>,
    cancel: CancelToken,
    rank: usize,
    size: usize,
    timeout: Duration,
    /// The process that joined: a fork of it is no member.
    process: u32,
}

fn duration(seconds: f64, what: &str) -> PyResult<Duration> {
    let wrong = |_| GroupError::new_err(format!("{what}: expected seconds, got {seconds}"));
    Duration::try_from_secs_f64(seconds).map_err(wrong)
}

/// Joins a group and waits until all have.
#[pyfunction]
#[pyo3(signature = (address = None, rank = None, size = None, token = None, timeout = 60.0))]
pub(crate) fn join(
    py: Python<'_>,
    address: Option<String>,
    rank: Option<usize>,
    size: Option<usize>,
    token: Option<String>,
    timeout: f64,
) -> PyResult<PyGroup> {
    let timeout = duration(timeout, "timeout")?;
    let address = Address::find(address, rank, size, token)?;
    let cancel = CancelToken::new();
    let options = ServiceOptions { timeout, ..ServiceOptions::default() };
    let joined = call(py, &|| cancel.cancel(), None, &Meter::default(), || {
        address.join(options, timeout, &cancel)
    })?;
    let mut service = joined?;
    // A cancelled token stays cancelled: one that ends this group's calls only.
    let cancel = CancelToken::new();
    service.set_cancel(cancel.clone());
    let size = service.transport().shape().size;
    let (rank, process) = (service.rank(), std::process::id());
    Ok(PyGroup { service: Mutex::new(Some(service)), cancel, rank, size, timeout, process })
}

impl PyGroup {
    fn check_process(&self) -> PyResult<()> {
        match self.process == std::process::id() {
            true => Ok(()),
            false => Err(GroupError::new_err(
                "this process is a fork of the one that joined the group: join in the fork",
            )),
        }
    }

    /// Asks the service without waiting for others.
    fn look<T: Send>(&self, py: Python<'_>, ask: impl FnOnce(&Service) -> T + Send) -> PyResult<T> {
        self.check_process()?;
        py.detach(|| self.lock().as_ref().map(ask))
            .ok_or_else(|| GroupError::new_err("the group was left"))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Service>> {
        self.service.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `work` with the service, without the interpreter's lock.
    fn with_service<T: Send>(
        &self,
        py: Python<'_>,
        progress: Option<&Bound<'_, PyAny>>,
        timeout: Option<f64>,
        work: impl FnOnce(&mut Service) -> PyResult<T> + Send,
    ) -> PyResult<T> {
        self.check_process()?;
        let timeout = timeout.map_or(Ok(self.timeout), |seconds| duration(seconds, "timeout"))?;
        let meter = Arc::new(Meter::default());
        let (is_watched, seen) = (progress.is_some(), meter.clone());
        call(py, &|| self.cancel.cancel(), progress, &meter, || {
            let mut service = self.lock();
            let service =
                service.as_mut().ok_or_else(|| GroupError::new_err("the group was left"))?;
            service.set_timeout(timeout);
            if is_watched {
                service.set_progress(move |now| seen.update(now.bytes_done, now.bytes_total));
            }
            work(service)
        })?
    }
}

impl Drop for PyGroup {
    fn drop(&mut self) {
        let service = self.lock().take();
        if self.process != std::process::id() {
            // The member is the process that was forked: it has not left.
            std::mem::forget(service);
        }
    }
}

#[pymethods]
impl PyGroup {
    #[getter]
    fn rank(&self) -> usize {
        self.rank
    }

    #[getter]
    fn size(&self) -> usize {
        self.size
    }

    /// The version of the membership.
    #[getter]
    fn epoch(&self, py: Python<'_>) -> PyResult<u64> {
        self.look(py, |service| service.epoch())
    }

    /// The ranks that are in it.
    #[getter]
    fn members(&self, py: Python<'_>) -> PyResult<Vec<usize>> {
        self.look(py, |service| service.members())
    }

    /// Goes on after a failure, with the members that are left; each of them calls it.
    #[pyo3(signature = (timeout = None))]
    fn recover(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        self.with_service(py, None, timeout, |service| service.recover().or_group())
    }

    #[pyo3(signature = (src, dst, convert = None, delta = false, checksums = false))]
    fn prepare(
        slf: &Bound<'_, Self>,
        src: &Bound<'_, PyLayout>,
        dst: &Bound<'_, PyLayout>,
        convert: Option<&Bound<'_, PyAny>>,
        delta: bool,
        checksums: bool,
    ) -> PyResult<PyRefit> {
        let options = options_of(convert)?;
        let (from, to) = (src.get().0.clone(), dst.get().0.clone());
        let group = slf.get();
        let refit = group.with_service(slf.py(), None, None, |service| {
            service.set_checksums(checksums);
            contained(|| service.prepare(&from, &to, &options))?.map_err(not_prepared)
        })?;
        let group = slf.clone().unbind();
        let strided = Mutex::default();
        let runs = Mutex::new(0);
        Ok(PyRefit { group, from, to, options, refit, strided, delta, checksums, runs })
    }

    fn copy_service(slf: &Bound<'_, Self>) -> PyResult<PyCopies> {
        slf.get().check_process()?;
        Ok(PyCopies { group: slf.clone().unbind(), submitted: Mutex::default() })
    }

    /// Leaves the group.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.check_process()?;
        py.detach(|| drop(self.lock().take()));
        Ok(())
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyAny>) -> PyResult<()> {
        match self.check_process() {
            Ok(()) => self.close(py),
            // The fork has nothing to leave.
            Err(_) => Ok(()),
        }
    }

    fn __repr__(&self) -> String {
        format!("Group(rank {} of {})", self.rank, self.size)
    }
}

/// A movement from one layout to another that can be run again and again.
#[pyclass(name = "Refit", module = "syncline", frozen)]
pub(crate) struct PyRefit {
    group: Py<PyGroup>,
    from: Arc<Layout>,
    to: Arc<Layout>,
    options: PlanOptions,
    /// Between shards that are dense and row-major.
    refit: Arc<Refit>,
    /// Between shards that have the strides of the last run's tensors.
    strided: Mutex<Option<(ShardStrides, Arc<Refit>)>>,
    /// Whether only what has changed since the last run is sent.
    delta: bool,
    checksums: bool,
    runs: Mutex<u64>,
}

fn not_prepared(error: ServiceError) -> PyErr {
    match error {
        ServiceError::Plan(error) => LayoutError::new_err(error.to_string()),
        other => GroupError::new_err(other.to_string()),
    }
}

/// What one run of a refit did on this rank.
#[pyclass(name = "RefitStats", module = "syncline", frozen, get_all)]
pub(crate) struct PyStats {
    seconds: f64,
    bytes_sent: u64,
    bytes_received: u64,
    bytes_kept: u64,
    changed_fraction: f64,
    version: u64,
}

#[pymethods]
impl PyStats {
    fn __repr__(&self) -> String {
        format!(
            "RefitStats(version {}, {:.3} s, {} bytes sent, {} received, {} kept)",
            self.version, self.seconds, self.bytes_sent, self.bytes_received, self.bytes_kept
        )
    }
}

/// Tensors of one side by the layout's names.
type Bound_ = Vec<(String, Tensor)>;

impl PyRefit {
    /// The tensors in `given`, which must be what `layout` says that this rank holds.
    fn tensors(&self, given: Option<&Bound<'_, PyAny>>, is_target: bool) -> PyResult<Bound_> {
        let Some(given) = given.filter(|given| !given.is_none()) else { return Ok(Vec::new()) };
        let (layout, side) = match is_target {
            true => (&self.to, "targets"),
            false => (&self.from, "sources"),
        };
        let shards = if is_target { &**self.refit.targets() } else { self.refit.sources() };
        let rank = self.refit.rank() as u32;
        let items = given.call_method0("items").map_err(|_| {
            LayoutError::new_err(format!("{side}: expected a dict of tensors by name"))
        })?;
        let mut found = Vec::new();
        for item in items.try_iter()? {
            let (name, object): (String, Bound<'_, PyAny>) = item?.extract()?;
            let wrong =
                |text: String| LayoutError::new_err(format!("{side}: tensor `{name}`: {text}"));
            let called =
                if layout.tensor(&name).is_some() { Some(&*name) } else { shards.name_of(&name) };
            let known = called.and_then(|name| layout.tensor(name));
            let Some(known) = known else {
                return Err(wrong("the layout has no such tensor".to_owned()));
            };
            let tensor = Tensor::new(&object).map_err(|error| {
                let py = object.py();
                let told = wrong(error.value(py).to_string());
                told.set_cause(py, error.cause(py));
                told
            })?;
            let Some(shard) = known.placement().shard(rank) else {
                if tensor.bytes() == 0 {
                    continue;
                }
                return Err(wrong(format!("rank {rank} holds nothing of it in this layout")));
            };
            if tensor.shape() != &shard.shape[..] {
                let got = tensor.shape();
                return Err(wrong(format!("rank {rank} holds {} of it, got {got:?}", shard.shape)));
            }
            if !stands_for(tensor.dtype(), known.dtype()) {
                return Err(wrong(format!(
                    "is {} in the layout, got {}",
                    known.dtype(),
                    tensor.dtype()
                )));
            }
            if is_target {
                tensor
                    .check_writable()
                    .map_err(|error| wrong(error.value(object.py()).to_string()))?;
            }
            found.push((known.name().to_owned(), tensor));
        }
        Ok(found)
    }
}

/// Returns `true` if memory of `given` elements can be taken for `wanted` ones: the same type, or
/// plain bits where numpy has no such type.
fn stands_for(given: Dtype, wanted: Dtype) -> bool {
    let bits = match wanted {
        Dtype::BF16 => Dtype::U16,
        Dtype::F8E4M3 | Dtype::F8E5M2 | Dtype::F8E8M0 => Dtype::U8,
        other => other,
    };
    given == wanted || given == bits
}

fn refuse_overlap(names: &[&str], tensors: &[(&Tensor, bool)]) -> PyResult<()> {
    match overlap(tensors) {
        None => Ok(()),
        Some((one, two)) => Err(LayoutError::new_err(format!(
            "tensors `{}` and `{}` share memory, and at least one of them is written: give each its \
             own",
            names[one], names[two]
        ))),
    }
}

#[pymethods]
impl PyRefit {
    #[pyo3(signature = (sources = None, targets = None, version = None, timeout = None, progress = None))]
    fn run(
        &self,
        py: Python<'_>,
        sources: Option<&Bound<'_, PyAny>>,
        targets: Option<&Bound<'_, PyAny>>,
        version: Option<u64>,
        timeout: Option<f64>,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<PyStats> {
        let progress = call::progress(py, progress)?;
        let sources = self.tensors(sources, false)?;
        let targets = self.tensors(targets, true)?;
        let all =
            || sources.iter().map(|one| (one, false)).chain(targets.iter().map(|one| (one, true)));
        let names: Vec<&str> = all().map(|((name, _), _)| &**name).collect();
        refuse_overlap(
            &names,
            &all().map(|((_, tensor), writes)| (tensor, writes)).collect::<Vec<_>>(),
        )?;
        let start = Instant::now();
        let group = self.group.get();
        let moved = group.with_service(py, progress.as_ref(), timeout, |service| {
            self.run_bound(service, &sources, &targets)
        })?;
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        *runs = version.unwrap_or(*runs + 1);
        Ok(PyStats {
            seconds: start.elapsed().as_secs_f64(),
            bytes_sent: self.refit.bytes_sent(),
            bytes_received: self.refit.bytes_received(),
            bytes_kept: moved.kept_bytes,
            changed_fraction: match self.delta {
                true => moved.changed_bytes as f64 / moved.compared_bytes.max(1) as f64,
                false => 1.0,
            },
            version: *runs,
        })
    }

    /// Names and shapes of the sources of this rank.
    #[getter]
    fn sources<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        held(py, &self.from, self.refit.rank())
    }

    /// Names and shapes of the targets of this rank.
    #[getter]
    fn targets<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        held(py, &self.to, self.refit.rank())
    }

    /// Bytes that move between different ranks, of the whole group.
    #[getter]
    fn bytes_moved(&self) -> u64 {
        self.refit.bytes_moved()
    }

    fn __repr__(&self) -> String {
        let (moved, rounds) = (self.refit.bytes_moved(), self.refit.rounds());
        format!("Refit(rank {}, {moved} bytes between ranks in {rounds} rounds)", self.refit.rank())
    }
}

fn held<'py>(py: Python<'py>, layout: &Layout, rank: usize) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for tensor in layout.tensors() {
        if let Some(shard) = tensor.placement().shard(rank as u32) {
            let shape = pyo3::types::PyTuple::new(py, shard.shape.iter())?;
            dict.set_item(tensor.name(), (tensor.dtype().name(), shape))?;
        }
    }
    Ok(dict)
}

impl PyRefit {
    /// Returns the refit between shards that lie as these tensors do.
    fn refit_for(
        &self,
        service: &mut Service,
        sources: &[(String, Tensor)],
        targets: &[(String, Tensor)],
    ) -> PyResult<Arc<Refit>> {
        fn strided(tensors: &[(String, Tensor)]) -> impl Iterator<Item = &(String, Tensor)> {
            tensors.iter().filter(|(_, tensor)| !tensor.is_contiguous())
        }
        let strides = ShardStrides::default();
        let strides = strided(sources)
            .fold(strides, |strides, (name, tensor)| strides.source(name, tensor.strides()));
        let strides = strided(targets)
            .fold(strides, |strides, (name, tensor)| strides.target(name, tensor.strides()));
        if strides.is_empty() {
            return Ok(self.refit.clone());
        }
        let mut kept = self.strided.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, refit)) = &*kept
            && *known == strides
        {
            return Ok(refit.clone());
        }
        service.set_checksums(self.checksums);
        let made = service.prepare_strided(&self.from, &self.to, &self.options, &strides);
        let refit = made.map_err(not_prepared)?;
        *kept = Some((strides, refit.clone()));
        Ok(refit)
    }

    /// Moves everything, from and to the memory of the tensors.
    fn run_bound(
        &self,
        service: &mut Service,
        sources: &[(String, Tensor)],
        targets: &[(String, Tensor)],
    ) -> PyResult<Moved> {
        let refit = &*self.refit_for(service, sources, targets)?;
        let mut bound_sources = Sources::new(refit);
        for (name, tensor) in sources {
            // SAFETY: the caller was told not to write sources during a refit, and Python's own
            // arrays promise no more. The tensor lives until this function returns, and has the
            // shape of the shard and the strides that the refit was prepared for.
            unsafe { bound_sources.bind_memory(refit, name, tensor.first()) }.or_layout()?;
        }
        let mut bound_targets = Targets::new(refit);
        for (name, tensor) in targets {
            // SAFETY: as above; it was checked to be writable and to share no memory with the
            // others.
            unsafe { bound_targets.bind_memory(refit, name, tensor.first()) }.or_layout()?;
        }
        // Here, where it is an error of this call alone: a refit would fail the group.
        bound_sources.check(refit).or_layout()?;
        bound_targets.check(refit, &bound_sources).or_layout()?;
        let target = Target::Memory(&mut bound_targets);
        let moved = match self.delta {
            true => service.refit_changes(refit, &bound_sources, target),
            false => service.refit(refit, &bound_sources, target),
        };
        moved.or_group()
    }
}

/// A transfer that waits for `run`.
struct Submitted {
    is_send: bool,
    peer: usize,
    id: Option<u64>,
    tensor: Tensor,
}

/// Single copies between members.
#[pyclass(name = "CopyService", module = "syncline", frozen)]
pub(crate) struct PyCopies {
    group: Py<PyGroup>,
    submitted: Mutex<Vec<Submitted>>,
}

impl PyCopies {
    fn lock(&self) -> MutexGuard<'_, Vec<Submitted>> {
        self.submitted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn submit(
        &self,
        object: &Bound<'_, PyAny>,
        peer: usize,
        id: Option<u64>,
        is_send: bool,
    ) -> PyResult<()> {
        let size = self.group.get().size;
        if peer >= size {
            return Err(GroupError::new_err(format!(
                "there is no rank {peer} in a group of {size}"
            )));
        }
        let tensor = Tensor::new(object)?;
        if !is_send {
            tensor.check_writable()?;
        }
        let mut submitted = self.lock();
        if let Some(id) = id.filter(|id| id >> 63 != 0) {
            return Err(GroupError::new_err(format!("task_id {id}: expected less than 2**63")));
        }
        submitted.push(Submitted { is_send, peer, id, tensor });
        Ok(())
    }
}

#[pymethods]
impl PyCopies {
    #[pyo3(signature = (tensor, dest_rank, task_id = None))]
    fn submit_send(
        &self,
        tensor: &Bound<'_, PyAny>,
        dest_rank: usize,
        task_id: Option<u64>,
    ) -> PyResult<()> {
        self.submit(tensor, dest_rank, task_id, true)
    }

    #[pyo3(signature = (tensor, src_rank, task_id = None))]
    fn submit_recv(
        &self,
        tensor: &Bound<'_, PyAny>,
        src_rank: usize,
        task_id: Option<u64>,
    ) -> PyResult<()> {
        self.submit(tensor, src_rank, task_id, false)
    }

    #[pyo3(signature = (timeout = None))]
    fn run(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let submitted = std::mem::take(&mut *self.lock());
        let all: Vec<(&Tensor, bool)> =
            submitted.iter().map(|one| (&one.tensor, !one.is_send)).collect();
        if let Some((one, two)) = overlap(&all) {
            let say = |at: usize| match (&submitted[at], submitted[at].is_send) {
                (one, true) => format!("the send to rank {}", one.peer),
                (one, false) => format!("the receive from rank {}", one.peer),
            };
            let text = format!("{} and {} share memory that is written", say(one), say(two));
            return Err(GroupError::new_err(text));
        }
        self.group.get().with_service(py, None, timeout, |service| exchange(service, &submitted))
    }

    fn clear(&self) {
        let cleared = std::mem::take(&mut *self.lock());
        drop(cleared);
    }

    fn __len__(&self) -> usize {
        self.lock().len()
    }
}

/// Does what was submitted. Tensors with gaps go by way of packed copies.
fn exchange(service: &mut Service, submitted: &[Submitted]) -> PyResult<()> {
    // SAFETY: nothing writes the tensors meanwhile but this exchange, as the caller was told.
    let pack =
        |one: &Submitted| (!one.tensor.is_contiguous()).then(|| unsafe { one.tensor.packed() });
    let mut staged: Vec<Option<Vec<u8>>> = submitted.iter().map(pack).collect();
    run_submitted(service, submitted, &mut staged)?;
    for (one, staged) in submitted.iter().zip(&staged).filter(|(one, _)| !one.is_send) {
        // SAFETY: it was checked to be writable and to share memory with no other.
        staged.iter().for_each(|staged| unsafe { one.tensor.unpack(staged) });
    }
    Ok(())
}

fn run_submitted(
    service: &mut Service,
    submitted: &[Submitted],
    staged: &mut [Option<Vec<u8>>],
) -> PyResult<()> {
    let mut requests = service.requests();
    for (one, staged) in submitted.iter().zip(staged) {
        let &Submitted { is_send, peer, id, ref tensor } = one;
        let staged = staged.as_deref_mut();
        if is_send {
            let bytes: &[u8] = match staged {
                Some(staged) => staged,
                // SAFETY: it lives until this function returns, and is only read meanwhile.
                None => unsafe { tensor.slice() },
            };
            requests.submit_send(peer, id, bytes).or_group()?;
        } else {
            // SAFETY: as above; it was checked to be writable and to share memory with no other.
            let bytes = staged.unwrap_or_else(|| unsafe { tensor.slice_mut() });
            requests.submit_recv(peer, id, bytes).or_group()?;
        }
    }
    requests.run().or_group()
}
