//! Built-in rules, what they need to know about a model's heads, and targets such as `tp=4,pp=2`.

use std::path::Path;

use serde::Deserialize;
use syncline_layout::{
    LayoutError, Mesh, MeshLayout, NamedStage, ShardRule, Stage, TensorRule, TensorSpec,
};

use crate::error::CheckpointError;
use crate::meaning::{Meanings, is_embedding, is_output};
use crate::model::{Heads, Model};

/// Axes in the order in which ranks count them, fastest first; others follow.
const AXES: [&str; 4] = ["tp", "ep", "pp", "dp"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RulesForm {
    tensor: Vec<TensorRule>,
}

/// The rules for Llama, Mistral, Qwen, Mixtral, Qwen MoE, GPT-NeoX and GPT-2.
pub fn builtin_rules() -> Vec<TensorRule> {
    let form: RulesForm =
        toml::from_str(include_str!("rules/builtin.toml")).expect("the built-in rules are tested");
    form.tensor
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

/// Adds the built-in rules after those that `layout` has, fitted to the model of the checkpoint at
/// `source`.
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
    let meanings = Meanings::new(&model, specs.iter().map(|spec| (&*spec.name, spec.shape)));
    // The rules speak of tp, which may be left out where it is 1.
    if !layout.mesh.axes.iter().any(|(axis, _)| axis == "tp") {
        layout.mesh.axes.insert(0, ("tp".to_owned(), 1));
    }
    layout.rules.extend(tied_output(specs));
    layout.rules.extend(fitted_rules(specs, &meanings, layout.mesh.size("tp")));
    check_target(layout, specs)?;
    let splits = |rule: &TensorRule| rule.shard.iter().any(|shard| shard.axis == "tp");
    let is_split = |spec: &TensorSpec| layout.rule_for(&spec.name).is_some_and(splits);
    if layout.mesh.size("tp") > 1 && !specs.iter().any(is_split) {
        let cause =
            "tp splits nothing: no rule knows a tensor of this model: give rules of its own";
        return Err(CheckpointError::Target(cause.to_owned()));
    }
    Ok(())
}

/// Refuses more stages than layers, and ranks for experts that are not there.
pub fn check_target(layout: &MeshLayout, specs: &[TensorSpec]) -> Result<(), CheckpointError> {
    let refused = |cause: String| Err(CheckpointError::Target(cause));
    let (stages, ep) = (layout.mesh.size("pp"), layout.mesh.size("ep"));
    let names = || specs.iter().map(|spec| spec.name.as_str());
    let splits = |axis: &str| {
        layout.rules.iter().flat_map(|rule| &rule.shard).any(|shard| shard.axis == axis)
    };
    let last = names().filter_map(|name| layout.numbers.layer(name)).max();
    let layers = last.map_or(0, |last| last.saturating_add(1));
    if stages > 1 && stages > layers && !splits("pp") {
        return refused(format!(
            "pp={stages}: the model has {layers} layers, one stage each at most"
        ));
    }
    if ep == 1 || splits("ep") {
        return Ok(());
    }
    let last = names().filter_map(|name| layout.numbers.expert(name)).max();
    match last.map(|last| last.saturating_add(1)) {
        Some(experts) if experts >= ep => Ok(()),
        Some(experts) => refused(format!("ep={ep}: the model has {experts} experts")),
        None => refused(format!("ep={ep}: the model has no experts that are tensors of their own")),
    }
}

/// The built-in rules, fitted to the model: where the heads of a family are, and which way its
/// matrices lie.
fn fitted_rules(specs: &[TensorSpec], meanings: &Meanings<'_>, tp: u64) -> Vec<TensorRule> {
    // The first module with this name that has heads stands for all; where another differs, the
    // proof refuses.
    let module =
        |ending: &'static str| specs.iter().filter_map(move |spec| spec.name.strip_suffix(ending));
    let heads = |ending| {
        let heads = module(ending).find_map(|scope| meanings.heads(scope).ok());
        heads.filter(|heads| heads.can_split(tp))
    };
    let llama = heads(".q_proj.weight");
    let neox = heads(".query_key_value.weight");
    let gpt2 = heads(".c_attn.weight");
    let is_output_first =
        module(".c_fc.weight").find_map(|scope| meanings.is_output_first(scope)) == Some(true);
    let fit = |mut rule: TensorRule| {
        let pattern = rule.pattern.clone();
        if tp == 1 {
            // Nothing is split, whatever its shape.
            rule.shard.clear();
        }
        let Some(shard) = rule.shard.first_mut() else { return vec![rule] };
        match pattern.as_str() {
            "**.self_attn.{q,k,v}_proj.{weight,bias}" => {
                let Some(heads) = llama else { return vec![rule] };
                let (mut query, mut key) = (rule.clone(), rule);
                query.pattern = pattern.replace("{q,k,v}", "q");
                key.pattern = pattern.replace("{q,k,v}", "{k,v}");
                split_queries(&mut query.shard[0], heads, tp);
                key.shard[0].unit = Some(heads.size);
                key.shard[0].parts = (tp > heads.key_value).then_some(heads.key_value);
                return vec![query, key];
            }
            "**.self_attn.o_proj.weight" => {
                llama.iter().for_each(|heads| split_queries(shard, *heads, tp));
            }
            "gpt_neox.layers.*.attention.query_key_value.{weight,bias}" => {
                shard.unit = neox.map(|heads| heads.size * 3);
            }
            "gpt_neox.layers.*.attention.dense.weight" => shard.unit = neox.map(|heads| heads.size),
            "**.h.*.attn.c_attn.weight"
            | "**.h.*.attn.c_attn.bias"
            | "**.h.*.attn.c_proj.weight" => {
                shard.unit = gpt2.map(|heads| heads.size);
            }
            "**.h.*.mlp.c_fc.weight" | "**.h.*.mlp.c_proj.weight" if is_output_first => {
                shard.dim = 1 - shard.dim;
            }
            _ => {}
        }
        vec![rule]
    };
    builtin_rules().into_iter().flat_map(fit).collect()
}

/// Key-value heads that are fewer than the ranks of tp are held by several, among whom the query
/// heads of each are split; else query heads go where their key-value head goes.
fn split_queries(shard: &mut ShardRule, heads: Heads, tp: u64) {
    if tp > heads.key_value {
        (shard.unit, shard.groups) = (Some(heads.size), Some(heads.key_value));
    } else {
        shard.unit = Some(heads.size * heads.group());
    }
}

/// A model without an output matrix uses its embeddings: the last stage needs them too.
fn tied_output(specs: &[TensorSpec]) -> Option<TensorRule> {
    let mut names = specs.iter().map(|spec| spec.name.as_str());
    if names.clone().any(is_output) {
        return None;
    }
    let embedding = names.find(|name| is_embedding(name))?;
    if names.any(is_embedding) {
        // The names do not say which of them it is: with stages, the proof refuses.
        return None;
    }
    let output = match embedding {
        "gpt_neox.embed_in.weight" => "embed_out.weight",
        name if name.starts_with("language_model.model.") => "language_model.lm_head.weight",
        _ => "lm_head.weight",
    };
    Some(TensorRule {
        pattern: output.to_owned(),
        shard: vec![ShardRule { dim: 0, axis: "tp".to_owned(), ..Default::default() }],
        stage: Some(Stage::Named(NamedStage::Last)),
        tied_to: Some(embedding.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use syncline_layout::{Dims, expand_ranges};

    use super::*;
    use crate::meaning::Known;

    /// What a built-in rule splits is never taken for a tensor that only its user knows.
    #[test]
    fn the_proof_knows_all_that_the_rules_split() {
        let model = Model::read(Path::new("absent"));
        let shape = Dims::from_slice(&[4, 4]).unwrap();
        let mut count = 0;
        for rule in builtin_rules().iter().filter(|rule| !rule.shard.is_empty()) {
            for pattern in expand_ranges(&rule.pattern).unwrap() {
                let name = pattern.replace("**", "model.layers.0.x").replace('*', "0");
                let meanings = Meanings::new(&model, [(&*name, shape)]);
                assert_ne!(meanings.of(&name), Known::Unknown, "{name}");
                count += 1;
            }
        }
        assert!(count > 30, "{count}");
    }
}
