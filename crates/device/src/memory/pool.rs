//! A pool of sizes: what is given back is kept and given out again.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use syncline_sync::lock;

use crate::{DeviceError, DeviceSpec, MemoryUse};

/// Keeps pieces of memory by size class, under one cap, for any backend's kind of piece `P`.
///
/// Sizes are rounded up to one of four classes between powers of two, so that at most a quarter is
/// wasted and a piece fits many requests. Kept pieces are released before a request is refused.
#[derive(Debug)]
pub struct Pool<P> {
    device: DeviceSpec,
    state: Mutex<State<P>>,
}

#[derive(Debug)]
struct State<P> {
    free: BTreeMap<u64, Vec<P>>,
    use_: MemoryUse,
}

impl<P> Pool<P> {
    /// A pool for `device` of at most `cap_bytes` bytes, in use and kept together.
    pub fn new(device: DeviceSpec, cap_bytes: u64) -> Self {
        let use_ = MemoryUse { cap_bytes, ..MemoryUse::default() };
        Self { device, state: Mutex::new(State { free: BTreeMap::new(), use_ }) }
    }

    /// The device.
    pub fn device(&self) -> DeviceSpec {
        self.device
    }

    /// The size of the pieces that requests of `bytes` are answered with.
    pub fn class_bytes(bytes: u64) -> u64 {
        let least = bytes.max(crate::ALIGNMENT);
        let step =
            (least.checked_next_power_of_two().unwrap_or(u64::MAX) / 8).max(crate::ALIGNMENT);
        least.checked_next_multiple_of(step).unwrap_or(bytes)
    }

    /// A piece of at least `bytes` bytes: one that was kept, or what `create` makes of the class's
    /// size.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] where the cap does not allow it, or `create` has none.
    pub fn take(
        &self,
        bytes: u64,
        create: impl FnOnce(u64) -> Option<P>,
    ) -> Result<P, DeviceError> {
        let class = Self::class_bytes(bytes);
        let mut state = self.lock();
        if let Some(piece) = state.take_kept(class) {
            return Ok(piece);
        }
        let wanted = state.use_.in_use_bytes.saturating_add(class);
        if wanted > state.use_.cap_bytes {
            return Err(self.out_of_memory(&state, bytes));
        }
        let keep_bytes = state.use_.cap_bytes - wanted;
        let released = state.release_kept(keep_bytes);
        state.count_in(class);
        drop(state);
        drop(released);
        create(class).ok_or_else(|| {
            let mut state = self.lock();
            state.use_.in_use_bytes -= class;
            self.out_of_memory(&state, bytes)
        })
    }

    /// Gives back a piece of class `class_bytes`, to be kept.
    pub fn give(&self, class_bytes: u64, piece: P) {
        let mut state = self.lock();
        state.use_.in_use_bytes -= class_bytes;
        state.use_.cached_bytes += class_bytes;
        state.free.entry(class_bytes).or_default().push(piece);
    }

    /// Releases everything that is kept.
    pub fn trim(&self) {
        let released = self.lock().release_kept(0);
        drop(released);
    }

    /// What is in use.
    pub fn memory_use(&self) -> MemoryUse {
        self.lock().use_
    }

    fn lock(&self) -> MutexGuard<'_, State<P>> {
        lock(&self.state)
    }

    fn out_of_memory(&self, state: &State<P>, bytes: u64) -> DeviceError {
        DeviceError::OutOfMemory {
            device: self.device,
            bytes,
            in_use_bytes: state.use_.in_use_bytes,
            cap_bytes: state.use_.cap_bytes,
        }
    }
}

impl<P> State<P> {
    fn take_kept(&mut self, class: u64) -> Option<P> {
        let pieces = self.free.get_mut(&class)?;
        let piece = pieces.pop()?;
        if pieces.is_empty() {
            self.free.remove(&class);
        }
        self.use_.cached_bytes -= class;
        self.use_.reused += 1;
        self.count_in(class);
        Some(piece)
    }

    fn count_in(&mut self, class: u64) {
        self.use_.allocations += 1;
        self.use_.in_use_bytes += class;
        self.use_.peak_bytes = self.use_.peak_bytes.max(self.use_.in_use_bytes);
    }

    /// Takes out kept pieces, largest first, until at most `keep_bytes` are kept.
    fn release_kept(&mut self, keep_bytes: u64) -> Vec<P> {
        let mut released = Vec::new();
        while self.use_.cached_bytes > keep_bytes {
            let Some(mut entry) = self.free.last_entry() else { break };
            let class = *entry.key();
            released.extend(entry.get_mut().pop());
            if entry.get().is_empty() {
                entry.remove();
            }
            self.use_.cached_bytes -= class;
        }
        released
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> Pool<u64> {
        Pool::new(DeviceSpec::CPU, 1 << 20)
    }

    #[test]
    fn classes_waste_at_most_a_quarter_and_are_their_own_class() {
        for bytes in (0..5_000).chain([1 << 20, (1 << 20) + 1, (1 << 40) - 1, 3 << 50]) {
            let class = Pool::<u64>::class_bytes(bytes);
            assert!(class >= bytes && class.is_multiple_of(64), "{bytes} -> {class}");
            assert!(class <= (bytes + bytes / 4).max(bytes + 64), "{bytes} -> {class}");
            assert_eq!(Pool::<u64>::class_bytes(class), class);
        }
        assert!(Pool::<u64>::class_bytes(u64::MAX) >= u64::MAX - 1024);
    }

    #[test]
    fn what_is_given_back_is_given_out_again() {
        let pool = pool();
        let piece = pool.take(1000, Some).unwrap();
        pool.give(piece, piece);
        pool.take(1000, |_| panic!("there is a kept piece")).unwrap();
        let now = pool.memory_use();
        assert_eq!((now.allocations, now.reused, now.cached_bytes), (2, 1, 0));
        assert_eq!((now.in_use_bytes, now.peak_bytes), (piece, piece));
    }

    #[test]
    fn the_cap_counts_what_is_in_use_and_kept_pieces_give_way() {
        let pool = pool();
        let half = pool.take(1 << 19, Some).unwrap();
        let other = pool.take(1 << 18, Some).unwrap();
        pool.give(other, other);
        assert!(matches!(
            pool.take((1 << 19) + 1, Some),
            Err(DeviceError::OutOfMemory { in_use_bytes, .. }) if in_use_bytes == half
        ));
        pool.take(1 << 19, Some).unwrap();
        assert_eq!(pool.memory_use().cached_bytes, 0);
        assert!(pool.take(usize::MAX as u64, Some).is_err());
    }

    #[test]
    fn a_failed_creation_counts_for_nothing() {
        let pool = pool();
        assert!(pool.take(64, |_| None).is_err());
        assert_eq!(pool.memory_use().in_use_bytes, 0);
    }
}
