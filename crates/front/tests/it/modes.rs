use syncline_front::{Result, Submit, Tensor};
use syncline_testing::{Rng, for_seeds};

use super::{Program, in_every_mode};

/// One step of a random program: all on tiles, whose order shows in the result.
#[derive(Clone, Debug)]
enum Step {
    /// `target = 3 * target + number`.
    Advance { target: [usize; 3], number: f64 },
    /// `target += source`, through a transposed view.
    AddTransposed { source: [usize; 3], target: [usize; 3] },
    /// `target = row sums of source, in each column`, by way of a temporary tensor.
    Sums { source: [usize; 3], target: [usize; 3] },
    /// Adds a number, in any order with others that do.
    Reduce { target: [usize; 3], number: f64 },
}

struct Random(Vec<Step>);

const SIDE: usize = 6;
const TILE: usize = 3;

fn tile(tensors: &[Tensor<f64>], [tensor, row, column]: [usize; 3]) -> Result<Tensor<f64>> {
    Ok(tensors[tensor].tiles([TILE, TILE])?[[row, column]].clone())
}

impl Program for Random {
    fn submit(&self, to: &impl Submit, tensors: &[Tensor<f64>]) -> Result<()> {
        for step in self.0.iter().cloned() {
            match step {
                Step::Advance { target, number } => {
                    to.task("advance", tile(tensors, target)?.update())
                        .priority(number as i32)
                        .run(move |mut x| {
                            for row in x.rows_mut() {
                                row.iter_mut().for_each(|x| *x = (3.0 * *x + number) % 1000.0);
                            }
                        })?;
                }
                Step::AddTransposed { source, target } => {
                    let source = tile(tensors, source)?.transpose(0, 1)?;
                    let target = tile(tensors, target)?;
                    to.task("add", (source.read(), target.update())).run(|(from, mut to)| {
                        for row in 0..to.size(0) {
                            for column in 0..to.size(1) {
                                to[[row, column]] += from[[row, column]];
                            }
                        }
                    })?;
                }
                Step::Sums { source, target } => {
                    let sums = to.zeros::<f64>([TILE])?;
                    let (source, target) = (tile(tensors, source)?, tile(tensors, target)?);
                    to.task("sum", (source.read(), sums.write())).run(|(from, mut sums)| {
                        for (row, sum) in from.rows().enumerate() {
                            sum.iter().for_each(|x| assert!(x.is_finite()));
                            sums[[row]] = sum.iter().sum();
                        }
                    })?;
                    let wide = sums.broadcast([TILE, TILE])?;
                    to.task("spread", (wide.read(), target.write())).run(|(from, mut to)| {
                        to.copy_from(&from);
                    })?;
                }
                Step::Reduce { target, number } => {
                    let target = tile(tensors, target)?;
                    to.task("reduce", target.reduce()).run(move |mut x| x.apply(|x| x + number))?;
                }
            }
        }
        Ok(())
    }
}

fn random(rng: &mut Rng, tensors: u64) -> Random {
    let place = |rng: &mut Rng| {
        [rng.range(0..tensors) as usize, rng.range(0..2) as usize, rng.range(0..2) as usize]
    };
    let step = |rng: &mut Rng| {
        let (source, mut target) = (place(rng), place(rng));
        if source == target {
            target[0] = (target[0] + 1) % tensors as usize;
        }
        let number = rng.range(0..10) as f64;
        match rng.range(0..4) {
            0 => Step::Advance { target, number },
            1 => Step::AddTransposed { source, target },
            2 => Step::Sums { source, target },
            _ => Step::Reduce { target, number },
        }
    };
    Random((0..40).map(|_| step(rng)).collect())
}

/// Adds one to a tensor of zeroes, and that to its only tensor.
struct Zeros;

impl Program for Zeros {
    fn submit(&self, to: &impl Submit, tensors: &[Tensor<f64>]) -> Result<()> {
        // Another tensor before, so that its bytes may be used again.
        let used = to.empty::<f64>([2, 2])?;
        to.task("use", (tensors[0].read(), used.write()))
            .run(|(from, mut x)| x.copy_from(&from))?;
        to.task("keep", (used.read(), tensors[0].update())).run(|(_, _)| ())?;
        let sum = to.zeros::<f64>([2, 2])?;
        to.task("one", sum.reduce()).run(|mut sum| sum.apply(|x| x + 1.0))?;
        to.task("add", (sum.read(), tensors[0].update())).run(|(sum, mut x)| {
            for (to, from) in x.rows_mut().zip(sum.rows()) {
                to.iter_mut().zip(from).for_each(|(x, y)| *x += y);
            }
        })?;
        Ok(())
    }
}

#[test]
fn zeros_are_zero_in_every_run_of_every_mode() {
    let results = in_every_mode(&Zeros, [2, 2], &[vec![1.0, 2.0, 3.0, 4.0]]).expect("runs");
    for (mode, result) in results {
        assert_eq!(result, [[2.0, 3.0, 4.0, 5.0]], "{mode}");
    }
}

#[test]
fn random_programs_give_the_same_in_every_mode() {
    for_seeds("random_programs_give_the_same_in_every_mode", 25, |rng| {
        let program = random(rng, 3);
        let contents: Vec<Vec<f64>> =
            (0..3).map(|_| (0..SIDE * SIDE).map(|_| rng.range(0..100) as f64).collect()).collect();
        let results = in_every_mode(&program, [SIDE, SIDE], &contents).expect("every mode runs");
        let expected = on_arrays(&program.0, contents);
        for (mode, result) in results {
            assert_eq!(result, expected, "{mode}");
        }
    });
}

/// The program by loops over plain arrays.
fn on_arrays(steps: &[Step], mut all: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    let place = |[_, row, column]: [usize; 3], i: usize, j: usize| {
        (TILE * row + i) * SIDE + TILE * column + j
    };
    for step in steps {
        for i in 0..TILE {
            for j in 0..TILE {
                match *step {
                    Step::Advance { target, number } => {
                        let x = &mut all[target[0]][place(target, i, j)];
                        *x = (3.0 * *x + number) % 1000.0;
                    }
                    Step::AddTransposed { source, target } => {
                        let x = all[source[0]][place(source, j, i)];
                        all[target[0]][place(target, i, j)] += x;
                    }
                    Step::Sums { source, target } => {
                        let row = (0..TILE).map(|k| all[source[0]][place(source, j, k)]);
                        let sum = row.fold(-0.0, |sum, x| sum + x);
                        // A tile is no source of itself, so that it may be written at once.
                        all[target[0]][place(target, i, j)] = sum;
                    }
                    Step::Reduce { target, number } => {
                        all[target[0]][place(target, i, j)] += number;
                    }
                }
            }
        }
    }
    all
}
