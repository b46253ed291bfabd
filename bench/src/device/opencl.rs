//! OpenCL: a chain of small kernels beside plain `opencl3`; copies beside memcpy.

use std::ptr;

use opencl3::command_queue::{CommandQueue, enqueue_nd_range_kernel, finish};
use opencl3::context::Context;
use opencl3::device::{CL_DEVICE_TYPE_ALL, Device as ClDevice};
use opencl3::event::release_event;
use opencl3::kernel::Kernel as ClKernel;
use opencl3::memory::{Buffer as ClBuffer, CL_MEM_READ_WRITE};
use opencl3::platform::get_platforms;
use opencl3::program::Program;
use syncline_device::registry::BackendProbe;
use syncline_opencl::Probe;

use super::chain::ITEMS;
use super::{chain, copies};
use crate::Effort;
use crate::measure::Side;
use crate::row::Row;

const SOURCE: &str = "__kernel void bump(__global float *x, __global const uint *params) {
    if (get_global_id(0) < params[2]) x[params[0] + get_global_id(0)] += 1.0f;
}";

pub(super) fn run(effort: Effort) -> Vec<Row> {
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
    let hand = ByHand::new();
    let peers = vec![
        Side::new("opencl3, enqueue and finish each", || hand.one_by_one(dispatches)),
        Side::new("limit:opencl3, enqueue all and finish", || hand.at_once(dispatches)),
    ];
    let mut rows = chain::run(&device, SOURCE, dispatches, times, peers);
    rows.extend(copies::run(&device, times, bytes));
    rows
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
        // SAFETY: the device is the context's only one; buffers are large enough for what the
        // kernel touches, and outlive it; the write is waited for.
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
