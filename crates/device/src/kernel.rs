//! Kernels: what a task does, with one implementation for each backend that can run it.

mod args;
mod scalar;

use std::fmt;
use std::sync::Arc;

pub use args::{KernelArgs, RawArg, Strided, StridedMut};
pub use scalar::Scalar;

use crate::{Backend, DeviceError};

/// The body of a kernel on the CPU.
pub type CpuFunction = dyn Fn(&mut KernelArgs<'_>) -> Result<(), String> + Send + Sync;

/// A kernel's source for a backend that compiles it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelSource {
    /// WGSL for Vulkan, OpenCL C, or CUDA C / PTX.
    pub text: Arc<str>,
    /// The function in `text` to start.
    pub entry: Arc<str>,
    /// Work items in a group (WGSL: must agree with `@workgroup_size`).
    pub group: [u32; 3],
}

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
    sources: Vec<(Backend, KernelSource)>,
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
            _ => self.source(backend).is_some(),
        }
    }

    /// The body on the CPU.
    #[inline]
    pub fn cpu_function(&self) -> Option<&CpuFunction> {
        self.0.cpu.as_deref()
    }

    /// The source for `backend`.
    pub fn source(&self, backend: Backend) -> Option<&KernelSource> {
        self.0.sources.iter().find(|(of, _)| *of == backend).map(|(_, source)| source)
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

    /// The source for `backend`; a later one replaces an earlier one.
    pub fn source(mut self, backend: Backend, source: KernelSource) -> Self {
        self.0.sources.retain(|(of, _)| *of != backend);
        self.0.sources.push((backend, source));
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
