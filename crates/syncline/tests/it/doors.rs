//! The doors through which kernels are launched: each refuses a call that the kernel could not work
//! with.

use std::sync::Arc;
use std::time::Duration;

use syncline::device::{
    Command, Deadline, Device, DeviceError, Kernel, KernelArg, KernelArgs, LaneKind, Recording,
    Scalar,
};
use syncline::kernels::Library;
use syncline::plan::{BufferSpec, CompileOptions, ExecutionPlan, TaskGraph, TaskSpec};
use syncline::runtime::executor::machine_of;
use syncline::runtime::replay::{LoadOptions, LoadedPlan, TaskBody};
use syncline::runtime::stream::{Stream, StreamOptions, Task};
use syncline::runtime::{ExecutorOptions, UnifiedExecutor};
use syncline::tensor::{Access, Arg, Dtype, View};

use crate::{devices, executor};

const BYTES: u64 = 64 * 64 * 4;

/// A kernel, its arguments and its scalars.
type Call = (&'static str, Vec<(Access, View)>, Vec<Scalar>);

fn kernel(name: &str) -> Kernel {
    Library::builtin().get(name).unwrap().kernel.clone()
}

/// Calls that used to read or write beyond their arguments.
fn wrong() -> Vec<Call> {
    let of = |shape: &[u64]| View::contiguous(Dtype::F32, shape).unwrap();
    let (input, output, inout) = (Access::Input, Access::OutputExisting, Access::InOut);
    let gemm = |shapes: [&[u64]; 3]| {
        let accesses = [input, input, inout];
        accesses.into_iter().zip(shapes.map(of)).collect::<Vec<_>>()
    };
    let four = vec![Scalar::F32(1.0), Scalar::F32(0.0), Scalar::Bool(false), Scalar::Bool(false)];
    let two = four[..2].to_vec();
    let far = View::strided(Dtype::F32, 1 << 40, &[0, 5], &[20, 4]).unwrap();
    vec![
        ("gemm", gemm([&[2, 2], &[2, 2], &[64, 64]]), four.clone()),
        ("gemm", gemm([&[2, 2], &[2, 2], &[2, 2]]), two.clone()),
        ("gemm", gemm([&[2, 2], &[2, 2], &[2, 2]])[..2].to_vec(), four),
        ("syrk", vec![(input, of(&[4_096, 1])), (inout, of(&[1, 1]))], two),
        ("transpose", vec![(input, of(&[4, 4])), (output, far)], vec![]),
        ("softmax", vec![(input, of(&[4, 4])), (input, of(&[4, 4]))], vec![Scalar::Bool(false)]),
        ("reduce_sum", vec![(input, of(&[4, 4])), (output, of(&[4_000]))], vec![]),
        ("copy", vec![], vec![]),
    ]
}

/// Fails unless the outcome is that the kernel refuses the call.
fn refused<T: std::fmt::Debug, E: std::error::Error>(what: &str, call: &Call, it: Result<T, E>) {
    let error = it.expect_err(&format!("{what} takes {call:?}"));
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    assert!(text.contains("does not take this on"), "{what}, {call:?}: {text}");
}

/// The arguments of a call, each in a buffer of its own.
fn args(device: &Arc<dyn Device>, (_, args, _): &Call) -> Vec<KernelArg> {
    let arg = |&(access, view): &(Access, View)| {
        KernelArg::new(access, device.buffer(BYTES).view(view).unwrap())
    };
    args.iter().map(arg).collect()
}

#[test]
fn lanes_and_recordings_refuse_wrong_calls() {
    let Some(devices) = devices() else { return };
    for device in &devices {
        let lane = device.lane(LaneKind::Compute);
        for call in wrong() {
            let command =
                || Command::dispatch(&kernel(call.0), args(device, &call), call.2.clone());
            refused("a lane", &call, lane.submit(command().into()));
            // SAFETY: nothing runs.
            refused("a lane", &call, unsafe { lane.submit_unordered(command().into()) });
            let recording = Arc::new(Recording::new(vec![command()]).unwrap());
            for _ in 0..2 {
                let batch = Command::recording(&recording).into();
                refused("a recording", &call, lane.submit(batch));
            }
        }
        lane.synchronize(Deadline::after(Duration::from_secs(60))).unwrap();
    }
}

#[test]
fn executors_refuse_wrong_calls() {
    let Some(executor): Option<UnifiedExecutor> = executor(ExecutorOptions::default()) else {
        return;
    };
    for context in executor.contexts() {
        for call in wrong() {
            let args = args(context.device(), &call);
            let point =
                executor.execute_kernel(context.spec(), &kernel(call.0), args, call.2.clone());
            refused("an executor", &call, point);
        }
    }
}

#[test]
fn streams_refuse_wrong_calls() {
    let stream = Stream::new(StreamOptions::default()).unwrap();
    for call in wrong() {
        let task = || {
            let task = Task::new("wrong").kernel(&kernel(call.0), &call.2);
            call.1.iter().fold(task, |task, &(access, view)| {
                task.arg(access, &stream.buffer(BYTES).unwrap(), view)
            })
        };
        refused("a stream", &call, stream.submit(task()));
        let child = task();
        let parent = Task::new("parent").parent(move |context| {
            context.submit(child).map(|_| ()).map_err(|error| error.to_string())
        });
        stream.submit(parent).unwrap();
        let error = stream.wait_all().unwrap_err().to_string();
        assert!(error.contains("does not take this on"), "{call:?}: {error}");
    }
}

#[test]
fn plans_refuse_wrong_calls() {
    let Some(devices) = devices() else { return };
    for device in &devices {
        for call in wrong() {
            let mut graph = TaskGraph::new();
            let args: Vec<Arg> = (call.1.iter().enumerate())
                .map(|(at, &(access, view))| {
                    let name = format!("x{at}");
                    let buffer = graph.add_buffer(BufferSpec::external(&name, BYTES)).unwrap();
                    Arg::new(access, buffer, view)
                })
                .collect();
            let spec = device.spec().to_string();
            let task = TaskSpec::new(call.0, &args).on(&spec);
            // Views outside of their buffers are no graph to begin with.
            if graph.submit(&task).is_err() {
                continue;
            }
            let machine = machine_of(&devices, &[]).unwrap();
            let plan = ExecutionPlan::compile(&graph, &machine, &CompileOptions::default());
            let plan = Arc::new(plan.unwrap());
            for options in
                [LoadOptions::default(), LoadOptions::default().on_lanes_of(device.spec())]
            {
                let body = |_: syncline::plan::TaskInfo<'_>, _| {
                    Some(TaskBody::kernel(&kernel(call.0), call.2.clone()))
                };
                let loaded = LoadedPlan::load_with(plan.clone(), &devices, body, options);
                refused("a plan", &call, loaded);
            }
        }
    }
}

#[test]
fn kernels_called_by_bodies_refuse_wrong_calls() {
    let stream = Stream::new(StreamOptions::default()).unwrap();
    for call in wrong() {
        // A body knows the arguments of its task only, and scalars there are none.
        let inner = kernel(call.0);
        let task = Task::new("outer")
            .body(move |args| inner.call(args).map_err(|error| error.to_string()));
        // A task does not keep its buffers until it is submitted.
        let buffers: Vec<_> = call.1.iter().map(|_| stream.buffer(BYTES).unwrap()).collect();
        let args = call.1.iter().zip(&buffers);
        let task =
            args.fold(task, |task, (&(access, view), buffer)| task.arg(access, buffer, view));
        stream.submit(task).unwrap();
        let error = stream.wait_all().unwrap_err().to_string();
        assert!(error.contains("does not take this on"), "{call:?}: {error}");
    }
}

/// Kernels reach their arguments by address, which a slice that is in use must not see.
#[test]
fn bodies_cannot_lend_what_they_have_taken() {
    let stream = Stream::new(StreamOptions::default()).unwrap();
    let view = View::contiguous(Dtype::F32, &[64]).unwrap();
    let [from, to] = [(); 2].map(|()| stream.buffer(256).unwrap());
    stream.write(&from).unwrap().as_mut_slice::<f32>().unwrap().fill(2.0);
    let task = |body: fn(&Kernel, &mut KernelArgs<'_>) -> Result<(), DeviceError>| {
        let copy = kernel("copy");
        let task = Task::new("outer").input(&from, view).output_existing(&to, view);
        stream.submit(task.body(move |args| body(&copy, args))).unwrap();
        stream.wait_all()
    };
    let takes: [fn(&Kernel, &mut KernelArgs<'_>) -> Result<(), DeviceError>; 4] = [
        |copy, args| args.slice::<f32>(0).and_then(|_| copy.call(args)),
        |copy, args| args.slice_mut::<f32>(1).and_then(|_| copy.call(args)),
        |copy, args| args.strided::<f32>(0).and_then(|_| copy.call(args)),
        |copy, args| args.strided_mut::<f32>(1).and_then(|_| copy.call(args)),
    ];
    for take in takes {
        let error = task(take).unwrap_err().to_string();
        assert!(error.contains("it was taken before"), "{error}");
    }
    // What the called kernels took is free again.
    let sums = |copy: &Kernel, args: &mut KernelArgs<'_>| {
        copy.call(args)?;
        let takes = Kernel::cpu("takes", |args| args.slice_mut::<f32>(1).map(drop));
        takes.call(args)?;
        takes.call(args)?;
        args.slice_mut::<f32>(1).map(|xs| xs.iter_mut().for_each(|x| *x += 1.0))
    };
    task(sums).unwrap();
    assert_eq!(stream.read(&to).unwrap().as_slice::<f32>().unwrap(), [3.0; 64]);
}

#[test]
fn built_in_kernels_refuse_blocks() {
    let stream = Stream::new(StreamOptions::default()).unwrap();
    let view = View::contiguous(Dtype::F32, &[64]).unwrap();
    for entry in Library::builtin().iter() {
        let task = Task::new("blocks").kernel(&entry.kernel, &[]).kernel_blocks(4);
        let error = stream.submit(task).unwrap_err().to_string();
        assert!(error.contains("4 blocks") && error.contains("by_blocks"), "{error}");
    }
    // Nor can a body that is shared by blocks hand them on.
    let (copy, buffer) = (kernel("copy"), stream.buffer(BYTES).unwrap());
    let call = move |args: &mut KernelArgs<'_>| copy.call(args);
    let source = stream.buffer(BYTES).unwrap();
    let task = Task::new("outer").input(&source, view).output_existing(&buffer, view);
    stream.submit(task.blocks(4, call)).unwrap();
    let error = stream.wait_all().unwrap_err().to_string();
    assert!(error.contains("4 blocks"), "{error}");
}

#[test]
fn kernels_that_know_blocks_share_the_work_out() {
    let stream = Stream::new(StreamOptions::default()).unwrap();
    let body = |args: &mut KernelArgs<'_>| {
        args.block_slice_mut::<f32>(0).map(|xs| xs.iter_mut().for_each(|x| *x += 1.0))
    };
    let knows = Kernel::builder("knows").cpu(body).by_blocks().build();
    let buffer = stream.buffer(256).unwrap();
    let view = View::contiguous(Dtype::F32, &[64]).unwrap();
    stream.write(&buffer).unwrap().as_mut_slice::<f32>().unwrap().fill(0.0);
    let task = |kernel: &Kernel| Task::new("add").inout(&buffer, view).kernel(kernel, &[]);
    stream.submit(task(&knows).kernel_blocks(7)).unwrap();
    stream.wait_all().unwrap();
    assert_eq!(stream.read(&buffer).unwrap().as_slice::<f32>().unwrap(), [1.0; 64]);
    let counts = Kernel::cpu("does not say", body);
    let error = stream.submit(task(&counts).kernel_blocks(7)).unwrap_err().to_string();
    assert!(error.contains("7 blocks"), "{error}");
}
