//! Bodies that work element by element: blocks of a row are loaded, computed and stored.

use syncline_device::{DeviceError, KernelArgs};
use syncline_tensor::Dtype;

use super::number::{Number, with_number};
use super::operand::Operand;

/// Numbers that are worked on at a time: small enough for the first cache, long enough for vectors.
const BLOCK: usize = 256;

type Done = Result<(), DeviceError>;

/// Calls `each` for every block of every row of `target`: row, first element, elements.
fn blocks(target: &Operand<'_>, mut each: impl FnMut(u64, usize, usize)) {
    let length = target.row_len();
    for row in 0..target.rows() {
        for start in (0..length).step_by(BLOCK) {
            each(row, start, BLOCK.min(length - start));
        }
    }
}

fn unary<N: Number>(source: &Operand<'_>, target: &Operand<'_>, compute: impl Fn(N) -> N) {
    let mut block = [N::default(); BLOCK];
    blocks(target, |row, start, count| {
        let block = &mut block[..count];
        source.load(row, start, block);
        block.iter_mut().for_each(|x| *x = compute(*x));
        target.store(row, start, block);
    });
}

fn binary<N: Number>(
    left: &Operand<'_>,
    right: &Operand<'_>,
    target: &Operand<'_>,
    compute: impl Fn(N, N) -> N,
) {
    let (mut a, mut b) = ([N::default(); BLOCK], [N::default(); BLOCK]);
    blocks(target, |row, start, count| {
        let (a, b) = (&mut a[..count], &mut b[..count]);
        left.load(row, start, a);
        right.load(row, start, b);
        a.iter_mut().zip(b).for_each(|(a, b)| *a = compute(*a, *b));
        target.store(row, start, a);
    });
}

/// `target = value`
pub(crate) fn fill(args: &mut KernelArgs<'_>) -> Done {
    let target = Operand::write(args, 0)?;
    let value = args.scalar(0)?;
    with_number!(target.dtype(), N => {
        let block = [N::from_scalar(value); BLOCK];
        blocks(&target, |row, start, count| target.store(row, start, &block[..count]));
    });
    Ok(())
}

/// `target = source`, of one dtype.
pub(crate) fn copy(args: &mut KernelArgs<'_>) -> Done {
    let (source, target) = (Operand::read(args, 0)?, Operand::write(args, 1)?);
    with_number!(target.dtype(), N => unary::<N>(&source, &target, |x| x));
    Ok(())
}

/// `target = source`, rounded to the target's dtype.
pub(crate) fn cast(args: &mut KernelArgs<'_>) -> Done {
    let (source, target) = (Operand::read(args, 0)?, Operand::write(args, 1)?);
    let float = |dtype| matches!(dtype, Dtype::F16 | Dtype::BF16 | Dtype::F32 | Dtype::F64);
    match (float(source.dtype()), float(target.dtype())) {
        (false, false) => unary::<i64>(&source, &target, |x| x),
        _ => unary::<f64>(&source, &target, |x| x),
    }
    Ok(())
}

macro_rules! binary_kernel {
    ($(#[$about:meta])* $name:ident, $operation:ident) => {
        $(#[$about])*
        pub(crate) fn $name(args: &mut KernelArgs<'_>) -> Done {
            let (left, right) = (Operand::read(args, 0)?, Operand::read(args, 1)?);
            let target = Operand::write(args, 2)?;
            with_number!(target.dtype(), N => binary::<N>(&left, &right, &target, <N as Number>::$operation));
            Ok(())
        }
    };
}
binary_kernel!(
    /// `target = left + right`
    add, add
);
binary_kernel!(
    /// `target = left - right`
    sub, sub
);
binary_kernel!(
    /// `target = left * right`
    mul, mul
);

/// `target = alpha * source`
pub(crate) fn scale(args: &mut KernelArgs<'_>) -> Done {
    let (source, target) = (Operand::read(args, 0)?, Operand::write(args, 1)?);
    let alpha = args.scalar(0)?;
    with_number!(target.dtype(), N => {
        let alpha = N::from_scalar(alpha);
        unary::<N>(&source, &target, |x| alpha.mul(x));
    });
    Ok(())
}

/// `target += alpha * source`
pub(crate) fn axpy(args: &mut KernelArgs<'_>) -> Done {
    let (source, target) = (Operand::read(args, 0)?, Operand::write(args, 1)?);
    let alpha = args.scalar(0)?;
    with_number!(target.dtype(), N => {
        let alpha = N::from_scalar(alpha);
        binary::<N>(&source, &target, &target, |x, y| alpha.mul(x).add(y));
    });
    Ok(())
}

/// `target = gelu(source)`, by the error function or, with `approximate`, by the hyperbolic
/// tangent.
pub(crate) fn gelu(args: &mut KernelArgs<'_>) -> Done {
    let (source, target) = (Operand::read(args, 0)?, Operand::write(args, 1)?);
    if args.scalar(0)?.as_bool() {
        unary::<f32>(&source, &target, gelu_by_tanh);
    } else {
        unary::<f32>(&source, &target, |x| {
            0.5 * x * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2))
        });
    }
    Ok(())
}

/// `target = source / (1 + exp(-source))`
pub(crate) fn silu(args: &mut KernelArgs<'_>) -> Done {
    let (source, target) = (Operand::read(args, 0)?, Operand::write(args, 1)?);
    unary::<f32>(&source, &target, |x| x / (1.0 + (-x).exp()));
    Ok(())
}

fn gelu_by_tanh(x: f32) -> f32 {
    let inner = (2.0 / std::f32::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
    0.5 * x * (1.0 + inner.tanh())
}

/// The error function, to about 1.2e-7: a rational approximation of its complement.
fn erf(x: f32) -> f32 {
    let z = f64::from(x.abs());
    let t = 1.0 / (1.0 + 0.5 * z);
    const COEFFICIENTS: [f64; 10] = [
        -1.265_512_23,
        1.000_023_68,
        0.374_091_96,
        0.096_784_18,
        -0.186_288_06,
        0.278_868_07,
        -1.135_203_98,
        1.488_515_87,
        -0.822_152_23,
        0.170_872_77,
    ];
    let exponent = COEFFICIENTS.iter().rev().fold(0.0, |sum, coefficient| sum * t + coefficient);
    let complement = t * (-z * z + exponent).exp();
    let value = (1.0 - complement) as f32;
    if x < 0.0 { -value } else { value }
}

/// `target[i, j] = centre * source[i+1, j+1] + side * (its four neighbours)`
pub(crate) fn stencil(args: &mut KernelArgs<'_>) -> Done {
    let (source, target) = (Operand::read(args, 0)?, Operand::write(args, 1)?);
    let (centre, side) = (args.scalar(0)?.as_f32(), args.scalar(1)?.as_f32());
    let mut rows = [const { [0f32; BLOCK + 2] }; 3];
    blocks(&target, |row, start, count| {
        for (offset, block) in rows.iter_mut().enumerate() {
            source.load(row + offset as u64, start, &mut block[..count + 2]);
        }
        let mut sums = [0f32; BLOCK];
        for (at, sum) in sums[..count].iter_mut().enumerate() {
            let around = rows[0][at + 1] + rows[2][at + 1] + rows[1][at] + rows[1][at + 2];
            *sum = centre * rows[1][at + 1] + side * around;
        }
        target.store(row, start, &sums[..count]);
    });
    Ok(())
}
