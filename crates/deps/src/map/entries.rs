//! Entries: one remembered access each, in lists that are short almost always and long without
//! harm.

use std::ops::ControlFlow;

use syncline_tensor::{Access, TaskId};

use super::live::Liveness;
use super::node::Hazards;
use crate::merge::Packed;
use crate::{EdgeFlags, EdgeKinds};

/// How an entry's access conflicts with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Read,
    Write,
    Commutative,
    Reduce,
}

impl Mode {
    /// Returns the mode of `access`; one that orders nothing has none and is not asked about.
    #[inline]
    pub(crate) fn of(access: Access) -> Self {
        Self::from_bits(Entry::BY_ACCESS[access as usize] >> Entry::MODE_AT)
    }

    #[inline]
    fn from_bits(bits: u64) -> Self {
        // A look-up: as a `match` it becomes branches that follow no pattern.
        const MODES: [Mode; 4] = [Mode::Read, Mode::Write, Mode::Commutative, Mode::Reduce];
        MODES[(bits % 4) as usize]
    }

    #[inline]
    pub(crate) fn is_grouped(self) -> bool {
        matches!(self, Mode::Commutative | Mode::Reduce)
    }
}

/// One access of one task: two words, so that it travels in registers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) task: TaskId,
    /// From the lowest bit: flags, kinds, position of the argument, mode.
    bits: u64,
}

impl Entry {
    const NONE: Self = Self { task: TaskId::from_bits(0), bits: 0 };

    const KINDS_AT: u32 = 8;
    const ARG_AT: u32 = 16;
    const MODE_AT: u32 = 32;

    /// What depends on nothing but the access: a look-up instead of branches that follow no
    /// pattern.
    const BY_ACCESS: [u64; Access::ALL.len()] = {
        let mut table = [0; Access::ALL.len()];
        let mut at = 0;
        while at < table.len() {
            table[Access::ALL[at] as usize] = Self::bits_of(Access::ALL[at]);
            at += 1;
        }
        table
    };

    const fn bits_of(access: Access) -> u64 {
        let mode = match access {
            Access::Input | Access::NoDep => Mode::Read,
            Access::Output | Access::InOut | Access::OutputExisting => Mode::Write,
            Access::Commutative => Mode::Commutative,
            Access::Reduce => Mode::Reduce,
        };
        let (flags, kinds) = match access {
            Access::Output => (EdgeFlags::WAIT.and(EdgeFlags::RETAIN), EdgeKinds::CREATOR),
            _ => (EdgeFlags::WAIT, EdgeKinds::EMPTY),
        };
        (mode as u64) << Self::MODE_AT
            | (kinds.bits() as u64) << Self::KINDS_AT
            | flags.bits() as u64
    }

    /// Creates an `access` of argument `arg` by `task`.
    #[inline]
    pub(crate) fn new(task: TaskId, arg: u16, access: Access, manual: bool) -> Self {
        let barrier =
            if manual { u64::from(EdgeKinds::BARRIER.bits()) << Self::KINDS_AT } else { 0 };
        let bits = Self::BY_ACCESS[access as usize] | u64::from(arg) << Self::ARG_AT | barrier;
        Self { task, bits }
    }

    /// Returns the position of the argument.
    pub(crate) fn arg(self) -> u16 {
        (self.bits >> Self::ARG_AT) as u16
    }

    #[inline]
    pub(crate) fn mode(self) -> Mode {
        Mode::from_bits(self.bits >> Self::MODE_AT)
    }

    /// Returns the edge to this entry from argument `succ_arg` of the present task; `hazards` says
    /// why, by mode.
    #[inline]
    pub(crate) fn edge(self, succ_arg: u16, hazards: Hazards) -> Packed {
        // Flags, kinds and the argument lie where a packed edge has them.
        let own = self.bits & ((1 << Self::MODE_AT) - 1);
        let kinds = u64::from(hazards.after(self.mode()).bits()) << Self::KINDS_AT;
        Packed::between_args(self.task, own | kinds, succ_arg)
    }

    /// Returns `true` if the task belongs to a manual scope: it has waited for nothing that was
    /// here.
    #[inline]
    pub(crate) fn is_manual(&self) -> bool {
        EdgeKinds::from_bits((self.bits >> Self::KINDS_AT) as u8).contains(EdgeKinds::BARRIER)
    }
}

const NO_CHUNK: u32 = u32::MAX;
const CHUNK_ENTRIES: usize = 8;
/// A list this long is swept of retired tasks before it grows further.
const SWEEP_LENGTH: u32 = 16;

#[derive(Clone, Copy, Debug)]
struct Chunk {
    entries: [Entry; CHUNK_ENTRIES],
    next: u32,
}

/// The memory of all lists, beyond what they hold themselves.
#[derive(Debug)]
pub(crate) struct Chunks {
    chunks: Vec<Chunk>,
    free: u32,
    scratch: Vec<Entry>,
}

impl Default for Chunks {
    fn default() -> Self {
        Self { chunks: Vec::new(), free: NO_CHUNK, scratch: Vec::new() }
    }
}

impl Chunks {
    fn take(&mut self, next: u32) -> u32 {
        if self.free == NO_CHUNK {
            self.chunks.push(Chunk { entries: [Entry::NONE; CHUNK_ENTRIES], next });
            return self.chunks.len() as u32 - 1;
        }
        let chunk = self.free;
        self.free = self.chunks[chunk as usize].next;
        self.chunks[chunk as usize].next = next;
        chunk
    }

    fn give_back(&mut self, mut chunk: u32) {
        while chunk != NO_CHUNK {
            let next = self.chunks[chunk as usize].next;
            self.chunks[chunk as usize].next = self.free;
            self.free = chunk;
            chunk = next;
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.chunks.capacity() * size_of::<Chunk>() + self.scratch.capacity() * size_of::<Entry>()
    }
}

/// A list of entries, the first `N` of them in place.
#[derive(Debug)]
pub(crate) struct List<const N: usize> {
    inline: [Entry; N],
    len: u32,
    /// The newest chunk, the only one that may not be full.
    chain: u32,
    sweep_at: u32,
}

impl<const N: usize> List<N> {
    pub(crate) const fn new() -> Self {
        Self { inline: [Entry::NONE; N], len: 0, chain: NO_CHUNK, sweep_at: SWEEP_LENGTH }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns the entries held in place, and whether these are all.
    #[inline]
    pub(crate) fn in_place(&self) -> (&[Entry], bool) {
        (&self.inline[..(self.len as usize).min(N)], self.chain == NO_CHUNK)
    }

    /// Returns the task of the first entry, or of the last first one where there is none; the least
    /// task where there never was one.
    #[inline]
    pub(crate) fn last_begun(&self) -> TaskId {
        const { assert!(N > 0) };
        self.inline[0].task
    }

    /// Returns some entry.
    #[inline]
    pub(crate) fn first(&self) -> Option<&Entry> {
        self.inline[..(self.len as usize).min(N)].first()
    }

    #[inline]
    pub(crate) fn clear(&mut self, chunks: &mut Chunks) {
        self.len = 0;
        if self.chain != NO_CHUNK {
            self.clear_chain(chunks);
        }
    }

    #[inline(never)]
    fn clear_chain(&mut self, chunks: &mut Chunks) {
        chunks.give_back(self.chain);
        self.chain = NO_CHUNK;
        self.sweep_at = SWEEP_LENGTH;
    }

    #[inline]
    pub(crate) fn push(&mut self, entry: Entry, chunks: &mut Chunks, live: &Liveness) {
        match self.inline.get_mut(self.len as usize) {
            Some(place) => {
                *place = entry;
                self.len += 1;
            }
            None => self.push_chained(entry, chunks, live),
        }
    }

    #[inline(never)]
    fn push_chained(&mut self, entry: Entry, chunks: &mut Chunks, live: &Liveness) {
        let place = (self.len as usize - N) % CHUNK_ENTRIES;
        if place != 0 {
            chunks.chunks[self.chain as usize].entries[place] = entry;
            self.len += 1;
            return;
        }
        if self.len >= self.sweep_at {
            self.retain(chunks, |entry| live.is_live(entry.task));
            // Doubling makes the sweeps cost a constant for each entry ever pushed.
            self.sweep_at = (2 * self.len).max(SWEEP_LENGTH);
        }
        self.push_anywhere(entry, chunks);
    }

    fn push_anywhere(&mut self, entry: Entry, chunks: &mut Chunks) {
        match self.inline.get_mut(self.len as usize) {
            Some(place) => *place = entry,
            None => {
                let place = (self.len as usize - N) % CHUNK_ENTRIES;
                if place == 0 {
                    self.chain = chunks.take(self.chain);
                }
                chunks.chunks[self.chain as usize].entries[place] = entry;
            }
        }
        self.len += 1;
    }

    /// Keeps the entries that `keep` is true of.
    pub(crate) fn retain(&mut self, chunks: &mut Chunks, mut keep: impl FnMut(&Entry) -> bool) {
        if self.chain == NO_CHUNK {
            let mut kept = 0;
            for at in 0..self.len as usize {
                let entry = self.inline[at];
                if keep(&entry) {
                    self.inline[kept] = entry;
                    kept += 1;
                }
            }
            self.len = kept as u32;
            return;
        }
        let mut kept = std::mem::take(&mut chunks.scratch);
        kept.clear();
        let _ = self.visit::<()>(chunks, |entry| {
            if keep(entry) {
                kept.push(*entry);
            }
            ControlFlow::Continue(())
        });
        if kept.len() < self.len() {
            self.clear(chunks);
            for entry in &kept {
                self.push_anywhere(*entry, chunks);
            }
        }
        chunks.scratch = kept;
    }

    /// Shows every entry to `visitor`, and leaves the list empty.
    pub(crate) fn drain(
        &mut self,
        chunks: &mut Chunks,
        visitor: &mut impl FnMut(&Entry, &mut Chunks),
    ) {
        let mut taken = std::mem::take(&mut chunks.scratch);
        taken.clear();
        let _ = self.visit::<()>(chunks, |entry| {
            taken.push(*entry);
            ControlFlow::Continue(())
        });
        self.clear(chunks);
        // The scratch list is lent out while the visitor runs: a sweep in between takes a new one.
        for entry in &taken {
            visitor(entry, chunks);
        }
        chunks.scratch = taken;
    }

    /// Shows every entry to `visitor` until it breaks off.
    pub(crate) fn visit<B>(
        &self,
        chunks: &Chunks,
        mut visitor: impl FnMut(&Entry) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        for entry in self.in_place().0 {
            visitor(entry)?;
        }
        self.visit_chain(chunks, visitor)
    }

    /// Shows the entries that are not held in place.
    pub(crate) fn visit_chain<B>(
        &self,
        chunks: &Chunks,
        mut visitor: impl FnMut(&Entry) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let mut filled = (self.len as usize).wrapping_sub(N + 1) % CHUNK_ENTRIES + 1;
        let mut chunk = self.chain;
        while chunk != NO_CHUNK {
            let Chunk { entries, next } = &chunks.chunks[chunk as usize];
            for entry in &entries[..filled] {
                visitor(entry)?;
            }
            (chunk, filled) = (*next, CHUNK_ENTRIES);
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(sequence: u64) -> Entry {
        Entry { task: TaskId::new(0, sequence), ..Entry::NONE }
    }

    fn sequences<const N: usize>(list: &List<N>, chunks: &Chunks) -> Vec<u64> {
        let mut seen = Vec::new();
        let _ = list.visit::<()>(chunks, |entry| {
            seen.push(entry.task.sequence());
            ControlFlow::Continue(())
        });
        seen.sort_unstable();
        seen
    }

    #[test]
    fn a_list_holds_what_was_pushed_at_any_length() {
        let (mut chunks, live) = (Chunks::default(), Liveness::default());
        let mut list = List::<3>::new();
        for length in 0..60 {
            assert_eq!(sequences(&list, &chunks), (0..length).collect::<Vec<_>>());
            list.push(entry(length), &mut chunks, &live);
        }
        list.clear(&mut chunks);
        assert!(list.is_empty() && sequences(&list, &chunks).is_empty());
        let held = chunks.chunks.len();
        for sequence in 0..60 {
            list.push(entry(sequence), &mut chunks, &live);
        }
        assert_eq!(chunks.chunks.len(), held, "chunks are used again");
    }

    #[test]
    fn retired_tasks_leave_a_list_before_it_grows() {
        let (mut chunks, mut live) = (Chunks::default(), Liveness::default());
        let mut list = List::<1>::new();
        for sequence in 0..10_000 {
            list.push(entry(sequence), &mut chunks, &live);
            live.retire(TaskId::new(0, sequence));
        }
        assert!(list.len() <= 32 && chunks.chunks.len() < 8, "{} entries", list.len());
    }
}
