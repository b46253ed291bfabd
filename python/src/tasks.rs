//! Tasks: live scopes and recorded plans over arrays that are used in place.

use std::any::Any;
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use pyo3::prelude::*;
use pyo3::sync::{MutexExt, PyOnceLock};
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyTuple};
use syncline::device::{
    Allocator, Buffer, CancelToken, DeviceError, DeviceSpec, Kernel, Memory, MemoryUse, Scalar,
};
use syncline::kernels::Library;
use syncline::plan::{BufferSpec, CompileOptions, ExecutionPlan, TaskGraph, TaskSpec};
use syncline::runtime::UnifiedExecutor;
use syncline::runtime::replay::{Bindings, LoadedPlan, TaskBody};
use syncline::runtime::stream::{Scope, ScopeOptions, Stream, StreamError, StreamOptions, Task};
use syncline::tensor::{Access, Arg, BufferId, Dtype, View};

use crate::call::{Meter, call};
use crate::errors::{ProgramError, Raise, contained};
use crate::program::devices_of;
use crate::tensor::Tensor;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks what one thread uses at a time, without waiting: its user may need the interpreter.
fn free<T>(mutex: &Mutex<T>) -> PyResult<MutexGuard<'_, T>> {
    mutex.try_lock().map_err(|_| refused("another thread or task uses it: one does at a time"))
}

fn refused(text: impl Into<String>) -> PyErr {
    ProgramError::new_err(text.into())
}

fn access_of(name: &str) -> PyResult<Access> {
    match name {
        "read" => Ok(Access::Input),
        "write" => Ok(Access::OutputExisting),
        "update" => Ok(Access::InOut),
        other => Err(refused(format!("access: expected read, write or update, got {other}"))),
    }
}

/// The built-in kernel of this name with all its scalars, checked for these arguments.
fn kernel_of(
    name: &str,
    scalars: Option<&Bound<'_, PyDict>>,
    args: &[Arg],
) -> PyResult<(Kernel, Vec<Scalar>)> {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    let entry = LIBRARY.get_or_init(Library::builtin).get(name).or_program()?;
    let mut given: Vec<(String, Scalar)> = Vec::new();
    for (name, value) in scalars.into_iter().flatten() {
        let name: String = name.extract()?;
        let value = if let Ok(flag) = value.cast::<PyBool>() {
            Scalar::Bool(flag.is_true())
        } else if value.cast::<PyInt>().is_ok() {
            Scalar::I64(value.extract()?)
        } else if let Ok(number) = value.cast::<PyFloat>() {
            Scalar::F64(number.extract()?)
        } else {
            return Err(refused(format!("scalar `{name}`: expected a number or a truth value")));
        };
        given.push((name, value));
    }
    let named = given.iter().map(|(name, value)| (&**name, *value));
    let scalars = entry.signature.scalars(named).or_program()?;
    entry.signature.check(args, &scalars).or_program()?;
    Ok((entry.kernel.clone(), scalars))
}

/// The first exception of a task's callable: what the end of the scope or run raises.
type Raised = Arc<Mutex<Option<PyErr>>>;

/// Calls a task's callable with its views. Its exception is kept for the caller.
fn call_body(body: &Py<PyAny>, views: &Py<PyTuple>, raised: &Raised) -> Result<(), String> {
    // Counted before the flag is read: `end_callables` sets the flag before it reads the count.
    RUNNING.fetch_add(1, Ordering::SeqCst);
    let called = match IS_ENDING.load(Ordering::SeqCst) {
        true => None,
        false => Python::try_attach(|py| {
            let run = CALL.import(py, "syncline._tasks", "run_callable")?;
            run.call1((body, views)).map(drop)
        }),
    };
    let done = match called {
        Some(Ok(())) => Ok(()),
        Some(Err(error)) => {
            let text = error.to_string();
            lock(raised).get_or_insert(error);
            Err(text)
        }
        None => Err("the interpreter is ending".to_owned()),
    };
    RUNNING.fetch_sub(1, Ordering::SeqCst);
    done
}

/// Calls the callable of a task in Python.
static CALL: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
/// Threads that run callables, or are about to.
static RUNNING: AtomicUsize = AtomicUsize::new(0);
/// Whether no callable begins any more.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Lets no callable begin any more, and returns how many threads still run one.
#[pyfunction]
pub(crate) fn end_callables() -> usize {
    IS_ENDING.store(true, Ordering::SeqCst);
    RUNNING.load(Ordering::SeqCst)
}

/// Drops what may wait for threads that need the interpreter.
fn drop_detached<T: Send>(value: T) {
    let mut value = Some(value);
    // Without an interpreter there is none to wait for.
    let _ = Python::try_attach(|py| py.detach(|| drop(value.take())));
}

/// The whole array, in bytes of the address space, that `object` is a view of.
fn span_of_root(object: &Bound<'_, PyAny>) -> PyResult<(u64, u64)> {
    let py = object.py();
    let root = py.import("syncline._tasks")?.getattr("root")?.call1((object,))?;
    if let Ok((start, bytes)) = root.extract::<(u64, u64)>() {
        return Ok((start, start + bytes));
    }
    let tensor = Tensor::new(&root)?;
    let span = tensor.view().and_then(|view| view.span());
    Ok(span.unwrap_or_default())
}

/// Spans of memory that tasks touch, none of which overlap.
struct Spans<T>(Vec<(u64, u64, T)>);

impl<T> Spans<T> {
    /// The position of the span with `start..end` in it, which is made where there is none.
    fn position(
        &mut self,
        (start, end): (u64, u64),
        make: impl FnOnce() -> PyResult<T>,
    ) -> PyResult<usize> {
        let meets = |(low, high, _): &(u64, u64, T)| *low < end && start < *high;
        if let Some(at) = self.0.iter().position(meets) {
            let (low, high, _) = self.0[at];
            if low <= start && end <= high {
                return Ok(at);
            }
            return Err(refused(
                "the array overlaps another one in part: pass views of one array that has both",
            ));
        }
        self.0.push((start, end, make()?));
        Ok(self.0.len() - 1)
    }
}

/// One argument of a task: its tensor, its access, and how it lies in its span.
struct Found {
    at: usize,
    access: Access,
    view: View,
    /// Keeps the memory where it is.
    tensor: Tensor,
}

/// `(access, object)`, as `Scope.read` and its like make them.
type Given<'py> = (String, Bound<'py, PyAny>);

fn find<T>(
    spans: &mut Spans<T>,
    (access, object): &Given<'_>,
    make: impl FnOnce((u64, u64)) -> PyResult<T>,
) -> PyResult<Found> {
    let access = access_of(access)?;
    let tensor = Tensor::new(object)?;
    if access != Access::Input {
        tensor.check_writable()?;
    }
    let own = tensor.view().filter(|view| !view.is_empty());
    let own = own.ok_or_else(|| refused("the array is empty: leave it out"))?;
    if !own.offset().is_multiple_of(own.dtype().bytes()) {
        return Err(refused("the array's elements are not aligned: pass a copy"));
    }
    let mut span = span_of_root(object)?;
    let (low, high) = own.span().unwrap_or_default();
    span = (span.0.min(low), span.1.max(high));
    let at = spans.position(span, || make(span))?;
    let start = spans.0[at].0;
    let view = View::strided(own.dtype(), own.offset() - start, own.shape(), own.strides());
    Ok(Found { at, access, view: view.or_program()?, tensor })
}

/// Runs tasks on arrays.
#[pyclass(name = "Executor", module = "syncline._native", frozen, subclass)]
pub(crate) struct PyExecutor {
    devices: Vec<DeviceSpec>,
    stream: Mutex<Option<Arc<Stream>>>,
    process: u32,
}

#[pymethods]
impl PyExecutor {
    #[new]
    fn new(devices: &Bound<'_, PyAny>) -> PyResult<Self> {
        let devices = devices_of(devices)?;
        Ok(Self { devices, stream: Mutex::default(), process: std::process::id() })
    }

    /// Opens a scope.
    fn open(&self, name: &str) -> PyResult<PyScope> {
        if self.process != std::process::id() {
            return Err(refused(
                "this process is a fork of the one that made the executor: make one here",
            ));
        }
        if self.devices != [DeviceSpec::CPU] {
            return Err(refused(
                "scopes run on the CPU: use record() and compile() for other devices",
            ));
        }
        let mut stream = lock(&self.stream);
        if stream.is_none() {
            *stream = Some(Arc::new(Stream::new(StreamOptions::default()).or_program()?));
        }
        let stream = stream.clone().ok_or("no stream").or_program()?;
        let cancel = CancelToken::new();
        let options = ScopeOptions::default().with_cancel(&cancel);
        let scope = stream.scope_with(name, options);
        // SAFETY: `PyScope` holds the stream, and drops the scope first.
        let scope = unsafe { std::mem::transmute::<Scope<'_>, Scope<'static>>(scope) };
        Ok(PyScope {
            work: Mutex::new(Some(Work {
                scope: Arc::new(scope),
                spans: Spans(Vec::new()),
                owners: Vec::new(),
            })),
            stream,
            raised: Raised::default(),
            cancel,
            process: self.process,
        })
    }

    /// The devices by name.
    #[getter]
    fn devices(&self) -> Vec<String> {
        self.devices.iter().map(DeviceSpec::to_string).collect()
    }
}

impl Drop for PyExecutor {
    fn drop(&mut self) {
        let stream = lock(&self.stream).take();
        match self.process == std::process::id() {
            true => drop_detached(stream),
            // Its threads are in the process that was forked.
            false => std::mem::forget(stream),
        }
    }
}

/// What a scope holds until it ends.
struct Work {
    scope: Arc<Scope<'static>>,
    spans: Spans<Buffer>,
    /// Keep the memory of arguments where it is.
    owners: Vec<Tensor>,
}

/// Tasks that are awaited together.
#[pyclass(name = "Scope", module = "syncline._native", frozen)]
pub(crate) struct PyScope {
    work: Mutex<Option<Work>>,
    stream: Arc<Stream>,
    raised: Raised,
    cancel: CancelToken,
    process: u32,
}

#[pymethods]
impl PyScope {
    /// Submits a task: a kernel by name, or a callable with the views that it gets.
    #[pyo3(signature = (body, args, views, scalars, name, priority))]
    #[expect(clippy::too_many_arguments, reason = "`Scope.task` has them as keywords")]
    fn submit(
        &self,
        py: Python<'_>,
        body: &Bound<'_, PyAny>,
        args: Vec<Given<'_>>,
        views: Option<Py<PyTuple>>,
        scalars: Option<&Bound<'_, PyDict>>,
        name: String,
        priority: i32,
    ) -> PyResult<()> {
        // Python may switch threads while this is held, to one that waits for it.
        let held = self.work.lock_py_attached(py);
        let mut held = held.unwrap_or_else(PoisonError::into_inner);
        let work = held.as_mut().ok_or_else(|| refused("the scope has ended"))?;
        let mut task = Task::new(name).priority(priority);
        let mut described = Vec::new();
        for given in &args {
            let lend = |(start, end): (u64, u64)| {
                let base = NonNull::new(start as *mut u8).ok_or("no memory").or_program()?;
                // SAFETY: the owner is kept until all tasks of the scope have ended, and the spans
                // of a scope do not overlap. Callers are told to leave the arrays alone until then.
                unsafe { self.stream.lend(base, end - start) }.or_program()
            };
            let found = find(&mut work.spans, given, lend)?;
            let (start, _, buffer) = &work.spans.0[found.at];
            described.push(Arg::new(found.access, BufferId(*start), found.view));
            task = task.arg(found.access, buffer, found.view);
            work.owners.push(found.tensor);
        }
        task = match views {
            None => {
                let (kernel, scalars) = kernel_of(&body.extract::<String>()?, scalars, &described)?;
                task.kernel(&kernel, &scalars)
            }
            Some(views) => {
                let (body, raised) = (body.clone().unbind(), self.raised.clone());
                task.body(move |_| call_body(&body, &views, &raised))
            }
        };
        let scope = work.scope.clone();
        // The ring may be full: this thread then runs tasks, which need the interpreter and may
        // submit to this scope.
        drop(held);
        let submitted = py.detach(|| contained(|| scope.submit(task).map(drop)))?;
        submitted.or_program()
    }

    /// Waits until all tasks have ended, and raises the first error among them.
    fn finish(&self, py: Python<'_>, cancel: bool) -> PyResult<()> {
        let held = self.work.lock_py_attached(py);
        let mut held = held.unwrap_or_else(PoisonError::into_inner);
        let Some(work) = held.take() else { return Ok(()) };
        if self.process != std::process::id() {
            std::mem::forget(work);
            return Err(refused("this process is a fork of the one that opened the scope"));
        }
        let Work { scope, spans, owners } = work;
        let scope = match Arc::try_unwrap(scope) {
            Ok(scope) => scope,
            Err(scope) => {
                *held = Some(Work { scope, spans, owners });
                return Err(refused("another thread submits to the scope while it ends"));
            }
        };
        drop(held);
        if cancel {
            self.cancel.cancel();
        }
        let finished = call(py, &|| self.cancel.cancel(), None, &Meter::default(), || {
            let finished = scope.finish();
            // What was running when it was cancelled goes on, and uses the arrays.
            let waited = match self.cancel.is_cancelled() {
                true => self.stream.wait_all(),
                false => Ok(()),
            };
            (has_ended(&finished) && has_ended(&waited), finished)
        });
        let (ended, finished) = match finished {
            Ok((ended, finished)) => (ended, Ok(finished)),
            Err(error) => (self.stream_is_quiet(py), Err(error)),
        };
        keep_or_drop(py, ended, spans, owners);
        let raised = lock(&self.raised).take();
        match (finished, raised) {
            (Err(error), _) | (Ok(_), Some(error)) => Err(error),
            (Ok(_), None) if cancel => Ok(()),
            (Ok(finished), None) => finished.or_program(),
        }
    }
}

impl Drop for PyScope {
    fn drop(&mut self) {
        let work = lock(&self.work).take();
        if self.process != std::process::id() {
            // The stream's threads are in the process that was forked: this handle is never the
            // last one here.
            return std::mem::forget((work, self.stream.clone()));
        }
        let Some(work) = work else { return };
        // Dropped without its end: nothing may use the arrays any more.
        self.cancel.cancel();
        let Work { scope, spans, owners } = work;
        let Some(()) = Python::try_attach(|py| {
            py.detach(|| drop(scope));
            let ended = self.stream_is_quiet(py);
            keep_or_drop(py, ended, spans, owners);
        }) else {
            return;
        };
    }
}

impl PyScope {
    /// Waits for everything in the stream. Returns `false` if tasks may still run.
    fn stream_is_quiet(&self, py: Python<'_>) -> bool {
        has_ended(&py.detach(|| self.stream.wait_all()))
    }
}

/// Returns `false` where a wait was refused, so that the awaited tasks may still run.
fn has_ended(waited: &Result<(), StreamError>) -> bool {
    !matches!(waited, Err(StreamError::InsideTask { .. } | StreamError::WaitsInCircle { .. }))
}

/// Drops what tasks used. Where tasks may still use it, it is kept for ever: a leak instead of
/// freed memory under a running task.
fn keep_or_drop(py: Python<'_>, ended: bool, spans: Spans<Buffer>, owners: Vec<Tensor>) {
    if !ended {
        return std::mem::forget((spans, owners));
    }
    py.detach(|| drop(spans));
    drop(owners);
}

/// Memory of an array, as a buffer's.
#[derive(Debug)]
struct Lent {
    start: NonNull<u8>,
    bytes: u64,
}

// SAFETY: an address and a size; the bytes are the tasks' alone while a run has them.
unsafe impl Send for Lent {}
// SAFETY: as above.
unsafe impl Sync for Lent {}

// SAFETY: the array has so many bytes there, and its owner is kept while a run has the buffer.
unsafe impl Memory for Lent {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn host_pointer(&self) -> Option<NonNull<u8>> {
        Some(self.start)
    }

    unsafe fn read(&self, offset: u64, target: &mut [u8]) -> Result<(), DeviceError> {
        // SAFETY: the caller vouches for the range and that nothing writes it.
        unsafe {
            let source = self.start.as_ptr().add(offset as usize);
            std::ptr::copy_nonoverlapping(source, target.as_mut_ptr(), target.len());
        }
        Ok(())
    }

    unsafe fn write(&self, offset: u64, source: &[u8]) -> Result<(), DeviceError> {
        // SAFETY: the caller vouches for the range and that nothing touches it.
        unsafe {
            let target = self.start.as_ptr().add(offset as usize);
            std::ptr::copy_nonoverlapping(source.as_ptr(), target, source.len());
        }
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Hands out the memory of one array.
#[derive(Debug)]
struct Lender(Lent);

// SAFETY: lanes of the CPU reach all memory of the process, and a buffer of this allocator has as
// many bytes as the array.
unsafe impl Allocator for Lender {
    fn device(&self) -> DeviceSpec {
        DeviceSpec::CPU
    }

    fn allocate(&self, _: u64) -> Result<Box<dyn Memory>, DeviceError> {
        Ok(Box::new(Lent { start: self.0.start, bytes: self.0.bytes }))
    }

    fn memory_use(&self) -> MemoryUse {
        MemoryUse::default()
    }
}

/// What a recorded task runs.
enum Body {
    Kernel(Kernel, Vec<Scalar>),
    Callable(Py<PyAny>),
}

/// A recording.
#[pyclass(name = "Graph", module = "syncline._native", frozen)]
pub(crate) struct PyGraph {
    state: Mutex<Recording>,
}

struct Recording {
    graph: TaskGraph,
    names: HashMap<String, Named>,
    bodies: Vec<Body>,
}

/// A buffer of a recording, which an array is given for.
#[derive(Clone, Copy)]
struct Named {
    id: BufferId,
    bytes: u64,
    /// Whether a task writes it.
    is_written: bool,
}

/// `(access, buffer, dtype, offset, shape, strides)` of an argument of a recorded task.
type Recorded = (String, String, String, u64, Vec<u64>, Vec<i64>);

#[pymethods]
impl PyGraph {
    #[new]
    fn new() -> Self {
        let recording =
            Recording { graph: TaskGraph::new(), names: HashMap::new(), bodies: Vec::new() };
        Self { state: Mutex::new(recording) }
    }

    fn buffer(&self, name: String, bytes: u64) -> PyResult<()> {
        let mut state = free(&self.state)?;
        if state.names.contains_key(&name) {
            return Err(refused(format!("there is a buffer `{name}` already")));
        }
        let id = state.graph.add_buffer(BufferSpec::external(&name, bytes)).or_program()?;
        state.names.insert(name, Named { id, bytes, is_written: false });
        Ok(())
    }

    #[pyo3(signature = (body, args, scalars, name, priority, device))]
    fn task(
        &self,
        body: &Bound<'_, PyAny>,
        args: Vec<Recorded>,
        scalars: Option<&Bound<'_, PyDict>>,
        name: &str,
        priority: i32,
        device: Option<&str>,
    ) -> PyResult<()> {
        let mut state = free(&self.state)?;
        let mut described = Vec::new();
        for (access, buffer, dtype, offset, shape, strides) in args {
            let dtype: Dtype = dtype.parse().or_program()?;
            let view = View::strided(dtype, offset, &shape, &strides).or_program()?;
            let access = access_of(&access)?;
            let known = state.names.get_mut(&buffer);
            let known = known.ok_or_else(|| refused(format!("there is no buffer `{buffer}`")))?;
            known.is_written |= access != Access::Input;
            described.push(Arg::new(access, known.id, view));
        }
        let body = match body.extract::<String>() {
            Ok(kernel) => {
                let (kernel, scalars) = kernel_of(&kernel, scalars, &described)?;
                Body::Kernel(kernel, scalars)
            }
            Err(_) => Body::Callable(body.clone().unbind()),
        };
        let mut spec = TaskSpec::new(name, &described).priority(priority);
        // Callables run where the interpreter is.
        let device = match &body {
            Body::Callable(_) => Some("cpu:0"),
            Body::Kernel(..) => device,
        };
        if let Some(device) = device {
            spec = spec.on(device);
        }
        state.graph.submit(&spec).or_program()?;
        state.bodies.push(body);
        Ok(())
    }

    /// Compiles the recording for the executor's devices.
    fn compile(&self, py: Python<'_>, executor: &Bound<'_, PyExecutor>) -> PyResult<PyCompiled> {
        let state = free(&self.state)?;
        let raised = Raised::default();
        let views: Views = Views::default();
        let devices = executor.get().devices.clone();
        // Bodies are shared: compiling again gives another plan.
        let bodies: Vec<_> = state
            .bodies
            .iter()
            .enumerate()
            .map(|(at, body)| match body {
                Body::Kernel(kernel, scalars) => Ok((kernel.clone(), scalars.clone())),
                Body::Callable(body) => Err((at, body.clone_ref(py))),
            })
            .collect();
        let (shown, seen) = (raised.clone(), views.clone());
        let loaded = py.detach(|| {
            contained(|| {
                let registry = syncline::registry();
                let mut executor = UnifiedExecutor::new();
                // Arrays are in memory of the host.
                let all = std::iter::once(DeviceSpec::CPU).chain(devices);
                for device in all {
                    if executor.context(device).is_err() {
                        executor.add_device(registry.open(device).or_program()?).or_program()?;
                    }
                }
                let machine = executor.machine().or_program()?;
                let options = CompileOptions::default();
                let plan = ExecutionPlan::compile(&state.graph, &machine, &options).or_program()?;
                let mut bodies: Vec<_> = bodies.into_iter().map(Some).collect();
                let body = |task: syncline::plan::TaskInfo<'_>, _: DeviceSpec| match bodies
                    [task.index().index()]
                .take()?
                {
                    Ok((kernel, scalars)) => Some(TaskBody::kernel(&kernel, scalars)),
                    Err((at, body)) => {
                        let (shown, seen) = (shown.clone(), seen.clone());
                        Some(TaskBody::new(move |_| {
                            let held = lock(&seen).get(&at).cloned();
                            let views = held.ok_or("the run has ended")?;
                            call_body(&body, &views, &shown)
                        }))
                    }
                };
                executor.load_plan(Arc::new(plan), body).or_program()
            })
        });
        let names = state.names.clone();
        let process = std::process::id();
        let loaded = Mutex::new(Some(loaded??));
        Ok(PyCompiled { loaded, views, raised, names, process })
    }
}

/// What the callables of a run get, by task.
type Views = Arc<Mutex<HashMap<usize, Arc<Py<PyTuple>>>>>;

/// A plan that can be run again and again.
#[pyclass(name = "CompiledPlan", module = "syncline._native", frozen)]
pub(crate) struct PyCompiled {
    loaded: Mutex<Option<LoadedPlan>>,
    views: Views,
    raised: Raised,
    names: HashMap<String, Named>,
    process: u32,
}

#[pymethods]
impl PyCompiled {
    /// Runs the plan on these arrays; `views` are what the callables get, by task.
    fn run(
        &self,
        py: Python<'_>,
        arrays: HashMap<String, Bound<'_, PyAny>>,
        views: HashMap<usize, Py<PyTuple>>,
    ) -> PyResult<()> {
        if self.process != std::process::id() {
            return Err(refused("this process is a fork of the one that compiled the plan"));
        }
        let mut tensors = Vec::new();
        for (name, Named { bytes, is_written, .. }) in &self.names {
            let array = arrays.get(name);
            let array = array.ok_or_else(|| refused(format!("no array for `{name}`")))?;
            let tensor = Tensor::new(array)?;
            if !tensor.is_contiguous() || tensor.bytes() as u64 != *bytes {
                let given = tensor.bytes();
                return Err(refused(format!(
                    "`{name}` takes {bytes} bytes that lie one after the other, got {given}"
                )));
            }
            if *is_written {
                tensor.check_writable()?;
            }
            tensors.push((name, tensor, *is_written));
        }
        let all: Vec<_> = tensors.iter().map(|(_, tensor, writes)| (tensor, *writes)).collect();
        if let Some((one, two)) = crate::tensor::overlap(&all) {
            let (one, two) = (tensors[one].0, tensors[two].0);
            return Err(refused(format!("the arrays for `{one}` and `{two}` share memory")));
        }
        let mut bindings = Bindings::new();
        for (name, tensor, _) in &tensors {
            // SAFETY: only its address is taken.
            let start = NonNull::from(unsafe { tensor.slice() }).cast();
            let bytes = tensor.bytes() as u64;
            let buffer = Buffer::new(Arc::new(Lender(Lent { start, bytes })), bytes);
            bindings = bindings.bind(name, &buffer);
        }
        let views = views.into_iter().map(|(at, views)| (at, Arc::new(views))).collect();
        let cancel = CancelToken::new();
        let ran = call(py, &|| cancel.cancel(), None, &Meter::default(), || {
            let mut loaded = free(&self.loaded)?;
            *lock(&self.views) = views;
            let plan = loaded.as_mut().ok_or("the plan has gone").or_program();
            let ran = plan.and_then(|plan| {
                plan.set_cancel(&cancel);
                plan.run(&bindings).or_program()
            });
            // Taken while the plan is held: another caller's run has views and errors of its own.
            let held = std::mem::take(&mut *lock(&self.views));
            Ok::<_, PyErr>((ran, held, lock(&self.raised).take()))
        });
        let (ran, _held, raised) = ran??;
        match raised {
            Some(error) => Err(error),
            None => ran,
        }
    }
}

impl Drop for PyCompiled {
    fn drop(&mut self) {
        let loaded = lock(&self.loaded).take();
        match self.process == std::process::id() {
            true => drop_detached(loaded),
            // Its lanes are in the process that was forked.
            false => std::mem::forget(loaded),
        }
    }
}
