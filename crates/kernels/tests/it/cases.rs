//! Random calls of a kernel: shapes that go together, dtypes, layouts, scalars and values, and what
//! must come out.

use syncline_device::Scalar;
use syncline_kernels::{Entry, Tolerance, reference};
use syncline_tensor::{Access, Dtype};
use syncline_testing::Rng;

use crate::support::{Held, rounded, saturated};

/// A call of a kernel.
pub struct Case {
    pub held: Vec<Held>,
    pub scalars: Vec<Scalar>,
    /// What the last argument must be.
    pub wanted: Vec<f64>,
    /// How far each element may be away from it.
    pub bound: f64,
}

/// A size around those at which kernels change their ways: tiles of 16, 32 and 64, blocks of 256.
fn size(rng: &mut Rng) -> u64 {
    match rng.range(0..8) {
        0 => 1,
        1 => *rng.pick(&[15, 16, 17, 31, 32, 33, 63, 64, 65, 70]),
        2 => 0,
        _ => rng.range(1..20),
    }
}

/// As [`size`], and never zero.
fn some(rng: &mut Rng) -> u64 {
    size(rng).max(1)
}

/// Shapes that go together, by kernel.
pub fn shapes(name: &str, rng: &mut Rng, scalars: &[Scalar]) -> Vec<Vec<u64>> {
    let (m, n, k) = (size(rng), size(rng), size(rng));
    let swapped = |at: usize, shape: [u64; 2]| {
        if scalars[at].as_bool() { vec![shape[1], shape[0]] } else { shape.to_vec() }
    };
    match name {
        "fill" => vec![vec![m, n]],
        "add" | "sub" | "mul" => vec![vec![m, n, 3]; 3],
        "stencil" => vec![vec![m + 2, n + 2], vec![m, n]],
        "reduce_sum" => vec![vec![m.min(20), n.min(20), k * 5], vec![m.min(20), n.min(20)]],
        "reduce_max" => {
            let length = some(rng) * 3;
            vec![vec![m.min(20), n.min(20), length], vec![m.min(20), n.min(20)]]
        }
        "layernorm" => vec![vec![m, n * 3], vec![n * 3], vec![n * 3], vec![m, n * 3]],
        "rmsnorm" => vec![vec![m, n * 3], vec![n * 3], vec![m, n * 3]],
        "embedding" => vec![vec![m.max(1), n], vec![k], vec![k, n]],
        "gemm" => vec![swapped(2, [m, k]), swapped(3, [k, n]), vec![m, n]],
        "syrk" => vec![vec![m, k], vec![m, m]],
        "trsm" if scalars[1].as_bool() => vec![vec![m, m], vec![m, n]],
        "trsm" => vec![vec![n, n], vec![m, n]],
        "potrf" => vec![vec![m, m]],
        "transpose" => vec![vec![m, n], vec![n, m]],
        _ if rng.one_in(6) => vec![vec![]; 2],
        _ if rng.one_in(3) => vec![vec![m.min(9), 2, n.min(9), 3]; 2],
        // Rows longer than a block of the elementwise bodies.
        _ => vec![vec![m, n * 40]; 2],
    }
}

/// Numbers that are added up for an element.
fn terms(name: &str, shapes: &[Vec<u64>], scalars: &[Scalar]) -> u64 {
    let last = |shape: &Vec<u64>| shape.last().copied().unwrap_or(1);
    match name {
        "gemm" => shapes[0][usize::from(!scalars[2].as_bool())],
        "potrf" | "trsm" => shapes[0][0],
        _ => last(&shapes[0]),
    }
}

/// Element types that go together, for every dtype that the kernel takes: all arguments alike, or
/// each float of its own where the kernel computes in `f32`.
pub fn dtypes(entry: &Entry, rng: &mut Rng) -> Vec<Vec<Dtype>> {
    let parameters = &entry.signature.parameters;
    let one_of_each = |rng: &mut Rng| parameters.iter().map(|p| *rng.pick(p.dtypes)).collect();
    let alike = |&common: &Dtype| -> Vec<Dtype> {
        let one = |p: &syncline_kernels::Parameter| match p.dtypes.contains(&common) {
            true => common,
            false => p.dtypes[common as usize % p.dtypes.len()],
        };
        parameters.iter().map(one).collect()
    };
    let mut choices: Vec<Vec<Dtype>> = parameters[0].dtypes.iter().map(alike).collect();
    let computes_in_f32 = !parameters[0].dtypes.contains(&Dtype::I32);
    match entry.signature.name.as_str() {
        "cast" => choices.extend((0..24).map(|_| one_of_each(rng))),
        _ if computes_in_f32 && parameters[0].dtypes.len() > 1 => {
            let floats = [Dtype::F32, Dtype::F16, Dtype::BF16];
            let mixed = |dtype: Dtype, rng: &mut Rng| {
                if is_float(dtype) { *rng.pick(&floats) } else { dtype }
            };
            let last = choices[0].iter().map(|&dtype| mixed(dtype, rng)).collect();
            choices.push(last);
        }
        _ => {}
    }
    choices
}

pub fn is_float(dtype: Dtype) -> bool {
    Tolerance::epsilon(dtype) > 0.0
}

pub fn values(name: &str, position: usize, held: &Held, rows: u64, rng: &mut Rng) -> Vec<f64> {
    let shape = held.view.shape();
    let count = shape.iter().product::<u64>() as usize;
    let mut values: Vec<f64> = (0..count)
        .map(|_| match held.view.dtype() {
            dtype if is_float(dtype) => rng.range(0..2001) as f64 / 500.0 - 2.0,
            Dtype::U8 | Dtype::U16 | Dtype::U32 | Dtype::U64 => rng.range(0..12) as f64,
            _ => rng.range(0..21) as f64 - 10.0,
        })
        .collect();
    match (name, position) {
        ("embedding", 1) => values.iter_mut().for_each(|id| *id = rng.range(0..rows) as f64),
        // Strongly diagonal, so that the triangle is well conditioned and the matrix positive
        // definite.
        ("potrf" | "trsm", 0) => {
            let order = shape[0] as usize;
            for row in 0..order {
                for column in 0..row {
                    values[column * order + row] = values[row * order + column];
                }
                values[row * order + row] = 4.0 * order as f64;
            }
        }
        _ => {}
    }
    values
}

impl Case {
    /// A random call of `entry` with arguments of these dtypes.
    pub fn random(entry: &Entry, dtypes: &[Dtype], rng: &mut Rng) -> Self {
        let (name, signature) = (entry.signature.name.as_str(), &entry.signature);
        let scalars: Vec<Scalar> = signature
            .scalars
            .iter()
            .map(|scalar| match scalar.default {
                Scalar::Bool(_) => Scalar::Bool(rng.one_in(2)),
                _ if scalar.name == "epsilon" => scalar.default,
                _ if is_float(dtypes[0]) => Scalar::F32(rng.range(0..9) as f32 / 4.0 - 1.0),
                _ => Scalar::I64(rng.range(0..5) as i64),
            })
            .collect();
        let shapes = shapes(name, rng, &scalars);
        let mut held: Vec<Held> = Vec::new();
        for (position, shape) in shapes.iter().enumerate() {
            let parameter = signature.parameters[position];
            let access = match (parameter.reads, parameter.writes) {
                (true, true) => Access::InOut,
                (false, _) => Access::OutputExisting,
                _ => Access::Input,
            };
            let mut one = Held::random_layout(rng, dtypes[position], shape, access);
            let values = values(name, position, &one, shapes[0].first().copied().unwrap_or(0), rng);
            one.set(&values);
            held.push(one);
        }
        let args: Vec<_> = held.iter().enumerate().map(|(at, held)| held.arg(at)).collect();
        signature.check(&args, &scalars).unwrap_or_else(|error| panic!("{name}: {error}"));
        let (wanted, bound) = wanted(entry, &held, &scalars);
        Self { held, scalars, wanted, bound }
    }

    /// Fails unless the last argument is what it must be, and nothing else has changed; `before`
    /// are the bytes of all arguments before the call.
    pub fn verify(&self, name: &str, before: &[Vec<u8>]) {
        let shapes: Vec<_> = self.held.iter().map(|held| held.view).collect();
        let (target, inputs) = self.held.split_last().unwrap();
        for (position, (input, before)) in inputs.iter().zip(before).enumerate() {
            assert!(input.bytes == *before, "{name}: argument {position} was written");
        }
        let mut is_inside = vec![false; target.bytes.len()];
        for place in target.places() {
            is_inside[place..place + target.view.dtype().bytes() as usize].fill(true);
        }
        let old = before.last().unwrap();
        for at in (0..is_inside.len()).filter(|&at| !is_inside[at]) {
            assert_eq!(target.bytes[at], old[at], "{name} {shapes:?}: byte {at} beside the target");
        }
        for (at, (&got, &wanted)) in target.get().values.iter().zip(&self.wanted).enumerate() {
            assert!(
                (got - wanted).abs() <= self.bound,
                "{name} {shapes:?} {:?}: element {at} is {got}, not {wanted} (up to {:e})",
                self.scalars,
                self.bound
            );
        }
    }
}

/// What the reference makes of a call, and how far a backend may be away from it.
pub fn wanted(entry: &Entry, held: &[Held], scalars: &[Scalar]) -> (Vec<f64>, f64) {
    let (name, target) = (entry.signature.name.as_str(), held.last().unwrap());
    let dtypes: Vec<Dtype> = held.iter().map(|held| held.view.dtype()).collect();
    let shapes: Vec<Vec<u64>> = held.iter().map(|held| held.view.shape().to_vec()).collect();
    if target.view.is_empty() {
        return (Vec::new(), 0.0);
    }
    if held[0].view.is_empty() && name == "reduce_sum" {
        return (vec![0.0; target.view.elements() as usize], 0.0);
    }
    let before: Vec<_> = held.iter().map(Held::get).collect();
    let numbers: Vec<f64> = scalars.iter().map(|scalar| scalar.as_f64()).collect();
    let mut wanted = reference::compute(name, &before, &numbers).expect("a reference").values;
    let largest = |values: &[f64]| values.iter().fold(0.0f64, |most, x| most.max(x.abs()));
    let magnitude = before.iter().map(|tensor| largest(&tensor.values)).fold(0.0, f64::max);
    let factor = 1.0 + largest(&numbers);
    let tolerance = entry.signature.tolerance;
    let magnitude = match name {
        "gemm" | "syrk" => magnitude * magnitude * factor,
        "softmax" | "trsm" | "potrf" => magnitude.max(1.0),
        "layernorm" | "rmsnorm" => magnitude.max(largest(&wanted)).max(1.0),
        _ => magnitude * factor,
    };
    let dtype = target.view.dtype();
    let is_exact = tolerance == Tolerance::Exact || !is_float(dtype);
    if name == "cast" && is_float(dtypes[0]) && !is_float(dtype) {
        wanted.iter_mut().for_each(|value| *value = saturated(dtype, *value));
        return (wanted, 0.0);
    }
    if is_exact {
        wanted.iter_mut().for_each(|value| *value = rounded(dtype, *value));
        return (wanted, 0.0);
    }
    let bound = tolerance.bound(dtypes, magnitude, terms(name, &shapes, scalars));
    (wanted, bound)
}
