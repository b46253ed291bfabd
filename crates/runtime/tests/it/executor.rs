use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use syncline_device::cpu::{CpuDevice, CpuOptions};
use syncline_device::{
    Backend, Batch, Command, Deadline, DeviceError, DeviceSpec, Kernel, KernelArg, LaneKind,
    Timeline,
};
use syncline_runtime::{ExecutorError, ExecutorOptions, UnifiedExecutor};
use syncline_tensor::Dtype;

use crate::{in_time, two_devices};

pub fn add_one() -> Kernel {
    Kernel::cpu("add_one", |args| {
        args.slice_mut::<f32>(0).map(|xs| xs.iter_mut().for_each(|x| *x += 1.0))
    })
}

fn no_args(
    executor: &UnifiedExecutor,
    device: DeviceSpec,
    kernel: &Kernel,
) -> syncline_device::Point {
    executor.execute_kernel(device, kernel, vec![], vec![]).unwrap()
}

#[test]
fn kernels_of_one_lane_run_in_order() {
    let (executor, first, _) = two_devices(ExecutorOptions::default());
    let (sender, receiver) = mpsc::channel();
    for number in 0..1000 {
        let sender = sender.clone();
        let kernel = Kernel::cpu("send", move |_| sender.send(number).unwrap());
        let point = no_args(&executor, first, &kernel);
        assert_eq!(point.value(), no_args(&executor, first, &kernel).value() - 1);
    }
    executor.synchronize_all(in_time()).unwrap();
    let seen: Vec<i32> = receiver.try_iter().collect();
    assert_eq!(seen, (0..2000).map(|at| at / 2).collect::<Vec<_>>());
}

#[test]
fn conflicting_kernels_on_different_lanes_do_not_race() {
    let (executor, first, _) = two_devices(ExecutorOptions::default());
    let context = executor.context(first).unwrap();
    let buffer = context.device().buffer(4096);
    buffer.write(0, &[0f32; 1024]).unwrap();
    let (view, kernel) = (buffer.tensor(Dtype::F32, &[1024]).unwrap(), add_one());
    for number in 0..600 {
        let lane = &context.lanes()[number % context.lanes().len()];
        let arg = KernelArg::inout(view.clone());
        lane.submit(Command::dispatch(&kernel, vec![arg], vec![]).into()).unwrap();
    }
    assert_eq!(buffer.read::<f32>(0, 1024).unwrap(), [600.0; 1024]);
}

#[test]
fn a_kernel_that_panics_is_reported_with_its_task_and_the_executor_goes_on() {
    let (executor, first, second) = two_devices(ExecutorOptions::default());
    let buffer = executor.context(first).unwrap().device().buffer(16);
    let copied = executor.context(second).unwrap().device().buffer(16);
    buffer.write(0, &[1f32; 4]).unwrap();
    copied.write(0, &[9f32; 4]).unwrap();
    let view = buffer.tensor(Dtype::F32, &[4]).unwrap();
    let panics = Kernel::cpu("panics", |_| -> () { panic!("out of {}", "luck") });
    let inout = || vec![KernelArg::inout(view.clone())];
    let batch = Batch::from(Command::dispatch(&panics, inout(), vec![])).task("step 7");
    let failed = executor.execute(first, batch).unwrap();

    // What depends on it fails with the same cause, on the other device too.
    let dependent = executor.execute_transfer(&view, &copied.tensor(Dtype::F32, &[4]).unwrap());
    let cause = failed.wait(in_time()).unwrap_err();
    assert_eq!(cause.task(), Some("step 7"));
    assert!(
        cause.to_string().contains("`panics` in task `step 7` panicked: out of luck"),
        "{cause}"
    );
    let seen = dependent.unwrap().wait(in_time()).unwrap_err();
    assert_eq!(seen.root_cause(), &cause);
    assert_eq!(buffer.read::<f32>(0, 4).unwrap_err().root_cause(), &cause);
    assert!(matches!(
        executor.synchronize_all(in_time()),
        Err(ExecutorError::Device(error)) if error.root_cause() == &cause
    ));

    // The lane refuses work until it is recovered; then all is as before, once the buffers are
    // written anew.
    assert!(executor.execute_kernel(first, &add_one(), inout(), vec![]).is_err());
    executor.recover();
    buffer.write(0, &[1f32; 4]).unwrap();
    executor.execute_kernel(first, &add_one(), inout(), vec![]).unwrap();
    executor.execute_transfer(&view, &copied.tensor(Dtype::F32, &[4]).unwrap()).unwrap();
    executor.synchronize_all(in_time()).unwrap();
    assert_eq!(copied.read::<f32>(0, 4).unwrap(), [2.0; 4]);
}

#[test]
fn a_kernel_without_an_implementation_is_refused_before_anything_runs() {
    let (executor, first, _) = two_devices(ExecutorOptions::default());
    let elsewhere = Kernel::builder("elsewhere").build();
    let error = executor.execute_kernel(first, &elsewhere, vec![], vec![]).unwrap_err();
    assert!(matches!(
        error,
        ExecutorError::Device(DeviceError::NoImplementation { backend: Backend::Cpu, .. })
    ));
    executor.synchronize_all(in_time()).unwrap();
}

#[test]
fn a_deadline_ends_synchronisation() {
    let (executor, first, _) = two_devices(ExecutorOptions::default());
    let gate = Timeline::new("gate", 0);
    executor.execute(first, Batch::new().wait(gate.point(1))).unwrap();
    let soon = Deadline::after(Duration::from_millis(20));
    assert!(matches!(
        executor.synchronize_all(soon),
        Err(ExecutorError::Device(DeviceError::DeadlinePassed { .. }))
    ));
    gate.signal(1).unwrap();
    executor.synchronize_all(in_time()).unwrap();
}

#[test]
fn dropping_with_work_pending_ends_everything() {
    let (executor, first, second) = two_devices(ExecutorOptions::default());
    let never = Timeline::new("never", 0);
    let buffer = executor.context(first).unwrap().device().buffer(1 << 16);
    let ran = Arc::new(AtomicU64::new(0));
    let mut points = Vec::new();
    for device in [first, second] {
        for lane in executor.context(device).unwrap().lanes() {
            points.push(lane.submit(Batch::new().wait(never.point(1))).unwrap());
            let count = ran.clone();
            let counts = Command::host("count", move || {
                count.fetch_add(1, Ordering::Relaxed);
                Ok(())
            });
            points.push(lane.submit(Batch::from(counts)).unwrap());
        }
    }
    let copy = Command::copy(buffer.all(), buffer.all());
    let lane = executor.context(first).unwrap().lane(LaneKind::Copy).clone();
    points.push(lane.submit(copy.into()).unwrap());
    drop(executor);
    for point in &points {
        let error = point.wait(in_time()).unwrap_err();
        assert!(matches!(error.root_cause(), DeviceError::Closed { .. }), "{error}");
    }
    assert_eq!(ran.load(Ordering::Relaxed), 0);
    assert!(matches!(lane.submit(Batch::new()), Err(DeviceError::Closed { .. })));
    // Its leases are gone: the host may have the buffer again.
    buffer.write(0, &[1u8]).unwrap();
}

#[test]
fn devices_and_lanes_that_are_not_there_are_named() {
    let (mut executor, first, second) = two_devices(ExecutorOptions::default());
    let missing = DeviceSpec::new(Backend::Cuda, 3);
    let error = executor.context(missing).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cuda:3 is not a device of this executor, which has: cpu:0, cpu:1"
    );
    assert!(executor.context_mut(missing).is_err());
    assert!(executor.context_mut(first).unwrap().set_default_lane(99).is_err());
    executor.context_mut(first).unwrap().set_default_lane(1).unwrap();
    let same = CpuDevice::open(CpuOptions::new(0).compute_lanes(1)).unwrap();
    assert_eq!(executor.add_device(same), Err(ExecutorError::DuplicateDevice { device: first }));
    let view = |device| executor.context(device).unwrap().device().buffer(4).all();
    let (here, there) = (view(first), view(second));
    assert_eq!(executor.single_device_check([&here, &here]), Ok(Some(first)));
    assert_eq!(executor.single_device_check([]), Ok(None));
    assert!(matches!(
        executor.single_device_check([&here, &there]),
        Err(ExecutorError::SeveralDevices { .. })
    ));
}

#[test]
fn many_threads_share_one_executor() {
    let (executor, first, second) = two_devices(ExecutorOptions::default());
    let count = Arc::new(AtomicU64::new(0));
    let counted = count.clone();
    let kernel = Kernel::cpu("count", move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (executor, kernel) = (&executor, &kernel);
            scope.spawn(move || {
                let device = if thread % 2 == 0 { first } else { second };
                (0..2000).for_each(|_| drop(no_args(executor, device, kernel)));
            });
        }
    });
    executor.synchronize_all(in_time()).unwrap();
    assert_eq!(count.load(Ordering::Relaxed), 8000);
}
