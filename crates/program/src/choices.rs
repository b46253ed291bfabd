//! Which devices each task of a program may run on.

use syncline_deps::View;
use syncline_deps::trace::Place;
use syncline_device::{Backend, DeviceError, DeviceSpec};
use syncline_plan::Machine;

use crate::error::ProgramError;
use crate::program::{Program, ProgramTask};

/// For each task the devices that it may run on; any if there are none.
#[derive(Clone, Debug)]
pub struct Choices {
    pub of_task: Vec<Vec<DeviceSpec>>,
    /// All that any task may run on.
    pub devices: Vec<DeviceSpec>,
}

impl Choices {
    /// What the trace says, and nothing else.
    fn as_written(program: &Program) -> Self {
        let of_task = program.tasks().iter().map(|task| task.devices.clone()).collect();
        Self { of_task, devices: Vec::new() }
    }

    /// Of `devices`, those that the trace allows and that the kernel has a body for, for arguments like the task's.
    ///
    /// # Errors
    /// A task that can run nowhere.
    fn new(program: &Program, devices: &[DeviceSpec]) -> Result<Self, ProgramError> {
        let tasks = program.tasks().iter().zip(&program.trace().tasks).enumerate();
        let of_task = tasks
            .map(|(index, (what, task))| {
                let views: Vec<View> = task.args.iter().map(|arg| arg.arg.view).collect();
                let wanted = if what.devices.is_empty() { devices } else { &what.devices };
                let mut refused = None;
                let can = wanted.iter().copied().filter(|spec| {
                    let body = require_body(what, &views, spec.backend);
                    body.map_err(|source| refused.get_or_insert(source).clone()).is_ok()
                });
                let can: Vec<DeviceSpec> = can.collect();
                match refused {
                    Some(source) if can.is_empty() => Err(ProgramError::NoDevice {
                        place: Place::task(index, task.id).member("kernel"),
                        kernel: what.kernel.name().to_string(),
                        devices: names(wanted),
                        source,
                    }),
                    _ => Ok(can),
                }
            })
            .collect::<Result<Vec<_>, _>>()?;
        let used = |spec: &DeviceSpec| of_task.iter().any(|choice| choice.contains(spec));
        let devices = devices.iter().copied().filter(used).collect();
        Ok(Self { of_task, devices })
    }

    /// The same for the devices of `machine` that run tasks; as the trace says where one of them is made up, which
    /// runs anything.
    pub fn on_machine(program: &Program, machine: &Machine) -> Result<Self, ProgramError> {
        let models = machine.devices().iter().filter(|model| model.runs_tasks);
        let specs: Result<Vec<DeviceSpec>, _> = models.map(|model| model.name.parse()).collect();
        match specs {
            Ok(specs) => Self::new(program, &specs),
            Err(_) => Ok(Self::as_written(program)),
        }
    }

    /// The same, with `device` as the only choice of every task that has it among others.
    pub fn preferring(&self, device: DeviceSpec) -> Self {
        let prefer = |choice: &Vec<DeviceSpec>| match choice.contains(&device) {
            true => vec![device],
            false => choice.clone(),
        };
        Self { of_task: self.of_task.iter().map(prefer).collect(), devices: self.devices.clone() }
    }
}

fn require_body(task: &ProgramTask, views: &[View], backend: Backend) -> Result<(), DeviceError> {
    match backend {
        Backend::Cpu => task.kernel.require(backend),
        _ => task.kernel.source(backend, views).map(drop),
    }
}

fn names(devices: &[DeviceSpec]) -> String {
    devices.iter().map(DeviceSpec::to_string).collect::<Vec<_>>().join(", ")
}
