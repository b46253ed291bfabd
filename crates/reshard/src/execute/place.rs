//! Where this PE's own target tensors are during one refit.

use super::Targets;

/// The first byte of every target tensor.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place<'a> {
    /// In memory of the caller's.
    Targets(&'a Targets<'a>),
    /// In one version of a destination.
    Version { base: *mut u8, tensors: &'a [(usize, usize)] },
}

// SAFETY: a place only names memory that its holder has the right to write during the refit; the
// program writes every byte of it from one thread.
unsafe impl Send for Place<'_> {}
// SAFETY: as above.
unsafe impl Sync for Place<'_> {}

impl Place<'_> {
    /// The first byte of this PE's shard of `tensor`.
    pub fn start(&self, tensor: u32) -> *mut u8 {
        match self {
            Place::Targets(targets) => targets.start(tensor),
            // SAFETY: the tensor lies within the version that `base` starts.
            Place::Version { base, tensors } => unsafe { base.add(tensors[tensor as usize].0) },
        }
    }
}
