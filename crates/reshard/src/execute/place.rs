//! Where one PE writes during a refit.

use syncline_device::BufferView;

use super::Targets;
use super::bindings::Held;

/// Where this PE writes the shards of its target tensors.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place<'a> {
    /// In memory of the caller's.
    Targets(&'a Targets<'a>),
    /// In one version of a destination.
    Version { base: *mut u8, tensors: &'a [(usize, usize)] },
    /// In one version of a destination on a device.
    Views(&'a [Option<BufferView>]),
}

// SAFETY: a place only names memory that its holder has the right to write during the refit; the
// program writes every byte of it from one thread.
unsafe impl Send for Place<'_> {}
// SAFETY: as above.
unsafe impl Sync for Place<'_> {}

impl Place<'_> {
    /// The first byte of this PE's shard of `tensor`, which is in memory of the process.
    pub fn start(&self, tensor: u32) -> *mut u8 {
        match self {
            Place::Targets(targets) => targets.bound.start(tensor),
            // SAFETY: the tensor lies within the version that `base` starts.
            Place::Version { base, tensors } => unsafe { base.add(tensors[tensor as usize].0) },
            Place::Views(_) => std::ptr::null_mut(),
        }
    }

    /// Where this PE's shard of `tensor` lies.
    pub fn held(&self, tensor: u32) -> Option<Held> {
        match self {
            Place::Targets(targets) => targets.bound.held(tensor),
            Place::Version { .. } => Some(Held::Host(self.start(tensor))),
            Place::Views(views) => views[tensor as usize].clone().map(Held::View),
        }
    }

    /// Whether anything is in memory of a device.
    pub fn has_views(&self) -> bool {
        match self {
            Place::Targets(targets) => targets.bound.has_views(),
            Place::Version { .. } => false,
            Place::Views(_) => true,
        }
    }
}
