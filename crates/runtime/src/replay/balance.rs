//! Whether idle lanes take ops of busy ones.

use syncline_plan::{ExecutionPlan, OpDeps, RunWaits};

use super::error::LoadError;
use super::load::LoadedPlan;
use super::route::routes;
use super::steal::Board;

/// Whether lanes that have nothing to do take ready ops of others of their device.
///
/// It balances bodies that take longer or shorter than was declared. It costs about a hundred
/// nanoseconds an op: for short bodies the plan's own order is faster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Steal {
    /// If the bodies are long enough to make up for it, by the costs that the plan was made from,
    /// declared or measured.
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

    /// What lanes that steal go by, checked if the options say so.
    fn checked_deps(&self, deps: OpDeps) -> Result<OpDeps, LoadError> {
        if self.verify {
            self.plan.check_deps(&deps)?;
        }
        Ok(deps)
    }

    /// What runs that overlap go by, checked if the options say so.
    fn checked_waits(&self, waits: RunWaits) -> Result<RunWaits, LoadError> {
        if self.verify {
            self.plan.check_runs(&waits)?;
        }
        Ok(waits)
    }

    fn set_board(&mut self) -> Result<(), LoadError> {
        let deps = self.checked_deps(self.plan.op_deps())?;
        let board = Board::new(&self.plan, &deps, self.last_run);
        self.shared.set_board(board);
        self.give_up_own_lane();
        Ok(())
    }

    /// Makes lanes wait for what they must see of the run before, when no run is under way.
    pub(super) fn route_between_runs(&mut self) -> Result<(), LoadError> {
        let waits = self.checked_waits(self.plan.run_waits(&self.plan.op_deps()))?;
        for (lane, route) in
            self.shared.lanes.iter().zip(routes(&self.plan, Some(&waits), |_| false))
        {
            // SAFETY: `&mut self`, and the caller has waited for all runs.
            unsafe { lane.set_route(route) };
        }
        Ok(())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::Arc;

    use syncline_device::cpu::CpuDevice;
    use syncline_plan::{BufferSpec, CompileOptions, Machine, TaskGraph, TaskSpec};
    use syncline_tensor::{Arg, View};

    use super::*;
    use crate::replay::{LoadOptions, TaskBody};

    /// A word that goes from one of two lanes to the other and back: every dep and wait is needed.
    fn load(verify: bool) -> LoadedPlan {
        let mut graph = TaskGraph::new();
        let buffers = ["a", "b"].map(|name| graph.add_buffer(BufferSpec::external(name, 8)));
        let [a, b] = buffers.map(Result::unwrap);
        let all = View::bytes_at(0, 8).unwrap();
        for (from, to) in [(a, b), (a, b), (b, a)] {
            let args = [Arg::input(from, all), Arg::inout(to, all)];
            graph.submit(&TaskSpec::new("k", &args)).unwrap();
        }
        let c = graph.add_buffer(BufferSpec::external("c", 8)).unwrap();
        let args = [Arg::inout(c, all)];
        graph.submit(&TaskSpec::new("first", &args)).unwrap();
        let args = [Arg::input(c, all), Arg::inout(a, all)];
        graph.submit(&TaskSpec::new("last", &args)).unwrap();
        let plan = ExecutionPlan::compile(&graph, &Machine::cpu(2), &CompileOptions::default());
        let options = LoadOptions::default().with_verify(verify);
        let devices = [CpuDevice::open_default().unwrap()];
        let body = |_: syncline_plan::TaskInfo<'_>, _| Some(TaskBody::new(|_| ()));
        LoadedPlan::load_with(Arc::new(plan.unwrap()), &devices, body, options).unwrap()
    }

    #[test]
    fn what_lanes_go_by_is_checked_where_options_say_so() {
        for verify in [false, true] {
            let loaded = load(verify);
            let deps = loaded.plan.op_deps();
            let waits = loaded.plan.run_waits(&deps);
            assert!(!deps.all().is_empty() && !waits.all().is_empty());
            loaded.checked_deps(deps.clone()).unwrap();
            loaded.checked_waits(waits.clone()).unwrap();
            let refused = loaded.checked_waits(waits.without(0)).err();
            assert_eq!(refused.is_some(), verify, "{refused:?}");
            let is_refused = |at: usize| loaded.checked_deps(deps.without(at)).is_err();
            assert_eq!((0..deps.all().len()).any(is_refused), verify);
        }
    }

    /// Whatever the options say: it was not made by the compiler, nor read from a file.
    #[test]
    fn a_plan_that_lacks_a_wait_is_refused() {
        let plan = Arc::clone(load(false).plan());
        assert!(!plan.waits().is_empty());
        let devices = [CpuDevice::open_default().unwrap()];
        for verify in [false, true] {
            let body = |_: syncline_plan::TaskInfo<'_>, _| Some(TaskBody::new(|_| ()));
            let options = LoadOptions::default().with_verify(verify);
            let plan = Arc::new(plan.without_wait(0));
            let error = LoadedPlan::load_with(plan, &devices, body, options).unwrap_err();
            assert!(matches!(error, LoadError::Unsafe(_)), "{error}");
        }
    }
}
