//! Ready programs, run serially, against answers computed another way.

use syncline_program::{EXAMPLES, Program, ProgramOptions, ProgramRun, example};

fn run(name: &str, settings: &[(&str, u64)]) -> (Program, ProgramRun) {
    let settings: Vec<_> =
        settings.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    let trace = example(name, &settings).unwrap();
    let program = Program::from_trace(trace, &ProgramOptions::default()).unwrap();
    let run = program.run_serially().unwrap();
    (program, run)
}

fn floats(program: &Program, run: &ProgramRun, name: &str) -> Vec<f32> {
    let bytes = &run.contents[program.buffer_named(name).unwrap()];
    bytes.chunks(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
}

#[test]
fn every_example_runs() {
    for example in EXAMPLES {
        let (program, run) = run(example.name, &[]);
        assert_eq!(run.timings.len(), program.trace().tasks.len(), "{}", example.name);
        let in_order = run.timings.windows(2).all(|pair| pair[0].end_ns <= pair[1].start_ns);
        assert!(in_order, "{} did not run serially", example.name);
    }
}

#[test]
fn the_factor_times_its_transpose_is_the_matrix() {
    let (program, run) = run("cholesky", &[("tiles", 3), ("tile", 10)]);
    let order = 30;
    let l = floats(&program, &run, "A");
    let original = program.initial_contents(0).unwrap();
    for row in 0..order {
        for column in 0..=row {
            let product: f64 = (0..=column)
                .map(|k| f64::from(l[row * order + k]) * f64::from(l[column * order + k]))
                .sum();
            let place = 4 * (row * order + column);
            let entry = f32::from_le_bytes(original[place..place + 4].try_into().unwrap());
            let wanted = if row == column { order as f64 } else { f64::from(entry) };
            assert!((product - wanted).abs() < 1e-3, "({row}, {column}): {product}, not {wanted}");
        }
    }
}

#[test]
fn a_butterfly_of_blocks_is_a_walsh_hadamard_transform() {
    let (stages, block) = (3u32, 4usize);
    let (program, run) = run("butterfly", &[("stages", 3), ("block", 4)]);
    let result = floats(&program, &run, "odd");
    let source = program.initial_contents(0).unwrap();
    let source: Vec<f32> =
        source.chunks(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect();
    for to in 0..1usize << stages {
        for at in 0..block {
            let sum: f64 = (0..1usize << stages)
                .map(|from| {
                    let sign = if (from & to).count_ones() % 2 == 0 { 1.0 } else { -1.0 };
                    sign * f64::from(source[from * block + at])
                })
                .sum();
            assert!((f64::from(result[to * block + at]) - sum).abs() < 1e-4);
        }
    }
}

#[test]
fn attention_is_what_a_plain_computation_gives() {
    let (tokens, heads, head) = (6usize, 2usize, 3usize);
    let (program, run) = run("attention", &[("tokens", 6), ("heads", 2), ("head", 3)]);
    let width = heads * head;
    let initial = |name: &str| -> Vec<f64> {
        let bytes = program.initial_contents(program.buffer_named(name).unwrap()).unwrap();
        bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()).into()).collect()
    };
    let shrink = 2.0 / width as f64;
    let norm = |x: &[f64], gain: &[f64]| -> Vec<f64> {
        x.chunks(width)
            .flat_map(|row| {
                let square = row.iter().map(|x| x * x).sum::<f64>() / width as f64;
                row.iter()
                    .zip(gain)
                    .map(move |(x, g)| x / (square + 1e-5).sqrt() * g)
                    .collect::<Vec<_>>()
            })
            .collect()
    };
    let times = |a: &[f64], b: &[f64], depth: usize, alpha: f64| -> Vec<f64> {
        let (m, n) = (a.len() / depth, b.len() / depth);
        (0..m * n)
            .map(|at| {
                alpha * (0..depth).map(|k| a[at / n * depth + k] * b[k * n + at % n]).sum::<f64>()
            })
            .collect()
    };
    let x = initial("x");
    let normed = norm(&x, &initial("attention gain"));
    let [q, k, v] = ["wq", "wk", "wv"].map(|name| times(&normed, &initial(name), width, shrink));
    let mut mixed = vec![0.0; tokens * width];
    for h in 0..heads {
        for row in 0..tokens {
            let dot = |column: usize| -> f64 {
                (0..head)
                    .map(|d| q[row * width + h * head + d] * k[column * width + h * head + d])
                    .sum()
            };
            let weights: Vec<f64> =
                (0..=row).map(|c| (dot(c) / (head as f64).sqrt()).exp()).collect();
            let sum: f64 = weights.iter().sum();
            for d in 0..head {
                mixed[row * width + h * head + d] =
                    (0..=row).map(|c| weights[c] / sum * v[c * width + h * head + d]).sum();
            }
        }
    }
    let attended: Vec<f64> =
        times(&mixed, &initial("wo"), width, shrink).iter().zip(&x).map(|(a, b)| a + b).collect();
    let normed = norm(&attended, &initial("feed-forward gain"));
    let inner: Vec<f64> = times(&normed, &initial("up"), width, shrink)
        .iter()
        .map(|x| x / (1.0 + (-x).exp()))
        .collect();
    let wanted = times(&inner, &initial("down"), 4 * width, 0.5 / width as f64);
    let found = floats(&program, &run, "y");
    for (at, (wanted, attended)) in wanted.iter().zip(&attended).enumerate() {
        let wanted = wanted + attended;
        assert!((f64::from(found[at]) - wanted).abs() < 1e-4, "{at}: {} not {wanted}", found[at]);
    }
}
