//! Whether a layout is right for its model: judged by what tensors mean, never by the rules that
//! made it.
//!
//! A layout is proven where every rank holds whole heads, each query head with its key-value head,
//! and the same units on both sides of every block; where no tensor of a block that is split is
//! unknown; where every element is held, and every stage has the matrices that it needs.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;
use std::sync::Arc;

use syncline_layout::{Layout, NdBox, Placement, Shard, TensorLayout};

use crate::meaning::{
    Block, Known, Meaning, Meanings, Role, Space, is_embedding, is_output, layer_name, pattern_of,
};
use crate::model::Model;
use crate::scales::lie_with;

/// Parts of names by which tensors that predict several tokens at once are known.
const PREDICTORS: [&str; 6] = ["mtp", "nextn", "eh_proj", "enorm", "hnorm", "shared_head"];

/// Parts of names of tensors that are added to embeddings.
const POSITIONS: [&str; 5] = [
    "wpe",
    "embed_positions",
    "position_embeddings",
    "position_embedding",
    "token_type_embeddings",
];

/// Finds out why `layout` is not known to be right for `model`, each reason once; none if it is.
pub(crate) fn doubts(layout: &Layout, model: &Model) -> Vec<String> {
    let shapes = layout.tensors().iter().map(|tensor| (tensor.name(), *tensor.shape()));
    let proof = Proof { layout, model, meanings: Meanings::new(model, shapes) };
    let mut found = BTreeSet::new();
    proof.coverage(&mut found);
    proof.layers(&mut found);
    proof.stages(&mut found);
    found.into_iter().collect()
}

struct Proof<'a> {
    layout: &'a Layout,
    model: &'a Model,
    meanings: Meanings<'a>,
}

/// A tensor of a block with its meaning.
struct Member<'a> {
    tensor: &'a TensorLayout,
    known: Known,
    is_split: bool,
}

impl<'a> Proof<'a> {
    /// Every element is held by some rank, and every shard is filled.
    fn coverage(&self, found: &mut BTreeSet<String>) {
        let mut seen = HashSet::new();
        for tensor in self.layout.tensors() {
            if !seen.insert(Arc::as_ptr(tensor.placement())) {
                continue;
            }
            if let Err(cause) = check_coverage(tensor.placement()) {
                found.insert(format!("`{}`: {cause}", pattern_of(tensor.name())));
            }
        }
    }

    /// Layers, and the tensors beside them; alike layers are judged once.
    fn layers(&self, found: &mut BTreeSet<String>) {
        let mut layers: BTreeMap<&str, Vec<&'a TensorLayout>> = BTreeMap::new();
        for tensor in self.layout.tensors() {
            layers.entry(layer_of(tensor.name())).or_default().push(tensor);
        }
        let mut seen = HashSet::new();
        for (layer, tensors) in layers {
            let alike = |tensor: &&'a TensorLayout| {
                (&tensor.name()[layer.len()..], Arc::as_ptr(tensor.placement()))
            };
            let key: Vec<_> = tensors.iter().map(alike).collect();
            if seen.insert((pattern_of(layer), key)) {
                self.layer(&tensors, found);
            }
        }
    }

    fn layer(&self, tensors: &[&'a TensorLayout], found: &mut BTreeSet<String>) {
        let member = |tensor: &&'a TensorLayout| {
            let (placement, shape) = (tensor.placement(), *tensor.shape());
            let is_split = placement.shards().iter().any(|shard| shard.shape != shape);
            Member { tensor, known: self.meanings.of(tensor.name()), is_split }
        };
        let members: Vec<Member<'_>> = tensors.iter().map(member).collect();
        let mut blocks: BTreeMap<&str, Vec<&Member<'_>>> = BTreeMap::new();
        let mut scopes: BTreeMap<&str, Vec<&Member<'_>>> = BTreeMap::new();
        for member in &members {
            blocks.entry(block_of(member.tensor.name())).or_default().push(member);
            if let Known::Meaning(meaning) = &member.known {
                scopes.entry(&meaning.scope).or_default().push(member);
            }
        }
        blocks.values().for_each(|members| self.block(members, found));
        for (scope, members) in scopes {
            if !members.iter().any(|member| member.is_split) {
                continue;
            }
            let meanings = members.iter().filter_map(|member| match &member.known {
                Known::Meaning(meaning) => Some((member.tensor, meaning)),
                _ => None,
            });
            if let Err(cause) = check_scope(&meanings.collect::<Vec<_>>()) {
                found.insert(format!("`{}`: {cause}", pattern_of(scope)));
            }
        }
    }

    /// Of a block of which a part is split, all is known and fits.
    fn block(&self, members: &[&Member<'_>], found: &mut BTreeSet<String>) {
        let is_known = |member: &&&Member<'_>| member.is_split && member.known != Known::Unknown;
        let Some(split) = members.iter().find(is_known) else { return };
        let mut unfit: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for Member { tensor, known, .. } in members {
            let pattern = pattern_of(tensor.name());
            if let Some(lie_right) = self.scales(tensor) {
                if !lie_right {
                    let cause = "the splits of its weight do not fall on the blocks of its scales";
                    found.insert(format!("`{pattern}`: {cause}"));
                }
                continue;
            }
            match known {
                Known::Unfit(cause) => drop(unfit.entry(cause).or_default().insert(pattern)),
                // One number stands for the whole of a tensor, on whichever rank.
                Known::Unknown if tensor.shape().volume() != 1 => {
                    let beside = pattern_of(split.tensor.name());
                    found.insert(format!("`{pattern}` is not known, and `{beside}` is split"));
                }
                _ => {}
            }
        }
        for (cause, patterns) in unfit {
            let only = patterns.first().filter(|_| patterns.len() == 1);
            let block = || pattern_of(block_of(split.tensor.name()));
            found.insert(format!("`{}`: {cause}", only.cloned().unwrap_or_else(block)));
        }
    }

    /// Whether scales lie with the blocks of their weight; `None` if the tensor is none.
    fn scales(&self, tensor: &TensorLayout) -> Option<bool> {
        let (weight, _, blocks) = self.meanings.scaled_weight(tensor.name())?;
        Some(lie_with(tensor, self.layout.tensor(weight)?, &blocks))
    }

    /// Where layers are on different ranks, the first and the last one have what they need.
    fn stages(&self, found: &mut BTreeSet<String>) {
        let mut layers: BTreeMap<(&str, u64), BTreeSet<u32>> = BTreeMap::new();
        let (mut others, mut towers) = (Vec::new(), Vec::new());
        for tensor in self.layout.tensors() {
            if is_tower(tensor.name()) {
                towers.push(tensor);
                continue;
            }
            match layer_name(tensor.name()) {
                Some(at) => layers.entry((at.stack, at.layer)).or_default().extend(ranks(tensor)),
                None => others.push(tensor),
            }
        }
        let all: BTreeSet<u32> = self.layout.tensors().iter().flat_map(ranks).collect();
        let Some(((stack, first), first_ranks)) = layers.first_key_value() else { return };
        if layers.values().all(|ranks| *ranks == all) {
            return;
        }
        let (other, last) = layers.last_key_value().expect("there is a first one").0;
        if other != stack {
            found.insert(format!("stages cut through `{stack}` and `{other}` alike"));
            return;
        }
        if *first != 0 || layers.len() as u64 != last + 1 {
            found.insert(format!("stages: `{stack}` has {first} to {last} with gaps"));
        }
        let is_predictor = |name: &str| name.split('.').any(|part| PREDICTORS.contains(&part));
        let mut layered = self.layout.tensors().iter().map(TensorLayout::name);
        let predictor = layered.find(|name| {
            let in_layer = layer_name(name).is_some_and(|at| at.rest.contains("embed_tokens"));
            is_predictor(name) || in_layer
        });
        if let Some(name) = predictor {
            let name = pattern_of(name);
            found.insert(format!(
                "stages: `{name}` predicts more tokens, with matrices of other stages"
            ));
        } else if let Some(count) = self.model.layers.filter(|&count| count != last + 1) {
            let layers = last + 1;
            found
                .insert(format!("stages: `{stack}` has {layers} layers, config.json says {count}"));
        }
        // What sees or hears feeds the first layer.
        for tensor in towers {
            if !first_ranks.is_subset(&ranks(tensor).collect()) {
                let name = pattern_of(tensor.name());
                found.insert(format!("the first stage lacks `{name}`"));
            }
        }
        let last_ranks = &layers[&(*stack, *last)];
        self.ends(&others, first_ranks, last_ranks, &all, found);
    }

    /// The tensors beside layers: tensors that only some ranks hold are with the layers that need
    /// them.
    fn ends(
        &self,
        others: &[&TensorLayout],
        first: &BTreeSet<u32>,
        last: &BTreeSet<u32>,
        all: &BTreeSet<u32>,
        found: &mut BTreeSet<String>,
    ) {
        let is_output_tensor = |tensor: &TensorLayout| tensor.names().any(is_output);
        let has_output = others.iter().any(|tensor| is_output_tensor(tensor))
            || self.model.has_head == Some(false);
        for tensor in others {
            let (name, ranks) = (tensor.name(), ranks(tensor).collect::<BTreeSet<_>>());
            if ranks == *all {
                continue;
            }
            let parts: Vec<&str> = name.split('.').collect();
            let at_end = match parts[..] {
                [
                    ..,
                    "norm" | "ln_f" | "final_layer_norm" | "final_layernorm" | "norm_f"
                    | "embedding_norm" | "layer_norm",
                    _,
                ] => true,
                [.., "lm_head" | "embed_out", "bias"] => true,
                [.., part, "weight"] if POSITIONS.contains(&part) => false,
                [.., "word_embeddings_layernorm", _] => false,
                _ if is_embedding(name) || is_output(name) => false,
                _ => {
                    found.insert(format!("`{name}` is not known, and only some stages hold it"));
                    continue;
                }
            };
            let start = ["wpe", "embed_positions", "word_embeddings_layernorm"];
            let at_start = is_embedding(name) || parts.iter().any(|part| start.contains(part));
            let at_end = at_end || is_output_tensor(tensor) || (is_embedding(name) && !has_output);
            if at_start && !first.is_subset(&ranks) {
                found.insert(format!("the first stage lacks `{name}`"));
            }
            if at_end && !last.is_subset(&ranks) {
                found.insert(format!("the last stage lacks `{name}`"));
            }
        }
    }
}

/// Returns `true` for tensors of what a model sees and hears with.
fn is_tower(name: &str) -> bool {
    let words = ["visual", "vision_tower", "vision_model", "multi_modal_projector", "audio_tower"];
    name.split('.').any(|part| words.contains(&part))
}

fn ranks(tensor: &TensorLayout) -> impl Iterator<Item = u32> {
    tensor.placement().shards().iter().map(|shard| shard.rank)
}

/// The layer that a tensor is of: `model.layers.3`, or nothing.
fn layer_of(name: &str) -> &str {
    match layer_name(name) {
        Some(at) if !at.rest.is_empty() => &name[..name.len() - at.rest.len() - 1],
        Some(_) => name,
        None => "",
    }
}

/// The part of a model that a tensor computes with: `model.layers.3.mlp`, or the module that it is
/// of.
fn block_of(name: &str) -> &str {
    match layer_name(name) {
        Some(at) if !at.rest.is_empty() => {
            let part = at.rest.split('.').next().unwrap_or_default();
            &name[..name.len() - at.rest.len() + part.len()]
        }
        _ => name.rsplit_once('.').map_or(name, |(module, _)| module),
    }
}

fn check_coverage(placement: &Placement) -> Result<(), String> {
    let mut boxes = HashSet::new();
    for shard in placement.shards() {
        let filled: u64 = shard.pieces.iter().map(|piece| piece.global.volume()).sum();
        if filled != shard.shape.volume() {
            return Err(format!("rank {} has elements that nothing fills", shard.rank));
        }
        boxes.extend(shard.pieces.iter().map(|piece| piece.global));
    }
    let mut rest = vec![NdBox::whole(*placement.shape())];
    for held in &boxes {
        let mut next = Vec::new();
        rest.iter().for_each(|open| open.subtract(held, |left| next.push(left)));
        next.retain(|left| !left.is_empty());
        rest = next;
    }
    rest.retain(|left| !left.is_empty());
    rest.first().map_or(Ok(()), |left| Err(format!("no rank holds {left}")))
}

/// The tensors of one module: on every rank all of them, with the same items.
fn check_scope(members: &[(&TensorLayout, &Meaning)]) -> Result<(), String> {
    let blocks = || members.iter().flat_map(|(_, meaning)| meaning.dims.iter().flatten());
    let mut counts = BTreeMap::new();
    for block in blocks() {
        let known = *counts.entry(block.space).or_insert(block.items);
        if known != block.items {
            let (what, items) = (block.space.name(), block.items);
            return Err(format!("{known} {what} on one side and {items} on the other"));
        }
    }
    let has = |role| members.iter().any(|(_, meaning)| meaning.role == role);
    if counts.keys().any(|&space| ![Space::Vocabulary, Space::Shared].contains(&space))
        && !(has(Role::Producer) && has(Role::Consumer))
    {
        let name = members[0].0.name().rsplit('.').take(2).collect::<Vec<_>>();
        return Err(format!("`{}.{}` has no partner", name.last().unwrap_or(&""), name[0]));
    }
    let mut by_rank: BTreeMap<u32, Vec<Held<'_>>> = BTreeMap::new();
    for (tensor, meaning) in members {
        for shard in tensor.placement().shards() {
            let held = Held { tensor, meaning, shard };
            by_rank.entry(shard.rank).or_default().push(held);
        }
    }
    // Ranks that hold the same are judged once.
    let mut seen = HashSet::new();
    for (rank, held) in by_rank {
        if held.len() < members.len() {
            let lacks = |tensor: &&TensorLayout| tensor.placement().shard(rank).is_none();
            let missing = members.iter().map(|(tensor, _)| *tensor).find(lacks);
            let missing = missing.map_or("", |tensor| tensor.name());
            return Err(format!("rank {rank} lacks `{}`", pattern_of(missing)));
        }
        let key: Vec<_> = held.iter().map(|held| held.shard.pieces.clone()).collect();
        if seen.insert(key) {
            check_rank(&held, &counts)
                .map_err(|cause| format!("rank {rank} {cause}{}", way_out(&counts)))?;
        }
    }
    Ok(())
}

/// By how many ranks heads can be split, where there are heads.
fn way_out(counts: &BTreeMap<Space, u64>) -> String {
    let query = counts.get(&Space::Query).copied();
    let key_value = counts.get(&Space::KeyValue).copied().or(query);
    match (query, key_value) {
        (Some(query), Some(key_value)) => format!(
            " (of {query} query and {key_value} key-value heads: whole ones go to at most {key_value} ranks, \
             or to a multiple of that up to {query})"
        ),
        _ => String::new(),
    }
}

/// What a rank holds of a tensor.
struct Held<'a> {
    tensor: &'a TensorLayout,
    meaning: &'a Meaning,
    shard: &'a Shard,
}

fn check_rank(held: &[Held<'_>], counts: &BTreeMap<Space, u64>) -> Result<(), String> {
    let mut items: BTreeMap<Space, (Vec<Range<u64>>, &str)> = BTreeMap::new();
    for Held { tensor, meaning, shard } in held {
        let leaf = leaf(tensor.name());
        for (dim, blocks) in meaning.dims.iter().enumerate() {
            let spans = spans(shard, dim)
                .ok_or_else(|| format!("holds boxes of `{leaf}` that are no split of it"))?;
            if blocks.is_empty() {
                if spans != whole_spans(tensor.shape()[dim]) {
                    return Err(format!(
                        "holds a part of dimension {dim} of `{leaf}`, to be whole"
                    ));
                }
                continue;
            }
            for (block, found) in blocks.iter().zip(items_of(&spans, blocks)) {
                let what = block.space.name();
                let found = found.ok_or_else(|| format!("holds parts of {what} in `{leaf}`"))?;
                if found.is_empty() && block.items > 0 {
                    let count = block.items;
                    return Err(format!("holds none of the {count} {what} of `{leaf}`"));
                }
                match items.get(&block.space) {
                    Some((known, other)) if *known != found => {
                        return Err(format!("holds other {what} in `{leaf}` than in `{other}`"));
                    }
                    _ => drop(items.insert(block.space, (found, leaf))),
                }
            }
        }
    }
    let (Some((query, _)), Some((key_value, _))) =
        (items.get(&Space::Query), items.get(&Space::KeyValue))
    else {
        return Ok(());
    };
    check_heads(query, key_value, counts)
}

/// Query head `at` of a rank finds its key-value head where a rank that counts its own looks for
/// it.
fn check_heads(
    query: &[Range<u64>],
    key_value: &[Range<u64>],
    counts: &BTreeMap<Space, u64>,
) -> Result<(), String> {
    let group = counts[&Space::Query] / counts[&Space::KeyValue].max(1);
    let query: Vec<u64> = query.iter().cloned().flatten().collect();
    let key_value: Vec<u64> = key_value.iter().cloned().flatten().collect();
    for &head in &query {
        let needed = head / group.max(1);
        if key_value.binary_search(&needed).is_err() {
            return Err(format!("has query head {head} without its key-value head {needed}"));
        }
    }
    let share = query.len() / key_value.len().max(1);
    let finds = |(at, &head): (usize, &u64)| {
        key_value.get(at / share.max(1)).is_some_and(|&key| key == head / group.max(1))
    };
    if share * key_value.len() != query.len() || !query.iter().enumerate().all(finds) {
        let (query, key_value) = (query.len(), key_value.len());
        return Err(format!(
            "has {query} query heads that share its {key_value} key-value heads unevenly"
        ));
    }
    Ok(())
}

fn leaf(name: &str) -> &str {
    let at = name.rmatch_indices('.').nth(1).map_or(0, |(at, _)| at + 1);
    &name[at..]
}

fn whole_spans(size: u64) -> Vec<Range<u64>> {
    if size == 0 { Vec::new() } else { std::iter::once(0..size).collect() }
}

/// What `shard` holds along `dim`, in the order of the tensor; `None` if it is no split of its
/// dimensions.
fn spans(shard: &Shard, dim: usize) -> Option<Vec<Range<u64>>> {
    let part = |piece: &syncline_layout::Piece| {
        (piece.local[dim], piece.global.start[dim], piece.global.size[dim])
    };
    let mut parts: Vec<_> = shard.pieces.iter().map(part).collect();
    parts.sort_unstable();
    parts.dedup();
    let mut spans: Vec<Range<u64>> = Vec::new();
    let mut next = 0;
    for (local, start, size) in parts {
        if local != next || spans.last().is_some_and(|last| start < last.end) {
            return None;
        }
        next += size;
        match spans.last_mut() {
            Some(last) if last.end == start => last.end += size,
            _ => spans.push(start..start + size),
        }
    }
    let is_empty = shard.pieces.is_empty() && shard.shape.volume() == 0;
    (next == shard.shape[dim] || is_empty).then_some(spans)
}

/// The items of each of `blocks` that `spans` hold; `None` for a block of which items are cut.
fn items_of(spans: &[Range<u64>], blocks: &[Block]) -> Vec<Option<Vec<Range<u64>>>> {
    let mut start = 0;
    let mut of_block = |block: &Block| {
        let end = start + block.items * block.unit;
        let within = spans.iter().filter_map(|span| {
            let (from, to) = (span.start.max(start), span.end.min(end));
            (from < to).then(|| from - start..to - start)
        });
        let is_cut = |part: &Range<u64>| {
            !part.start.is_multiple_of(block.unit) || !part.end.is_multiple_of(block.unit)
        };
        let parts: Vec<Range<u64>> = within.collect();
        start = end;
        let item = |part: &Range<u64>| part.start / block.unit..part.end / block.unit;
        (!parts.iter().any(is_cut)).then(|| parts.iter().map(item).collect())
    };
    blocks.iter().map(&mut of_block).collect()
}
