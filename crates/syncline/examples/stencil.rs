//! A heat stencil over blocks of rows, two sweeps deep, written once and run in every mode.
//! `cargo run --release --example stencil [SIDE] [STEPS]`

use std::error::Error;

use syncline::prelude::*;

/// One sweep over a block of rows: `above` and `below` are its neighbouring rows.
fn sweep(
    above: TensorRef<'_, f32>,
    block: TensorRef<'_, f32>,
    below: TensorRef<'_, f32>,
    mut out: TensorMut<'_, f32>,
) {
    let rows = block.row_count();
    for (at, out) in out.rows_mut().enumerate() {
        let up = if at == 0 { above.row(0) } else { block.row(at - 1) };
        let down = if at + 1 == rows { below.row(0) } else { block.row(at + 1) };
        let (here, last) = (block.row(at), out.len() - 1);
        for column in 0..=last {
            let (left, right) = (column.saturating_sub(1), (column + 1).min(last));
            out[column] =
                0.5 * here[column] + 0.125 * (up[column] + down[column] + here[left] + here[right]);
        }
    }
}

/// `steps` sweeps from `a` to `b` and back; rows at the border see themselves.
fn heat(to: &impl Submit, a: &Tensor<f32>, b: &Tensor<f32>, steps: usize) -> Result<()> {
    const ROWS: usize = 16;
    let width = a.size(1);
    for step in 0..steps {
        let (from, into) = if step % 2 == 0 { (a, b) } else { (b, a) };
        let last = from.size(0) - 1;
        let blocks = from.tiles([ROWS, width])?;
        for (at, out) in into.tiles([ROWS, width])?.iter().enumerate() {
            let (first, end) = (at * ROWS, at * ROWS + out.size(0) - 1);
            let above = from.slice(0, first.saturating_sub(1)..first.saturating_sub(1) + 1)?;
            let below = from.slice(0, (end + 1).min(last)..(end + 1).min(last) + 1)?;
            let block = &blocks[[at, 0]];
            to.task("sweep", (above.read(), block.read(), below.read(), out.write()))
                .run(|(above, block, below, out)| sweep(above, block, below, out))?;
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut sizes = std::env::args().skip(1).filter_map(|size| size.parse().ok());
    let (side, steps): (usize, usize) = (sizes.next().unwrap_or(128), sizes.next().unwrap_or(20));
    let hot: Vec<f32> = (0..side * side).map(|at| if at < side { 100.0 } else { 0.0 }).collect();
    let shape = [side, side];

    let (a, b) = (Tensor::from_vec(shape, hot.clone())?, Tensor::zeros(shape)?);
    heat(&Serial, &a, &b, steps)?;
    let expected = a.to_vec()?;

    let executor = UnifiedExecutor::open("cpu")?;
    let mut scoped = hot.clone();
    executor.scope(|s| {
        let a = s.borrow_mut(&mut scoped, shape)?;
        heat(s, &a, &s.zeros(shape)?, steps)
    })?;
    assert_eq!(scoped, expected, "the scope and the serial run");

    let stream = Stream::new(StreamOptions::default())?;
    let (a, b) = (Tensor::from_vec(shape, hot.clone())?, Tensor::zeros(shape)?);
    heat(&stream, &a, &b, steps)?;
    assert_eq!(a.to_vec()?, expected, "the stream and the serial run");

    let record = |g: &Recorder<'_>| heat(g, &g.input("A", shape)?, &g.zeros(shape)?, steps);
    let plan = executor.record(record)?.compile()?;
    let mut planned = hot;
    plan.run(bind! { A: &mut planned })?;
    assert_eq!(planned, expected, "the plan and the serial run");

    let mean = |rows: &[f32]| rows.iter().sum::<f32>() / rows.len() as f32;
    for (at, rows) in planned.chunks(side * side.div_ceil(8)).enumerate() {
        println!("rows {:4} ..: {:6.3}", at * side.div_ceil(8), mean(rows));
    }
    Ok(())
}

#[test]
fn runs() -> Result<(), Box<dyn Error>> {
    main()
}
