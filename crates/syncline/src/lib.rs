//! Syncline: tasks with tagged tensor arguments, run over devices, explained afterwards.
//!
//! This is the crate to depend on. The names that most programs need are at its root; the rest is
//! in modules, lowest layer first:
//!
//! | module | content |
//! | --- | --- |
//! | [`tensor`] | views, regions, accesses, ids |
//! | [`deps`] | dependency discovery |
//! | [`copy`] | strided copies and element conversions |
//! | [`plan`] | task graphs, and their compilation into execution plans |
//! | [`device`] | devices, lanes, timelines, buffers, kernels |
//! | [`backend`] | the code that backends share, and the suite that each must pass |
//! | [`kernels`] | the built-in kernels |
//! | [`front`] | tensors, and tasks that run live, recorded or serially; see [`prelude`] |
//! | [`runtime`] | the executor, replay of plans, the stream runtime |
//! | [`layout`] | layouts of tensors over processes, and plans from one to another |
//! | [`transport`] | how the processes or threads of a group reach each other |
//! | [`reshard`] | the copy service, which carries plans out |
//!
//! # Features
//! | feature | content | default |
//! | --- | --- | --- |
//! | `vulkan`, `opencl` | these backends; each loads its driver at run time | yes |
//! | `json` | layouts, rules and clusters in JSON and TOML; plans and transfers as JSON | yes |
//! | `trace` | the module `trace`: captures and traces, of streams too | yes |
//! | `cuda` | this backend; no GPU has run it yet | no |
//! | `checkpoint` | the module `checkpoint`: safetensors files and their conversion | no |
//! | `program` | the module `program`: programs in JSON that can be run | no |
//! | `report` | the module `report`: runs as HTML pages | no |
//! | `mpi` | the module `mpi`: groups of MPI ranks; needs an MPI library | no |
//! | `conformance` | the suite that every backend must pass | no |
//!
//! [`registry`] finds the devices of all backends that were built in.
//!
#![doc = include_str!("../GUIDE.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod backends;
mod open;
pub mod prelude;

pub use backends::{register_backends, registry};
pub use open::OpenDevices;

// The names that most programs need: about forty, all of them defined once in the workspace.
pub use syncline_device::cpu::CpuDevice;
pub use syncline_device::{
    Backend, Buffer, CancelToken, Deadline, Device, DeviceError, DeviceRegistry, DeviceSpec,
    Kernel, KernelArg, Scalar,
};
pub use syncline_front::{
    Bound, Error, ErrorKind, LiveScope, Plan, RecordTasks, Recorder, RunTasks, Serial, Submit,
    Tensor, TensorMut, TensorRef, Tiles, WhenDone, bind, ops,
};
pub use syncline_layout::{Layout, MeshLayout, PlanOptions, TensorSpec, TransferPlan};
pub use syncline_plan::{BufferSpec, CompileOptions, ExecutionPlan, Machine, TaskGraph, TaskSpec};
pub use syncline_reshard::{CopyService, Refit, ServiceOptions, Sources};
pub use syncline_runtime::UnifiedExecutor;
pub use syncline_runtime::replay::{Bindings, LoadedPlan, TaskBody};
pub use syncline_runtime::stream::{Scope, ScopeOptions, Stream, StreamOptions, Task};
pub use syncline_tensor::{Access, Arg, Dtype, TaskId, View};

pub use syncline_backend as backend;
#[cfg(feature = "checkpoint")]
pub use syncline_checkpoint as checkpoint;
pub use syncline_copy as copy;
#[cfg(feature = "cuda")]
pub use syncline_cuda as cuda;
pub use syncline_deps as deps;
pub use syncline_device as device;
pub use syncline_front as front;
pub use syncline_kernels as kernels;
pub use syncline_layout as layout;
#[cfg(feature = "mpi")]
pub use syncline_mpi as mpi;
#[cfg(feature = "opencl")]
pub use syncline_opencl as opencl;
pub use syncline_plan as plan;
#[cfg(feature = "program")]
pub use syncline_program as program;
#[cfg(feature = "report")]
pub use syncline_report as report;
pub use syncline_reshard as reshard;
pub use syncline_runtime as runtime;
pub use syncline_tensor as tensor;
#[cfg(feature = "trace")]
pub use syncline_trace as trace;
pub use syncline_transport as transport;
#[cfg(feature = "vulkan")]
pub use syncline_vulkan as vulkan;

/// The examples of the README are tested like all others.
#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct Readme;
