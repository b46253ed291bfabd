//! Factorisation and solving with lower triangular matrices.

use syncline_device::{DeviceError, KernelArgs};

use super::matrix::Dense;
use super::operand::Operand;

/// The lower triangle `l` of `a = l * lT`, in place; elements above the diagonal stay.
pub(crate) fn potrf(args: &mut KernelArgs<'_>) -> Result<(), DeviceError> {
    let a = Operand::write(args, 0)?;
    let mut l = Dense::<f32>::load(&a)?;
    for row in 0..l.height {
        for column in 0..row {
            let sum = dot(&l.row(row)[..column], &l.row(column)[..column]);
            let diagonal = l.row(column)[column];
            let entry = &mut l.row_mut(row)[column];
            *entry = (*entry - sum) / diagonal;
        }
        let square = l.row(row)[row] - dot(&l.row(row)[..row], &l.row(row)[..row]);
        if square.is_nan() || square <= 0.0 {
            let message = format!("the matrix is not positive definite: pivot {row} is {square}");
            return Err(DeviceError::BadArgument { arg: 0, message });
        }
        l.row_mut(row)[row] = square.sqrt();
    }
    for row in 0..l.height {
        a.store(row as u64, 0, &l.row(row)[..=row]);
    }
    Ok(())
}

/// Solves `op(l) * x = alpha * b` (`left`) or `x * op(l) = alpha * b`, in the place of `b`.
pub(crate) fn trsm(args: &mut KernelArgs<'_>) -> Result<(), DeviceError> {
    let (l, target) = (Operand::read(args, 0)?, Operand::write(args, 1)?);
    let alpha = args.scalar(0)?.as_f32();
    let (left, transposed) = (args.scalar(1)?.as_bool(), args.scalar(2)?.as_bool());
    let l = Dense::<f32>::load(&l)?;
    let mut x = Dense::<f32>::load(&target)?;
    x.numbers.iter_mut().for_each(|x| *x *= alpha);
    match (left, transposed) {
        (true, false) => (0..l.height).for_each(|row| solve_row(&l, &mut x, row, 0..row, false)),
        (true, true) => {
            (0..l.height).rev().for_each(|row| solve_row(&l, &mut x, row, row + 1..l.height, true));
        }
        (false, true) => x.numbers.chunks_exact_mut(l.height.max(1)).for_each(|x| forward(&l, x)),
        (false, false) => x.numbers.chunks_exact_mut(l.height.max(1)).for_each(|x| backward(&l, x)),
    }
    for row in 0..x.height {
        target.store(row as u64, 0, x.row(row));
    }
    Ok(())
}

/// Takes the rows `known`, which are solved, away from row `row`, and divides it by its pivot.
fn solve_row(
    l: &Dense<f32>,
    x: &mut Dense<f32>,
    row: usize,
    known: std::ops::Range<usize>,
    transposed: bool,
) {
    for other in known {
        let factor = if transposed { l.row(other)[row] } else { l.row(row)[other] };
        let solved = x.row(other).to_vec();
        x.row_mut(row).iter_mut().zip(solved).for_each(|(x, solved)| *x -= factor * solved);
    }
    let pivot = l.row(row)[row];
    x.row_mut(row).iter_mut().for_each(|x| *x /= pivot);
}

/// `x * lT = b` for one row: element `j` needs those before it.
fn forward(l: &Dense<f32>, x: &mut [f32]) {
    for at in 0..x.len() {
        x[at] = (x[at] - dot(&x[..at], &l.row(at)[..at])) / l.row(at)[at];
    }
}

/// `x * l = b` for one row: element `j` needs those after it.
fn backward(l: &Dense<f32>, x: &mut [f32]) {
    for at in (0..x.len()).rev() {
        let sum: f32 = (at + 1..x.len()).map(|after| x[after] * l.row(after)[at]).sum();
        x[at] = (x[at] - sum) / l.row(at)[at];
    }
}

/// Eight sums side by side, so that the compiler can use vectors; the order is fixed, hence the
/// result.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0f32; 8];
    let (a_blocks, b_blocks) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f32 = a_blocks.remainder().iter().zip(b_blocks.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in a_blocks.zip(b_blocks) {
        for lane in 0..8 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum::<f32>() + rest
}
