//! Rules of the mesh form, as written and as applied to one tensor on one PE.

use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

/// Blocks that a stride may stand for; a bound on what a typing error can cost.
const BLOCKS_MAX: u64 = 1 << 16;

/// A rule: which tensors, how they are sharded, and where they live.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct TensorRule {
    /// A pattern of names; the first rule that matches a tensor is the one that counts.
    #[serde(rename = "match")]
    pub pattern: String,
    /// Dimensions that are split; the rest is whole.
    #[serde(default)]
    pub shard: Vec<ShardRule>,
    /// The pp stage that holds it; else that of its layer, else all.
    #[serde(default)]
    pub stage: Option<Stage>,
    /// The tensor whose values it shares.
    #[serde(default)]
    pub tied_to: Option<String>,
}

/// A pp stage.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(untagged)]
pub enum Stage {
    /// Counted from 0.
    Number(u32),
    /// The first or the last one.
    Named(NamedStage),
}

/// The ends of the pipeline.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum NamedStage {
    /// Stage 0.
    First,
    /// The stage with the last layers.
    Last,
}

impl Stage {
    /// The stage's number among `stages`; `None` if there is no such stage.
    pub fn resolve(self, stages: u32) -> Option<u32> {
        match self {
            Stage::Number(stage) => (stage < stages).then_some(stage),
            Stage::Named(NamedStage::First) => (stages > 0).then_some(0),
            Stage::Named(NamedStage::Last) => stages.checked_sub(1),
        }
    }
}

/// How one dimension is split over one mesh axis.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct ShardRule {
    /// The dimension; negative ones count from the last.
    pub dim: i64,
    /// The mesh axis.
    pub axis: String,
    /// Blocks of a fused tensor, each split by itself.
    #[serde(default)]
    pub blocks: Option<Vec<BlockRule>>,
    /// So many equal blocks, each split by itself.
    #[serde(default)]
    pub stride: Option<u64>,
    /// Splits fall on multiples of this, such as the size of an attention head.
    #[serde(default)]
    pub unit: Option<u64>,
    /// Splits into so many parts, each held by neighbours along the axis: fewer key-value heads
    /// than PEs.
    #[serde(default)]
    pub parts: Option<u64>,
    /// Splits into so many equal groups, each split over neighbours along the axis: query heads
    /// that share a key-value head.
    #[serde(default)]
    pub groups: Option<u64>,
}

/// A block of a fused tensor: its size, and how it is split if not as the rule says.
///
/// Reads from a number or from a table with `size`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockRule {
    /// Elements along the dimension.
    pub size: u64,
    /// As the member of [`ShardRule`], for this block.
    pub unit: Option<u64>,
    /// As the member of [`ShardRule`], for this block; 1 gives the whole block to every PE.
    pub parts: Option<u64>,
    /// As the member of [`ShardRule`], for this block.
    pub groups: Option<u64>,
}

impl From<u64> for BlockRule {
    fn from(size: u64) -> Self {
        Self { size, ..Default::default() }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BlockForm {
    size: u64,
    #[serde(default)]
    unit: Option<u64>,
    #[serde(default)]
    parts: Option<u64>,
    #[serde(default)]
    groups: Option<u64>,
}

impl<'de> Deserialize<'de> for BlockRule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(BlockVisitor)
    }
}

struct BlockVisitor;

impl<'de> Visitor<'de> for BlockVisitor {
    type Value = BlockRule;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size or a table with `size`")
    }

    fn visit_u64<E: Error>(self, size: u64) -> Result<BlockRule, E> {
        Ok(size.into())
    }

    fn visit_i64<E: Error>(self, size: i64) -> Result<BlockRule, E> {
        let negative = || E::custom(format_args!("{size} elements: expected 0 or more"));
        u64::try_from(size).map(BlockRule::from).map_err(|_| negative())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<BlockRule, A::Error> {
        let form = BlockForm::deserialize(MapAccessDeserializer::new(map))?;
        let BlockForm { size, unit, parts, groups } = form;
        Ok(BlockRule { size, unit, parts, groups })
    }
}

/// The part `index` of `count` elements split into `parts`: the first ones get one more.
pub(super) fn split(count: u64, parts: u64, index: u64) -> Range<u64> {
    let (base, more) = (count / parts, count % parts);
    let start = index * base + index.min(more);
    start..start + base + u64::from(index < more)
}

impl ShardRule {
    /// The spans of a dimension that position `at` of `axis_size` keeps of `spans`, in local order.
    ///
    /// The error says what does not fit.
    pub(super) fn apply(
        &self,
        spans: &[Range<u64>],
        at: u64,
        axis_size: u64,
    ) -> Result<Vec<Range<u64>>, String> {
        let total: u64 = spans.iter().map(|span| span.end - span.start).sum();
        let mut kept = Vec::new();
        let mut start = 0;
        for block in self.block_rules(total)? {
            let (parts, at) = self.parts(block.parts.or(self.parts), at, axis_size)?;
            let unit = block.unit.or(self.unit).unwrap_or(1);
            if unit == 0 || !block.size.is_multiple_of(unit) {
                let size = block.size;
                return Err(format!("{size} elements are no multiple of the unit {unit}"));
            }
            let part = self.part(&block, block.size / unit, parts, at)?;
            select(spans, start + part.start * unit..start + part.end * unit, &mut kept);
            start += block.size;
        }
        Ok(kept)
    }

    /// Into how many parts a block is split, and which of them position `at` keeps.
    fn parts(&self, parts: Option<u64>, at: u64, axis_size: u64) -> Result<(u64, u64), String> {
        match parts {
            None => Ok((axis_size, at)),
            Some(parts) if parts > 0 && axis_size.is_multiple_of(parts) => {
                Ok((parts, at / (axis_size / parts)))
            }
            Some(parts) => {
                Err(format!("{parts} parts do not divide axis `{}` of {axis_size}", self.axis))
            }
        }
    }

    /// The items of `count` that position `at` of `parts` keeps.
    fn part(
        &self,
        block: &BlockRule,
        count: u64,
        parts: u64,
        at: u64,
    ) -> Result<Range<u64>, String> {
        let groups = block.groups.or(self.groups.filter(|_| block.parts.is_none()));
        let Some(groups) = groups else { return Ok(split(count, parts, at)) };
        if block.parts.or(self.parts).is_some() {
            return Err("give `parts` or `groups`, not both".to_owned());
        }
        if groups == 0 || !parts.is_multiple_of(groups) || !count.is_multiple_of(groups) {
            return Err(format!(
                "{groups} groups divide either not the {count} units or not axis `{}` of {parts}",
                self.axis
            ));
        }
        let (size, neighbours) = (count / groups, parts / groups);
        let start = at / neighbours * size;
        let part = split(size, neighbours, at % neighbours);
        Ok(start + part.start..start + part.end)
    }

    fn block_rules(&self, total: u64) -> Result<Vec<BlockRule>, String> {
        match (&self.blocks, self.stride) {
            (Some(_), Some(_)) => Err("give `blocks` or `stride`, not both".to_owned()),
            (Some(blocks), None) => {
                let sizes: Vec<u64> = blocks.iter().map(|block| block.size).collect();
                let sum = sizes.iter().try_fold(0u64, |sum, &size| sum.checked_add(size));
                if sum == Some(total) {
                    return Ok(blocks.clone());
                }
                Err(format!(
                    "blocks {sizes:?} do not add up to the {total} elements of dimension {}",
                    self.dim
                ))
            }
            (None, Some(stride)) if stride > BLOCKS_MAX => Err(format!(
                "stride {stride} stands for too many blocks: give at most {BLOCKS_MAX}"
            )),
            (None, Some(stride)) if stride > 0 && total.is_multiple_of(stride) => {
                Ok(vec![(total / stride).into(); stride as usize])
            }
            (None, Some(stride)) => Err(format!(
                "stride {stride} does not divide the {total} elements of dimension {}",
                self.dim
            )),
            (None, None) => Ok(vec![total.into()]),
        }
    }
}

/// Appends the elements `wanted`, counted through `spans` as if they were one, joining neighbours.
fn select(spans: &[Range<u64>], wanted: Range<u64>, kept: &mut Vec<Range<u64>>) {
    let mut before = 0;
    for span in spans {
        let size = span.end - span.start;
        let start = wanted.start.clamp(before, before + size) - before + span.start;
        let end = wanted.end.clamp(before, before + size) - before + span.start;
        before += size;
        if start == end {
            continue;
        }
        match kept.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => kept.push(start..end),
        }
    }
}

#[cfg(test)]
// A dimension is a list of spans, of which most have one.
#[allow(clippy::single_range_in_vec_init)]
mod tests {
    use super::*;

    #[test]
    fn uneven_splits_give_the_first_ones_more() {
        let sizes: Vec<u64> =
            (0..3).map(|at| split(8, 3, at)).map(|part| part.end - part.start).collect();
        assert_eq!(sizes, [3, 3, 2]);
        assert_eq!(split(1, 3, 2), 1..1);
    }

    #[test]
    fn blocks_are_split_one_by_one() {
        let rule =
            ShardRule { blocks: Some([4, 2, 2].map(BlockRule::from).into()), ..Default::default() };
        assert_eq!(rule.apply(&[0..8], 1, 2).unwrap(), [2..4, 5..6, 7..8]);
        let rule = ShardRule { stride: Some(2), ..Default::default() };
        assert_eq!(rule.apply(&[0..8], 0, 2).unwrap(), [0..2, 4..6]);
        assert_eq!(rule.apply(&[0..8], 0, 1).unwrap(), [0..8]);
    }

    #[test]
    fn a_second_split_works_on_what_the_first_left() {
        let plain = ShardRule::default();
        let first =
            ShardRule { stride: Some(2), ..Default::default() }.apply(&[0..16], 1, 2).unwrap();
        assert_eq!(first, [4..8, 12..16]);
        assert_eq!(plain.apply(&first, 1, 2).unwrap(), [12..16]);
        assert_eq!(plain.apply(&first, 0, 3).unwrap(), [4..7]);
    }

    #[test]
    fn parts_are_shared_by_neighbours() {
        let rule = ShardRule { parts: Some(2), ..Default::default() };
        let of = |at| rule.apply(&[0..8], at, 4).unwrap();
        assert_eq!((of(0), of(1), of(2), of(3)), (vec![0..4], vec![0..4], vec![4..8], vec![4..8]));
        assert!(rule.apply(&[0..8], 0, 3).is_err());
    }

    #[test]
    fn groups_are_split_among_neighbours() {
        let rule = ShardRule { groups: Some(2), unit: Some(2), ..Default::default() };
        let of = |at| rule.apply(&[0..12], at, 4).unwrap();
        let expected = [[0..4], [4..6], [6..10], [10..12]];
        assert_eq!([of(0), of(1), of(2), of(3)], expected.map(Vec::from));
        assert!(rule.apply(&[0..12], 0, 3).is_err());
        assert!(rule.apply(&[0..10], 0, 4).is_err());
        let both = ShardRule { parts: Some(2), ..rule };
        assert!(both.apply(&[0..12], 0, 4).unwrap_err().contains("not both"));
    }

    #[test]
    fn blocks_may_be_split_each_in_its_own_way() {
        let text = "axis = \"tp\"\ndim = 0\nblocks = [{size = 8, groups = 2, unit = 2}, \
                    {size = 4, parts = 2}, {size = 3, parts = 1}]";
        let rule = syncline_files::from_toml::<ShardRule>(text).unwrap();
        let of = |at| rule.apply(&[0..15], at, 4).unwrap();
        assert_eq!([of(0), of(1)], [[0..2, 8..10, 12..15], [2..4, 8..10, 12..15]]);
        assert_eq!([of(2), of(3)], [vec![4..6, 10..15], vec![6..8, 10..15]]);
        for (wrong, words) in [("-1", "-1 elements"), ("{size = 1, units = 1}", "units")] {
            let text = text.replace("{size = 3, parts = 1}", wrong);
            let error = syncline_files::from_toml::<ShardRule>(&text).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let of = |rule: ShardRule| rule.apply(&[0..9], 0, 2).unwrap_err();
        assert!(
            of(ShardRule {
                blocks: Some([4, 4].map(BlockRule::from).into()),
                ..Default::default()
            })
            .contains("add up")
        );
        assert!(of(ShardRule { stride: Some(2), ..Default::default() }).contains("divide"));
        assert!(of(ShardRule { stride: Some(0), ..Default::default() }).contains("divide"));
        let far = ShardRule { stride: Some(u64::MAX), ..Default::default() };
        // Nothing can be divided by anything.
        assert!(far.apply(&[0..0], 0, 2).unwrap_err().contains("at most 65536"));
        assert!(of(ShardRule { unit: Some(2), ..Default::default() }).contains("unit"));
    }
}
