//! Destinations: the tensors that a PE receives, committed as a whole.
//!
//! A destination lies in memory that its peers can write, where the transport has such memory, so
//! that data goes there in one copy. With [`Versions::Two`] a refit writes beside the values in use
//! and switches over when every PE of the group is done: readers see all of a refit or nothing of
//! it, and a refit that fails leaves the old values. With [`Versions::One`] it takes half the
//! memory, cannot be read during a refit, and after one that failed half-way refuses to be read
//! until the next has succeeded.

use std::any::Any;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use syncline_device::{BufferView, Device, Lane};
use syncline_sync::{ignore_poison, lock};

use super::device_memory::DeviceMemory;
use super::place::Place;
use super::{Refit, Shards};
use syncline_transport::{Failure, Phase, Region, Ticket, Transport, Wait, Window, WindowId};

/// How many copies of its tensors a destination has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Versions {
    /// One: least memory; a failed refit leaves it unreadable.
    One,
    /// Two: a failed refit leaves the old values; readers are never kept waiting.
    #[default]
    Two,
}

/// A destination that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DestinationError {
    /// A refit that failed has written part of it.
    #[error(
        "the refit after version {version} failed half-way and this destination keeps one version: refit it again, or use Versions::Two"
    )]
    Torn {
        /// The version that was there before.
        version: u64,
    },
    /// A refit is writing it.
    #[error(
        "a refit is writing this destination, which keeps one version: read it afterwards, or use Versions::Two"
    )]
    Refitting,
}

/// One PE's tensors after a refit.
#[derive(Debug)]
pub struct Destination {
    memory: Memory,
    rank: usize,
    shards: Arc<Shards>,
    /// Start and size of each tensor by position in the layout, relative to its version.
    tensors: Vec<(usize, usize)>,
    /// First byte of each version.
    bases: Vec<usize>,
    state: Mutex<State>,
    released: Condvar,
}

#[derive(Debug)]
enum Memory {
    Window(Window),
    Private(Region),
    /// On a device; peers in the same process write it by the id under which it is offered.
    Device(Arc<DeviceMemory>, Option<WindowId>),
}

impl Memory {
    fn start(&self) -> *mut u8 {
        match self {
            Memory::Window(window) => window.start(),
            Memory::Private(region) => region.start(),
            Memory::Device(..) => std::ptr::null_mut(),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    /// Refits committed.
    version: u64,
    active: usize,
    readers: [usize; 2],
    /// The version that a refit is writing.
    writing: Option<usize>,
    torn: bool,
}

/// Bytes of a directory entry: start and size of a tensor.
const ENTRY_BYTES: usize = 16;
const ALIGN: usize = 64;

impl Destination {
    /// Memory for what `refit` leaves on this PE, in a window of `transport` if it has any.
    ///
    /// It starts as version 0, all zeros.
    pub fn new(
        transport: &dyn Transport,
        refit: &Refit,
        versions: Versions,
    ) -> Result<Self, Failure> {
        let shards = refit.targets();
        let mut end = 0;
        let place = |&bytes: &usize| {
            let start = end;
            end += bytes.next_multiple_of(ALIGN);
            (start, bytes)
        };
        let tensors: Vec<(usize, usize)> = shards.sizes().iter().map(place).collect();
        let count = if versions == Versions::Two { 2 } else { 1 };
        let directory = (tensors.len() * ENTRY_BYTES).next_multiple_of(4096);
        let version_bytes = end.next_multiple_of(4096);
        let bytes = version_bytes.checked_mul(count).and_then(|all| all.checked_add(directory));
        let bytes = bytes.ok_or_else(|| {
            let message =
                format!("{count} versions of {version_bytes} bytes exceed the address space");
            Failure::Local { rank: transport.rank(), message }
        })?;
        let bases: Vec<usize> = (0..count).map(|at| directory + at * version_bytes).collect();
        let memory = match transport.allocate(bytes)? {
            Some(window) => Memory::Window(window),
            None => Memory::Private(Region::anonymous(bytes).map_err(|errno| {
                let message = format!("cannot map {bytes} bytes for a destination: {errno}");
                Failure::Local { rank: transport.rank(), message }
            })?),
        };
        let destination = Self {
            shards: shards.clone(),
            memory,
            rank: transport.rank(),
            tensors,
            bases,
            state: Mutex::default(),
            released: Condvar::new(),
        };
        destination.write_directory();
        Ok(destination)
    }

    /// Memory on `device` for what `refit` leaves on this PE; peers in the same process write it
    /// directly, by `lane` where their own lanes cannot.
    pub(crate) fn on_device(
        transport: &dyn Transport,
        refit: &Refit,
        versions: Versions,
        device: &Arc<dyn Device>,
        lane: &Arc<dyn Lane>,
    ) -> Result<Self, Failure> {
        let count = if versions == Versions::Two { 2 } else { 1 };
        let memory = DeviceMemory::new(refit.targets().sizes(), count, device, lane);
        let memory = memory.map(Arc::new).map_err(|error| {
            let message = format!("no destination on {}: {error}", device.spec());
            Failure::Local { rank: transport.rank(), message }
        })?;
        let offer = transport.offer(memory.clone());
        Ok(Self {
            shards: refit.targets().clone(),
            memory: Memory::Device(memory, offer),
            rank: transport.rank(),
            tensors: Vec::new(),
            bases: vec![0; count],
            state: Mutex::default(),
            released: Condvar::new(),
        })
    }

    /// Where the tensors lie, for peers to read; they see it after the barrier that starts a refit.
    fn write_directory(&self) {
        for (at, &(start, bytes)) in self.tensors.iter().enumerate() {
            let entry = [(start as u64).to_le_bytes(), (bytes as u64).to_le_bytes()];
            // SAFETY: the directory has room for every entry, and nobody else knows the window yet.
            unsafe {
                let place = self.memory.start().add(at * ENTRY_BYTES);
                std::ptr::copy_nonoverlapping(entry.as_ptr().cast::<u8>(), place, ENTRY_BYTES);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Refits committed so far.
    pub fn version(&self) -> u64 {
        self.state().version
    }

    /// Bytes of memory that it takes, all versions together.
    pub fn memory_bytes(&self) -> usize {
        match &self.memory {
            Memory::Window(window) => window.bytes(),
            Memory::Private(region) => region.bytes(),
            Memory::Device(memory, _) => memory.bytes() as usize,
        }
    }

    /// The values of the last refit that was committed; they stay as they are while the result
    /// lives.
    pub fn read(&self) -> Result<Reading<'_>, DestinationError> {
        let mut state = self.state();
        if state.torn {
            return Err(DestinationError::Torn { version: state.version });
        }
        if state.writing == Some(state.active) {
            return Err(DestinationError::Refitting);
        }
        let active = state.active;
        state.readers[active] += 1;
        Ok(Reading { destination: self, index: active, version: state.version })
    }

    /// Whether it was made for what `refit` leaves on this PE, by whatever plan.
    pub(crate) fn fits(&self, refit: &Refit) -> bool {
        self.shards.identity() == refit.targets().identity()
    }

    /// Whether peers of this group find it where it is announced, and nobody else writes it.
    ///
    /// What was made in another group has an id that means other memory in this one, and after a
    /// failure there a late peer may still be writing it.
    pub(crate) fn belongs_to(&self, transport: &dyn Transport) -> bool {
        match &self.memory {
            Memory::Window(window) => transport.owns(window),
            Memory::Private(_) | Memory::Device(_, None) => true,
            Memory::Device(memory, Some(id)) => {
                let offered = transport.offered(self.rank, *id);
                let found = offered.and_then(|offer| offer.downcast::<DeviceMemory>().ok());
                found.is_some_and(|found| Arc::ptr_eq(&found, memory))
            }
        }
    }

    /// Takes the version that a refit may write, when no reader holds it any more.
    ///
    /// Returns `None` if one still does when half of the time is over: the refit is then left out
    /// on every PE, and the other half is for telling them.
    pub(crate) fn begin(&self, wait: &Wait<'_>) -> Result<Option<Writing<'_>>, Failure> {
        let mut state = self.state();
        let index = if self.bases.len() == 2 { 1 - state.active } else { state.active };
        while state.readers[index] > 0 || state.writing.is_some() {
            if let Some(failure) = wait.until(Phase::Enter, self.rank).expired(self.rank) {
                return Err(failure);
            }
            if wait.is_half_over() {
                return Ok(None);
            }
            // In slices, because nothing rings when somebody cancels.
            let waited = self.released.wait_timeout(state, wait.left(Duration::from_millis(20)));
            state = ignore_poison(waited).0;
        }
        state.writing = Some(index);
        Ok(Some(Writing { destination: self, index, touched: false, committed: false }))
    }
}

/// The right to write one version of a destination; given back when dropped.
#[derive(Debug)]
pub(crate) struct Writing<'a> {
    destination: &'a Destination,
    index: usize,
    touched: bool,
    committed: bool,
}

impl Writing<'_> {
    /// What peers need in order to write it directly.
    pub fn ticket(&self) -> Option<(WindowId, [u64; 2])> {
        match &self.destination.memory {
            Memory::Window(window) => {
                let count = self.destination.tensors.len() as u64;
                Some((window.id(), [count, self.destination.bases[self.index] as u64]))
            }
            Memory::Private(_) => None,
            Memory::Device(_, offer) => offer.map(|id| (id, [0, self.index as u64])),
        }
    }

    /// Whether the host reaches it.
    pub fn is_on_host(&self) -> bool {
        !matches!(self.destination.memory, Memory::Device(..))
    }

    /// From here on the old values of this version may be gone.
    pub fn touch(&mut self) {
        self.touched = true;
    }

    /// The refit was left out: nobody has written.
    pub fn leave_out(mut self) {
        self.touched = false;
    }

    /// Makes this version the one that is read.
    pub fn commit(mut self) {
        self.committed = true;
    }

    /// Where this PE itself writes.
    pub fn place(&self) -> Place<'_> {
        if let Memory::Device(memory, _) = &self.destination.memory {
            return Place::Views(memory.version(self.index));
        }
        let start = self.destination.memory.start();
        // SAFETY: the version lies within the memory.
        let base = unsafe { start.add(self.destination.bases[self.index]) };
        Place::Version { base, tensors: &self.destination.tensors }
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let mut state = self.destination.state();
        state.writing = None;
        if self.committed {
            state.active = self.index;
            state.version += 1;
            state.torn = false;
        } else if self.touched && state.active == self.index {
            state.torn = true;
        }
        drop(state);
        self.destination.released.notify_all();
    }
}

/// A committed version, held against being overwritten.
///
/// A refit that needs its memory waits for it to be dropped, and is left out on every PE if that
/// takes too long ([`ServiceError::Held`](crate::ServiceError::Held)). With [`Versions::Two`] that
/// is the second refit after it was taken.
#[derive(Debug)]
pub struct Reading<'a> {
    destination: &'a Destination,
    index: usize,
    version: u64,
}

impl Reading<'_> {
    /// Which refit these values are of; 0 before the first.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// This PE's shard of tensor `name` on the device that the destination was made on, if it holds
    /// any of it.
    ///
    /// Work that reads it may go on after this reading is dropped: the refit that writes it next
    /// waits for it.
    pub fn view(&self, name: &str) -> Option<&BufferView> {
        let Memory::Device(memory, _) = &self.destination.memory else { return None };
        memory.version(self.index)[self.destination.shards.position(name)?].as_ref()
    }

    /// This PE's shard of tensor `name`, if it holds any of it; in memory of a device,
    /// [`view`](Self::view) has it.
    pub fn tensor(&self, name: &str) -> Option<&[u8]> {
        let position = self.destination.shards.position(name)?;
        if let Memory::Device(..) = &self.destination.memory {
            return None;
        }
        let (start, bytes) = self.destination.tensors[position];
        if bytes == 0 {
            return None;
        }
        let base = self.destination.bases[self.index];
        // SAFETY: the tensor lies within the memory; no refit writes this version while it is
        // counted as read, on this PE by `begin` and on the others because they write only what
        // `begin` gave.
        Some(unsafe {
            std::slice::from_raw_parts(self.destination.memory.start().add(base + start), bytes)
        })
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.destination.state().readers[self.index] -= 1;
        self.destination.released.notify_all();
    }
}

/// A peer's destination that this PE writes.
#[derive(Debug)]
pub(crate) enum PeerDestination {
    /// In memory that both processes see.
    Window(PeerWindow),
    /// On a device of this process.
    Offered(Offer),
}

/// What a peer in the same process offered.
#[derive(Debug)]
pub(crate) struct Offer {
    memory: Arc<DeviceMemory>,
    version: usize,
}

impl Offer {
    pub fn view(&self, tensor: u32) -> Option<&BufferView> {
        self.memory.version(self.version).get(tensor as usize)?.as_ref()
    }

    /// A lane of the device that it is on.
    pub fn lane(&self) -> &Arc<dyn Lane> {
        self.memory.lane()
    }
}

/// A peer's destination, as its window shows it.
#[derive(Debug)]
pub(crate) struct PeerWindow {
    window: Window,
    entries: usize,
    base: usize,
}

impl PeerDestination {
    /// The destination that `peer` announced for this refit, if this PE can write it.
    pub fn open(transport: &dyn Transport, peer: usize) -> Result<Option<Self>, Failure> {
        let Ticket { window: Some((id, numbers)), .. } = transport.ticket(peer) else {
            return Ok(None);
        };
        if let Some(offer) = transport.offered(peer, id) {
            let Ok(memory) = offer.downcast::<DeviceMemory>() else { return Ok(None) };
            return Ok(Some(Self::Offered(Offer { memory, version: numbers[1] as usize })));
        }
        Ok(PeerWindow::open(transport, peer, id, numbers)?.map(Self::Window))
    }
}

impl PeerWindow {
    fn open(
        transport: &dyn Transport,
        peer: usize,
        id: WindowId,
        [entries, base]: [u64; 2],
    ) -> Result<Option<Self>, Failure> {
        let Some(window) = transport.peer_window(peer, id)? else { return Ok(None) };
        let (entries, base) = (entries as usize, base as usize);
        let fits = entries.checked_mul(ENTRY_BYTES).is_some_and(|bytes| bytes <= base)
            && base <= window.bytes();
        if !fits {
            let message = format!("PE {peer} announced a directory outside its window");
            return Err(Failure::Local { rank: transport.rank(), message });
        }
        Ok(Some(Self { window, entries, base }))
    }

    /// Keeps the window mapped.
    pub fn keep(&self) -> Arc<dyn Any + Send + Sync> {
        Arc::new(self.window.clone())
    }

    /// The first byte of `bytes` at `offset` in the peer's shard of `tensor`.
    ///
    /// `None` where that is not inside the shard that the peer has: another process wrote the
    /// directory, and nothing it says may lead outside the window.
    pub fn address(&self, tensor: u32, offset: usize, bytes: usize) -> Option<*mut u8> {
        let at = tensor as usize;
        if at >= self.entries {
            return None;
        }
        let mut entry = [[0; 8]; 2];
        // SAFETY: `open` checked that the directory lies within the window.
        unsafe {
            let place = self.window.start().add(at * ENTRY_BYTES);
            std::ptr::copy_nonoverlapping(place, entry.as_mut_ptr().cast::<u8>(), ENTRY_BYTES);
        }
        let [start, size] = entry.map(|word| u64::from_le_bytes(word) as usize);
        let inside = offset.checked_add(bytes)? <= size;
        let first = self.base.checked_add(start)?.checked_add(offset)?;
        let fits = inside && first.checked_add(bytes)? <= self.window.bytes();
        // SAFETY: as was just checked.
        fits.then(|| unsafe { self.window.start().add(first) })
    }
}
