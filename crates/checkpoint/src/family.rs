//! Rules by the description of a model's family, and targets such as `tp=4,pp=2`.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::path::Path;

use serde::Deserialize;
use syncline_layout::{
    BlockRule, Dims, LayoutError, Mesh, MeshLayout, NamedStage, ShardRule, Stage, TensorRule,
    TensorSpec,
};

use crate::error::CheckpointError;
use crate::meaning::{
    Block, Known, Meanings, Space, is_embedding, is_output, layer_name, pattern_of,
};
use crate::model::{Heads, Model};
use crate::scales::scale_rules;

/// Axes in the order in which ranks count them, fastest first; others follow.
const AXES: [&str; 4] = ["tp", "ep", "pp", "dp"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RulesForm {
    tensor: Vec<TensorRule>,
}

/// Reads rules, `[[tensor]]` entries as in a mesh layout.
pub fn parse_rules(text: &str) -> Result<Vec<TensorRule>, LayoutError> {
    let form: RulesForm = syncline_files::from_toml(text)?;
    Ok(form.tensor)
}

/// The mesh that `tp=4,pp=2` and the like stand for.
///
/// ```
/// let mesh = syncline_checkpoint::parse_target("pp=2,tp=4")?;
/// assert_eq!(mesh.axes, [("tp".to_owned(), 4), ("pp".to_owned(), 2)]);
/// # Ok::<(), syncline_checkpoint::CheckpointError>(())
/// ```
pub fn parse_target(text: &str) -> Result<Mesh, CheckpointError> {
    let wrong = || {
        CheckpointError::Target(format!(
            "`{text}`: expected axes such as tp=4,pp=2, the file of a layout, or hf"
        ))
    };
    let mut axes = Vec::new();
    for axis in text.split(',') {
        let (name, size) = axis.split_once('=').ok_or_else(wrong)?;
        let size: u64 = size.trim().parse().ok().filter(|&size| size > 0).ok_or_else(wrong)?;
        axes.push((name.trim().to_owned(), size));
    }
    let place = |name: &str| AXES.iter().position(|axis| *axis == name).unwrap_or(AXES.len());
    axes.sort_by_key(|(name, _)| place(name));
    Ok(Mesh { axes, ..Default::default() })
}

/// Adds the rules of the model's family after the rules that `layout` has; the model is that of the
/// checkpoint at `source`.
///
/// Attention is split between heads where their numbers are known; an output matrix that is absent
/// is tied to the embeddings. An error says why the axes make no sense for this model. Whether the
/// layout is right is for [`Conversion::new`](crate::Conversion::new) to find out.
pub fn add_builtin_rules(
    layout: &mut MeshLayout,
    specs: &[TensorSpec],
    source: &Path,
) -> Result<(), CheckpointError> {
    if let Some((axis, _)) = layout.mesh.axes.iter().find(|(axis, _)| !AXES.contains(&&**axis)) {
        let cause = format!("axis `{axis}` is not known: expected {}", AXES.join(", "));
        return Err(CheckpointError::Target(cause));
    }
    let model = Model::read(source);
    // The rules speak of tp, which may be left out where it is 1.
    if !layout.mesh.axes.iter().any(|(axis, _)| axis == "tp") {
        layout.mesh.axes.insert(0, ("tp".to_owned(), 1));
    }
    let own = layout.rules.iter().any(|rule| splits(rule, "tp"));
    layout.rules.extend(tied_output(specs, &model));
    let rules = family_rules(specs, &model, &layout.mesh);
    let is_split = own || rules.iter().any(|rule| splits(rule, "tp"));
    layout.rules.extend(rules);
    check_target(layout, specs)?;
    if layout.mesh.size("tp") > 1 && !is_split {
        let cause =
            "tp splits nothing: no rule knows a tensor of this model: give rules of its own";
        return Err(CheckpointError::Target(cause.to_owned()));
    }
    Ok(())
}

fn splits(rule: &TensorRule, axis: &str) -> bool {
    rule.shard.iter().any(|shard| shard.axis == axis)
}

/// The name of the family that the model of the checkpoint at `source` is of, if it is described.
pub fn family_name(source: &Path) -> Option<&'static str> {
    Model::read(source).family().map(|family| family.name.as_str())
}

/// The type of the model of the checkpoint at `source`, as its configuration says.
pub fn model_type(source: &Path) -> Option<String> {
    Model::read(source).kind
}

/// Refuses more stages than layers, and ranks for experts that are not there.
pub fn check_target(layout: &MeshLayout, specs: &[TensorSpec]) -> Result<(), CheckpointError> {
    let refused = |cause: String| Err(CheckpointError::Target(cause));
    let (stages, ep) = (layout.mesh.size("pp"), layout.mesh.size("ep"));
    let is_split = |axis: &str| layout.rules.iter().any(|rule| splits(rule, axis));
    if stages > 1 && !is_split("pp") {
        let rules = layout.rules_of(specs)?;
        let in_stages = specs
            .iter()
            .zip(rules)
            .filter(|(_, rule)| rule.is_none_or(|rule| layout.rules[rule].stage.is_none()));
        let last = in_stages.filter_map(|(spec, _)| layout.numbers.layer(&spec.name)).max();
        let layers = last.map_or(0, |last| last.saturating_add(1));
        if stages > layers {
            return refused(format!(
                "pp={stages}: the model has {layers} layers, one stage each at most"
            ));
        }
    }
    if ep == 1 || is_split("ep") {
        return Ok(());
    }
    let last = specs.iter().filter_map(|spec| layout.numbers.expert(&spec.name)).max();
    match last.map(|last| last.saturating_add(1)) {
        Some(experts) if experts >= ep => Ok(()),
        Some(experts) => refused(format!("ep={ep}: the model has {experts} experts")),
        None => refused(format!("ep={ep}: the model has no experts that are tensors of their own")),
    }
}

/// The rules by which a model is split as the description of its family says.
fn family_rules(specs: &[TensorSpec], model: &Model, mesh: &Mesh) -> Vec<TensorRule> {
    let meanings = Meanings::new(model, specs.iter().map(|spec| (&*spec.name, spec.shape)));
    let plan = Planner { model, meanings, mesh };
    // Tensors of one pattern and shape are alike.
    let mut known: HashMap<(String, Dims), Option<TensorRule>> = HashMap::new();
    let mut by_pattern: BTreeMap<String, Vec<(&str, Option<TensorRule>)>> = BTreeMap::new();
    for spec in specs {
        let pattern = pattern_of(&spec.name);
        let rule =
            known.entry((pattern.clone(), spec.shape)).or_insert_with(|| plan.rule(&pattern, spec));
        let rules = by_pattern.entry(pattern).or_default();
        // The first of each kind stands for all, until there is another kind.
        if rules.len() != 1 || rules[0].1 != *rule {
            rules.push((&spec.name, rule.clone()));
        }
    }
    let mut rules = Vec::new();
    for (pattern, kinds) in by_pattern {
        if let [(_, rule)] = &kinds[..] {
            rules.extend(rule.clone());
            continue;
        }
        // Layers differ: each tensor by its own name.
        let named = specs.iter().filter(|spec| pattern_of(&spec.name) == pattern);
        rules.extend(named.filter_map(|spec| {
            let rule = known[&(pattern.clone(), spec.shape)].clone()?;
            Some(TensorRule { pattern: spec.name.clone(), ..rule })
        }));
    }
    rules
}

struct Planner<'a> {
    model: &'a Model,
    meanings: Meanings<'a>,
    mesh: &'a Mesh,
}

impl Planner<'_> {
    /// The rule for tensors like `spec`; `None` if no description knows them.
    fn rule(&self, pattern: &str, spec: &TensorSpec) -> Option<TensorRule> {
        if let Some((weight, shape, blocks)) = self.meanings.scaled_weight(&spec.name) {
            let weight = TensorSpec { name: weight.to_owned(), dtype: spec.dtype, shape };
            let rule = self.rule(&pattern_of(&weight.name), &weight)?;
            let shard = scale_rules(&rule.shard, &spec.shape, &blocks);
            return Some(TensorRule { pattern: pattern.to_owned(), shard, ..rule });
        }
        let plain = |stage| TensorRule {
            pattern: pattern.to_owned(),
            shard: Vec::new(),
            stage,
            tied_to: None,
        };
        let name = &spec.name;
        let is_tower = self.model.tower_of(name).is_some();
        let has_family = self.meanings.has_family(name);
        let first = || Some(Stage::Named(NamedStage::First));
        let described = self.meanings.described(name);
        let known = match described {
            Some(described) if has_family => self.meanings.by_description(name, described),
            _ if is_tower => Known::Unknown,
            _ => self.meanings.by_name(name),
        };
        let is_named = described.is_some_and(|described| has_family || !described.block.has_layers);
        if known == Known::Unknown && !is_named {
            let is_projector = name.split('.').any(|part| part == "multi_modal_projector");
            return (is_tower || is_projector).then(|| plain(first()));
        }
        let stage = match described.and_then(|described| described.block.stage) {
            _ if is_tower => first(),
            Some(stage) if layer_name(name).is_none() => Some(Stage::Named(stage)),
            _ => None,
        };
        let mut rule = plain(stage);
        let is_whole = described.is_some_and(|described| described.block.whole.is_some());
        match known {
            Known::Meaning(meaning) => {
                let key_values = match described {
                    Some(described) => self.meanings.key_values(name, described),
                    None => self.meanings.heads(&meaning.scope).ok().map(|heads| heads.key_value),
                };
                for (dim, blocks) in meaning.dims.iter().enumerate() {
                    rule.shard.extend(self.shard(dim, blocks, key_values));
                }
            }
            // What does not fit its description is split all the same, and refused for that.
            Known::Unfit(_) if self.mesh.size("tp") > 1 && !is_whole => {
                let dim = described.and_then(|described| described.split_dim());
                let dim = dim.or(Some(0)).filter(|&dim| dim < spec.shape.len());
                let plain = |dim| ShardRule {
                    dim: dim as i64,
                    axis: "tp".to_owned(),
                    ..Default::default()
                };
                rule.shard.extend(dim.map(plain));
            }
            _ => {}
        }
        Some(rule)
    }

    /// How a dimension is split that these blocks fill.
    fn shard(&self, dim: usize, blocks: &[Block], key_values: Option<u64>) -> Option<ShardRule> {
        let first = blocks.first()?;
        let axis = if first.space == Space::Experts { "ep" } else { "tp" };
        let ranks = self.mesh.size(axis);
        if ranks == 1 {
            return None;
        }
        let rule = ShardRule { dim: dim as i64, axis: axis.to_owned(), ..Default::default() };
        let parts: Vec<BlockRule> =
            blocks.iter().map(|block| block_rule(block, key_values, ranks)).collect();
        let is_alike = parts.iter().all(|part| *part == parts[0]);
        let BlockRule { unit, parts: among, groups, .. } = parts[0].clone();
        Some(match is_alike {
            true if parts.len() == 1 => ShardRule { unit, parts: among, groups, ..rule },
            true => {
                let stride = Some(parts.len() as u64);
                ShardRule { stride, unit, parts: among, groups, ..rule }
            }
            false => ShardRule { blocks: Some(parts), ..rule },
        })
    }
}

/// How a block is split over `ranks`; as it falls where its items are too few, to be refused.
fn block_rule(block: &Block, key_values: Option<u64>, ranks: u64) -> BlockRule {
    let Block { space, items, unit } = *block;
    let rule = BlockRule { size: items * unit, ..Default::default() };
    let by = |unit| BlockRule { unit: Some(unit), ..rule.clone() };
    let key_values = key_values.filter(|&count| count > 0);
    match (space, key_values) {
        (Space::Shared, _) => BlockRule { parts: Some(1), ..rule },
        (Space::Query, Some(count)) if items.is_multiple_of(count) => {
            let heads = Heads { query: items, key_value: count, size: unit };
            match heads.can_split(ranks) {
                false => rule,
                // Query heads go where their key-value head goes.
                true if ranks <= count => by(unit * heads.group()),
                // Key-value heads are held by several ranks, which share the query heads of each.
                true => BlockRule { groups: Some(count), ..by(unit) },
            }
        }
        (Space::KeyValue, _) if ranks > items => {
            // One for several ranks.
            let parts = Some(items).filter(|&items| ranks.is_multiple_of(items));
            BlockRule { parts, ..by(unit) }
        }
        _ if items < ranks => rule,
        (Space::Inner | Space::Vocabulary, _) if unit == 1 => rule,
        _ => by(unit),
    }
}

/// How names of encoders begin, which many models without a head have.
const ENCODERS: [&str; 5] = ["bert.", "roberta.", "distilbert.", "electra.", "embeddings."];

/// A model without an output matrix uses its embeddings: the last stage needs them too. `None` for
/// models that turn vectors into nothing, and for those of which that is not known.
fn tied_output(specs: &[TensorSpec], model: &Model) -> Option<TensorRule> {
    if model.has_head == Some(false) || model.is_untied {
        return None;
    }
    let mut names = specs.iter().map(|spec| spec.name.as_str());
    if names.clone().any(is_output) {
        return None;
    }
    let embedding = names.find(|name| is_embedding(name))?;
    if names.any(is_embedding) {
        // The names do not say which of them it is: with stages, the proof refuses.
        return None;
    }
    let is_encoder = ENCODERS.iter().any(|prefix| embedding.starts_with(prefix));
    // A model that was saved without the head that its class may have has names without a prefix.
    let is_bare = embedding.split('.').count() == 2;
    if model.has_head.is_none() && (is_encoder || is_bare) {
        return None;
    }
    let output = match embedding {
        "gpt_neox.embed_in.weight" => "embed_out.weight",
        "embedding.word_embeddings.weight" => "output_layer.weight",
        name if name.starts_with("language_model.model.") => "language_model.lm_head.weight",
        name if name.starts_with("bert.") => "cls.predictions.decoder.weight",
        name if name.starts_with("roberta.") => "lm_head.decoder.weight",
        name if name.starts_with("distilbert.") => "vocab_projector.weight",
        name if name.starts_with("electra.") => "generator_lm_head.weight",
        "model.embeddings.tok_embeddings.weight" => "decoder.weight",
        _ => "lm_head.weight",
    };
    Some(TensorRule {
        pattern: output.to_owned(),
        shard: vec![ShardRule { dim: 0, axis: "tp".to_owned(), ..Default::default() }],
        stage: Some(Stage::Named(NamedStage::Last)),
        tied_to: Some(embedding.to_owned()),
    })
}
