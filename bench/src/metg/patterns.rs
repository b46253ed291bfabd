//! The patterns of Task Bench: on whom task `i` of a step depends in the step before.

/// A pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    Trivial,
    NoComm,
    Stencil1d,
    Fft,
    Tree,
    RandomNearest,
    Spread,
    AllToAll,
}

impl Pattern {
    /// All of them.
    pub(super) const ALL: [Pattern; 8] = [
        Pattern::Trivial,
        Pattern::NoComm,
        Pattern::Stencil1d,
        Pattern::Fft,
        Pattern::Tree,
        Pattern::RandomNearest,
        Pattern::Spread,
        Pattern::AllToAll,
    ];

    /// As Task Bench calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Pattern::Trivial => "trivial",
            Pattern::NoComm => "no_comm",
            Pattern::Stencil1d => "stencil_1d",
            Pattern::Fft => "fft",
            Pattern::Tree => "tree",
            Pattern::RandomNearest => "random_nearest",
            Pattern::Spread => "spread",
            Pattern::AllToAll => "all_to_all",
        }
    }

    /// The edges of `steps` steps of `width` tasks, numbered step by step.
    pub(super) fn edges(self, width: u32, steps: u32) -> Vec<(u32, u32)> {
        let mut edges = Vec::new();
        for step in 1..steps {
            for column in 0..width {
                for before in 0..width {
                    if self.depends(width, step, column, before) {
                        edges.push(((step - 1) * width + before, step * width + column));
                    }
                }
            }
        }
        edges
    }

    fn depends(self, width: u32, step: u32, column: u32, before: u32) -> bool {
        match self {
            Pattern::Trivial => false,
            Pattern::NoComm => column == before,
            Pattern::Stencil1d => column.abs_diff(before) <= 1,
            Pattern::Fft => {
                let levels = width.next_power_of_two().ilog2().max(1);
                column == before || column ^ before == 1 << (step % levels)
            }
            Pattern::Tree => before == column / 2,
            Pattern::RandomNearest => {
                // Any function of the three with scattered values, the same for every system.
                let word = (step * 31 + column * 17 + before * 7).wrapping_mul(0x9e37_79b9);
                column == before || (column.abs_diff(before) <= 5 && word >> 31 == 1)
            }
            Pattern::Spread => before == (column + step) % width,
            Pattern::AllToAll => true,
        }
    }
}
