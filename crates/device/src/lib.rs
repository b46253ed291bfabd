//! Devices: memory, lanes of work, and the timelines that order them.
//!
//! From the bottom up: a [`Timeline`] is a counter that only grows and a [`Point`] a value on it; a
//! [`Buffer`] is memory on one [`Device`]; a [`Lane`] runs [`Batch`]es of [`Command`]s in order and
//! signals its timeline; a [`Kernel`] is what a command may run. [`cpu`] is the backend that is
//! always there, [`registry`] finds the others.
//!
//! This crate knows nothing of task graphs, dependencies between tasks, or plans.
//!
//! ```
//! use syncline_device::{Batch, Command, Deadline, Kernel, KernelArg, LaneKind, cpu::CpuDevice};
//! use syncline_tensor::Dtype;
//!
//! let device = CpuDevice::open_default()?;
//! let buffer = device.buffer(16);
//! buffer.write(0, &[1.0f32, 2.0, 3.0, 4.0])?;
//! let double = Kernel::cpu("double", |args| {
//!     args.slice_mut::<f32>(0).map(|xs| xs.iter_mut().for_each(|x| *x *= 2.0))
//! });
//! let arg = KernelArg::inout(buffer.tensor(Dtype::F32, &[4])?);
//! let lane = device.lane(LaneKind::Compute);
//! let done = lane.submit(Batch::from(Command::dispatch(&double, vec![arg], vec![])))?;
//! done.wait(Deadline::NEVER)?;
//! assert_eq!(buffer.read::<f32>(0, 4)?, [2.0, 4.0, 6.0, 8.0]);
//! # Ok::<(), syncline_device::DeviceError>(())
//! ```

#![warn(unreachable_pub)]

mod batch;
pub mod blocked;
mod buffer;
mod cancel;
pub mod cpu;
mod device;
mod element;
mod error;
pub mod fill;
mod guarded;
mod kernel;
mod lane;
mod memory;
mod point;
pub mod registry;
mod spec;
mod submit;
mod timeline;

pub use batch::{
    Batch, Command, Commands, Copy, Dispatch, Fill, HostFunction, KernelArg, Pattern, Recording,
    Work,
};
pub use buffer::{
    Buffer, BufferView, Claim, Home, Lease, Loans, Map, MapMut, WeakBuffer, call_now, lending,
};
pub use cancel::CancelToken;
pub use device::{Capabilities, Device, DeviceInfo};
pub use element::Element;
pub use error::DeviceError;
pub use guarded::{drop_guarded, guarded};
pub use kernel::{
    CpuFunction, GROUPS_ALONG_X, Grid, Kernel, KernelArgs, KernelBuilder, KernelOutcome,
    KernelSource, LateArgs, RawArg, Scalar, ScalarType, SourceRef, Strided, StridedMut, TensorMut,
    TensorRef, WORDS_PER_ARGUMENT,
};
pub use lane::{
    CommandTime, Lane, LaneCore, LaneInfo, LaneKind, OpenLanes, Spares, SubmissionGuard,
    fail_signals,
};
pub use memory::{ALIGNMENT, Allocator, Memory, MemoryUse, Pool};
pub use point::{Deadline, Point, PointStatus};
pub use registry::DeviceRegistry;
pub use spec::{Backend, DeviceSpec, UnknownDevice};
pub use timeline::{Timeline, TimelineId, TimelineOwner, Wake, Watch, wait_all, wait_any};
