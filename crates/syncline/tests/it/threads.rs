//! Which public types may be sent to other threads, and which may be shared: decided when this file
//! is compiled.
//!
//! A guard belongs to the thread that took it, which would wait for itself; everything else goes
//! where it likes.

use std::fs;
use std::marker::PhantomData;
use std::path::Path;

use syncline::{
    backend, copy, deps, device, front, kernels, layout, plan, reshard, runtime, tensor, trace,
    transport,
};

/// An inherent constant hides the one of the trait, where its bounds are met.
struct Probe<T>(PhantomData<T>);

trait Neither {
    const SEND: bool = false;
    const SYNC: bool = false;
}

impl<T> Neither for Probe<T> {}

struct SendProbe<T>(PhantomData<T>);
impl<T> Neither for SendProbe<T> {}
impl<T: Send> SendProbe<T> {
    const SEND: bool = true;
}

impl<T: Sync> Probe<T> {
    const SYNC: bool = true;
}

macro_rules! threads {
    ($send:literal $sync:literal: $($name:ty),* $(,)?) => {
        $(const _: () = {
            assert!(SendProbe::<$name>::SEND == $send, concat!(stringify!($name), ": Send"));
            assert!(Probe::<$name>::SYNC == $sync, concat!(stringify!($name), ": Sync"));
        };)*
    };
}

// Sent and shared.
threads! { true true:
    tensor::Access, tensor::Arg, tensor::UnknownAccess, deps::CheckReport, tensor::Dtype, tensor::UnknownDtype,
    deps::Edge, deps::EdgeFlags, deps::EdgeKinds, deps::SubmitError, deps::DepInputs<'static>, deps::ArgPair,
    deps::DepEdge, deps::DepGraph, tensor::BufferId, tensor::TaskId, deps::MapStats, deps::TensorMap, trace::Naming,
    deps::OracleError, deps::OracleLimits, tensor::PackedArgs<4>, deps::OverlapStats, tensor::Region,
    deps::Reason, tensor::OverlapTest,
    trace::ReplayError, trace::Replayed, deps::ScopeKind, deps::SubmitOptions, deps::SubmitStats,
    deps::Submitter, tensor::View, tensor::ViewError,
    trace::Place, trace::TraceError, trace::Extra, trace::TraceLane, trace::Trace,
    trace::TraceArg, trace::TraceBuffer, trace::TraceScope, trace::TraceTask,
    trace::capture::CaptureEnd, trace::capture::CaptureReader<'static>, trace::capture::Captured,
    trace::capture::CaptureOptions, trace::capture::CaptureWriter<Vec<u8>>, trace::capture::TaskLabel<'static>,
    trace::Capturing<Vec<u8>>,
}
threads! { true true:
    plan::CheckError, plan::OpSite, plan::CompileError, plan::CompileOptions, plan::ByteRun, plan::CostModel,
    plan::Forecast, plan::OpCost, plan::BufferInfo, plan::BufferKind, plan::BufferSpec<'static>,
    plan::DeviceChoice<'static>, plan::GraphEdge, plan::GraphError, plan::TaskArg, plan::TaskGraph,
    plan::TaskInfo, plan::TaskSpec<'static>, plan::OpDep, plan::OpDeps, plan::DeviceIndex, plan::DeviceModel,
    plan::Link, plan::Machine, plan::MachineError, plan::Route, plan::Copy, plan::CopyIndex,
    plan::ExecutionPlan, plan::LaneIndex, plan::LaneKind, plan::Memory, plan::MemoryIndex, plan::MemoryPlace,
    plan::Op, plan::OpIndex, plan::OpKind, plan::PlanArg, plan::PlanLane, plan::TaskIndex, plan::Wait,
    plan::RunWaits, plan::StoreError,
}
threads! { true true:
    device::Batch, device::Command, device::Commands, device::Copy, device::Dispatch, device::Fill,
    device::HostFunction, device::KernelArg, device::Pattern, device::Recording, device::Work,
    device::Buffer, device::BufferView, device::WeakBuffer, device::Lease, device::CancelToken,
    device::Capabilities, device::DeviceInfo, device::DeviceError, device::Grid,
    device::Kernel, device::KernelBuilder, device::KernelSource, device::SourceRef, device::RawArg,
    device::Scalar, device::ScalarType, device::CommandTime, device::LaneInfo, device::LaneKind, device::MemoryUse,
    device::Deadline, device::Point, device::PointStatus, device::DeviceRegistry, device::Backend,
    device::DeviceSpec, device::UnknownDevice, device::Timeline, device::TimelineId, device::TimelineOwner,
    device::Watch, device::cpu::CpuDevice, device::cpu::CpuOptions, device::cpu::Served,
    device::cpu::Turn<'static>, device::cpu::Workers, device::cpu::WorkersHandle, device::registry::Refused,
    device::registry::Found, copy::CopyPlan,
}
threads! { true true:
    kernels::KernelError, kernels::Entry, kernels::Library, kernels::Parameter, kernels::ScalarParameter,
    kernels::Signature, kernels::Tolerance, kernels::reference::Doubles,
}
threads! { true true:
    runtime::DeviceContext, runtime::ExecutorError, runtime::ExecutorOptions, runtime::Path,
    runtime::Topology, runtime::UnifiedExecutor, runtime::stream::Cause,
    runtime::stream::Failure, runtime::stream::StreamError, runtime::stream::Stream,
    runtime::stream::TaskHandle, runtime::stream::StreamOptions, runtime::stream::ScopeOptions,
    runtime::stream::HighWater, runtime::stream::StreamStats, runtime::replay::Steal,
    runtime::replay::Bindings, runtime::replay::TaskBody,
    runtime::replay::RunTicket, runtime::replay::BindError, runtime::replay::LoadError,
    runtime::replay::RunError, runtime::replay::LoadOptions, runtime::replay::LoadedPlan,
    runtime::replay::OpTime,
}
threads! { true true:
    layout::Dims, layout::NdBox, layout::LayoutError, reshard::BindError, reshard::Destination,
    reshard::DestinationError, reshard::Moved, reshard::PipelineLanes, reshard::Refit, reshard::Shards,
    reshard::Sources<'static>, reshard::Targets<'static>, reshard::Versions, layout::Layout,
    layout::LayoutBuilder, layout::LayoutFile, layout::Mesh, layout::MeshLayout, layout::NameNumbers,
    layout::NamedStage, layout::NamePattern, layout::Piece, layout::Placement, layout::Shard,
    layout::BlockRule, layout::ShardRule, layout::Stage, layout::TensorLayout, layout::TensorRule, layout::TensorSpec,
    layout::Batch, layout::Schedule, layout::Segment, reshard::Progress,
    reshard::ServiceError, reshard::ServiceOptions, layout::BlockScales, layout::Conversions,
    layout::CopyBox, layout::PairTraffic, layout::PlanOptions, layout::PlanTensor, layout::Recoding,
    layout::Traffic, layout::TransferOp, layout::TransferPlan,
    layout::simulate::Cluster, layout::simulate::ClusterLink, layout::simulate::LinkKind,
    layout::simulate::LinkUse, layout::simulate::Prediction, copy::convert::ConvertError,
    transport::Endpoint, transport::FailOnPanic<'static>, transport::Region, layout::Fingerprint, transport::Corrupted, transport::Failure,
    transport::Phase, transport::Shape, transport::Window,
    transport::WindowId, transport::Ticket, transport::Header,
    transport::Wait<'static>, transport::local::GroupError, transport::shm::JoinError,
}

threads! { true true:
    backend::Bridge, backend::BridgeWaker, backend::conformance::Suite, backend::conformance::Report,
    backend::conformance::CaseReport, backend::conformance::Outcome, trace::Unwritten,
    transport::local::Options, transport::shm::Options,
}
#[cfg(feature = "vulkan")]
threads! { true true: syncline::vulkan::Probe, syncline::vulkan::VulkanOptions, syncline::vulkan::Messages }
#[cfg(feature = "opencl")]
threads! { true true: syncline::opencl::Probe, syncline::opencl::OpenClOptions }
#[cfg(feature = "cuda")]
threads! { true true: syncline::cuda::Probe }

threads! { true true:
    runtime::stream::Scope<'static>,
    runtime::replay::TaskArgs<'static>, reshard::Reading<'static>, reshard::CopyService,
    reshard::PipelineExecutor<'static>, reshard::Target<'static, 'static>,
    transport::Arrival, device::Pool<u8>, device::Spares, device::LaneCore<u8>, device::OpenLanes<u8>,
    backend::driver::ProgramCache<u8, u8>, backend::driver::CompiledProgram<u8>, kernels::Overlap,
    transport::Session<'static>, transport::FreeSlot,
}

threads! { true true:
    device::Loans<'static>, device::TensorRef<'static, f32>, device::TensorMut<'static, f32>,
    device::cpu::HostMemory, front::Tensor<f32>, front::Tiles<f32>, front::Error, front::ErrorKind,
    front::Read<'static, f32>, front::Write<'static, f32>, front::Update<'static, f32>,
    front::Reduce<'static, f32>, front::Commute<'static, f32>, front::Serial, front::Done,
    front::Plan, front::LiveScope<'static, 'static>, front::TaskFuture<'static>,
    front::OnDevices<'static, front::Serial>, front::TaskBuilder<'static, front::Serial, ()>,
    reshard::RefitActivity, reshard::RefitEvent, reshard::ShardStrides,
    reshard::Requests<'static, 'static>,
}
// Bodies may be of any thread, but a recording is made by one at a time.
threads! { true false: front::Recorder<'static> }
threads! { false false: front::Bound<'static> }

// Shared, but dropped where they were taken: the thread that holds a guard must not wait for it.
threads! { false true: device::Map<'static>, device::MapMut<'static>, device::SubmissionGuard<'static> }
threads! { false false:
    device::Claim<'static>, runtime::stream::HostRead<'static>, runtime::stream::HostWrite<'static>,
    runtime::replay::BoundPlan<'static>,
}

// A task is built by one thread and may be submitted by another.
threads! { true false: runtime::stream::Task }

// What a body is given stays with it.
threads! { false false:
    device::KernelArgs<'static>, device::Strided<'static, f32>, device::StridedMut<'static, f32>,
    runtime::stream::TaskContext<'static>, kernels::ForeignArg, transport::SlotMemory,
}

/// Traits, of which the types above are; and what only drivers are made of, which no user holds.
const EXEMPT: &[&str] = &[
    "Allocator",
    "Arguments",
    "BackendProbe",
    "Bind",
    "BodyOutcome",
    "Composite",
    "ControlPlane",
    "CpuFunction",
    "DataPlane",
    "Device",
    "DriverDevice",
    "DriverLane",
    "Element",
    "Ending",
    "Home",
    "KernelOutcome",
    "Lane",
    "LateArgs",
    "Launch",
    "Memory",
    "MemoryPlane",
    "Obstacle",
    "RecordTasks",
    "RecordedTasks",
    "Result",
    "RunTasks",
    "Slots",
    "Source",
    "Submit",
    "Transport",
    "Wake",
    "WhenDone",
    "Woken",
];

/// Where the facade's modules say what they export.
const MODULES: &[&str] = &[
    "deps/src/lib.rs",
    "tensor/src/lib.rs",
    "trace/src/lib.rs",
    "trace/src/capture.rs",
    "plan/src/lib.rs",
    "device/src/lib.rs",
    "device/src/cpu.rs",
    "backend/src/lib.rs",
    "backend/src/driver.rs",
    "kernels/src/lib.rs",
    "front/src/lib.rs",
    "runtime/src/lib.rs",
    "runtime/src/executor.rs",
    "runtime/src/replay.rs",
    "runtime/src/stream/mod.rs",
    "reshard/src/lib.rs",
    "transport/src/lib.rs",
    "layout/src/lib.rs",
    "layout/src/simulate/mod.rs",
    "vulkan/src/lib.rs",
    "opencl/src/lib.rs",
    "cuda/src/lib.rs",
];

#[test]
fn every_public_type_is_in_the_table() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let table = include_str!("threads.rs").split("const EXEMPT").next().unwrap();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let known: Vec<&str> = table.split(|c| !is_word(c)).chain(EXEMPT.iter().copied()).collect();
    let mut missing = Vec::new();
    let mut seen = 0;
    for module in MODULES {
        let text = fs::read_to_string(crates.join(module)).unwrap();
        for exports in text.split("\npub use ").skip(1) {
            let exports = exports.split(';').next().unwrap();
            // Renamed items go by their new names: the last word of each.
            let names = exports.rsplit("::{").next().unwrap().trim_end_matches('}').split(',');
            let last = |name: &str| name.trim().rsplit([' ', ':']).next().unwrap().to_owned();
            for name in names.map(last) {
                let is_type =
                    name.starts_with(char::is_uppercase) && name.contains(char::is_lowercase);
                seen += usize::from(is_type);
                if is_type && !known.contains(&name.as_str()) {
                    missing.push(format!("{name} of {module}"));
                }
            }
        }
    }
    assert!(seen > 200, "only {seen} types are exported");
    assert!(missing.is_empty(), "say whether they are Send and Sync: {}", missing.join(", "));
}
