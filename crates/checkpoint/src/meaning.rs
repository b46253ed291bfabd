//! What the dimensions of a tensor stand for in its model, known from names, shapes and the
//! configuration.
//!
//! Rules say how tensors are split; this says what a split must respect. The two share nothing, so
//! that one can judge the other.

use std::collections::HashMap;

use syncline_layout::Dims;

use crate::describe::{Described, describe, family_in};
use crate::model::{Heads, Model};
use crate::scales::{scale_blocks, weight_of};

/// What the items along a dimension are. Tensors of one module hold the same items of each on a
/// rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Space {
    Query,
    KeyValue,
    /// Units between the two matrices of a feed-forward block.
    Inner,
    Vocabulary,
    Experts,
    /// Heads or channels of another kind, by the letter of their description.
    Group(char),
    /// What every rank needs as a whole.
    Shared,
}

impl Space {
    /// The space that a letter of a description stands for.
    pub(crate) fn of(letter: char) -> Self {
        match letter {
            'Q' => Self::Query,
            'K' => Self::KeyValue,
            'I' => Self::Inner,
            'V' => Self::Vocabulary,
            'E' => Self::Experts,
            _ => Self::Group(letter),
        }
    }

    /// What its items are called.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Query => "query heads",
            Self::KeyValue => "key-value heads",
            Self::Inner => "inner units",
            Self::Vocabulary => "tokens",
            Self::Experts => "experts",
            Self::Group(_) => "groups",
            Self::Shared => "shared rows",
        }
    }
}

/// A run of `items` along a dimension, each of `unit` elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Block {
    pub space: Space,
    pub items: u64,
    pub unit: u64,
}

/// The side of a module that a tensor is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Makes the items.
    Producer,
    /// Takes them up again.
    Consumer,
    /// Neither, or both in one.
    Other,
}

/// What a tensor is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meaning {
    /// The module that it computes with.
    pub scope: String,
    pub role: Role,
    /// Blocks of each dimension; none where it must stay whole.
    pub dims: Vec<Vec<Block>>,
}

/// Knowledge of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    Meaning(Meaning),
    /// A known name with a shape or a configuration that does not fit it.
    Unfit(String),
    Unknown,
}

/// Where a name says that its layer is.
pub(crate) struct LayerName<'a> {
    /// Up to the number: `model.layers`.
    pub stack: &'a str,
    pub layer: u64,
    /// After the number.
    pub rest: &'a str,
}

/// Splits the name of a layer's tensor.
pub(crate) fn layer_name(name: &str) -> Option<LayerName<'_>> {
    let mut follows = false;
    let mut start = 0;
    for part in name.split('.') {
        if follows && let Ok(layer) = part.parse() {
            let rest = name.get(start + part.len() + 1..).unwrap_or_default();
            return Some(LayerName { stack: &name[..start - 1], layer, rest });
        }
        follows = ["layers", "layer", "h", "blocks", "block"].contains(&part);
        start += part.len() + 1;
    }
    None
}

/// `name` with its numbers replaced: equal for the same tensor of all layers and experts.
pub fn pattern_of(name: &str) -> String {
    let part = |part| if is_number(part) { "*" } else { part };
    name.split('.').map(part).collect::<Vec<_>>().join(".")
}

fn is_number(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns `true` for the matrix that turns tokens into vectors.
pub(crate) fn is_embedding(name: &str) -> bool {
    let parts: Vec<&str> = name.split('.').collect();
    let words = [
        "embed_tokens",
        "wte",
        "embed_in",
        "word_embeddings",
        "tok_embeddings",
        "token_embedding",
        "embeddings",
        "shared",
    ];
    matches!(parts[..], [.., word, "weight"] if words.contains(&word)) && layer_name(name).is_none()
}

/// Returns `true` for the matrix that turns vectors into tokens.
pub(crate) fn is_output(name: &str) -> bool {
    let parts: Vec<&str> = name.split('.').collect();
    let words = ["lm_head", "embed_out", "proj_out", "output", "output_layer", "output_projection"];
    let [.., word, "weight"] = parts[..] else { return false };
    words.contains(&word) && layer_name(name).is_none()
}

/// Role and blocks of the dimensions, or why the tensor is not what its name says.
pub(crate) type Split = Result<(Role, Vec<Vec<Block>>), String>;

/// The tensors of a model, and their meanings.
pub(crate) struct Meanings<'a> {
    model: &'a Model,
    shapes: HashMap<&'a str, Dims>,
}

impl<'a> Meanings<'a> {
    pub(crate) fn new(
        model: &'a Model,
        tensors: impl IntoIterator<Item = (&'a str, Dims)>,
    ) -> Self {
        Self { model, shapes: tensors.into_iter().collect() }
    }

    /// What the tensor `name` is: by what this module knows of names, or else by the description of
    /// the model's family.
    pub(crate) fn of(&self, name: &str) -> Known {
        let described = self.described(name).filter(|_| self.has_family(name));
        let Some(described) = described else { return self.by_name(name) };
        if described.block.whole.is_some() {
            return self.by_description(name, described);
        }
        match (self.by_name(name), self.by_description(name, described)) {
            (known @ Known::Meaning(_), _) => known,
            (_, known @ Known::Meaning(_)) => known,
            (Known::Unknown, other) | (other, _) => other,
        }
    }

    /// Returns `true` if a description knows the family of the model, or of the tower that the
    /// tensor is of.
    pub(crate) fn has_family(&self, name: &str) -> bool {
        family_in(self.model.stack_of(name)).is_some()
    }

    /// The weight that the scales `name` are of, its shape, and its elements for each scale; `None`
    /// if these are no scales, or their blocks are not known.
    pub(crate) fn scaled_weight<'n>(&self, name: &'n str) -> Option<(&'n str, Dims, Dims)> {
        let weight = weight_of(name)?;
        let (shape, scales) = (*self.shapes.get(weight)?, self.shapes.get(name)?);
        let blocks = scale_blocks(&shape, scales, &self.model.scale_block)?;
        Some((weight, shape, blocks))
    }

    /// The description of the tensor: in the model's family, or among what many have in common.
    pub(crate) fn described(&self, name: &str) -> Option<Described> {
        describe(name, self.model.stack_of(name))
    }

    /// What the tensor is by the description.
    pub(crate) fn by_description(&self, name: &str, described: Described) -> Known {
        let Some(shape) = self.shapes.get(name) else { return Known::Unknown };
        let scope = described.scope(name);
        let split = described.split(shape, self.model.stack_of(name), self.query_rows(&scope));
        match split {
            Ok((role, dims)) => Known::Meaning(Meaning { scope, role, dims }),
            Err(cause) => Known::Unfit(cause),
        }
    }

    /// Key-value heads of the block that a described tensor is of.
    pub(crate) fn key_values(&self, name: &str, described: Described) -> Option<u64> {
        let scope = described.scope(name);
        let keys = self.shape(&scope, "k_proj.weight");
        described.key_values(self.model.stack_of(name), keys, self.query_rows(&scope))
    }

    fn query_rows(&self, scope: &str) -> Option<u64> {
        self.shape(scope, "q_proj.weight").and_then(|shape| shape.first().copied())
    }

    /// What the tensor is by its name, for all families alike.
    pub(crate) fn by_name(&self, name: &str) -> Known {
        let Some(shape) = self.shapes.get(name) else { return Known::Unknown };
        let parts: Vec<&str> = name.split('.').collect();
        let scope = |dropped: usize| parts[..parts.len() - dropped].join(".");
        let Some((scope, split)) = self.split(&parts, &scope, shape) else { return Known::Unknown };
        match split {
            Ok((_, dims)) if dims.len() != shape.len() => {
                Known::Unfit(format!("its shape {shape} is not that of such a tensor"))
            }
            Ok((_, dims)) if !dims.iter().zip(&shape[..]).all(fills) => {
                Known::Unfit(format!("its shape {shape} does not fit the others of its block"))
            }
            Ok((role, dims)) => Known::Meaning(Meaning { scope, role, dims }),
            Err(cause) => Known::Unfit(cause),
        }
    }

    /// Module and split of the tensor with these parts of a name; `None` if the name is not known.
    fn split(
        &self,
        parts: &[&str],
        scope: &dyn Fn(usize) -> String,
        shape: &Dims,
    ) -> Option<(String, Split)> {
        let rows = shape.first().copied().unwrap_or(0);
        let columns = shape.get(1).copied().unwrap_or(0);
        let has = |scope: &str, name: &str| self.shape(scope, name).is_some();
        let inner = |items| vec![Block { space: Space::Inner, items, unit: 1 }];
        let (dropped, split) = match *parts {
            [.., "self_attn", "rotary_emb", "inv_freq"] => (2, Ok(whole(1))),
            [.., "self_attn", part, leaf] => {
                (2, self.attention(&scope(2), part, is_weight(leaf)?, rows)?)
            }
            [.., "mlp" | "shared_expert", "gate_proj" | "up_proj", leaf] => {
                (2, Ok(producer(is_weight(leaf)?, inner(rows))))
            }
            [.., "mlp", "gate_up_proj", leaf] => {
                let halves = [inner(rows / 2), inner(rows / 2)].concat();
                (2, Ok(producer(is_weight(leaf)?, halves)))
            }
            [.., "mlp" | "shared_expert", "down_proj", leaf] => {
                (2, Ok(consumer(is_weight(leaf)?, inner(columns))))
            }
            [.., "mlp", "experts", _, "gate_proj" | "up_proj", "weight"]
            | [.., "block_sparse_moe", "experts", _, "w1" | "w3", "weight"] => {
                (2, Ok(producer(true, inner(rows))))
            }
            [.., "mlp", "experts", _, "down_proj", "weight"]
            | [.., "block_sparse_moe", "experts", _, "w2", "weight"] => {
                (2, Ok(consumer(true, inner(columns))))
            }
            // Routers, which every rank asks: only where there is something to choose from.
            [.., "mlp", "gate", "weight"] if has(&scope(2), "experts.0.down_proj.weight") => {
                (1, Ok(whole(2)))
            }
            [.., "block_sparse_moe", "gate", "weight"] if has(&scope(2), "experts.0.w2.weight") => {
                (1, Ok(whole(2)))
            }
            [.., "mlp", "shared_expert_gate", "weight"]
                if has(&scope(2), "shared_expert.down_proj.weight") =>
            {
                (1, Ok(whole(2)))
            }
            ["gpt_neox", "layers", _, "attention", "bias" | "masked_bias"] => {
                (1, Ok(whole(shape.len())))
            }
            ["gpt_neox", "layers", _, "attention", "rotary_emb", "inv_freq"] => (2, Ok(whole(1))),
            ["gpt_neox", "layers", _, "attention", part, leaf] => {
                (2, self.neox_attention(&scope(2), part, is_weight(leaf)?)?)
            }
            ["gpt_neox", "layers", _, "mlp", "dense_h_to_4h", leaf] => {
                (2, Ok(producer(is_weight(leaf)?, inner(rows))))
            }
            ["gpt_neox", "layers", _, "mlp", "dense_4h_to_h", leaf] => {
                (2, Ok(consumer(is_weight(leaf)?, inner(columns))))
            }
            [.., "h", _, "attn", "bias" | "masked_bias"] => (1, Ok(whole(shape.len()))),
            [.., "h", _, "attn", part, leaf] => {
                (2, self.gpt2_attention(&scope(2), part, is_weight(leaf)?)?)
            }
            [.., "h", _, "mlp", part @ ("c_fc" | "c_proj"), leaf] => {
                (2, self.gpt2_mlp(&scope(2), part, is_weight(leaf)?, shape))
            }
            [.., "embed_tokens" | "wte" | "embed_in" | "lm_head" | "embed_out", "weight"] => {
                let items = Block { space: Space::Vocabulary, items: rows, unit: 1 };
                (1, Ok((Role::Other, vec![vec![items], vec![]])))
            }
            _ => return None,
        };
        Some((scope(dropped), split))
    }

    fn shape(&self, scope: &str, name: &str) -> Option<&Dims> {
        self.shapes.get(format!("{scope}.{name}").as_str())
    }

    /// The heads of the attention module `scope`, which must fit all of its shapes.
    pub(crate) fn heads(&self, scope: &str) -> Result<Heads, String> {
        let counts = self.model.heads.as_ref().map_err(Clone::clone)?;
        let part = |part: &str| self.shape(scope, part);
        let rows = |name: &str| part(name).and_then(|shape| shape.first().copied());
        if let Some(query) = rows("q_proj.weight") {
            let key = rows("k_proj.weight").ok_or("it has no keys")?;
            let heads = counts.fit(query, key)?;
            if rows("v_proj.weight") != Some(key) {
                return Err("keys and values have unlike numbers of rows".to_owned());
            }
            let columns = part("o_proj.weight").and_then(|shape| shape.get(1).copied());
            if columns.is_some_and(|columns| columns != query) {
                return Err("the output has not as many columns as there are query rows".to_owned());
            }
            return Ok(heads);
        }
        if scope.ends_with("self_attn") {
            return Err("it has no queries".to_owned());
        }
        let fused = rows("query_key_value.weight")
            .or_else(|| part("c_attn.weight").and_then(|shape| shape.get(1).copied()))
            .filter(|fused| fused.is_multiple_of(3))
            .ok_or("its queries, keys and values are not three equal parts")?;
        let heads = counts.fit(fused / 3, fused / 3)?;
        match heads.group() {
            1 => Ok(heads),
            _ => Err("it has fewer key-value heads than query heads".to_owned()),
        }
    }

    /// Returns `true` if the feed-forward block `scope` of the GPT-2 family keeps its matrices
    /// output first, as GPT-Neo does, `false` if input first; `None` if that cannot be told.
    pub(crate) fn is_output_first(&self, scope: &str) -> Option<bool> {
        let part = |part: &str| self.shape(scope, part);
        let layer = scope.strip_suffix(".mlp")?;
        let &[first, second] = part("c_fc.weight")?.first_chunk()?;
        if part("c_proj.weight").is_some_and(|shape| shape[..] != [second, first]) {
            return None;
        }
        let norm = |name: &str| self.shape(layer, name);
        let width = part("c_proj.bias").or(norm("ln_2.weight")).or(norm("ln_1.weight"));
        let width = width?.first().copied();
        match (width == Some(first), width == Some(second)) {
            (true, false) => Some(false),
            (false, true) => Some(true),
            (true, true) => match self.model.kind.as_deref()? {
                "gpt2" => Some(false),
                "gpt_neo" | "gpt_bigcode" => Some(true),
                _ => None,
            },
            (false, false) => None,
        }
    }

    fn attention(&self, scope: &str, part: &str, is_weight: bool, rows: u64) -> Option<Split> {
        let known = ["q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm"];
        known.contains(&part).then(|| {
            let heads = self.heads(scope)?;
            Ok(match part {
                "q_proj" => producer(is_weight, vec![heads.queries(1)]),
                "k_proj" | "v_proj" => beside(is_weight, vec![heads.keys()]),
                "o_proj" => consumer(is_weight, vec![heads.queries(1)]),
                _ if rows == heads.size => whole(1),
                _ => return Err("it normalises more than one head at once".to_owned()),
            })
        })
    }

    fn neox_attention(&self, scope: &str, part: &str, is_weight: bool) -> Option<Split> {
        ["query_key_value", "dense"].contains(&part).then(|| {
            let heads = self.heads(scope)?;
            Ok(match part {
                "dense" => consumer(is_weight, vec![heads.queries(1)]),
                // The three of a head stand together.
                _ => producer(is_weight, vec![heads.queries(3)]),
            })
        })
    }

    fn gpt2_attention(&self, scope: &str, part: &str, is_weight: bool) -> Option<Split> {
        ["c_attn", "c_proj"].contains(&part).then(|| {
            let heads = self.heads(scope)?;
            Ok(match part {
                "c_attn" => {
                    let blocks = vec![heads.queries(1), heads.keys(), heads.keys()];
                    turned(producer(is_weight, blocks))
                }
                _ => turned(consumer(is_weight, vec![heads.queries(1)])),
            })
        })
    }

    fn gpt2_mlp(&self, scope: &str, part: &str, is_weight: bool, shape: &Dims) -> Split {
        let is_output_first = self.is_output_first(scope);
        let is_output_first =
            is_output_first.ok_or("its rows and columns cannot be distinguished")?;
        let items = match (is_weight, (part == "c_fc") == is_output_first) {
            (false, _) | (true, true) => shape.first(),
            (true, false) => shape.get(1),
        };
        let items = items.copied().unwrap_or(0);
        let inner = vec![Block { space: Space::Inner, items, unit: 1 }];
        let split = match part {
            "c_fc" => producer(is_weight, inner),
            _ => consumer(is_weight, inner),
        };
        Ok(if is_output_first { split } else { turned(split) })
    }
}

impl Heads {
    /// The query heads as a block in which each has `matrices` times its size.
    fn queries(&self, matrices: u64) -> Block {
        Block { space: Space::Query, items: self.query, unit: self.size * matrices }
    }

    fn keys(&self) -> Block {
        Block { space: Space::KeyValue, items: self.key_value, unit: self.size }
    }
}

/// Returns `true` if `blocks` are a whole dimension of this size.
fn fills((blocks, &size): (&Vec<Block>, &u64)) -> bool {
    let sum: u64 = blocks.iter().map(|block| block.items * block.unit).sum();
    blocks.is_empty() || sum == size
}

/// Returns `true` for a matrix, `false` for a bias, `None` for other tensors.
fn is_weight(leaf: &str) -> Option<bool> {
    match leaf {
        "weight" => Some(true),
        "bias" => Some(false),
        _ => None,
    }
}

fn whole(dims: usize) -> (Role, Vec<Vec<Block>>) {
    (Role::Other, vec![Vec::new(); dims])
}

/// A matrix with its items in rows, or its bias.
fn producer(is_weight: bool, items: Vec<Block>) -> (Role, Vec<Vec<Block>>) {
    let (_, dims) = beside(is_weight, items);
    (if is_weight { Role::Producer } else { Role::Other }, dims)
}

/// Like a producer, which it stands beside.
fn beside(is_weight: bool, items: Vec<Block>) -> (Role, Vec<Vec<Block>>) {
    (Role::Other, if is_weight { vec![items, Vec::new()] } else { vec![items] })
}

/// A matrix with its items in columns, or its bias, which has none of them.
fn consumer(is_weight: bool, items: Vec<Block>) -> (Role, Vec<Vec<Block>>) {
    match is_weight {
        true => (Role::Consumer, vec![Vec::new(), items]),
        false => whole(1),
    }
}

/// The same of a matrix that is stored input first.
fn turned((role, mut dims): (Role, Vec<Vec<Block>>)) -> (Role, Vec<Vec<Block>>) {
    dims.reverse();
    (role, dims)
}
