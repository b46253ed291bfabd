//! Windows: memory of one PE that its peers can write.

use std::fmt;
use std::sync::{Arc, Weak};

use super::region::Region;

/// Names a window of one PE, and says how large it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WindowId {
    /// Where the transport keeps it.
    pub place: u64,
    /// Its size.
    pub bytes: u64,
}

/// Memory that several PEs see.
///
/// It hands out pointers, not slices: which PE may write which part, and when, is for the plan to
/// say. Cloning it clones the handle; the memory lives as long as any handle in any process.
#[derive(Clone)]
pub struct Window {
    pub(crate) id: WindowId,
    pub(crate) region: Arc<Region>,
    /// The board of the group that it was made in, at its owner.
    pub(crate) group: Option<Weak<Region>>,
    /// What gives the memory back when the owner's last handle is gone.
    pub(crate) _owned: Option<Arc<dyn Send + Sync>>,
}

impl Window {
    /// The window's name, by which peers open it.
    pub fn id(&self) -> WindowId {
        self.id
    }

    /// The first byte; aligned to a page.
    pub fn start(&self) -> *mut u8 {
        self.region.start()
    }

    /// The size.
    pub fn bytes(&self) -> usize {
        self.region.bytes()
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window").field("id", &self.id).field("bytes", &self.bytes()).finish()
    }
}
