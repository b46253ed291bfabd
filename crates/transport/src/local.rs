//! The transport between threads of one process.
//!
//! ```
//! use std::time::Duration;
//! use syncline_transport::{ControlPlane, Header, Session, Wait, local};
//!
//! let endpoints = local::group(2, &local::Options::default())?;
//! std::thread::scope(|scope| {
//!     for mut endpoint in endpoints {
//!         scope.spawn(move || {
//!             let wait = Wait::timeout(Duration::from_secs(10));
//!             let peer = 1 - endpoint.rank();
//!             let session = Session::enter(&mut endpoint, 0, &wait).unwrap();
//!             let endpoint = session.transport();
//!             let mut fill = |slot: &mut [u8]| {
//!                 slot.copy_from_slice(b"hello");
//!                 Header::default()
//!             };
//!             endpoint.send(peer, 5, &mut fill, &wait).unwrap();
//!             let mut check = |_: Header, bytes: &[u8]| {
//!                 assert_eq!(bytes, b"hello");
//!                 Ok(())
//!             };
//!             endpoint.receive(peer, &mut check, &wait).unwrap();
//!             session.finish(&wait).unwrap();
//!         });
//!     }
//! });
//! # Ok::<(), syncline_transport::local::GroupError>(())
//! ```

use std::any::Any;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};

use syncline_sync::lock;

use super::board::{Board, JOINED, Layout};
use super::endpoint::Backing;
use super::failure::Shape;
use super::region::Region;
use super::{Endpoint, Window, WindowId};

/// The parameters of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Slots of each PE; two overlap packing with unpacking.
    pub depth: usize,
    /// Bytes of each slot.
    pub slot_bytes: usize,
}

impl Default for Options {
    /// Many small slots take no more memory than two large ones, stay in a processor's cache, and
    /// let PEs that share a processor run for longer in turn.
    fn default() -> Self {
        Self { depth: 8, slot_bytes: 256 << 10 }
    }
}

/// A group that cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// Parameters that make no group.
    #[error(
        "no group of {0}: at least 1 PE, 1 slot and 64 bytes, at most {MAX_SIZE} PEs, and all of it addressable"
    )]
    Shape(Shape),
    /// Not enough memory.
    #[error("cannot map {bytes} bytes for a group of {shape}: {cause}")]
    Memory {
        /// The group.
        shape: Shape,
        /// What its board takes.
        bytes: usize,
        /// What the system said.
        cause: String,
    },
}

/// The most PEs that a group on one host can have.
pub const MAX_SIZE: usize = 4096;

/// The layout of a group's board, if its parameters make sense.
pub(crate) fn layout(size: usize, options: &Options) -> Result<(Shape, Layout), GroupError> {
    let shape = Shape { size, depth: options.depth, slot_bytes: options.slot_bytes };
    let sensible = (1..=MAX_SIZE).contains(&size) && options.depth >= 1 && options.slot_bytes >= 64;
    let layout = sensible.then(|| Layout::new(shape)).flatten();
    layout.map(|layout| (shape, layout)).ok_or(GroupError::Shape(shape))
}

/// The endpoints of a new group of `size` PEs, by rank; give each to a thread of its own.
pub fn group(size: usize, options: &Options) -> Result<Vec<Endpoint>, GroupError> {
    let (shape, layout) = layout(size, options)?;
    let region = Region::anonymous(layout.bytes).map_err(|errno| GroupError::Memory {
        shape,
        bytes: layout.bytes,
        cause: errno.to_string(),
    })?;
    let board = Board::new(Arc::new(region), layout);
    board.initialise();
    board.members().for_each(|member| member.state.store(JOINED, Ordering::Release));
    let windows = Arc::<Windows>::default();
    let endpoint = |rank| Endpoint::new(rank, board.clone(), Box::new(Threads(windows.clone())));
    Ok((0..size).map(endpoint).collect())
}

/// The windows that are alive, by their ids.
#[derive(Default)]
struct Windows(Mutex<Made>);

#[derive(Default)]
struct Made {
    count: u64,
    alive: Vec<(WindowId, Weak<Region>)>,
    offers: Vec<(WindowId, Weak<dyn Any + Send + Sync>)>,
}

struct Threads(Arc<Windows>);

impl Backing for Threads {
    /// A thread that ends drops its endpoint, panicking or not: it leaves, it never dies.
    fn has_died(&self, _: &Board, _: usize) -> bool {
        false
    }

    fn allocate(&self, _: &Board, _: usize, bytes: usize) -> Result<Window, String> {
        let region = Region::anonymous(bytes)
            .map_err(|errno| format!("cannot map a window of {bytes} bytes: {errno}"))?;
        let region = Arc::new(region);
        let mut windows = lock(&self.0.0);
        let id = WindowId { place: windows.count, bytes: region.bytes() as u64 };
        windows.count += 1;
        windows.alive.retain(|(_, region)| region.strong_count() > 0);
        windows.alive.push((id, Arc::downgrade(&region)));
        Ok(Window { id, region, group: None, _owned: None })
    }

    fn offer(&self, shared: Arc<dyn Any + Send + Sync>) -> Option<WindowId> {
        let mut windows = lock(&self.0.0);
        let id = WindowId { place: windows.count, bytes: 0 };
        windows.count += 1;
        windows.offers.retain(|(_, offer)| offer.strong_count() > 0);
        windows.offers.push((id, Arc::downgrade(&shared)));
        Some(id)
    }

    fn offered(&self, id: WindowId) -> Option<Arc<dyn Any + Send + Sync>> {
        let windows = lock(&self.0.0);
        windows.offers.iter().find(|(other, _)| *other == id)?.1.upgrade()
    }

    fn open(&self, peer: usize, id: WindowId) -> Result<Window, String> {
        let windows = lock(&self.0.0);
        let found = windows.alive.iter().find(|(other, _)| *other == id);
        match found.and_then(|(_, region)| region.upgrade()) {
            Some(region) => Ok(Window { id, region, group: None, _owned: None }),
            None => Err(format!("PE {peer} has no window {}", id.place)),
        }
    }
}
