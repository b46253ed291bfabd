//! Remnants: what writes through other views have left of the accesses through a view.
//!
//! A plain write has waited for all that came to its bytes before. What it shares with an older
//! access is its own from then on; the older access is remembered for the rest only, as a remnant
//! of its view: disjoint regions and the generations of accesses to them. A remnant of which no
//! byte is left is gone.
//!
//! Regions that cannot be cut exactly, or only into very many parts, stay as they are, which shows
//! more than is needed: every access that is remembered did touch these bytes.

use syncline_tensor::Region;

use super::entries::{Chunks, Entry, Mode};
use super::live::Liveness;
use super::node::Generations;
use crate::OverlapStats;

/// No remnant: the end of a list.
pub(super) const NONE: u32 = u32::MAX;

/// A view has at most so many remnants; what it holds then stays whole.
const REMNANTS_MAX: usize = 8;

/// A remnant has at most so many parts.
const PARTS_MAX: usize = 16;

/// With more parts than this, neighbours are joined.
const PARTS_FEW: usize = 16;

#[derive(Debug)]
pub(super) struct Remnant {
    pub(super) held: Generations,
    /// The first of its parts.
    parts: u32,
    next: u32,
}

/// The parts of all remnants, in one list for each.
#[derive(Debug)]
struct Parts {
    all: Vec<(Region, u32)>,
    free: u32,
}

impl Parts {
    fn list(&self, first: u32) -> impl Iterator<Item = &Region> + '_ {
        let mut at = first;
        std::iter::from_fn(move || {
            let (part, next) = self.all.get(at as usize)?;
            at = *next;
            Some(part)
        })
    }

    /// Puts `parts` in the place of the list `first`.
    fn replace(&mut self, first: &mut u32, parts: &[Region]) {
        let mut at = std::mem::replace(first, NONE);
        while let Some((_, next)) = self.all.get_mut(at as usize) {
            let after = std::mem::replace(next, self.free);
            self.free = at;
            at = after;
        }
        for part in parts {
            let at = self.free;
            match self.all.get_mut(at as usize) {
                Some(vacant) => {
                    self.free = vacant.1;
                    *vacant = (*part, *first);
                    *first = at;
                }
                None => {
                    self.all.push((*part, *first));
                    *first = self.all.len() as u32 - 1;
                }
            }
        }
    }

    /// Cuts `by` out of the list `first`, by way of `left`. Returns `true` if something is left.
    fn cut(
        &mut self,
        first: &mut u32,
        by: &Region,
        left: &mut Vec<Region>,
        overlap: &mut OverlapStats,
    ) -> bool {
        left.clear();
        let mut changed = false;
        for part in self.list(*first) {
            if !overlap.test(part, by) {
                left.push(*part);
            } else if part.without(by, left) {
                changed = true;
            } else {
                overlap.uncut += 1;
                left.push(*part);
            }
        }
        if changed {
            if left.len() > PARTS_FEW {
                join(left);
            }
            match left.len() > PARTS_MAX {
                true => overlap.uncut += 1,
                false => self.replace(first, left),
            }
        }
        !left.is_empty()
    }
}

/// Puts together what lies side by side.
fn join(parts: &mut Vec<Region>) {
    let mut at = 0;
    while at < parts.len() {
        let joined = (at + 1..parts.len())
            .find_map(|other| parts[at].joined(&parts[other]).map(|joined| (other, joined)));
        match joined {
            Some((other, joined)) => {
                parts.swap_remove(other);
                parts[at] = joined;
            }
            None => at += 1,
        }
    }
}

/// The remnants of all views, in one list for each.
#[derive(Debug)]
pub(super) struct Remnants {
    all: Vec<Remnant>,
    free: u32,
    count: usize,
    parts: Parts,
    /// Scratch: the parts left of a remnant.
    left: Vec<Region>,
}

impl Default for Remnants {
    fn default() -> Self {
        let parts = Parts { all: Vec::new(), free: NONE };
        Self { all: Vec::new(), free: NONE, count: 0, parts, left: Vec::new() }
    }
}

/// The remembered accesses through a view, for other accesses to change.
pub(super) struct Held<'a> {
    /// The accesses to all of it, the bytes of which are `region`.
    pub(super) whole: &'a mut Generations,
    pub(super) region: &'a Region,
    /// The list of its remnants.
    pub(super) first: &'a mut u32,
}

impl Remnants {
    fn list(&self, first: u32) -> impl Iterator<Item = &Remnant> + '_ {
        let mut at = first;
        std::iter::from_fn(move || {
            let remnant = self.all.get(at as usize)?;
            at = remnant.next;
            Some(remnant)
        })
    }

    /// Returns `true` if no view has remnants.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the number of accesses that the list `first` remembers.
    pub(super) fn entries(&self, first: u32) -> usize {
        self.list(first).map(|remnant| remnant.held.entries()).sum()
    }

    /// Returns the remnants of the list `first` that share a byte with `region`, if one is given.
    pub(super) fn touched<'a>(
        &'a self,
        first: u32,
        region: Option<&'a Region>,
        overlap: &'a mut OverlapStats,
    ) -> impl Iterator<Item = &'a Generations> + 'a {
        let touched = move |remnant: &&Remnant| {
            region.is_none_or(|region| {
                self.parts.list(remnant.parts).any(|part| overlap.test(part, region))
            })
        };
        self.list(first).filter(touched).map(|remnant| &remnant.held)
    }

    /// Returns the remnants of the list `first`, with their bytes.
    pub(super) fn all(&self, first: u32) -> impl Iterator<Item = (&Generations, Vec<Region>)> + '_ {
        let parts = |remnant: &Remnant| self.parts.list(remnant.parts).copied().collect();
        self.list(first).map(move |remnant| (&remnant.held, parts(remnant)))
    }

    /// Keeps the remnants of the list `first` that `keep` returns `true` for.
    fn retain(
        &mut self,
        first: &mut u32,
        chunks: &mut Chunks,
        mut keep: impl FnMut(&mut Remnant, &mut Parts, &mut Vec<Region>, &mut Chunks) -> bool,
    ) {
        let (mut before, mut at) = (NONE, *first);
        while let Some(remnant) = self.all.get_mut(at as usize) {
            let next = remnant.next;
            if keep(remnant, &mut self.parts, &mut self.left, chunks) {
                before = at;
            } else {
                remnant.held.clear(chunks);
                self.parts.replace(&mut remnant.parts, &[]);
                remnant.next = self.free;
                self.free = at;
                self.count -= 1;
                match self.all.get_mut(before as usize) {
                    Some(before) => before.next = next,
                    None => *first = next,
                }
            }
            at = next;
        }
    }

    /// Forgets the remnants of the list `first`.
    pub(super) fn clear(&mut self, first: &mut u32, chunks: &mut Chunks) {
        self.retain(first, chunks, |_, _, _, _| false);
    }

    /// Forgets the accesses of retired tasks.
    pub(super) fn forget_retired(&mut self, first: &mut u32, chunks: &mut Chunks, live: &Liveness) {
        self.retain(first, chunks, |remnant, _, _, chunks| {
            remnant.held.forget_retired(chunks, live)
        });
    }

    /// Remembers an access through the view that the list `first` belongs to.
    pub(super) fn succeed(
        &mut self,
        first: &mut u32,
        entry: Entry,
        chunks: &mut Chunks,
        live: &Liveness,
    ) {
        self.retain(first, chunks, |remnant, _, _, chunks| {
            remnant.held.succeed(entry, chunks, live)
        });
    }

    /// Leaves a mark at the remnants of the list `first`.
    pub(super) fn mark(&mut self, first: u32, mut mark: impl FnMut(&mut Generations)) {
        let mut at = first;
        while let Some(remnant) = self.all.get_mut(at as usize) {
            mark(&mut remnant.held);
            at = remnant.next;
        }
    }

    /// Cuts `by`, the bytes of a plain write, out of all that is remembered of a view.
    pub(super) fn cut(
        &mut self,
        Held { whole, region, first }: Held<'_>,
        by: &Region,
        chunks: &mut Chunks,
        live: &Liveness,
        overlap: &mut OverlapStats,
    ) {
        let mut count = 0;
        self.retain(first, chunks, |remnant, parts, left, chunks| {
            count += 1;
            remnant.held.mark_write(Mode::Write);
            remnant.held.forget_retired(chunks, live)
                && parts.cut(&mut remnant.parts, by, left, overlap)
        });
        if !whole.forget_retired(chunks, live) {
            return;
        }
        whole.mark_write(Mode::Write);
        self.left.clear();
        if count >= REMNANTS_MAX
            || !region.without(by, &mut self.left)
            || self.left.len() > PARTS_MAX
        {
            overlap.uncut += 1;
        } else if self.left.is_empty() {
            whole.clear(chunks);
        } else {
            let mut remnant = Remnant { held: whole.take(), parts: NONE, next: *first };
            self.parts.replace(&mut remnant.parts, &self.left);
            *first = self.free;
            self.count += 1;
            match self.all.get_mut(*first as usize) {
                Some(vacant) => {
                    self.free = vacant.next;
                    *vacant = remnant;
                }
                None => {
                    *first = self.all.len() as u32;
                    self.all.push(remnant);
                }
            }
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.all.capacity() * size_of::<Remnant>()
            + self.parts.all.capacity() * size_of::<(Region, u32)>()
            + self.left.capacity() * size_of::<Region>()
    }
}
