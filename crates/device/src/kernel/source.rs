//! Sources: the text of a kernel for a backend that compiles it, one or one for each kind of arguments.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use syncline_deps::View;

use super::{Grid, ScalarType};

/// A kernel's source for a backend that compiles it: a function that receives its arguments as
/// [`KernelSource::parameters`] says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelSource {
    /// WGSL for Vulkan, OpenCL C, or CUDA C / PTX.
    pub text: Arc<str>,
    /// The function in `text` to start.
    pub entry: Arc<str>,
    /// Work items in a group (WGSL: must agree with `@workgroup_size`).
    pub group: [u32; 3],
    /// How many groups a launch has.
    pub grid: Grid,
    /// The types of its scalars, to which what is given is converted; `None` passes them on as they are.
    pub scalars: Option<Arc<[ScalarType]>>,
}

impl KernelSource {
    /// The function `entry` in `text`, launched in groups of `group` work items, as many as each dispatch says.
    pub fn new(text: impl Into<Arc<str>>, entry: &str, group: [u32; 3]) -> Self {
        Self { text: text.into(), entry: entry.into(), group, grid: Grid::Given, scalars: None }
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

    /// Identity: clones have the same key, and a caller may cache what it compiled by it as long as it holds one.
    pub fn key(&self) -> usize {
        self.text.as_ptr() as usize ^ (self.entry.as_ptr() as usize).rotate_left(32)
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
                // A generator that panics leaves the map as it was.
                let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
                let source = made.entry(variant).or_insert_with(|| Arc::new(generate(variant)));
                Ok(source.clone())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use syncline_deps::Dtype;

    use super::*;
    use crate::{Backend, DeviceError, Kernel};

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
                |variant| KernelSource::new(format!("variant {variant}"), "main", [1; 3]),
            )
            .build();
        let select =
            |dtype| kernel.source(Backend::Vulkan, &[View::contiguous(dtype, &[1]).unwrap()]);
        let (first, again) = (select(Dtype::F32).unwrap(), select(Dtype::F32).unwrap());
        assert_eq!(first.key(), again.key());
        assert_ne!(first.key(), select(Dtype::I32).unwrap().key());
        let error = select(Dtype::F64).unwrap_err();
        assert!(matches!(error, DeviceError::KernelRefuses { .. }), "{error}");
        let nowhere = kernel.source(Backend::OpenCl, &[]).unwrap_err();
        assert!(matches!(nowhere, DeviceError::NoImplementation { .. }), "{nowhere}");
        assert!(Kernel::cpu("body", |_| ()).source(Backend::Cpu, &[]).is_err());
    }
}
