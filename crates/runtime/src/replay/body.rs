//! Bodies: what a loaded task runs.

use std::fmt;

use syncline_deps::View;
use syncline_device::copy::CopyPlan;
use syncline_device::{DeviceError, Kernel, KernelArgs, KernelOutcome, RawArg, Scalar};

/// The arguments of one run of one task.
///
/// They are given by value and can be opened once: two sets of slices over the same bytes cannot be had.
#[derive(Debug)]
pub struct TaskArgs<'a> {
    raw: &'a [RawArg],
}

impl<'a> TaskArgs<'a> {
    /// # Safety
    /// As [`KernelArgs::from_raw`], for `'a`.
    #[inline]
    pub(super) unsafe fn new(raw: &'a [RawArg]) -> Self {
        Self { raw }
    }

    /// How many arguments there are.
    pub fn len(&self) -> usize {
        self.raw.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// The arguments as a kernel sees them, with no scalars. An argument that orders nothing (`NoDep`) is empty.
    #[inline]
    pub fn open(self) -> KernelArgs<'a> {
        self.open_with(&[])
    }

    /// The arguments as a kernel sees them.
    #[inline]
    pub fn open_with(self, scalars: &'a [Scalar]) -> KernelArgs<'a> {
        // SAFETY: whoever made this promised just that; `self` is gone afterwards, so it is used once.
        unsafe { KernelArgs::from_raw(self.raw, scalars) }
    }

    #[inline]
    pub(super) fn raw(&self) -> &'a [RawArg] {
        self.raw
    }
}

/// What a body said when it failed.
#[derive(Debug)]
pub(super) struct Cause(pub(super) String);

/// An error is a thin pointer, so that a body that may return one costs no more than a body that cannot.
pub(super) type Outcome = Result<(), Box<Cause>>;

/// What a task runs: any closure over its arguments.
///
/// ```
/// use syncline_runtime::replay::TaskBody;
///
/// let body = TaskBody::new(|args| {
///     let args = args.open();
///     let (source, target) = (args.slice::<f32>(0)?, args.slice_mut::<f32>(1)?);
///     target.copy_from_slice(source);
///     Ok::<(), syncline_device::DeviceError>(())
/// });
/// # drop(body);
/// ```
pub struct TaskBody(Box<dyn Fn(TaskArgs<'_>) -> Outcome + Send + Sync>);

impl TaskBody {
    /// A body that runs `body`.
    pub fn new<O: KernelOutcome>(body: impl Fn(TaskArgs<'_>) -> O + Send + Sync + 'static) -> Self {
        Self(Box::new(move |args| body(args).into_result().map_err(boxed)))
    }

    /// A body that runs `kernel`'s implementation for the CPU; `None` if it has none.
    pub fn kernel(kernel: &Kernel, scalars: impl Into<Box<[Scalar]>>) -> Option<Self> {
        kernel.cpu_function()?;
        let (kernel, scalars) = (kernel.clone(), scalars.into());
        Some(Self(Box::new(move |args| {
            let function = kernel.cpu_function().expect("looked for above; kernels never change");
            function(&mut args.open_with(&scalars)).map_err(boxed)
        })))
    }

    /// A body that copies `views` from its first argument's memory to its second's.
    pub(super) fn copy(views: &[View]) -> Result<Self, DeviceError> {
        let plans = views.iter().map(|view| CopyPlan::new(view, view));
        let plans = plans.collect::<Result<Box<[CopyPlan]>, DeviceError>>()?;
        Ok(Self(Box::new(move |args| {
            let [source, target] = args.raw() else {
                unreachable!("the loader gives a copy two arguments");
            };
            for plan in &plans {
                // SAFETY: `TaskArgs::new` promises that the source's bytes are not written and the target's not touched by
                // anybody else; the two are different memories, and the views lie inside both.
                unsafe { plan.run(source.base, target.base) };
            }
            Ok(())
        })))
    }

    #[inline(always)]
    pub(super) fn call(&self, args: TaskArgs<'_>) -> Outcome {
        (self.0)(args)
    }
}

#[cold]
fn boxed(cause: String) -> Box<Cause> {
    Box::new(Cause(cause))
}

impl fmt::Debug for TaskBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TaskBody")
    }
}
