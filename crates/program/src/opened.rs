//! The devices of a run, opened, and the machine that they are.

use std::sync::Arc;

use syncline_device::cpu::{CpuDevice, CpuOptions};
use syncline_device::{Backend, Device, DeviceRegistry, DeviceSpec};
use syncline_plan::Machine;
use syncline_runtime::ExecutorError;
use syncline_runtime::executor::machine_of;

use crate::error::ProgramRunError;
use crate::planned::refused;
use crate::run::RunOptions;

/// Devices, in the order in which they were asked for.
pub(crate) struct Opened {
    pub devices: Vec<Arc<dyn Device>>,
    /// Devices that run no tasks, since they were not asked for.
    memory_only: Vec<DeviceSpec>,
}

impl Opened {
    /// Opens the devices of `options`; processors are shared out evenly among those of the CPU.
    pub(crate) fn new(options: &RunOptions) -> Result<Self, ProgramRunError> {
        let specs = &options.devices;
        if let Some((at, twice)) =
            specs.iter().enumerate().find(|(at, spec)| specs[..*at].contains(spec))
        {
            return Err(ProgramRunError::Start(format!(
                "{twice} is named twice, the second time as number {at}"
            )));
        }
        let cpus = specs.iter().filter(|spec| spec.backend == Backend::Cpu);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let lanes = (cores / cpus.clone().count().max(1)).max(1);
        let cpus = cpus.map(|spec| CpuOptions::new(spec.index).compute_lanes(lanes)).collect();
        let mut registry = DeviceRegistry::with_cpu_devices(cpus);
        (options.backends)(&mut registry);
        let open = |&spec| registry.open(spec).map_err(ProgramRunError::from);
        let devices = specs.iter().map(open).collect::<Result<_, _>>()?;
        Ok(Self { devices, memory_only: Vec::new() })
    }

    /// The machine. Where devices do not reach each other and none is of the CPU, the first CPU
    /// device joins them, for the sake of its memory.
    pub(crate) fn machine(&mut self) -> Result<Machine, ProgramRunError> {
        let mut machine = machine_of(&self.devices, &self.memory_only);
        if let Err(ExecutorError::NoRoute { .. }) = machine {
            let host = CpuDevice::open(CpuOptions::new(0).compute_lanes(1))?;
            self.memory_only.push(host.spec());
            self.devices.push(host);
            machine = machine_of(&self.devices, &self.memory_only);
        }
        machine.map_err(refused)
    }
}
