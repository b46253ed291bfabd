//! Building plans: pair the tensors, look up what each pair of placements takes, choose sources.

use super::balance::Balance;
use super::recoding::{BlockPlacements, Blocks, Recoding, consumed};
use super::source::Source;
use super::template::{Demand, RankSets, Supply, Template, TemplateBuilder};
use super::traffic::TrafficCounter;
use super::{PlanOptions, PlanTensor, TransferOp, TransferPlan};
use crate::error::ReshardError;
use crate::hash::{FastMap, Hasher64};
use crate::layout::{Layout, NameNumbers, Placement};

pub(super) fn build(
    from: &Layout,
    to: &Layout,
    options: &PlanOptions,
    rank: Option<u32>,
) -> Result<TransferPlan, ReshardError> {
    let tensors = pair_tensors(from, to, options)?;
    let blocks = BlockPlacements::new(from, to, &tensors)?;
    let (templates, template_of, sets) = templates(from, to, &tensors, &blocks, rank)?;
    let world = from.world().max(to.world());
    let choices = choose(&templates, &template_of, &sets, world);
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
    emit(&mut plan, &templates, &template_of, &choices);
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

/// One template for each pair of placements and element size, and the template of each tensor.
fn templates(
    from: &Layout,
    to: &Layout,
    tensors: &[PlanTensor],
    blocks: &BlockPlacements,
    rank: Option<u32>,
) -> Result<(Vec<Template>, Vec<u32>, RankSets), ReshardError> {
    let mut sets = RankSets::default();
    let mut templates = Vec::new();
    let mut template_of = Vec::with_capacity(tensors.len());
    let mut sources: FastMap<*const Placement, Source<'_>> = FastMap::default();
    let mut known: FastMap<(*const Placement, *const Placement, u64), u32> = FastMap::default();
    for tensor in tensors {
        let (source_unit, target_unit) = tensor.unit_elements();
        let source = blocks.of(from.tensors()[tensor.from as usize].placement(), source_unit);
        let target = blocks.of(to.tensors()[tensor.to as usize].placement(), target_unit);
        let element_bytes = tensor.unit_bytes()[1];
        let key = (std::ptr::from_ref(source), std::ptr::from_ref(target), element_bytes);
        let template = match known.get(&key) {
            Some(&template) => template,
            None => {
                let source = sources.entry(key.0).or_insert_with(|| Source::new(source));
                let builder = TemplateBuilder { tensor: &tensor.name, element_bytes, rank };
                templates.push(builder.build(source, target, &mut sets)?);
                let template = templates.len() as u32 - 1;
                known.insert(key, template);
                template
            }
        };
        template_of.push(template);
    }
    Ok((templates, template_of, sets))
}

/// The source of every demand, tensor by tensor.
///
/// Sends that leave no choice are counted first and large tensors are dealt before small ones, so that the last choices,
/// which can only be evened out by chance, are about few bytes.
fn choose(templates: &[Template], template_of: &[u32], sets: &RankSets, world: u32) -> Choices {
    let mut balance = Balance::new(world, &sets.sets);
    let mut bytes_of = vec![0; templates.len()];
    let mut has_choice = vec![false; templates.len()];
    for (at, template) in templates.iter().enumerate() {
        bytes_of[at] = template.demands.iter().map(|demand| demand.bytes).sum::<u64>();
        let open = |demand: &Demand| matches!(demand.supply, Supply::AnyOf(_));
        has_choice[at] = template.demands.iter().any(open);
    }
    for &template in template_of {
        for demand in &templates[template as usize].demands {
            if let Supply::Only(src) = demand.supply {
                balance.add(src, demand.bytes);
            }
        }
    }
    let mut order: Vec<usize> =
        (0..template_of.len()).filter(|&tensor| has_choice[template_of[tensor] as usize]).collect();
    order.sort_by_key(|&tensor| std::cmp::Reverse(bytes_of[template_of[tensor] as usize]));
    let mut choices = Choices { first: vec![0; template_of.len()], chosen: Vec::new() };
    for tensor in order {
        let demands = &templates[template_of[tensor] as usize].demands;
        let source = |demand: &Demand| match demand.supply {
            Supply::AnyOf(set) => Some(balance.choose(set, demand.bytes)),
            Supply::Own | Supply::Only(_) => None,
        };
        choices.first[tensor] = choices.chosen.len();
        choices.chosen.extend(demands.iter().filter_map(source));
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
fn emit(plan: &mut TransferPlan, templates: &[Template], template_of: &[u32], choices: &Choices) {
    let mut first_copy = Vec::with_capacity(templates.len());
    for template in templates {
        first_copy.push(plan.copies.len() as u32);
        plan.copies.extend_from_slice(&template.copies);
    }
    let mut traffic = TrafficCounter::new(plan.world);
    for (tensor, &template) in template_of.iter().enumerate() {
        let mut chosen = choices.chosen[choices.first[tensor]..].iter();
        for demand in &templates[template as usize].demands {
            let dst = demand.dst;
            let src = match demand.supply {
                Supply::Own => dst,
                Supply::Only(src) => src,
                Supply::AnyOf(_) => *chosen.next().expect("one choice for each open demand"),
            };
            plan.bytes_total += demand.bytes;
            if src != dst {
                traffic.add(src, dst, demand.bytes, demand.padded_bytes);
            }
            if plan.rank.is_none_or(|rank| rank == src || rank == dst) {
                let base = first_copy[template as usize];
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
