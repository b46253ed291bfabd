//! Every kernel on real devices, through their lanes, against the plain reference; integers against
//! the CPU, bit for bit.
//!
//! A missing driver is a failure in CI, and a visible skip elsewhere.

use std::sync::Arc;
use std::time::Duration;

use syncline_device::registry::BackendProbe;
use syncline_device::{
    Backend, Batch, Command, Deadline, Device, DeviceError, Kernel, KernelArg, Scalar,
};
use syncline_kernels::{Entry, Library};
use syncline_tensor::{Access, Dtype};
use syncline_testing::{Rng, for_seeds, is_ci, need};

use crate::cases::{Case, dtypes};
use crate::support::{Held, run};

/// The first device of a backend, or nothing where there is no driver.
fn open(probe: &dyn BackendProbe) -> Option<Arc<dyn Device>> {
    need(&format!("a {} device", probe.backend()), probe.open(0))
}

pub fn vulkan() -> Option<Arc<dyn Device>> {
    open(&syncline_vulkan::Probe::default())
}

pub fn opencl() -> Option<Arc<dyn Device>> {
    open(&syncline_opencl::Probe::default())
}

/// Runs the kernel on the arguments, each in a buffer of its own.
fn dispatch(
    device: &Arc<dyn Device>,
    kernel: &Kernel,
    held: &mut [Held],
    scalars: &[Scalar],
) -> Result<(), DeviceError> {
    let mut args = Vec::new();
    for one in held.iter() {
        let buffer = device.buffer(one.bytes.len() as u64);
        buffer.write(0, &one.bytes)?;
        args.push(KernelArg::new(one.access, buffer.view(one.view)?));
    }
    let buffers: Vec<_> = args.iter().map(|arg| arg.target.buffer().clone()).collect();
    let command = Command::dispatch(kernel, args, scalars.to_vec());
    let done = device.lanes()[0].submit(Batch::new().command(command))?;
    done.wait(Deadline::after(Duration::from_secs(120)))?;
    for (one, buffer) in held.iter_mut().zip(buffers) {
        one.bytes = buffer.read(0, one.bytes.len())?;
    }
    Ok(())
}

/// What WGSL cannot do with such arguments, as the source says; nothing else may be refused.
fn is_refused_by_design(device: &Arc<dyn Device>, error: &DeviceError, held: &[Held]) -> bool {
    let has = |wide: &[Dtype]| held.iter().any(|held| wide.contains(&held.view.dtype()));
    let is_vulkan = device.spec().backend == Backend::Vulkan;
    let wide = has(&[Dtype::F64]) || has(&[Dtype::I64, Dtype::U64]);
    matches!(error, DeviceError::KernelRefuses { message, .. } if message.contains("WGSL"))
        && is_vulkan
        && wide
}

/// Every compilation takes a driver a while: all dtypes are tried in CI, elsewhere `f32` and
/// another one.
fn some_of<T: Clone>(all: Vec<T>, rng: &mut Rng) -> Vec<T> {
    if is_ci() || std::env::var_os("SYNCLINE_THOROUGH").is_some() {
        return all;
    }
    match &all[..] {
        [first, rest @ ..] if !rest.is_empty() => vec![first.clone(), rng.pick(rest).clone()],
        _ => all,
    }
}

fn against_reference(device: &Arc<dyn Device>, entry: &Entry, dtypes: &[Dtype], rng: &mut Rng) {
    let name = entry.signature.name.as_str();
    let mut case = Case::random(entry, dtypes, rng);
    let before: Vec<_> = case.held.iter().map(|held| held.bytes.clone()).collect();
    match dispatch(device, &entry.kernel, &mut case.held, &case.scalars) {
        Ok(()) => case.verify(name, &before),
        Err(error) if is_refused_by_design(device, &error, &case.held) => {}
        Err(error) => panic!("{name} on {}: {error}", device.spec()),
    }
}

fn all_against_reference(test: &str, device: Option<Arc<dyn Device>>, names: &[&str]) {
    let Some(device) = device else { return };
    let library = Library::builtin();
    for_seeds(test, 1, |rng| {
        for name in names {
            let entry = library.get(name).unwrap();
            for dtypes in some_of(dtypes(entry, rng), rng) {
                (0..12).for_each(|_| against_reference(&device, entry, &dtypes, rng));
            }
        }
    });
}

const ELEMENTWISE: &[&str] = &["fill", "copy", "cast", "add", "sub", "mul", "scale", "axpy"];
const FLOATING: &[&str] = &["gelu", "silu", "stencil", "embedding", "transpose"];
const ROWS: &[&str] = &["reduce_sum", "reduce_max", "softmax", "layernorm", "rmsnorm"];
const MATRICES: &[&str] = &["gemm", "syrk", "trsm", "potrf"];

#[test]
fn every_kernel_is_tried() {
    let tried = [ELEMENTWISE, FLOATING, ROWS, MATRICES].concat();
    for entry in Library::builtin().iter() {
        assert!(tried.contains(&entry.signature.name.as_str()), "{}", entry.signature.name);
    }
}

/// A test for each device and family: drivers compile them side by side.
macro_rules! against_reference {
    ($($test:ident: $device:expr, $names:expr;)*) => {$(
        #[test]
        fn $test() {
            all_against_reference(stringify!($test), $device, $names);
        }
    )*};
}
against_reference! {
    elementwise_on_vulkan: vulkan(), ELEMENTWISE;
    floating_on_vulkan: vulkan(), FLOATING;
    rows_on_vulkan: vulkan(), ROWS;
    matrices_on_vulkan: vulkan(), MATRICES;
    elementwise_on_opencl: opencl(), ELEMENTWISE;
    floating_on_opencl: opencl(), FLOATING;
    rows_on_opencl: opencl(), ROWS;
    matrices_on_opencl: opencl(), MATRICES;
}

const INTEGERS: [Dtype; 8] =
    [Dtype::I32, Dtype::U32, Dtype::I64, Dtype::U64, Dtype::I16, Dtype::U16, Dtype::I8, Dtype::U8];

/// Any bits at all in the arguments: what overflows must overflow in the same way everywhere.
fn as_the_cpu(device: &Arc<dyn Device>, entry: &Entry, dtype: Dtype, rng: &mut Rng) {
    let name = entry.signature.name.as_str();
    let shape = [rng.range(1..6), rng.range(1..70)];
    let target = if name.starts_with("reduce") { &shape[..1] } else { &shape[..] };
    let count = entry.signature.parameters.len();
    let mut held: Vec<Held> = (0..count)
        .map(|position| {
            let parameter = entry.signature.parameters[position];
            let access = match (parameter.reads, parameter.writes) {
                (true, true) => Access::InOut,
                (false, _) => Access::OutputExisting,
                _ => Access::Input,
            };
            let of = if position + 1 == count { target } else { &shape };
            let mut one = Held::random_layout(rng, dtype, of, access);
            one.bytes.iter_mut().for_each(|byte| *byte = rng.next_u64() as u8);
            one
        })
        .collect();
    let scalars: Vec<Scalar> =
        entry.signature.scalars.iter().map(|_| Scalar::I64(rng.next_u64() as i64)).collect();
    let mut expected: Vec<Held> = held.to_vec();
    run(&entry.kernel, &mut expected, &scalars).unwrap();
    dispatch(device, &entry.kernel, &mut held, &scalars)
        .unwrap_or_else(|error| panic!("{name} on {}: {error}", device.spec()));
    for (position, (got, wanted)) in held.iter().zip(&expected).enumerate() {
        assert_eq!(got.bytes, wanted.bytes, "{name} {dtype} {scalars:?}: argument {position}");
    }
}

fn all_as_the_cpu(test: &str, device: Option<Arc<dyn Device>>) {
    let Some(device) = device else { return };
    let library = Library::builtin();
    for_seeds(test, 1, |rng| {
        for name in
            ["fill", "copy", "add", "sub", "mul", "scale", "axpy", "reduce_sum", "reduce_max"]
        {
            for dtype in some_of(INTEGERS.to_vec(), rng) {
                (0..6).for_each(|_| {
                    as_the_cpu(&device, library.get(name).unwrap(), dtype, rng);
                });
            }
        }
    });
}

#[test]
fn integers_on_vulkan_are_those_of_the_cpu() {
    all_as_the_cpu("integers_on_vulkan_are_those_of_the_cpu", vulkan());
}

#[test]
fn integers_on_opencl_are_those_of_the_cpu() {
    all_as_the_cpu("integers_on_opencl_are_those_of_the_cpu", opencl());
}

/// A target that is the source, byte for byte: every work item reads what it needs of an element
/// before it stores it.
fn in_place(device: Option<Arc<dyn Device>>) {
    let Some(device) = device else { return };
    let library = Library::builtin();
    for (name, dtype) in [("scale", Dtype::F16), ("softmax", Dtype::F32), ("rmsnorm", Dtype::BF16)]
    {
        let entry = library.get(name).unwrap();
        let mut rng = Rng::new(17);
        let mut apart: Vec<Held> = Vec::new();
        for (position, parameter) in entry.signature.parameters.iter().enumerate() {
            let shape: &[u64] = if name == "rmsnorm" && position == 1 { &[70] } else { &[5, 70] };
            let access = if parameter.writes { Access::OutputExisting } else { Access::Input };
            let mut one = Held::random_layout(&mut rng, dtype, shape, access);
            let count = shape.iter().product::<u64>();
            one.set(&(0..count).map(|at| (at % 13) as f64 / 4.0 - 1.0).collect::<Vec<_>>());
            apart.push(one);
        }
        let buffers: Vec<_> = apart
            .iter()
            .map(|one| {
                let buffer = device.buffer(one.bytes.len() as u64);
                buffer.write(0, &one.bytes).unwrap();
                buffer
            })
            .collect();
        let last = apart.len() - 1;
        let arg = |(position, one): (usize, &Held)| {
            let from = if position == last { 0 } else { position };
            KernelArg::new(one.access, buffers[from].view(apart[from].view).unwrap())
        };
        let args: Vec<KernelArg> = apart.iter().enumerate().map(arg).collect();
        let scalars: Vec<Scalar> = entry.signature.scalars.iter().map(|one| one.default).collect();
        let command = Command::dispatch(&entry.kernel, args, scalars.clone());
        let done = device.lanes()[0].submit(Batch::new().command(command)).unwrap();
        done.wait(Deadline::after(Duration::from_secs(120))).unwrap();
        let mut together = apart[0].clone();
        together.bytes = buffers[0].read(0, together.bytes.len()).unwrap();
        dispatch(&device, &entry.kernel, &mut apart, &scalars).unwrap();
        assert_eq!(together.get(), apart[last].get(), "{name} on {}", device.spec());
    }
}

#[test]
fn in_place_on_vulkan() {
    in_place(vulkan());
}

#[test]
fn in_place_on_opencl() {
    in_place(opencl());
}
