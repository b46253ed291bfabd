//! What a program would take on a machine that is not here: the same plan, with times that are computed.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Deserialize;
use syncline_plan::{CompileOptions, DeviceModel, ExecutionPlan, Link, Machine, OpKind};
use syncline_runtime::replay::OpTime;

use crate::choices::Choices;
use crate::error::RunError;
use crate::intermediates::Keep;
use crate::overheads::Overheads;
use crate::planned::{collect, refused};
use crate::program::Program;
use crate::run::Run;

/// A machine as people describe it, in TOML.
///
/// ```
/// let machine = syncline_program::machine_from_toml(r#"
///     sync_ns = 200
///     [[device]]
///     name = "cpu:0"
///     lanes = 16
///     [[device]]
///     name = "cuda:0"
///     lanes = 1
///     speed = 40.0
///     memory_bytes = 80_000_000_000
///     [[link]]
///     from = "cpu:0"
///     to = "cuda:0"
///     gb_per_s = 25.0
///     latency_ns = 10_000
/// "#)?;
/// assert_eq!(machine.machine.devices()[1].cost_permille, 25);
/// # Ok::<(), syncline_program::RunError>(())
/// ```
///
/// `sync_ns` is what a wait between lanes costs, `dispatch_ns` what passes on a lane between two tasks. Where the file
/// does not say, a simulation uses what passed in the run that the trace records.
pub fn machine_from_toml(text: &str) -> Result<SimulatedMachine, RunError> {
    let form: MachineForm = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start.min(text.len()));
        let line = text.get(..at).unwrap_or("").matches('\n').count() + 1;
        RunError::Start(format!("line {line}: {}", error.message()))
    })?;
    let devices = form.device.iter().map(DeviceForm::model).collect::<Result<_, _>>()?;
    let mut machine = Machine::new(devices).map_err(refused)?;
    for link in &form.link {
        let find = |name: &str| {
            machine.find(name).ok_or_else(|| {
                RunError::Start(format!("a link of `{name}`, which is no device here"))
            })
        };
        let (source, target) = (find(&link.from)?, find(&link.to)?);
        // GB/s are bytes a nanosecond.
        let bytes_per_us = positive("gb_per_s", link.gb_per_s)? * 1000.0;
        let one = |source, target| Link {
            source,
            target,
            bytes_per_us: bytes_per_us as u64,
            latency_ns: link.latency_ns,
        };
        machine = machine.with_link(one(source, target)).map_err(refused)?;
        machine = machine.with_link(one(target, source)).map_err(refused)?;
    }
    Ok(SimulatedMachine { machine, sync_ns: form.sync_ns, dispatch_ns: form.dispatch_ns })
}

/// A machine that is not here.
#[derive(Clone, Debug)]
pub struct SimulatedMachine {
    /// Its devices and links.
    pub machine: Machine,
    /// What a wait between lanes costs; `None` is learnt from the recorded run.
    pub sync_ns: Option<u64>,
    /// What passes on a lane between two tasks; `None` is learnt from the recorded run.
    pub dispatch_ns: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineForm {
    sync_ns: Option<u64>,
    dispatch_ns: Option<u64>,
    device: Vec<DeviceForm>,
    #[serde(default)]
    link: Vec<LinkForm>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceForm {
    name: String,
    #[serde(default = "one")]
    lanes: u16,
    /// How many times as fast as the machine that the costs come from.
    #[serde(default = "as_fast")]
    speed: f64,
    memory_bytes: Option<u64>,
    #[serde(default = "yes")]
    copy_lane: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkForm {
    from: String,
    to: String,
    gb_per_s: f64,
    #[serde(default)]
    latency_ns: u64,
}

fn one() -> u16 {
    1
}

fn as_fast() -> f64 {
    1.0
}

fn yes() -> bool {
    true
}

fn positive(name: &str, value: f64) -> Result<f64, RunError> {
    match value > 0.0 && value.is_finite() {
        true => Ok(value),
        false => Err(RunError::Start(format!("`{name}` must be above zero, not {value}"))),
    }
}

impl DeviceForm {
    fn model(&self) -> Result<DeviceModel, RunError> {
        let mut model = DeviceModel::new(self.name.clone(), self.lanes);
        model.copy_lane = self.copy_lane;
        model.memory_bytes = self.memory_bytes.unwrap_or(u64::MAX);
        model.cost_permille = (1000.0 / positive("speed", self.speed)?).round().max(1.0) as u32;
        Ok(model)
    }
}

impl Program {
    /// What a run on `machine` would take: lanes, times and copies of the plan, and no contents.
    ///
    /// Tasks take what they took in the run that the trace records, if it was timed; others what tasks of the same
    /// kernel took on average, or else what their signature makes one guess.
    pub fn simulate(&self, machine: &SimulatedMachine) -> Result<Run, RunError> {
        let learnt = match (machine.sync_ns, machine.dispatch_ns) {
            (Some(_), Some(_)) => Overheads::default(),
            _ => Overheads::of(self.trace()),
        };
        let dispatch_ns = machine.dispatch_ns.unwrap_or(learnt.dispatch_ns);
        let costs = self.recorded_costs();
        let machine = match machine.sync_ns.or(learnt.sync_ns) {
            Some(ns) => machine.machine.clone().with_sync_ns(ns),
            None => machine.machine.clone(),
        };
        // A lane is taken for the time between tasks too; the tasks themselves are shown without it.
        let cost_ns = |task: usize| costs[task] + dispatch_ns;
        let is_inner = self.intermediates(&Keep::Results(Vec::new()));
        let graph = self.graph_with(&machine, &Choices::as_written(self), &is_inner, cost_ns)?;
        let plan = ExecutionPlan::compile(&graph, &machine, &CompileOptions::default());
        let plan = Arc::new(plan.map_err(refused)?);
        let time = |op: &syncline_plan::Op| match op.kind {
            OpKind::Copy(_) => OpTime { start_ns: op.start_ns, end_ns: op.end_ns },
            OpKind::Task(_) => {
                let start_ns = op.start_ns.saturating_add(dispatch_ns).min(op.end_ns);
                OpTime { start_ns, end_ns: op.end_ns }
            }
        };
        let times: Vec<OpTime> = plan.ops().iter().map(time).collect();
        Ok(collect(&plan, &times, &[], Vec::new()))
    }

    fn recorded_costs(&self) -> Vec<u64> {
        let recorded = |task: &syncline_deps::trace::TraceTask| {
            Some(task.end_ns?.saturating_sub(task.start_ns?))
        };
        let mut averages: HashMap<&str, (u64, u64)> = HashMap::new();
        for (task, what) in self.trace().tasks.iter().zip(self.tasks()) {
            if let Some(ns) = recorded(task) {
                let (sum, count) = averages.entry(what.kernel.name()).or_default();
                (*sum, *count) = (*sum + ns, *count + 1);
            }
        }
        let cost = |(task, what): (_, &crate::program::ProgramTask)| {
            let average = || averages.get(&**what.kernel.name()).map(|(sum, count)| sum / count);
            recorded(task).or_else(average).unwrap_or(what.cost_ns).max(1)
        };
        self.trace().tasks.iter().zip(self.tasks()).map(cost).collect()
    }
}
