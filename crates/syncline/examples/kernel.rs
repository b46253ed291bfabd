//! A kernel with a body for each of three backends, serially, live, and in plans on each device.
//! `cargo run --release --example kernel`

use std::error::Error;

use syncline::device::{DeviceError, Grid, KernelArgs, KernelSource, ScalarType};
use syncline::prelude::*;
use syncline::tensor::Region;
use syncline::{Access, Arg, Backend};

/// 18 words describe each argument: offset, rank, 8 sizes, 8 strides. Then come the scalars.
const WGSL: &str = "
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read> params: array<u32>;

@compute @workgroup_size(64)
fn square_add(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) item: u32,
) {
    let i = (group.x + group.y * groups.x) * 64u + item;
    if i >= params[20] {
        return;
    }
    let value = x[params[0] + i * params[10]];
    let place = params[18] + i * params[28];
    y[place] = bitcast<f32>(params[36]) * (value * value) + y[place];
}";

const OPENCL: &str = "
__kernel void square_add(__global const float *x, __global float *y, __global const uint *params) {
    uint i = (get_group_id(0) + get_group_id(1) * get_num_groups(0)) * 64 + get_local_id(0);
    if (i >= params[20])
        return;
    float value = x[params[0] + i * params[10]];
    uint place = params[18] + i * params[28];
    y[place] = as_float(params[36]) * (value * value) + y[place];
}";

fn on_cpu(args: &mut KernelArgs<'_>) -> Result<(), DeviceError> {
    let alpha = args.scalar(0)?.as_f32();
    let (x, mut y) = (args.tensor::<f32>(0)?, args.tensor_mut::<f32>(1)?);
    let mut values = x.iter();
    y.apply(|y| values.next().map_or(y, |x| alpha * (x * x) + y));
    Ok(())
}

/// The bytes of an argument. Arguments of a plan may share a buffer of their device.
fn bytes(arg: &Arg) -> Region {
    Region::of(&arg.view)
}

/// `y = alpha * x * x + y`, element by element.
fn square_add() -> Kernel {
    let with =
        |source: KernelSource| source.scalars([ScalarType::F32]).grid(Grid::Elements { arg: 1 });
    let wgsl = with(KernelSource::wgsl(WGSL, "square_add", [64, 1, 1]));
    // SAFETY: the check below lets vectors of one length pass only; items beyond it do nothing, and
    // `y` alone is written.
    let opencl = unsafe { KernelSource::native(Backend::OpenCl, OPENCL, "square_add", [64, 1, 1]) };
    let builder = Kernel::builder("square_add").cpu(on_cpu).source(wgsl).source(with(opencl));
    builder
        .check(|args, scalars| match (args, scalars) {
            ([x, y], [Scalar::F32(_)])
                if x.view.shape() == y.view.shape()
                    && x.view.rank() == 1
                    && [x, y].iter().all(|arg| f32::holds(arg.view.dtype()))
                    && !(x.buffer == y.buffer && bytes(x).overlaps(&bytes(y)))
                    && y.access != Access::Input =>
            {
                Ok(())
            }
            _ => Err("it takes two vectors of f32, of one length, and a factor".to_owned()),
        })
        .build()
}

fn twice(to: &impl Submit, kernel: &Kernel, x: &Tensor<f32>, y: &Tensor<f32>) -> Result<()> {
    for alpha in [0.5, 2.0] {
        to.task("square_add", (x.read(), y.update())).kernel(kernel, &[Scalar::F32(alpha)])?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let kernel = square_add();
    let numbers: Vec<f32> = (0..1000).map(|x| x as f32).collect();
    let tensors = || (Tensor::from(numbers.clone()), Tensor::from(vec![1.0f32; 1000]));
    let expected: Vec<f32> =
        numbers.iter().map(|x| 2.0 * (x * x) + (0.5 * (x * x) + 1.0)).collect();

    let (x, y) = tensors();
    twice(&Serial, &kernel, &x, &y)?;
    assert_eq!(y.to_vec()?, expected, "serial");

    let (x, y) = tensors();
    UnifiedExecutor::open("cpu")?.scope(|s| twice(s, &kernel, &x, &y))?;
    assert_eq!(y.to_vec()?, expected, "live");

    for device in ["cpu:0", "vulkan:0", "opencl:0"] {
        let devices = if device == "cpu:0" { device.to_owned() } else { format!("cpu:0,{device}") };
        let executor = match UnifiedExecutor::open(&devices) {
            Ok(executor) => executor,
            Err(error) => {
                println!("without {device}: {error}");
                continue;
            }
        };
        let (x, y) = tensors();
        let plan = executor.record(|g| twice(&g.on(&[device]), &kernel, &x, &y))?.compile()?;
        plan.run(bind! {})?;
        assert_eq!(y.to_vec()?, expected, "{device}");
        println!(
            "{device}: {} tasks, {} copies",
            plan.plan().tasks().len(),
            plan.plan().copies().len()
        );
    }

    let short = x.slice(0, 0..5)?;
    let wrong = Serial.task("wrong", (x.read(), short.update()));
    println!("refused: {}", wrong.kernel(&kernel, &[Scalar::F32(1.0)]).expect_err("5 elements"));
    Ok(())
}

#[test]
fn runs() -> Result<(), Box<dyn Error>> {
    main()
}
