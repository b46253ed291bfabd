//! What moving any tensor from one placement to another takes, before sources are chosen.

use super::copy_box::CopyBox;
use super::source::{ShardClass, Source, Tile, shard_classes};
use super::traffic::padded;
use crate::boxes::merge_boxes;
use crate::dims::{Dims, NdBox};
use crate::error::ReshardError;
use crate::hash::FastMap;
use crate::layout::{Piece, Placement};

/// Boxes that one receiver needs and that any rank of one source class can supply.
#[derive(Clone, Debug)]
pub(super) struct Demand {
    pub(super) dst: u32,
    pub(super) supply: Supply,
    /// Range of the template's copies; empty where the plan is for a rank that this does not concern.
    pub(super) copies: (u32, u32),
    /// Range of the template's parts: what each copy has, whomever it concerns.
    pub(super) parts: (u32, u32),
    /// What all of them have together.
    pub(super) units: u64,
}

/// Where a demand is met from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Supply {
    /// The receiver has it.
    Own,
    /// Only this rank has it.
    Only(u32),
    /// Any rank of this set, by its number in [`RankSets`].
    AnyOf(u32),
}

/// The demands of all receivers, receivers ascending, in units of the pair of placements.
#[derive(Debug, Default)]
pub(super) struct Template {
    pub(super) demands: Vec<Demand>,
    pub(super) copies: Vec<CopyBox>,
    /// Units of each copy that a demand consists of.
    pub(super) parts: Vec<u64>,
}

impl Template {
    /// Bytes of a demand with every copy at an aligned place, where a unit has `unit_bytes`.
    pub(super) fn padded_bytes(&self, demand: &Demand, unit_bytes: u64) -> u64 {
        let parts = &self.parts[demand.parts.0 as usize..demand.parts.1 as usize];
        parts.iter().map(|units| padded(units * unit_bytes)).sum()
    }
}

/// Sets of ranks, numbered.
#[derive(Debug, Default)]
pub(super) struct RankSets {
    pub(super) sets: Vec<Vec<u32>>,
    known: FastMap<Vec<u32>, u32>,
}

impl RankSets {
    fn number(&mut self, ranks: &[u32]) -> u32 {
        if let Some(&number) = self.known.get(ranks) {
            return number;
        }
        let number = self.sets.len() as u32;
        self.sets.push(ranks.to_vec());
        self.known.insert(ranks.to_vec(), number);
        number
    }
}

/// What a receiver needs of one source class.
struct Need {
    class: u32,
    copies: (u32, u32),
    parts: (u32, u32),
    units: u64,
}

pub(super) struct TemplateBuilder<'a> {
    pub(super) tensor: &'a str,
    /// Elements that a unit has along each dimension, for errors.
    pub(super) unit: Dims,
    /// Keep copies only where they concern this rank.
    pub(super) rank: Option<u32>,
}

impl TemplateBuilder<'_> {
    /// Refuses a destination that is not covered, in the name of the builder's tensor.
    pub(super) fn build(
        &self,
        source: &Source<'_>,
        to: &Placement,
        sets: &mut RankSets,
    ) -> Result<Template, ReshardError> {
        let mut template = Template::default();
        let numbers: Vec<u32> =
            source.classes.iter().map(|class| sets.number(&class.ranks)).collect();
        // Receivers that need the same and hold the same share one answer.
        let mut known: Vec<(Option<u32>, Vec<Need>)> = Vec::new();
        for receivers in shard_classes(to) {
            self.check_filled(&receivers)?;
            known.clear();
            for &dst in &receivers.ranks {
                let own = source.class_of(dst);
                let at = match known.iter().position(|(known, _)| *known == own) {
                    Some(at) => at,
                    None => {
                        let needs = self.needs(source, &receivers, dst, own, &mut template)?;
                        known.push((own, needs));
                        known.len() - 1
                    }
                };
                for need in &known[at].1 {
                    let ranks = &source.classes[need.class as usize].ranks;
                    let supply = match ranks[..] {
                        _ if own == Some(need.class) => Supply::Own,
                        [only] => Supply::Only(only),
                        _ => Supply::AnyOf(numbers[need.class as usize]),
                    };
                    let Need { copies, parts, units, .. } = *need;
                    template.demands.push(Demand { dst, supply, copies, parts, units });
                }
            }
        }
        template.demands.sort_by_key(|demand| demand.dst);
        Ok(template)
    }

    /// What `dst` needs of each class, adjacent boxes merged.
    fn needs(
        &self,
        source: &Source<'_>,
        receivers: &ShardClass<'_>,
        dst: u32,
        own: Option<u32>,
        template: &mut Template,
    ) -> Result<Vec<Need>, ReshardError> {
        let mut parts: Vec<(u32, CopyBox)> = Vec::new();
        for piece in receivers.pieces {
            let take = |tile: &Tile, part: NdBox| {
                let from = &source.classes[tile.class as usize];
                parts.push((tile.class, copy_box(from, &tile.piece, receivers, piece, part)));
            };
            source.cover(&piece.global, own, take).map_err(|missing| ReshardError::NotCovered {
                tensor: self.tensor.to_owned(),
                rank: dst,
                missing: Box::new(self.in_elements(*missing)),
            })?;
        }
        parts.sort_by_key(|(class, _)| *class);
        let mut needs = Vec::new();
        let mut boxes: Vec<CopyBox> = Vec::new();
        for group in parts.chunk_by(|one, next| one.0 == next.0) {
            let class = group[0].0;
            boxes.clear();
            boxes.extend(group.iter().map(|(_, copy)| *copy));
            if boxes.len() > 1 {
                merge_copies(&mut boxes);
            }
            let Template { copies, parts, .. } = template;
            let (first, first_part) = (copies.len() as u32, parts.len() as u32);
            parts.extend(boxes.iter().map(CopyBox::elements));
            let mut need = Need {
                class,
                units: parts[first_part as usize..].iter().sum(),
                parts: (first_part, parts.len() as u32),
                copies: (first, first),
            };
            let concerns = |rank: u32| {
                let ranks = &source.classes[class as usize].ranks;
                ranks.binary_search(&rank).is_ok() || receivers.ranks.binary_search(&rank).is_ok()
            };
            if self.rank.is_none_or(concerns) {
                copies.append(&mut boxes);
                need.copies.1 = copies.len() as u32;
            }
            needs.push(need);
        }
        Ok(needs)
    }

    /// A box of units in elements.
    fn in_elements(&self, mut part: NdBox) -> NdBox {
        for dims in [&mut part.start, &mut part.size] {
            dims.iter_mut().zip(self.unit.iter()).for_each(|(value, unit)| *value *= unit);
        }
        part
    }

    fn check_filled(&self, receivers: &ShardClass<'_>) -> Result<(), ReshardError> {
        let filled: u64 = receivers.pieces.iter().map(|piece| piece.global.volume()).sum();
        let elements = (receivers.shape.volume() - filled) * self.unit.volume();
        if elements == 0 {
            return Ok(());
        }
        let (tensor, rank) = (self.tensor.to_owned(), receivers.ranks[0]);
        let whole = NdBox { start: receivers.shape.zeros(), size: receivers.shape };
        let shape = Box::new(self.in_elements(whole).size);
        Err(ReshardError::ShardNotFilled { tensor, rank, elements, shape })
    }
}

/// Joins boxes that are neighbours both where they come from and where they go.
fn merge_copies(boxes: &mut Vec<CopyBox>) {
    merge_boxes(
        boxes,
        |copy| copy.size,
        |copy| [copy.dst_start, copy.src_start],
        |copy, size| copy.size = size,
    );
}

/// The part `part`, in global coordinates, from a source piece to a destination piece.
fn copy_box(
    from: &ShardClass<'_>,
    from_piece: &Piece,
    to: &ShardClass<'_>,
    to_piece: &Piece,
    part: NdBox,
) -> CopyBox {
    let place = |piece: &Piece| {
        let mut start = part.start;
        for dim in 0..start.len() {
            start[dim] = start[dim] - piece.global.start[dim] + piece.local[dim];
        }
        start
    };
    CopyBox {
        src_start: place(from_piece),
        dst_start: place(to_piece),
        size: part.size,
        src_shape: from.shape,
        dst_shape: to.shape,
    }
}
