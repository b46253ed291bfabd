//! Tests that are driven by seeds, and say which one failed.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::Rng;

/// Calls `check` with generators of the seeds `0..count`.
///
/// When it panics, the seed and the way to run it alone are printed. `SYNCLINE_SEED=n` runs one
/// seed, `SYNCLINE_SEEDS=n` that many.
pub fn for_seeds(test: &str, count: u64, mut check: impl FnMut(&mut Rng)) {
    let variable =
        |name| std::env::var(name).ok().and_then(|text: String| text.parse::<u64>().ok());
    let seeds = match (variable("SYNCLINE_SEED"), variable("SYNCLINE_SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, Some(count)) => 0..count,
        (None, None) => 0..count,
    };
    for seed in seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(&mut Rng::new(seed)))) {
            eprintln!(
                "{test} failed with seed {seed}; to run it alone: SYNCLINE_SEED={seed} cargo test {test}"
            );
            resume_unwind(panic);
        }
    }
}
