//! Building plans: pair the tensors, look up what each pair of placements takes, choose sources.

use super::balance::Balance;
use super::recoding::{BlockPlacements, Blocks, Recoding, consumed};
use super::source::Source;
use super::template::{Demand, RankSets, Supply, Template, TemplateBuilder};
use super::traffic::TrafficCounter;
use super::{PlanOptions, PlanTensor, TransferOp, TransferPlan};
use crate::dims::Dims;
use crate::error::ReshardError;
use crate::hash::{FastMap, Hasher64};
use crate::layout::{Layout, NameNumbers, Placement, gcd, scaled};

pub(super) fn build(
    from: &Layout,
    to: &Layout,
    options: &PlanOptions,
    rank: Option<u32>,
) -> Result<TransferPlan, ReshardError> {
    let tensors = pair_tensors(from, to, options)?;
    let blocks = BlockPlacements::new(from, to, &tensors)?;
    let templates = templates(from, to, &tensors, &blocks, rank)?;
    let world = from.world().max(to.world());
    let choices = choose(&templates, world);
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
    emit(&mut plan, &templates, &choices);
    Ok(plan)
}

/// The destination's tensors with their sources; refuses names, types and shapes that do not match.
fn pair_tensors(
    from: &Layout,
    to: &Layout,
    options: &PlanOptions,
) -> Result<Vec<PlanTensor>, ReshardError> {
    let blocks = Blocks::new(&options.block_scales)?;
    let mut pairs: Vec<PlanTensor> = Vec::with_capacity(to.tensors().len());
    for (index, target) in (0u32..).zip(to.tensors()) {
        let name = target.name();
        if let Some(pair) = blocks.pair(from, to, index)? {
            check_pair(from, to, options, &pair)?;
            pairs.push(pair);
            continue;
        }
        // A tensor that the source has only under the name of one tied to it is that one.
        let names = [name].into_iter().chain(target.aliases().iter().map(String::as_str));
        let Some(at) = names.into_iter().find_map(|name| from.index_of(name)) else {
            return Err(unmatched(from, to, name, true));
        };
        let source = &from.tensors()[at];
        let (src_dtype, dst_dtype) = (source.dtype(), target.dtype());
        let (name, from_at, recoding) = (name.to_owned(), at as u32, Recoding::Elements);
        let pair = PlanTensor { name, from: from_at, to: index, src_dtype, dst_dtype, recoding };
        check_pair(from, to, options, &pair)?;
        pairs.push(pair);
    }
    let consumed = consumed(&pairs);
    for (index, source) in (0u32..).zip(from.tensors()) {
        let mut names = source.aliases().iter().map(String::as_str).chain([source.name()]);
        if names.all(|name| to.index_of(name).is_none()) && !consumed.contains(&index) {
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
) -> Result<(), ReshardError> {
    if let Recoding::BlockScales { .. } = pair.recoding {
        // Checked with the tensor whose scales these are.
        return Ok(());
    }
    let (src_dtype, dst_dtype) = (pair.src_dtype, pair.dst_dtype);
    if !options.conversions.allows(src_dtype, dst_dtype) {
        let tensor = pair.name.clone();
        return Err(ReshardError::DtypeMismatch { tensor, from: src_dtype, to: dst_dtype });
    }
    let source = from.tensors()[pair.from as usize].shape();
    let target = to.tensors()[pair.to as usize].shape();
    if source != target {
        let tensor = pair.name.clone();
        let (from, to) = (Box::new(*source), Box::new(*target));
        return Err(ReshardError::ShapeMismatch { tensor, from, to });
    }
    Ok(())
}

/// The error for a tensor that only one layout has: about expert counts where those differ, else about the name.
fn unmatched(from: &Layout, to: &Layout, tensor: &str, in_destination: bool) -> ReshardError {
    let numbers = NameNumbers::default();
    let tensor_name = tensor.to_owned();
    if let Some(kind) = numbers.expert_kind(tensor) {
        let count = |layout: &Layout| {
            let names = layout.tensors().iter().map(|tensor| tensor.name());
            names.filter(|name| numbers.expert_kind(name).as_ref() == Some(&kind)).count() as u64
        };
        let (from, to) = (count(from), count(to));
        if from != to && from > 0 && to > 0 {
            return ReshardError::ExpertCount { tensor: tensor_name, from, to };
        }
    }
    if in_destination {
        ReshardError::UnknownTensor { tensor: tensor_name }
    } else {
        ReshardError::MissingTensor { tensor: tensor_name }
    }
}

/// The templates, and which of them each tensor has.
struct Templates {
    all: Vec<Template>,
    of: Vec<Scaled>,
    sets: RankSets,
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

/// One template for each pair of placements, those of one form taken as one, and the template of each tensor.
fn templates(
    from: &Layout,
    to: &Layout,
    tensors: &[PlanTensor],
    blocks: &BlockPlacements,
    rank: Option<u32>,
) -> Result<Templates, ReshardError> {
    let mut made = Templates { all: Vec::new(), of: Vec::new(), sets: RankSets::default() };
    made.of.reserve_exact(tensors.len());
    let mut known: FastMap<PairKey, u32> = FastMap::default();
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
                        let builder =
                            TemplateBuilder { tensor: &tensor.name, unit: pair.unit, rank };
                        let (source, target) = (pair.source(), pair.target());
                        let source = Source::new(&source);
                        made.all.push(builder.build(&source, &target, &mut made.sets)?);
                        let template = made.all.len() as u32 - 1;
                        known.insert(pair.key, template);
                        template
                    }
                };
                (template, pair.unit)
            }
        };
        last = Some((pair, (template, unit)));
        let unit_bytes = unit.volume() * tensor.unit_bytes()[1];
        made.of.push(Scaled { template, unit, unit_bytes });
    }
    Ok(made)
}

/// What decides a template: two forms, and how many units of the pair one of theirs has along each dimension.
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

    fn source(&self) -> Placement {
        self.in_units(0)
    }

    fn target(&self) -> Placement {
        self.in_units(1)
    }

    fn in_units(&self, side: usize) -> Placement {
        let Placement { shape, shards, hash, .. } = self.forms[side];
        let (shape, shards) =
            scaled(shape, shards, &self.factors[side], |value, factor| value * factor);
        Placement { shape, shards, hash: *hash, form: None }
    }
}

fn ones(shape: &Dims) -> Dims {
    let mut ones = *shape;
    ones.iter_mut().for_each(|value| *value = 1);
    ones
}

/// The source of every demand, tensor by tensor.
///
/// Sends that leave no choice are counted first and large tensors are dealt before small ones, so that the last choices,
/// which can only be evened out by chance, are about few bytes.
fn choose(templates: &Templates, world: u32) -> Choices {
    let mut balance = Balance::new(world, &templates.sets.sets);
    let all = &templates.all;
    let units_of: Vec<u64> =
        all.iter().map(|template| template.demands.iter().map(|each| each.units).sum()).collect();
    let open = |demand: &Demand| matches!(demand.supply, Supply::AnyOf(_));
    let has_choice: Vec<bool> =
        all.iter().map(|template| template.demands.iter().any(open)).collect();
    for scaled in &templates.of {
        for demand in &all[scaled.template as usize].demands {
            if let Supply::Only(src) = demand.supply {
                balance.add(src, demand.units * scaled.unit_bytes);
            }
        }
    }
    let template_of = |tensor: usize| templates.of[tensor].template as usize;
    let bytes_of = |tensor: usize| units_of[template_of(tensor)] * templates.of[tensor].unit_bytes;
    let mut order: Vec<usize> =
        (0..templates.of.len()).filter(|&tensor| has_choice[template_of(tensor)]).collect();
    order.sort_by_key(|&tensor| std::cmp::Reverse(bytes_of(tensor)));
    let mut choices = Choices { first: vec![0; templates.of.len()], chosen: Vec::new() };
    for tensor in order {
        let Scaled { unit_bytes, .. } = templates.of[tensor];
        let source = |demand: &Demand| match demand.supply {
            Supply::AnyOf(set) => Some(balance.choose(set, demand.units * unit_bytes)),
            Supply::Own | Supply::Only(_) => None,
        };
        choices.first[tensor] = choices.chosen.len();
        choices.chosen.extend(all[template_of(tensor)].demands.iter().filter_map(source));
    }
    choices
}

/// The sources chosen for the demands that leave a choice.
struct Choices {
    /// Where each tensor's begin.
    first: Vec<usize>,
    chosen: Vec<u32>,
}

/// Writes the transfers, or those of the plan's rank, and counts all traffic.
fn emit(plan: &mut TransferPlan, templates: &Templates, choices: &Choices) {
    let mut traffic = TrafficCounter::new(plan.world);
    // Where the boxes of a template in some unit are; tensors of one placement share them.
    let mut first_copy: FastMap<(u32, Dims), u32> = FastMap::default();
    let mut last: Option<((u32, Dims), u32)> = None;
    for (tensor, &Scaled { template, unit, unit_bytes }) in templates.of.iter().enumerate() {
        let key = (template, unit);
        let template = &templates.all[template as usize];
        let mut chosen = choices.chosen[choices.first[tensor]..].iter();
        let base = match last {
            Some((same, base)) if same == key => base,
            _ => *first_copy.entry(key).or_insert_with(|| {
                let first = plan.copies.len() as u32;
                plan.copies.extend(template.copies.iter().map(|copy| copy.scaled(&unit)));
                first
            }),
        };
        last = Some((key, base));
        for demand in &template.demands {
            let dst = demand.dst;
            let src = match demand.supply {
                Supply::Own => dst,
                Supply::Only(src) => src,
                Supply::AnyOf(_) => *chosen.next().expect("one choice for each open demand"),
            };
            let bytes = demand.units * unit_bytes;
            plan.bytes_total += bytes;
            if src != dst {
                traffic.add(src, dst, bytes, template.padded_bytes(demand, unit_bytes));
            }
            if plan.rank.is_none_or(|rank| rank == src || rank == dst) {
                let tensor = tensor as u32;
                let op = |copy| TransferOp { tensor, src, dst, copy: base + copy };
                plan.ops.extend((demand.copies.0..demand.copies.1).map(op));
            }
        }
    }
    plan.traffic = traffic.finish();
}

fn fingerprint(from: &Layout, to: &Layout, options: &PlanOptions) -> u64 {
    let mut hasher = Hasher64::new(1);
    hasher.word(from.fingerprint());
    hasher.word(to.fingerprint());
    options.fingerprint(&mut hasher);
    hasher.finish()
}
