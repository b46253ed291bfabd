//! Calls that are refused before anything runs, each with its own message.

use syncline_deps::{Access, Arg, BufferId, Dtype, View};
use syncline_device::Scalar;
use syncline_kernels::{KernelError, Library};

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
