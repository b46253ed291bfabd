//! What a plan may do beyond moving bytes as they are.

use syncline_deps::Dtype;

use crate::hash::Hasher64;

/// Choices that change a plan; every PE must make the same ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlanOptions {
    /// Changes of element type that are wanted; any other is refused.
    pub conversions: Conversions,
}

impl PlanOptions {
    /// Declares that tensors may change from `from` to `to` on the way.
    ///
    /// ```
    /// use syncline_deps::Dtype;
    /// use syncline_reshard::PlanOptions;
    ///
    /// let options = PlanOptions::default().convert(Dtype::F32, Dtype::BF16);
    /// assert!(options.conversions.allows(Dtype::F32, Dtype::BF16));
    /// assert!(!options.conversions.allows(Dtype::BF16, Dtype::F32));
    /// ```
    pub fn convert(mut self, from: Dtype, to: Dtype) -> Self {
        self.conversions.0.push((from, to));
        self
    }

    pub(crate) fn fingerprint(&self, hasher: &mut Hasher64) {
        let mut pairs = self.conversions.0.clone();
        pairs.sort();
        pairs.dedup();
        hasher.word(pairs.len() as u64);
        for (from, to) in pairs {
            hasher.text(from.name());
            hasher.text(to.name());
        }
    }
}

/// The declared changes of element type, as `(from, to)`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conversions(pub Vec<(Dtype, Dtype)>);

impl Conversions {
    /// True if elements may change from `from` to `to`; staying the same always may.
    pub fn allows(&self, from: Dtype, to: Dtype) -> bool {
        from == to || self.0.contains(&(from, to))
    }
}
