//! Which tensors are in blocks with scales, and what the scales come from or are used for.
//!
//! Declarations are about names, and a tensor has several where others are tied to it: it is in
//! blocks if any of them was declared, and its scales are under any of those names. What counts are
//! the names on the side that has eight bits.

use syncline_tensor::Dtype;

use super::recoding::{check_scale_shape, in_blocks, refused};
use super::{BlockScales, PlanTensor, Recoding};
use crate::error::LayoutError;
use crate::layout::{Layout, NamePattern, TensorLayout};
use syncline_copy::convert::mx;

/// The declared patterns, each with the suffix of the scales.
pub(super) struct Blocks {
    rules: Vec<(NamePattern, String)>,
}

impl Blocks {
    pub(super) fn new(declared: &[BlockScales]) -> Result<Self, LayoutError> {
        let rule = |BlockScales { pattern, suffix }: &BlockScales| {
            if suffix.is_empty() {
                let cause = "without a suffix, tensors would be their own scales: give one such as `_scale`";
                let (rule, cause) = (pattern.clone(), cause.to_owned());
                return Err(LayoutError::BadRule { rule, cause });
            }
            Ok((NamePattern::new(pattern)?, suffix.clone()))
        };
        Ok(Self { rules: declared.iter().map(rule).collect::<Result<_, _>>()? })
    }

    /// What the names of scales of `name` have appended, if it was declared to have them: the first
    /// that matches counts.
    fn suffix_of(&self, name: &str) -> Option<&str> {
        let rule = self.rules.iter().find(|(pattern, _)| pattern.matches(name))?;
        Some(&rule.1)
    }

    /// The names that the scales of `tensor` may have; none if it was not declared to have any.
    fn scales_of(&self, tensor: &TensorLayout) -> Vec<String> {
        let scales = |name: &str| Some(format!("{name}{}", self.suffix_of(name)?));
        tensor.names().filter_map(scales).collect()
    }

    /// The name whose scales `name` has, if it was declared to.
    fn elements_of<'n>(&self, name: &'n str) -> Option<&'n str> {
        self.rules.iter().find_map(|(_, suffix)| {
            let elements = name.strip_suffix(suffix.as_str())?;
            (self.suffix_of(elements) == Some(suffix)).then_some(elements)
        })
    }

    /// How the destination's tensor `index` comes about where blocks are concerned; `None` where
    /// they are not.
    pub(super) fn pair(
        &self,
        from: &Layout,
        to: &Layout,
        index: u32,
    ) -> Result<Option<PlanTensor>, LayoutError> {
        if self.rules.is_empty() {
            return Ok(None);
        }
        let target = &to.tensors()[index as usize];
        let Some(at) = from.counterpart_of(target) else {
            return self.pair_scales(from, to, index);
        };
        let source = &from.tensors()[at];
        let recoding = if mx::is_supported(source.dtype(), target.dtype()) {
            self.quantised(from, to, target)?
        } else if mx::is_supported(target.dtype(), source.dtype()) {
            self.restored(from, at, target)?
        } else {
            None
        };
        Ok(recoding.map(|recoding| PlanTensor {
            name: target.name().to_owned(),
            from: at as u32,
            to: index,
            src_dtype: source.dtype(),
            dst_dtype: target.dtype(),
            recoding,
        }))
    }

    /// How `target` becomes blocks; `None` if it was not declared to have scales.
    fn quantised(
        &self,
        from: &Layout,
        to: &Layout,
        target: &TensorLayout,
    ) -> Result<Option<Recoding>, LayoutError> {
        let names = self.scales_of(target);
        if names.is_empty() {
            return Ok(None);
        }
        let mut found = names.iter().filter_map(|name| to.tensor(name)).peekable();
        if found.peek().is_none() {
            let cause = format!("the destination has no {} for its scales", any_of(&names));
            return Err(refused(target.name(), cause));
        }
        // Scales that were moved as they are would be those of other elements.
        if let Some(scales) = found.find(|scales| from.counterpart_of(scales).is_some()) {
            let cause = format!(
                "its scales `{}` are made on the way, but the source has a tensor of that name: remove it from the source layout",
                scales.name()
            );
            return Err(refused(target.name(), cause));
        }
        Ok(Some(Recoding::BlockElements))
    }

    /// How `target` is restored from the source's tensor `at`; `None` if that was not declared to
    /// have scales.
    fn restored(
        &self,
        from: &Layout,
        at: usize,
        target: &TensorLayout,
    ) -> Result<Option<Recoding>, LayoutError> {
        let names = self.scales_of(&from.tensors()[at]);
        if names.is_empty() {
            return Ok(None);
        }
        let Some(scales) = names.iter().find_map(|name| from.index_of(name)) else {
            let cause = format!("the source has no {} with its scales", any_of(&names));
            return Err(refused(target.name(), cause));
        };
        check_scales(from, at, scales)?;
        Ok(Some(Recoding::Restored { scales: scales as u32 }))
    }

    /// How the destination's tensor `index`, which the source does not have, is made as the scales
    /// of another; `None` if it was not declared to be.
    fn pair_scales(
        &self,
        from: &Layout,
        to: &Layout,
        index: u32,
    ) -> Result<Option<PlanTensor>, LayoutError> {
        let target = &to.tensors()[index as usize];
        let name = target.name();
        let mut found: Option<(&str, usize, Dtype)> = None;
        let mut unknown = None;
        for elements in target.names().filter_map(|name| self.elements_of(name)) {
            let known = to.tensor(elements).and_then(|quantised| {
                Some((elements, from.counterpart_of(quantised)?, quantised.dtype()))
            });
            let Some(known) = known else {
                unknown = unknown.or(Some(elements));
                continue;
            };
            match found {
                None => found = Some(known),
                Some((_, at, dtype)) if (at, dtype) == (known.1, known.2) => {}
                Some((other, ..)) => {
                    let cause = format!(
                        "it would have the scales of `{other}` and of `{elements}`, which differ: scales of unlike tensors must be tensors of their own"
                    );
                    return Err(refused(name, cause));
                }
            }
        }
        let Some((elements, at, blocked)) = found else {
            let no_elements = |elements| {
                let cause = format!("there is no `{elements}` that it could have the scales of");
                refused(name, cause)
            };
            return unknown.map_or(Ok(None), |elements| Err(no_elements(elements)));
        };
        let source = &from.tensors()[at];
        if !mx::is_supported(source.dtype(), blocked) || target.dtype() != Dtype::F8E8M0 {
            let cause = format!(
                "it is {} and would have the scales of `{elements}`, which goes from {} to {blocked}: scales are f8_e8m0, of f32, f16 or bf16 that becomes f8_e4m3 or f8_e5m2",
                target.dtype(),
                source.dtype(),
            );
            return Err(refused(name, cause));
        }
        check_scale_shape(name, source.shape(), target.shape())?;
        Ok(Some(PlanTensor {
            name: name.to_owned(),
            from: at as u32,
            to: index,
            src_dtype: source.dtype(),
            dst_dtype: target.dtype(),
            recoding: Recoding::BlockScales { elements: blocked },
        }))
    }

    /// Whether `tensor` of the source has the scales of one that the destination has restored.
    pub(super) fn is_used_up(&self, from: &Layout, to: &Layout, tensor: &TensorLayout) -> bool {
        let is_restored = |elements: &TensorLayout| {
            let target = to.counterpart_of(elements).map(|at| &to.tensors()[at]);
            target.is_some_and(|target| mx::is_supported(target.dtype(), elements.dtype()))
        };
        let elements = |name| from.tensor(self.elements_of(name)?);
        tensor.names().filter_map(elements).any(is_restored)
    }
}

/// Every PE that holds elements must hold exactly their scales, laid out alike: the sender needs
/// both.
fn check_scales(from: &Layout, at: usize, scales_at: usize) -> Result<(), LayoutError> {
    let (elements, scales) = (&from.tensors()[at], &from.tensors()[scales_at]);
    check_scale_shape(scales.name(), elements.shape(), scales.shape())?;
    let blocks = in_blocks(elements.name(), elements.placement())?;
    if scales.dtype() != Dtype::F8E8M0 || blocks.shards != scales.placement().shards {
        let cause = format!(
            "its scales `{}` do not lie as its blocks do: f8_e8m0, on the same PEs, in the same order",
            scales.name()
        );
        return Err(refused(elements.name(), cause));
    }
    Ok(())
}

fn any_of(names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(" or ")
}
