//! LU factorisation by tiles, written once: live over a borrowed slice, in a stream, serially, and
//! as a plan that factors a batch. `cargo run --release --example lu [SIDE] [BLOCK]`

use std::error::Error;
use std::fmt;
use std::time::Instant;

use syncline::prelude::*;

#[derive(Debug)]
struct ZeroPivot(usize);

impl fmt::Display for ZeroPivot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pivot {} is zero", self.0)
    }
}

impl Error for ZeroPivot {}

/// `a = l * u` in place, without pivoting.
fn factor(mut a: TensorMut<'_, f64>) -> Result<(), ZeroPivot> {
    for k in 0..a.row_count() {
        if a[[k, k]] == 0.0 {
            return Err(ZeroPivot(k));
        }
        for i in k + 1..a.row_count() {
            let (pivot, row) = a.row_and_row_mut(k, i);
            row[k] /= pivot[k];
            let factor = row[k];
            row[k + 1..].iter_mut().zip(&pivot[k + 1..]).for_each(|(x, u)| *x -= factor * u);
        }
    }
    Ok(())
}

/// `b = l⁻¹ * b`, where `l` is the unit lower triangle of `a`.
fn solve_left(a: TensorRef<'_, f64>, mut b: TensorMut<'_, f64>) {
    for i in 1..b.row_count() {
        for k in 0..i {
            let (above, row) = b.row_and_row_mut(k, i);
            row.iter_mut().zip(above).for_each(|(x, y)| *x -= a.row(i)[k] * y);
        }
    }
}

/// `b = b * u⁻¹`, where `u` is the upper triangle of `a`.
fn solve_right(a: TensorRef<'_, f64>, mut b: TensorMut<'_, f64>) {
    for row in b.rows_mut() {
        for k in 0..row.len() {
            row[k] /= a.row(k)[k];
            let factor = row[k];
            row[k + 1..].iter_mut().zip(&a.row(k)[k + 1..]).for_each(|(x, u)| *x -= factor * u);
        }
    }
}

/// `c = c - a * b`.
fn subtract(a: TensorRef<'_, f64>, b: TensorRef<'_, f64>, mut c: TensorMut<'_, f64>) {
    for (row, out) in a.rows().zip(c.rows_mut()) {
        for (factor, b) in row.iter().zip(b.rows()) {
            out.iter_mut().zip(b).for_each(|(c, b)| *c -= factor * b);
        }
    }
}

fn lu(to: &impl Submit, a: &Tensor<f64>, block: usize) -> Result<()> {
    let t = a.tiles([block, block])?;
    for k in 0..t.rows() {
        to.task("getrf", t[[k, k]].update()).priority(3).run(factor)?;
        for j in k + 1..t.cols() {
            let tiles = (t[[k, k]].read(), t[[k, j]].update());
            to.task("trsm u", tiles).priority(2).run(|(a, b)| solve_left(a, b))?;
        }
        for i in k + 1..t.rows() {
            let tiles = (t[[k, k]].read(), t[[i, k]].update());
            to.task("trsm l", tiles).priority(2).run(|(a, b)| solve_right(a, b))?;
        }
        for i in k + 1..t.rows() {
            for j in k + 1..t.cols() {
                let tiles = (t[[i, k]].read(), t[[k, j]].read(), t[[i, j]].update());
                to.task("gemm", tiles).run(|(a, b, c)| subtract(a, b, c))?;
            }
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut sizes = std::env::args().skip(1).filter_map(|size| size.parse().ok());
    let (side, block) = (sizes.next().unwrap_or(192), sizes.next().unwrap_or(32));
    let element = |at: usize| {
        let (row, column) = (at / side, at % side);
        if row == column { side as f64 } else { ((row * 7 + column * 3) % 11) as f64 / 11.0 }
    };
    let matrix: Vec<f64> = (0..side * side).map(element).collect();

    let serial = Tensor::from_vec([side, side], matrix.clone())?;
    lu(&Serial, &serial, block)?;
    let expected = serial.to_vec()?;

    let executor = UnifiedExecutor::open("cpu")?;
    let (mut scoped, began) = (matrix.clone(), Instant::now());
    executor.scope(|s| lu(s, &s.borrow_mut(&mut scoped, [side, side])?, block))?;
    println!("scope:  {side}x{side} in tiles of {block} took {:?}", began.elapsed());
    assert_eq!(scoped, expected, "the scope and the serial run");

    let stream = Stream::new(StreamOptions::default())?;
    let streamed = Tensor::from_vec([side, side], matrix.clone())?;
    lu(&stream, &streamed, block)?;
    assert_eq!(streamed.to_vec()?, expected, "the stream and the serial run");

    let plan = executor.record(|g| lu(g, &g.input("A", [side, side])?, block))?.compile()?;
    let mut batch = vec![matrix.clone(); 3];
    for matrix in &mut batch {
        let began = Instant::now();
        plan.run(bind! { A: matrix })?;
        println!("plan:   a run of {} tasks took {:?}", plan.plan().tasks().len(), began.elapsed());
    }
    assert!(batch.iter().all(|result| *result == expected), "the plan and the serial run");

    let mut singular = vec![0.0; side * side];
    let failed = plan.run(bind! { A: &mut singular }).expect_err("all pivots are zero");
    println!("error:  {failed}");
    Ok(())
}

#[test]
fn runs() -> Result<(), Box<dyn Error>> {
    main()
}
