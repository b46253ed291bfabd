//! Order: which op runs when and on which lane.

mod serial;
mod simulate;

use super::lower::Lowered;
use super::machine_lanes;
use crate::machine::{DeviceIndex, Machine};
use crate::plan::{LaneIndex, LaneKind, OpKind};

/// Where and when every op runs.
#[derive(Debug)]
pub(crate) struct Schedule {
    pub lanes: Vec<LaneIndex>,
    /// Place among the ops of its lane.
    pub positions: Vec<u32>,
    pub lane_counts: Vec<u32>,
    pub starts: Vec<u64>,
    pub ends: Vec<u64>,
    /// All ops; none comes before one that it depends on, and the ops of a lane come in its order.
    pub sequence: Vec<u32>,
}

impl Schedule {
    fn new(lanes: usize, ops: usize) -> Self {
        Self {
            lanes: vec![LaneIndex(0); ops],
            positions: vec![0; ops],
            lane_counts: vec![0; lanes],
            starts: vec![0; ops],
            ends: vec![0; ops],
            sequence: Vec::with_capacity(ops),
        }
    }

    /// Appends `op` to `lane`, from `start` to the returned end.
    fn put(&mut self, op: usize, lane: usize, start: u64, cost_ns: u64) -> u64 {
        self.lanes[op] = LaneIndex(lane as u16);
        self.positions[op] = self.lane_counts[lane];
        self.lane_counts[lane] += 1;
        self.starts[op] = start;
        self.ends[op] = start.saturating_add(cost_ns);
        self.sequence.push(op as u32);
        self.ends[op]
    }
}

/// Longest way to the end first: the order that is done soonest.
pub(crate) fn by_critical_path(lowered: &Lowered, machine: &Machine) -> Schedule {
    simulate::run(lowered, machine, &ranks(lowered))
}

/// First submitted first: the order that keeps the fewest temporaries alive.
pub(crate) fn by_submission(lowered: &Lowered, machine: &Machine) -> Schedule {
    serial::run(lowered, machine)
}

/// For each op the cost of the longest path that begins with it.
fn ranks(lowered: &Lowered) -> Vec<u64> {
    let mut ranks = lowered.costs_ns.clone();
    for op in (0..lowered.len()).rev() {
        for &pred in lowered.preds_of(op) {
            let through = ranks[op].saturating_add(lowered.costs_ns[pred as usize]);
            ranks[pred as usize] = ranks[pred as usize].max(through);
        }
    }
    ranks
}

/// For each device and kind of op, the lanes it may go to.
struct LaneChoice {
    lanes: usize,
    tasks: Vec<std::ops::Range<usize>>,
    copies: Vec<std::ops::Range<usize>>,
}

impl LaneChoice {
    fn new(machine: &Machine) -> Self {
        let lanes = machine_lanes(machine);
        let range = |device: usize, kind: LaneKind| {
            let wanted = (DeviceIndex(device as u16), kind);
            let start = lanes.iter().position(|&lane| lane == wanted);
            let count = lanes.iter().filter(|&&lane| lane == wanted).count();
            start.map(|start| start..start + count)
        };
        let devices = 0..machine.devices().len();
        let tasks: Vec<_> = (devices.clone())
            .map(|device| range(device, LaneKind::Compute).expect("every device has one"))
            .collect();
        let copies = devices
            .map(|device| range(device, LaneKind::Copy).unwrap_or_else(|| tasks[device].clone()))
            .collect();
        Self { lanes: lanes.len(), tasks, copies }
    }

    fn of(&self, lowered: &Lowered, op: usize) -> std::ops::Range<usize> {
        let device = lowered.devices[op].index();
        let lanes = match lowered.kinds[op] {
            OpKind::Task(_) => self.tasks[device].clone(),
            OpKind::Copy(_) => self.copies[device].clone(),
        };
        match lowered.pinned[op] {
            Some(number) => {
                let lane = lanes.start + usize::from(number) % lanes.len();
                lane..lane + 1
            }
            None => lanes,
        }
    }
}

/// When `op` could start on `lane`, as far as its predecessors go.
fn ready_on(lowered: &Lowered, schedule: &Schedule, op: usize, lane: usize, sync_ns: u64) -> u64 {
    (lowered.preds_of(op).iter())
        .map(|&pred| {
            let apart = schedule.lanes[pred as usize].index() != lane;
            let end = schedule.ends[pred as usize];
            end.saturating_add(if apart { sync_ns } else { 0 })
        })
        .max()
        .unwrap_or(0)
}
