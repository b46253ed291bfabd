//! Ops in submission order, each on the lane where it can start first.

use super::{LaneChoice, Schedule, ready_on};
use crate::compile::lower::Lowered;
use crate::machine::Machine;

pub(crate) fn run(lowered: &Lowered, machine: &Machine) -> Schedule {
    let choice = LaneChoice::new(machine);
    let mut schedule = Schedule::new(choice.lanes, lowered.len());
    let mut free = vec![0u64; choice.lanes];
    for op in 0..lowered.len() {
        let start_on =
            |lane: usize| free[lane].max(ready_on(lowered, &schedule, op, lane, machine.sync_ns()));
        let lanes = choice.of(lowered, op);
        let (start, lane) =
            lanes.map(|lane| (start_on(lane), lane)).min().expect("every device has a lane");
        free[lane] = schedule.put(op, lane, start, lowered.costs_ns[op]);
    }
    schedule
}
