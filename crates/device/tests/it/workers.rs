//! Lanes are data: few workers run many of them, whatever they wait for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use syncline_device::cpu::{CpuDevice, CpuOptions, Source, Turn, Workers};
use syncline_device::{
    Batch, Command, Deadline, Device, DeviceError, LaneKind, SubmissionGuard, Timeline,
};
use syncline_testing::{Rng, for_seeds, threads_named};

fn device(index: u32, workers: usize) -> Arc<dyn Device> {
    CpuDevice::open(CpuOptions::new(index).compute_lanes(2).workers(workers)).unwrap()
}

fn in_time() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

fn call(function: impl FnOnce() -> Result<(), DeviceError> + Send + 'static) -> Batch {
    Batch::from(Command::host("call", function))
}

#[test]
fn lanes_add_no_threads() {
    let device = device(71, 2);
    assert_eq!(threads_named("cpu:71", 2), 2);
    let lanes: Vec<_> =
        (0..200).map(|at| device.open_lane(LaneKind::Compute, &format!("{at}")).unwrap()).collect();
    let points: Vec<_> = lanes.iter().map(|lane| lane.submit(call(|| Ok(()))).unwrap()).collect();
    points.iter().for_each(|point| point.wait(in_time()).unwrap());
    assert_eq!(threads_named("cpu:71", 2), 2);
    drop((lanes, device));
    assert_eq!(threads_named("cpu:71", 0), 0);
}

/// Batches that wait for points of others at random, earlier ones on any lane and, under one guard,
/// later ones on other lanes: every one ends, after what it waits for.
#[test]
fn any_number_of_workers_runs_lanes_that_wait_for_each_other() {
    let name = "any_number_of_workers_runs_lanes_that_wait_for_each_other";
    for_seeds(name, 20, |rng: &mut Rng| {
        for workers in [1, 2, 4] {
            let device = device(72, workers);
            let count = 2 + rng.below(6);
            let open = |at| device.open_lane(LaneKind::Compute, &format!("{at}")).unwrap();
            let lanes: Vec<_> = (0..count).map(open).collect();
            let clock = Arc::new(AtomicU64::new(0));
            let steps = 200;
            let done: Vec<Timeline> =
                (0..steps).map(|step| Timeline::new(&format!("step {step}"), 0)).collect();
            let ends: Arc<[AtomicU64]> = (0..steps).map(|_| AtomicU64::new(0)).collect();
            let guard = SubmissionGuard::lock(lanes.iter().map(|lane| &**lane));
            let mut awaited = Vec::new();
            // By lane in the order of steps, so that no lane waits for a batch behind.
            let on: Vec<usize> = (0..steps).map(|_| rng.below(count)).collect();
            for (lane, on_lane) in lanes.iter().enumerate() {
                for step in (0..steps).filter(|&step| on[step] == lane) {
                    let waits: Vec<usize> = match step {
                        0 => Vec::new(),
                        _ => (0..rng.below(3)).map(|_| rng.below(step)).collect(),
                    };
                    let (clock, ends, before) = (clock.clone(), ends.clone(), waits.clone());
                    let mut batch = call(move || {
                        let seen = before.iter().all(|&at| ends[at].load(Ordering::SeqCst) > 0);
                        ends[step]
                            .store(clock.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        let reason = "a batch began too early".into();
                        if seen { Ok(()) } else { Err(DeviceError::Cancelled { reason }) }
                    });
                    for at in waits {
                        batch = batch.wait(done[at].point(1));
                    }
                    batch = batch.signal(done[step].point(1));
                    awaited.push(on_lane.submit(batch).unwrap());
                }
            }
            drop(guard);
            awaited.iter().for_each(|point| point.wait(in_time()).unwrap());
            assert_eq!(clock.load(Ordering::SeqCst), steps as u64);
        }
    });
}

/// One worker is blocked in a body until another lane has run.
#[test]
fn a_body_that_waits_for_another_lane_does_not_hold_it_up() {
    let device = device(73, 1);
    let timeline = Timeline::new("late", 0);
    let (point, (sender, receiver)) = (timeline.point(1), channel());
    let waits = call(move || {
        sender.send(()).unwrap();
        point.wait(in_time())
    });
    let waiting = device.lanes()[0].submit(waits).unwrap();
    receiver.recv_timeout(Duration::from_secs(60)).unwrap();
    let signals = call(move || timeline.signal(1));
    device.lanes()[1].submit(signals).unwrap().wait(in_time()).unwrap();
    waiting.wait(in_time()).unwrap();
    // The thread that took its place is there, or has gone.
    assert_eq!(threads_named("cpu:73", 1), 1);
    drop(device);
    assert_eq!(threads_named("cpu:73", 0), 0);
}

/// Work that is counted.
struct Counted {
    left: AtomicUsize,
    log: Arc<std::sync::Mutex<Vec<usize>>>,
    name: usize,
}

impl Source for Counted {
    fn serve(&self, turn: &mut Turn<'_>) {
        while self.has_work() {
            turn.starts();
            self.left.fetch_sub(1, Ordering::SeqCst);
            self.log.lock().unwrap().push(self.name);
            if !turn.goes_on() {
                return;
            }
        }
    }

    fn has_work(&self) -> bool {
        self.left.load(Ordering::SeqCst) > 0
    }
}

/// Fairness, counted in pieces of work: while two sources have work, neither gets more than two
/// shares in a row.
#[test]
fn no_source_starves_another() {
    let workers = Workers::start("fair", 1).unwrap();
    let log = Arc::new(std::sync::Mutex::new(Vec::new()));
    let served: Vec<_> = (0..3)
        .map(|name| {
            let left = AtomicUsize::new(10_000);
            workers.serve(Arc::new(Counted { left, log: log.clone(), name }))
        })
        .collect();
    let deadline = in_time();
    while log.lock().unwrap().len() < 30_000 {
        assert!(!deadline.has_passed());
        std::thread::yield_now();
    }
    drop(served);
    let log = log.lock().unwrap();
    let last = |name| log.iter().rposition(|&other| other == name).unwrap();
    let first = |name| log.iter().position(|&other| other == name).unwrap();
    for name in 0..3 {
        let others_go_on = (0..3).filter(|&other| other != name).map(last).max().unwrap();
        let own = &log[first(name)..last(name).min(others_go_on)];
        let gaps = own.split(|&other| other == name).map(<[usize]>::len).max().unwrap();
        assert!(gaps <= 2 * 32, "source {name} waited for {gaps} pieces of others");
    }
}

#[test]
fn things_are_dropped_in_any_order() {
    for_seeds("things_are_dropped_in_any_order", 50, |rng: &mut Rng| {
        let device = device(74, 1 + rng.below(2));
        let timeline = Timeline::new("open", 0);
        let mut things: Vec<Box<dyn std::any::Any>> = Vec::new();
        for at in 0..4 {
            let lane = device.open_lane(LaneKind::Compute, &format!("{at}")).unwrap();
            let batch = call(|| Ok(()));
            let point = lane.submit(match rng.below(2) {
                0 => batch,
                _ => batch.wait(timeline.point(1 + rng.below(2) as u64)),
            });
            things.push(Box::new(lane));
            things.push(Box::new(point));
        }
        things.push(Box::new(device));
        if rng.below(2) == 0 {
            timeline.signal(1).unwrap();
        }
        while !things.is_empty() {
            drop(things.swap_remove(rng.below(things.len())));
        }
    });
    assert_eq!(threads_named("cpu:74", 0), 0);
}
