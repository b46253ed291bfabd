//! Bodies that work on whole rows: reductions, norms, softmax, embedding lookups.

use syncline_device::{DeviceError, KernelArgs};
use syncline_tensor::Dtype;

use super::number::{Number, with_number};
use super::operand::Operand;

type Done = Result<(), DeviceError>;

/// Loads row after row of argument 0 into one block of numbers.
fn each_row<N: Number>(source: &Operand<'_>, mut each: impl FnMut(u64, &mut [N])) -> Done {
    let mut row_of = Operand::room(source.row_len())?;
    for row in 0..source.rows() {
        source.load(row, 0, &mut row_of);
        each(row, &mut row_of);
    }
    Ok(())
}

/// Calls `reduce` for every row and puts what it returns at the row's place in the target.
fn reduce<N: Number>(args: &KernelArgs<'_>, reduce: impl Fn(&[N]) -> N) -> Done {
    let (source, target) = (Operand::read(args, 0)?, Operand::write(args, 1)?);
    let length = target.row_len().max(1) as u64;
    each_row::<N>(&source, |row, numbers| {
        target.store(row / length, (row % length) as usize, &[reduce(numbers)]);
    })
}

/// The sum of each row.
pub(crate) fn reduce_sum(args: &mut KernelArgs<'_>) -> Done {
    let dtype = args.view(0)?.dtype();
    with_number!(dtype, N => reduce::<N>(args, |row| {
        row.iter().fold(N::default(), |sum, &x| Number::add(sum, x))
    }))
}

/// The largest element of each row.
pub(crate) fn reduce_max(args: &mut KernelArgs<'_>) -> Done {
    let dtype = args.view(0)?.dtype();
    if dtype == Dtype::U64 {
        // Loaded as signed numbers: the upper half of the range would be negative.
        return reduce::<i64>(args, |row| {
            row.iter().map(|&x| x as u64).max().unwrap_or_default() as i64
        });
    }
    with_number!(dtype, N => reduce::<N>(args, |row| {
        row.iter().copied().reduce(|a, b| if b > a { b } else { a }).unwrap_or_default()
    }))
}

/// Each row exponentiated and divided by its sum; with `causal`, row `i` sees elements `0..=i`
/// only.
pub(crate) fn softmax(args: &mut KernelArgs<'_>) -> Done {
    let (source, target) = (Operand::read(args, 0)?, Operand::write(args, 1)?);
    let causal = args.scalar(0)?.as_bool();
    let shape = source.shape();
    let height = shape.len().checked_sub(2).map_or(1, |dim| shape[dim].max(1));
    each_row::<f32>(&source, |row, numbers| {
        let visible = if causal { (row % height) as usize + 1 } else { numbers.len() };
        let (seen, hidden) = numbers.split_at_mut(visible.min(numbers.len()));
        let largest = seen.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mut sum = 0.0;
        for x in seen.iter_mut() {
            *x = (*x - largest).exp();
            sum += *x;
        }
        seen.iter_mut().for_each(|x| *x /= sum);
        hidden.fill(0.0);
        target.store(row, 0, numbers);
    })
}

/// Each row with its mean taken away and divided by its deviation, then scaled and shifted.
pub(crate) fn layernorm(args: &mut KernelArgs<'_>) -> Done {
    let (source, target) = (Operand::read(args, 0)?, Operand::write(args, 3)?);
    let (gamma, beta) = (whole(args, 1)?, whole(args, 2)?);
    let epsilon = args.scalar(0)?.as_f32();
    each_row::<f32>(&source, |row, numbers| {
        let count = numbers.len() as f32;
        let mean = numbers.iter().sum::<f32>() / count;
        let variance = numbers.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / count;
        let factor = 1.0 / (variance + epsilon).sqrt();
        for ((x, gamma), beta) in numbers.iter_mut().zip(&gamma).zip(&beta) {
            *x = (*x - mean) * factor * gamma + beta;
        }
        target.store(row, 0, numbers);
    })
}

/// Each row divided by its root mean square, then scaled.
pub(crate) fn rmsnorm(args: &mut KernelArgs<'_>) -> Done {
    let (source, target) = (Operand::read(args, 0)?, Operand::write(args, 2)?);
    let gamma = whole(args, 1)?;
    let epsilon = args.scalar(0)?.as_f32();
    each_row::<f32>(&source, |row, numbers| {
        let square = numbers.iter().map(|x| x * x).sum::<f32>() / numbers.len() as f32;
        let factor = 1.0 / (square + epsilon).sqrt();
        numbers.iter_mut().zip(&gamma).for_each(|(x, gamma)| *x *= factor * gamma);
        target.store(row, 0, numbers);
    })
}

/// Row `ids[i]` of the table at place `i` of the target.
pub(crate) fn embedding(args: &mut KernelArgs<'_>) -> Done {
    let (table, ids) = (Operand::read(args, 0)?, Operand::read(args, 1)?);
    let target = Operand::write(args, 2)?;
    let count = table.rows();
    let mut row_of = Operand::room::<f32>(table.row_len())?;
    let mut id = [0i64];
    for place in 0..ids.row_len() {
        ids.load(0, place, &mut id);
        let row = u64::try_from(id[0]).ok().filter(|&row| row < count).ok_or_else(|| {
            let message = format!("id {} at place {place}: the table has {count} rows", id[0]);
            DeviceError::BadArgument { arg: 1, message }
        })?;
        table.load(row, 0, &mut row_of);
        target.store(place as u64, 0, &row_of);
    }
    Ok(())
}

fn whole(args: &KernelArgs<'_>, arg: usize) -> Result<Vec<f32>, DeviceError> {
    let operand = Operand::read(args, arg)?;
    let mut numbers = Operand::room(operand.row_len())?;
    operand.load(0, 0, &mut numbers);
    Ok(numbers)
}
