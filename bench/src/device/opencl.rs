//! OpenCL: a chain of small kernels as one recording, beside plain `opencl3`; copies beside memcpy.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::time::Instant;

use opencl3::command_queue::{CommandQueue, enqueue_nd_range_kernel, finish};
use opencl3::context::Context;
use opencl3::device::{CL_DEVICE_TYPE_ALL, Device as ClDevice};
use opencl3::event::release_event;
use opencl3::kernel::Kernel as ClKernel;
use opencl3::memory::{Buffer as ClBuffer, CL_MEM_READ_WRITE};
use opencl3::platform::get_platforms;
use opencl3::program::Program;
use syncline_deps::Dtype;
use syncline_device::cpu::{CpuDevice, CpuOptions};
use syncline_device::registry::BackendProbe;
use syncline_device::{
    Backend, Buffer, Command, Deadline, Device, Grid, Kernel, KernelArg, KernelSource, LaneKind,
    Recording,
};
use syncline_opencl::Probe;

use crate::Effort;
use crate::measure::{Figure, figure};
use crate::row::Row;

const SOURCE: &str = "__kernel void bump(__global float *x, __global const uint *params) {
    if (get_global_id(0) < params[2]) x[params[0] + get_global_id(0)] += 1.0f;
}";
const ITEMS: usize = 64;

pub fn run(effort: Effort) -> Vec<Row> {
    let probe = Probe::new();
    let device = match probe.probe() {
        Ok(_) => probe.open(0).expect("the driver lists it"),
        Err(reason) => {
            eprintln!("device: no OpenCL rows: {reason}");
            return Vec::new();
        }
    };
    let (times, dispatches, bytes) = match effort {
        Effort::Smoke => (2, 20, 1 << 20),
        Effort::Quick => (31, 1_000, 64 << 20),
        Effort::Full => (101, 1_000, 64 << 20),
    };
    let mut rows = chain(&device, times, dispatches);
    rows.extend(copies(&device, times, bytes));
    rows
}

/// A chain of kernels that each add one to the same elements.
fn chain(device: &Arc<dyn Device>, times: usize, dispatches: usize) -> Vec<Row> {
    let source = KernelSource::new(SOURCE, "bump", [ITEMS as u32, 1, 1]);
    let source = source.grid(Grid::Elements { arg: 0 });
    let kernel = Kernel::builder("bump").source(Backend::OpenCl, source).build();
    let buffer = device.buffer(4 * ITEMS as u64);
    buffer.write(0, &[0f32; ITEMS]).expect("it fits");
    let view = buffer.tensor(Dtype::F32, &[ITEMS as u64]).expect("it fits");
    let bump = || Command::dispatch(&kernel, vec![KernelArg::inout(view.clone())], vec![]);
    let recording = Recording::new((0..dispatches).map(|_| bump()).collect());
    let recording = Arc::new(recording.expect("dispatches can be recorded"));
    let lane = device.lane(LaneKind::Compute);
    let replay = || {
        let point = lane.submit(Command::recording(&recording).into()).expect("a sound lane");
        point.wait(Deadline::NEVER).expect("nothing fails");
    };
    let hand = ByHand::new();
    replay();
    hand.at_once(dispatches);
    let mut ours = Samples::default();
    let (mut at_once, mut each) = (Samples::default(), Samples::default());
    for _ in 0..times {
        ours.take(dispatches, replay);
        at_once.take(dispatches, || hand.at_once(dispatches));
        each.take(dispatches, || hand.one_by_one(dispatches));
    }
    let row = Row::new(
        "device",
        "OpenCL: a chain of small kernels, one recording",
        "ns_per_dispatch",
        dispatches as u64,
        ours.figure(),
    );
    vec![
        row.beside("opencl3, enqueue and finish each", each.figure().median),
        row.beside("limit:opencl3, enqueue all and finish", at_once.figure().median),
    ]
}

/// The same kernels with `opencl3` alone.
struct ByHand {
    kernel: ClKernel,
    queue: CommandQueue,
    // Alive as long as the kernel, whose arguments they are.
    _buffers: [ClBuffer<u32>; 2],
    _program: Program,
    _context: Context,
}

impl ByHand {
    fn new() -> Self {
        let platforms = get_platforms().expect("there is a driver");
        let ids =
            platforms.iter().flat_map(|of| of.get_devices(CL_DEVICE_TYPE_ALL).unwrap_or_default());
        let device = ClDevice::new(ids.into_iter().next().expect("there is a device"));
        let context = Context::from_device(&device).expect("a context");
        let program =
            Program::create_and_build_from_source(&context, SOURCE, "").expect("it compiles");
        let kernel = ClKernel::create(&program, "bump").expect("it is there");
        let mut parameters = [0u32; 18];
        parameters[2] = ITEMS as u32;
        // SAFETY: the device is the context's only one; buffers are large enough for what the kernel touches, and
        // outlive it; the write is waited for.
        unsafe {
            let queue = CommandQueue::create(&context, device.id(), 0).expect("a queue");
            let make = |count| {
                ClBuffer::<u32>::create(&context, CL_MEM_READ_WRITE, count, ptr::null_mut())
                    .expect("a buffer")
            };
            let (elements, mut block) = (make(ITEMS), make(parameters.len()));
            queue.enqueue_write_buffer(&mut block, 1, 0, &parameters, &[]).expect("a write");
            kernel.set_arg(0, &elements).expect("an argument");
            kernel.set_arg(1, &block).expect("an argument");
            let _buffers = [elements, block];
            Self { kernel, queue, _buffers, _program: program, _context: context }
        }
    }

    fn enqueue(&self) {
        let (global, local) = ([ITEMS, 1, 1], [ITEMS, 1, 1]);
        // SAFETY: the kernel's arguments are set and live; nothing else uses them.
        unsafe {
            let (queue, kernel) = (self.queue.get(), self.kernel.get());
            let (global, local) = (global.as_ptr(), local.as_ptr());
            let enqueued = enqueue_nd_range_kernel(
                queue,
                kernel,
                3,
                ptr::null(),
                global,
                local,
                0,
                ptr::null(),
            );
            release_event(enqueued.expect("it is enqueued")).expect("an event of ours");
        }
    }

    fn at_once(&self, count: usize) {
        (0..count).for_each(|_| self.enqueue());
        finish(self.queue.get()).expect("nothing fails");
    }

    fn one_by_one(&self, count: usize) {
        for _ in 0..count {
            self.enqueue();
            finish(self.queue.get()).expect("nothing fails");
        }
    }
}

/// Copies between memory of the CPU and of the device.
fn copies(device: &Arc<dyn Device>, times: usize, bytes: u64) -> Vec<Row> {
    let cpu = CpuDevice::open(CpuOptions::new(0).compute_lanes(1)).expect("there is a CPU");
    let (here, there) = (cpu.buffer(bytes), device.buffer(bytes));
    let from = vec![1u8; bytes as usize];
    let mut to = vec![2u8; bytes as usize];
    here.write(0, &from).expect("it fits");
    there.write(0, &from).expect("it fits");
    let lane = device.lane(LaneKind::Copy);
    let copy = |source: &Buffer, target: &Buffer| {
        let point = lane.submit(Command::copy(source.all(), target.all()).into());
        point.expect("a sound lane").wait(Deadline::NEVER).expect("nothing fails");
    };
    let mut samples: [Samples; 5] = Default::default();
    for _ in 0..times {
        // SAFETY: both are vectors of `bytes` bytes.
        let memcpy = || unsafe {
            let (target, source) =
                (to.as_mut_ptr().cast::<c_void>(), from.as_ptr().cast::<c_void>());
            ptr::copy_nonoverlapping(source.cast::<u8>(), target.cast::<u8>(), bytes as usize);
            std::hint::black_box(&mut *target);
        };
        samples[0].take(1, memcpy);
        samples[1].take(1, || copy(&here, &there));
        samples[2].take(1, || copy(&there, &here));
        samples[3].take(1, || there.write(0, &from).expect("it fits"));
        samples[4].take(1, || there.read_into(0, &mut to, Deadline::NEVER).expect("it fits"));
    }
    let rates = samples.map(|of| of.rate(bytes));
    let names = [
        "copied to the device",
        "copied from the device",
        "written by the host",
        "read by the host",
    ];
    let row = |name: &str, rate: &Figure| {
        let work = format!("OpenCL: {} MiB {name}", bytes >> 20);
        Row::new("device", work, "gb_per_s", bytes, *rate).beside("memcpy", rates[0].median)
    };
    names.iter().zip(&rates[1..]).map(|(name, rate)| row(name, rate)).collect()
}

/// Times of one kind, taken in turns with those of others.
#[derive(Default)]
struct Samples(Vec<f64>);

impl Samples {
    fn take(&mut self, count: usize, run: impl FnOnce()) {
        let start = Instant::now();
        run();
        self.0.push(start.elapsed().as_nanos() as f64 / count as f64);
    }

    fn figure(self) -> Figure {
        figure(self.0)
    }

    fn rate(self, bytes: u64) -> Figure {
        figure(self.0.into_iter().map(|ns| bytes as f64 / ns).collect())
    }
}
