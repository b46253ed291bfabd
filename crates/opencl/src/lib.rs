//! OpenCL devices: command queues as lanes, the driver's events behind timelines, OpenCL C as
//! kernels.
//!
//! [`Probe`] loads the OpenCL library when it is first asked, lists what its drivers have, and
//! opens devices, or parts of devices ([`OpenClOptions::with_parts`]). Those of one platform share
//! a context ([`OpenClOptions::with_peers`]) and therefore copy from each other's memory and wait
//! for each other without the host. `README.md` beside the crate says how memory, copies, programs
//! and recordings work; the life of a batch is that of every [`syncline_backend::driver`].
//! [`conformance`] is the suite with kernels in OpenCL C.
//!
//! This crate knows nothing of task graphs, nor of other backends.
//!
//! ```
//! use syncline_tensor::Dtype;
//! use syncline_device::registry::BackendProbe;
//! use syncline_device::{Backend, Command, Grid, Kernel, KernelArg, KernelSource};
//! use syncline_opencl::Probe;
//!
//! let probe = Probe::new();
//! if let Err(reason) = probe.probe() {
//!     println!("skipped: {reason}");
//!     return Ok(());
//! }
//! let device = probe.open(0)?;
//! let text = "__kernel void twice(__global float *x, __global const uint *params) {
//!     if (get_global_id(0) < params[2]) x[params[0] + get_global_id(0)] *= 2.0f;
//! }";
//! // SAFETY: it touches the elements of its argument only, and has one work item for each.
//! let source = unsafe { KernelSource::native(Backend::OpenCl, text, "twice", [64, 1, 1]) };
//! let source = source.grid(Grid::Elements { arg: 0 });
//! let twice = Kernel::builder("twice").source(source).build();
//! let view = device.buffer(12).tensor(Dtype::F32, &[3])?;
//! view.buffer().write(0, &[1.0f32, 2.0, 3.0])?;
//! let dispatch = Command::dispatch(&twice, vec![KernelArg::inout(view.clone())], vec![]);
//! device.lanes()[0].submit(dispatch.into())?;
//! assert_eq!(view.to_vec::<f32>()?, [2.0, 4.0, 6.0]);
//! # Ok::<(), syncline_device::DeviceError>(())
//! ```

#![warn(unreachable_pub)]

mod api;
mod command;
#[cfg(feature = "conformance")]
pub mod conformance;
mod context;
mod describe;
mod device;
mod disk;
mod driver;
mod memory;
mod parts;
mod prepare;
mod probe;
mod program;
mod times;

pub use probe::{OpenClOptions, Probe};
