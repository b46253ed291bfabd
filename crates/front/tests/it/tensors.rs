use syncline_front::{Serial, Submit, Tensor};
use syncline_testing::{Rng, for_seeds};

/// A tensor by the places of its elements in a flat array: what a view must mean.
#[derive(Clone)]
struct Places {
    shape: Vec<usize>,
    at: Vec<usize>,
}

impl Places {
    fn all(shape: &[usize]) -> Self {
        Self { shape: shape.to_vec(), at: (0..shape.iter().product()).collect() }
    }

    /// The element at `index`, counted in order.
    fn number(&self, index: &[usize]) -> usize {
        index.iter().zip(&self.shape).fold(0, |number, (at, size)| number * size + at)
    }

    /// The places that `source` gives for each index of `shape`.
    fn by_indices(&self, shape: &[usize], source: impl Fn(&[usize]) -> Vec<usize>) -> Self {
        let mut at = Vec::new();
        for number in 0..shape.iter().product::<usize>() {
            let (mut rest, mut index) = (number, vec![0; shape.len()]);
            for dim in (0..shape.len()).rev() {
                (index[dim], rest) = (rest % shape[dim], rest / shape[dim]);
            }
            at.push(self.at[self.number(&source(&index))]);
        }
        Self { shape: shape.to_vec(), at }
    }
}

/// A random view of a tensor, and the places that it means.
fn view(rng: &mut Rng, whole: &Tensor<i64>) -> (Tensor<i64>, Places) {
    let (mut tensor, mut places) = (whole.clone(), Places::all(&whole.shape()));
    for _ in 0..rng.range(0..5) {
        let (shape, rank) = (places.shape.clone(), places.shape.len());
        if rank == 0 {
            break;
        }
        let dim = rng.below(rank);
        match rng.range(0..4) {
            0 => {
                let start = rng.range(0..shape[dim] as u64 + 1) as usize;
                let end = rng.range(start as u64..shape[dim] as u64 + 1) as usize;
                tensor = tensor.slice(dim, start..end).expect("inside");
                let mut to = shape.clone();
                to[dim] = end - start;
                places = places.by_indices(&to, |index| {
                    let mut index = index.to_vec();
                    index[dim] += start;
                    index
                });
            }
            1 => {
                let other = rng.below(rank);
                tensor = tensor.transpose(dim, other).expect("there are such dimensions");
                let mut to = shape.clone();
                to.swap(dim, other);
                places = places.by_indices(&to, |index| {
                    let mut index = index.to_vec();
                    index.swap(dim, other);
                    index
                });
            }
            2 if shape[dim] > 0 && rank > 1 => {
                let at = rng.below(shape[dim]);
                tensor = tensor.index(dim, at).expect("inside");
                let mut to = shape.clone();
                to.remove(dim);
                places = places.by_indices(&to, |index| {
                    let mut index = index.to_vec();
                    index.insert(dim, at);
                    index
                });
            }
            _ => {
                let count = shape.iter().product::<usize>();
                let to = if rng.one_in(2) { vec![count] } else { vec![1, count, 1] };
                if let Ok(reshaped) = tensor.reshape(&to) {
                    (tensor, places.shape) = (reshaped, to);
                }
            }
        }
    }
    (tensor, places)
}

#[test]
fn views_are_read_and_written_where_their_elements_lie() {
    for_seeds("views_are_read_and_written_where_their_elements_lie", 400, |rng| {
        let rank = rng.range(1..5) as usize;
        let shape: Vec<usize> = (0..rank).map(|_| rng.range(1..5) as usize).collect();
        let count = shape.iter().product::<usize>();
        let mut expected: Vec<i64> = (0..count as i64).collect();
        let whole = Tensor::from_vec(&shape, expected.clone()).expect("as many");
        let (tensor, places) = view(rng, &whole);
        assert_eq!(tensor.shape(), places.shape);
        let wanted: Vec<i64> = places.at.iter().map(|&at| expected[at]).collect();
        assert_eq!(tensor.to_vec().expect("fits"), wanted);

        let (seen, shape) = (wanted.clone(), places.shape.clone());
        let by_rows = shape.last().is_none_or(|&width| width <= 1)
            || tensor.view().strides().last().is_some_and(|&stride| stride == 8);
        Serial
            .task("read", tensor.read())
            .run(move |x| {
                assert_eq!(x.to_vec(), seen);
                assert!(x.as_slice().is_none_or(|slice| slice == seen));
                if let [rows, columns] = shape[..] {
                    for (row, seen) in seen.chunks(columns.max(1)).enumerate() {
                        for (column, seen) in seen.iter().enumerate() {
                            assert_eq!(x[[row, column]], *seen);
                        }
                        if by_rows {
                            assert_eq!(x.row(row), seen);
                        }
                    }
                    assert!(x.row_count() == rows || columns == 0 || rows == 0);
                }
            })
            .expect("the body agrees");

        let factor = rng.range(2..9) as i64;
        let two = places.shape.len() == 2 && by_rows;
        Serial
            .task("write", tensor.update())
            .run(move |mut x| match two {
                true => x.rows_mut().for_each(|row| row.iter_mut().for_each(|x| *x *= factor)),
                false => x.apply(|x| x * factor),
            })
            .expect("runs");
        places.at.iter().for_each(|&at| expected[at] *= factor);
        assert_eq!(whole.to_vec().expect("fits"), expected);
    });
}

#[test]
fn tiles_of_one_matrix_are_arguments_of_one_task_and_overlapping_ones_are_not() {
    let matrix = Tensor::from_vec([4, 4], (0..16).collect::<Vec<i32>>()).expect("as many");
    let tiles = matrix.tiles([2, 2]).expect("two dimensions");
    // Their rows interleave in memory, and share no byte.
    Serial
        .task("add", (tiles[[0, 0]].read(), tiles[[0, 1]].update()))
        .run(|(from, mut to)| {
            for row in 0..2 {
                to.row_mut(row).iter_mut().zip(from.row(row)).for_each(|(x, y)| *x += y);
            }
        })
        .expect("no byte is in both");
    assert_eq!(tiles[[0, 1]].to_vec().expect("fits"), [2, 4, 10, 12]);
    let (left, right) = (matrix.slice(1, 0..3).expect("in"), matrix.slice(1, 2..4).expect("in"));
    let both = Serial.task("both", (left.read(), right.update())).run(|_| ());
    assert!(both.expect_err("column 2").to_string().contains("overlaps argument 0"));
    Serial.task("both", (left.read(), right.read())).run(|_| ()).expect("both only read");
}
