//! Forms: the same values under other names, fused, split, stacked.
//!
//! A [`MapRule`] says how tensors of one form make those of another. [`Checkpoint::mapped`] gives a
//! checkpoint that has the other form: nothing is copied, its tensors are put together from parts
//! of the files when they are read.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use syncline_layout::{Dims, LayoutError};

use crate::element::ElementType;
use crate::error::CheckpointError;
use crate::model::{KEY_VALUE_HEADS, Model, QUERY_HEADS};
use crate::source::Checkpoint;
use crate::stored::StoredTensor;

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
    /// Exchange the two dimensions of a matrix, after its size was changed.
    #[serde(default)]
    pub transpose: bool,
    /// Elements along `dim` before and after: zeros are added at the end, or elements past the
    /// end are left out.
    #[serde(default)]
    pub size: Option<[Count; 2]>,
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
    /// `Q` query heads, `K` key-value heads, `g` query heads for each of these, `V` tokens.
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

impl MapRule {
    /// The inverse of the rule. Of a rule that turns a tensor, `dim` is 0 or 1 of a matrix, counted
    /// before it is turned.
    pub fn inverse(&self) -> Self {
        let size = self.size.clone().map(|[before, after]| [after, before]);
        let dim = match self.transpose {
            true if self.dim < 2 => 1 - self.dim,
            _ => self.dim,
        };
        Self { from: self.to.clone(), to: self.from.clone(), size, dim, ..self.clone() }
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
        tensors: &mut BTreeMap<String, StoredTensor>,
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
        let mut made: Vec<(String, StoredTensor)> = Vec::new();
        let mut stacks: BTreeMap<Vec<String>, BTreeMap<u64, StoredTensor>> = BTreeMap::new();
        for (stars, names) in found {
            let missing = names.iter().zip(&from).find(|(name, _)| name.is_none());
            if let Some((_, pattern)) = missing {
                return Err(self.error(format_args!("`{}` is missing", filled(pattern, &stars))));
            }
            let names = names.into_iter().flatten();
            let parts: Vec<StoredTensor> = names.filter_map(|name| tensors.remove(&name)).collect();
            let parts = match self.changes_shape() {
                true => vec![self.reshaped(parts, to.len(), heads)?],
                false => parts,
            };
            if before == after + 1 && from.len() == 1 && to.len() == 1 {
                let (last, group) = stars.split_last().expect("there is one more");
                let number = last.parse().map_err(|_| self.error("the last `*` is no number"))?;
                let known = stacks.entry(group.to_vec()).or_default();
                for part in parts {
                    if known.insert(number, part).is_some() {
                        return Err(self.error(format_args!("the number {number} is there twice")));
                    }
                }
            } else if before + 1 == after && from.len() == 1 && to.len() == 1 {
                for (at, part) in
                    (0u64..).zip(unstack(&parts[0]).map_err(|cause| self.error(cause))?)
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
        for (stars, group) in stacks {
            let tensor = stack(group).map_err(|cause| self.error(cause))?;
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

    /// Returns `true` if the rule turns, pads or trims a tensor.
    fn changes_shape(&self) -> bool {
        self.transpose || self.size.is_some()
    }

    /// The one tensor, turned, and with zeros added or elements left out at its end.
    fn reshaped(
        &self,
        tensors: Vec<StoredTensor>,
        targets: usize,
        heads: &HashMap<char, u64>,
    ) -> Result<StoredTensor, CheckpointError> {
        let Ok([mut tensor]) = <[StoredTensor; 1]>::try_from(tensors) else {
            return Err(self.error("`transpose` and `size` are for one tensor on both sides"));
        };
        if targets != 1 {
            return Err(self.error("`transpose` and `size` are for one tensor on both sides"));
        }
        if let Some([before, after]) = &self.size {
            let (before, after) = (self.number(before, heads)?, self.number(after, heads)?);
            if tensor.shape.get(self.dim) != Some(&before) {
                let (shape, dim) = (tensor.shape, self.dim);
                return Err(self.error(format_args!("{shape} has no {before} along {dim}")));
            }
            tensor.boxes = tensor.moved(self.dim, &[(0, 0, before.min(after))]);
            tensor.shape[self.dim] = after;
            let is_counted = |volume: u64| volume.checked_mul(8).is_some();
            if !tensor.shape.checked_volume().is_some_and(is_counted) {
                return Err(self.error("it would be too large"));
            }
        }
        if !self.transpose {
            return Ok(tensor);
        }
        if tensor.shape.len() != 2 {
            return Err(self.error("only a matrix can be turned"));
        }
        if !matches!(tensor.element, ElementType::Known(_)) {
            return Err(self.error("packed elements cannot be turned"));
        }
        tensor.transposed().ok_or_else(|| self.error("only a matrix can be turned"))
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
        parts: Vec<StoredTensor>,
        heads: &HashMap<char, u64>,
    ) -> Result<StoredTensor, CheckpointError> {
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
        let fits = |part: &StoredTensor| {
            let mut expected = shape;
            expected[dim] = part.shape.get(dim).copied().unwrap_or(0);
            part.shape == expected && part.element == first.element
        };
        if !parts.iter().all(fits) {
            return Err(self.error("its parts have unlike shapes or element types"));
        }
        let groups = self.groups.as_ref().map_or(Ok(1), |groups| self.number(groups, heads))?;
        let even = |part: &StoredTensor| part.shape[dim].is_multiple_of(groups);
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
        let mut joined = StoredTensor { element: first.element, shape, boxes: Vec::new() };
        let mut before = 0;
        for (part, size) in parts.iter().zip(&sizes) {
            let runs = (0..groups).map(|group| (group * size, group * whole + before, *size));
            joined.boxes.extend(part.moved(dim, &runs.collect::<Vec<_>>()));
            before += size;
        }
        Ok(joined)
    }

    fn split(
        &self,
        tensor: &StoredTensor,
        count: usize,
        heads: &HashMap<char, u64>,
    ) -> Result<Vec<StoredTensor>, CheckpointError> {
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
            let boxes = tensor.moved(dim, &runs.collect::<Vec<_>>());
            found.push(StoredTensor { element: tensor.element, shape, boxes });
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

/// Tensors of one shape as one, along a new first dimension.
fn stack(tensors: BTreeMap<u64, StoredTensor>) -> Result<StoredTensor, String> {
    let count = tensors.len() as u64;
    let first = tensors.values().next().expect("there is one").clone();
    if tensors.keys().copied().ne(0..count) {
        return Err("the numbers of its tensors have gaps".to_owned());
    }
    let deep = || "it has too many dimensions".to_owned();
    let shape = Dims::from_slice(&[&[count], &first.shape[..]].concat()).ok_or_else(deep)?;
    let mut boxes = Vec::new();
    for (at, tensor) in tensors {
        if tensor.shape != first.shape || tensor.element != first.element {
            return Err("its tensors have unlike shapes or element types".to_owned());
        }
        boxes.extend(tensor.stacked(at).ok_or_else(deep)?);
    }
    Ok(StoredTensor { element: first.element, shape, boxes })
}

/// The tensors along the first dimension.
fn unstack(tensor: &StoredTensor) -> Result<Vec<StoredTensor>, String> {
    let (&count, shape) = tensor.shape.split_first().ok_or("it is one number")?;
    if count > UNSTACKED_MAX {
        return Err(format!("it would become {count} tensors, {UNSTACKED_MAX} at most"));
    }
    let shape = Dims::from_slice(shape).expect("one dimension less");
    let row = |at| StoredTensor { element: tensor.element, shape, boxes: tensor.unstacked(at) };
    Ok((0..count).map(row).collect())
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
        let tokens = stack.number(&["vocab_size"]).ok().flatten();
        let heads = [('Q', query), ('K', key_value), ('g', group), ('V', tokens)];
        let heads: HashMap<char, u64> =
            heads.into_iter().filter_map(|(letter, number)| Some((letter, number?))).collect();
        let mut tensors = self.whole_tensors().map_err(|name| {
            let cause = "the checkpoint is sharded: convert it with --to hf first".to_owned();
            CheckpointError::Map { rule: name, cause }
        })?;
        let mut unused = Vec::new();
        for rule in rules {
            if !rule.apply(&mut tensors, &heads)? {
                unused.push(rule.clone());
            }
        }
        Ok((self.with_tensors(tensors)?, unused))
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
