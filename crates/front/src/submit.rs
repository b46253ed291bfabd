//! What takes tasks, and how one is described.

use std::borrow::Cow;
use std::fmt;

use syncline_device::{Element, Kernel, KernelArgs, Scalar};

use crate::access::{Arguments, Closed, Open};
use crate::{OnDevices, Result, Tensor, ops};

/// What a body returns: nothing, or a result with any error.
pub trait BodyOutcome: Closed {
    /// The error as text, with its causes.
    #[doc(hidden)]
    fn into_result(self) -> Result<(), String>;
}

impl BodyOutcome for () {
    #[inline]
    fn into_result(self) -> Result<(), String> {
        Ok(())
    }
}

impl<E> Closed for std::result::Result<(), E> {}

impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> BodyOutcome for std::result::Result<(), E> {
    #[inline]
    fn into_result(self) -> Result<(), String> {
        self.map_err(|error| text_of(&*error.into()))
    }
}

/// An error and what caused it, in a line.
#[cold]
fn text_of(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = cause.source();
    }
    text
}

/// Opens a body's arguments and calls it.
#[inline]
pub(crate) fn call<K: Open, O: BodyOutcome>(
    args: &KernelArgs<'_>,
    body: impl for<'a> FnOnce(K::Refs<'a>) -> O,
) -> Result<(), String> {
    match K::open(args, 0) {
        Ok(refs) => body(refs).into_result(),
        Err(error) => Err(error.to_string()),
    }
}

/// What a task is besides its arguments and its body.
#[doc(hidden)]
pub struct Described<'t, H> {
    pub(crate) name: Cow<'static, str>,
    pub(crate) priority: i32,
    pub(crate) cost_ns: Option<u64>,
    pub(crate) devices: Vec<Cow<'t, str>>,
    pub(crate) after: Vec<H>,
}

/// What takes tasks: a stream, a scope of an executor, a recorder of plans, or the serial runner.
///
/// A function over `&impl Submit` runs in all of them with the same result:
///
/// ```
/// use syncline_front::{Result, Serial, Submit, Tensor};
///
/// fn double(to: &impl Submit, x: &Tensor<f32>) -> Result<()> {
///     to.task("double", x.update()).run(|mut x| x.apply(|x| 2.0 * x))?;
///     Ok(())
/// }
///
/// let x = Tensor::from(vec![1.0, 2.0]);
/// double(&Serial, &x)?;
/// let stream = syncline_runtime::stream::Stream::new(Default::default())?;
/// double(&stream, &x)?;
/// assert_eq!(x.to_vec()?, [4.0, 8.0]);
/// # Ok::<(), syncline_front::Error>(())
/// ```
pub trait Submit: Closed + Sized {
    /// A task that was submitted, for others to come after.
    type Handle: Clone + fmt::Debug;

    /// Describes a task on `arguments`; [`TaskBuilder::run`] or [`TaskBuilder::kernel`] submits it.
    fn task<'t, A: Arguments>(
        &'t self,
        name: impl Into<Cow<'static, str>>,
        arguments: A,
    ) -> TaskBuilder<'t, Self, A> {
        let (name, devices, after) = (name.into(), Vec::new(), Vec::new());
        let described = Described { name, priority: 0, cost_ns: None, devices, after };
        TaskBuilder { to: self, arguments, described }
    }

    /// Takes tasks for this, which run on one of `devices`, such as `vulkan:0`, unless they say
    /// otherwise.
    fn on<'t>(&'t self, devices: &'t [&'t str]) -> OnDevices<'t, Self> {
        OnDevices::new(self, devices)
    }

    /// A tensor for tasks submitted here, with unspecified contents: write it before it is read.
    /// Recorded, it lives inside the plan.
    ///
    /// # Errors
    /// There is no memory for it.
    fn empty<T: Element>(&self, shape: impl AsRef<[usize]>) -> Result<Tensor<T>>;

    /// A tensor of zeroes for tasks submitted here. Recorded, it lives inside the plan, of which
    /// every run makes it zero.
    ///
    /// # Errors
    /// There is no memory for it.
    fn zeros<T: ops::Number>(&self, shape: impl AsRef<[usize]>) -> Result<Tensor<T>> {
        let tensor = self.empty(shape)?;
        ops::fill(self, &tensor, 0.0)?;
        Ok(tensor)
    }

    /// Submits a task with a closure.
    #[doc(hidden)]
    fn submit_body<A: Arguments, F, O: BodyOutcome + 'static>(
        &self,
        described: Described<'_, Self::Handle>,
        arguments: &A,
        body: F,
    ) -> Result<Self::Handle>
    where
        F: for<'a> Fn(<A::Kinds as Open>::Refs<'a>) -> O + Send + Sync + 'static;

    /// Submits a task with a kernel.
    #[doc(hidden)]
    fn submit_kernel<A: Arguments>(
        &self,
        described: Described<'_, Self::Handle>,
        arguments: &A,
        kernel: &Kernel,
        scalars: &[Scalar],
    ) -> Result<Self::Handle>;
}

/// A task to be submitted.
#[must_use = "a task does nothing until `run` or `kernel` submits it"]
pub struct TaskBuilder<'t, S: Submit, A> {
    to: &'t S,
    arguments: A,
    described: Described<'t, S::Handle>,
}

impl<'t, S: Submit, A: Arguments> TaskBuilder<'t, S, A> {
    /// Of several tasks that are ready, the one with the highest priority begins; zero unless
    /// given.
    pub fn priority(mut self, priority: i32) -> Self {
        self.described.priority = priority;
        self
    }

    /// Comes after `task` in any case.
    pub fn after(mut self, task: &S::Handle) -> Self {
        self.described.after.push(task.clone());
        self
    }

    /// May run on `device`, such as `vulkan:0`; given several times, on one of them. Streams,
    /// scopes and the serial runner have the CPU only.
    pub fn on(mut self, device: impl Into<Cow<'t, str>>) -> Self {
        self.described.devices.push(device.into());
        self
    }

    /// Is thought to take `ns` nanoseconds, until it has been measured.
    pub fn cost_ns(mut self, ns: u64) -> Self {
        self.described.cost_ns = Some(ns);
        self
    }

    /// Submits the task with a closure, which gets a reference for each access and runs on a CPU.
    ///
    /// An error or a panic fails the task and what depends on it. A plan calls the closure in every
    /// run.
    ///
    /// # Errors
    /// The task could never run; or, with the serial runner, what the body returned.
    pub fn run<F, O>(self, body: F) -> Result<S::Handle>
    where
        F: for<'a> Fn(<A::Kinds as Open>::Refs<'a>) -> O + Send + Sync + 'static,
        O: BodyOutcome + 'static,
    {
        self.to.submit_body(self.described, &self.arguments, body)
    }

    /// Submits the task with a kernel, which runs on any device that it has a body for.
    ///
    /// # Errors
    /// The kernel refuses the arguments, or has no body for the devices.
    pub fn kernel(self, kernel: &Kernel, scalars: &[Scalar]) -> Result<S::Handle> {
        self.to.submit_kernel(self.described, &self.arguments, kernel, scalars)
    }
}

impl<S: Submit, A> fmt::Debug for TaskBuilder<'_, S, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskBuilder({})", self.described.name)
    }
}
