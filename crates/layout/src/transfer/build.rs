//! Building plans: pair the tensors, look up what each pair of placements takes, choose sources.

use std::borrow::Cow;

use super::balance::Balance;
use super::blocks::Blocks;
use super::copy_box::CopyBox;
use super::recoding::{BlockPlacements, Recoding};
use super::template::{Demand, Side, Supply, TemplateBuilder, Templates};
use super::traffic::TrafficCounter;
use super::{PlanOptions, PlanTensor, TransferOp, TransferPlan};
use crate::dims::Dims;
use crate::error::LayoutError;
use rustc_hash::FxHashMap;

use crate::hash::Fingerprint;
use crate::layout::{Layout, NameNumbers, Placement, Shard, gcd, scaled};
use syncline_copy::convert::{self, ConvertError};

pub(super) fn build(
    from: &Layout,
    to: &Layout,
    options: &PlanOptions,
    rank: Option<u32>,
) -> Result<TransferPlan, LayoutError> {
    let tensors = pair_tensors(from, to, options)?;
    let blocks = BlockPlacements::new(from, to, &tensors)?;
    let (templates, of) = templates(from, to, &tensors, &blocks, rank)?;
    let world = from.world().max(to.world());
    let choices = choose(&templates, &of, world);
    let mut plan = TransferPlan {
        ops: Vec::new(),
        copies: Vec::new(),
        traffic: Default::default(),
        bytes_total: 0,
        world,
        rank,
        fingerprint: fingerprint(from, to, options),
        tensors,
    };
    emit(&mut plan, templates, &of, &choices);
    Ok(plan)
}

/// The destination's tensors with their sources; refuses names, types and shapes that do not match.
fn pair_tensors(
    from: &Layout,
    to: &Layout,
    options: &PlanOptions,
) -> Result<Vec<PlanTensor>, LayoutError> {
    let blocks = Blocks::new(&options.block_scales)?;
    let mut pairs: Vec<PlanTensor> = Vec::with_capacity(to.tensors().len());
    for (index, target) in (0u32..).zip(to.tensors()) {
        let name = target.name();
        if let Some(pair) = blocks.pair(from, to, index)? {
            check_pair(from, to, options, &pair)?;
            pairs.push(pair);
            continue;
        }
        let Some(at) = from.counterpart_of(target) else {
            return Err(unmatched(from, to, name, true));
        };
        let source = &from.tensors()[at];
        let (src_dtype, dst_dtype) = (source.dtype(), target.dtype());
        let (name, from_at, recoding) = (name.to_owned(), at as u32, Recoding::Elements);
        let pair = PlanTensor { name, from: from_at, to: index, src_dtype, dst_dtype, recoding };
        check_pair(from, to, options, &pair)?;
        pairs.push(pair);
    }
    for source in from.tensors() {
        if to.counterpart_of(source).is_none() && !blocks.is_used_up(from, to, source) {
            return Err(unmatched(from, to, source.name(), false));
        }
    }
    Ok(pairs)
}

/// Refuses element types and shapes that do not match.
fn check_pair(
    from: &Layout,
    to: &Layout,
    options: &PlanOptions,
    pair: &PlanTensor,
) -> Result<(), LayoutError> {
    if let Recoding::BlockScales { .. } = pair.recoding {
        // Checked with the tensor whose scales these are.
        return Ok(());
    }
    let (src_dtype, dst_dtype) = (pair.src_dtype, pair.dst_dtype);
    if !options.conversions.allows(src_dtype, dst_dtype) {
        let tensor = pair.name.clone();
        return Err(LayoutError::DtypeMismatch { tensor, from: src_dtype, to: dst_dtype });
    }
    // Asked here rather than where bytes are moved, so that a PE that holds nothing of the tensor
    // refuses it too.
    if pair.recoding == Recoding::Elements && !convert::is_supported(src_dtype, dst_dtype) {
        let cause = ConvertError::Unsupported { from: src_dtype, to: dst_dtype };
        return Err(LayoutError::NoConversion { tensor: pair.name.clone(), cause });
    }
    let source = from.tensors()[pair.from as usize].shape();
    let target = to.tensors()[pair.to as usize].shape();
    if source != target {
        let tensor = pair.name.clone();
        let (from, to) = (Box::new(*source), Box::new(*target));
        return Err(LayoutError::ShapeMismatch { tensor, from, to });
    }
    Ok(())
}

/// The error for a tensor that only one layout has: about expert counts where those differ, else
/// about the name.
fn unmatched(from: &Layout, to: &Layout, tensor: &str, in_destination: bool) -> LayoutError {
    let numbers = NameNumbers::default();
    let tensor_name = tensor.to_owned();
    if let Some(kind) = numbers.expert_kind(tensor) {
        let count = |layout: &Layout| {
            let names = layout.tensors().iter().map(|tensor| tensor.name());
            names.filter(|name| numbers.expert_kind(name).as_ref() == Some(&kind)).count() as u64
        };
        let (from, to) = (count(from), count(to));
        if from != to && from > 0 && to > 0 {
            return LayoutError::ExpertCount { tensor: tensor_name, from, to };
        }
    }
    if in_destination {
        LayoutError::UnknownTensor { tensor: tensor_name }
    } else {
        LayoutError::MissingTensor { tensor: tensor_name }
    }
}

/// A template and what its units stand for.
#[derive(Clone, Copy)]
struct Scaled {
    template: u32,
    /// Elements along each dimension.
    unit: Dims,
    /// Bytes, in the element type used on the way.
    unit_bytes: u64,
}

/// One template for each pair of placements, those of one form taken as one, and the template of
/// each tensor.
fn templates(
    from: &Layout,
    to: &Layout,
    tensors: &[PlanTensor],
    blocks: &BlockPlacements,
    rank: Option<u32>,
) -> Result<(Templates, Vec<Scaled>), LayoutError> {
    let mut builder = TemplateBuilder::new(rank);
    let mut of = Vec::with_capacity(tensors.len());
    let mut known: FxHashMap<PairKey, u32> = FxHashMap::default();
    let mut last: Option<((*const Placement, *const Placement), (u32, Dims))> = None;
    for tensor in tensors {
        let (source_unit, target_unit) = tensor.unit_elements();
        let source = blocks.of(from.tensors()[tensor.from as usize].placement(), source_unit);
        let target = blocks.of(to.tensors()[tensor.to as usize].placement(), target_unit);
        let pair = (std::ptr::from_ref(source), std::ptr::from_ref(target));
        // Tensors of one placement often follow each other.
        let (template, unit) = match last {
            Some((same, found)) if same == pair => found,
            _ => {
                let pair = Pair::new(source, target);
                let template = match known.get(&pair.key) {
                    Some(&template) => template,
                    None => {
                        let behalf = (&tensor.name[..], pair.unit);
                        let (source, target) = (pair.shards(0), pair.shards(1));
                        let template =
                            builder.add(behalf, pair.side(0, &source), pair.side(1, &target))?;
                        known.insert(pair.key, template);
                        template
                    }
                };
                (template, pair.unit)
            }
        };
        last = Some((pair, (template, unit)));
        let unit_bytes = unit.volume() * tensor.unit_bytes()[1];
        of.push(Scaled { template, unit, unit_bytes });
    }
    Ok((builder.finish(), of))
}

/// What decides a template: two forms, and how many units of the pair one of theirs has along each
/// dimension.
type PairKey = (*const Placement, Dims, *const Placement, Dims);

/// Two placements in units that both are multiples of.
struct Pair<'a> {
    forms: [&'a Placement; 2],
    factors: [Dims; 2],
    /// Elements that a unit has along each dimension.
    unit: Dims,
    key: PairKey,
}

impl<'a> Pair<'a> {
    fn new(source: &'a Placement, target: &'a Placement) -> Self {
        let form = |placement: &'a Placement| match &placement.form {
            Some(form) => (&*form.placement, form.unit),
            None => (placement, ones(&placement.shape)),
        };
        let ((source, mut source_unit), (target, mut target_unit)) = (form(source), form(target));
        let mut unit = source_unit;
        for dim in 0..unit.len() {
            unit[dim] = gcd(source_unit[dim], target_unit[dim]);
            source_unit[dim] /= unit[dim];
            target_unit[dim] /= unit[dim];
        }
        let key =
            (std::ptr::from_ref(source), source_unit, std::ptr::from_ref(target), target_unit);
        Self { forms: [source, target], factors: [source_unit, target_unit], unit, key }
    }

    /// The shards of the source, or of the target, in units of the pair.
    fn shards(&self, side: usize) -> Cow<'a, [Shard]> {
        let (form, factors) = (self.forms[side], &self.factors[side]);
        if factors.iter().all(|&factor| factor == 1) {
            return Cow::Borrowed(&form.shards);
        }
        let times = |value, factor| value * factor;
        Cow::Owned(scaled(&form.shape, &form.shards, factors, times).1)
    }

    /// Those, with their classes, which are the same in any unit.
    fn side<'s>(&'s self, side: usize, shards: &'s [Shard]) -> Side<'s> {
        Side { shards, classes: &self.forms[side].classes }
    }
}

fn ones(shape: &Dims) -> Dims {
    let mut ones = *shape;
    ones.iter_mut().for_each(|value| *value = 1);
    ones
}

/// The source of every demand, tensor by tensor.
///
/// Sends that leave no choice are counted first and large tensors are dealt before small ones, so
/// that the last choices, which can only be evened out by chance, are about few bytes.
fn choose(templates: &Templates, of: &[Scaled], world: u32) -> Choices {
    let mut balance = Balance::new(world, &templates.sets.sets);
    let all: Vec<Summary> =
        (0..templates.len() as u32).map(|at| Summary::of(templates, at)).collect();
    for scaled in of.iter().filter(|scaled| all[scaled.template as usize].has_only) {
        for demand in templates.demands(scaled.template) {
            if let Supply::Only(src) = demand.supply {
                balance.add(src, templates.need(demand).units * scaled.unit_bytes);
            }
        }
    }
    let summary_of = |tensor: usize| &all[of[tensor].template as usize];
    let bytes_of = |tensor: usize| summary_of(tensor).units * of[tensor].unit_bytes;
    let mut order: Vec<usize> =
        (0..of.len()).filter(|&tensor| summary_of(tensor).has_choice).collect();
    order.sort_by_key(|&tensor| std::cmp::Reverse(bytes_of(tensor)));
    let mut choices = Choices { first: vec![0; of.len()], chosen: Vec::new() };
    for tensor in order {
        let Scaled { template, unit_bytes, .. } = of[tensor];
        let source = |demand: &Demand| match demand.supply {
            Supply::AnyOf(set) => {
                Some(balance.choose(set, templates.need(demand).units * unit_bytes))
            }
            Supply::Own | Supply::Only(_) => None,
        };
        choices.first[tensor] = choices.chosen.len();
        choices.chosen.extend(templates.demands(template).iter().filter_map(source));
    }
    choices
}

/// What choosing sources needs to know of a template.
#[derive(Default)]
struct Summary {
    units: u64,
    /// Some demand can be met by several ranks.
    has_choice: bool,
    /// Some demand can be met by one other rank only.
    has_only: bool,
}

impl Summary {
    fn of(templates: &Templates, template: u32) -> Self {
        let mut summary = Self::default();
        for demand in templates.demands(template) {
            summary.units += templates.need(demand).units;
            summary.has_choice |= matches!(demand.supply, Supply::AnyOf(_));
            summary.has_only |= matches!(demand.supply, Supply::Only(_));
        }
        summary
    }
}

/// The sources chosen for the demands that leave a choice.
struct Choices {
    /// Where each tensor's begin.
    first: Vec<usize>,
    chosen: Vec<u32>,
}

/// Writes the transfers, or those of the plan's rank, and counts all traffic.
fn emit(plan: &mut TransferPlan, mut templates: Templates, of: &[Scaled], choices: &Choices) {
    let mut traffic = TrafficCounter::new(plan.world);
    let mut copies = Copies::new(&mut templates);
    for (tensor, &Scaled { template, unit, unit_bytes }) in of.iter().enumerate() {
        let mut chosen = choices.chosen[choices.first[tensor]..].iter();
        let skipped = templates.copies_of(template).start as u32;
        let base = copies.in_elements(&templates, template, unit);
        for demand in templates.demands(template) {
            let (dst, need) = (demand.dst, templates.need(demand));
            let src = match demand.supply {
                Supply::Own => dst,
                Supply::Only(src) => src,
                Supply::AnyOf(_) => *chosen.next().expect("one choice for each open demand"),
            };
            let bytes = need.units * unit_bytes;
            plan.bytes_total += bytes;
            if src != dst {
                traffic.add(src, dst, bytes, templates.padded_bytes(need, unit_bytes));
            }
            if plan.rank.is_none_or(|rank| rank == src || rank == dst) {
                let tensor = tensor as u32;
                let op = |copy| TransferOp { tensor, src, dst, copy: base + (copy - skipped) };
                plan.ops.extend((need.copies.0..need.copies.1).map(op));
            }
        }
    }
    plan.traffic = traffic.finish();
    plan.copies = copies.all;
}

/// The boxes of templates in elements; tensors of one placement share them.
struct Copies {
    all: Vec<CopyBox>,
    /// The first unit that each template was asked for in: its boxes become those, in their place.
    units: Vec<Option<Dims>>,
    /// Where boxes in other units start.
    others: FxHashMap<(u32, Dims), u32>,
    last: Option<((u32, Dims), u32)>,
}

impl Copies {
    fn new(templates: &mut Templates) -> Self {
        let units = vec![None; templates.len()];
        Self { all: templates.take_copies(), units, others: FxHashMap::default(), last: None }
    }

    /// The number of the first box of `template`, of which a unit is `unit` elements.
    fn in_elements(&mut self, templates: &Templates, template: u32, unit: Dims) -> u32 {
        let key = (template, unit);
        if let Some((same, first)) = self.last
            && same == key
        {
            return first;
        }
        let range = templates.copies_of(template);
        let first = match &mut self.units[template as usize] {
            new @ None => {
                *new = Some(unit);
                self.all[range.clone()].iter_mut().for_each(|copy| copy.scale(&unit));
                range.start as u32
            }
            Some(known) if *known == unit => range.start as u32,
            Some(known) => *self.others.entry(key).or_insert_with(|| {
                let first = self.all.len();
                self.all.extend_from_within(range);
                for copy in &mut self.all[first..] {
                    copy.unscale(known);
                    copy.scale(&unit);
                }
                first as u32
            }),
        };
        self.last = Some((key, first));
        first
    }
}

fn fingerprint(from: &Layout, to: &Layout, options: &PlanOptions) -> u64 {
    let mut hasher = Fingerprint::new(1);
    hasher.word(from.fingerprint());
    hasher.word(to.fingerprint());
    options.fingerprint(&mut hasher);
    hasher.finish()
}
