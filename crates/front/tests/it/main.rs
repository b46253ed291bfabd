//! The front end.
//!
//! - `modes`: one function in a stream, a scope, a plan and serially, with the same result
//! - `awaiting`: tasks awaited under tokio and futures
//! - `operations`: the built-in kernels as functions, against loops
//! - `tensors`: views against the places that they mean
//! - `misuse`: refusals, and what they say

mod awaiting;
mod misuse;
mod modes;
mod operations;
mod tensors;

use std::sync::Arc;

use syncline_device::cpu::{CpuDevice, CpuOptions};
use syncline_front::{Bound, RecordTasks, Recorder, Result, RunTasks, Serial, Submit, Tensor};
use syncline_runtime::UnifiedExecutor;
use syncline_runtime::stream::{Stream, StreamOptions};
use syncline_testing::for_seeds;

/// An executor with one CPU device of two lanes.
fn executor() -> UnifiedExecutor {
    let mut executor = UnifiedExecutor::new();
    let device = CpuDevice::open(CpuOptions::new(0).compute_lanes(2)).expect("threads");
    executor.add_device(Arc::clone(&device)).expect("the only one");
    executor
}

fn stream() -> Stream {
    Stream::new(StreamOptions { workers: 2, ..Default::default() }).expect("valid")
}

#[test]
fn operations_agree_with_loops_in_every_mode() {
    let executor = executor();
    for_seeds("operations_agree_with_loops_in_every_mode", 12, |rng| {
        operations::agree(&executor, rng);
    });
}

/// A program on tensors of the same shape.
trait Program {
    fn submit(&self, to: &impl Submit, tensors: &[Tensor<f64>]) -> Result<()>;
}

/// Runs `program` in every mode on the same contents, and returns what each mode left of the
/// tensors, the serial run's first.
fn in_every_mode(
    program: &impl Program,
    shape: [usize; 2],
    contents: &[Vec<f64>],
) -> Result<Vec<(&'static str, Vec<Vec<f64>>)>> {
    let (executor, mut results) = (executor(), Vec::new());
    let tensors = || {
        let tensors = contents.iter().map(|elements| Tensor::from_vec(shape, elements.clone()));
        tensors.collect::<Result<Vec<_>>>()
    };
    let read = |tensors: &[Tensor<f64>]| {
        tensors.iter().map(Tensor::to_vec).collect::<Result<Vec<Vec<f64>>>>()
    };

    let serial = tensors()?;
    program.submit(&Serial, &serial)?;
    results.push(("serial", read(&serial)?));

    let live = tensors()?;
    let stream = stream();
    program.submit(&stream, &live)?;
    results.push(("stream", read(&live)?));

    let mut borrowed = contents.to_vec();
    executor.scope(|s| {
        let tensors = borrowed.iter_mut().map(|elements| s.borrow_mut(elements, shape));
        program.submit(s, &tensors.collect::<Result<Vec<_>>>()?)
    })?;
    results.push(("scope", borrowed));

    let names: Vec<String> = (0..contents.len()).map(|at| format!("T{at}")).collect();
    let record = |g: &Recorder<'_>| {
        let inputs = names.iter().map(|name| g.input(name, shape));
        program.submit(g, &inputs.collect::<Result<Vec<_>>>()?)
    };
    let plan = executor.record(record)?.compile()?;
    // Twice on other memory: a plan keeps nothing of a run.
    for mode in ["plan", "plan again"] {
        let mut bound = contents.to_vec();
        let all = names.iter().zip(&mut bound);
        plan.run(all.fold(Bound::new(), |all, (name, elements)| all.with(name, elements)))?;
        results.push((mode, bound));
    }

    // Tensors with memory of their own, in a plan and in the stream before and after it.
    let captured = tensors()?;
    let half = [captured[0].clone()];
    stream.task("nothing", half[0].update()).run(|_| ())?;
    executor.record(|g| program.submit(g, &captured))?.compile()?.run(Bound::new())?;
    stream.task("nothing", half[0].update()).run(|_| ())?;
    results.push(("captured", read(&captured)?));
    Ok(results)
}
