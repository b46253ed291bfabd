//! Merging: one edge for each predecessor, whatever number of reasons it has.

use syncline_tensor::TaskId;

use crate::{Edge, EdgeFlags, EdgeKinds};

/// Up to this many edges are simply searched.
const FEW: usize = 16;

/// The edges of the task that is being submitted.
#[derive(Debug, Default)]
pub(crate) struct EdgeMerger {
    /// The edges, as long as they are few.
    few: [Packed; FEW],
    /// All edges, as soon as they are more.
    many: Vec<Packed>,
    len: usize,
    /// Positions in `many` by predecessor. Slots with an old stamp are vacant, so that nothing
    /// needs clearing between tasks.
    slots: Vec<Slot>,
    stamp: u64,
    /// The edge after the one found last: arguments that share predecessors mostly find them in the
    /// same order.
    guess: usize,
    /// A bit for the end of every predecessor's number: where it is not set, the predecessor is not
    /// among the few.
    seen: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    stamp: u64,
    edge: u32,
}

/// An edge in two words, which stay in registers where an [`Edge`] of small fields is put together
/// in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed {
    pub(crate) pred: TaskId,
    /// From the lowest bit: flags, kinds, the arguments, and whether there are any.
    bits: u64,
}

impl Default for Packed {
    fn default() -> Self {
        Self { pred: TaskId::from_bits(0), bits: 0 }
    }
}

impl Packed {
    const SET_BITS: u64 = 0xffff;
    const PRED_ARG: u64 = 1 << 48;
    const SUCC_ARG: u64 = 1 << 49;

    /// Returns an edge whose lower half is in `bits`, from argument `succ_arg`.
    #[inline]
    pub(crate) fn between_args(pred: TaskId, bits: u64, succ_arg: u16) -> Self {
        let args = u64::from(succ_arg) << 32 | Self::PRED_ARG | Self::SUCC_ARG;
        Self { pred, bits: bits | args }
    }

    #[inline]
    pub(crate) fn of(edge: Edge) -> Self {
        let arg = |arg: Option<u16>, at: u32, there: u64| match arg {
            Some(arg) => u64::from(arg) << at | there,
            None => 0,
        };
        let sets = u64::from(edge.flags.bits()) | u64::from(edge.kinds.bits()) << 8;
        let args = arg(edge.pred_arg, 16, Self::PRED_ARG) | arg(edge.succ_arg, 32, Self::SUCC_ARG);
        Self { pred: edge.pred, bits: sets | args }
    }

    #[inline]
    pub(crate) fn flags(self) -> EdgeFlags {
        EdgeFlags::from_bits(self.bits as u8)
    }

    #[inline]
    pub(crate) fn edge(self) -> Edge {
        let arg =
            |at: u32, there: u64| (self.bits & there != 0).then_some((self.bits >> at) as u16);
        Edge {
            pred: self.pred,
            flags: self.flags(),
            kinds: EdgeKinds::from_bits((self.bits >> 8) as u8),
            pred_arg: arg(16, Self::PRED_ARG),
            succ_arg: arg(32, Self::SUCC_ARG),
        }
    }

    #[inline]
    fn merge(&mut self, edge: Self) {
        // An explicit dependency has no arguments of its own to name.
        let args = self.bits & Self::PRED_ARG == 0;
        let (sets, args) = match args {
            true => (self.bits & Self::SET_BITS, edge.bits),
            false => (self.bits, edge.bits & Self::SET_BITS),
        };
        self.bits = sets | args;
    }
}

impl EdgeMerger {
    /// Begins a new task.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.len = 0;
        self.stamp += 1;
        self.guess = 0;
        self.seen = 0;
    }

    /// Adds an edge, or its flags and kinds to the one that there is.
    #[inline]
    pub(crate) fn add(&mut self, edge: Packed) {
        let bit = 1 << (edge.pred.to_bits() % 64);
        match self.few.get_mut(self.len) {
            Some(place) if self.seen & bit == 0 => {
                *place = edge;
                self.len += 1;
                self.seen |= bit;
            }
            _ => self.add_seen(edge),
        }
    }

    /// Adds an edge whose predecessor may be known.
    #[inline(never)]
    fn add_seen(&mut self, edge: Packed) {
        if self.len <= FEW
            && self.guess < self.len
            && let Some(known) = self.few.get_mut(self.guess)
            && known.pred == edge.pred
        {
            self.guess += 1;
            return known.merge(edge);
        }
        self.add_unguessed(edge);
    }

    #[inline(never)]
    fn add_unguessed(&mut self, edge: Packed) {
        if self.len > FEW {
            return self.add_to_many(edge);
        }
        for (at, known) in self.few[..self.len].iter_mut().enumerate() {
            if known.pred == edge.pred {
                self.guess = at + 1;
                return known.merge(edge);
            }
        }
        match self.few.get_mut(self.len) {
            Some(place) => {
                *place = edge;
                self.len += 1;
            }
            None => {
                self.many.clear();
                self.many.extend_from_slice(&self.few);
                self.fill_slots();
                self.add_to_many(edge);
            }
        }
    }

    /// Returns the edges, each predecessor once, in the order they were found.
    #[inline]
    pub(crate) fn edges(&self) -> &[Packed] {
        self.few.get(..self.len).unwrap_or(&self.many)
    }

    fn add_to_many(&mut self, edge: Packed) {
        if 2 * self.many.len() >= self.slots.len() {
            self.fill_slots();
        }
        let at = self.slot_of(edge.pred);
        let slot = &mut self.slots[at];
        if slot.stamp == self.stamp {
            return self.many[slot.edge as usize].merge(edge);
        }
        *slot = Slot { stamp: self.stamp, edge: self.many.len() as u32 };
        self.many.push(edge);
        self.len = self.many.len();
    }

    /// Returns the slot of `pred`, or the vacant one where it belongs.
    fn slot_of(&self, pred: TaskId) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = (pred.to_bits().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot.stamp != self.stamp || self.many[slot.edge as usize].pred == pred {
                return at;
            }
            at = (at + 1) & mask;
        }
    }

    #[cold]
    fn fill_slots(&mut self) {
        let wanted = (4 * self.many.len()).next_power_of_two().max(64);
        if wanted > self.slots.len() {
            self.slots.clear();
            self.slots.resize(wanted, Slot::default());
        }
        for edge in 0..self.many.len() {
            let at = self.slot_of(self.many[edge].pred);
            self.slots[at] = Slot { stamp: self.stamp, edge: edge as u32 };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use syncline_testing::for_seeds;

    use super::*;

    #[test]
    fn every_predecessor_comes_once_with_all_its_kinds() {
        let mut merger = EdgeMerger::default();
        for_seeds("every_predecessor_comes_once_with_all_its_kinds", 200, |rng| {
            let (preds, edges) = (rng.range(1..3000), rng.range(0..2000));
            let mut expected = BTreeMap::new();
            merger.begin();
            for at in 0..edges {
                let pred = TaskId::new(0, rng.range(0..preds));
                let kinds = *rng.pick(&[EdgeKinds::RAW, EdgeKinds::WAR, EdgeKinds::WAW]);
                let flags = *rng.pick(&[EdgeFlags::WAIT, EdgeFlags::RETAIN]);
                let args = (!rng.one_in(2)).then_some((at as u16, u16::MAX - at as u16));
                let (pred_arg, succ_arg) = args.unzip();
                let edge = Edge { pred, flags, kinds, pred_arg, succ_arg };
                merger.add(Packed::of(edge));
                let known = expected.entry(pred).or_insert(edge);
                known.flags |= flags;
                known.kinds |= kinds;
                if known.pred_arg.is_none() {
                    (known.pred_arg, known.succ_arg) = (pred_arg, succ_arg);
                }
            }
            let edges = merger.edges().iter().map(|edge| edge.edge());
            let found: BTreeMap<_, _> = edges.map(|edge| (edge.pred, edge)).collect();
            assert_eq!(merger.edges().len(), found.len());
            assert_eq!(found, expected);
        });
    }
}
