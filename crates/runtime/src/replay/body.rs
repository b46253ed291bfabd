//! Bodies: what a loaded task runs.

use std::fmt;

use syncline_copy::{CopyError, CopyPlan};
use syncline_device::{Backend, DeviceError, Kernel, KernelArgs, KernelOutcome, RawArg, Scalar};
use syncline_tensor::{Arg, View};

/// The arguments of one run of one task.
///
/// They are given by value and can be opened once: two sets of slices over the same bytes cannot be
/// had.
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

    /// The arguments as a kernel sees them, with no scalars. An argument that orders nothing
    /// (`NoDep`) is empty.
    #[inline]
    pub fn open(self) -> KernelArgs<'a> {
        self.open_with(&[])
    }

    /// The arguments as a kernel sees them.
    #[inline]
    pub fn open_with(self, scalars: &'a [Scalar]) -> KernelArgs<'a> {
        // SAFETY: whoever made this promised just that; `self` is gone afterwards, so it is used
        // once.
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

/// An error is a thin pointer, so that a body that may return one costs no more than a body that
/// cannot.
pub(super) type Outcome = Result<(), Box<Cause>>;

/// What a step of a CPU lane calls.
pub(super) type Call = dyn Fn(TaskArgs<'_>) -> Outcome + Send + Sync;

/// What a task runs: any closure over its arguments, or a kernel.
///
/// Closures run on CPU lanes. A kernel runs on whatever device it has an implementation for.
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
pub struct TaskBody(Kind);

enum Kind {
    Call(Box<Call>),
    Kernel(KernelBody),
}

/// A kernel with the scalars of one task.
#[derive(Clone, Debug)]
pub(super) struct KernelBody {
    pub(super) kernel: Kernel,
    pub(super) scalars: Box<[Scalar]>,
}

impl TaskBody {
    /// A body that runs `body`.
    pub fn new<O: KernelOutcome>(body: impl Fn(TaskArgs<'_>) -> O + Send + Sync + 'static) -> Self {
        Self(Kind::Call(Box::new(move |args| body(args).into_result().map_err(boxed))))
    }

    /// A body that runs `kernel` on whatever device its task was placed on; one for which it has no
    /// implementation is refused when the plan is loaded.
    pub fn kernel(kernel: &Kernel, scalars: impl Into<Box<[Scalar]>>) -> Self {
        Self(Kind::Kernel(KernelBody { kernel: kernel.clone(), scalars: scalars.into() }))
    }

    /// What a CPU lane calls with arguments like `args`.
    ///
    /// # Safety
    /// It is called with arguments that lie as `args` say, in buffers that overlap where theirs are
    /// the same.
    pub(super) unsafe fn into_call(self, args: &[Arg]) -> Result<Box<Call>, DeviceError> {
        let KernelBody { kernel, scalars } = match self.0 {
            Kind::Call(call) => return Ok(call),
            Kind::Kernel(body) => body,
        };
        kernel.check(Backend::Cpu, args, &scalars, 1)?;
        Ok(Box::new(move |args| {
            // SAFETY: just checked for arguments that lie in the same way.
            unsafe { kernel.call_checked(&mut args.open_with(&scalars)) }.map_err(boxed)
        }))
    }

    /// What a lane of a device dispatches; `None` for a closure, which only the host can call.
    pub(super) fn into_kernel(self) -> Option<KernelBody> {
        match self.0 {
            Kind::Call(_) => None,
            Kind::Kernel(body) => Some(body),
        }
    }
}

/// Copies `views` from its first argument's memory to its second's.
pub(super) fn copy_call(views: &[View]) -> Result<Box<Call>, DeviceError> {
    let plans = views.iter().map(|view| CopyPlan::new(view, view));
    let plans = plans.collect::<Result<Box<[CopyPlan]>, CopyError>>()?;
    Ok(Box::new(move |args| {
        let [source, target] = args.raw() else {
            unreachable!("the loader gives a copy two arguments");
        };
        for plan in &plans {
            // SAFETY: `TaskArgs::new` promises that the source's bytes are not written and the
            // target's not touched by anybody else; the two are different memories, and the views
            // lie inside both.
            unsafe { plan.run(source.base, target.base) };
        }
        Ok(())
    }))
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
