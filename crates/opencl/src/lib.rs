//! OpenCL devices, loaded at run time.
mod api;
mod call;
mod command;
pub mod conformance;
mod context;
mod describe;
mod device;
mod disk;
mod events;
mod lane;
mod memory;
mod prepare;
mod probe;
mod program;
mod queue;

pub use probe::{OpenClOptions, Probe};
