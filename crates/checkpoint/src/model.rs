//! What a model's `config.json` says: numbers of heads and layers, under the names of all families.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::describe::{Family, family_in, is_value};
use crate::file::read_regular;

pub(crate) const CONFIG_FILE: &str = "config.json";

/// Numbers past these are no numbers of layers or columns, and none of heads.
const NUMBER_MAX: u64 = 1 << 24;
const HEADS_MAX: u64 = 1 << 16;

pub(crate) const QUERY_HEADS: &[&str] =
    &["num_attention_heads", "n_head", "num_heads", "n_heads", "num_query_heads"];
pub(crate) const KEY_VALUE_HEADS: &[&str] = &[
    "num_key_value_heads",
    "num_kv_heads",
    "n_head_kv",
    "n_kv_heads",
    "num_query_groups",
    "multi_query_group_num",
];
pub(crate) const HEAD_SIZES: &[&str] = &["head_dim", "head_size", "kv_channels", "d_kv"];
pub(crate) const WIDTHS: &[&str] = &["hidden_size", "n_embd", "d_model"];
const LAYERS: &[&str] = &["num_hidden_layers", "n_layer", "num_layers", "n_layers"];

/// Parts of a configuration that are about other stacks than the decoder's.
const OTHER_STACKS: [&str; 6] = ["vision", "visual", "audio", "speech", "image", "quant"];

/// How the configuration of a vision tower is called, and the parts of names that its tensors have.
const VISION_CONFIGS: &[&str] = &["vision_config", "visual", "vision_cfg"];
const VISION_PARTS: &[&str] =
    &["visual", "vision_tower", "vision_model", "vision_encoder", "image_encoder"];
const AUDIO_CONFIGS: &[&str] = &["audio_config", "audio_encoder_config", "speech_config"];
const AUDIO_PARTS: &[&str] = &["audio_tower", "audio_model", "audio_encoder", "speech_encoder"];

/// Facts about a model beside its tensors.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    /// Numbers of heads, or why they are not known.
    pub heads: Result<HeadCounts, String>,
    /// Layers of the decoder.
    pub layers: Option<u64>,
    /// `model_type`.
    pub kind: Option<String>,
    /// Whether the tensors are those of a quantized model, or why that is not known.
    pub is_quantized: Result<bool, String>,
    /// Elements of a weight that share a scale, in its last dimensions; empty if not said.
    pub scale_block: Vec<u64>,
    /// Whether the model turns vectors into tokens, by its architecture; `None` if that is unknown.
    pub has_head: Option<bool>,
    /// The configuration says that the embeddings are not the output matrix, too.
    pub is_untied: bool,
    /// The configuration of the decoder, or of the only stack.
    text: Stack,
    /// The configurations of towers, with the parts of names by which their tensors are known.
    towers: Vec<(&'static [&'static str], Stack)>,
}

/// What a configuration says of one stack of layers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stack {
    /// Model types, the nearest first.
    kinds: Vec<String>,
    objects: Vec<Map<String, Value>>,
    /// Why nothing is known.
    cause: Option<String>,
}

impl Stack {
    /// The types of the model, the nearest first.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = &str> {
        self.kinds.iter().map(String::as_str)
    }

    /// The one number under any of `names`, which may be paths such as `ffn_config.size`.
    pub(crate) fn number(&self, names: &[&str]) -> Result<Option<u64>, String> {
        let mut known = None;
        for name in names {
            let (path, leaf) = name.rsplit_once('.').unwrap_or(("", name));
            let at = |object: &'_ Map<String, Value>| match path {
                "" => Some(object.clone()),
                path => object.get(path).and_then(Value::as_object).cloned(),
            };
            let objects: Vec<_> = self.objects.iter().filter_map(at).collect();
            let objects: Vec<_> = objects.iter().collect();
            match (known, number(&objects, &[leaf])?) {
                (Some((other, before)), Some(value)) if before != value => {
                    return Err(format!("`{other}` is {before}, and `{name}` {value}"));
                }
                (None, Some(value)) => known = Some((name, value)),
                _ => {}
            }
        }
        Ok(known.map(|(_, value)| value))
    }

    /// Returns `true` if the member `name` has this value.
    pub(crate) fn is(&self, name: &str, value: &str) -> bool {
        let found = self.objects.iter().find_map(|object| object.get(name));
        is_value(found, value)
    }

    /// Says that a number is missing, or why nothing is known.
    pub(crate) fn missing(&self, name: &str) -> String {
        self.cause.clone().unwrap_or_else(|| format!("config.json has no `{name}`"))
    }
}

/// Heads as a configuration gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeadCounts {
    query: u64,
    key_value: Option<u64>,
    size: Option<u64>,
    width: Option<u64>,
}

/// Heads that fit the shapes of an attention block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heads {
    pub query: u64,
    pub key_value: u64,
    pub size: u64,
}

/// Where the configuration of the checkpoint at `source` is: in its directory, or beside its file.
pub(crate) fn config_path(source: &Path) -> PathBuf {
    match source.is_file() {
        true => source.with_file_name(CONFIG_FILE),
        false => source.join(CONFIG_FILE),
    }
}

impl Model {
    /// Reads the configuration of the checkpoint at `source`.
    pub(crate) fn read(source: &Path) -> Self {
        let path = config_path(source);
        let config = read_regular(&path)
            .map_err(|error| error.to_string())
            .and_then(|text| serde_json::from_str(&text).map_err(|error| error.to_string()));
        let named = |cause| format!("{}: {cause}", path.display());
        match config {
            Ok(Value::Object(root)) => {
                let mut model = Self::parse(&root);
                model.heads = model.heads.map_err(named);
                model
            }
            Ok(_) => Self::unknown(named("expected an object".to_owned())),
            Err(cause) => Self::unknown(named(format!("cannot be read: {cause}"))),
        }
    }

    fn unknown(cause: String) -> Self {
        let text = Stack { cause: Some(cause.clone()), ..Default::default() };
        Self {
            heads: Err(cause.clone()),
            layers: None,
            kind: None,
            is_quantized: Err(cause),
            scale_block: Vec::new(),
            has_head: None,
            is_untied: false,
            text,
            towers: Vec::new(),
        }
    }

    fn parse(root: &Map<String, Value>) -> Self {
        let mut found = Vec::new();
        decoders(root, 0, &mut found);
        let get = |names| number(&found, names);
        let heads = get(QUERY_HEADS).and_then(|query| {
            let query = query.ok_or_else(|| format!("no `{}`", QUERY_HEADS[0]))?;
            let (key_value, size) = (get(KEY_VALUE_HEADS)?, get(HEAD_SIZES)?);
            Ok(HeadCounts { query, key_value, size, width: get(WIDTHS)? })
        });
        let kind = root.get("model_type").and_then(Value::as_str).map(str::to_owned);
        let is_quantized =
            Ok(root.get("quantization_config").is_some_and(|value| !value.is_null()));
        let block = root.get("quantization_config").and_then(|of| of.get("weight_block_size"));
        let sizes = block.and_then(Value::as_array).map(|sizes| sizes.iter().map(Value::as_u64));
        let scale_block = sizes.and_then(Iterator::collect).unwrap_or_default();
        let has_head = root.get("architectures").and_then(has_head);
        let tied = root.get("tie_word_embeddings").and_then(Value::as_bool);
        let is_untied = tied == Some(false);
        let objects = if found.is_empty() { vec![root] } else { found.clone() };
        let mut kinds: Vec<String> = objects.iter().filter_map(|object| kind_of(object)).collect();
        kinds.reverse();
        kinds.extend(kind.clone());
        let text =
            Stack { kinds, objects: objects.into_iter().cloned().collect(), ..Default::default() };
        let mut towers = Vec::new();
        for (configs, parts) in [(VISION_CONFIGS, VISION_PARTS), (AUDIO_CONFIGS, AUDIO_PARTS)] {
            let mut objects = configs.iter().filter_map(|name| root.get(*name)?.as_object());
            if let Some(object) = objects.next() {
                let of_tower = |kind| format!("{kind}_vision");
                let own = kind_of(object);
                let kinds = [own.clone(), own.map(of_tower), kind.clone().map(of_tower)];
                let kinds = kinds.into_iter().flatten().collect();
                let objects = vec![object.clone()];
                towers.push((parts, Stack { kinds, objects, ..Default::default() }));
            }
        }
        let layers = get(LAYERS).ok().flatten();
        Self { heads, layers, kind, is_quantized, scale_block, has_head, is_untied, text, towers }
    }

    /// The family of the decoder, or of the only stack.
    pub(crate) fn family(&self) -> Option<&'static Family> {
        family_in(&self.text)
    }

    /// Returns the stack that the tensor `name` is of.
    pub(crate) fn stack_of(&self, name: &str) -> &Stack {
        self.tower_of(name).unwrap_or(&self.text)
    }

    /// The tower that the tensor `name` is of, if it is of one.
    pub(crate) fn tower_of(&self, name: &str) -> Option<&Stack> {
        let is_of = |parts: &[&str]| name.split('.').any(|part| parts.contains(&part));
        self.towers.iter().find(|(parts, _)| is_of(parts)).map(|(_, stack)| stack)
    }
}

/// Whether models of these architectures turn vectors into tokens; `None` if the names do not say.
fn has_head(architectures: &Value) -> Option<bool> {
    let with = ["CausalLM", "LMHead", "MaskedLM", "PreTraining", "ConditionalGeneration"];
    let without = ["Classification", "QuestionAnswering", "MultipleChoice", "Encoder"];
    let names = architectures.as_array()?.iter().map(Value::as_str);
    let mut known = names.map(|name| {
        let name = name?;
        let says = |words: &[&str]| words.iter().any(|word| name.contains(word));
        match (says(&with), says(&without) || name.ends_with("Model")) {
            (true, _) => Some(true),
            (false, true) => Some(false),
            (false, false) => None,
        }
    });
    let first = known.next()?;
    first.filter(|_| known.all(|other| other == first))
}

fn kind_of(object: &Map<String, Value>) -> Option<String> {
    object.get("model_type").and_then(Value::as_str).map(str::to_owned)
}

/// The objects that speak of a decoder's heads: the root and those inside of it, other stacks left
/// out.
fn decoders<'a>(
    object: &'a Map<String, Value>,
    depth: usize,
    found: &mut Vec<&'a Map<String, Value>>,
) {
    let has = |name: &&str| object.get(*name).is_some_and(|value| !value.is_null());
    if QUERY_HEADS.iter().any(has) {
        found.push(object);
    }
    for (name, value) in object.iter().filter(|_| depth < 4) {
        let is_other = OTHER_STACKS.iter().any(|other| name.contains(other));
        if let (false, Value::Object(inner)) = (is_other, value) {
            decoders(inner, depth + 1, found);
        }
    }
}

/// The one number that `objects` give under any of `names`.
fn number(objects: &[&Map<String, Value>], names: &[&str]) -> Result<Option<u64>, String> {
    let mut known: Option<(&str, u64)> = None;
    for &name in names {
        for value in objects.iter().filter_map(|object| object.get(name)) {
            let Some(value) = one_number(name, value)? else { continue };
            match known {
                Some((other, before)) if before != value => {
                    return Err(format!("`{other}` is {before}, and `{name}` {value}"));
                }
                _ => known = Some((name, value)),
            }
        }
    }
    Ok(known.map(|(_, value)| value))
}

/// A number, or a list of equal ones; `None` for null.
fn one_number(name: &str, value: &Value) -> Result<Option<u64>, String> {
    match value {
        Value::Null => Ok(None),
        Value::Array(values) => {
            let Some(first) = values.first().filter(|first| !first.is_array()) else {
                return Err(format!("`{name}` is no list of numbers"));
            };
            if values.iter().any(|value| value != first) {
                return Err(format!("`{name}` is a list of unlike numbers: layers differ"));
            }
            one_number(name, first)
        }
        _ => match value.as_u64().filter(|number| (1..=NUMBER_MAX).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(format!("`{name}` is {value}: expected a number from 1 on")),
        },
    }
}

impl HeadCounts {
    /// The heads of an attention block with so many rows of queries and of keys.
    pub(crate) fn fit(&self, query_rows: u64, key_rows: u64) -> Result<Heads, String> {
        let Self { query, .. } = *self;
        let size = query_rows / query;
        let misfit = |what: String| {
            Err(format!("{what} do not fit {query_rows} rows of queries and {key_rows} of keys"))
        };
        if query > HEADS_MAX || size == 0 || size * query != query_rows {
            return misfit(format!("{query} query heads"));
        }
        let expected = self.size.or(self.width.map(|width| width / query));
        if let Some(expected) = expected.filter(|&expected| expected != size) {
            return misfit(format!("{query} query heads of {expected}"));
        }
        let key_value = key_rows / size;
        if key_value == 0 || key_value * size != key_rows || !query.is_multiple_of(key_value) {
            return misfit(format!("{query} query heads of {size}"));
        }
        match self.key_value.filter(|&known| known != key_value) {
            Some(known) => misfit(format!("{known} key-value heads of {size}")),
            None => Ok(Heads { query, key_value, size }),
        }
    }
}

impl Heads {
    /// Query heads that share a key-value head.
    pub(crate) fn group(&self) -> u64 {
        self.query / self.key_value
    }

    /// Returns `true` if `tp` ranks can hold whole heads, each query head with its key-value head,
    /// and none is left without.
    pub(crate) fn can_split(&self, tp: u64) -> bool {
        tp <= self.key_value || (tp.is_multiple_of(self.key_value) && tp <= self.query)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Model {
        let Ok(Value::Object(root)) = serde_json::from_str(text) else { panic!("{text}") };
        Model::parse(&root)
    }

    #[test]
    fn heads_are_found_under_all_names() {
        for text in [
            r#"{"num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 32}"#,
            r#"{"n_head": 8, "n_head_kv": 2, "n_embd": 32}"#,
            r#"{"num_heads": 8, "num_kv_heads": 2, "d_model": 32}"#,
            r#"{"text_config": {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 4}}"#,
            r#"{"thinker_config": {"text_config": {"num_attention_heads": 8, "head_dim": 4}}}"#,
            r#"{"num_attention_heads": 8, "num_key_value_heads": null, "hidden_size": 32}"#,
            r#"{"num_query_heads": [8, 8], "num_kv_heads": [2, 2], "head_dim": 4}"#,
            r#"{"num_attention_heads": 8, "head_dim": 4, "hidden_size": 24}"#,
            r#"{"num_attention_heads": 8, "hidden_size": 32,
                "vision_config": {"num_attention_heads": 3}, "text_config": {"num_attention_heads": 8}}"#,
        ] {
            let heads = parse(text).heads.and_then(|heads| heads.fit(32, 8));
            assert_eq!(heads, Ok(Heads { query: 8, key_value: 2, size: 4 }), "{text}");
        }
    }

    #[test]
    fn what_does_not_say_or_does_not_fit_is_refused() {
        for (text, words) in [
            ("{}", "no `num_attention_heads`"),
            (r#"{"vision_config": {"num_attention_heads": 8}}"#, "no `num_attention_heads`"),
            (r#"{"num_attention_heads": "8"}"#, "expected a number"),
            (r#"{"num_attention_heads": 0}"#, "expected a number"),
            (r#"{"num_attention_heads": 8.5}"#, "expected a number"),
            (r#"{"num_attention_heads": -8}"#, "expected a number"),
            (r#"{"num_attention_heads": []}"#, "no list"),
            (r#"{"num_attention_heads": 8, "num_key_value_heads": [2, 1]}"#, "layers differ"),
            (r#"{"num_attention_heads": 8, "n_head": 4}"#, "`num_attention_heads` is 8"),
            (
                r#"{"num_attention_heads": 8, "text_config": {"num_attention_heads": 4}}"#,
                "and `num_attention_heads` 4",
            ),
            (r#"{"num_attention_heads": 5}"#, "5 query heads do not fit"),
            (r#"{"num_attention_heads": 8, "head_dim": 2}"#, "of 2 do not fit"),
            (r#"{"num_attention_heads": 8, "hidden_size": 64}"#, "of 8 do not fit"),
            (r#"{"num_attention_heads": 8, "num_key_value_heads": 4}"#, "4 key-value heads"),
        ] {
            let heads = parse(text).heads.and_then(|heads| heads.fit(32, 8));
            assert!(heads.as_ref().is_err_and(|cause| cause.contains(words)), "{text}: {heads:?}");
        }
    }

    #[test]
    fn ranks_hold_whole_groups_or_share_a_key_value_head() {
        let can = |query, key_value| {
            let heads = Heads { query, key_value, size: 1 };
            (1..=16).filter(|&tp| heads.can_split(tp)).collect::<Vec<_>>()
        };
        assert_eq!(can(14, 2), [1, 2, 4, 6, 8, 10, 12, 14]);
        assert_eq!(can(8, 2), [1, 2, 4, 6, 8]);
        assert_eq!(can(12, 4), [1, 2, 3, 4, 8, 12]);
    }
}
