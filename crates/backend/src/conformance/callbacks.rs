//! User code that calls back into the API, from wherever a lane calls or drops it: never under a
//! lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use super::bench::{Bench, Fault, ensure, refused};
use super::cases;
use syncline_device::{
    Backend, Batch, Buffer, Command, DeviceError, Kernel, KernelArg, KernelSource, Lane, LaneKind,
    Pattern, Point, Timeline, Wake, Watch,
};

cases!(
    a_waker_submits_to_the_lane_that_calls_it,
    a_waker_recovers_the_lane_that_fails,
    a_waker_is_called_for_what_fails_at_submission,
    a_kernel_is_asked_once_about_a_launch,
    what_a_refused_batch_drops,
);

/// A lane, and a buffer that all work of the case touches.
#[derive(Clone)]
struct Setting {
    lane: Arc<dyn Lane>,
    buffer: Buffer,
}

impl Setting {
    fn fill(&self, byte: u8) -> Result<Point, DeviceError> {
        let pattern = Pattern::new(&[byte])?;
        self.lane.submit(Command::fill(self.buffer.all(), pattern).into())
    }

    /// Has `waker` called when the next batch of the lane has ended.
    fn watch_next(&self, waker: impl Fn() + Send + Sync + 'static) -> Watch {
        let next = self.lane.last().value() + 1;
        let watch = self.lane.timeline().point(next).watch(Arc::new(Waker(waker)));
        watch.look();
        watch
    }

    /// A waker that submits once, and the timeline on which it says that it has.
    fn submitter(&self, byte: u8) -> (impl Fn() + Send + Sync + 'static, Timeline) {
        let (setting, called) = (self.clone(), Timeline::new("called", 0));
        let (told, is_first) = (called.clone(), AtomicBool::new(true));
        let waker = move || {
            if is_first.swap(false, Ordering::Relaxed) {
                setting.lane.recover();
                let outcome = setting.fill(byte).map(drop);
                let _ = outcome.and_then(|()| told.signal(1)).map_err(|cause| told.fail(cause));
            }
        };
        (waker, called)
    }
}

struct Waker<F>(F);

impl<F: Fn() + Send + Sync> Wake for Waker<F> {
    fn wake(&self) {
        (self.0)();
    }
}

/// Runs `case` on a thread of its own: one that is stuck fails, and does not hang the suite.
fn run(
    bench: &Bench<'_>,
    case: impl FnOnce(&Setting) -> Result<(), Fault> + Send + 'static,
) -> Result<(), Fault> {
    let lane = match bench.device.info().capabilities.open_lanes {
        true => bench.device.open_lane(LaneKind::Compute, "callbacks")?,
        false => bench.device.lanes()[0].clone(),
    };
    let setting = Setting { lane, buffer: bench.buffer(&[0u8; 64])? };
    let (sender, done) = channel();
    let work = move || {
        let _ = sender.send(case(&setting));
    };
    thread::spawn(work);
    done.recv_timeout(bench.case_time()).map_err(|_| {
        let what = "stuck: user code is called under a lock, or the case has panicked";
        Fault::Fail(what.to_owned())
    })?
}

fn a_waker_submits_to_the_lane_that_calls_it(bench: &Bench<'_>) -> Result<(), Fault> {
    let in_time = bench.in_time();
    run(bench, move |setting| {
        for round in 0..20u8 {
            let (waker, called) = setting.submitter(round);
            let watch = setting.watch_next(waker);
            // A batch of nothing may have ended before it is submitted.
            match round % 2 {
                0 => setting.fill(100)?,
                _ => setting.lane.submit(Batch::new())?,
            };
            called.wait(1, in_time)?;
            drop(watch);
            setting.lane.synchronize(in_time)?;
            ensure!(setting.buffer.read::<u8>(0, 64)? == [round; 64], "round {round}");
        }
        Ok(())
    })
}

fn a_waker_recovers_the_lane_that_fails(bench: &Bench<'_>) -> Result<(), Fault> {
    bench.need_wait_before_signal()?;
    let in_time = bench.in_time();
    run(bench, move |setting| {
        let (waker, called) = setting.submitter(7);
        let gate = Timeline::new("gate", 0);
        let _watch = setting.watch_next(waker);
        let fill = Command::fill(setting.buffer.all(), Pattern::new(&[1])?);
        setting.lane.submit(Batch::from(fill).wait(gate.point(1)))?;
        gate.fail(DeviceError::Cancelled { reason: "on purpose".into() })?;
        called.wait(1, in_time)?;
        setting.lane.synchronize(in_time)?;
        ensure!(setting.buffer.read::<u8>(0, 64)? == [7; 64], "no work after the failure");
        Ok(())
    })
}

fn a_waker_is_called_for_what_fails_at_submission(bench: &Bench<'_>) -> Result<(), Fault> {
    let in_time = bench.in_time();
    run(bench, move |setting| {
        let (waker, called) = setting.submitter(7);
        let broken = Timeline::new("broken", 0);
        broken.fail(DeviceError::Cancelled { reason: "on purpose".into() })?;
        let _watch = setting.watch_next(waker);
        let fill = Command::fill(setting.buffer.all(), Pattern::new(&[1])?);
        setting.lane.submit(Batch::from(fill).wait(broken.point(1)))?;
        called.wait(1, in_time)?;
        setting.lane.synchronize(in_time)?;
        ensure!(setting.buffer.read::<u8>(0, 64)? == [7; 64], "no work after the failure");
        Ok(())
    })
}

fn a_kernel_is_asked_once_about_a_launch(bench: &Bench<'_>) -> Result<(), Fault> {
    let backend = bench.device.spec().backend;
    run(bench, move |setting| {
        let (choices, other) = (Arc::new(AtomicU32::new(0)), setting.clone());
        let counted = choices.clone();
        let ask = move || {
            counted.fetch_add(1, Ordering::Relaxed);
            other.fill(1).map(drop).map_err(|error| error.to_string())
        };
        let generate = move |_| match backend {
            Backend::Vulkan => KernelSource::wgsl("not a program", "main", [1; 3]),
            // SAFETY: it does not compile.
            _ => unsafe { KernelSource::native(backend, "not a program", "main", [1; 3]) },
        };
        let builder = Kernel::builder("is asked");
        let kernel = match backend {
            Backend::Cpu => builder.cpu(|_| ()).check(move |_, _| ask().and(Err("no".to_owned()))),
            _ => builder.variants(backend, move |_| ask().map(|()| 0), generate),
        };
        let kernel = kernel.build();
        let args = vec![KernelArg::inout(setting.buffer.all())];
        let submitted = setting.lane.submit(Command::dispatch(&kernel, args, vec![]).into());
        refused(submitted, |_| true)?;
        let count = choices.load(Ordering::Relaxed);
        ensure!(count == 1, "it was asked {count} times for one launch");
        Ok(())
    })
}

fn what_a_refused_batch_drops(bench: &Bench<'_>) -> Result<(), Fault> {
    bench.need_host_functions()?;
    run(bench, move |setting| {
        struct Submits(Setting, Timeline);
        impl Drop for Submits {
            fn drop(&mut self) {
                // The lane has failed; what matters is that it answers.
                let _ = self.0.fill(1);
                let _ = self.1.signal(1);
            }
        }
        let dropped = Timeline::new("dropped", 0);
        let broken = Timeline::new("broken", 0);
        let failed = setting.lane.submit(Batch::new().wait(broken.point(1)))?;
        broken.fail(DeviceError::Cancelled { reason: "on purpose".into() })?;
        while !matches!(failed.status(), syncline_device::PointStatus::Failed(_)) {
            thread::yield_now();
        }
        let captured = Submits(setting.clone(), dropped.clone());
        let host = Command::host("never", move || {
            drop(captured);
            Ok(())
        });
        let fill = Command::fill(setting.buffer.all(), Pattern::new(&[1])?);
        refused(setting.lane.submit(Batch::from(fill).command(host)), |_| true)?;
        ensure!(dropped.has_reached(1), "what it captured was not dropped");
        Ok(())
    })
}
