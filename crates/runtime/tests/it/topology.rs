//! Devices whose direct copies do not do what their lanes claim: they are found out, and staged.

use std::sync::Arc;

use syncline_device::cpu::{CpuDevice, CpuOptions};
use syncline_device::{
    Allocator, Command, CommandTime, Device, DeviceError, DeviceInfo, DeviceSpec, Kernel, Lane,
    LaneInfo, LaneKind, Point, Timeline, Work,
};
use syncline_plan::{
    BufferSpec, CompileOptions, DeviceIndex, ExecutionPlan, OpKind, Route, TaskGraph, TaskSpec,
};
use syncline_runtime::executor::machine_of;
use syncline_runtime::replay::{Bindings, LoadOptions, LoadedPlan, TaskBody};
use syncline_runtime::{ExecutorError, ExecutorOptions, Path, Topology, UnifiedExecutor};
use syncline_tensor::{Arg, Dtype, View};

use crate::in_time;

/// What goes wrong when a lane copies between devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The copy completes, and nothing was copied.
    WrongBytes,
    /// The lane takes no such copy.
    Refused,
    /// The lane takes the copy, and fails.
    Fails,
}

/// A device that claims to copy from and to all others. Its copies from and to CPU devices of these
/// numbers go wrong.
#[derive(Debug)]
struct Liar {
    inner: Arc<dyn Device>,
    lanes: Vec<Arc<dyn Lane>>,
    fault: Fault,
    broken: &'static [u32],
}

#[derive(Debug)]
struct LiarsLane {
    inner: Arc<dyn Lane>,
    fault: Fault,
    broken: &'static [u32],
}

impl Liar {
    fn open(index: u32, fault: Fault, broken: &'static [u32]) -> Arc<dyn Device> {
        let inner = CpuDevice::open(CpuOptions::new(index).compute_lanes(1)).unwrap();
        let wrap = |inner: &Arc<dyn Lane>| LiarsLane::wrap(Arc::clone(inner), fault, broken);
        let lanes = inner.lanes().iter().map(wrap).collect();
        Arc::new(Self { inner, lanes, fault, broken })
    }
}

// SAFETY: everything is the inner device's; its lanes only leave commands out.
unsafe impl Device for Liar {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn lanes(&self) -> &[Arc<dyn Lane>] {
        &self.lanes
    }

    fn open_lane(&self, kind: LaneKind, name: &str) -> Result<Arc<dyn Lane>, DeviceError> {
        Ok(LiarsLane::wrap(self.inner.open_lane(kind, name)?, self.fault, self.broken))
    }

    fn allocator(&self) -> &Arc<dyn Allocator> {
        self.inner.allocator()
    }
}

impl LiarsLane {
    fn wrap(inner: Arc<dyn Lane>, fault: Fault, broken: &'static [u32]) -> Arc<dyn Lane> {
        Arc::new(Self { inner, fault, broken })
    }

    fn goes_wrong(&self, command: &Command) -> bool {
        let mut touched = false;
        command.for_each_access(|view, _| {
            touched |= self.broken.contains(&view.buffer().device().index);
        });
        touched
    }
}

// SAFETY: memory is touched as by the inner lane, in its order, or not at all: what it lies about
// is the bytes.
unsafe impl Lane for LiarsLane {
    fn info(&self) -> &LaneInfo {
        self.inner.info()
    }

    fn timeline(&self) -> Timeline {
        self.inner.timeline()
    }

    fn last(&self) -> Point {
        self.inner.last()
    }

    fn can_access(&self, _: DeviceSpec) -> bool {
        true
    }

    unsafe fn enqueue(&self, work: &mut Work) -> Result<Point, DeviceError> {
        if work.commands.iter().any(|command| self.goes_wrong(command)) {
            let failure =
                || DeviceError::Backend { device: self.info().device, message: "no".into() };
            match self.fault {
                Fault::WrongBytes => work.commands = Default::default(),
                Fault::Refused => return Err(failure()),
                Fault::Fails => {
                    let failed = Timeline::new("failed", 0);
                    failed.fail(failure())?;
                    work.waits.push(failed.point(1));
                }
            }
        }
        // SAFETY: the caller's promise; fewer commands touch no more.
        unsafe { self.inner.enqueue(work) }
    }

    fn recover(&self) {
        self.inner.recover();
    }

    fn close(&self) {
        self.inner.close();
    }

    fn note_times(&self, on: bool) -> bool {
        self.inner.note_times(on)
    }

    fn take_times(&self) -> Vec<CommandTime> {
        self.inner.take_times()
    }
}

const FAULTS: [Fault; 3] = [Fault::WrongBytes, Fault::Refused, Fault::Fails];

/// An honest `cpu:0`, and two that fail at copies between each other.
fn devices(fault: Fault) -> [Arc<dyn Device>; 3] {
    [
        CpuDevice::open(CpuOptions::new(0).compute_lanes(1)).unwrap(),
        Liar::open(1, fault, &[2]),
        Liar::open(2, fault, &[1]),
    ]
}

fn executor(devices: &[Arc<dyn Device>]) -> UnifiedExecutor {
    let mut executor = UnifiedExecutor::with_options(ExecutorOptions::default());
    for device in devices {
        executor.add_device(Arc::clone(device)).unwrap();
    }
    executor
}

#[test]
fn honest_devices_copy_directly() {
    let open = |index| CpuDevice::open(CpuOptions::new(index).compute_lanes(1)).unwrap();
    let devices = [open(0), open(1)];
    let topology = Topology::probe(&devices);
    let [first, second] = [0, 1].map(DeviceSpec::cpu);
    assert_eq!(topology.path(first, first), Path::Local);
    assert_eq!(topology.path(first, second), Path::Pull);
    assert_eq!(topology.path(second, first), Path::Pull);
    assert_eq!(topology.path(first, DeviceSpec::cpu(2)), Path::Unconnected);
}

#[test]
fn transfers_between_liars_are_staged_and_right() {
    for fault in FAULTS {
        let executor = executor(&devices(fault));
        let [honest, one, other] = [0, 1, 2].map(DeviceSpec::cpu);
        for (source, target) in [(one, other), (other, one)] {
            assert_eq!(executor.path(source, target), Ok(Path::Staged), "{fault:?}");
            assert_eq!(executor.path(source, honest), Ok(Path::Pull), "{fault:?}");
            let buffer = |device| executor.context(device).unwrap().device().buffer(400);
            let (from, to) = (buffer(source), buffer(target));
            let words: Vec<u32> = (0..100).collect();
            from.write(0, &words).unwrap();
            to.write(0, &[7u32; 100]).unwrap();
            executor.execute_transfer(&from.all(), &to.all()).unwrap().wait(in_time()).unwrap();
            assert_eq!(to.read::<u32>(0, 100).unwrap(), words, "{fault:?}");
        }
        // No lane that others use has failed.
        executor.synchronize_all(in_time()).unwrap();
    }
}

#[test]
fn plans_between_liars_go_through_the_host_and_are_right() {
    let mut graph = TaskGraph::new();
    let word = graph.add_buffer(BufferSpec::external("word", 8)).unwrap();
    let view = View::contiguous(Dtype::U64, &[1]).unwrap();
    for at in 0..12 {
        let device = format!("cpu:{}", 1 + at % 2);
        graph.submit(&TaskSpec::new("add_one", &[Arg::inout(word, view)]).on(&device)).unwrap();
    }
    for fault in FAULTS {
        let devices = devices(fault);
        let machine = machine_of(&devices, &[]).unwrap();
        let [honest, one, other] = [0, 1, 2].map(DeviceIndex);
        assert_eq!(machine.route(one, other), Route::Through(honest), "{fault:?}");
        assert_eq!(machine.route(other, one), Route::Through(honest), "{fault:?}");
        assert_eq!(machine.route(honest, one), Route::Pull, "{fault:?}");
        assert_eq!(executor(&devices).machine().unwrap().routes(), machine.routes());

        let plan = ExecutionPlan::compile(&graph, &machine, &CompileOptions::default()).unwrap();
        let copies = plan.ops().iter().filter(|op| matches!(op.kind, OpKind::Copy(_)));
        assert!(copies.count() > 20, "two copies between any two tasks");
        let options = LoadOptions::default();
        let options = options.on_lanes_of(DeviceSpec::cpu(1)).on_lanes_of(DeviceSpec::cpu(2));
        let kernel =
            Kernel::cpu("add_one", |args| args.slice_mut::<u64>(0).map(|words| words[0] += 1));
        let body = |_: syncline_plan::TaskInfo<'_>, _| Some(TaskBody::kernel(&kernel, []));
        let mut loaded = LoadedPlan::load_with(Arc::new(plan), &devices, body, options).unwrap();
        let buffer = devices[0].buffer(8);
        buffer.write(0, &[0u64]).unwrap();
        loaded.run(&Bindings::new().bind("word", &buffer)).unwrap();
        assert_eq!(buffer.read::<u64>(0, 1).unwrap(), [12], "{fault:?}");
    }
}

/// Devices that exchange bytes with nothing are refused wherever bytes would have to move.
#[test]
fn devices_without_a_way_to_the_host_are_refused() {
    let [one, other] = [1, 2].map(DeviceSpec::cpu);
    for fault in FAULTS {
        let devices = [Liar::open(1, fault, &[0, 2]), Liar::open(2, fault, &[0, 1])];
        let executor = executor(&devices);
        assert_eq!(executor.path(one, other), Ok(Path::Unconnected), "{fault:?}");
        let [from, to] = [&devices[0], &devices[1]].map(|device| device.buffer(4).all());
        let none = ExecutorError::NoRoute { source_device: one, target: other };
        assert_eq!(executor.execute_transfer(&from, &to).unwrap_err(), none);
        assert_eq!(executor.machine().unwrap_err(), none);
        assert_eq!(machine_of(&devices, &[]).unwrap_err(), none);
    }
}
