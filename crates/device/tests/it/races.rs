use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use syncline_device::cpu::{CpuDevice, CpuOptions};
use syncline_device::{
    Allocator, Batch, Buffer, Command, Deadline, Device, DeviceError, DeviceSpec, Kernel,
    KernelArg, KernelArgs, Memory, MemoryUse, Pattern, Point, PointStatus, Timeline, Wake,
    wait_all,
};
use syncline_tensor::{Access, Dtype, View};

fn device() -> Arc<dyn Device> {
    let options = CpuOptions::new(0).compute_lanes(2).memory_bytes(1 << 30);
    CpuDevice::open(options).unwrap()
}

fn in_time() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

/// Throws another one when it is dropped, the first time.
struct Bomb(bool);

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0 && !thread::panicking() {
            panic_any(Bomb(false));
        }
    }
}

#[test]
fn submitting_while_the_host_writes_and_reads_the_same_buffer() {
    let device = device();
    let (sender, done) = channel();
    thread::spawn(move || {
        let buffer = device.buffer(1 << 20);
        let bytes = vec![7u8; 1 << 20];
        thread::scope(|threads| {
            threads.spawn(|| {
                for _ in 0..100 {
                    buffer.write(0, &bytes).unwrap();
                    buffer.read::<u8>(0, 64).unwrap();
                }
            });
            for _ in 0..100 {
                let fill = Command::fill(buffer.all(), Pattern::new(&[1]).unwrap());
                device.lanes()[0].submit(fill.into()).unwrap();
            }
        });
        sender.send(()).unwrap();
    });
    done.recv_timeout(Duration::from_secs(60)).expect("the host and a submitter block each other");
}

#[test]
fn a_read_that_waited_for_work_finds_that_it_failed() {
    struct Slow;
    impl Drop for Slow {
        fn drop(&mut self) {
            thread::sleep(Duration::from_millis(100));
        }
    }
    let device = device();
    let buffer = device.buffer(64);
    buffer.write(0, &[1u8; 64]).unwrap();
    let (lane, broken, slow) = (&device.lanes()[0], Timeline::new("broken", 0), Slow);
    let fill = Command::fill(buffer.all(), Pattern::new(&[2]).unwrap());
    lane.submit(Batch::from(fill).wait(broken.point(1))).unwrap();
    let behind = Command::host("slow to go", move || {
        drop(slow);
        Ok(())
    });
    lane.submit(behind.into()).unwrap();
    broken.fail(DeviceError::Cancelled { reason: "on purpose".into() }).unwrap();
    buffer.read::<u8>(0, 64).expect_err("what should have been written was not");
}

#[test]
fn what_a_kernel_throws_may_panic_again() {
    let device = device();
    let lane = &device.lanes()[0];
    let bomb = Bomb(true);
    let commands = [
        Command::host("throws", || panic_any(Bomb(true))),
        Command::host("fails with a bomb", move || {
            let _bomb = &bomb;
            Err(DeviceError::Cancelled { reason: "on purpose".into() })
        }),
    ];
    for command in commands {
        let point = lane.submit(command.into()).unwrap();
        point.wait(in_time()).expect_err("it panicked or failed");
        lane.recover();
        lane.submit(Batch::new()).unwrap().wait(in_time()).expect("the worker is alive");
    }
}

#[test]
fn an_argument_without_order_shows_nothing() {
    let device = device();
    let kernel = Kernel::cpu("look", |args: &mut KernelArgs<'_>| {
        args.slice::<u8>(0).map(|bytes| assert!(bytes.is_empty()))
    });
    let arg = KernelArg::new(Access::NoDep, device.buffer(64).all());
    let point = device.lanes()[0].submit(Command::dispatch(&kernel, vec![arg], vec![]).into());
    point.unwrap().wait(in_time()).unwrap();
}

#[test]
fn a_buffer_larger_than_any_memory_is_refused_by_every_access() {
    let device = device();
    let buffer = device.buffer(u64::MAX);
    let refused = |result: Result<(), DeviceError>| {
        assert!(matches!(result, Err(DeviceError::OutOfMemory { .. })), "{result:?}");
    };
    refused(buffer.read::<u8>(0, 4).map(drop));
    refused(buffer.read::<u8>(1 << 63, 4).map(drop));
    refused(buffer.read::<u8>(0, usize::MAX).map(drop));
    refused(buffer.write(1 << 63, &[0u8; 4]));
    refused(buffer.map(in_time()).map(drop));
    refused(buffer.map_mut(in_time()).map(drop));
    let far = buffer.view(View::bytes_at(1 << 40, 8).unwrap()).unwrap();
    refused(far.to_vec::<u8>().map(drop));
    assert!(buffer.tensor(Dtype::U8, &[u64::MAX]).is_err());
}

#[test]
fn a_thread_that_would_wait_for_its_own_map_is_told_so() {
    let device = CpuDevice::open(CpuOptions::new(0).compute_lanes(1)).unwrap();
    let buffer = device.buffer(64);
    let refused = DeviceError::MappedByCaller { buffer: buffer.id() };
    let map = buffer.map_mut(Deadline::NEVER).unwrap();
    assert_eq!(buffer.read::<u8>(0, 64), Err(refused.clone()));
    assert_eq!(buffer.write(0, &[1u8]), Err(refused.clone()));
    assert_eq!(buffer.map(Deadline::NEVER).err(), Some(refused.clone()));
    // Another thread waits, as it may: the map is dropped in time.
    thread::scope(|scope| {
        let reader = scope.spawn(|| buffer.read::<u8>(0, 1));
        thread::sleep(Duration::from_millis(5));
        drop(map);
        assert_eq!(reader.join().unwrap(), Ok(vec![0]));
    });
    let map = buffer.map(Deadline::NEVER).unwrap();
    assert_eq!(buffer.read::<u8>(0, 1), Ok(vec![0]), "readers do not mind each other");
    assert_eq!(buffer.write(0, &[1u8]), Err(refused));
    drop(map);
    buffer.write(0, &[1u8]).unwrap();
}

#[test]
fn more_elements_than_there_is_memory_are_refused() {
    let device = CpuDevice::open(CpuOptions::new(0).memory_bytes(1 << 20)).unwrap();
    let buffer = device.buffer(4);
    buffer.write(0, &[7u32]).unwrap();
    let repeated = |count: u64| View::strided(Dtype::U32, 0, &[count], &[0]).unwrap();
    assert_eq!(buffer.view(repeated(1000)).unwrap().to_vec::<u32>().unwrap(), [7; 1000]);
    let error = buffer.view(repeated(1 << 40)).unwrap().to_vec::<u32>().unwrap_err();
    assert!(matches!(error, DeviceError::OutOfMemory { .. }), "{error}");
}

#[test]
fn a_waker_that_panics_neither_ends_a_lane_nor_keeps_others_from_being_woken() {
    struct Panics;
    impl Wake for Panics {
        fn wake(&self) {
            panic_any(Bomb(true))
        }
    }
    let device = device();
    let lane = &device.lanes()[0];
    let gate = Timeline::new("gate", 0);
    let first = lane.submit(Batch::new().wait(gate.point(1))).unwrap();
    let last = lane.submit(Batch::new()).unwrap();
    let watch = first.watch(Arc::new(Panics));
    assert_eq!(watch.look(), PointStatus::Pending);
    thread::scope(|threads| {
        // Waits for two timelines, so that it is a watcher behind the one that panics.
        let waiter = threads.spawn(|| wait_all(&[first.clone(), gate.point(1)], in_time()));
        gate.signal(1).unwrap();
        waiter.join().unwrap().unwrap();
    });
    last.wait(in_time()).unwrap();
    lane.submit(Batch::new()).unwrap().wait(in_time()).unwrap();
}

#[test]
fn an_allocator_may_panic_and_may_not_use_the_buffer_that_it_allocates_for() {
    #[derive(Debug)]
    struct Strange(Mutex<Option<Buffer>>, AtomicU32, Arc<dyn Allocator>);
    // SAFETY: memory is the real allocator's, where there is any.
    unsafe impl Allocator for Strange {
        fn device(&self) -> DeviceSpec {
            DeviceSpec::CPU
        }

        fn allocate(&self, bytes: u64) -> Result<Box<dyn Memory>, DeviceError> {
            let own = self.0.lock().unwrap().take();
            if let Some(own) = own {
                assert!(matches!(own.read::<u8>(0, 1), Err(DeviceError::Unsupported { .. })));
                panic!("an allocator that panics");
            }
            self.1.fetch_add(1, Ordering::Relaxed);
            self.2.allocate(bytes)
        }

        fn memory_use(&self) -> MemoryUse {
            self.2.memory_use()
        }
    }
    let real = device().allocator().clone();
    let allocator = Arc::new(Strange(Mutex::default(), AtomicU32::new(0), real));
    let buffer = Buffer::new(allocator.clone(), 64);
    *allocator.0.lock().unwrap() = Some(buffer.clone());
    assert!(catch_unwind(AssertUnwindSafe(|| _ = buffer.allocate())).is_err());
    thread::scope(|threads| {
        (0..4).for_each(|_| _ = threads.spawn(|| buffer.write(0, &[1u8; 64]).unwrap()));
    });
    assert_eq!(buffer.read::<u8>(0, 2), Ok(vec![1, 1]));
    assert_eq!(allocator.1.load(Ordering::Relaxed), 1, "once for the buffer");
}

/// Runs `host` in a kernel that writes `used`, on a lane whose next batch writes `behind`. Returns
/// what it found.
fn on_lane(
    device: &Arc<dyn Device>,
    [used, behind]: [&Buffer; 2],
    host: impl Fn() -> Result<(), DeviceError> + Send + Sync + 'static,
) -> (Result<(), DeviceError>, Point) {
    let (sender, found) = channel();
    let (go_on, gate) = (Timeline::new("gate", 0), Mutex::new(sender));
    let kernel = Kernel::cpu("opens", move |_: &mut KernelArgs<'_>| {
        gate.lock().unwrap().send(host()).map_err(|error| error.to_string())
    });
    let arg = KernelArg::inout(used.tensor(Dtype::U8, &[64]).unwrap());
    let batch = Batch::new().wait(go_on.point(1));
    let batch = batch.command(Command::dispatch(&kernel, vec![arg], vec![]));
    let lane = &device.lanes()[0];
    let done = lane.submit(batch).unwrap();
    let fill = Command::fill(behind.all(), Pattern::new(&[1]).unwrap());
    lane.submit(fill.into()).unwrap();
    go_on.signal(1).unwrap();
    let found = found.recv_timeout(Duration::from_secs(60)).expect("the kernel hangs");
    (found, done)
}

#[test]
fn a_kernel_that_opens_what_it_or_work_behind_it_uses_is_refused() {
    let device = device();
    let [own, behind, free] = [(); 3].map(|()| device.buffer(64));
    let opened = own.clone();
    let (found, done) =
        on_lane(&device, [&own, &behind], move || opened.read::<u8>(0, 1).map(drop));
    assert!(matches!(found, Err(DeviceError::UsedByCaller { .. })), "{found:?}");
    done.wait(in_time()).unwrap();
    let opened = behind.clone();
    let (found, done) = on_lane(&device, [&own, &behind], move || opened.map(in_time()).map(drop));
    assert!(matches!(found, Err(DeviceError::UsedByCaller { .. })), "{found:?}");
    done.wait(in_time()).unwrap();
    let opened = free.clone();
    let (found, done) = on_lane(&device, [&own, &behind], move || opened.write(0, &[1u8]));
    assert_eq!(found, Ok(()), "nothing uses it");
    done.wait(in_time()).unwrap();
}

#[test]
fn of_two_threads_that_wait_for_each_others_maps_one_is_told() {
    let device = device();
    let buffers = [device.buffer(64), device.buffer(64)];
    let both = Barrier::new(2);
    let open = |mine: &Buffer, theirs: &Buffer| {
        let map = mine.map_mut(Deadline::NEVER).unwrap();
        both.wait();
        let found = theirs.write(0, &[1u8]);
        drop(map);
        found
    };
    let (sender, found) = channel();
    thread::scope(|threads| {
        for (mine, theirs) in [(0, 1), (1, 0)] {
            let (sender, buffers, open) = (sender.clone(), &buffers, &open);
            threads.spawn(move || sender.send(open(&buffers[mine], &buffers[theirs])));
        }
        let found: Vec<_> =
            (0..2).map(|_| found.recv_timeout(Duration::from_secs(60)).expect("hangs")).collect();
        let told = |found: &Result<(), DeviceError>| match found {
            Err(DeviceError::WaitsInCircle { .. }) => true,
            found => !found.is_ok(),
        };
        assert_eq!(found.iter().filter(|found| told(found)).count(), 1, "{found:?}");
    });
}

#[test]
fn a_map_that_a_thread_forgot_and_took_along_is_not_waited_for() {
    let device = device();
    let buffer = device.buffer(64);
    let (mapped, has_mapped) = channel();
    let (leave, gate) = channel::<()>();
    let (inner, sender) = (buffer.clone(), mapped);
    let holder = thread::spawn(move || {
        std::mem::forget(inner.map_mut(Deadline::NEVER).unwrap());
        sender.send(()).unwrap();
        let _ = gate.recv();
    });
    has_mapped.recv().unwrap();
    let (told, found) = channel();
    let waiting = buffer.clone();
    thread::spawn(move || told.send(waiting.read::<u8>(0, 1)));
    // Asleep by now, most probably; the outcome is the same.
    thread::sleep(Duration::from_millis(20));
    drop(leave);
    holder.join().unwrap();
    let found = found.recv_timeout(Duration::from_secs(60)).expect("hangs");
    assert!(matches!(found, Err(DeviceError::WaitsInCircle { .. })), "{found:?}");
    assert!(matches!(buffer.write(0, &[1u8]), Err(DeviceError::WaitsInCircle { .. })));
}

// The thread that made them is known as their holder.
syncline_testing::assert_not_impl!(syncline_device::Map<'static>, Send);
syncline_testing::assert_not_impl!(syncline_device::MapMut<'static>, Send);
syncline_testing::assert_not_impl!(syncline_device::Claim<'static>, Send);
