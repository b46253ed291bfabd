//! The built-in kernels as typed functions: each submits its tasks and returns a fresh tensor of
//! the shape that follows.
//!
//! They run wherever tasks do: live on the CPU, recorded on any device that the kernel has a body
//! for. [`Submit::on`] keeps them on some devices.
//!
//! ```
//! use syncline_front::{Serial, Tensor, ops};
//!
//! let x = Tensor::from_vec([2, 2], vec![1.0f32, 2.0, 3.0, 4.0])?;
//! let y = ops::matmul(&Serial, &x, &x.transpose(0, 1)?)?;
//! assert_eq!(y.to_vec()?, [5.0, 11.0, 11.0, 25.0]);
//! let bias = Tensor::from(vec![10.0, 20.0]);
//! assert_eq!(ops::add(&Serial, &y, &bias)?.to_vec()?, [15.0, 31.0, 21.0, 45.0]);
//! # Ok::<(), syncline_front::Error>(())
//! ```

use std::sync::OnceLock;

use half::{bf16, f16};
use syncline_device::{Element, Kernel, Scalar};
use syncline_kernels::Library;

use crate::access::Closed;
use crate::{Arguments, Error, ErrorKind, Result, Submit, Tensor};

/// Elements that kernels compute with.
pub trait Number: Element + Closed {}
/// Floats that matrices are multiplied in.
pub trait Real: Number {}
/// Floats that all kernels take.
pub trait Float: Real {}
/// Elements that name rows of a table.
pub trait RowId: Number {}

macro_rules! numbers {
    ($($element:ty: $($class:ident)*;)*) => {$(
        impl Closed for $element {}
        $(impl $class for $element {})*
    )*};
}

numbers! {
    f32: Number Real Float;
    f16: Number Real Float;
    bf16: Number Real Float;
    f64: Number Real;
    i32: Number RowId;
    u32: Number RowId;
    i64: Number RowId;
    u64: Number RowId;
    i16: Number;
    u16: Number;
    i8: Number;
    u8: Number;
}

fn kernel(name: &str) -> Result<&'static Kernel> {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    Ok(&LIBRARY.get_or_init(Library::builtin).get(name)?.kernel)
}

fn submit<A: Arguments>(
    to: &impl Submit,
    name: &'static str,
    arguments: A,
    scalars: &[Scalar],
) -> Result<()> {
    to.task(name, arguments).kernel(kernel(name)?, scalars)?;
    Ok(())
}

fn mismatch(op: &str, shapes: &[Vec<usize>]) -> Error {
    Error::new(ErrorKind::Shape, format!("`{op}` does not take the shapes {shapes:?}"))
}

/// The shape that two tensors broadcast to.
fn common(op: &str, a: &[usize], b: &[usize]) -> Result<Vec<usize>> {
    let rank = a.len().max(b.len());
    let size = |shape: &[usize], dim: usize| match (dim + shape.len()).checked_sub(rank) {
        Some(own) => shape[own],
        None => 1,
    };
    let both = |dim| match (size(a, dim), size(b, dim)) {
        (a, b) if a == b || b == 1 => Some(a),
        (1, b) => Some(b),
        _ => None,
    };
    let shape: Option<Vec<usize>> = (0..rank).map(both).collect();
    shape.ok_or_else(|| mismatch(op, &[a.to_vec(), b.to_vec()]))
}

fn binary<T: Number>(
    to: &impl Submit,
    name: &'static str,
    a: &Tensor<T>,
    b: &Tensor<T>,
) -> Result<Tensor<T>> {
    let shape = common(name, &a.shape(), &b.shape())?;
    let out = to.empty::<T>(&shape)?;
    let (a, b) = (a.broadcast(&shape)?, b.broadcast(&shape)?);
    submit(to, name, (a.read(), b.read(), out.write()), &[])?;
    Ok(out)
}

fn unary<T: Number>(
    to: &impl Submit,
    name: &'static str,
    x: &Tensor<T>,
    scalars: &[Scalar],
) -> Result<Tensor<T>> {
    let out = to.empty::<T>(x.shape())?;
    submit(to, name, (x.read(), out.write()), scalars)?;
    Ok(out)
}

/// The sum of two tensors, broadcast as in numpy.
///
/// # Errors
/// The shapes do not go together.
pub fn add<T: Number>(to: &impl Submit, a: &Tensor<T>, b: &Tensor<T>) -> Result<Tensor<T>> {
    binary(to, "add", a, b)
}

/// The difference of two tensors, broadcast as in numpy.
///
/// # Errors
/// The shapes do not go together.
pub fn sub<T: Number>(to: &impl Submit, a: &Tensor<T>, b: &Tensor<T>) -> Result<Tensor<T>> {
    binary(to, "sub", a, b)
}

/// The product of two tensors element by element, broadcast as in numpy.
///
/// # Errors
/// The shapes do not go together.
pub fn mul<T: Number>(to: &impl Submit, a: &Tensor<T>, b: &Tensor<T>) -> Result<Tensor<T>> {
    binary(to, "mul", a, b)
}

/// Each element times `alpha`.
///
/// # Errors
/// There is no memory for the result.
pub fn scale<T: Number>(to: &impl Submit, x: &Tensor<T>, alpha: f32) -> Result<Tensor<T>> {
    unary(to, "scale", x, &[Scalar::F32(alpha)])
}

/// Makes every element of `x` `value`.
///
/// # Errors
/// Elements of `x` share bytes.
pub fn fill<T: Number>(to: &impl Submit, x: &Tensor<T>, value: f32) -> Result<()> {
    submit(to, "fill", x.write(), &[Scalar::F32(value)])
}

/// The elements without gaps, in memory of their own.
///
/// # Errors
/// There is no memory for the result.
pub fn copy<T: Number>(to: &impl Submit, x: &Tensor<T>) -> Result<Tensor<T>> {
    unary(to, "copy", x, &[])
}

/// The elements as another type, rounded.
///
/// # Errors
/// There is no memory for the result.
pub fn cast<T: Number, U: Number>(to: &impl Submit, x: &Tensor<T>) -> Result<Tensor<U>> {
    let out = to.empty::<U>(x.shape())?;
    submit(to, "cast", (x.read(), out.write()), &[])?;
    Ok(out)
}

/// `x / (1 + exp(-x))`.
///
/// # Errors
/// There is no memory for the result.
pub fn silu<T: Float>(to: &impl Submit, x: &Tensor<T>) -> Result<Tensor<T>> {
    unary(to, "silu", x, &[])
}

/// `x` times its share in the normal distribution.
///
/// # Errors
/// There is no memory for the result.
pub fn gelu<T: Float>(to: &impl Submit, x: &Tensor<T>) -> Result<Tensor<T>> {
    unary(to, "gelu", x, &[Scalar::Bool(false)])
}

/// The softmax of each row, that is along the last dimension.
///
/// # Errors
/// There is no memory for the result.
pub fn softmax<T: Float>(to: &impl Submit, x: &Tensor<T>) -> Result<Tensor<T>> {
    unary(to, "softmax", x, &[Scalar::Bool(false)])
}

/// The softmax of each row, of which row `i` sees the elements `0..=i`.
///
/// # Errors
/// There is no memory for the result.
pub fn softmax_causal<T: Float>(to: &impl Submit, x: &Tensor<T>) -> Result<Tensor<T>> {
    unary(to, "softmax", x, &[Scalar::Bool(true)])
}

/// The softmax of each row of `x + mask`, where the mask has a large negative number for elements
/// that are not seen.
///
/// # Errors
/// The shapes do not go together.
pub fn softmax_masked<T: Float>(
    to: &impl Submit,
    x: &Tensor<T>,
    mask: &Tensor<T>,
) -> Result<Tensor<T>> {
    softmax(to, &add(to, x, mask)?)
}

/// Rows divided by their root mean square, times `gamma`.
///
/// # Errors
/// `gamma` is not as long as a row.
pub fn rmsnorm<T: Float>(
    to: &impl Submit,
    x: &Tensor<T>,
    gamma: &Tensor<T>,
    epsilon: f32,
) -> Result<Tensor<T>> {
    let out = to.empty::<T>(x.shape())?;
    let arguments = (x.read(), gamma.read(), out.write());
    submit(to, "rmsnorm", arguments, &[Scalar::F32(epsilon)])?;
    Ok(out)
}

/// Rows with mean 0 and deviation 1, times `gamma` plus `beta`.
///
/// # Errors
/// `gamma` or `beta` is not as long as a row.
pub fn layernorm<T: Float>(
    to: &impl Submit,
    x: &Tensor<T>,
    gamma: &Tensor<T>,
    beta: &Tensor<T>,
    epsilon: f32,
) -> Result<Tensor<T>> {
    let out = to.empty::<T>(x.shape())?;
    let arguments = (x.read(), gamma.read(), beta.read(), out.write());
    submit(to, "layernorm", arguments, &[Scalar::F32(epsilon)])?;
    Ok(out)
}

/// Rotary embedding of `x`, whose last two dimensions are positions and features: feature `i` of
/// the first half and feature `i` of the second turn by the angle with `cos` and `sin`, which have
/// positions by half the features.
///
/// # Errors
/// The number of features is odd, or the shapes do not go together.
pub fn rope<T: Float>(
    to: &impl Submit,
    x: &Tensor<T>,
    cos: &Tensor<T>,
    sin: &Tensor<T>,
) -> Result<Tensor<T>> {
    let Some((last, half)) = x.rank().checked_sub(1).map(|last| (last, x.size(last) / 2)) else {
        return Err(mismatch("rope", &[x.shape()]));
    };
    if !x.size(last).is_multiple_of(2) {
        return Err(mismatch("rope", &[x.shape(), cos.shape(), sin.shape()]));
    }
    let out = to.empty::<T>(x.shape())?;
    let (left, right) = (x.slice(last, 0..half)?, x.slice(last, half..2 * half)?);
    let (a, b) = (mul(to, &left, cos)?, mul(to, &right, sin)?);
    submit(to, "sub", (a.read(), b.read(), out.slice(last, 0..half)?.write()), &[])?;
    let (a, b) = (mul(to, &right, cos)?, mul(to, &left, sin)?);
    submit(to, "add", (a.read(), b.read(), out.slice(last, half..2 * half)?.write()), &[])?;
    Ok(out)
}

/// The rows of `table` that `ids` name.
///
/// # Errors
/// `table` is no matrix, or `ids` no vector.
pub fn embedding<T: Float, I: RowId>(
    to: &impl Submit,
    table: &Tensor<T>,
    ids: &Tensor<I>,
) -> Result<Tensor<T>> {
    let out = to.empty::<T>([ids.size(0), table.size(1)])?;
    submit(to, "embedding", (table.read(), ids.read(), out.write()), &[])?;
    Ok(out)
}

/// The sum along the last dimension.
///
/// # Errors
/// There is no dimension.
pub fn sum<T: Number>(to: &impl Submit, x: &Tensor<T>) -> Result<Tensor<T>> {
    reduced(to, "reduce_sum", x)
}

/// The largest element along the last dimension.
///
/// # Errors
/// There is no dimension, or it is empty.
pub fn max<T: Number>(to: &impl Submit, x: &Tensor<T>) -> Result<Tensor<T>> {
    reduced(to, "reduce_max", x)
}

fn reduced<T: Number>(to: &impl Submit, name: &'static str, x: &Tensor<T>) -> Result<Tensor<T>> {
    let shape = x.shape();
    let rest = shape.split_last().map(|(_, rest)| rest);
    let out = to.empty::<T>(rest.ok_or_else(|| mismatch(name, std::slice::from_ref(&shape)))?)?;
    submit(to, name, (x.read(), out.write()), &[])?;
    Ok(out)
}

/// The last two dimensions exchanged, with the elements moved. [`Tensor::transpose`] moves none.
///
/// # Errors
/// There are fewer than two dimensions.
pub fn transpose<T: Number>(to: &impl Submit, x: &Tensor<T>) -> Result<Tensor<T>> {
    let rank = x.rank();
    if rank < 2 {
        return Err(mismatch("transpose", &[x.shape()]));
    }
    copy(to, &x.transpose(rank - 2, rank - 1)?)
}

/// The matrix product over the last two dimensions; all dimensions before them count batches, of
/// which one of the two may have fewer, as in numpy. Transposed tensors are taken as they are.
///
/// # Errors
/// The shapes do not go together.
pub fn matmul<T: Real>(to: &impl Submit, a: &Tensor<T>, b: &Tensor<T>) -> Result<Tensor<T>> {
    let (left, right) = (a.shape(), b.shape());
    let refused = || mismatch("matmul", &[left.clone(), right.clone()]);
    let ([before_a @ .., m, k], [before_b @ .., depth, n]) = (&left[..], &right[..]) else {
        return Err(refused());
    };
    if k != depth {
        return Err(refused());
    }
    let batches = common("matmul", before_a, before_b)?;
    let with = |matrix: [usize; 2]| [&batches[..], &matrix[..]].concat();
    let (a, b) = (a.broadcast(with([*m, *k]))?, b.broadcast(with([*k, *n]))?);
    let out = to.empty::<T>(with([*m, *n]))?;
    multiply(to, &a, &b, &out)?;
    Ok(out)
}

fn multiply<T: Real>(
    to: &impl Submit,
    a: &Tensor<T>,
    b: &Tensor<T>,
    out: &Tensor<T>,
) -> Result<()> {
    if out.rank() > 2 {
        return (0..out.size(0)).try_for_each(|at| {
            multiply(to, &a.index(0, at)?, &b.index(0, at)?, &out.index(0, at)?)
        });
    }
    let [one, zero] = [1.0, 0.0].map(Scalar::F32);
    let [plain, as_is] = [false, false].map(Scalar::Bool);
    submit(to, "gemm", (a.read(), b.read(), out.write()), &[one, zero, plain, as_is])
}
