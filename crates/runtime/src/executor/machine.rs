//! The machine that plans are made for, as its devices really are: which lanes, which routes, how fast.

use std::sync::Arc;
use std::time::{Duration, Instant};

use syncline_device::{
    Backend, Batch, Command, Deadline, Device, DeviceError, DeviceSpec, Lane, LaneKind,
};
use syncline_plan::{DeviceIndex, DeviceModel, Link, Machine, Route};

use super::{DeviceContext, ExecutorError, UnifiedExecutor};

/// How long a link is tried for, at the most.
const PROBE_TIME: Duration = Duration::from_secs(10);
/// Large enough for the speed to show beside the time that a copy takes to begin.
const PROBE_BYTES: u64 = 1 << 20;
const PROBES: usize = 3;

impl UnifiedExecutor {
    /// This executor's devices as plans see them: see [`machine_of`].
    pub fn machine(&self) -> Result<Machine, ExecutorError> {
        let devices: Vec<Arc<dyn Device>> =
            self.contexts.iter().map(DeviceContext::device).cloned().collect();
        machine_of(&devices, &[])
    }
}

/// The machine that `devices` are, in their order: lanes, memory, the routes that exist between them, and how fast
/// copies went when they were tried.
///
/// Those of `memory_only` run no tasks. Where two devices do not reach each other's memory, bytes go through that of the
/// first CPU device.
///
/// ```
/// use syncline_device::cpu::{CpuDevice, CpuOptions};
/// use syncline_runtime::executor::machine_of;
///
/// let machine = machine_of(&[CpuDevice::open(CpuOptions::new(0).compute_lanes(2))?], &[])?;
/// assert_eq!((machine.devices()[0].name.as_str(), machine.devices()[0].compute_lanes), ("cpu:0", 2));
/// # Ok::<(), syncline_runtime::ExecutorError>(())
/// ```
///
/// # Errors
/// No device, one twice, or no way from one to another: no CPU device between them.
pub fn machine_of(
    devices: &[Arc<dyn Device>],
    memory_only: &[DeviceSpec],
) -> Result<Machine, ExecutorError> {
    let models = devices.iter().map(|device| model(&**device, memory_only)).collect();
    let mut machine = Machine::new(models)?;
    let host = devices.iter().position(|device| device.spec().backend == Backend::Cpu);
    let numbered = || (0u16..).map(DeviceIndex).zip(devices);
    let pairs = || {
        let all = numbered().flat_map(|from| numbered().map(move |to| (from, to)));
        all.filter(|((source, _), (target, _))| source != target)
    };
    // Direct routes first: a route through the host is two of them.
    for ((source, from), (target, to)) in pairs() {
        if let Some((lane, route)) = direct(&**from, &**to) {
            machine = machine.with_route(source, target, route)?;
            // Between CPU devices nothing is to be found out that the planner would not guess.
            let both_cpu = [from, to].iter().all(|device| device.spec().backend == Backend::Cpu);
            if let Some(link) = (!both_cpu).then(|| measure(&**lane, &**from, &**to)).transpose()? {
                let (bytes_per_us, latency_ns) = link;
                machine = machine.with_link(Link { source, target, bytes_per_us, latency_ns })?;
            }
        }
    }
    for ((source, from), (target, to)) in pairs() {
        if direct(&**from, &**to).is_none() {
            let none = || ExecutorError::NoRoute { source_device: from.spec(), target: to.spec() };
            let host = DeviceIndex(host.ok_or_else(none)? as u16);
            machine = machine.with_route(source, target, Route::Through(host))?;
        }
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

/// The lane that copies from one device to the other, and whose it is; `None` if neither reaches the other's memory.
fn direct<'a>(from: &'a dyn Device, to: &'a dyn Device) -> Option<(&'a Arc<dyn Lane>, Route)> {
    let (push, pull) = (from.lane(LaneKind::Copy), to.lane(LaneKind::Copy));
    if pull.can_access(from.spec()) {
        return Some((pull, Route::Pull));
    }
    push.can_access(to.spec()).then_some((push, Route::Push))
}

/// Bytes a microsecond, and what an almost empty copy takes in nanoseconds.
fn measure(lane: &dyn Lane, from: &dyn Device, to: &dyn Device) -> Result<(u64, u64), DeviceError> {
    let (source, target) = (from.buffer(PROBE_BYTES), to.buffer(PROBE_BYTES));
    source.write(0, &vec![0u8; PROBE_BYTES as usize])?;
    let best_ns = |bytes: u64| -> Result<u64, DeviceError> {
        let mut best = u64::MAX;
        for _ in 0..PROBES {
            let view = syncline_deps::View::bytes_at(0, bytes).expect("inside the buffer");
            let copy = Command::copy(source.view(view)?, target.view(view)?);
            let began = Instant::now();
            lane.submit(Batch::from(copy))?.wait(Deadline::after(PROBE_TIME))?;
            best = best.min(began.elapsed().as_nanos() as u64);
        }
        Ok(best)
    };
    let latency_ns = best_ns(64)?;
    let moving_ns = best_ns(PROBE_BYTES)?.saturating_sub(latency_ns).max(1);
    Ok(((PROBE_BYTES * 1000 / moving_ns).max(1), latency_ns))
}
