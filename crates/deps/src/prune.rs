//! Pruning: leaving out edges that recent other edges imply.

/// Which of the last [`ReachWindow::TASKS`] tasks each of them comes after.
///
/// One word a task, bit `d - 1` for the task `d` before it, so that both questions, what a new task
/// comes after and which of its edges say nothing new, are a shift and an `or` for each edge. Edges
/// that reach further back are kept: plans prune exactly.
///
/// The map already leaves out edges that a newer access to the same bytes stands for. On tiled
/// Cholesky and halo stencils nothing is left for the window to remove; of the edges of random
/// tasks over 16 tiles it removes half, of random slices two in three. `bench/README.md` compares
/// the edges that are kept with the transitive reduction.
#[derive(Debug)]
pub(crate) struct ReachWindow {
    ancestors: [u64; Self::TASKS as usize],
}

impl Default for ReachWindow {
    fn default() -> Self {
        Self { ancestors: [0; Self::TASKS as usize] }
    }
}

impl ReachWindow {
    /// Tasks in the window.
    pub(crate) const TASKS: u64 = 64;

    /// Records the predecessors of task number `task`; the result says which of them others imply.
    #[inline]
    pub(crate) fn add(&mut self, task: u64, preds: impl Iterator<Item = u64>) -> Implied {
        let (mut direct, mut implied) = (0, 0);
        for pred in preds {
            let distance = task - pred;
            if distance <= Self::TASKS {
                direct |= 1 << (distance - 1);
                let theirs = self.ancestors[(pred % Self::TASKS) as usize];
                implied |= theirs.checked_shl(distance as u32).unwrap_or(0);
            }
        }
        self.ancestors[(task % Self::TASKS) as usize] = direct | implied;
        Implied { task, implied }
    }
}

/// The tasks that a task comes after by way of others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Implied {
    task: u64,
    implied: u64,
}

impl Implied {
    /// Returns `true` if an edge to `pred` says nothing new.
    #[inline]
    pub(crate) fn contains(self, pred: u64) -> bool {
        let distance = self.task - pred;
        distance <= ReachWindow::TASKS && self.implied >> (distance - 1) & 1 != 0
    }

    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.implied == 0
    }
}

#[cfg(test)]
mod tests {
    use syncline_testing::for_seeds;

    use super::*;

    #[test]
    fn within_the_window_exactly_the_implied_edges_are_found() {
        for_seeds("within_the_window_exactly_the_implied_edges_are_found", 50, |rng| {
            let count = 300;
            let mut window = ReachWindow::default();
            let mut reach = vec![vec![false; count]; count];
            for task in 0..count {
                let preds: Vec<usize> =
                    (0..task).filter(|pred| rng.one_in(1 + (task - pred) as u64)).collect();
                let implied = window.add(task as u64, preds.iter().map(|&pred| pred as u64));
                for &pred in &preds {
                    let through = |other: usize| {
                        preds.contains(&other) && task - other <= 64 && reach[other][pred]
                    };
                    let truly = (pred + 1..task).any(through);
                    let told = implied.contains(pred as u64);
                    assert!(!told || truly, "{pred} -> {task} is needed");
                    assert!(told || !truly || task - pred > 64, "{pred} -> {task} is implied");
                }
                for &pred in &preds {
                    let theirs = reach[pred].clone();
                    reach[task][pred] = true;
                    for (ours, theirs) in reach[task].iter_mut().zip(theirs) {
                        *ours |= theirs;
                    }
                }
            }
        });
    }
}
