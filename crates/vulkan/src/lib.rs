//! Vulkan devices, loaded at run time: a program that has this crate runs on machines without
//! Vulkan too.
//!
//! [`Probe`] lists the devices and opens them; everything else is the
//! [`Device`](syncline_device::Device) that it returns. Lanes share the device's queues, their
//! timelines are timeline semaphores, kernels are WGSL. `README.md` beside the source says which
//! waits the device does and which the host. [`conformance`] is the suite that every device passes,
//! with kernels in WGSL. This crate knows nothing of task graphs or plans.
//!
//! ```
//! use syncline_tensor::Dtype;
//! use syncline_device::registry::BackendProbe;
//! use syncline_device::{Command, Deadline, Grid, Kernel, KernelArg, KernelSource, LaneKind};
//!
//! let probe = syncline_vulkan::Probe::new();
//! if let Err(reason) = probe.probe() {
//!     println!("no Vulkan here: {reason}");
//!     return Ok(());
//! }
//! let device = probe.open(0)?;
//! let double = KernelSource::wgsl(
//!     "@group(0) @binding(0) var<storage, read_write> x: array<f32>;
//!      @group(0) @binding(1) var<storage, read> params: array<u32>;
//!      @compute @workgroup_size(64)
//!      fn double(@builtin(global_invocation_id) id: vec3<u32>) {
//!          if id.x < params[2] { x[params[0] + id.x] *= 2.0; }
//!      }",
//!     "double",
//!     [64, 1, 1],
//! );
//! let double = double.grid(Grid::Elements { arg: 0 });
//! let kernel = Kernel::builder("double").source(double).build();
//! let view = device.buffer(16).tensor(Dtype::F32, &[4])?;
//! view.write_all(&[1.0f32, 2.0, 3.0, 4.0])?;
//! let dispatch = Command::dispatch(&kernel, vec![KernelArg::inout(view.clone())], vec![]);
//! device.lane(LaneKind::Compute).submit(dispatch.into())?.wait(Deadline::NEVER)?;
//! assert_eq!(view.to_vec::<f32>()?, [2.0, 4.0, 6.0, 8.0]);
//! # Ok::<(), syncline_device::DeviceError>(())
//! ```

#![warn(unreachable_pub)]

mod candidate;
#[cfg(feature = "conformance")]
pub mod conformance;
mod device;
mod encode;
mod gpu;
mod host;
mod instance;
mod kit;
mod lane;
mod memory;
mod pipeline;
mod probe;
mod queue;
mod record;
mod semaphore;
mod step;
mod times;
mod wgsl;

pub use device::VulkanOptions;
pub use instance::Messages;
pub use probe::Probe;
