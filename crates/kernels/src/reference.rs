//! The same computations in double precision, written as plainly as they are defined.
//!
//! Nothing here is shared with the bodies that run: a mistake there does not repeat itself here.
//! Tensors are contiguous, their last dimension fastest.

/// A contiguous tensor of doubles.
#[derive(Clone, Debug, PartialEq)]
pub struct Doubles {
    /// Elements along each dimension.
    pub shape: Vec<usize>,
    /// The elements.
    pub values: Vec<f64>,
}

impl Doubles {
    /// A tensor of these elements.
    ///
    /// # Panics
    /// Unless there are as many elements as the shape says.
    pub fn new(shape: &[usize], values: Vec<f64>) -> Self {
        assert_eq!(shape.iter().product::<usize>(), values.len(), "elements of shape {shape:?}");
        Self { shape: shape.to_vec(), values }
    }

    fn map(&self, compute: impl Fn(f64) -> f64) -> Self {
        Self::new(&self.shape, self.values.iter().map(|&x| compute(x)).collect())
    }

    fn zip(&self, other: &Self, compute: impl Fn(f64, f64) -> f64) -> Self {
        let pairs = self.values.iter().zip(&other.values);
        Self::new(&self.shape, pairs.map(|(&a, &b)| compute(a, b)).collect())
    }

    fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.values.chunks(self.shape.last().copied().unwrap_or(1).max(1))
    }

    fn by_rows(&self, compute: impl Fn(usize, &[f64]) -> Vec<f64>) -> Self {
        Self::new(
            &self.shape,
            self.rows().enumerate().flat_map(|(at, row)| compute(at, row)).collect(),
        )
    }

    fn at(&self, row: usize, column: usize) -> f64 {
        self.values[row * self.shape[1] + column]
    }

    fn from_fn(height: usize, width: usize, at: impl Fn(usize, usize) -> f64) -> Self {
        let values = (0..height * width).map(|place| at(place / width, place % width)).collect();
        Self::new(&[height, width], values)
    }
}

/// What the kernel `name` makes of its arguments: the new contents of its last one. `None` for an
/// unknown name.
pub fn compute(name: &str, args: &[Doubles], scalars: &[f64]) -> Option<Doubles> {
    let x = &args[0];
    let last = &args[args.len() - 1];
    let epsilon = scalars.first().copied().unwrap_or(0.0);
    Some(match name {
        "fill" => last.map(|_| scalars[0]),
        "copy" | "cast" => x.clone(),
        "add" => x.zip(&args[1], |a, b| a + b),
        "sub" => x.zip(&args[1], |a, b| a - b),
        "mul" => x.zip(&args[1], |a, b| a * b),
        "scale" => x.map(|x| scalars[0] * x),
        "axpy" => x.zip(last, |x, y| scalars[0] * x + y),
        "gelu" if scalars[0] != 0.0 => x.map(|x| {
            0.5 * x
                * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
        }),
        "gelu" => x.map(|x| 0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2))),
        "silu" => x.map(|x| x / (1.0 + (-x).exp())),
        "stencil" => stencil(x, last, scalars),
        "reduce_sum" => Doubles::new(&last.shape, x.rows().map(|row| row.iter().sum()).collect()),
        "reduce_max" => {
            let largest = |row: &[f64]| row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            Doubles::new(&last.shape, x.rows().map(largest).collect())
        }
        "softmax" => softmax(x, scalars[0] != 0.0),
        "layernorm" => x.by_rows(|_, row| {
            let count = row.len() as f64;
            let mean = row.iter().sum::<f64>() / count;
            let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
            let norm = |(at, x): (usize, &f64)| {
                (x - mean) / (variance + epsilon).sqrt() * args[1].values[at] + args[2].values[at]
            };
            row.iter().enumerate().map(norm).collect()
        }),
        "rmsnorm" => x.by_rows(|_, row| {
            let square = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
            let norm = |(at, x): (usize, &f64)| x / (square + epsilon).sqrt() * args[1].values[at];
            row.iter().enumerate().map(norm).collect()
        }),
        "embedding" => Doubles::from_fn(last.shape[0], last.shape[1], |row, column| {
            x.at(args[1].values[row] as usize, column)
        }),
        "gemm" => gemm(args, scalars),
        "syrk" => Doubles::from_fn(last.shape[0], last.shape[1], |row, column| {
            let dot: f64 = (0..x.shape[1]).map(|k| x.at(row, k) * x.at(column, k)).sum();
            let old = last.at(row, column);
            if column <= row { scalars[0] * dot + scalars[1] * old } else { old }
        }),
        "trsm" => trsm(x, last, scalars),
        "potrf" => potrf(x),
        "transpose" => Doubles::from_fn(x.shape[1], x.shape[0], |row, column| x.at(column, row)),
        _ => return None,
    })
}

/// The error function as its defining series; good for |x| up to about 5.
fn erf(x: f64) -> f64 {
    if x.abs() > 5.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    2.0 / std::f64::consts::PI.sqrt() * sum
}

fn stencil(source: &Doubles, target: &Doubles, scalars: &[f64]) -> Doubles {
    Doubles::from_fn(target.shape[0], target.shape[1], |row, column| {
        let (row, column) = (row + 1, column + 1);
        let around = source.at(row - 1, column)
            + source.at(row + 1, column)
            + source.at(row, column - 1)
            + source.at(row, column + 1);
        scalars[0] * source.at(row, column) + scalars[1] * around
    })
}

fn softmax(source: &Doubles, causal: bool) -> Doubles {
    let height = source.shape.len().checked_sub(2).map_or(1, |dim| source.shape[dim].max(1));
    source.by_rows(|at, row| {
        let visible = if causal { (at % height + 1).min(row.len()) } else { row.len() };
        let largest = row[..visible].iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = row[..visible].iter().map(|x| (x - largest).exp()).sum();
        let share =
            |(at, x): (usize, &f64)| if at < visible { (x - largest).exp() / sum } else { 0.0 };
        row.iter().enumerate().map(share).collect()
    })
}

fn gemm(args: &[Doubles], scalars: &[f64]) -> Doubles {
    let [a, b, c] = args else { unreachable!("three arguments") };
    let at = |matrix: &Doubles, swap: f64, row, column| {
        if swap != 0.0 { matrix.at(column, row) } else { matrix.at(row, column) }
    };
    let depth = a.shape[usize::from(scalars[2] == 0.0)];
    Doubles::from_fn(c.shape[0], c.shape[1], |row, column| {
        let product = |k| at(a, scalars[2], row, k) * at(b, scalars[3], k, column);
        let old = if scalars[1] == 0.0 { 0.0 } else { scalars[1] * c.at(row, column) };
        scalars[0] * (0..depth).map(product).sum::<f64>() + old
    })
}

/// Solves by the inverse of the triangle, column by column of the identity: slow, and unlike the
/// kernel.
fn trsm(l: &Doubles, b: &Doubles, scalars: &[f64]) -> Doubles {
    let order = l.shape[0];
    let mut inverse = vec![0.0; order * order];
    for column in 0..order {
        for row in column..order {
            let unit = if row == column { 1.0 } else { 0.0 };
            let sum: f64 = (column..row).map(|k| l.at(row, k) * inverse[k * order + column]).sum();
            inverse[row * order + column] = (unit - sum) / l.at(row, row);
        }
    }
    let inverse = Doubles::new(&[order, order], inverse);
    let op = |row, column| {
        if scalars[2] != 0.0 { inverse.at(column, row) } else { inverse.at(row, column) }
    };
    Doubles::from_fn(b.shape[0], b.shape[1], |row, column| {
        let term = |k| {
            if scalars[1] != 0.0 {
                op(row, k) * b.at(k, column)
            } else {
                b.at(row, k) * op(k, column)
            }
        };
        scalars[0] * (0..order).map(term).sum::<f64>()
    })
}

fn potrf(a: &Doubles) -> Doubles {
    let order = a.shape[0];
    let mut l = a.clone();
    for column in 0..order {
        for row in column..order {
            let sum: f64 = (0..column).map(|k| l.at(row, k) * l.at(column, k)).sum();
            let rest = a.at(row, column) - sum;
            let value = if row == column { rest.sqrt() } else { rest / l.at(column, column) };
            l.values[row * order + column] = value;
        }
    }
    l
}
