//! What a conversion is asked to make, and the destination that this comes to for a model.

use std::collections::BTreeMap;
use std::path::Path;

use syncline_layout::{LayoutFile, MeshLayout, NamePattern, TensorRule, TensorSpec};

use crate::destination::Destination;
use crate::error::CheckpointError;
use crate::family::{add_builtin_rules, check_target, parse_target};
use crate::meaning::pattern_of;

/// What a conversion is asked to make.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// A checkpoint as the Hugging Face tools write it.
    HuggingFace {
        /// Bytes of tensors in one file, unless a single tensor has more.
        file_bytes_max: u64,
    },
    /// A directory that `torch.distributed.checkpoint.load` reads.
    Distributed {
        /// Bytes of tensors in one file, unless a single tensor has more.
        file_bytes_max: u64,
    },
    /// Axes such as `tp=4,pp=2`, by the built-in rules.
    Axes(String),
    /// A layout in a file.
    Layout(LayoutFile),
}

/// Patterns of tensors that no rule names, with how many of each there are.
pub type Unnamed = BTreeMap<String, usize>;

impl Wanted {
    /// Returns the destination for tensors `specs` of the checkpoint at `source`, and the tensors
    /// that no rule names: these are replicated. `rules` come before those of a mesh.
    pub fn resolve(
        self,
        rules: Vec<TensorRule>,
        specs: &[TensorSpec],
        source: &Path,
    ) -> Result<(Destination, Unnamed), CheckpointError> {
        let mut has_rules = false;
        let mut mesh = match self {
            Self::HuggingFace { file_bytes_max } => {
                return Ok((Destination::HuggingFace { file_bytes_max }, Unnamed::new()));
            }
            Self::Distributed { file_bytes_max } => {
                return Ok((Destination::Distributed { file_bytes_max }, Unnamed::new()));
            }
            Self::Layout(LayoutFile::Explicit(layout)) => {
                return Ok((Destination::Sharded(layout), Unnamed::new()));
            }
            Self::Layout(LayoutFile::Mesh(mesh)) => {
                has_rules = !mesh.rules.is_empty() || !rules.is_empty();
                mesh
            }
            Self::Axes(axes) => MeshLayout::new(parse_target(&axes)?, Vec::new()),
        };
        mesh.rules.splice(0..0, rules);
        // A layout that has rules of its own says all there is to say.
        match has_rules {
            true => check_target(&mesh, specs)?,
            false => add_builtin_rules(&mut mesh, specs, source)?,
        }
        let mut unnamed = Unnamed::new();
        for (spec, rule) in specs.iter().zip(mesh.rules_of(specs)?) {
            if rule.is_none() {
                *unnamed.entry(pattern_of(&spec.name)).or_default() += 1;
            }
        }
        Ok((Destination::Sharded(mesh.compile(specs)?), unnamed))
    }
}

/// The patterns of `rules` that match none of the tensors `specs`.
pub fn unmatched_rules(rules: &[TensorRule], specs: &[TensorSpec]) -> Vec<String> {
    let matches = |rule: &TensorRule| {
        let pattern = NamePattern::new(&rule.pattern);
        pattern.is_ok_and(|pattern| specs.iter().any(|spec| pattern.matches(&spec.name)))
    };
    let unmatched = rules.iter().filter(|rule| rule.tied_to.is_none() && !matches(rule));
    unmatched.map(|rule| rule.pattern.clone()).collect()
}
