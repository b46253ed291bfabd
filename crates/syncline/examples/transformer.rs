//! A transformer block from `ops`, written once: serially, live, and as one plan over all devices
//! that are here. `cargo run --release --example transformer [TOKENS]`

use std::error::Error;

use syncline::prelude::*;

const WIDTH: usize = 32;
const HEADS: usize = 4;

/// The weights of one block.
struct Weights {
    norm_attention: Tensor<f32>,
    qkv: Tensor<f32>,
    out: Tensor<f32>,
    norm_mlp: Tensor<f32>,
    up: Tensor<f32>,
    down: Tensor<f32>,
    cos: Tensor<f32>,
    sin: Tensor<f32>,
}

/// Small numbers without a pattern.
fn numbers(shape: &[usize], seed: usize) -> Result<Tensor<f32>> {
    let count = shape.iter().product::<usize>();
    let number = |at: usize| ((at * 7919 + seed * 104_729) % 1009) as f32 / 1009.0 - 0.5;
    Tensor::from_vec(shape, (0..count).map(|at| number(at) * 0.4).collect())
}

impl Weights {
    fn new(tokens: usize) -> Result<Self> {
        let half = WIDTH / HEADS / 2;
        let angle =
            |at: usize| (at / half) as f32 / 10_000f32.powf((at % half) as f32 / half as f32);
        let turn = |of: fn(f32) -> f32| {
            Tensor::from_vec([tokens, half], (0..tokens * half).map(|at| of(angle(at))).collect())
        };
        Ok(Self {
            norm_attention: Tensor::from(vec![1.0; WIDTH]),
            qkv: numbers(&[WIDTH, 3 * WIDTH], 1)?,
            out: numbers(&[WIDTH, WIDTH], 2)?,
            norm_mlp: Tensor::from(vec![1.0; WIDTH]),
            up: numbers(&[WIDTH, 4 * WIDTH], 3)?,
            down: numbers(&[4 * WIDTH, WIDTH], 4)?,
            cos: turn(f32::cos)?,
            sin: turn(f32::sin)?,
        })
    }
}

/// `x`, tokens by width, through one block. `mlp` takes the tasks of the second half.
fn block(to: &impl Submit, mlp: &impl Submit, x: &Tensor<f32>, w: &Weights) -> Result<Tensor<f32>> {
    let (tokens, head) = (x.size(0), WIDTH / HEADS);
    let qkv = ops::matmul(to, &ops::rmsnorm(to, x, &w.norm_attention, 1e-5)?, &w.qkv)?;
    let heads = |part: usize| {
        let columns = qkv.slice(1, part * WIDTH..(part + 1) * WIDTH)?;
        let tokens_by_head = ops::copy(to, &columns)?.reshape([tokens, HEADS, head])?;
        tokens_by_head.transpose(0, 1)
    };
    let q = ops::rope(to, &heads(0)?, &w.cos, &w.sin)?;
    let k = ops::rope(to, &heads(1)?, &w.cos, &w.sin)?;
    let scores = ops::matmul(to, &q, &k.transpose(1, 2)?)?;
    let scores = ops::scale(to, &scores, 1.0 / (head as f32).sqrt())?;
    let seen = ops::matmul(to, &ops::softmax_causal(to, &scores)?, &heads(2)?)?;
    let seen = ops::copy(to, &seen.transpose(0, 1)?)?.reshape([tokens, WIDTH])?;
    let x = ops::add(to, x, &ops::matmul(to, &seen, &w.out)?)?;
    let normed = ops::rmsnorm(mlp, &x, &w.norm_mlp, 1e-5)?;
    let hidden = ops::silu(mlp, &ops::matmul(mlp, &normed, &w.up)?)?;
    ops::add(mlp, &x, &ops::matmul(mlp, &hidden, &w.down)?)
}

/// The largest difference of two results.
fn difference(one: &[f32], other: &[f32]) -> f32 {
    one.iter().zip(other).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

fn main() -> Result<(), Box<dyn Error>> {
    let tokens = std::env::args().skip(1).find_map(|count| count.parse().ok()).unwrap_or(24);
    let (weights, x) = (Weights::new(tokens)?, numbers(&[tokens, WIDTH], 9)?);
    let expected = block(&Serial, &Serial, &x, &weights)?.to_vec()?;

    // The devices that are here: the CPU is always.
    let names: Vec<&str> = ["cpu:0", "vulkan:0", "opencl:0"]
        .into_iter()
        .filter(|name| match UnifiedExecutor::open(name) {
            Ok(_) => true,
            Err(error) => {
                println!("without {name}: {error}");
                false
            }
        })
        .collect();
    let executor = UnifiedExecutor::open(&names.join(","))?;

    let live = executor.scope(|s| block(s, s, &x, &weights))?.to_vec()?;
    println!("scope on cpu:0: differs by {:e}", difference(&live, &expected));

    for (attention, mlp) in names.iter().flat_map(|a| names.iter().map(move |b| (*a, *b))) {
        let result = Tensor::<f32>::zeros([tokens, WIDTH])?;
        let record = |g: &Recorder<'_>| {
            let (attention, mlp) = ([attention], [mlp]);
            let y = block(&g.on(&attention), &g.on(&mlp), &x, &weights)?;
            g.task("result", (y.read(), result.write())).run(|(y, mut out)| out.copy_from(&y))?;
            Ok(())
        };
        let plan = executor.record(record)?.compile()?;
        plan.run(bind! {})?;
        let (tasks, copies) = (plan.plan().tasks().len(), plan.plan().copies().len());
        let distance = difference(&result.to_vec()?, &expected);
        println!("plan, attention on {attention}, mlp on {mlp}: {tasks} tasks, {copies} copies");
        assert!(distance < 1e-4, "{attention} and {mlp} differ by {distance}");
    }
    assert!(difference(&live, &expected) < 1e-5, "the same kernels in another order");
    Ok(())
}

#[test]
fn runs() -> Result<(), Box<dyn Error>> {
    main()
}
