//! Costs: how long kernels run, by what was measured.

use std::collections::BTreeMap;

/// Moving averages of measured durations, by kernel, device and size class.
///
/// A size class is a power of two of the bytes that a task touches. A class that was never measured
/// is estimated from the nearest one that was, in proportion to its size.
///
/// ```
/// use syncline_plan::CostModel;
///
/// let mut costs = CostModel::default();
/// costs.observe("gemm", "cpu:0", 1 << 20, 8_000);
/// assert_eq!(costs.estimate("gemm", "cpu:0", 1 << 20), Some(8_000));
/// assert_eq!(costs.estimate("gemm", "cpu:0", 1 << 21), Some(16_000));
/// assert_eq!(costs.estimate("gemm", "cpu:1", 1 << 20), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CostModel {
    kernels: BTreeMap<(String, String), BTreeMap<u8, Average>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Average {
    ns: f64,
    count: u32,
}

impl CostModel {
    /// The weight of the newest measurement once there are enough of them.
    const NEWEST: f64 = 0.125;

    /// Takes account of a run of `kernel` on `device` over `bytes` bytes of arguments.
    pub fn observe(&mut self, kernel: &str, device: &str, bytes: u64, ns: u64) {
        let classes = self.kernels.entry((kernel.to_owned(), device.to_owned())).or_default();
        let average = classes.entry(size_class(bytes)).or_insert(Average { ns: 0.0, count: 0 });
        average.count = average.count.saturating_add(1);
        // The plain mean at first, so that the first measurement does not weigh for ever.
        let weight = (1.0 / f64::from(average.count)).max(Self::NEWEST);
        average.ns += (ns as f64 - average.ns) * weight;
    }

    /// How long `kernel` is thought to run on `device` over `bytes` bytes; `None` if it was never
    /// measured there.
    pub fn estimate(&self, kernel: &str, device: &str, bytes: u64) -> Option<u64> {
        // A borrowed pair cannot index a map of owned ones; this is called once a kernel and
        // class, not once a task.
        let classes = self.kernels.get(&(kernel.to_owned(), device.to_owned()))?;
        let class = size_class(bytes);
        let (nearest, average) = classes.iter().min_by_key(|(known, _)| known.abs_diff(class))?;
        let scale = 2f64.powi(i32::from(class) - i32::from(*nearest));
        Some((average.ns * scale) as u64)
    }

    /// Whether nothing was ever measured.
    pub fn is_empty(&self) -> bool {
        self.kernels.is_empty()
    }
}

/// The power of two that `bytes` is nearest below; zero bytes share the class of one.
pub(crate) fn size_class(bytes: u64) -> u8 {
    bytes.max(1).ilog2() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_follow_what_is_measured() {
        let mut costs = CostModel::default();
        for _ in 0..100 {
            costs.observe("k", "cpu", 64, 1_000);
        }
        for _ in 0..100 {
            costs.observe("k", "cpu", 64, 2_000);
        }
        let now = costs.estimate("k", "cpu", 64).unwrap();
        assert!((1_990..=2_000).contains(&now), "{now}");
    }

    #[test]
    fn one_outlier_does_not_weigh_for_ever() {
        let mut costs = CostModel::default();
        costs.observe("k", "cpu", 64, 1_000_000);
        for _ in 0..200 {
            costs.observe("k", "cpu", 64, 1_000);
        }
        assert!(costs.estimate("k", "cpu", 64).unwrap() < 1_100);
    }
}
