//! Which devices each task of a program may run on.

use std::sync::Arc;

use syncline_deps::View;
use syncline_device::{Backend, Device, DeviceSpec};

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
    pub fn as_written(program: &Program) -> Self {
        let of_task = program.tasks().iter().map(|task| task.devices.clone()).collect();
        Self { of_task, devices: Vec::new() }
    }

    /// Of `devices`, those that the trace allows and that the kernel has an implementation for, for arguments like the
    /// task's. A task that could run nowhere is left as it was written: whoever loads it says why it cannot run.
    pub fn new(program: &Program, devices: &[Arc<dyn Device>]) -> Self {
        let given: Vec<DeviceSpec> = devices.iter().map(|device| device.spec()).collect();
        let tasks = program.tasks().iter().zip(&program.trace().tasks);
        let of_task: Vec<Vec<DeviceSpec>> = tasks
            .map(|(what, task)| {
                let views: Vec<View> = task.args.iter().map(|arg| arg.arg.view).collect();
                let wanted = if what.devices.is_empty() { &given } else { &what.devices };
                let can = wanted.iter().copied().filter(|spec| runs_on(what, &views, spec.backend));
                match can.collect::<Vec<_>>() {
                    can if can.is_empty() => wanted.clone(),
                    can => can,
                }
            })
            .collect();
        let used = |spec: &DeviceSpec| of_task.iter().any(|choice| choice.contains(spec));
        let devices = given.into_iter().filter(used).collect();
        Self { of_task, devices }
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

fn runs_on(task: &ProgramTask, views: &[View], backend: Backend) -> bool {
    match backend {
        Backend::Cpu => task.kernel.supports(backend),
        _ => task.kernel.source(backend, views).is_ok(),
    }
}
