//! Kernels: what a task does, with one implementation for each backend that can run it.

mod args;
mod convention;
mod grid;
mod scalar;
mod source;

use std::fmt;
use std::sync::Arc;

use syncline_deps::View;

pub use args::{KernelArgs, LateArgs, RawArg, Strided, StridedMut};
pub use convention::{ScalarType, WORDS_PER_ARGUMENT};
pub use grid::{GROUPS_ALONG_X, Grid};
pub use scalar::Scalar;
pub use source::KernelSource;
use source::Sources;

use crate::{Backend, DeviceError};

/// The body of a kernel on the CPU.
pub type CpuFunction = dyn Fn(&mut KernelArgs<'_>) -> Result<(), String> + Send + Sync;

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
        KernelBuilder(Inner { name: name.into(), cpu: None, sources: Vec::new() })
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

    /// The body on the CPU.
    #[inline]
    pub fn cpu_function(&self) -> Option<&CpuFunction> {
        self.0.cpu.as_deref()
    }

    /// The source for arguments like `views` on `backend`, which is not the CPU. The same arguments get the same
    /// source: what was compiled from it may be kept by [`KernelSource::key`].
    ///
    /// # Errors
    /// There is none for the backend, or none for such arguments; the message says what there is.
    pub fn source(
        &self,
        backend: Backend,
        views: &[View],
    ) -> Result<Arc<KernelSource>, DeviceError> {
        self.require(backend)?;
        let sources = self.sources(backend).ok_or_else(|| DeviceError::NoImplementation {
            kernel: self.name().clone(),
            backend,
            available: "a body that is called, without a source".into(),
        })?;
        sources.select(views).map_err(|message| DeviceError::KernelRefuses {
            kernel: self.name().clone(),
            backend,
            message: message.into(),
        })
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

    /// Identity: two handles of one kernel have the same key, and a caller may cache what it compiled by it as long
    /// as it holds a handle.
    pub fn key(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kernel({})", self.name())
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

    /// The source for `backend`, whatever the arguments; a later one replaces an earlier one.
    pub fn source(self, backend: Backend, source: KernelSource) -> Self {
        self.with(backend, Sources::Fixed(Arc::new(source)))
    }

    /// Sources for `backend` that depend on the arguments. `choose` gives arguments that the kernel takes there a
    /// number, and refuses others with a reason; `generate` makes the source of a number, once.
    pub fn variants(
        self,
        backend: Backend,
        choose: impl Fn(&[View]) -> Result<u64, String> + Send + Sync + 'static,
        generate: impl Fn(u64) -> KernelSource + Send + Sync + 'static,
    ) -> Self {
        self.with(backend, Sources::variants(choose, generate))
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
