//! Calls that are refused before anything runs, each with its own message.

use syncline_device::{Backend, Scalar};
use syncline_kernels::{KernelError, Library};
use syncline_tensor::{Access, Arg, BufferId, Dtype, View};

fn arg(access: Access, dtype: Dtype, shape: &[u64]) -> Arg {
    Arg::new(access, BufferId(0), View::contiguous(dtype, shape).unwrap())
}

fn refused(kernel: &str, args: &[Arg]) -> String {
    let library = Library::builtin();
    let signature = &library.get(kernel).unwrap().signature;
    let scalars = signature.scalars([]).unwrap();
    signature.check(args, &scalars).unwrap_err().to_string()
}

#[test]
fn wrong_calls_say_what_is_wrong() {
    use Access::{Input, OutputExisting};
    let f32_of = |access, shape: &[u64]| arg(access, Dtype::F32, shape);
    assert_eq!(
        refused("axpy", &[f32_of(Input, &[4])]),
        "kernel `axpy` takes 2 arguments (source, target), not 1"
    );
    assert_eq!(
        refused("axpy", &[f32_of(Input, &[4]), f32_of(OutputExisting, &[4])]),
        "kernel `axpy`, argument 1 (`target`): accessed as output_existing, it needs one that reads and writes"
    );
    assert_eq!(
        refused("silu", &[arg(Input, Dtype::I32, &[4]), f32_of(OutputExisting, &[4])]),
        "kernel `silu`, argument 0 (`source`): i32 elements; it takes f32, f16, bf16"
    );
    assert_eq!(
        refused("add", &[f32_of(Input, &[4]), f32_of(Input, &[5]), f32_of(OutputExisting, &[4])]),
        "kernel `add`: the shapes [[4], [5], [4]] must be the same"
    );
    assert_eq!(
        refused(
            "gemm",
            &[f32_of(Input, &[2, 3]), f32_of(Input, &[2, 3]), f32_of(Access::InOut, &[2, 3])]
        ),
        "kernel `gemm`: op(a) [2, 3] times op(b) [2, 3] does not give c [2, 3]"
    );
}

#[test]
fn names_are_suggested() {
    let library = Library::builtin();
    let error = library.get("sotfmax").unwrap_err();
    assert_eq!(
        error.to_string(),
        "no kernel `sotfmax`: did you mean `softmax`?; `syncline kernels` lists them"
    );
    let gemm = &library.get("gemm").unwrap().signature;
    let error = gemm.scalars([("transposeb", Scalar::Bool(true))]).unwrap_err();
    assert!(
        matches!(&error, KernelError::UnknownScalar { nearest: Some(name), .. } if name == "transpose_b")
    );
}

/// Why a backend has no source for such arguments.
fn no_source(kernel: &str, backend: Backend, views: &[View]) -> String {
    let library = Library::builtin();
    library.get(kernel).unwrap().kernel.source(backend, views).unwrap_err().to_string()
}

#[test]
fn what_a_compiled_kernel_cannot_do_names_the_argument() {
    let of = |dtype| View::contiguous(dtype, &[4, 4]).unwrap();
    let (vulkan, opencl) = (Backend::Vulkan, Backend::OpenCl);
    let both = |kernel: &str, views: &[View], wanted: &str| {
        for backend in [vulkan, opencl] {
            let message = no_source(kernel, backend, views);
            assert!(message.contains(wanted) && message.contains(kernel), "{message}");
        }
    };
    let message = no_source("add", vulkan, &[of(Dtype::F64); 3]);
    assert!(message.contains("argument 0 (`left`): f64 elements: WGSL has no double"), "{message}");
    let message = no_source("cast", vulkan, &[of(Dtype::F32), of(Dtype::I64)]);
    assert!(message.contains("argument 1 (`target`): i64 elements: WGSL does not"), "{message}");
    both("add", &[of(Dtype::F32), of(Dtype::F32), of(Dtype::I32)], "argument 2 (`target`): i32");
    both(
        "silu",
        &[of(Dtype::F32), of(Dtype::I32)],
        "argument 1 (`target`): i32 elements; it takes",
    );
    let odd = View::strided(Dtype::F16, 1, &[4, 4], &[8, 2]).unwrap();
    both("silu", &[of(Dtype::F32), odd], "argument 1 (`target`): its elements do not lie on");
    let odd = View::strided(Dtype::F32, 0, &[4, 4], &[18, 4]).unwrap();
    both("silu", &[odd, of(Dtype::F32)], "argument 0 (`source`): its elements do not lie on");
    let large = View::strided(Dtype::U8, 0, &[1 << 20, 1 << 12], &[0, 0]).unwrap();
    both("reduce_sum", &[large, of(Dtype::U8)], "argument 0 (`source`): 4294967296 elements");
    both("copy", &[of(Dtype::U8)], "it takes 2 arguments, not 1");
    // What only moves elements needs to know no more than their size.
    for kernel in ["copy", "transpose"] {
        let library = Library::builtin();
        library.get(kernel).unwrap().kernel.source(vulkan, &[of(Dtype::F64); 2]).unwrap();
    }
}
