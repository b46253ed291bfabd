//! What a plan may do beyond moving bytes as they are.

use syncline_copy::convert::is_supported;
use syncline_tensor::Dtype;

use crate::hash::Fingerprint;

/// Choices that change a plan; every PE must make the same ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlanOptions {
    /// Changes of element type that are wanted; any other is refused.
    pub conversions: Conversions,
    /// Tensors that are in blocks with scales, on whichever side they have eight bits.
    pub block_scales: Vec<BlockScales>,
}

impl PlanOptions {
    /// Declares that tensors may change from `from` to `to` on the way.
    ///
    /// ```
    /// use syncline_tensor::Dtype;
    /// use syncline_layout::PlanOptions;
    ///
    /// let options = PlanOptions::default().convert(Dtype::F32, Dtype::BF16);
    /// assert!(options.conversions.allows(Dtype::F32, Dtype::BF16));
    /// assert!(!options.conversions.allows(Dtype::BF16, Dtype::F32));
    /// ```
    pub fn convert(mut self, from: Dtype, to: Dtype) -> Self {
        self.conversions.0.push((from, to));
        self
    }

    /// Declares every change of element type that can be done.
    pub fn convert_all(self) -> Self {
        let pairs = Dtype::ALL.into_iter().flat_map(|from| Dtype::ALL.map(|to| (from, to)));
        let pairs = pairs.filter(|&(from, to)| from != to && is_supported(from, to));
        pairs.fold(self, |options, (from, to)| options.convert(from, to))
    }

    /// Declares that tensors whose names match `pattern` are MXFP8 where they are `f8_e4m3` or
    /// `f8_e5m2`: the scales of their blocks ([`mx`](syncline_copy::convert::mx)) are in the tensor
    /// whose name has `suffix` appended.
    ///
    /// From a wide format to eight bits both tensors come from the one that the source has; from
    /// eight bits to a wide format both are needed and one is made. Where both sides have eight
    /// bits, two tensors move as they are. The change of element type has to be declared too, by
    /// [`convert`](Self::convert).
    ///
    /// ```
    /// use syncline_tensor::Dtype;
    /// use syncline_layout::PlanOptions;
    ///
    /// let options = PlanOptions::default()
    ///     .convert(Dtype::BF16, Dtype::F8E4M3)
    ///     .block_scales("**.weight", "_scale");
    /// assert_eq!(options.block_scales[0].suffix, "_scale");
    /// ```
    pub fn block_scales(mut self, pattern: &str, suffix: &str) -> Self {
        let (pattern, suffix) = (pattern.to_owned(), suffix.to_owned());
        self.block_scales.push(BlockScales { pattern, suffix });
        self
    }

    pub(crate) fn fingerprint(&self, hasher: &mut Fingerprint) {
        let mut pairs = self.conversions.0.clone();
        pairs.sort();
        pairs.dedup();
        hasher.word(pairs.len() as u64);
        for (from, to) in pairs {
            hasher.text(from.name());
            hasher.text(to.name());
        }
        for BlockScales { pattern, suffix } in &self.block_scales {
            hasher.text(pattern);
            hasher.text(suffix);
        }
    }
}

/// Tensors in blocks, and where their scales are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockScales {
    /// Which tensors: a pattern as in mesh rules.
    pub pattern: String,
    /// What the name of a tensor's scales has after the tensor's own.
    pub suffix: String,
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
