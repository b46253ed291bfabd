//! The board: what the PEs of a group share, laid out in one region.
//!
//! A header, a record for each member, a queue for each ordered pair of PEs, and the slots of each
//! PE. All-zero memory is a board on which nothing has happened yet; everything on it is atomic, so
//! that a process may die at any instruction and leave it readable.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use syncline_sync::{AcrossProcesses, EventCount};

use super::failure::{RECORD_WORDS, Shape};
use super::region::{PAGE, Region, pages};
use super::{Failure, Ticket};

/// "SYNCLINE" and the version of this layout.
const MAGIC: u64 = u64::from_le_bytes(*b"SYNCLIN2");

/// What stands there before.
const IN_THE_MAKING: u64 = u64::from_le_bytes(*b"SYNCLIN0");

/// How far a board in a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BoardState {
    InTheMaking,
    Complete,
    /// Of a layout that this version does not know.
    OtherVersion,
}

/// The start of the board.
#[repr(C, align(128))]
pub(crate) struct BoardHeader {
    magic: AtomicU64,
    size: AtomicU64,
    depth: AtomicU64,
    slot_bytes: AtomicU64,
    /// The one word on which a group agrees: refits committed, and who reported the failure.
    verdict: AtomicU64,
    /// First byte of the file that no window has been given.
    pub end: AtomicU64,
    /// Counts changes of the members and other recoveries.
    recoveries: AtomicU64,
    /// One more than the rank of the PE that clears up after a failure; 0 if none does.
    clearing: AtomicU32,
}

/// One PE's record.
#[repr(C, align(128))]
pub(crate) struct Member {
    pub state: AtomicU32,
    pub pid: AtomicU32,
    /// The process namespace in which `pid` means something; 0 if unknown.
    pub namespace: AtomicU64,
    /// Moves when something has happened that this PE may wait for.
    pub event: EventCount<AcrossProcesses>,
    /// The last refit that this PE has entered.
    pub entered: AtomicU64,
    /// The last refit in which this PE has done its part.
    pub done: AtomicU64,
    /// The recovery that this PE is ready for.
    pub recovering: AtomicU64,
    ticket: [AtomicU64; 6],
    failure: [AtomicU64; RECORD_WORDS],
}

/// A member that has not joined.
pub(crate) const ABSENT: u32 = 0;
/// A member that takes part.
pub(crate) const JOINED: u32 = 1;
/// A member that has left in order.
pub(crate) const LEFT: u32 = 2;

/// A member of before: the others go on without it.
pub(crate) const GONE: u32 = 3;

/// A slot that holds no message.
pub(crate) const FREE: u32 = 0;
/// A slot that holds a message, until its receiver has read it.
pub(crate) const FULL: u32 = 1;
/// A slot that its owner is filling.
pub(crate) const CLAIMED: u32 = 2;

/// The queue of messages from one PE to another.
#[repr(C, align(64))]
pub(crate) struct Pair {
    /// Messages sent; written by the sender only.
    pub sent: AtomicU64,
    /// Messages that the receiver has claimed; written and read by the receiver only.
    pub taken: AtomicU64,
}

/// A message in a queue.
#[repr(C, align(32))]
pub(crate) struct Entry {
    pub slot: AtomicU32,
    pub checksum: AtomicU32,
    pub bytes: AtomicU64,
    pub tag: AtomicU64,
}

/// Where the parts of a board lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    shape: Shape,
    members: usize,
    busy: usize,
    pairs: usize,
    pair_bytes: usize,
    slots: usize,
    /// Bytes of the whole board.
    pub bytes: usize,
}

impl Layout {
    /// The layout for a group of this shape, or `None` if it exceeds the address space.
    pub(crate) fn new(shape: Shape) -> Option<Self> {
        let Shape { size, depth, slot_bytes } = shape;
        let members = size_of::<BoardHeader>();
        // One more record than PEs: where a stranger that fails the group says why.
        let busy = size_of::<Member>().checked_mul(size.checked_add(1)?)?.checked_add(members)?;
        let busy_bytes = size.checked_mul(depth)?.checked_mul(size_of::<AtomicU32>())?;
        let pairs = busy.checked_add(busy_bytes)?.checked_next_multiple_of(64)?;
        let pair_bytes = (size_of::<Entry>().checked_mul(depth)?)
            .checked_add(size_of::<Pair>())?
            .checked_next_multiple_of(64)?;
        let pairs_bytes = size.checked_mul(size)?.checked_mul(pair_bytes)?;
        let slots = pairs.checked_add(pairs_bytes)?.checked_next_multiple_of(PAGE)?;
        let slot_stride = slot_bytes.checked_next_multiple_of(PAGE)?;
        let slots_bytes = size.checked_mul(depth)?.checked_mul(slot_stride)?;
        let bytes = slots.checked_add(slots_bytes)?;
        (bytes <= isize::MAX as usize).then_some(Self {
            shape,
            members,
            busy,
            pairs,
            pair_bytes,
            slots,
            bytes,
        })
    }
}

/// A board in this process's address space.
#[derive(Clone, Debug)]
pub(crate) struct Board {
    region: Arc<Region>,
    layout: Layout,
}

impl Board {
    /// The board of this layout in `region`.
    pub(crate) fn new(region: Arc<Region>, layout: Layout) -> Self {
        assert!(region.bytes() >= layout.bytes, "{} for {}", region.bytes(), layout.bytes);
        Self { region, layout }
    }

    /// Writes the parameters on a board that nobody takes for one yet.
    pub(crate) fn initialise(&self) {
        let Shape { size, depth, slot_bytes } = self.layout.shape;
        let header = self.header();
        header.size.store(size as u64, Ordering::Relaxed);
        header.depth.store(depth as u64, Ordering::Relaxed);
        header.slot_bytes.store(slot_bytes as u64, Ordering::Relaxed);
        header.end.store(pages(self.layout.bytes) as u64, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
    }

    /// Says in a new file that a board is being made there.
    pub(crate) fn announce(file: &File) -> rustix::io::Result<()> {
        rustix::io::pwrite(file, &IN_THE_MAKING.to_ne_bytes(), 0).map(|_| ())
    }

    /// How far the board in `file` is, if there is one.
    pub(crate) fn state(file: &File) -> Option<BoardState> {
        let mut magic = [0; 8];
        file.read_exact_at(&mut magic, 0).ok()?;
        match u64::from_ne_bytes(magic) {
            MAGIC => Some(BoardState::Complete),
            IN_THE_MAKING => Some(BoardState::InTheMaking),
            other => {
                let is_ours = other.to_le_bytes().starts_with(&MAGIC.to_le_bytes()[..7]);
                is_ours.then_some(BoardState::OtherVersion)
            }
        }
    }

    /// The parameters that the creator of the board at the start of `region` wrote, if it is one.
    pub(crate) fn shape_in(region: &Region) -> Option<Shape> {
        assert!(region.bytes() >= size_of::<BoardHeader>());
        // SAFETY: the region is long enough, page-aligned, and lives as long as the reference;
        // every field is atomic, so that other processes may write meanwhile.
        let header = unsafe { &*region.start().cast::<BoardHeader>() };
        if header.magic.load(Ordering::Acquire) != MAGIC {
            return None;
        }
        Some(Shape {
            size: header.size.load(Ordering::Relaxed) as usize,
            depth: header.depth.load(Ordering::Relaxed) as usize,
            slot_bytes: header.slot_bytes.load(Ordering::Relaxed) as usize,
        })
    }

    /// Bytes of its region, which is whole pages.
    pub(crate) fn bytes(&self) -> u64 {
        pages(self.layout.bytes) as u64
    }

    /// The group's parameters.
    pub(crate) fn shape(&self) -> Shape {
        self.layout.shape
    }

    /// The part of the board at `offset`.
    fn part<T>(&self, offset: usize) -> &T {
        assert!(offset + size_of::<T>() <= self.layout.bytes);
        // SAFETY: within the region, which outlives the reference; the layout aligns every part,
        // and each consists of atomics only, for which any bits are valid.
        unsafe { &*self.region.start().add(offset).cast::<T>() }
    }

    /// The start of the board.
    pub(crate) fn header(&self) -> &BoardHeader {
        self.part(0)
    }

    /// The record of PE `rank`.
    pub(crate) fn member(&self, rank: usize) -> &Member {
        assert!(rank <= self.layout.shape.size, "PE {rank} of {}", self.layout.shape.size);
        self.part(self.layout.members + rank * size_of::<Member>())
    }

    /// Whose record a process uses that is not part of the group.
    pub(crate) fn stranger(&self) -> usize {
        self.layout.shape.size
    }

    /// Every PE's record.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Member> {
        (0..self.layout.shape.size).map(|rank| self.member(rank))
    }

    /// The state of slot `slot` of `rank`: [`FREE`], [`CLAIMED`] or [`FULL`].
    pub(crate) fn busy(&self, rank: usize, slot: usize) -> &AtomicU32 {
        assert!(rank < self.layout.shape.size && slot < self.layout.shape.depth);
        let index = rank * self.layout.shape.depth + slot;
        self.part(self.layout.busy + index * size_of::<AtomicU32>())
    }

    fn pair_offset(&self, from: usize, to: usize) -> usize {
        assert!(from < self.layout.shape.size && to < self.layout.shape.size);
        self.layout.pairs + (from * self.layout.shape.size + to) * self.layout.pair_bytes
    }

    /// The queue from one PE to another.
    pub(crate) fn pair(&self, from: usize, to: usize) -> &Pair {
        self.part(self.pair_offset(from, to))
    }

    /// The place of message `index` in that queue. A sender has no more than `depth` messages under
    /// way, so that a place is free again before its turn comes.
    pub(crate) fn entry(&self, from: usize, to: usize, index: u64) -> &Entry {
        let place = (index % self.layout.shape.depth as u64) as usize;
        self.part(self.pair_offset(from, to) + size_of::<Pair>() + place * size_of::<Entry>())
    }

    /// The first byte of a slot.
    pub(crate) fn slot(&self, rank: usize, slot: usize) -> *mut u8 {
        assert!(rank < self.layout.shape.size && slot < self.layout.shape.depth);
        let index = rank * self.layout.shape.depth + slot;
        let offset = self.layout.slots + index * pages(self.layout.shape.slot_bytes);
        // SAFETY: the slots end with the board, within the region.
        unsafe { self.region.start().add(offset) }
    }

    /// Keeps the board mapped.
    pub(crate) fn keep(&self) -> Arc<Region> {
        self.region.clone()
    }

    /// Wakes every PE.
    pub(crate) fn wake_all(&self) {
        self.members().for_each(|member| member.event.wake_all());
    }

    /// Refits committed so far, and the failure if there is one.
    pub(crate) fn verdict(&self) -> (u64, Option<Failure>) {
        // Acquire: whoever sees a failure sees its record; whoever sees a commit sees the data.
        let word = self.header().verdict.load(Ordering::Acquire);
        let reporter = (word & 0xffff) as usize;
        let failure = (reporter > 0).then(|| {
            let rank = reporter - 1;
            if rank > self.stranger() {
                let message =
                    "is named by a damaged verdict, and is no PE of this group".to_owned();
                return Failure::Local { rank, message };
            }
            let record = &self.member(rank).failure;
            Failure::decode(&std::array::from_fn(|word| record[word].load(Ordering::Relaxed)))
        });
        (word >> 16, failure)
    }

    /// Commits refit `epoch` unless the group has failed; the first to see every PE done does it.
    pub(crate) fn commit(&self, epoch: u64) {
        let (before, after) = (epoch.wrapping_sub(1) << 16, epoch << 16);
        let verdict = &self.header().verdict;
        if verdict.compare_exchange(before, after, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            self.wake_all();
        }
    }

    /// Fails the group on behalf of `rank` unless it has failed already.
    pub(crate) fn fail(&self, rank: usize, failure: &Failure) {
        self.fail_before(u64::MAX, rank, failure);
    }

    /// The same unless refit `before` is committed, which then needs no failure.
    ///
    /// One word holds commits and failure, so that no PE can see a refit committed that another
    /// sees failed.
    pub(crate) fn fail_before(&self, before: u64, rank: usize, failure: &Failure) {
        let verdict = &self.header().verdict;
        let mut word = verdict.load(Ordering::Acquire);
        let is_open = |word: u64| word & 0xffff == 0 && word >> 16 < before;
        if !is_open(word) {
            return;
        }
        for (place, value) in self.member(rank).failure.iter().zip(failure.encode()) {
            place.store(value, Ordering::Relaxed);
        }
        while is_open(word) {
            let failed = word | (rank as u64 + 1);
            match verdict.compare_exchange(word, failed, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return self.wake_all(),
                Err(now) => word = now,
            }
        }
    }
}

/// Recovery after a failure: what the PEs that are left do to go on.
impl Board {
    /// Recoveries so far.
    pub(crate) fn recoveries(&self) -> u64 {
        self.header().recoveries.load(Ordering::Acquire)
    }

    /// The PE that clears up, if one does.
    pub(crate) fn clearer(&self) -> Option<usize> {
        (self.header().clearing.load(Ordering::Acquire) as usize).checked_sub(1)
    }

    /// Takes over clearing up from `before`, which has died, if there is one. Returns `true`
    /// if `rank` is the one to do it.
    pub(crate) fn start_clearing(&self, before: Option<usize>, rank: usize) -> bool {
        let before = before.map_or(0, |before| before as u32 + 1);
        let clearing = &self.header().clearing;
        let after = rank as u32 + 1;
        clearing.compare_exchange(before, after, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Gives up clearing, which another has done.
    pub(crate) fn stop_clearing(&self) {
        self.header().clearing.store(0, Ordering::Release);
        self.wake_all();
    }

    /// Clears what a failed refit has left, and lets the group go on without the members that
    /// `is_lost` names. Doing it again from any point on gives the same.
    ///
    /// The caller is the one that clears, and every other member that is left waits for it.
    pub(crate) fn clear(&self, is_lost: impl Fn(usize) -> bool, recovery: u64) {
        let Shape { size, depth, .. } = self.layout.shape;
        let header = self.header();
        let committed = header.verdict.load(Ordering::Acquire) >> 16;
        for rank in 0..size {
            let member = self.member(rank);
            if is_lost(rank) {
                member.state.store(GONE, Ordering::Release);
            }
            member.entered.store(committed, Ordering::Relaxed);
            member.done.store(committed, Ordering::Relaxed);
            (0..depth).for_each(|slot| self.busy(rank, slot).store(FREE, Ordering::Relaxed));
            for peer in 0..size {
                let pair = self.pair(rank, peer);
                pair.taken.store(0, Ordering::Relaxed);
                pair.sent.store(0, Ordering::Relaxed);
            }
        }
        header.verdict.store(committed << 16, Ordering::Release);
        // Release: a PE that sees the count sees all of the above.
        header.recoveries.store(recovery, Ordering::Release);
        header.clearing.store(0, Ordering::Release);
        self.wake_all();
    }
}

impl Member {
    /// Publishes what this PE announces; visible to whoever sees `entered` stored after it.
    pub(crate) fn set_ticket(&self, ticket: Ticket) {
        for (place, word) in self.ticket.iter().zip(ticket.to_words()) {
            place.store(word, Ordering::Relaxed);
        }
    }

    /// What this PE announced.
    pub(crate) fn ticket(&self) -> Ticket {
        let words = std::array::from_fn(|place| self.ticket[place].load(Ordering::Relaxed));
        Ticket::from_words(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_sizes_and_verdicts_are_refused() {
        let shape = |size| Shape { size, depth: 1, slot_bytes: 64 };
        assert!(Layout::new(shape(usize::MAX)).is_none());
        let layout = Layout::new(shape(2)).unwrap();
        let board = Board::new(Arc::new(Region::anonymous(layout.bytes).unwrap()), layout);
        board.initialise();
        assert_eq!(board.verdict(), (0, None));
        // Two PEs and the stranger can report a failure.
        for reporter in [4, 0xffff] {
            board.header().verdict.store(reporter, Ordering::Release);
            let (_, failure) = board.verdict();
            assert!(failure.unwrap().to_string().contains("damaged verdict"));
        }
    }
}
