//! CUDA devices: streams as lanes, events behind timelines, CUDA C or PTX as kernels.
//!
//! **This crate has not been run on hardware.** It is compiled everywhere, its lanes are the same
//! code as OpenCL's ([`syncline_backend::driver`]), which passes the conformance suite, and its
//! kernels are compiled to PTX in the tests where NVIDIA's compiler library is to be had. The code
//! that is CUDA's own (about a thousand lines: copies, memory, launches) waits for a machine with a
//! device, on which `cargo test -p syncline-cuda` runs the whole suite.
//!
//! [`Probe`] loads the driver when it is first asked, and says "libcuda not found" where there is
//! none. Nothing of NVIDIA's is needed to build. `README.md` beside the crate says how memory,
//! copies and kernels work.
//!
//! This crate knows nothing of task graphs, nor of other backends.
//!
//! ```
//! use syncline_device::registry::BackendProbe;
//! use syncline_cuda::Probe;
//!
//! match Probe::new().probe() {
//!     Ok(devices) => devices.iter().for_each(|info| println!("{}: {}", info.spec, info.name)),
//!     Err(reason) => println!("skipped: {reason}"),
//! }
//! ```

#![warn(unreachable_pub)]

mod api;
mod command;
#[cfg(feature = "conformance")]
pub mod conformance;
mod context;
mod device;
mod driver;
mod memory;
mod prepare;
mod probe;
mod program;

pub use probe::Probe;
pub use program::compile;
