//! Machines that are not here, as people describe them.

use serde::Deserialize;
use syncline_plan::{DeviceModel, Link, Machine};

use crate::error::ProgramRunError;
use crate::planned::refused;

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
/// # Ok::<(), syncline_program::ProgramRunError>(())
/// ```
///
/// `sync_ns` is what a wait between lanes costs, `dispatch_ns` what passes on a lane between two
/// tasks, `wake_ns` what passes at the start until lanes that slept begin. Where the file does not
/// say, a simulation uses what passed in the run that the trace records.
pub fn machine_from_toml(text: &str) -> Result<SimulatedMachine, ProgramRunError> {
    let form: MachineForm = syncline_files::from_toml(text)
        .map_err(|error| ProgramRunError::Start(error.to_string()))?;
    let devices = form.device.iter().map(DeviceForm::model).collect::<Result<_, _>>()?;
    let mut machine = Machine::new(devices).map_err(refused)?;
    for link in &form.link {
        let find = |name: &str| {
            machine.find(name).ok_or_else(|| {
                ProgramRunError::Start(format!("a link of `{name}`, which is no device here"))
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
    let MachineForm { sync_ns, dispatch_ns, wake_ns, .. } = form;
    Ok(SimulatedMachine { machine, sync_ns, dispatch_ns, wake_ns })
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
    /// What passes at the start of a run until lanes that slept begin; `None` is learnt from the
    /// recorded run.
    pub wake_ns: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineForm {
    sync_ns: Option<u64>,
    dispatch_ns: Option<u64>,
    wake_ns: Option<u64>,
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

fn positive(name: &str, value: f64) -> Result<f64, ProgramRunError> {
    match value > 0.0 && value.is_finite() {
        true => Ok(value),
        false => Err(ProgramRunError::Start(format!("`{name}` must be above zero, not {value}"))),
    }
}

impl DeviceForm {
    fn model(&self) -> Result<DeviceModel, ProgramRunError> {
        let mut model = DeviceModel::new(self.name.clone(), self.lanes);
        model.copy_lane = self.copy_lane;
        model.memory_bytes = self.memory_bytes.unwrap_or(u64::MAX);
        model.cost_permille = (1000.0 / positive("speed", self.speed)?).round().max(1.0) as u32;
        Ok(model)
    }
}
