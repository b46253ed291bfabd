//! Recording: the same tasks, compiled into a plan that runs again and again, on all devices.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use syncline_device::{
    Backend, Buffer, Deadline, DeviceSpec, Element, Kernel, Loans, Scalar, lending,
};
use syncline_plan::{BufferSpec, CompileOptions, DeviceChoice, ExecutionPlan, TaskGraph, TaskSpec};
use syncline_runtime::UnifiedExecutor;
use syncline_runtime::replay::{Bindings, LoadedPlan, TaskBody};
use syncline_tensor::{Arg, BufferId, TaskId, View};

use crate::access::{Arguments, Closed, Open};
use crate::submit::{BodyOutcome, Described, Submit, call};
use crate::{Error, ErrorKind, Result, Tensor};

/// Records tasks for an executor's devices; see [`RecordTasks::record`].
pub struct Recorder<'e> {
    executor: &'e UnifiedExecutor,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    graph: TaskGraph,
    /// The graph's name of each buffer.
    ids: HashMap<BufferId, BufferId>,
    inputs: Vec<Input>,
    /// Buffers with memory that tasks use: they are bound in every run.
    captured: Vec<(String, Buffer)>,
    bodies: Vec<Option<TaskBody>>,
}

/// A tensor that every run of a plan binds anew.
#[derive(Clone, Debug)]
struct Input {
    name: String,
    view: View,
}

impl<'e> Recorder<'e> {
    /// A tensor that is bound in each run under `name`. It has no memory of its own.
    ///
    /// # Errors
    /// The name is taken.
    pub fn input<T: Element>(&self, name: &str, shape: impl AsRef<[usize]>) -> Result<Tensor<T>> {
        let mut state = self.state.borrow_mut();
        if state.inputs.iter().any(|input| input.name == name) {
            let message = format!("an input `{name}` was declared before");
            return Err(Error::new(ErrorKind::Plan, message));
        }
        let tensor = placeholder::<T>(shape.as_ref())?;
        let home = self.host();
        let spec = BufferSpec::external(name, tensor.view().bytes()).on(&home);
        let id = state.graph.add_buffer(spec)?;
        state.ids.insert(tensor.buffer().id(), id);
        state.inputs.push(Input { name: name.to_owned(), view: *tensor.view() });
        Ok(tensor)
    }

    /// Compiles what was recorded for the executor's devices.
    ///
    /// # Errors
    /// A task could run nowhere, or a plan would not fit the devices.
    pub fn compile(self) -> Result<Plan> {
        self.compile_with(&CompileOptions::default())
    }

    /// As [`Recorder::compile`], with options.
    ///
    /// # Errors
    /// As [`Recorder::compile`].
    pub fn compile_with(self, options: &CompileOptions) -> Result<Plan> {
        let State { graph, inputs, captured, mut bodies, .. } = self.state.into_inner();
        let plan = ExecutionPlan::compile(&graph, &self.executor.machine()?, options)?;
        let body = |task: syncline_plan::TaskInfo<'_>, _| bodies[task.index().index()].take();
        let loaded = Mutex::new(self.executor.load_plan(Arc::new(plan), body)?);
        Ok(Plan { loaded, inputs, captured })
    }

    fn devices(&self) -> impl Iterator<Item = DeviceSpec> + use<'_, 'e> {
        self.executor.contexts().iter().map(|context| context.spec())
    }

    /// Where memory of the caller lies.
    fn host(&self) -> String {
        let host = self.devices().find(|device| device.backend == Backend::Cpu);
        host.or_else(|| self.devices().next()).unwrap_or(DeviceSpec::CPU).to_string()
    }

    /// The devices that a task may run on: of the devices asked for, each that `has_body` accepts.
    fn places<H>(
        &self,
        described: &Described<'_, H>,
        why: &str,
        has_body: impl Fn(DeviceSpec) -> bool,
    ) -> Result<Vec<String>> {
        let asked = &described.devices;
        let wanted = |device: DeviceSpec| {
            let name = device.to_string();
            // `cpu` is short for any CPU, `vulkan` for any Vulkan device.
            asked.is_empty()
                || asked.iter().any(|one| *one == name || *one == device.backend.name())
        };
        let able = self.devices().filter(|&device| wanted(device) && has_body(device));
        let able: Vec<String> = able.map(|device| device.to_string()).collect();
        if able.is_empty() {
            let all: Vec<String> = self.devices().map(|device| device.to_string()).collect();
            let asked = if asked.is_empty() { "any device" } else { &asked.join(" or ") };
            let message = format!(
                "task `{}` cannot run on {asked}: {why}; the executor has {}",
                described.name,
                if all.is_empty() { "no device".to_owned() } else { all.join(", ") }
            );
            return Err(Error::new(ErrorKind::Device, message));
        }
        Ok(able)
    }

    fn args<A: Arguments>(&self, arguments: &A) -> Result<Vec<Arg>> {
        let state = &mut *self.state.borrow_mut();
        arguments.fold(Ok(Vec::new()), &mut |args: Result<Vec<Arg>>, access, buffer, view| {
            let mut args = args?;
            args.push(Arg::new(access, state.id_of(buffer)?, *view));
            Ok(args)
        })
    }

    fn add(
        &self,
        described: &Described<'_, TaskId>,
        args: &[Arg],
        devices: &[String],
        body: TaskBody,
    ) -> Result<TaskId> {
        let devices: Vec<&str> = devices.iter().map(String::as_str).collect();
        let device = match &devices[..] {
            [one] => DeviceChoice::On(one),
            several => DeviceChoice::OneOf(several),
        };
        let spec = TaskSpec::new(&described.name, args)
            .deps(&described.after)
            .priority(described.priority)
            .cost_ns(described.cost_ns.unwrap_or(TaskSpec::COST_NS));
        let state = &mut *self.state.borrow_mut();
        let task = state.graph.submit(&TaskSpec { device, ..spec })?;
        state.bodies.push(Some(body));
        Ok(task)
    }
}

impl State {
    /// The graph's name of a buffer. One that the recording does not know has memory: it is bound
    /// in every run.
    fn id_of(&mut self, buffer: &Buffer) -> Result<BufferId> {
        if let Some(id) = self.ids.get(&buffer.id()) {
            return Ok(*id);
        }
        if buffer.is_placeholder() {
            let message = "a tensor of another recording has no memory: bind it, or declare an \
                           input of the same shape here";
            return Err(Error::new(ErrorKind::Usage, message));
        }
        let (name, home) = (format!("captured {}", buffer.id()), buffer.device().to_string());
        let id = self.graph.add_buffer(BufferSpec::external(&name, buffer.bytes()).on(&home))?;
        self.ids.insert(buffer.id(), id);
        self.captured.push((name, buffer.clone()));
        Ok(id)
    }
}

/// A tensor without memory, known to a recording.
fn placeholder<T: Element>(shape: &[usize]) -> Result<Tensor<T>> {
    let shape: Vec<u64> = shape.iter().map(|&size| size as u64).collect();
    let view = View::contiguous(T::DTYPE, &shape)?;
    Tensor::from_parts(&Buffer::placeholder(view.bytes()), view)
}

impl fmt::Debug for Recorder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recorder({:?})", self.state.borrow().graph)
    }
}

impl Closed for Recorder<'_> {}

impl Submit for Recorder<'_> {
    type Handle = TaskId;

    fn empty<T: Element>(&self, shape: impl AsRef<[usize]>) -> Result<Tensor<T>> {
        let tensor = placeholder::<T>(shape.as_ref())?;
        let bytes = tensor.view().bytes();
        let state = &mut *self.state.borrow_mut();
        let name = format!("temporary {}", tensor.buffer().id());
        let id = state.graph.add_buffer(BufferSpec::temporary(&name, bytes))?;
        state.ids.insert(tensor.buffer().id(), id);
        Ok(tensor)
    }

    fn submit_body<A: Arguments, F, O: BodyOutcome + 'static>(
        &self,
        described: Described<'_, TaskId>,
        arguments: &A,
        body: F,
    ) -> Result<TaskId>
    where
        F: for<'a> Fn(<A::Kinds as Open>::Refs<'a>) -> O + Send + Sync + 'static,
    {
        let is_cpu = |device: DeviceSpec| device.backend == Backend::Cpu;
        let why = "its body is a closure, which runs on a CPU only (`TaskBuilder::kernel` takes \
                   kernels for other devices)";
        let devices = self.places(&described, why, is_cpu)?;
        let args = self.args(arguments)?;
        let body = TaskBody::new(move |args| call::<A::Kinds, O>(&args.open(), &body));
        self.add(&described, &args, &devices, body)
    }

    fn submit_kernel<A: Arguments>(
        &self,
        described: Described<'_, TaskId>,
        arguments: &A,
        kernel: &Kernel,
        scalars: &[Scalar],
    ) -> Result<TaskId> {
        let args = self.args(arguments)?;
        let views: Vec<View> = args.iter().map(|arg| arg.view).collect();
        let has_body = |device: DeviceSpec| match device.backend {
            Backend::Cpu => kernel.supports(Backend::Cpu),
            backend => kernel.source(backend, &views).is_ok(),
        };
        let why = format!("kernel `{}` has no body for such arguments there", kernel.name());
        let devices = self.places(&described, &why, has_body)?;
        for device in &devices {
            let backend = device.parse::<DeviceSpec>().map_or(Backend::Cpu, |spec| spec.backend);
            kernel.check(backend, &args, scalars, 1)?;
        }
        self.add(&described, &args, &devices, TaskBody::kernel(kernel, scalars))
    }
}

/// What an executor does with recorded tasks.
pub trait RecordTasks {
    /// Records the tasks that `submit` submits. [`Recorder::compile`] makes a plan of them, for
    /// this executor's devices.
    ///
    /// ```
    /// use syncline_device::cpu::CpuDevice;
    /// use syncline_front::{RecordTasks, Result, Submit, Tensor, bind};
    /// use syncline_runtime::UnifiedExecutor;
    ///
    /// fn scale(to: &impl Submit, x: &Tensor<f32>) -> Result<()> {
    ///     to.task("scale", x.update()).run(|mut x| x.apply(|x| 10.0 * x))?;
    ///     Ok(())
    /// }
    ///
    /// let mut executor = UnifiedExecutor::new();
    /// executor.add_device(CpuDevice::open_default()?)?;
    /// let plan = executor.record(|g| scale(g, &g.input("X", [2])?))?.compile()?;
    /// let mut batch = [[1.0f32, 2.0], [3.0, 4.0]];
    /// for x in &mut batch {
    ///     plan.run(bind! { X: &mut x[..] })?;
    /// }
    /// assert_eq!(batch, [[10.0, 20.0], [30.0, 40.0]]);
    /// # Ok::<(), syncline_front::Error>(())
    /// ```
    ///
    /// # Errors
    /// What `submit` returned.
    fn record(&self, submit: impl FnOnce(&Recorder<'_>) -> Result<()>) -> Result<Recorder<'_>>;
}

impl RecordTasks for UnifiedExecutor {
    fn record(&self, submit: impl FnOnce(&Recorder<'_>) -> Result<()>) -> Result<Recorder<'_>> {
        let recorder = Recorder { executor: self, state: RefCell::default() };
        submit(&recorder)?;
        Ok(recorder)
    }
}

/// Recorded tasks, compiled and loaded: ready to run on other tensors each time.
#[derive(Debug)]
pub struct Plan {
    loaded: Mutex<LoadedPlan>,
    inputs: Vec<Input>,
    captured: Vec<(String, Buffer)>,
}

impl Plan {
    /// Runs the plan once on the tensors or slices in `bound` ([`bind!`](crate::bind)), and returns
    /// when all of it is done. Two runs from several threads come one after the other.
    ///
    /// # Errors
    /// An input is not bound, or to something else than its shape and type; or a task failed.
    pub fn run(&self, bound: Bound<'_>) -> Result<()> {
        self.run_until(bound, Deadline::NEVER)
    }

    /// As [`Plan::run`]; no body begins after `deadline`.
    ///
    /// # Errors
    /// As [`Plan::run`], and a deadline that passed.
    pub fn run_until(&self, bound: Bound<'_>, deadline: impl Into<Deadline>) -> Result<()> {
        let deadline = deadline.into();
        lending(|loans| {
            let mut bindings = Bindings::new();
            for (name, buffer) in &self.captured {
                bindings = bindings.bind(name, buffer);
            }
            for (name, value) in bound.0 {
                let input = self.inputs.iter().find(|input| input.name == name);
                let Some(input) = input else {
                    let known: Vec<&str> =
                        self.inputs.iter().map(|input| input.name.as_str()).collect();
                    let message =
                        format!("the plan has no input `{name}`; it has: {}", known.join(", "));
                    return Err(Error::new(ErrorKind::Plan, message));
                };
                let buffer = value.lend(loans, &input.view).map_err(|error| {
                    Error::new(error.kind(), format!("input `{name}`: {error}"))
                })?;
                bindings = bindings.bind(&name, &buffer);
            }
            // A run that panicked has ended: bodies are called behind a guard.
            let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(loaded.run_until(&bindings, deadline)?)
        })
    }

    /// The compiled plan: prints as text, DOT and JSON.
    pub fn plan(&self) -> Arc<ExecutionPlan> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner).plan().clone()
    }
}

/// What a run of a plan works on: made by [`bind!`](crate::bind).
#[derive(Default)]
pub struct Bound<'b>(Vec<(String, Box<dyn Value<'b> + 'b>)>);

impl fmt::Debug for Bound<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

impl<'b> Bound<'b> {
    /// Nothing bound yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, with `value` for the input called `name`.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Bind<'b>) -> Self {
        self.0.push((name.to_owned(), value.into_value()));
        self
    }
}

/// What can be bound to an input of a plan: a tensor, or a slice or vector that is used in place.
pub trait Bind<'b>: Closed {
    /// The same without its type.
    #[doc(hidden)]
    fn into_value(self) -> Box<dyn Value<'b> + 'b>;
}

/// Something to be bound, for a view of its first bytes.
#[doc(hidden)]
pub trait Value<'b> {
    /// A buffer over it, for the time of a run.
    fn lend(self: Box<Self>, loans: &Loans<'b>, wanted: &View) -> Result<Buffer>;
}

fn mismatch(given: &View, wanted: &View) -> Error {
    let text = |view: &View| format!("{} {:?}", view.dtype(), view.shape());
    let message = format!("it is {}, and {} was given", text(wanted), text(given));
    Error::new(ErrorKind::Shape, message)
}

impl<T> Closed for &Tensor<T> {}

impl<'b, T: Element> Bind<'b> for &'b Tensor<T> {
    fn into_value(self) -> Box<dyn Value<'b> + 'b> {
        Box::new(self)
    }
}

impl<'b, T: Element> Value<'b> for &'b Tensor<T> {
    fn lend(self: Box<Self>, _: &Loans<'b>, wanted: &View) -> Result<Buffer> {
        let view = self.view();
        if (view.dtype(), view.shape()) != (wanted.dtype(), wanted.shape()) {
            return Err(mismatch(view, wanted));
        }
        if view != wanted {
            let message = "a plan takes whole tensors, without gaps: copy this one first";
            return Err(Error::new(ErrorKind::Shape, message));
        }
        Ok(self.buffer().clone())
    }
}

impl<T> Closed for &mut [T] {}
impl<T> Closed for &mut Vec<T> {}

impl<'b, T: Element> Bind<'b> for &'b mut [T] {
    fn into_value(self) -> Box<dyn Value<'b> + 'b> {
        Box::new(self)
    }
}

impl<'b, T: Element> Bind<'b> for &'b mut Vec<T> {
    fn into_value(self) -> Box<dyn Value<'b> + 'b> {
        Box::new(self.as_mut_slice())
    }
}

impl<'b, T: Element> Value<'b> for &'b mut [T] {
    fn lend(self: Box<Self>, loans: &Loans<'b>, wanted: &View) -> Result<Buffer> {
        let given = View::contiguous(T::DTYPE, &[self.len() as u64])?;
        if !T::holds(wanted.dtype()) || wanted.elements() != given.elements() {
            return Err(mismatch(&given, wanted));
        }
        Ok(loans.lend(*self)?)
    }
}

/// Names what a run of a plan works on: `bind! { A: &tensor, B: &mut vector }`.
///
/// Tensors are used where they are, slices and vectors are borrowed for the run; nothing is copied.
#[macro_export]
macro_rules! bind {
    ($($name:ident : $value:expr),* $(,)?) => {
        $crate::Bound::new()$(.with(stringify!($name), $value))*
    };
}
