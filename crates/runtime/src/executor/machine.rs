//! The machine that plans are made for, as its devices really are: which lanes, which routes, how
//! fast.

use std::sync::Arc;

use syncline_device::{Backend, Device, DeviceSpec, LaneKind};
use syncline_plan::{DeviceIndex, DeviceModel, Link, Machine, Route};

use super::topology::Speed;
use super::{DeviceContext, ExecutorError, Path, Topology, UnifiedExecutor};

impl UnifiedExecutor {
    /// This executor's devices as plans see them: see [`machine_of`].
    pub fn machine(&self) -> Result<Machine, ExecutorError> {
        let devices: Vec<Arc<dyn Device>> =
            self.contexts.iter().map(DeviceContext::device).cloned().collect();
        machine(&devices, &[], &self.topology)
    }
}

/// The machine that `devices` are, in their order: lanes, memory, the routes that worked when they
/// were tried ([`Topology::probe`]), and how fast copies over them went.
///
/// Those of `memory_only` run no tasks. Where no direct copy worked, bytes go through memory of the
/// first CPU device that exchanges bytes with both.
///
/// ```
/// use syncline_device::cpu::{CpuDevice, CpuOptions};
/// use syncline_runtime::executor::machine_of;
///
/// let machine = machine_of(&[CpuDevice::open(CpuOptions::new(0).compute_lanes(2))?], &[])?;
/// let cpu = &machine.devices()[0];
/// assert_eq!((cpu.name.as_str(), cpu.compute_lanes), ("cpu:0", 2));
/// # Ok::<(), syncline_runtime::ExecutorError>(())
/// ```
///
/// # Errors
/// No device, one twice, or no way from one to another: no CPU device between them.
pub fn machine_of(
    devices: &[Arc<dyn Device>],
    memory_only: &[DeviceSpec],
) -> Result<Machine, ExecutorError> {
    machine(devices, memory_only, &Topology::probe(devices))
}

fn machine(
    devices: &[Arc<dyn Device>],
    memory_only: &[DeviceSpec],
    topology: &Topology,
) -> Result<Machine, ExecutorError> {
    let models = devices.iter().map(|device| model(&**device, memory_only)).collect();
    let mut machine = Machine::new(models)?;
    let specs: Vec<DeviceSpec> = devices.iter().map(|device| device.spec()).collect();
    let numbered = || (0u16..).map(DeviceIndex).zip(specs.iter().copied());
    let pairs = || numbered().flat_map(|from| numbered().map(move |to| (from, to)));
    let direct = |from, to| match topology.path(from, to) {
        Path::Pull => Some(Route::Pull),
        Path::Push => Some(Route::Push),
        Path::Local | Path::Staged | Path::Unconnected => None,
    };
    // Direct routes first: a route through the host is two of them.
    for ((source, from), (target, to)) in pairs() {
        let Some(route) = direct(from, to) else { continue };
        machine = machine.with_route(source, target, route)?;
        if let Some(Speed { bytes_per_us, latency_ns }) = topology.speed(from, to) {
            machine = machine.with_link(Link { source, target, bytes_per_us, latency_ns })?;
        }
    }
    for ((source, from), (target, to)) in pairs() {
        if source == target || direct(from, to).is_some() {
            continue;
        }
        let joins = |host| direct(from, host).is_some() && direct(host, to).is_some();
        let mut hosts = numbered().filter(|(_, spec)| spec.backend == Backend::Cpu);
        let host = hosts.find(|&(_, spec)| joins(spec));
        let (host, _) = host.ok_or(ExecutorError::NoRoute { source_device: from, target: to })?;
        machine = machine.with_route(source, target, Route::Through(host))?;
    }
    Ok(machine)
}

fn model(device: &dyn Device, memory_only: &[DeviceSpec]) -> DeviceModel {
    let lanes = |kind| device.lanes().iter().filter(move |lane| lane.info().kind == kind).count();
    let mut model =
        DeviceModel::new(device.spec().to_string(), lanes(LaneKind::Compute).max(1) as u16)
            .with_memory(device.info().memory_bytes);
    model.copy_lane = lanes(LaneKind::Copy) > 0;
    model.runs_tasks = !memory_only.contains(&device.spec());
    model
}
