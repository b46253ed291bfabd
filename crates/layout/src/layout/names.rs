//! Numbers in tensor names: which layer and which expert a tensor belongs to.

/// The name parts after which the number of a layer or of an expert stands.
///
/// ```
/// use syncline_layout::NameNumbers;
///
/// let numbers = NameNumbers::default();
/// let name = "model.layers.13.mlp.experts.5.w1.weight";
/// assert_eq!((numbers.layer(name), numbers.expert(name)), (Some(13), Some(5)));
/// assert_eq!(numbers.renumber(name, 12, 4), "model.layers.1.mlp.experts.1.w1.weight");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameNumbers {
    /// Parts that a layer's number follows.
    pub layer_after: Vec<String>,
    /// Parts that an expert's number follows.
    pub expert_after: Vec<String>,
}

impl Default for NameNumbers {
    fn default() -> Self {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        Self {
            layer_after: words(&["layers", "layer", "h", "blocks", "block"]),
            expert_after: words(&["experts", "local_experts"]),
        }
    }
}

impl NameNumbers {
    /// The layer that `name` speaks of.
    pub fn layer(&self, name: &str) -> Option<u64> {
        find(name, &self.layer_after).map(|found| found.number)
    }

    /// The expert that `name` speaks of.
    pub fn expert(&self, name: &str) -> Option<u64> {
        find(name, &self.expert_after).map(|found| found.number)
    }

    /// `name` with its expert's number replaced: equal for all experts' tensors of one kind.
    pub fn expert_kind(&self, name: &str) -> Option<String> {
        let found = find(name, &self.expert_after)?;
        Some(format!("{}*{}", &name[..found.start], &name[found.stop..]))
    }

    /// `name` up to its expert's number: equal for all experts' tensors of one layer.
    pub fn expert_group<'a>(&self, name: &'a str) -> Option<&'a str> {
        find(name, &self.expert_after).map(|found| &name[..found.start])
    }

    /// `name` with layers counted from `first_layer` and experts from `first_expert`.
    pub fn renumber(&self, name: &str, first_layer: u64, first_expert: u64) -> String {
        let lower = |name: String, after: &[String], first: u64| match find(&name, after) {
            Some(found) => {
                let number = found.number.saturating_sub(first);
                format!("{}{number}{}", &name[..found.start], &name[found.stop..])
            }
            None => name,
        };
        let name = lower(name.to_owned(), &self.layer_after, first_layer);
        lower(name, &self.expert_after, first_expert)
    }
}

struct Found {
    number: u64,
    start: usize,
    stop: usize,
}

/// The first part that is a number and follows one of `words`.
fn find(name: &str, words: &[String]) -> Option<Found> {
    let mut start = 0;
    let mut follows = false;
    for part in name.split('.') {
        if follows && let Ok(number) = part.parse() {
            return Some(Found { number, start, stop: start + part.len() });
        }
        follows = words.iter().any(|word| word == part);
        start += part.len() + 1;
    }
    None
}
