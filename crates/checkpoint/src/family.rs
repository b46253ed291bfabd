//! Built-in rules, what they need to know about a model's heads, and targets such as `tp=4,pp=2`.

use std::path::Path;

use serde::Deserialize;
use syncline_reshard::{Mesh, MeshLayout, NamedStage, ReshardError, Stage, TensorRule, TensorSpec};

use crate::error::CheckpointError;

/// Axes in the order in which ranks count them, fastest first; others follow.
const AXES: [&str; 4] = ["tp", "ep", "pp", "dp"];

/// The tensors that an output matrix may share its values with.
const EMBEDDINGS: [&str; 3] = ["model.embed_tokens.weight", "transformer.wte.weight", "wte.weight"];

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
pub fn parse_rules(text: &str) -> Result<Vec<TensorRule>, ReshardError> {
    let form: Result<RulesForm, _> = toml::from_str(text);
    form.map(|form| form.tensor).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start.min(text.len()));
        let line = text.get(..at).unwrap_or("").matches('\n').count() + 1;
        ReshardError::Syntax { place: format!("line {line}"), cause: error.message().to_owned() }
    })
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

/// Numbers of heads, from a model's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Heads {
    query: u64,
    key_value: u64,
    size: u64,
}

#[derive(Deserialize)]
struct ConfigForm {
    #[serde(alias = "n_head")]
    num_attention_heads: Option<u64>,
    num_key_value_heads: Option<u64>,
    head_dim: Option<u64>,
    #[serde(alias = "n_embd")]
    hidden_size: Option<u64>,
}

fn read_heads(folder: &Path) -> Option<Heads> {
    let text = std::fs::read_to_string(folder.join("config.json")).ok()?;
    let config: ConfigForm = serde_json::from_str(&text).ok()?;
    let query = config.num_attention_heads.filter(|&heads| heads > 0)?;
    let key_value = config.num_key_value_heads.unwrap_or(query).max(1);
    let size =
        config.head_dim.or_else(|| Some(config.hidden_size? / query)).filter(|&size| size > 0)?;
    Some(Heads { query, key_value, size })
}

/// Adds the built-in rules after those that `layout` has, fitted to the model whose configuration is in `folder`.
///
/// Attention is split between heads where their sizes are known; an output matrix that is absent is tied to the
/// embeddings.
pub fn add_builtin_rules(layout: &mut MeshLayout, specs: &[TensorSpec], folder: &Path) {
    layout.rules.extend(builtin_rules());
    // The rules speak of tp, which may be left out where it is 1.
    if !layout.mesh.axes.iter().any(|(axis, _)| axis == "tp") {
        layout.mesh.axes.insert(0, ("tp".to_owned(), 1));
    }
    tie_output(layout, specs);
    fit_heads(layout, folder);
}

/// Key-value heads that are fewer than the PEs of tp are held by several; queries stay with their key-value head.
fn fit_heads(layout: &mut MeshLayout, folder: &Path) {
    let Some(heads) = read_heads(folder) else { return };
    let tp = layout.mesh.size("tp");
    let group = (heads.query / heads.key_value).max(1);
    let shared = tp > heads.key_value && tp.is_multiple_of(heads.key_value);
    let mut split = Vec::new();
    for rule in std::mem::take(&mut layout.rules) {
        if rule.pattern == "**.self_attn.{q,k,v}_proj.{weight,bias}" {
            // With key-value heads shared, queries are split evenly within their group.
            let query_unit = if shared { heads.size } else { heads.size * group };
            let part = |name: &str, unit, parts| {
                let mut rule = rule.clone();
                rule.pattern = rule.pattern.replace("{q,k,v}", name);
                rule.shard[0].unit = Some(unit);
                rule.shard[0].parts = parts;
                rule
            };
            split.push(part("q", query_unit, None));
            split.push(part("{k,v}", heads.size, shared.then_some(heads.key_value)));
            continue;
        }
        let mut rule = rule;
        let unit = match rule.pattern.as_str() {
            "**.self_attn.o_proj.weight" if shared => Some(heads.size),
            "**.self_attn.o_proj.weight" => Some(heads.size * group),
            "gpt_neox.layers.*.attention.query_key_value.{weight,bias}" => Some(heads.size * 3),
            "gpt_neox.layers.*.attention.dense.weight" => Some(heads.size),
            "**.h.*.attn.c_attn.weight" | "**.h.*.attn.c_attn.bias" => Some(heads.size),
            "**.h.*.attn.c_proj.weight" => Some(heads.size),
            _ => None,
        };
        if let (Some(unit), Some(shard)) = (unit, rule.shard.first_mut()) {
            shard.unit = Some(unit);
        }
        split.push(rule);
    }
    layout.rules = split;
}

/// A model without an output matrix uses its embeddings: the last stage needs them too.
fn tie_output(layout: &mut MeshLayout, specs: &[TensorSpec]) {
    let has = |name: &str| specs.iter().any(|spec| spec.name == name);
    let Some(embeddings) = EMBEDDINGS.into_iter().find(|name| has(name)) else { return };
    if has("lm_head.weight") {
        return;
    }
    if let Some(rule) = layout.rules.iter_mut().find(|rule| rule.pattern == "lm_head.weight") {
        rule.tied_to = Some(embeddings.to_owned());
        rule.stage = Some(Stage::Named(NamedStage::Last));
    }
}
