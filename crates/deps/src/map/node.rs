//! Nodes: the remembered accesses through one view.
//!
//! A node has up to three generations: the *writers*, one plain writer or the members of one group;
//! the *readers* that came after them; and, while a group can still grow, those *before* it, for
//! which later members wait too. Each generation has waited for all of the one before, so that
//! waiting for the newest is waiting for all.
//!
//! Accesses through other views that overlap this one are remembered at their own nodes. Plain
//! writes among them cut the accesses here down to the bytes that are left, see
//! [`remnants`](super::remnants). The others leave marks, which say that an older generation can no
//! longer be the only thing to wait for; without them, lists would grow with every access as long
//! as no single write covers the view.
//!
//! Tasks of manual scopes have waited for nothing: they lie beside the generations, and only a
//! plain write that covers them, and so has waited for them, removes them.

use std::ops::ControlFlow;

use syncline_tensor::{Access, TaskId};

use super::entries::{Chunks, Entry, List, Mode};
use super::live::Liveness;
use super::table::Key;
use crate::EdgeKinds;

/// The view has a zero stride: it may not be written.
pub(super) const BROADCAST: u16 = 1;
/// Other views overlap this one; they are listed.
pub(super) const LINKED: u16 = 2;
/// Too many other views overlap this one to list them: they are searched for each time.
pub(super) const WIDE: u16 = 4;
/// The view has been written: reads through other views come here.
pub(super) const WRITTEN: u16 = 64;
/// A task has brought the buffer into being.
pub(super) const CREATED: u16 = 128;
/// Other accesses have left remnants of accesses through the view.
pub(super) const CUT: u16 = 256;
/// The view has been used once: the views that overlap it are not listed here, nor is it listed at
/// others like it.
pub(super) const FRESH: u16 = 512;
/// Accesses through the view concern other nodes, or remnants.
pub(super) const AROUND: u16 = LINKED | WIDE | CUT | FRESH;
/// An overlapping write came after all present readers: the next reader, which waits for that
/// write, replaces them.
const READERS_STALE: u16 = 8;
/// An access that conflicts with the present group came after all its members: the next member,
/// which waits for that access, replaces them.
const GROUP_STALE: u16 = 16;
/// A reader that covers this view came after the writers: a task that writes here waits for the
/// reader, and need not wait for them.
const WRITERS_READ: u16 = 32;
const MARKS: u16 = READERS_STALE | GROUP_STALE | WRITERS_READ;

/// A generation of accesses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Newest {
    Writers,
    Readers,
    /// Those before the group, because the access joins it.
    Before,
    /// None here: a reader elsewhere stands for them.
    Nothing,
}

/// The remembered accesses through one view of one buffer.
///
/// In three cache lines: the key, the members that every visit reads, and the readers.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Node {
    pub(super) key: Key,
    /// The last call that this view was resolved in.
    pub(super) epoch: u64,
    /// The accesses of which nothing has been cut off.
    pub(super) held: Generations,
}

const _: () = assert!(size_of::<Node>() == 3 * 64);

impl Node {
    pub(super) const fn new(key: Key, buffer: u32, flags: u16, epoch: u64) -> Self {
        Self { key, epoch, held: Generations::new(buffer, flags) }
    }

    /// Returns `true` if neither the view nor a remnant of it remembers an access.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.held.flags & CUT == 0 && self.held.is_empty()
    }
}

/// Accesses to the same bytes: all bytes of a view, or the bytes of a remnant.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Generations {
    /// The place of the buffer in the map.
    pub(super) buffer: u32,
    pub(super) flags: u16,
    writers: List<1>,
    /// Those before the present group, and those of manual scopes.
    beside: List<0>,
    readers: List<3>,
}

impl Generations {
    const fn new(buffer: u32, flags: u16) -> Self {
        let (writers, beside, readers) = (List::new(), List::new(), List::new());
        Self { buffer, flags, writers, beside, readers }
    }

    /// Moves all accesses, with their marks, out of here.
    pub(super) fn take(&mut self) -> Self {
        let emptied = Self::new(self.buffer, self.flags & !MARKS);
        let mut taken = std::mem::replace(self, emptied);
        taken.flags &= MARKS;
        taken
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.writers.is_empty() && self.readers.is_empty() && self.beside.is_empty()
    }

    /// Says whether there are remnants of accesses through the view.
    #[inline]
    pub(super) fn note_cut(&mut self, cut: bool) {
        self.flags = if cut { self.flags | CUT } else { self.flags & !CUT };
    }

    /// Returns the plain writer, which has waited for everything that came to these bytes before
    /// it.
    #[inline]
    pub(super) fn plain_writer(&self) -> Option<TaskId> {
        self.writers.first().filter(|entry| entry.mode() == Mode::Write).map(|entry| entry.task)
    }

    /// Returns `true` if an access that is remembered came after `task`.
    #[inline]
    pub(super) fn is_used_since(&self, task: TaskId) -> bool {
        let since = |entry: Option<&Entry>| entry.is_some_and(|entry| entry.task > task);
        since(self.readers.first()) || since(self.writers.first())
    }

    /// Returns `true` if the present readers or writers, or the last ones, began after `task`.
    #[inline]
    pub(super) fn has_come_since(&self, task: TaskId) -> bool {
        self.readers.last_begun().max(self.writers.last_begun()) > task
    }

    /// Takes note, in a remnant, of an access through its view. The access came after the write
    /// that has cut the remnant off, and is remembered for the whole view. Returns `true` if the
    /// remnant still remembers an access.
    pub(super) fn succeed(&mut self, entry: Entry, chunks: &mut Chunks, live: &Liveness) -> bool {
        match entry.mode() {
            Mode::Read => {
                // The reader has waited for the group, and that for those before it.
                self.readers.clear(chunks);
                self.beside.retain(chunks, Entry::is_manual);
                self.mark_read(true);
                !self.is_empty()
            }
            Mode::Write => {
                self.clear(chunks);
                false
            }
            // The members since are remembered for the whole view too.
            Mode::Commutative | Mode::Reduce => {
                self.record_member(entry, chunks, live);
                if self.beside.is_empty() {
                    self.clear(chunks);
                }
                !self.is_empty()
            }
        }
    }

    /// Appends the accesses to `all`. Returns `false`, and may have appended some, if there are
    /// others than plain reads and writes of auto scopes.
    pub(super) fn append_plain(&self, chunks: &Chunks, all: &mut Vec<Entry>) -> bool {
        let mut append = |entry: &Entry| -> ControlFlow<()> {
            all.push(*entry);
            ControlFlow::Continue(())
        };
        let _ = self.writers.visit(chunks, &mut append);
        let _ = self.readers.visit(chunks, &mut append);
        self.beside.is_empty() && self.group().is_none()
    }

    pub(super) fn entries(&self) -> usize {
        self.writers.len() + self.readers.len() + self.beside.len()
    }

    /// Returns the group that the writers form, if they do.
    #[inline]
    fn group(&self) -> Option<Mode> {
        self.writers.first().map(|entry| entry.mode()).filter(|mode| mode.is_grouped())
    }

    /// Returns the entries that an access of `mode` overlapping these bytes must come after: the
    /// slice and, unless the flag says that these are all, what [`Generations::more_waits`] shows.
    #[inline]
    pub(super) fn waits(&self, mode: Mode) -> (&[Entry], bool) {
        let (entries, all) = match self.newest(mode) {
            Newest::Writers => self.writers.in_place(),
            Newest::Readers => self.readers.in_place(),
            Newest::Before | Newest::Nothing => (&[][..], true),
        };
        (entries, all && self.beside.is_empty())
    }

    /// Shows the entries that [`Generations::waits`] has left out.
    pub(super) fn more_waits<B>(
        &self,
        mode: Mode,
        chunks: &Chunks,
        mut show: impl FnMut(&Entry) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let newest = self.newest(mode);
        match newest {
            Newest::Writers => self.writers.visit_chain(chunks, &mut show)?,
            Newest::Readers => self.readers.visit_chain(chunks, &mut show)?,
            Newest::Before | Newest::Nothing => {}
        }
        self.beside.visit(chunks, |entry| {
            let waited_for = match entry.is_manual() {
                true => conflict(entry.mode(), mode),
                false => newest == Newest::Before,
            };
            if waited_for { show(entry) } else { ControlFlow::Continue(()) }
        })
    }

    /// Returns the newest generation that an access of `mode` has to wait for.
    #[inline]
    fn newest(&self, mode: Mode) -> Newest {
        if mode == Mode::Read {
            Newest::Writers
        } else if !self.readers.is_empty() {
            Newest::Readers
        } else if mode.is_grouped() && self.group() == Some(mode) {
            Newest::Before
        } else if self.flags & WRITERS_READ == 0 {
            Newest::Writers
        } else {
            Newest::Nothing
        }
    }

    /// Remembers an access through this very view by a task that has waited for what
    /// [`Generations::waits`] shows.
    #[inline]
    pub(super) fn record(&mut self, entry: Entry, chunks: &mut Chunks, live: &Liveness) {
        match entry.mode() {
            Mode::Read => {
                if self.flags & READERS_STALE != 0 {
                    self.readers.clear(chunks);
                    self.flags &= !READERS_STALE;
                }
                self.readers.push(entry, chunks, live);
            }
            Mode::Write => {
                self.clear(chunks);
                self.writers.push(entry, chunks, live);
            }
            Mode::Commutative | Mode::Reduce => self.record_member(entry, chunks, live),
        }
    }

    fn record_member(&mut self, entry: Entry, chunks: &mut Chunks, live: &Liveness) {
        if self.group() == Some(entry.mode()) && self.readers.is_empty() {
            // Those before the group stay: a member elsewhere may overlap this view and not what
            // made it stale.
            if self.flags & GROUP_STALE != 0 {
                self.writers.clear(chunks);
                self.flags &= !(GROUP_STALE | WRITERS_READ);
            }
            self.writers.push(entry, chunks, live);
            return;
        }
        self.beside.retain(chunks, Entry::is_manual);
        let Self { writers, readers, beside, .. } = self;
        let mut before = |entry: &Entry, chunks: &mut Chunks| beside.push(*entry, chunks, live);
        match readers.is_empty() {
            true => writers.drain(chunks, &mut before),
            false => readers.drain(chunks, &mut before),
        }
        self.writers.clear(chunks);
        self.flags &= !MARKS;
        self.writers.push(entry, chunks, live);
    }

    /// Remembers an access by a task of a manual scope.
    pub(super) fn record_manual(&mut self, entry: Entry, chunks: &mut Chunks, live: &Liveness) {
        self.beside.push(entry, chunks, live);
    }

    /// Takes note of a read through another view that overlaps this one, and `covers` it or not.
    ///
    /// Marks are about accesses that are present: without any, none is left, because it would hold
    /// for the next generation.
    #[inline]
    pub(super) fn mark_read(&mut self, covers: bool) {
        if let Some(writer) = self.writers.first() {
            let read = if covers { WRITERS_READ } else { 0 };
            self.flags |= read | if writer.mode().is_grouped() { GROUP_STALE } else { 0 };
        }
    }

    /// Takes note of a write of any mode through another view that overlaps this one, and does not
    /// make it void.
    #[inline]
    pub(super) fn mark_write(&mut self, mode: Mode) {
        let mut marks = if self.readers.is_empty() { 0 } else { READERS_STALE };
        if let Some(writer) = self.writers.first() {
            let stale = writer.mode().is_grouped() && writer.mode() != mode;
            marks |= if stale { GROUP_STALE } else { 0 };
        }
        self.flags |= marks;
    }

    /// Forgets every access.
    #[inline]
    pub(super) fn clear(&mut self, chunks: &mut Chunks) {
        self.writers.clear(chunks);
        self.readers.clear(chunks);
        self.beside.clear(chunks);
        self.flags &= !MARKS;
    }

    /// Forgets the accesses of retired tasks; whether any other is left.
    pub(super) fn forget_retired(&mut self, chunks: &mut Chunks, live: &Liveness) -> bool {
        if live.is_untouched() {
            return !self.is_empty();
        }
        // A finished reader has waited for the writers, a finished member for those before its
        // group: when a generation is dropped as a whole, none that is left could be missed for it.
        self.writers.retain(chunks, |entry| live.is_live(entry.task));
        self.readers.retain(chunks, |entry| live.is_live(entry.task));
        self.beside.retain(chunks, |entry| live.is_live(entry.task));
        !self.is_empty()
    }
}

/// Returns `true` if accesses of these modes to the same bytes must be ordered.
#[inline]
fn conflict(earlier: Mode, later: Mode) -> bool {
    earlier != later || earlier == Mode::Write
}

/// Why an access must come after an access of each [`Mode`] to the same bytes: one byte a mode.
#[derive(Clone, Copy)]
pub(super) struct Hazards(u32);

impl Hazards {
    const BY_ACCESS: [Self; Access::ALL.len()] = {
        let mut table = [Self(0); Access::ALL.len()];
        let mut at = 0;
        while at < table.len() {
            table[Access::ALL[at] as usize] = Self(u32::from_le_bytes(hazards(Access::ALL[at])));
            at += 1;
        }
        table
    };

    #[inline]
    pub(super) fn of(access: Access) -> Self {
        Self::BY_ACCESS[access as usize]
    }

    #[inline]
    pub(super) fn after(self, earlier: Mode) -> EdgeKinds {
        EdgeKinds::from_bits((self.0 >> (8 * earlier as u32)) as u8)
    }
}

/// Returns the bits of the kinds of hazard between an `access` and an earlier one of each [`Mode`].
const fn hazards(access: Access) -> [u8; 4] {
    let (raw, war, waw) = (EdgeKinds::RAW, EdgeKinds::WAR, EdgeKinds::WAW);
    let group = EdgeKinds::COMMUTATIVE;
    let after_write = match (access.reads(), access.writes()) {
        (true, true) => raw.and(waw),
        (true, false) => raw,
        (false, _) => waw,
    };
    let after_group = after_write.and(group).bits();
    match access.is_grouped() {
        true => [war.and(group).bits(), after_group, after_group, after_group],
        false => [war.bits(), after_write.bits(), after_group, after_group],
    }
}
