//! What a program would take on a machine that is not here: planned as a run plans it, with times
//! that are computed.

use std::sync::Arc;

use syncline_device::{Backend, DeviceSpec};
use syncline_plan::{CompileOptions, ExecutionPlan, Machine, OpCost, OpKind};
use syncline_runtime::replay::{OpTime, Steal};

use crate::choices::Choices;
use crate::error::ProgramRunError;
use crate::intermediates::Keep;
use crate::machine_form::SimulatedMachine;
use crate::overheads::Overheads;
use crate::planned::{collect, refused};
use crate::program::Program;
use crate::recorded::Recorded;
use crate::run::ProgramRun;

impl Program {
    /// What a run on `machine` would take: lanes, times and copies of the plan, and no contents.
    ///
    /// The plan is the one that a run would make there: from what kernels took on average in the
    /// run that the trace records, if it was timed, or else from what their signatures make one
    /// guess. In it tasks then take what each of them took, and so does what passes between them.
    pub fn simulate(&self, machine: &SimulatedMachine) -> Result<ProgramRun, ProgramRunError> {
        let recorded = Recorded::of(self);
        let simulated = machine;
        let machine = match simulated.sync_ns {
            Some(ns) => simulated.machine.clone().with_sync_ns(ns),
            None => simulated.machine.clone(),
        };
        let is_inner = self.intermediates(&Keep::Results(Vec::new()));
        let expected_ns = |task: usize| recorded.expected_ns[task];
        let graph = self.graph_with(
            &machine,
            &Choices::on_machine(self, &machine)?,
            &is_inner,
            expected_ns,
        )?;
        let plan = ExecutionPlan::compile(&graph, &machine, &CompileOptions::default());
        let plan = Arc::new(plan.map_err(refused)?);
        let deps = steals(&machine, &plan).then(|| plan.op_deps());
        let overheads = simulated.overheads_of(self, deps.is_some());
        let cost = |op: &syncline_plan::Op| match op.kind {
            OpKind::Copy(_) => OpCost {
                body_ns: op.end_ns - op.start_ns,
                dispatch_ns: overheads.dispatch_ns.unwrap_or(0),
                sync_ns: overheads.sync_ns.unwrap_or(machine.sync_ns()),
            },
            OpKind::Task(task) => {
                let device = &machine.devices()[plan.device_of(task).index()];
                let ns = recorded.costs_ns[task.index()];
                OpCost {
                    body_ns: (ns.saturating_mul(device.cost_permille.into()) / 1000).max(1),
                    dispatch_ns: overheads.dispatch_before(task.index()).unwrap_or(0),
                    sync_ns: overheads.sync_before(task.index()).unwrap_or(machine.sync_ns()),
                }
            }
        };
        let costs: Vec<OpCost> = plan.ops().iter().map(cost).collect();
        let forecast = plan.forecast(&costs, overheads.wake_ns.unwrap_or(0), deps.as_ref());
        let time =
            |op: &syncline_plan::Forecast| OpTime { start_ns: op.start_ns, end_ns: op.end_ns };
        let times: Vec<OpTime> = forecast.iter().map(time).collect();
        let ran_on: Vec<_> = forecast.iter().map(|op| op.lane).collect();
        Ok(ProgramRun { steals: deps.is_some(), ..collect(&plan, &times, &ran_on, Vec::new()) })
    }
}

impl SimulatedMachine {
    /// What passes besides the tasks: what the machine's file says, and else what passed in the
    /// recorded run.
    fn overheads_of(&self, program: &Program, steal: bool) -> Overheads {
        let is_said = self.sync_ns.and(self.dispatch_ns).and(self.wake_ns).is_some();
        let learnt = match is_said {
            true => Overheads::default(),
            false => Overheads::of(program.trace(), steal),
        };
        learnt.unless_said(self.dispatch_ns, self.sync_ns, self.wake_ns)
    }
}

/// Whether idle lanes would take ops of busy ones.
fn steals(machine: &Machine, plan: &ExecutionPlan) -> bool {
    let is_cpu =
        |name: &str| name.parse::<DeviceSpec>().is_ok_and(|device| device.backend == Backend::Cpu);
    machine.devices().iter().all(|device| is_cpu(&device.name)) && Steal::Auto.applies_to(plan)
}
