//! Forms: the same values under other names, fused, split, stacked.
//!
//! A [`MapRule`] says how tensors of one form make those of another. [`Checkpoint::mapped`] gives a
//! checkpoint that has the other form: nothing is copied, its tensors are put together from parts
//! of the files when they are read.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use syncline_layout::{Dims, Layout, LayoutError, NdBox, Piece, Shard};

use crate::element::ElementType;
use crate::error::CheckpointError;
use crate::model::{KEY_VALUE_HEADS, Model, QUERY_HEADS};
use crate::source::{Checkpoint, Place};

/// How tensors of one form make those of another.
///
/// Each `*` of `from` stands for the same text in `to`, in order.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct MapRule {
    /// The names that are replaced: a pattern, or several whose tensors are joined.
    pub from: MapNames,
    /// The names that replace them: a pattern, or several between which a tensor is split.
    pub to: MapNames,
    /// The dimension along which parts follow each other.
    #[serde(default)]
    pub dim: usize,
    /// The shares of the parts in each group; equal ones if absent.
    #[serde(default)]
    pub parts: Option<Vec<Count>>,
    /// So many groups, each with its share of every part; 1 if absent.
    #[serde(default)]
    pub groups: Option<Count>,
}

/// One pattern or several.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(untagged)]
pub enum MapNames {
    /// One tensor.
    One(String),
    /// The parts of one tensor.
    Several(Vec<String>),
}

/// A number, or a number of heads of the model.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(untagged)]
pub enum Count {
    /// As it is.
    Number(u64),
    /// `Q` query heads, `K` key-value heads, `g` query heads for each of these.
    Heads(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MapsForm {
    map: Vec<MapRule>,
}

/// Reads `[[map]]` rules.
pub fn parse_maps(text: &str) -> Result<Vec<MapRule>, LayoutError> {
    let form: MapsForm = syncline_files::from_toml(text)?;
    Ok(form.map)
}

/// The built-in maps: `hf-to-megatron`, `hf-to-vllm` and back.
pub const BUILTIN_MAPS: [&str; 4] =
    ["hf-to-megatron", "megatron-to-hf", "hf-to-vllm", "vllm-to-hf"];

/// The types of models that the built-in maps are for. Others have tensors of the same names and
/// shapes that mean something else, such as norms behind the attention.
const MAPPED_MODELS: [&str; 7] =
    ["llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe"];

/// The rules of a built-in map for the tensors of `source`; `None` if there is no map of this name.
///
/// # Errors
/// Fails if the map is not for models of this type.
pub fn builtin_maps(
    name: &str,
    source: &Checkpoint,
) -> Result<Option<Vec<MapRule>>, CheckpointError> {
    let (text, is_back) = match name {
        "hf-to-megatron" => (include_str!("rules/megatron.toml"), false),
        "megatron-to-hf" => (include_str!("rules/megatron.toml"), true),
        "hf-to-vllm" => (include_str!("rules/vllm.toml"), false),
        "vllm-to-hf" => (include_str!("rules/vllm.toml"), true),
        _ => return Ok(None),
    };
    let rules = parse_maps(text).expect("the built-in maps are tested");
    let kind = Model::read(source.folder()).kind;
    if !kind.as_deref().is_some_and(|kind| MAPPED_MODELS.contains(&kind)) {
        let kind = kind.as_deref().unwrap_or("unknown");
        let known = MAPPED_MODELS.join(", ");
        let cause = format!(
            "the model's type in config.json is `{kind}`, and this map is for {known}: write a \
             file with [[map]] rules"
        );
        return Err(CheckpointError::Map { rule: name.to_owned(), cause });
    }
    // The norm before experts has a place of its own, and Mixtral has names of its own for them.
    let is_mixtral = kind.as_deref() == Some("mixtral");
    let fits = |rule: &MapRule| {
        let is_of = |words: &str| {
            rule.from.all().iter().chain(&rule.to.all()).any(|name| name.contains(words))
        };
        let is_expert = is_of(".experts.") || is_of(".mlp.gate.");
        let is_other = match (name.contains("megatron"), is_mixtral) {
            (false, _) => false,
            (true, true) => is_expert && !is_of("block_sparse_moe"),
            (true, false) => is_of("block_sparse_moe"),
        };
        !is_other
    };
    let mut rules: Vec<MapRule> = rules.into_iter().filter(fits).collect();
    if is_back {
        rules.reverse();
        rules = rules.iter().map(MapRule::inverse).collect();
    }
    let layers = layers_with_experts(source);
    let rules = rules.into_iter().flat_map(|rule| rule.of_layers(&layers)).collect();
    Ok(Some(rules))
}

/// The numbers of the layers, and which of them have experts.
fn layers_with_experts(source: &Checkpoint) -> BTreeMap<u64, bool> {
    let mut layers = BTreeMap::new();
    for tensor in source.layout().tensors() {
        let mut parts = tensor.name().split('.').skip_while(|part| *part != "layers").skip(1);
        let Some(number) = parts.next().and_then(|part| part.parse().ok()) else { continue };
        *layers.entry(number).or_insert(false) |= parts.any(|part| part == "experts");
    }
    layers
}

/// The tensors that one is split into along its first dimension, at most: more than any model has
/// experts, and few enough that a hostile shape does no harm.
const UNSTACKED_MAX: u64 = 1 << 16;

/// A tensor of some form: where its parts lie in files.
#[derive(Clone)]
struct Virtual {
    element: ElementType,
    shape: Dims,
    parts: Vec<Part>,
}

/// A run of bytes of a file as an array of `shape`, of which pieces belong to the tensor.
#[derive(Clone)]
struct Part {
    place: Place,
    shape: Dims,
    pieces: Vec<Piece>,
}

impl MapRule {
    /// The inverse of the rule.
    pub fn inverse(&self) -> Self {
        Self { from: self.to.clone(), to: self.from.clone(), ..self.clone() }
    }

    /// The rule for the layers that it is for. The norm before the experts of a layer has a name of
    /// its own in Megatron's form: where only some layers have experts, a rule for each layer.
    fn of_layers(self, layers: &BTreeMap<u64, bool>) -> Vec<Self> {
        let names = |words: &str| {
            self.from.all().iter().chain(&self.to.all()).any(|name| name.contains(words))
        };
        let is_for_experts = match () {
            () if names("pre_mlp_layernorm") => true,
            () if names("linear_fc1.layer_norm_weight") => false,
            () => return vec![self],
        };
        if layers.values().all(|has_experts| *has_experts == is_for_experts) {
            return vec![self];
        }
        let of = |pattern: &MapNames, layer: u64| {
            let name = |name: &str| name.replacen('*', &layer.to_string(), 1);
            match pattern {
                MapNames::One(pattern) => MapNames::One(name(pattern)),
                MapNames::Several(all) => {
                    MapNames::Several(all.iter().map(|pattern| name(pattern)).collect())
                }
            }
        };
        let own = layers.iter().filter(|(_, has_experts)| **has_experts == is_for_experts);
        let rule = |(&layer, _): (&u64, _)| Self {
            from: of(&self.from, layer),
            to: of(&self.to, layer),
            ..self.clone()
        };
        own.map(rule).collect()
    }

    fn error(&self, cause: impl std::fmt::Display) -> CheckpointError {
        let name = match &self.from {
            MapNames::One(name) => name.clone(),
            MapNames::Several(names) => names.join(", "),
        };
        CheckpointError::Map { rule: name, cause: cause.to_string() }
    }

    /// Replaces tensors by the tensors that they make; returns `false` if there are none.
    fn apply(
        &self,
        tensors: &mut BTreeMap<String, Virtual>,
        heads: &HashMap<char, u64>,
    ) -> Result<bool, CheckpointError> {
        let (from, to) = (self.from.all(), self.to.all());
        if from.len() != 1 && to.len() != 1 {
            return Err(self.error("either `from` or `to` has several names"));
        }
        let stars = |names: &[&str]| {
            let count = |name: &&str| name.matches('*').count();
            let first = names.first().map_or(0, count);
            names.iter().all(|name| count(name) == first).then_some(first)
        };
        let several = || self.error("its names have unlike numbers of `*`");
        let (before, after) = (stars(&from).ok_or_else(several)?, stars(&to).ok_or_else(several)?);
        let mut found: BTreeMap<Vec<String>, Vec<Option<String>>> = BTreeMap::new();
        for name in tensors.keys() {
            for (at, pattern) in from.iter().enumerate() {
                if let Some(stars) = captures(pattern, name) {
                    let names = found.entry(stars).or_insert_with(|| vec![None; from.len()]);
                    names[at] = Some(name.clone());
                    break;
                }
            }
        }
        if found.is_empty() {
            return Ok(false);
        }
        let mut made: Vec<(String, Virtual)> = Vec::new();
        let mut stacks: BTreeMap<Vec<String>, BTreeMap<u64, Virtual>> = BTreeMap::new();
        for (stars, names) in found {
            let missing = names.iter().zip(&from).find(|(name, _)| name.is_none());
            if let Some((_, pattern)) = missing {
                return Err(self.error(format_args!("`{}` is missing", filled(pattern, &stars))));
            }
            let names = names.into_iter().flatten();
            let parts: Vec<Virtual> = names.filter_map(|name| tensors.remove(&name)).collect();
            if before == after + 1 && from.len() == 1 && to.len() == 1 {
                let (last, group) = stars.split_last().expect("there is one more");
                let number = last.parse().map_err(|_| self.error("the last `*` is no number"))?;
                let stack = stacks.entry(group.to_vec()).or_default();
                for part in parts {
                    if stack.insert(number, part).is_some() {
                        return Err(self.error(format_args!("the number {number} is there twice")));
                    }
                }
            } else if before + 1 == after && from.len() == 1 && to.len() == 1 {
                for (at, part) in
                    (0u64..).zip(parts[0].unstack().map_err(|cause| self.error(cause))?)
                {
                    let stars = [&stars[..], &[at.to_string()]].concat();
                    made.push((filled(to[0], &stars), part));
                }
            } else if before != after {
                return Err(self.error("`from` and `to` have unlike numbers of `*`"));
            } else if to.len() > 1 {
                let split = self.split(&parts[0], to.len(), heads)?;
                made.extend(to.iter().map(|name| filled(name, &stars)).zip(split));
            } else {
                made.push((filled(to[0], &stars), self.join(parts, heads)?));
            }
        }
        for (stars, stack) in stacks {
            let tensor = Virtual::stack(stack).map_err(|cause| self.error(cause))?;
            made.push((filled(to[0], &stars), tensor));
        }
        for (name, tensor) in made {
            if tensors.contains_key(&name) {
                return Err(self.error(format_args!("`{name}` is there already")));
            }
            tensors.insert(name, tensor);
        }
        Ok(true)
    }

    fn number(&self, count: &Count, heads: &HashMap<char, u64>) -> Result<u64, CheckpointError> {
        let number = match count {
            Count::Number(number) => Some(*number),
            Count::Heads(text) => {
                let letter = text.chars().next().filter(|_| text.len() == 1);
                letter.and_then(|letter| heads.get(&letter)).copied()
            }
        };
        let unknown = || self.error(format_args!("{count:?} is not known: see config.json"));
        number.filter(|&number| number > 0).ok_or_else(unknown)
    }

    /// Groups, and the elements of each part in a group.
    fn sizes(
        &self,
        total: u64,
        count: usize,
        heads: &HashMap<char, u64>,
    ) -> Result<(u64, Vec<u64>), CheckpointError> {
        let groups = self.groups.as_ref().map_or(Ok(1), |groups| self.number(groups, heads))?;
        let shares = match &self.parts {
            Some(parts) => {
                parts.iter().map(|part| self.number(part, heads)).collect::<Result<_, _>>()?
            }
            None => vec![1; count],
        };
        let units = shares.iter().try_fold(0u64, |sum, &share| sum.checked_add(share));
        let units = units.and_then(|sum| sum.checked_mul(groups)).filter(|&units| units > 0);
        let unit = units.filter(|&units| total.is_multiple_of(units)).map(|units| total / units);
        match unit {
            Some(unit) if shares.len() == count => {
                Ok((groups, shares.iter().map(|share| share * unit).collect()))
            }
            _ => Err(self.error(format_args!(
                "{total} elements are no {groups} groups of {count} parts {shares:?}"
            ))),
        }
    }

    fn join(
        &self,
        parts: Vec<Virtual>,
        heads: &HashMap<char, u64>,
    ) -> Result<Virtual, CheckpointError> {
        if parts.len() == 1 {
            return Ok(parts.into_iter().next().expect("there is one"));
        }
        let (dim, first) = (self.dim, &parts[0]);
        let mut shape = first.shape;
        if dim >= shape.len() {
            return Err(self.error(format_args!("there is no dimension {dim}")));
        }
        let mut sizes = parts.iter().map(|part| part.shape.get(dim).copied());
        let size = sizes.try_fold(0u64, |all, size| all.checked_add(size?));
        shape[dim] = size.ok_or_else(|| self.error("its parts have unlike shapes"))?;
        let fits = |part: &Virtual| {
            let mut expected = shape;
            expected[dim] = part.shape.get(dim).copied().unwrap_or(0);
            part.shape == expected && part.element == first.element
        };
        if !parts.iter().all(fits) {
            return Err(self.error("its parts have unlike shapes or element types"));
        }
        let groups = self.groups.as_ref().map_or(Ok(1), |groups| self.number(groups, heads))?;
        let even = |part: &Virtual| part.shape[dim].is_multiple_of(groups);
        if !parts.iter().all(even) {
            return Err(self.error(format_args!("its parts are no {groups} groups")));
        }
        let sizes: Vec<u64> = parts.iter().map(|part| part.shape[dim] / groups).collect();
        if self.parts.is_some()
            && self.sizes(shape[dim], parts.len(), heads)? != (groups, sizes.clone())
        {
            return Err(self.error(format_args!("its parts have {sizes:?} elements in a group")));
        }
        let whole: u64 = sizes.iter().sum();
        let mut joined = Virtual { element: first.element, shape, parts: Vec::new() };
        let mut before = 0;
        for (part, size) in parts.iter().zip(&sizes) {
            let runs = (0..groups).map(|group| (group * size, group * whole + before, *size));
            joined.parts.extend(part.moved(dim, &runs.collect::<Vec<_>>()));
            before += size;
        }
        Ok(joined)
    }

    fn split(
        &self,
        tensor: &Virtual,
        count: usize,
        heads: &HashMap<char, u64>,
    ) -> Result<Vec<Virtual>, CheckpointError> {
        let dim = self.dim;
        let Some(&total) = tensor.shape.get(dim) else {
            return Err(self.error(format_args!("there is no dimension {dim}")));
        };
        let (groups, sizes) = self.sizes(total, count, heads)?;
        let whole: u64 = sizes.iter().sum();
        let mut before = 0;
        let mut found = Vec::new();
        for size in sizes {
            let runs = (0..groups).map(|group| (group * whole + before, group * size, size));
            let mut shape = tensor.shape;
            shape[dim] = groups * size;
            let parts = tensor.moved(dim, &runs.collect::<Vec<_>>());
            found.push(Virtual { element: tensor.element, shape, parts });
            before += size;
        }
        Ok(found)
    }
}

impl MapNames {
    fn all(&self) -> Vec<&str> {
        match self {
            Self::One(name) => vec![name],
            Self::Several(names) => names.iter().map(String::as_str).collect(),
        }
    }
}

impl Virtual {
    /// The parts with what lies in runs `(from, to, size)` along `dim`, moved there; the rest is
    /// left out.
    fn moved(&self, dim: usize, runs: &[(u64, u64, u64)]) -> Vec<Part> {
        let mut parts = Vec::new();
        for part in &self.parts {
            let mut pieces = Vec::new();
            for piece in &part.pieces {
                for &(from, to, size) in runs {
                    let start = piece.global.start[dim].max(from);
                    let stop = piece.global.stop(dim).min(from + size);
                    if start >= stop {
                        continue;
                    }
                    let mut cut = *piece;
                    cut.local[dim] += start - piece.global.start[dim];
                    cut.global.start[dim] = to + (start - from);
                    cut.global.size[dim] = stop - start;
                    pieces.push(cut);
                }
            }
            if !pieces.is_empty() {
                parts.push(Part { pieces, ..part.clone() });
            }
        }
        parts
    }

    /// Tensors of one shape as one, along a new first dimension.
    fn stack(tensors: BTreeMap<u64, Self>) -> Result<Self, String> {
        let count = tensors.len() as u64;
        let first = tensors.values().next().expect("there is one").clone();
        if tensors.keys().copied().ne(0..count) {
            return Err("the numbers of its tensors have gaps".to_owned());
        }
        let with = |at: u64, dims: &Dims| {
            Dims::from_slice(&[&[at], &dims[..]].concat()).ok_or("it has too many dimensions")
        };
        let mut stacked =
            Self { element: first.element, shape: with(count, &first.shape)?, parts: Vec::new() };
        for (at, tensor) in tensors {
            if tensor.shape != first.shape || tensor.element != first.element {
                return Err("its tensors have unlike shapes or element types".to_owned());
            }
            for part in tensor.parts {
                let piece = |piece: &Piece| {
                    let global = NdBox {
                        start: with(at, &piece.global.start)?,
                        size: with(1, &piece.global.size)?,
                    };
                    Ok(Piece { global, local: with(0, &piece.local)? })
                };
                let pieces = part.pieces.iter().map(piece).collect::<Result<_, &str>>()?;
                let shape = with(1, &part.shape)?;
                stacked.parts.push(Part { place: part.place, shape, pieces });
            }
        }
        Ok(stacked)
    }

    /// The tensors along the first dimension.
    fn unstack(&self) -> Result<Vec<Self>, String> {
        let Some(&count) = self.shape.first() else { return Err("it is one number".to_owned()) };
        if count > UNSTACKED_MAX {
            return Err(format!("it would become {count} tensors, {UNSTACKED_MAX} at most"));
        }
        let without = |dims: &Dims| Dims::from_slice(&dims[1..]).expect("one dimension less");
        let mut tensors = Vec::new();
        for at in 0..count {
            let mut parts = Vec::new();
            for part in &self.parts {
                for piece in &part.pieces {
                    if !(piece.global.start[0]..piece.global.stop(0)).contains(&at) {
                        continue;
                    }
                    // One row of the part's own array is one run of its bytes.
                    let row = piece.local[0] + (at - piece.global.start[0]);
                    let bytes = part.place.bytes / part.shape[0].max(1);
                    let place =
                        Place { start: part.place.start + row * bytes, bytes, ..part.place };
                    let global = NdBox {
                        start: without(&piece.global.start),
                        size: without(&piece.global.size),
                    };
                    let pieces = vec![Piece { global, local: without(&piece.local) }];
                    parts.push(Part { place, shape: without(&part.shape), pieces });
                }
            }
            let (element, shape) = (self.element, without(&self.shape));
            tensors.push(Self { element, shape, parts });
        }
        Ok(tensors)
    }
}

/// The texts that the stars of `pattern` stand for in `name`; a star stays within its part.
fn captures(pattern: &str, name: &str) -> Option<Vec<String>> {
    let (patterns, parts) = (pattern.split('.'), name.split('.'));
    if patterns.clone().count() != parts.clone().count() {
        return None;
    }
    let mut found = Vec::new();
    for (pattern, part) in patterns.zip(parts) {
        match pattern.split_once('*') {
            None if pattern == part => {}
            None => return None,
            Some((before, after)) => {
                let inside = part.strip_prefix(before)?.strip_suffix(after)?;
                found.push(inside.to_owned());
            }
        }
    }
    Some(found)
}

/// `pattern` with its stars replaced.
fn filled(pattern: &str, stars: &[String]) -> String {
    let mut pieces = pattern.split('*');
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for (piece, star) in pieces.zip(stars) {
        text += star;
        text += piece;
    }
    text
}

impl Checkpoint {
    /// The checkpoint in the form that `rules`, applied one after the other, make of it; and the
    /// rules that found no tensor.
    ///
    /// Tensors that no rule names keep their names. It has to be unsharded.
    pub fn mapped(self, rules: &[MapRule]) -> Result<(Self, Vec<MapRule>), CheckpointError> {
        let model = Model::read(self.folder());
        let stack = model.stack_of("");
        let query = stack.number(QUERY_HEADS).ok().flatten();
        // Only a configuration that says nothing means one key-value head for each query head; one
        // that contradicts itself leaves them unknown.
        let key_value = stack.number(KEY_VALUE_HEADS).ok().and_then(|known| known.or(query));
        let group = query.zip(key_value).filter(|(query, key)| query.is_multiple_of(*key));
        let group = group.map(|(query, key)| query / key);
        let heads = [('Q', query), ('K', key_value), ('g', group)];
        let heads: HashMap<char, u64> =
            heads.into_iter().filter_map(|(letter, number)| Some((letter, number?))).collect();
        let mut tensors = BTreeMap::new();
        for (index, tensor) in (0u32..).zip(self.layout().tensors()) {
            let place = self.place(index, 0).filter(|_| tensor.placement().shards().len() == 1);
            let Some(place) = place else {
                let cause = "the checkpoint is sharded: convert it with --to hf first".to_owned();
                return Err(CheckpointError::Map { rule: tensor.name().to_owned(), cause });
            };
            let shape = *tensor.shape();
            let pieces = vec![Piece { global: NdBox::whole(shape), local: shape.zeros() }];
            let part = Part { place, shape, pieces };
            let element = self.element(index);
            tensors.insert(tensor.name().to_owned(), Virtual { element, shape, parts: vec![part] });
        }
        let mut unused = Vec::new();
        for rule in rules {
            if !rule.apply(&mut tensors, &heads)? {
                unused.push(rule.clone());
            }
        }
        let mut builder = Layout::builder();
        let (mut places, mut elements) = (HashMap::new(), Vec::new());
        for (index, (name, tensor)) in (0u32..).zip(tensors) {
            // Parts stand for ranks: a plan finds what it needs in any of them.
            let mut shards = Vec::new();
            for (rank, part) in (0u32..).zip(tensor.parts) {
                places.insert((index, rank), part.place);
                shards.push(Shard { rank, shape: part.shape, pieces: part.pieces });
            }
            builder.tensor(&name, tensor.element.dtype(), &tensor.shape, shards)?;
            elements.push(tensor.element);
        }
        Ok((self.with_form(builder.finish(), places, elements), unused))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_the_same_text_on_both_sides() {
        let stars = captures("model.layers.*.w*.weight", "model.layers.12.w3.weight");
        assert_eq!(stars, Some(vec!["12".to_owned(), "3".to_owned()]));
        assert_eq!(filled("h.*.x*", &stars.unwrap()), "h.12.x3");
        assert_eq!(captures("a.*", "a.b.c"), None);
        assert_eq!(captures("a.b", "a.c"), None);
    }

    #[test]
    fn built_in_maps_can_be_read_and_inverted() {
        for text in [include_str!("rules/megatron.toml"), include_str!("rules/vllm.toml")] {
            let rules = parse_maps(text).unwrap();
            assert!(rules.len() > 4);
            assert!(rules.iter().all(|rule| rule.inverse().inverse() == *rule));
        }
    }
}
