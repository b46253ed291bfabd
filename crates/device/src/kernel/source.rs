//! Sources: the text of a kernel for a backend that compiles it, one or one for each kind of
//! arguments.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use syncline_sync::lock;
use syncline_tensor::View;

use super::{Grid, ScalarType};
use crate::Backend;

/// A kernel's source for a backend that compiles it: a function that receives its arguments as
/// [`KernelSource::parameters`] says.
///
/// WGSL is safe ([`KernelSource::wgsl`]): it is compiled with checks of all bounds, and refused
/// where it declares that it writes what its task only reads. Other languages reach any memory of
/// the process ([`KernelSource::native`]); such a source belongs to the one kernel that it was made
/// for, and has no clones.
#[derive(Debug)]
pub struct KernelSource {
    key: usize,
    backend: Backend,
    text: Arc<str>,
    entry: Arc<str>,
    group: [u32; 3],
    pub(super) grid: Grid,
    scalars: Option<Arc<[ScalarType]>>,
    is_checked: bool,
}

impl KernelSource {
    /// The function `entry` in WGSL for Vulkan, launched in groups of `group` work items, which
    /// must agree with its `@workgroup_size`; there are as many groups as each dispatch says.
    ///
    /// An index that is out of bounds reaches some element of the same variable instead. So a
    /// kernel that leaves its arguments' views can give other tasks wrong numbers, where views of
    /// theirs lie between its own elements, but it reaches nothing else.
    pub fn wgsl(text: impl Into<Arc<str>>, entry: &str, group: [u32; 3]) -> Self {
        Self::new(Backend::Vulkan, text.into(), entry, group, true)
    }

    /// The function `entry` in OpenCL C, CUDA C or PTX, or in WGSL that is compiled without checks
    /// of bounds; launched in groups of `group` work items, as many as each dispatch says.
    ///
    /// # Safety
    /// On all arguments and scalars that the kernel's check
    /// ([`KernelBuilder::check`](crate::KernelBuilder::check)) lets pass, and over any number of
    /// groups, the function touches no memory but the elements of its arguments and the parameter
    /// block, and writes only arguments that the task writes.
    pub unsafe fn native(
        backend: Backend,
        text: impl Into<Arc<str>>,
        entry: &str,
        group: [u32; 3],
    ) -> Self {
        Self::new(backend, text.into(), entry, group, false)
    }

    fn new(
        backend: Backend,
        text: Arc<str>,
        entry: &str,
        group: [u32; 3],
        is_checked: bool,
    ) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let key = NEXT.fetch_add(1, Ordering::Relaxed);
        let (entry, grid) = (entry.into(), Grid::Given);
        Self { key, backend, text, entry, group, grid, scalars: None, is_checked }
    }

    /// The backend that compiles it.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// The program text.
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// The function in the text to start.
    pub fn entry(&self) -> &Arc<str> {
        &self.entry
    }

    /// Work items in a group.
    pub fn group(&self) -> [u32; 3] {
        self.group
    }

    /// The types of its scalars, to which what is given is converted; `None` passes them on as they
    /// are.
    pub fn scalar_types(&self) -> Option<&[ScalarType]> {
        self.scalars.as_deref()
    }

    /// Whether it is compiled with checks of all bounds.
    pub fn is_checked(&self) -> bool {
        self.is_checked
    }

    /// The same, with another rule for the number of groups.
    #[must_use]
    pub fn grid(mut self, grid: Grid) -> Self {
        self.grid = grid;
        self
    }

    /// The same, with its scalars converted to these types.
    #[must_use]
    pub fn scalars(mut self, types: impl Into<Arc<[ScalarType]>>) -> Self {
        self.scalars = Some(types.into());
        self
    }

    /// Identity: no other source of the process ever has the same key.
    pub fn key(&self) -> usize {
        self.key
    }
}

/// The source that a kernel has for some arguments, to be compiled. It stays with its kernel: no
/// other one can be built from it, whose check could let more pass.
///
/// ```compile_fail,E0308
/// # use syncline_device::{Backend, Kernel};
/// let kernel = |of: Kernel| -> Kernel {
///     let source = of.source(Backend::OpenCl, &[]).unwrap();
///     Kernel::builder("unchecked").source(std::sync::Arc::try_unwrap(source).unwrap()).build()
/// };
/// ```
#[derive(Clone, Debug)]
pub struct SourceRef(pub(super) Arc<KernelSource>);

impl Deref for SourceRef {
    type Target = KernelSource;

    fn deref(&self) -> &KernelSource {
        &self.0
    }
}

/// The sources of a kernel for one backend.
pub(super) enum Sources {
    /// One for all arguments.
    Fixed(Arc<KernelSource>),
    /// One for each number that `choose` gives.
    Variants { choose: Box<Choose>, generate: Box<Generate>, made: Made },
}

type Choose = dyn Fn(&[View]) -> Result<u64, String> + Send + Sync;
type Generate = dyn Fn(u64) -> KernelSource + Send + Sync;
type Made = Mutex<HashMap<u64, Arc<KernelSource>>>;

impl Sources {
    pub(super) fn variants(
        choose: impl Fn(&[View]) -> Result<u64, String> + Send + Sync + 'static,
        generate: impl Fn(u64) -> KernelSource + Send + Sync + 'static,
    ) -> Self {
        let (choose, generate) = (Box::new(choose), Box::new(generate));
        Sources::Variants { choose, generate, made: Made::default() }
    }

    /// The source for arguments like `views`, or why there is none.
    pub(super) fn select(&self, views: &[View]) -> Result<Arc<KernelSource>, String> {
        match self {
            Sources::Fixed(source) => Ok(source.clone()),
            Sources::Variants { choose, generate, made } => {
                let variant = choose(views)?;
                let made = || lock(made);
                if let Some(source) = made().get(&variant) {
                    return Ok(source.clone());
                }
                // Under no lock: a generator may panic, or ask for a source of its kernel.
                let source = Arc::new(generate(variant));
                Ok(made().entry(variant).or_insert(source).clone())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use syncline_tensor::Dtype;

    use super::*;
    use crate::{DeviceError, Kernel};

    #[test]
    fn a_variant_is_made_once_and_others_are_refused() {
        let kernel = Kernel::builder("pick")
            .variants(
                Backend::Vulkan,
                |views| match views[0].dtype() {
                    Dtype::F32 => Ok(0),
                    Dtype::I32 => Ok(1),
                    other => Err(format!("argument 0: {other} elements")),
                },
                |variant| KernelSource::wgsl(format!("variant {variant}"), "main", [1; 3]),
            )
            .build();
        let select =
            |dtype| kernel.source(Backend::Vulkan, &[View::contiguous(dtype, &[1]).unwrap()]);
        let (first, again) = (select(Dtype::F32).unwrap(), select(Dtype::F32).unwrap());
        assert_eq!(first.key(), again.key());
        assert_ne!(first.key(), select(Dtype::I32).unwrap().key());
        let error = select(Dtype::F64).unwrap_err();
        assert!(matches!(error, DeviceError::KernelRefuses { .. }), "{error}");
        // What passes for safe as WGSL does not become OpenCL C.
        let disguised = Kernel::builder("disguised")
            .variants(
                Backend::OpenCl,
                |_| Ok(0),
                |_| KernelSource::wgsl("__kernel void main() {}", "main", [1; 3]),
            )
            .build();
        let refused = disguised.source(Backend::OpenCl, &[]).unwrap_err();
        assert!(matches!(refused, DeviceError::KernelRefuses { .. }), "{refused}");
        let nowhere = kernel.source(Backend::OpenCl, &[]).unwrap_err();
        assert!(matches!(nowhere, DeviceError::NoImplementation { .. }), "{nowhere}");
        assert!(Kernel::cpu("body", |_| ()).source(Backend::Cpu, &[]).is_err());
    }
}
