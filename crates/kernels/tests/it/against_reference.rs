//! Every kernel against the plain reference.

use syncline_deps::{Access, Dtype};
use syncline_device::Scalar;
use syncline_kernels::{Library, Signature, reference};
use syncline_testing::{Rng, for_seeds};

use crate::support::{Held, run};

/// Shapes that go together, by kernel.
fn shapes(name: &str, rng: &mut Rng, scalars: &[Scalar]) -> Vec<Vec<u64>> {
    let (m, n, k) = (rng.range(1..20), rng.range(1..20), rng.range(1..20));
    let swapped = |at: usize, shape: [u64; 2]| {
        if scalars[at].as_bool() { vec![shape[1], shape[0]] } else { shape.to_vec() }
    };
    match name {
        "fill" => vec![vec![m, n]],
        "add" | "sub" | "mul" => vec![vec![m, n, 3]; 3],
        "stencil" => vec![vec![m + 2, n + 2], vec![m, n]],
        "reduce_sum" | "reduce_max" => vec![vec![m, n, k], vec![m, n]],
        "layernorm" => vec![vec![m, n], vec![n], vec![n], vec![m, n]],
        "rmsnorm" => vec![vec![m, n], vec![n], vec![m, n]],
        "embedding" => vec![vec![m, n], vec![k], vec![k, n]],
        "gemm" => vec![swapped(2, [m, k]), swapped(3, [k, n]), vec![m, n]],
        "syrk" => vec![vec![m, k], vec![m, m]],
        "trsm" if scalars[1].as_bool() => vec![vec![m, m], vec![m, n]],
        "trsm" => vec![vec![n, n], vec![m, n]],
        "potrf" => vec![vec![m, m]],
        "transpose" => vec![vec![m, n], vec![n, m]],
        // Rows longer than a block of the elementwise bodies.
        _ => vec![vec![m, n * 40]; 2],
    }
}

fn dtype_of(name: &str, signature: &Signature, position: usize, common: Dtype) -> Dtype {
    match (name, position) {
        ("embedding", 1) => Dtype::I64,
        _ if signature.parameters[position].dtypes.contains(&common) => common,
        _ => Dtype::F32,
    }
}

fn values(name: &str, position: usize, shape: &[u64], rows: u64, rng: &mut Rng) -> Vec<f64> {
    let count = shape.iter().product::<u64>() as usize;
    let mut values: Vec<f64> =
        (0..count).map(|_| rng.range(0..2001) as f64 / 500.0 - 2.0).collect();
    match (name, position) {
        ("embedding", 1) => values.iter_mut().for_each(|id| *id = rng.range(0..rows) as f64),
        // Strongly diagonal, so that the triangle is well conditioned and the matrix positive definite.
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

fn tolerance(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F64 => 1e-12,
        Dtype::F16 => 4e-3,
        Dtype::BF16 => 3e-2,
        _ => 2e-5,
    }
}

#[test]
fn kernels_compute_what_the_reference_does() {
    let library = Library::builtin();
    for_seeds("kernels_compute_what_the_reference_does", 60, |rng| {
        for entry in library.iter() {
            let (name, signature) = (entry.signature.name.as_str(), &entry.signature);
            let common = *rng.pick(&[Dtype::F32, Dtype::F32, Dtype::F64, Dtype::F16, Dtype::BF16]);
            let scalars: Vec<Scalar> = signature
                .scalars
                .iter()
                .map(|scalar| match scalar.default {
                    Scalar::Bool(_) => Scalar::Bool(rng.one_in(2)),
                    _ if scalar.name == "epsilon" => scalar.default,
                    _ => Scalar::F32(rng.range(0..9) as f32 / 4.0 - 1.0),
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
                let dtype = dtype_of(name, signature, position, common);
                let mut one = Held::random_layout(rng, dtype, shape, access);
                one.set(&values(name, position, shape, shapes[0][0], rng));
                held.push(one);
            }
            let args: Vec<_> = held.iter().map(Held::arg).collect();
            signature.check(&args, &scalars).unwrap_or_else(|error| panic!("{name}: {error}"));
            let before: Vec<_> = held.iter().map(Held::get).collect();
            let numbers: Vec<f64> = scalars.iter().map(|scalar| scalar.as_f64()).collect();
            let wanted = reference::compute(name, &before, &numbers).expect("a reference");
            run(&entry.kernel, &mut held, &scalars)
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            let last = held.last().unwrap();
            let got = last.get();
            let limit = tolerance(
                held.iter()
                    .map(|held| held.view.dtype())
                    .max_by(|a, b| tolerance(*a).total_cmp(&tolerance(*b)))
                    .unwrap(),
            );
            for (at, (got, wanted)) in got.values.iter().zip(&wanted.values).enumerate() {
                let scale =
                    1.0 + wanted.abs() * 4.0 + shapes[0].iter().max().copied().unwrap_or(1) as f64;
                assert!(
                    (got - wanted).abs() <= limit * scale,
                    "{name} {shapes:?} {common}: element {at} is {got}, not {wanted}"
                );
            }
        }
    });
}

#[test]
fn what_lies_around_an_argument_stays() {
    let library = Library::builtin();
    for_seeds("what_lies_around_an_argument_stays", 40, |rng| {
        let entry = library.get("scale").unwrap();
        let shape = [rng.range(1..9), rng.range(1..9)];
        let mut held = vec![
            Held::random_layout(rng, Dtype::F32, &shape, Access::Input),
            Held::random_layout(rng, Dtype::F32, &shape, Access::OutputExisting),
        ];
        run(&entry.kernel, &mut held, &[Scalar::F32(0.0)]).unwrap();
        let places = held[1].places();
        for (at, &byte) in held[1].bytes.iter().enumerate() {
            let inside = places.iter().any(|&place| (place..place + 4).contains(&at));
            assert_eq!(byte, if inside { 0x80 * u8::from(at % 4 == 3 && byte != 0) } else { 0xA5 });
        }
    });
}
