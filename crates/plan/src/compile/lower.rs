//! The graph with its copies and memories: the input of ordering, layout and reduction.

use crate::machine::DeviceIndex;
use crate::plan::{Copy, Memory, MemoryIndex, OpKind};

/// Ops in an order in which every one comes after all that it depends on.
#[derive(Debug, Default)]
pub(crate) struct Lowered {
    pub kinds: Vec<OpKind>,
    pub devices: Vec<DeviceIndex>,
    pub costs_ns: Vec<u64>,
    pub priorities: Vec<i32>,
    /// The lane, counted among those of its device and kind, that an op must run on.
    pub pinned: Vec<Option<u16>>,
    /// Where each op's predecessors end in `preds`.
    pub preds_end: Vec<u32>,
    pub preds: Vec<u32>,
    pub copies: Vec<Copy>,
    pub memories: Vec<Memory>,
    /// Parallel to the graph's arguments.
    pub arg_memories: Vec<MemoryIndex>,
    pub task_devices: Vec<DeviceIndex>,
}

impl Lowered {
    pub(crate) fn len(&self) -> usize {
        self.kinds.len()
    }

    /// What `op` depends on.
    #[inline]
    pub(crate) fn preds_of(&self, op: usize) -> &[u32] {
        let start = if op == 0 { 0 } else { self.preds_end[op - 1] };
        &self.preds[start as usize..self.preds_end[op] as usize]
    }
}
