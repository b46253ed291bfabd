//! Outliers: ops that took far longer than others that do the same.
//!
//! A mean, a longest time and a critical path all follow a single op that the system has
//! interrupted. The analyses that advise therefore count an outlier as the median of its like, and
//! name it separately.

use std::collections::HashMap;

use crate::{RunOp, RunOpKind, RunRecord};

/// An outlier takes this many times the median at least,
const FACTOR: u64 = 8;
/// and this many times the third quartile, so that a mix of two sizes has none.
const QUARTILE_FACTOR: u64 = 4;
/// Fewer ops than this have no typical time.
const ALIKE_MIN: usize = 5;
/// More than one op in so many is another kind of work, not an outlier.
const RARITY: usize = 20;
/// What costs less than this share of the run is not worth a word.
const SHARE_MIN: u64 = 1000;

/// What an outlier probably comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutlierCause {
    /// The first op of its name: code, caches and pages are cold.
    ColdStart,
    /// Nothing in the run explains it: another process, or the system, had the processor.
    Preempted,
}

impl OutlierCause {
    /// What a reader is told.
    pub const fn words(self) -> &'static str {
        match self {
            OutlierCause::ColdStart => "the first of its name, likely a cold start",
            OutlierCause::Preempted => "likely preempted",
        }
    }
}

/// An op that took far longer than others of its name, or of its name and size for copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlier {
    /// Position of the op.
    pub op: u32,
    /// How long it took.
    pub duration_ns: u64,
    /// The median of its like.
    pub median_ns: u64,
    /// What it probably comes from.
    pub cause: OutlierCause,
}

impl Outlier {
    /// How much longer than the median it took.
    pub fn excess_ns(&self) -> u64 {
        self.duration_ns - self.median_ns
    }
}

/// Median and 95th percentile of `durations` by nearest rank, zero if there are none.
pub(crate) fn median_and_p95(durations: &mut [u64]) -> [u64; 2] {
    durations.sort_unstable();
    [50, 95].map(|percent| nearest_rank(durations, percent))
}

/// The smallest element with `percent` of all at or below it.
fn nearest_rank(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

/// Ops that do the same: copies move as many bytes, too.
type Like<'a> = (&'a str, RunOpKind, u64);

fn like(op: &RunOp) -> Like<'_> {
    let bytes = if op.kind == RunOpKind::Copy { op.bytes } else { 0 };
    (&op.name, op.kind, bytes)
}

/// Every outlier, the one that costs most first.
pub(crate) fn outliers(run: &RunRecord) -> Vec<Outlier> {
    let (from_ns, until_ns) = run.span_ns().unwrap_or((0, 0));
    let mut alike: HashMap<Like<'_>, Vec<(u64, u32)>> = HashMap::new();
    let mut first: HashMap<&str, (u64, u32)> = HashMap::new();
    for (position, op) in (0u32..).zip(&run.ops) {
        let Some(timing) = op.timing else { continue };
        alike.entry(like(op)).or_default().push((timing.end_ns - timing.start_ns, position));
        let earliest = first.entry(&op.name).or_insert((timing.start_ns, position));
        *earliest = (*earliest).min((timing.start_ns, position));
    }
    let mut found = Vec::new();
    for ops in alike.values_mut().filter(|ops| ops.len() >= ALIKE_MIN) {
        ops.sort_unstable();
        let durations: Vec<u64> = ops.iter().map(|&(duration_ns, _)| duration_ns).collect();
        let [median_ns, quartile_ns] = [50, 75].map(|percent| nearest_rank(&durations, percent));
        let usual_ns = (FACTOR.saturating_mul(median_ns.max(1)))
            .max(QUARTILE_FACTOR.saturating_mul(quartile_ns));
        let worth_ns = (until_ns - from_ns) / SHARE_MIN;
        let unusual = ops.iter().rev().take_while(|&&(duration_ns, _)| duration_ns > usual_ns);
        if unusual.clone().count() > (ops.len() / RARITY).max(1) {
            continue;
        }
        let worthwhile = unusual.filter(|&&(duration_ns, _)| duration_ns - median_ns >= worth_ns);
        found.extend(worthwhile.map(|&(duration_ns, op)| Outlier {
            op,
            duration_ns,
            median_ns,
            cause: match first[&*run.ops[op as usize].name].1 == op {
                true => OutlierCause::ColdStart,
                false => OutlierCause::Preempted,
            },
        }));
    }
    found.sort_by_key(|one| (std::cmp::Reverse(one.excess_ns()), one.op));
    found
}
