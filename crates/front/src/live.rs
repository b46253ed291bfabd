//! Streams and scopes: tasks run while others are still being submitted.

use std::fmt;

use syncline_device::{Backend, DeviceSpec, Element, Kernel, Loans, Scalar, lending};
use syncline_runtime::UnifiedExecutor;
use syncline_runtime::stream::{Stream, StreamOptions, Task, TaskHandle};

use crate::access::{Arguments, Closed, Open};
use crate::submit::{BodyOutcome, Described, Submit, call};
use crate::{Error, ErrorKind, Result, Tensor};

impl Closed for Stream {}

/// The task without its body, its buffers at home in `stream`.
#[inline]
fn described<A: Arguments>(
    stream: &Stream,
    described: Described<'_, TaskHandle>,
    arguments: &A,
) -> Result<Task> {
    refuse_devices(&described)?;
    let mut task = Task::new(described.name);
    if described.priority != 0 {
        task = task.priority(described.priority);
    }
    for before in &described.after {
        task = task.after(before);
    }
    arguments.fold(Ok(task), &mut |task: Result<Task>, access, buffer, view| {
        stream.adopt(buffer)?;
        Ok(task?.arg(access, buffer, view))
    })
}

/// Where tasks run on the CPU only, says so for all others.
pub(crate) fn refuse_devices<H>(described: &Described<'_, H>) -> Result<()> {
    let is_cpu = |device: &str| {
        device == "cpu"
            || device.parse::<DeviceSpec>().is_ok_and(|spec| spec.backend == Backend::Cpu)
    };
    if described.devices.is_empty() || described.devices.iter().any(|device| is_cpu(device)) {
        return Ok(());
    }
    let message = format!(
        "task `{}` is to run on {}: streams, scopes and the serial runner have the CPU only; record \
         the same function as a plan (`UnifiedExecutor::record`)",
        described.name,
        described.devices.join(" or ")
    );
    Err(Error::new(ErrorKind::Device, message))
}

impl Submit for Stream {
    type Handle = TaskHandle;

    fn empty<T: Element>(&self, shape: impl AsRef<[usize]>) -> Result<Tensor<T>> {
        Tensor::zeros(shape)
    }

    #[inline]
    fn submit_body<A: Arguments, F, O: BodyOutcome + 'static>(
        &self,
        description: Described<'_, TaskHandle>,
        arguments: &A,
        body: F,
    ) -> Result<TaskHandle>
    where
        F: for<'a> Fn(<A::Kinds as Open>::Refs<'a>) -> O + Send + Sync + 'static,
    {
        let task = described(self, description, arguments)?;
        let task = task.body(move |args| call::<A::Kinds, O>(args, body));
        Ok(self.submit(task)?)
    }

    fn submit_kernel<A: Arguments>(
        &self,
        description: Described<'_, TaskHandle>,
        arguments: &A,
        kernel: &Kernel,
        scalars: &[Scalar],
    ) -> Result<TaskHandle> {
        let task = described(self, description, arguments)?;
        Ok(self.submit(task.kernel(kernel, scalars))?)
    }
}

/// A scope of an executor: tasks run while it is open, and have ended when it closes.
///
/// See [`RunTasks::scope`].
pub struct LiveScope<'l, 'env> {
    stream: Stream,
    loans: &'l Loans<'env>,
}

impl<'env> LiveScope<'_, 'env> {
    /// A tensor over a slice of the caller's, which tasks use in place until the scope ends.
    ///
    /// # Errors
    /// There are more or fewer elements than the shape says.
    pub fn borrow_mut<T: Element>(
        &self,
        elements: &'env mut [T],
        shape: impl AsRef<[usize]>,
    ) -> Result<Tensor<T>> {
        let shape = shape.as_ref();
        crate::tensor::check_count(shape, elements.len())?;
        Tensor::packed(&self.loans.lend(elements)?, shape)
    }

    /// Waits until everything submitted so far has ended.
    ///
    /// # Errors
    /// The oldest failure since the last call.
    pub fn wait_all(&self) -> Result<()> {
        Ok(self.stream.wait_all()?)
    }

    /// Waits until `task` has ended.
    ///
    /// # Errors
    /// It failed, or something that it depends on did.
    pub fn wait(&self, task: &TaskHandle) -> Result<()> {
        Ok(self.stream.wait(task)?)
    }

    /// The stream that runs the tasks.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }
}

impl fmt::Debug for LiveScope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LiveScope({:?})", self.stream)
    }
}

impl Closed for LiveScope<'_, '_> {}

impl Submit for LiveScope<'_, '_> {
    type Handle = TaskHandle;

    fn empty<T: Element>(&self, shape: impl AsRef<[usize]>) -> Result<Tensor<T>> {
        self.stream.empty(shape)
    }

    #[inline]
    fn submit_body<A: Arguments, F, O: BodyOutcome + 'static>(
        &self,
        described: Described<'_, TaskHandle>,
        arguments: &A,
        body: F,
    ) -> Result<TaskHandle>
    where
        F: for<'a> Fn(<A::Kinds as Open>::Refs<'a>) -> O + Send + Sync + 'static,
    {
        self.stream.submit_body(described, arguments, body)
    }

    fn submit_kernel<A: Arguments>(
        &self,
        described: Described<'_, TaskHandle>,
        arguments: &A,
        kernel: &Kernel,
        scalars: &[Scalar],
    ) -> Result<TaskHandle> {
        self.stream.submit_kernel(described, arguments, kernel, scalars)
    }
}

/// What an executor does with tasks of the front end.
pub trait RunTasks {
    /// Opens a scope for `submit` to submit tasks to, waits for all of them, and returns what
    /// `submit` returned, or the first failure.
    ///
    /// Tasks may use slices that were borrowed with [`LiveScope::borrow_mut`], as threads of
    /// [`std::thread::scope`] may: when this returns, also by a panic, no task uses them any more.
    ///
    /// ```
    /// use syncline_front::{RunTasks, Submit};
    /// use syncline_runtime::UnifiedExecutor;
    ///
    /// let mut matrix = vec![1.0f64; 16];
    /// UnifiedExecutor::new().scope(|s| {
    ///     let matrix = s.borrow_mut(&mut matrix, [4, 4])?;
    ///     for tile in matrix.tiles([2, 2])?.iter() {
    ///         s.task("negate", tile.update()).run(|mut tile| tile.apply(|x| -x))?;
    ///     }
    ///     Ok(())
    /// })?;
    /// assert_eq!(matrix, [-1.0; 16]);
    /// # Ok::<(), syncline_front::Error>(())
    /// ```
    ///
    /// # Errors
    /// What `submit` returned, or the oldest failure of a task.
    fn scope<'env, R>(
        &self,
        submit: impl for<'s, 'l> FnOnce(&'s LiveScope<'l, 'env>) -> Result<R>,
    ) -> Result<R> {
        self.scope_with(StreamOptions::default(), submit)
    }

    /// As [`RunTasks::scope`], within `options`.
    ///
    /// # Errors
    /// As [`RunTasks::scope`].
    fn scope_with<'env, R>(
        &self,
        options: StreamOptions,
        submit: impl for<'s, 'l> FnOnce(&'s LiveScope<'l, 'env>) -> Result<R>,
    ) -> Result<R>;
}

impl RunTasks for UnifiedExecutor {
    fn scope_with<'env, R>(
        &self,
        options: StreamOptions,
        submit: impl for<'s, 'l> FnOnce(&'s LiveScope<'l, 'env>) -> Result<R>,
    ) -> Result<R> {
        lending(|loans| {
            let scope = LiveScope { stream: Stream::new(options)?, loans };
            let submitted = submit(&scope);
            let waited = scope.wait_all();
            let value = submitted?;
            waited.map(|()| value)
        })
    }
}
