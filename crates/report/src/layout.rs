//! Where each op of the graph is drawn: rows from top to bottom, every edge pointing down.
//!
//! Rows are the longest-path layers; one that is far wider than the graph is deep is folded into
//! several. Within a row, ops are ordered by the mean place of their neighbours, in a few sweeps
//! down and up, and put as near to it as their widths allow. Everything is `n log n`.

use crate::RunRecord;
use crate::graph::Graph;
use crate::reduce::Redundant;

const SWEEPS: usize = 6;
const ROW_MIN: usize = 24;

/// The place of every op, by position.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GraphLayout {
    /// Centre from left to right, in widths of a node.
    pub x: Vec<f32>,
    /// Row from the top.
    pub row: Vec<u32>,
    /// Number of rows.
    pub rows: u32,
    /// Number of ops on the longest chain.
    pub depth: u32,
}

impl GraphLayout {
    /// Places the ops of `run`, drawing only the edges that are not redundant.
    pub fn of(run: &RunRecord, graph: &Graph, redundant: &Redundant) -> Self {
        let neighbours = Neighbours { run, graph, redundant };
        let layer = layers(&neighbours);
        let depth = layer.iter().max().map_or(0, |&last| last + 1);
        let mut rows: Vec<Vec<u32>> = vec![Vec::new(); depth as usize];
        for &op in graph.order() {
            rows[layer[op as usize] as usize].push(op);
        }
        let mut x = vec![0.0; run.ops.len()];
        for row in &rows {
            place(row, &mut x, |_, position| position as f64);
        }
        let width_max = ROW_MIN.max((run.ops.len() as f64 * 4.0).sqrt() as usize);
        rows = rows.into_iter().flat_map(|row| fold(row, width_max)).collect();
        for row in &mut rows {
            place(row, &mut x, |_, position| position as f64);
        }
        for sweep in 0..SWEEPS {
            let down = sweep % 2 == 0;
            let count = rows.len();
            for position in 0..count {
                let row = &mut rows[if down { position } else { count - 1 - position }];
                arrange(row, &mut x, |op, x| neighbours.mean(op, down, x));
            }
        }
        // What nothing waits for follows what it waits for, wherever the last sweep has put that.
        for row in &mut rows {
            arrange(row, &mut x, |op, x| match neighbours.below(op).next() {
                Some(_) => x[op as usize],
                None => neighbours.mean(op, true, x),
            });
        }
        let mut row_of = vec![0; run.ops.len()];
        for (number, row) in (0u32..).zip(&rows) {
            row.iter().for_each(|&op| row_of[op as usize] = number);
        }
        Self {
            x: x.into_iter().map(|x| x as f32).collect(),
            row: row_of,
            rows: rows.len() as u32,
            depth,
        }
    }
}

struct Neighbours<'a> {
    run: &'a RunRecord,
    graph: &'a Graph,
    redundant: &'a Redundant,
}

impl Neighbours<'_> {
    fn above(&self, op: u32) -> impl Iterator<Item = u32> {
        let edges = self.graph.fanin(op).iter();
        edges.filter(|&&edge| self.drawn(edge)).map(|&edge| self.run.edges[edge as usize].pred)
    }

    fn below(&self, op: u32) -> impl Iterator<Item = u32> {
        let edges = self.graph.fanout(op).iter();
        edges.filter(|&&edge| self.drawn(edge)).map(|&edge| self.run.edges[edge as usize].succ)
    }

    fn drawn(&self, edge: u32) -> bool {
        !self.redundant.edges[edge as usize]
    }

    /// The mean place of the neighbours on one side, or else of those on the other.
    fn mean(&self, op: u32, down: bool, x: &[f64]) -> f64 {
        let [above, below] = [mean(self.above(op), x), mean(self.below(op), x)];
        let (first, second) = if down { (above, below) } else { (below, above) };
        first.or(second).unwrap_or(x[op as usize])
    }
}

fn mean(ops: impl Iterator<Item = u32>, x: &[f64]) -> Option<f64> {
    let (sum, count) = ops.fold((0.0, 0u32), |(sum, count), op| (sum + x[op as usize], count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

/// The longest chain before each op; one that waits for nothing is put right above its first user.
fn layers(neighbours: &Neighbours) -> Vec<u32> {
    let order = neighbours.graph.order();
    let mut layer = vec![0u32; order.len()];
    for &op in order {
        layer[op as usize] =
            neighbours.above(op).map(|pred| layer[pred as usize] + 1).max().unwrap_or(0);
    }
    for &op in order.iter().filter(|&&op| neighbours.above(op).next().is_none()) {
        let first = neighbours.below(op).map(|succ| layer[succ as usize]).min();
        layer[op as usize] = first.map_or(0, |first| first - 1);
    }
    layer
}

/// Deals a row that is too wide out over several, so that each keeps the whole range from left to
/// right.
fn fold(row: Vec<u32>, width_max: usize) -> Vec<Vec<u32>> {
    let parts = row.len().div_ceil(width_max).max(1);
    (0..parts).map(|part| row.iter().copied().skip(part).step_by(parts).collect()).collect()
}

/// Sorts `row` by `wish`, and places it as near to the wishes as neighbours at a distance of one
/// allow.
fn arrange(row: &mut [u32], x: &mut [f64], wish: impl Fn(u32, &[f64]) -> f64) {
    let mut wishes: Vec<(f64, u32)> = row.iter().map(|&op| (wish(op, x), op)).collect();
    wishes.sort_by(|a, b| a.0.total_cmp(&b.0).then(x[a.1 as usize].total_cmp(&x[b.1 as usize])));
    for (slot, (_, op)) in row.iter_mut().zip(&wishes) {
        *slot = *op;
    }
    place(row, x, |_, position| wishes[position].0);
}

/// Least squares under a least distance of one: after taking `position` off each wish, the best
/// places are the nearest non-decreasing sequence, which pooling neighbours that are out of order
/// finds in linear time.
fn place(row: &[u32], x: &mut [f64], wish: impl Fn(u32, usize) -> f64) {
    let mut pools: Vec<(f64, usize)> = Vec::with_capacity(row.len());
    for (position, &op) in row.iter().enumerate() {
        let mut pool = (wish(op, position) - position as f64, 1);
        while let Some(&(sum, count)) = pools.last() {
            if sum / count as f64 <= pool.0 / pool.1 as f64 {
                break;
            }
            pools.pop();
            pool = (pool.0 + sum, pool.1 + count);
        }
        pools.push(pool);
    }
    let mut position = 0;
    for (sum, count) in pools {
        for _ in 0..count {
            x[row[position] as usize] = sum / count as f64 + position as f64;
            position += 1;
        }
    }
}
