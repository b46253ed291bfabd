//! Lists of predecessors turned round.

use std::ops::Range;

/// For every op the ops that list it among their predecessors.
#[derive(Debug)]
pub(crate) struct Successors {
    starts: Vec<u32>,
    succs: Vec<u32>,
}

impl Successors {
    /// Of ops `0..count`, given what each comes after.
    pub(crate) fn new<Preds: Iterator<Item = u32>>(
        count: usize,
        preds_of: impl Fn(u32) -> Preds,
    ) -> Self {
        let mut starts = vec![0u32; count + 1];
        for op in 0..count as u32 {
            preds_of(op).for_each(|pred| starts[pred as usize + 1] += 1);
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut next = starts.clone();
        let mut succs = vec![0u32; starts[count] as usize];
        for op in 0..count as u32 {
            for pred in preds_of(op) {
                let at = &mut next[pred as usize];
                succs[*at as usize] = op;
                *at += 1;
            }
        }
        Self { starts, succs }
    }

    /// The places of `op`'s successors, for [`Successors::at`]: walking by places leaves the walker
    /// free to change.
    pub(crate) fn places(&self, op: u32) -> Range<usize> {
        self.starts[op as usize] as usize..self.starts[op as usize + 1] as usize
    }

    /// The successor at a place.
    pub(crate) fn at(&self, place: usize) -> u32 {
        self.succs[place]
    }
}
