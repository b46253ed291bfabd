//! Which devices each task of a program may run on.

use syncline_device::{Backend, DeviceError, DeviceSpec};
use syncline_plan::Machine;
use syncline_tensor::View;
use syncline_trace::Place;

use crate::error::ProgramError;
use crate::program::{Program, ProgramTask};

/// For each task the devices that it may run on; any if there are none.
#[derive(Clone, Debug)]
pub(crate) struct Choices {
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

    /// Of `devices`, the ones that the trace allows and that the kernel has a body for, for
    /// arguments like the task's.
    ///
    /// # Errors
    /// A task that can run nowhere.
    fn new(program: &Program, devices: &[DeviceSpec]) -> Result<Self, ProgramError> {
        let tasks = program.tasks().iter().zip(&program.trace().tasks).enumerate();
        let mut views: Vec<View> = Vec::new();
        let mut of_task = Vec::with_capacity(program.tasks().len());
        for (index, (what, task)) in tasks {
            views.clear();
            views.extend(task.args.iter().map(|arg| arg.arg.view));
            let is_free = what.devices.is_empty();
            let wanted = if is_free { devices } else { &what.devices };
            let body = |spec: &DeviceSpec| require_body(what, &views, spec.backend);
            let Some(refused) = wanted.iter().find_map(|spec| body(spec).err()) else {
                of_task.push(what.devices.clone());
                continue;
            };
            let can: Vec<_> = wanted.iter().copied().filter(|spec| body(spec).is_ok()).collect();
            if can.is_empty() {
                return Err(ProgramError::NoDevice {
                    place: Place::task(index, task.id).member("kernel"),
                    kernel: what.kernel.name().to_string(),
                    devices: names(wanted),
                    source: refused,
                });
            }
            of_task.push(can);
        }
        let used = |spec: &DeviceSpec| of_task.iter().any(|choice| is_free_or_has(choice, *spec));
        let devices = devices.iter().copied().filter(used).collect();
        Ok(Self { of_task, devices })
    }

    /// The same for the devices of `machine` that run tasks; as the trace says where one of them is
    /// made up, which runs anything.
    pub(crate) fn on_machine(program: &Program, machine: &Machine) -> Result<Self, ProgramError> {
        let models = machine.devices().iter().filter(|model| model.runs_tasks);
        let specs: Result<Vec<DeviceSpec>, _> = models.map(|model| model.name.parse()).collect();
        match specs {
            Ok(specs) => Self::new(program, &specs),
            Err(_) => Ok(Self::as_written(program)),
        }
    }

    /// The same, with `device` as the only choice of every task that has it among others.
    pub(crate) fn preferring(&self, device: DeviceSpec) -> Self {
        let prefer = |choice: &Vec<DeviceSpec>| match is_free_or_has(choice, device) {
            true => vec![device],
            false => choice.clone(),
        };
        Self { of_task: self.of_task.iter().map(prefer).collect(), devices: self.devices.clone() }
    }
}

/// Returns `true` if a task with that choice may run on `device`.
fn is_free_or_has(choice: &[DeviceSpec], device: DeviceSpec) -> bool {
    choice.is_empty() || choice.contains(&device)
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
