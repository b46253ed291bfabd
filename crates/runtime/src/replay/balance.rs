//! Whether idle lanes take ops of busy ones.

use std::collections::HashSet;

use syncline_plan::ExecutionPlan;

use super::error::LoadError;
use super::load::LoadedPlan;
use super::route::routes;
use super::steal::Board;
use super::threads::When;

/// Whether lanes that have nothing to do take ready ops of others of their device.
///
/// It balances bodies that take longer or shorter than was declared. It costs about a hundred nanoseconds an op: for
/// short bodies the plan's own order is faster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Steal {
    /// If the bodies are long enough to make up for it, by the costs that the plan was made from, declared or measured.
    #[default]
    Auto,
    /// Always, where a device has several lanes.
    On,
    /// Never: every op runs on its lane, in its order.
    Off,
}

/// Bodies of this length make up for what stealing costs.
const WORTH_NS: u64 = 3_000;

impl Steal {
    /// Whether idle lanes of `plan` take ops of busy ones, if all its lanes are threads.
    pub fn applies_to(self, plan: &ExecutionPlan) -> bool {
        Board::can_steal(plan) && self.is_worth_it(plan)
    }

    fn is_worth_it(self, plan: &ExecutionPlan) -> bool {
        match self {
            Steal::On => true,
            Steal::Off => false,
            Steal::Auto => {
                let costs = plan.ops().iter().map(|op| op.end_ns - op.start_ns);
                let total = costs.fold(0, u64::saturating_add);
                total / (plan.ops().len() as u64).max(1) >= WORTH_NS
            }
        }
    }
}

impl LoadedPlan {
    /// Decides by the plan alone, before the first run.
    pub(super) fn balance(&mut self, steal: Steal) -> Result<(), LoadError> {
        // Ops that wait for a device, or are awaited by one, stay on their lanes.
        match self.device_lanes.is_none() && steal.applies_to(&self.plan) {
            true => self.set_board(),
            false => Ok(()),
        }
    }

    fn set_board(&mut self) -> Result<(), LoadError> {
        let deps = self.plan.op_deps();
        if self.verify {
            self.plan.check_deps(&deps)?;
        }
        let board = Board::new(&self.plan, &deps, self.last_run);
        for lane in 0..self.plan.lanes().len() {
            if lane != self.own_lane && board.is_useful(lane) {
                self.threads.ensure(lane, When::Always, self.last_run + 1)?;
            }
        }
        self.shared.set_board(board);
        Ok(())
    }

    /// Makes lanes wait for what they must see of the run before, when no run is under way.
    pub(super) fn route_between_runs(&mut self) -> Result<(), LoadError> {
        let waits = self.plan.run_waits(&self.plan.op_deps());
        if self.verify {
            self.plan.check_runs(&waits)?;
        }
        for (lane, route) in
            self.shared.lanes.iter().zip(routes(&self.plan, Some(&waits), &HashSet::new()))
        {
            // SAFETY: `&mut self`, and the caller has waited for all runs.
            unsafe { lane.set_route(route) };
        }
        Ok(())
    }
}
