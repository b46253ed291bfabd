//! What moving any tensor from one placement to another takes, before sources are chosen.
//!
//! A template is worked out once for all tensors that lie alike. Choosing sources and counting
//! traffic need what every receiver takes of every class of senders, in numbers; boxes are kept
//! only where they concern the rank that is planned for.

use super::copy_box::CopyBox;
use super::source::Source;
use super::traffic::padded;
use crate::boxes::merge_boxes;
use crate::dims::{Dims, NdBox};
use crate::error::LayoutError;
use crate::layout::{Classes, Piece, Shard};
use rustc_hash::FxHashMap;

/// Boxes that one receiver needs and that any rank of one source class can supply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    pub(super) dst: u32,
    pub(super) supply: Supply,
    /// Position among all needs.
    need: u32,
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

/// What receivers that are alike need of one source class.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    class: u32,
    /// Range of all copies; empty where the plan is for a rank that this does not concern.
    pub(super) copies: (u32, u32),
    /// Range of all parts: what each copy has, for every PE.
    parts: (u32, u32),
    /// What all of them have together.
    pub(super) units: u64,
}

/// The demands of all receivers, receivers ascending, in units of the pair of placements.
#[derive(Clone, Copy, Debug)]
struct Template {
    demands: (u32, u32),
    copies: (u32, u32),
}

/// Templates, and what they consist of.
#[derive(Debug, Default)]
pub(super) struct Templates {
    all: Vec<Template>,
    demands: Vec<Demand>,
    needs: Vec<Need>,
    copies: Vec<CopyBox>,
    /// Units of each copy that a need consists of.
    parts: Vec<u64>,
    pub(super) sets: RankSets,
}

impl Templates {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// What a template asks for, by receiver.
    pub(super) fn demands(&self, template: u32) -> &[Demand] {
        let (first, last) = self.all[template as usize].demands;
        &self.demands[first as usize..last as usize]
    }

    pub(super) fn need(&self, demand: &Demand) -> &Need {
        &self.needs[demand.need as usize]
    }

    /// Which of all copies are a template's.
    pub(super) fn copies_of(&self, template: u32) -> std::ops::Range<usize> {
        let (first, last) = self.all[template as usize].copies;
        first as usize..last as usize
    }

    /// The copies of all templates, in their units.
    pub(super) fn take_copies(&mut self) -> Vec<CopyBox> {
        std::mem::take(&mut self.copies)
    }

    /// Bytes of a need with every copy at an aligned place, where a unit has `unit_bytes`.
    pub(super) fn padded_bytes(&self, need: &Need, unit_bytes: u64) -> u64 {
        let parts = &self.parts[need.parts.0 as usize..need.parts.1 as usize];
        parts.iter().map(|units| padded(units * unit_bytes)).sum()
    }
}

/// Sets of ranks, numbered.
#[derive(Debug, Default)]
pub(super) struct RankSets {
    pub(super) sets: Vec<Vec<u32>>,
    known: FxHashMap<Vec<u32>, u32>,
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

/// Makes templates, each in the memory of the one before.
#[derive(Debug, Default)]
pub(super) struct TemplateBuilder {
    /// Keep copies only where they concern this rank.
    rank: Option<u32>,
    made: Templates,
    source: Source,
    answers: Answers,
    /// How each source class supplies others, once that was asked.
    supplies: Vec<Option<Supply>>,
    parts: Vec<Part>,
    boxes: Vec<CopyBox>,
}

/// A part of a receiver's piece that one tile has.
#[derive(Debug)]
struct Part {
    class: u32,
    source_piece: u32,
    target_piece: u32,
    /// In global coordinates.
    part: NdBox,
}

/// Shards in units of the pair, and their classes.
#[derive(Clone, Copy)]
pub(super) struct Side<'a> {
    pub(super) shards: &'a [Shard],
    pub(super) classes: &'a Classes,
}

impl<'a> Side<'a> {
    fn shard(&self, class: u32) -> &'a Shard {
        self.classes.shard(self.shards, class)
    }
}

/// The tensor on whose behalf a template is made, for errors.
struct Behalf<'a> {
    tensor: &'a str,
    /// Elements that a unit has along each dimension.
    unit: Dims,
}

impl TemplateBuilder {
    pub(super) fn new(rank: Option<u32>) -> Self {
        Self { rank, ..Default::default() }
    }

    pub(super) fn finish(self) -> Templates {
        self.made
    }

    /// The number of a new template; refuses a destination that is not covered, in the name of
    /// `tensor`, of whose elements a unit has `unit` along each dimension.
    pub(super) fn add(
        &mut self,
        (tensor, unit): (&str, Dims),
        from: Side<'_>,
        to: Side<'_>,
    ) -> Result<u32, LayoutError> {
        let behalf = Behalf { tensor, unit };
        let first_demand = self.made.demands.len() as u32;
        let first_copy = self.made.copies.len() as u32;
        self.source.fill(from.shards, from.classes);
        self.answers.clear(to.classes.len());
        self.supplies.clear();
        self.supplies.resize(from.classes.len(), None);
        for (dst, class) in to.classes.iter() {
            let own = from.classes.of_rank(dst);
            let (first, last) = match self.answers.get(class, own) {
                Some(needs) => needs,
                None => {
                    let needs = self.needs(&behalf, from, to, (dst, class), own)?;
                    self.answers.add(class, own, needs);
                    needs
                }
            };
            for need in first..last {
                let class = self.made.needs[need as usize].class;
                let supply = match own == Some(class) {
                    true => Supply::Own,
                    false => self.supply_of(from.classes, class),
                };
                self.made.demands.push(Demand { dst, supply, need });
            }
        }
        let Templates { demands, copies, all, .. } = &mut self.made;
        all.push(Template {
            demands: (first_demand, demands.len() as u32),
            copies: (first_copy, copies.len() as u32),
        });
        Ok(all.len() as u32 - 1)
    }

    /// How ranks of a source class supply others.
    fn supply_of(&mut self, classes: &Classes, class: u32) -> Supply {
        let sets = &mut self.made.sets;
        *self.supplies[class as usize].get_or_insert_with(|| match *classes.ranks(class) {
            [only] => Supply::Only(only),
            ref ranks => Supply::AnyOf(sets.number(ranks)),
        })
    }

    /// What receivers like `dst` need of each source class, adjacent boxes merged, as a range of
    /// all needs.
    fn needs(
        &mut self,
        behalf: &Behalf<'_>,
        from: Side<'_>,
        to: Side<'_>,
        (dst, receivers): (u32, u32),
        own: Option<u32>,
    ) -> Result<(u32, u32), LayoutError> {
        let receiver = to.shard(receivers);
        behalf.check_filled(receiver)?;
        let Self { rank, made, source, parts, boxes, .. } = self;
        parts.clear();
        for (target_piece, piece) in (0u32..).zip(&receiver.pieces) {
            let covered = source.cover(&piece.global, own, |tile, part| {
                let (class, source_piece) = (tile.class, tile.piece);
                parts.push(Part { class, source_piece, target_piece, part });
            });
            covered.map_err(|missing| behalf.not_covered(dst, *missing))?;
        }
        if !parts.is_sorted_by_key(|part| part.class) {
            parts.sort_by_key(|part| part.class);
        }
        let first = made.needs.len() as u32;
        for group in parts.chunk_by(|one, next| one.class == next.class) {
            let class = group[0].class;
            let concerns = rank.is_none_or(|rank| {
                let is_in = |ranks: &[u32]| ranks.binary_search(&rank).is_ok();
                is_in(from.classes.ranks(class)) || is_in(to.classes.ranks(receivers))
            });
            let (first_copy, first_part) = (made.copies.len() as u32, made.parts.len() as u32);
            let sender = from.shard(class);
            let copy_box = |part: &Part| copy_box(sender, receiver, part);
            match group {
                // Nothing to merge, and no PE to keep it for.
                [only] if !concerns => made.parts.push(only.part.volume()),
                _ => {
                    boxes.clear();
                    boxes.extend(group.iter().map(copy_box));
                    merge_copies(boxes);
                    made.parts.extend(boxes.iter().map(CopyBox::elements));
                }
            }
            if concerns {
                made.copies.append(boxes);
            }
            made.needs.push(Need {
                class,
                copies: (first_copy, made.copies.len() as u32),
                parts: (first_part, made.parts.len() as u32),
                units: made.parts[first_part as usize..].iter().sum(),
            });
        }
        Ok((first, made.needs.len() as u32))
    }
}

/// What receivers need that are of one class and hold the same of the source: they share one
/// answer.
#[derive(Debug, Default)]
struct Answers {
    /// By class of receivers, the last answer for it.
    last: Vec<Option<u32>>,
    all: Vec<Answer>,
}

#[derive(Debug)]
struct Answer {
    own: Option<u32>,
    needs: (u32, u32),
    /// The one before for the same class.
    before: Option<u32>,
}

impl Answers {
    fn clear(&mut self, classes: usize) {
        self.all.clear();
        self.last.clear();
        self.last.resize(classes, None);
    }

    fn get(&self, class: u32, own: Option<u32>) -> Option<(u32, u32)> {
        let mut next = self.last[class as usize];
        while let Some(at) = next {
            let answer = &self.all[at as usize];
            if answer.own == own {
                return Some(answer.needs);
            }
            next = answer.before;
        }
        None
    }

    fn add(&mut self, class: u32, own: Option<u32>, needs: (u32, u32)) {
        let last = &mut self.last[class as usize];
        let before = last.replace(self.all.len() as u32);
        self.all.push(Answer { own, needs, before });
    }
}

impl Behalf<'_> {
    /// A box of units in elements.
    fn in_elements(&self, mut part: NdBox) -> NdBox {
        for dims in [&mut part.start, &mut part.size] {
            dims.iter_mut().zip(self.unit.iter()).for_each(|(value, unit)| *value *= unit);
        }
        part
    }

    fn not_covered(&self, rank: u32, missing: NdBox) -> LayoutError {
        let missing = Box::new(self.in_elements(missing));
        LayoutError::NotCovered { tensor: self.tensor.to_owned(), rank, missing }
    }

    fn check_filled(&self, shard: &Shard) -> Result<(), LayoutError> {
        let filled: u64 = shard.pieces.iter().map(|piece| piece.global.volume()).sum();
        let elements = (shard.shape.volume() - filled) * self.unit.volume();
        if elements == 0 {
            return Ok(());
        }
        let (tensor, rank) = (self.tensor.to_owned(), shard.rank);
        let shape = Box::new(self.in_elements(NdBox::whole(shard.shape)).size);
        Err(LayoutError::ShardNotFilled { tensor, rank, elements, shape })
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

/// A part from a piece of `sender` to a piece of `receiver`.
fn copy_box(sender: &Shard, receiver: &Shard, part: &Part) -> CopyBox {
    let Part { source_piece, target_piece, part, .. } = part;
    let place = |piece: &Piece| {
        let mut start = part.start;
        for dim in 0..start.len() {
            start[dim] = start[dim] - piece.global.start[dim] + piece.local[dim];
        }
        start
    };
    CopyBox {
        src_start: place(&sender.pieces[*source_piece as usize]),
        dst_start: place(&receiver.pieces[*target_piece as usize]),
        size: part.size,
        src_shape: sender.shape,
        dst_shape: receiver.shape,
    }
}
