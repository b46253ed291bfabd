//! Syncline: tasks with tagged tensor arguments, run over devices, explained afterwards.
//!
//! This is the crate to depend on. It re-exports the layers, lowest first:
//!
//! | module | content |
//! | --- | --- |
//! | [`tensor`] | views, regions, accesses, ids |
//! | [`deps`] | dependency discovery |
//! | [`trace`] | captures, their JSON form and their replay |
//! | [`copy`] | strided copies and element conversions |
//! | [`plan`] | task graphs, and their compilation into execution plans |
//! | [`device`] | devices, lanes, timelines, buffers, kernels |
//! | [`backend`] | what backends share, and the suite that each must pass |
//! | [`kernels`] | the built-in kernels |
//! | [`runtime`] | the executor, replay of plans, the stream runtime |
//! | [`layout`] | layouts of tensors over processes, and plans from one to another |
//! | [`transport`] | how the processes or threads of a group reach each other |
//! | [`reshard`] | the copy service, which carries plans out |
//!
//! [`registry`] finds the devices of all backends: `vulkan`, `opencl` and `cuda` are features, on
//! unless they are turned off, and each loads its driver at run time.
//!
#![doc = include_str!("../../../docs/GUIDE.md")]

mod backends;

pub use backends::{register_backends, registry};
pub use syncline_backend as backend;
pub use syncline_copy as copy;
#[cfg(feature = "cuda")]
pub use syncline_cuda as cuda;
pub use syncline_deps as deps;
pub use syncline_device as device;
pub use syncline_kernels as kernels;
pub use syncline_layout as layout;
#[cfg(feature = "opencl")]
pub use syncline_opencl as opencl;
pub use syncline_plan as plan;
pub use syncline_reshard as reshard;
pub use syncline_runtime as runtime;
pub use syncline_tensor as tensor;
pub use syncline_trace as trace;
pub use syncline_transport as transport;
#[cfg(feature = "vulkan")]
pub use syncline_vulkan as vulkan;

/// The examples of the README are tested like all others.
#[doc = include_str!("../../../README.md")]
#[cfg(doctest)]
struct Readme;
