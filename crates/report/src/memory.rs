//! Memory over time: how much was in use, when it was most, and by which buffers.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::RunRecord;

/// One device or arena.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceUse {
    /// Its name.
    pub name: String,
    /// The most bytes in use at one time.
    pub peak_bytes: u64,
    /// When that was first so.
    pub peak_ns: u64,
    /// Positions of its buffers in [`RunRecord::memory`], by start.
    pub buffers: Vec<u32>,
    /// For each of [`PlaceUse::buffers`] a row in which no other is drawn at the same time.
    pub rows: Vec<u32>,
}

/// Every place that held a buffer, by name.
pub(crate) fn places(run: &RunRecord) -> Vec<PlaceUse> {
    let mut by_name: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for (position, one) in (0u32..).zip(&run.memory) {
        by_name.entry(&one.place).or_default().push(position);
    }
    by_name.into_iter().map(|(name, buffers)| place(run, name, buffers)).collect()
}

fn place(run: &RunRecord, name: &str, mut buffers: Vec<u32>) -> PlaceUse {
    buffers.sort_by_key(|&one| (run.memory[one as usize].start_ns, one));
    let (peak_bytes, peak_ns) = peak(run, &buffers);
    let rows = rows(run, &buffers);
    PlaceUse { name: name.to_owned(), peak_bytes, peak_ns, buffers, rows }
}

/// A buffer that is released when another is needed does not count together with it.
fn peak(run: &RunRecord, buffers: &[u32]) -> (u64, u64) {
    let mut events: Vec<(u64, bool, u64)> = Vec::with_capacity(buffers.len() * 2);
    for one in buffers.iter().map(|&one| &run.memory[one as usize]) {
        if one.start_ns < one.end_ns {
            events.push((one.start_ns, true, one.bytes));
            events.push((one.end_ns, false, one.bytes));
        }
    }
    events.sort_unstable();
    let (mut live, mut peak) = (0u128, (0u128, 0));
    for (at_ns, starts, bytes) in events {
        if starts {
            live += u128::from(bytes);
        } else {
            live -= u128::from(bytes);
        }
        if live > peak.0 {
            peak = (live, at_ns);
        }
    }
    (u64::try_from(peak.0).unwrap_or(u64::MAX), peak.1)
}

/// The lowest free row for each buffer in turn.
fn rows(run: &RunRecord, buffers: &[u32]) -> Vec<u32> {
    let mut used: BinaryHeap<Reverse<(u64, u32)>> = BinaryHeap::new();
    let mut free: BinaryHeap<Reverse<u32>> = BinaryHeap::new();
    let mut count = 0;
    let mut rows = Vec::with_capacity(buffers.len());
    for one in buffers.iter().map(|&one| &run.memory[one as usize]) {
        while let Some(&Reverse((end_ns, row))) = used.peek() {
            if end_ns > one.start_ns {
                break;
            }
            used.pop();
            free.push(Reverse(row));
        }
        let row = free.pop().map_or_else(
            || {
                count += 1;
                count - 1
            },
            |Reverse(row)| row,
        );
        used.push(Reverse((one.end_ns, row)));
        rows.push(row);
    }
    rows
}
