//! Descriptions of families: which tensors a model's blocks have, and what their dimensions stand
//! for.
//!
//! The descriptions are data, `rules/families.toml`; this reads them and applies them to tensors.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::Deserialize;
use serde_json::Value;
use syncline_layout::{Dims, NamePattern, NamedStage, expand_ranges};

use crate::extent::{Extent, Sum};
use crate::meaning::{Role, Split};
use crate::model::{HEAD_SIZES, KEY_VALUE_HEADS, QUERY_HEADS, Stack, WIDTHS};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileForm {
    block: Vec<BlockForm>,
    family: Vec<FamilyForm>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FamilyForm {
    name: String,
    models: Vec<String>,
    #[serde(default)]
    block: Vec<BlockForm>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BlockForm {
    name: String,
    at: String,
    #[serde(default)]
    stage: Option<NamedStage>,
    #[serde(default)]
    inputs_first: bool,
    #[serde(default)]
    whole: Option<String>,
    #[serde(default)]
    when: BTreeMap<String, String>,
    #[serde(default)]
    numbers: BTreeMap<char, String>,
    #[serde(default)]
    make: BTreeMap<String, EntryForm>,
    #[serde(default)]
    take: BTreeMap<String, EntryForm>,
    #[serde(default)]
    beside: BTreeMap<String, EntryForm>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum EntryForm {
    /// The items of a linear layer.
    Linear(String),
    /// The dimensions of a tensor.
    Tensor(Vec<String>),
}

/// A family of models, by the descriptions.
#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) name: String,
    models: Vec<String>,
    blocks: Vec<BlockOf>,
}

/// A block as it is described.
#[derive(Debug)]
pub(crate) struct BlockOf {
    pub(crate) name: String,
    /// Where its tensors are if not with a layer.
    pub(crate) stage: Option<NamedStage>,
    /// Why it is not split.
    pub(crate) whole: Option<String>,
    when: BTreeMap<String, String>,
    numbers: BTreeMap<char, Vec<Source>>,
    entries: Vec<Entry>,
    /// It has layers whose items are split.
    pub(crate) has_layers: bool,
}

/// Where a number comes from.
#[derive(Debug)]
enum Source {
    Config(String),
    Value(Sum),
    /// From the shapes.
    Shape,
}

#[derive(Debug)]
struct Entry {
    pattern: NamePattern,
    /// Parts of the name after the block's own; `None` for any number.
    parts: Option<usize>,
    role: Role,
    dims: Vec<Extent>,
}

#[derive(Debug)]
struct Families {
    common: Vec<BlockOf>,
    families: Vec<Family>,
}

fn families() -> &'static Families {
    static FAMILIES: OnceLock<Families> = OnceLock::new();
    FAMILIES.get_or_init(|| {
        let text = include_str!("rules/families.toml");
        let form: FileForm = toml::from_str(text).expect("the descriptions are tested");
        let blocks = |forms: Vec<BlockForm>| forms.into_iter().map(BlockOf::new).collect();
        let family = |form: FamilyForm| Family {
            name: form.name,
            models: form.models,
            blocks: blocks(form.block),
        };
        Families {
            common: blocks(form.block),
            families: form.family.into_iter().map(family).collect(),
        }
    })
}

/// The family that models of this type belong to, if one is described.
pub(crate) fn family_of(kind: &str) -> Option<&'static Family> {
    let mut all = families().families.iter();
    all.find(|family| family.models.iter().any(|model| model == kind))
}

/// A tensor that a description knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Described {
    pub(crate) block: &'static BlockOf,
    entry: &'static Entry,
}

/// The family of a model with the configuration `stack`.
pub(crate) fn family_in(stack: &Stack) -> Option<&'static Family> {
    stack.kinds().find_map(family_of)
}

/// Finds the description of the tensor `name` of a model with the configuration `stack`.
pub(crate) fn describe(name: &str, stack: &Stack) -> Option<Described> {
    let family = family_in(stack);
    let own = family.map_or(&[][..], |family| &family.blocks);
    let find = |block: &'static BlockOf| {
        let holds = block.when.iter().all(|(name, value)| stack.is(name, value));
        let mut entries = block.entries.iter().filter(|_| holds);
        let entry = entries.find(|entry| entry.pattern.matches(name))?;
        Some(Described { block, entry })
    };
    own.iter().chain(&families().common).find_map(find)
}

impl BlockOf {
    fn new(form: BlockForm) -> Self {
        let mut entries = Vec::new();
        let groups = [
            (Role::Producer, &form.make),
            (Role::Consumer, &form.take),
            (Role::Other, &form.beside),
        ];
        for (role, group) in groups {
            for (key, entry) in group {
                for key in expand_ranges(key).expect("the descriptions are tested") {
                    form.add(role, &key, entry, &mut entries);
                }
            }
        }
        let sources = |text: &String| text.split('|').map(Source::parse).collect();
        let numbers = form.numbers.iter().map(|(letter, text)| (*letter, sources(text))).collect();
        let has_layers = !form.make.is_empty() || !form.take.is_empty();
        let BlockForm { name, stage, whole, when, .. } = form;
        Self { name, stage, whole, when, numbers, entries, has_layers }
    }
}

impl BlockForm {
    /// Adds what `key` stands for: the tensors of a linear layer, or one tensor.
    fn add(&self, role: Role, key: &str, entry: &EntryForm, entries: &mut Vec<Entry>) {
        let mut push = |leaf: &str, role, dims| {
            let dot = if self.at.is_empty() { "" } else { "." };
            let text = format!("{}{dot}{key}{leaf}", self.at);
            let pattern = NamePattern::new(&text).expect("the descriptions are tested");
            let parts = key.matches('.').count() + 1 + usize::from(!leaf.is_empty());
            let parts = (!key.contains("**")).then_some(parts);
            entries.push(Entry { pattern, parts, role, dims });
        };
        let extent = |text: &String| Extent::parse(text).expect("the descriptions are tested");
        match entry {
            EntryForm::Tensor(dims) => push("", role, dims.iter().map(extent).collect()),
            EntryForm::Linear(text) => {
                let (items, whole) = (extent(text), Extent::Whole(None));
                let mut dims = vec![items.clone(), whole.clone()];
                if (role == Role::Consumer) != self.inputs_first {
                    dims.reverse();
                }
                push(".weight", role, dims);
                let of_bias = if role == Role::Consumer { whole } else { items };
                push(".bias", Role::Other, vec![of_bias]);
            }
        }
    }
}

impl Source {
    fn parse(text: &str) -> Self {
        match text.strip_prefix('=') {
            Some(value) => {
                let letters: Vec<char> = value.chars().collect();
                Self::Value(Sum::parse(&letters).expect("the descriptions are tested"))
            }
            None if text == "?" => Self::Shape,
            None => Self::Config(text.to_owned()),
        }
    }
}

impl Described {
    /// The first dimension that has items.
    pub(crate) fn split_dim(&self) -> Option<usize> {
        self.entry.dims.iter().position(|extent| matches!(extent, Extent::Runs(_)))
    }

    /// Key-value heads by the configuration; those of the keys' matrix `keys` or all heads if it
    /// does not say.
    pub(crate) fn key_values(
        &self,
        stack: &Stack,
        keys: Option<&Dims>,
        query_rows: Option<u64>,
    ) -> Option<u64> {
        if !self.block.entries.iter().any(|entry| entry.dims.iter().any(|dim| dim.has('K'))) {
            return None;
        }
        let number = |letter| self.block.number(letter, stack, query_rows).ok().flatten();
        let of_keys = || {
            let rows = keys?.first()?;
            number('d').filter(|&size| size > 0).map(|size| rows / size)
        };
        number('K').or_else(of_keys).or_else(|| number('Q'))
    }
    /// The module that the tensor `name` computes with.
    pub(crate) fn scope(&self, name: &str) -> String {
        let parts: Vec<&str> = name.split('.').collect();
        let own = match self.entry.parts {
            Some(own) if self.block.has_layers => own,
            _ => 1,
        };
        parts[..parts.len().saturating_sub(own)].join(".")
    }

    /// The role of the tensor and the blocks of its dimensions, or why it is not what it should be.
    pub(crate) fn split(&self, shape: &Dims, stack: &Stack, query_rows: Option<u64>) -> Split {
        if let Some(cause) = &self.block.whole {
            return Err(format!("the block `{}` stays whole: {cause}", self.block.name));
        }
        if self.entry.dims.is_empty() {
            return Ok((Role::Other, vec![Vec::new(); shape.len()]));
        }
        if self.entry.dims.len() != shape.len() {
            return Err(format!("its shape {shape} is not that of such a tensor"));
        }
        let numbers = |letter| self.block.number(letter, stack, query_rows);
        let dims = self.entry.dims.iter().zip(&shape[..]);
        let dims = dims.map(|(extent, &size)| extent.blocks(size, &numbers));
        Ok((self.entry.role, dims.collect::<Result<_, _>>()?))
    }
}

impl BlockOf {
    /// What `letter` stands for; `None` if only shapes can say.
    fn number(
        &self,
        letter: char,
        stack: &Stack,
        query_rows: Option<u64>,
    ) -> Result<Option<u64>, String> {
        let of = |letter| self.number(letter, stack, query_rows);
        if let Some(sources) = self.numbers.get(&letter) {
            return self.sourced(sources, stack, &of);
        }
        match letter {
            'I' | 'E' | 'V' => Ok(None),
            'Q' => match stack.number(QUERY_HEADS)? {
                Some(heads) => Ok(Some(heads)),
                None => Err(stack.missing(QUERY_HEADS[0])),
            },
            'K' => stack.number(KEY_VALUE_HEADS),
            'd' => {
                let query = of('Q')?.filter(|&query| query > 0);
                let split = |rows: u64| Some(rows / query?);
                let size = stack.number(HEAD_SIZES)?;
                let from_rows = query_rows.filter(|rows| query.is_some_and(|q| rows % q == 0));
                let width = || Ok::<_, String>(stack.number(WIDTHS)?.and_then(split));
                match size.or(from_rows.and_then(split)) {
                    Some(size) => Ok(Some(size)),
                    None => width(),
                }
            }
            'g' => match (of('Q')?, of('K')?) {
                (Some(query), Some(key_value)) if key_value > 0 => Ok(Some(query / key_value)),
                _ => Err("the numbers of heads are not known".to_owned()),
            },
            _ => Err(format!("`{letter}` is not known")),
        }
    }

    fn sourced(
        &self,
        sources: &[Source],
        stack: &Stack,
        of: &dyn Fn(char) -> Result<Option<u64>, String>,
    ) -> Result<Option<u64>, String> {
        for source in sources {
            let found = match source {
                Source::Config(name) => stack.number(&[name.as_str()])?,
                Source::Value(sum) => Some(sum.value(&|letter| {
                    of(letter)?.ok_or_else(|| format!("`{letter}` is not known"))
                })?),
                Source::Shape => return Ok(None),
            };
            if found.is_some() {
                return Ok(found);
            }
        }
        match sources.first() {
            Some(Source::Config(name)) => Err(stack.missing(name)),
            _ => Ok(None),
        }
    }
}

/// Returns `true` if the value in a configuration is the one that a description asks for: all of a
/// list; `false` and 0 if it is absent.
pub(crate) fn is_value(found: Option<&Value>, expected: &str) -> bool {
    match found {
        None | Some(Value::Null) => ["false", "0"].contains(&expected),
        Some(Value::Array(values)) => values.iter().all(|value| is_value(Some(value), expected)),
        Some(Value::Number(number)) => {
            number.as_f64().is_some_and(|number| expected.parse() == Ok(number))
        }
        Some(Value::Bool(value)) => expected.parse() == Ok(*value),
        Some(Value::String(value)) => value == expected,
        Some(Value::Object(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reading panics on what is none of a pattern or an extent.
    #[test]
    fn every_description_can_be_read_and_no_model_has_two_families() {
        let all = families();
        assert!(all.common.len() > 8 && all.families.len() > 20);
        let mut seen = BTreeMap::new();
        for family in &all.families {
            for model in &family.models {
                assert_eq!(seen.insert(model, &family.name), None, "{model}");
            }
        }
    }
}
