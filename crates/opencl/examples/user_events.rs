//! What user events would do for lanes: how long a gate takes to open, and what becomes of work
//! behind one that fails.
//!
//! `cargo run --release -p syncline-opencl --example user_events`
//!
//! `crates/backend/src/driver/README.md` draws the conclusion. Each is tried in a process of its
//! own, since a driver may not survive it.

use std::ffi::c_void;
use std::fmt;
use std::process::Command as Process;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use opencl3::command_queue::{CommandQueue, enqueue_fill_buffer, finish, flush};
use opencl3::context::Context;
use opencl3::device::{CL_DEVICE_TYPE_ALL, Device as ClDevice};
use opencl3::event::{
    CL_COMPLETE, create_user_event, get_event_info, release_event, set_event_callback,
    set_user_event_status, wait_for_events,
};
use opencl3::memory::{Buffer, CL_MEM_READ_WRITE, ClMem};
use opencl3::platform::get_platforms;
use opencl3::types::{cl_event, cl_int};
use syncline_device::registry::BackendProbe;
use syncline_device::{Batch, Command, Deadline, LaneKind, Pattern, Timeline};
use syncline_opencl::Probe;

/// Whatever went wrong, in words; the driver's codes are numbers.
#[derive(Debug)]
struct Error(#[allow(dead_code)] String);

impl<E: fmt::Display> From<E> for Error {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

const BYTES: usize = 4096;
/// Commands behind a gate.
const BEHIND: usize = 8;
const FAILURES: usize = 20;
const ROUNDS: usize = 2_000;
const PATIENCE: Duration = Duration::from_secs(10);
/// Set in processes that try something: what, and the number of the device.
const INSIDE: &str = "SYNCLINE_USER_EVENTS";

/// A queue of the driver's device `number`, with a buffer.
struct Plain {
    queue: CommandQueue,
    buffer: Buffer<u8>,
    context: Context,
}

impl Plain {
    fn open(number: usize) -> Result<Self, Error> {
        let platforms = get_platforms()?;
        let all = platforms.iter().flat_map(|of| of.get_devices(CL_DEVICE_TYPE_ALL));
        let id = all.flatten().nth(number).ok_or("no such device")?;
        let context = Context::from_device(&ClDevice::new(id))?;
        // SAFETY: the device is the context's; the buffer is of the context.
        unsafe {
            let queue = CommandQueue::create(&context, id, 0)?;
            let buffer = Buffer::create(&context, CL_MEM_READ_WRITE, BYTES, ptr::null_mut())?;
            Ok(Self { queue, buffer, context })
        }
    }

    /// A gate, and the events of `count` fills behind it.
    fn gated(&self, count: usize) -> Result<(cl_event, Vec<cl_event>), Error> {
        // SAFETY: all objects are of one context; the pattern is read during the call.
        unsafe {
            let gate = create_user_event(self.context.get())?;
            let fill = |after: &[cl_event]| {
                let (many, list) = (after.len() as u32, after.as_ptr());
                let list = if after.is_empty() { ptr::null() } else { list };
                let pattern = [1u8];
                let (queue, at) = (self.queue.get(), pattern.as_ptr().cast());
                enqueue_fill_buffer(queue, self.buffer.get(), at, 1, 0, BYTES, many, list)
            };
            let mut events = vec![fill(&[gate])?];
            for _ in 1..count {
                events.push(fill(&[])?);
            }
            flush(self.queue.get())?;
            Ok((gate, events))
        }
    }
}

fn main() -> Result<(), Error> {
    if let Ok(inside) = std::env::var(INSIDE) {
        let (what, number) = inside.split_once(' ').ok_or("what, and the number of a device")?;
        return match what {
            "opens" => open_gates(number.parse()?),
            _ => fail_gates(number.parse()?),
        };
    }
    let infos = match Probe::new().probe() {
        Ok(infos) => infos,
        Err(reason) => {
            println!("skipped: {reason}");
            return Ok(());
        }
    };
    for info in &infos {
        println!("{}: {}", info.spec, info.name);
        for what in ["opens", "fails"] {
            println!("  a gate that {what}:");
            try_in_process(&format!("{what} {}", info.spec.index))?;
        }
    }
    Ok(())
}

/// Has a process of its own do `what`, and says how it ended.
fn try_in_process(what: &str) -> Result<(), Error> {
    let mut process = Process::new(std::env::current_exe()?).env(INSIDE, what).spawn()?;
    let until = Instant::now() + PATIENCE;
    let status = loop {
        match process.try_wait()? {
            Some(status) => break status.to_string(),
            None if Instant::now() > until => {
                process.kill()?;
                process.wait()?;
                break format!("hung for {PATIENCE:?}");
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    println!("    the process: {status}");
    Ok(())
}

/// Measures from opening a gate to the end of a command behind it, in turns: by the driver's own
/// means, and by a lane.
fn open_gates(number: u32) -> Result<(), Error> {
    let plain = Plain::open(number as usize)?;
    let device = Probe::new().open(number)?;
    let (lane, buffer) = (device.lane(LaneKind::Compute), device.buffer(BYTES as u64));
    let gate = Timeline::new("gate", 0);
    let mut taken = [Vec::new(), Vec::new()];
    for round in 1..=ROUNDS as u64 {
        let (event, behind) = plain.gated(1)?;
        let began = Instant::now();
        set_user_event_status(event, CL_COMPLETE)?;
        wait_for_events(&behind)?;
        taken[0].push(began.elapsed());
        // SAFETY: events that were returned to us, each released once.
        behind.iter().chain([&event]).try_for_each(|&of| unsafe { release_event(of) })?;

        let fill = Command::fill(buffer.all(), Pattern::new(&[1])?);
        let done = lane.submit(Batch::from(fill).wait(gate.point(round)))?;
        let began = Instant::now();
        gate.signal(round)?;
        done.wait(Deadline::NEVER)?;
        taken[1].push(began.elapsed());
    }
    let [driver, lane] = taken.map(|mut all| {
        all.sort();
        all[all.len() / 2]
    });
    println!(
        "    a command behind it has ended after {driver:.1?} by a user event, {lane:.1?} by a lane"
    );
    Ok(())
}

static CALLED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn called(_event: cl_event, _status: cl_int, _data: *mut c_void) {
    CALLED.fetch_add(1, Ordering::Relaxed);
}

/// Fails gates, and says what the driver makes of the commands behind them.
fn fail_gates(number: usize) -> Result<(), Error> {
    let plain = Plain::open(number)?;
    for round in 0..FAILURES {
        let (gate, behind) = plain.gated(BEHIND)?;
        for &event in &behind {
            set_event_callback(event, CL_COMPLETE, called, ptr::null_mut())?;
        }
        set_user_event_status(gate, -1)?;
        std::thread::sleep(Duration::from_millis(20));
        if round == 0 {
            const CL_EVENT_COMMAND_EXECUTION_STATUS: u32 = 0x11D3;
            let status = |&event: &cl_event| -> Result<cl_int, Error> {
                Ok(get_event_info(event, CL_EVENT_COMMAND_EXECUTION_STATUS)?.into())
            };
            let all = behind.iter().map(status).collect::<Result<Vec<_>, _>>()?;
            println!("    status of each: {all:?} (below zero: ended by the failure; 0: it ran)");
        }
        // SAFETY: events that were returned to us, each released once.
        behind.iter().chain([&gate]).try_for_each(|&of| unsafe { release_event(of) })?;
    }
    println!("    callbacks: {} of {}", CALLED.load(Ordering::Relaxed), FAILURES * BEHIND);
    let (event, behind) = plain.gated(1)?;
    set_user_event_status(event, CL_COMPLETE)?;
    println!("    a gate that opens behind them: {:?}", wait_for_events(&behind));
    println!("    the queue finishes: {:?}", finish(plain.queue.get()));
    Ok(())
}
