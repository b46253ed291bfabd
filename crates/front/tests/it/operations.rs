//! The operations of the front end against loops over double precision: random inputs, serially,
//! live, and in plans on every device of an executor. The crate `syncline` runs this over more.

use syncline_front::{Bound, RecordTasks, Recorder, Result, Serial, Submit, Tensor, ops};
use syncline_runtime::UnifiedExecutor;
use syncline_runtime::stream::{Stream, StreamOptions};
use syncline_testing::Rng;

/// Numbers in order, and their shape.
struct Plain(Vec<usize>, Vec<f64>);

impl Plain {
    fn random(rng: &mut Rng, shape: &[usize]) -> Self {
        let count = shape.iter().product();
        let number = |_| (rng.range(0..4001) as f64 - 2000.0) / 1000.0;
        Self(shape.to_vec(), (0..count).map(number).map(|x| f64::from(x as f32)).collect())
    }

    fn tensor(&self) -> Tensor<f32> {
        let elements = self.1.iter().map(|&x| x as f32).collect();
        Tensor::from_vec(&self.0, elements).expect("as many as the shape says")
    }

    fn row(&self, at: usize) -> &[f64] {
        let width = self.0.last().copied().unwrap_or(1);
        &self.1[at * width..][..width]
    }

    fn by_rows(&self, compute: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
        let width = self.0.last().copied().unwrap_or(1).max(1);
        self.1.chunks(width).flat_map(compute).collect()
    }
}

/// All operations on the same inputs: what each gave, in order.
struct Inputs {
    x: Plain,
    bias: Plain,
    weights: Plain,
    batch: Plain,
    table: Plain,
    ids: Vec<u32>,
    cos: Plain,
    sin: Plain,
}

impl Inputs {
    fn random(rng: &mut Rng) -> Self {
        let (rows, half) = (rng.range(1..9) as usize, rng.range(1..9) as usize);
        let (width, depth, batches) = (2 * half, rng.range(1..9) as usize, 3);
        let ids = (0..rng.range(1..7)).map(|_| rng.range(0..rows as u64) as u32).collect();
        Self {
            x: Plain::random(rng, &[rows, width]),
            bias: Plain::random(rng, &[width]),
            weights: Plain::random(rng, &[depth, width]),
            batch: Plain::random(rng, &[batches, width, rows]),
            table: Plain::random(rng, &[rows, width]),
            ids,
            cos: Plain::random(rng, &[rows, half]),
            sin: Plain::random(rng, &[rows, half]),
        }
    }

    fn submit(&self, to: &impl Submit) -> Result<Vec<Tensor<f32>>> {
        let (x, bias) = (self.x.tensor(), self.bias.tensor());
        let (weights, batch) = (self.weights.tensor(), self.batch.tensor());
        let column = x.slice(1, 0..1)?;
        let whole = ops::cast::<f32, i32>(to, &ops::scale(to, &x, 100.0)?)?;
        Ok(vec![
            ops::add(to, &x, &bias)?,
            ops::sub(to, &column, &x)?,
            ops::mul(to, &bias, &x)?,
            ops::scale(to, &x, -0.5)?,
            ops::copy(to, &x.transpose(0, 1)?)?,
            ops::transpose(to, &x)?,
            ops::cast::<i32, f32>(to, &whole)?,
            ops::silu(to, &x)?,
            ops::gelu(to, &x)?,
            ops::softmax(to, &x)?,
            ops::softmax_causal(to, &x)?,
            ops::softmax_masked(to, &x, &bias)?,
            ops::rmsnorm(to, &x, &bias, 1e-3)?,
            ops::layernorm(to, &x, &bias, &bias, 1e-3)?,
            ops::rope(to, &x, &self.cos.tensor(), &self.sin.tensor())?,
            ops::embedding(to, &self.table.tensor(), &Tensor::from(self.ids.clone()))?,
            ops::sum(to, &x)?,
            ops::max(to, &x)?,
            ops::matmul(to, &x, &weights.transpose(0, 1)?)?,
            ops::matmul(to, &x, &batch)?,
        ])
    }

    fn expected(&self) -> Vec<Vec<f64>> {
        let (x, bias) = (&self.x, &self.bias.1);
        let (rows, width, depth) = (x.0[0], x.0[1], self.weights.0[0]);
        let at = |row: usize, column: usize| x.1[row * width + column];
        let all = |compute: &dyn Fn(usize, usize) -> f64| -> Vec<f64> {
            (0..rows * width).map(|i| compute(i / width, i % width)).collect()
        };
        let softmax = |row: &[f64]| -> Vec<f64> {
            let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let powers: Vec<f64> = row.iter().map(|x| (x - largest).exp()).collect();
            let sum: f64 = powers.iter().sum();
            powers.iter().map(|power| power / sum).collect()
        };
        let transposed: Vec<f64> = (0..rows * width).map(|i| at(i % rows, i / rows)).collect();
        let causal = (0..rows).flat_map(|row| {
            let seen = (row + 1).min(width);
            let mut out = softmax(&x.row(row)[..seen]);
            out.resize(width, 0.0);
            out
        });
        let norm = |row: &[f64], shift: f64, plus: bool| -> Vec<f64> {
            let square = row.iter().map(|x| (x - shift).powi(2)).sum::<f64>() / row.len() as f64;
            let scaled = |(x, g): (&f64, &f64)| {
                (x - shift) / (square + 1e-3).sqrt() * g + if plus { *g } else { 0.0 }
            };
            row.iter().zip(bias).map(scaled).collect()
        };
        let half = width / 2;
        let rope = |row: usize, column: usize| {
            let (pair, is_left) = (column % half, column < half);
            let (cos, sin) = (self.cos.1[row * half + pair], self.sin.1[row * half + pair]);
            let (left, right) = (at(row, pair), at(row, pair + half));
            if is_left { left * cos - right * sin } else { right * cos + left * sin }
        };
        let product = (0..rows * depth).map(|i| {
            let pairs = x.row(i / depth).iter().zip(self.weights.row(i % depth));
            pairs.map(|(a, b)| a * b).sum()
        });
        let batches = (0..3 * rows * rows).map(|i| {
            let (batch, row, column) = (i / (rows * rows), i / rows % rows, i % rows);
            (0..width).map(|k| at(row, k) * self.batch.1[(batch * width + k) * rows + column]).sum()
        });
        vec![
            all(&|i, j| at(i, j) + bias[j]),
            all(&|i, j| at(i, 0) - at(i, j)),
            all(&|i, j| at(i, j) * bias[j]),
            all(&|i, j| -0.5 * at(i, j)),
            transposed.clone(),
            transposed,
            all(&|i, j| (100.0 * at(i, j) as f32) as i32 as f64),
            all(&|i, j| at(i, j) / (1.0 + (-at(i, j)).exp())),
            all(&|i, j| gelu(at(i, j))),
            x.by_rows(softmax),
            causal.collect(),
            x.by_rows(|row| softmax(&row.iter().zip(bias).map(|(a, b)| a + b).collect::<Vec<_>>())),
            x.by_rows(|row| norm(row, 0.0, false)),
            x.by_rows(|row| norm(row, row.iter().sum::<f64>() / row.len() as f64, true)),
            all(&rope),
            self.ids.iter().flat_map(|&id| self.table.row(id as usize).to_vec()).collect(),
            x.by_rows(|row| vec![row.iter().sum()]),
            x.by_rows(|row| vec![row.iter().copied().fold(f64::NEG_INFINITY, f64::max)]),
            product.collect(),
            batches.collect(),
        ]
    }
}

/// By the rule of Simpson over the density of the normal distribution.
fn gelu(x: f64) -> f64 {
    let density = |t: f64| (-t * t / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let (steps, mut area) = (200, 0.0);
    let step = x / f64::from(steps);
    for at in 0..steps {
        let from = f64::from(at) * step;
        area +=
            step / 6.0 * (density(from) + 4.0 * density(from + step / 2.0) + density(from + step));
    }
    x * (0.5 + area)
}

fn compare(mode: &str, results: &[Tensor<f32>], expected: &[Vec<f64>]) {
    assert_eq!(results.len(), expected.len());
    for (op, (result, expected)) in results.iter().zip(expected).enumerate() {
        let result = result.to_vec().expect("nothing failed");
        assert_eq!(result.len(), expected.len(), "{mode}: operation {op}");
        for (at, (a, b)) in result.iter().zip(expected).enumerate() {
            // A number halfway between two integers may be rounded either way.
            let bound = if op == 6 { 1.0 } else { 2e-5 * (1.0 + b.abs()) };
            let a = f64::from(*a);
            assert!((a - b).abs() <= bound, "{mode}: operation {op}, element {at}: {a}, not {b}");
        }
    }
}

/// All operations on random inputs, in every mode.
pub(crate) fn agree(executor: &UnifiedExecutor, rng: &mut Rng) {
    let inputs = Inputs::random(rng);
    let expected = inputs.expected();
    compare("serial", &inputs.submit(&Serial).expect("runs"), &expected);
    let stream = Stream::new(StreamOptions::default()).expect("threads");
    compare("stream", &inputs.submit(&stream).expect("runs"), &expected);
    for context in executor.contexts() {
        let device = context.spec().to_string();
        let mut results: Vec<Tensor<f32>> = Vec::new();
        let record = |g: &Recorder<'_>| {
            for y in inputs.submit(&g.on(&[device.as_str()]))? {
                let result = Tensor::zeros(y.shape())?;
                g.task("result", (y.read(), result.write()))
                    .run(|(y, mut out)| out.copy_from(&y))?;
                results.push(result);
            }
            Ok(())
        };
        let plan = executor.record(record).expect("every device has them");
        plan.compile().expect("compiles").run(Bound::new()).expect("runs");
        compare(&device, &results, &expected);
    }
}
