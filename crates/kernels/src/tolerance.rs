//! Tolerances: how far the results of a kernel on two backends may differ.

use std::fmt;

use syncline_tensor::Dtype;

/// How far the results of a kernel on two backends, or of a backend and exact arithmetic, may
/// differ. Integers agree bit for bit, whatever is said here about floats.
///
/// Epsilon is the distance from 1 to the next number of the coarsest float among the arguments'
/// dtypes ([`Tolerance::epsilon`]), and counts relative to the largest magnitude that an element is
/// computed from. Numbers so small that they are subnormal may be zero on devices that have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tolerance {
    /// Bit for bit.
    Exact,
    /// So many epsilons: products and sums may be fused into one rounding, divisions and roots be
    /// off by a little, and every device has its own exponential.
    Epsilons(u32),
    /// So many epsilons for each of the terms that are summed up: backends add in different orders.
    EpsilonsPerTerm(u32),
}

impl Tolerance {
    /// The distance from 1 to the next number of `dtype`; zero for integers.
    pub fn epsilon(dtype: Dtype) -> f64 {
        match dtype {
            Dtype::F64 => f64::EPSILON,
            Dtype::F32 => f32::EPSILON.into(),
            Dtype::F16 => half::f16::EPSILON.to_f64(),
            Dtype::BF16 => half::bf16::EPSILON.to_f64(),
            _ => 0.0,
        }
    }

    /// The bound for elements computed from numbers up to `magnitude`, as sums of `terms` terms,
    /// with `dtypes` the element types of the arguments.
    ///
    /// ```
    /// use syncline_tensor::Dtype;
    /// use syncline_kernels::Tolerance;
    ///
    /// assert_eq!(Tolerance::Exact.bound([Dtype::F32], 8.0, 100), 0.0);
    /// let bound = Tolerance::EpsilonsPerTerm(2).bound([Dtype::F32], 8.0, 100);
    /// assert_eq!(bound, 200.0 * 8.0 * f64::from(f32::EPSILON));
    /// ```
    pub fn bound(self, dtypes: impl IntoIterator<Item = Dtype>, magnitude: f64, terms: u64) -> f64 {
        let epsilon = dtypes.into_iter().map(Self::epsilon).fold(0.0, f64::max);
        magnitude
            * epsilon
            * match self {
                Tolerance::Exact => 0.0,
                Tolerance::Epsilons(count) => count.into(),
                Tolerance::EpsilonsPerTerm(count) => f64::from(count) * terms.max(1) as f64,
            }
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tolerance::Exact => f.write_str("exact"),
            Tolerance::Epsilons(count) => write!(f, "{count} epsilon"),
            Tolerance::EpsilonsPerTerm(count) => write!(f, "{count} epsilon per term"),
        }
    }
}
