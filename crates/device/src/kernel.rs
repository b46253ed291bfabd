//! Kernels: what a task does, with one implementation for each backend that can run it.

mod args;
mod convention;
mod grid;
mod scalar;
mod source;
mod typed;

use std::fmt;
use std::sync::Arc;

use syncline_tensor::{Access, Arg, View};

pub use args::{KernelArgs, LateArgs, RawArg, Strided, StridedMut};
pub use convention::{ScalarType, WORDS_PER_ARGUMENT};
pub use grid::{GROUPS_ALONG_X, Grid};
pub use scalar::Scalar;
use source::Sources;
pub use source::{KernelSource, SourceRef};
pub use typed::{TensorMut, TensorRef};

use crate::{Backend, DeviceError};

/// The body of a kernel on the CPU.
pub type CpuFunction = dyn Fn(&mut KernelArgs<'_>) -> Result<(), String> + Send + Sync;

/// Refuses calls that a kernel cannot work with.
type CallCheck = dyn Fn(&[Arg], &[Scalar]) -> Result<(), String> + Send + Sync;

/// A named computation with an implementation per backend. Clones are handles of the same kernel.
///
/// ```
/// use syncline_device::{Backend, Kernel};
///
/// let double = Kernel::cpu("double", |args| -> Result<(), syncline_device::DeviceError> {
///     for x in args.slice_mut::<f32>(0)? {
///         *x *= 2.0;
///     }
///     Ok(())
/// });
/// assert!(double.supports(Backend::Cpu) && !double.supports(Backend::Vulkan));
/// ```
#[derive(Clone)]
pub struct Kernel(Arc<Inner>);

struct Inner {
    name: Arc<str>,
    cpu: Option<Box<CpuFunction>>,
    sources: Vec<(Backend, Sources)>,
    check: Option<Arc<CallCheck>>,
    /// Whether several blocks may share one call.
    by_blocks: bool,
}

/// What a kernel's closure may return: nothing, or a result whose error can be printed.
pub trait KernelOutcome {
    /// The outcome with its error as text.
    fn into_result(self) -> Result<(), String>;
}

impl KernelOutcome for () {
    fn into_result(self) -> Result<(), String> {
        Ok(())
    }
}

impl<E: fmt::Display> KernelOutcome for Result<(), E> {
    fn into_result(self) -> Result<(), String> {
        self.map_err(|error| error.to_string())
    }
}

impl Kernel {
    /// A kernel that runs on CPU devices.
    pub fn cpu<O: KernelOutcome>(
        name: &str,
        body: impl Fn(&mut KernelArgs<'_>) -> O + Send + Sync + 'static,
    ) -> Self {
        Self::builder(name).cpu(body).build()
    }

    /// A kernel with implementations for several backends.
    pub fn builder(name: &str) -> KernelBuilder {
        KernelBuilder(Inner {
            name: name.into(),
            cpu: None,
            sources: Vec::new(),
            check: None,
            by_blocks: false,
        })
    }

    /// What the kernel is called in errors and traces.
    pub fn name(&self) -> &Arc<str> {
        &self.0.name
    }

    /// Whether there is an implementation for `backend`.
    pub fn supports(&self, backend: Backend) -> bool {
        match backend {
            Backend::Cpu => self.0.cpu.is_some(),
            _ => self.sources(backend).is_some(),
        }
    }

    /// Returns `true` if the kernel shares its work out over blocks ([`KernelBuilder::by_blocks`]).
    pub fn is_by_blocks(&self) -> bool {
        self.0.by_blocks
    }

    /// Refuses a call that the kernel could not work with, by the check it was built with
    /// ([`KernelBuilder::check`]) and by what it says of blocks. Every launch passes through here
    /// once, when it is submitted, recorded or loaded.
    ///
    /// An argument of [`Access::Output`] is a buffer of the call's own, which overlaps no other.
    ///
    /// # Errors
    /// The reason, as [`DeviceError::KernelRefuses`]; or that there is no implementation for
    /// `backend`.
    pub fn check(
        &self,
        backend: Backend,
        args: &[Arg],
        scalars: &[Scalar],
        blocks: u32,
    ) -> Result<(), DeviceError> {
        self.require(backend)?;
        if blocks > 1 && !self.0.by_blocks {
            let message = format!(
                "{blocks} blocks: each would do all of the work; kernels that share it out are built \
                 with `KernelBuilder::by_blocks`"
            );
            return Err(self.refuses(backend, message));
        }
        let Some(check) = &self.0.check else { return Ok(()) };
        let outcome = match args.iter().any(|arg| arg.access == Access::NoDep) {
            true => {
                let seen = |arg: &Arg| Arg { view: seen(arg.access, &arg.view), ..*arg };
                check(&args.iter().map(seen).collect::<Vec<_>>(), scalars)
            }
            false => check(args, scalars),
        };
        outcome.map_err(|message| self.refuses(backend, message))
    }

    fn refuses(&self, backend: Backend, message: String) -> DeviceError {
        let kernel = self.name().clone();
        DeviceError::KernelRefuses { kernel, backend, message: message.into() }
    }

    /// Checks the call and runs the body on the CPU, for a kernel that is part of another body.
    ///
    /// # Errors
    /// As [`Kernel::check`], or what the body says; and if any of `args` was taken before, since
    /// the outer body may still use it. What this body takes, the outer one may take afterwards.
    pub fn call(&self, args: &mut KernelArgs<'_>) -> Result<(), DeviceError> {
        let mut args = args.lent()?;
        let mut described = Vec::with_capacity(args.len());
        for at in 0..args.len() {
            described.push(args.described(at)?);
        }
        self.check(Backend::Cpu, &described, args.scalars(), args.block().1)?;
        // SAFETY: just checked, and nothing is taken.
        unsafe { self.call_checked(&mut args) }.map_err(|message| DeviceError::KernelFailed {
            kernel: self.name().clone(),
            task: None,
            message: message.into(),
        })
    }

    /// Runs the body on the CPU.
    ///
    /// # Safety
    /// [`Kernel::check`] let the call pass, for these arguments and scalars, this number of blocks
    /// and the CPU. Nothing that was taken from `args` is in use.
    #[inline]
    pub unsafe fn call_checked(&self, args: &mut KernelArgs<'_>) -> Result<(), String> {
        self.0.cpu.as_ref().expect("checked: there is a body on the CPU")(args)
    }

    /// The same kernel on the CPU alone, with `around` called in place of its body; what `around`
    /// gets runs the body. What the kernel refuses stays the same.
    ///
    /// # Errors
    /// There is no body on the CPU.
    pub fn around(
        &self,
        around: impl Fn(&mut dyn FnMut() -> Result<(), String>) -> Result<(), String>
        + Send
        + Sync
        + 'static,
    ) -> Result<Self, DeviceError> {
        self.require(Backend::Cpu)?;
        let inner = self.clone();
        let cpu: Box<CpuFunction> = Box::new(move |args| {
            // SAFETY: this kernel has the check of the inner one, which let the call pass; `around`
            // cannot take arguments.
            around(&mut || unsafe { inner.call_checked(args) })
        });
        Ok(Self(Arc::new(Inner {
            name: self.name().clone(),
            cpu: Some(cpu),
            sources: Vec::new(),
            check: self.0.check.clone(),
            by_blocks: self.0.by_blocks,
        })))
    }

    /// The source for arguments like `views` on `backend`, which is not the CPU. The same arguments
    /// get the same source: what was compiled from it may be kept by [`KernelSource::key`].
    ///
    /// # Errors
    /// There is none for the backend, or none for such arguments; the message says what there is.
    pub fn source(&self, backend: Backend, views: &[View]) -> Result<SourceRef, DeviceError> {
        self.require(backend)?;
        let sources = self.sources(backend).ok_or_else(|| DeviceError::NoImplementation {
            kernel: self.name().clone(),
            backend,
            available: "a body that is called, without a source".into(),
        })?;
        let source = sources.select(views).map_err(|message| self.refuses(backend, message))?;
        match source.backend() == backend {
            true => Ok(SourceRef(source)),
            false => {
                let message = format!("its source was made for {}", source.backend());
                Err(self.refuses(backend, message))
            }
        }
    }

    fn sources(&self, backend: Backend) -> Option<&Sources> {
        self.0.sources.iter().find(|(of, _)| *of == backend).map(|(_, sources)| sources)
    }

    /// An error that lists what there is, unless there is an implementation for `backend`.
    pub fn require(&self, backend: Backend) -> Result<(), DeviceError> {
        if self.supports(backend) {
            return Ok(());
        }
        let available: Vec<_> =
            Backend::ALL.into_iter().filter(|&has| self.supports(has)).map(Backend::name).collect();
        Err(DeviceError::NoImplementation {
            kernel: self.name().clone(),
            backend,
            available: if available.is_empty() { "none".into() } else { available.join(", ") },
        })
    }

    /// Identity: two handles of one kernel have the same key, and a caller may cache what it
    /// compiled by it as long as it holds a handle.
    pub fn key(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kernel({})", self.name())
    }
}

/// What a kernel sees of an argument: of one without order no element, since others may write them
/// at any time.
pub(crate) fn seen(access: Access, view: &View) -> View {
    match access {
        Access::NoDep => {
            let step = view.dtype().bytes() as i64;
            View::strided(view.dtype(), view.offset(), &[0], &[step])
                .expect("an empty view is valid")
        }
        _ => *view,
    }
}

/// Collects the implementations of a [`Kernel`].
#[must_use]
pub struct KernelBuilder(Inner);

impl KernelBuilder {
    /// The body on the CPU.
    pub fn cpu<O: KernelOutcome>(
        mut self,
        body: impl Fn(&mut KernelArgs<'_>) -> O + Send + Sync + 'static,
    ) -> Self {
        self.0.cpu = Some(Box::new(move |args| body(args).into_result()));
        self
    }

    /// The source for its backend, whatever the arguments; a later one replaces an earlier one.
    pub fn source(self, source: KernelSource) -> Self {
        self.with(source.backend(), Sources::Fixed(Arc::new(source)))
    }

    /// Sources for `backend` that depend on the arguments. `choose` gives arguments that the kernel
    /// takes there a number, and refuses others with a reason; `generate` makes the source of a
    /// number, once.
    pub fn variants(
        self,
        backend: Backend,
        choose: impl Fn(&[View]) -> Result<u64, String> + Send + Sync + 'static,
        generate: impl Fn(u64) -> KernelSource + Send + Sync + 'static,
    ) -> Self {
        self.with(backend, Sources::variants(choose, generate))
    }

    /// Refuses calls with a reason, on every backend: `check` gets the arguments and scalars of
    /// every launch before it runs, and no body is called with what it refused.
    pub fn check(
        mut self,
        check: impl Fn(&[Arg], &[Scalar]) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.0.check = Some(Arc::new(check));
        self
    }

    /// Says that the body on the CPU shares its work out over blocks ([`KernelArgs::block_range`]).
    /// Other kernels are refused where several blocks are asked for: each would do all of the work.
    pub fn by_blocks(mut self) -> Self {
        self.0.by_blocks = true;
        self
    }

    fn with(mut self, backend: Backend, sources: Sources) -> Self {
        self.0.sources.retain(|(of, _)| *of != backend);
        self.0.sources.push((backend, sources));
        self
    }

    /// The kernel.
    pub fn build(self) -> Kernel {
        Kernel(Arc::new(self.0))
    }
}

impl fmt::Debug for KernelBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KernelBuilder({})", self.0.name)
    }
}
