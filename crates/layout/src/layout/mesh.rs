//! The mesh form: named axes of PEs and rules for tensors, compiled to the explicit form.

use serde::Deserialize;

use super::compile::Compiler;
use super::names::NameNumbers;
use super::pattern::NamePattern;
use super::rule_set::RuleSet;
use super::rules::TensorRule;
use super::{Layout, TensorSpec, WORLD_MAX};
use crate::error::LayoutError;

/// The axes that PEs are counted along, fastest first.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Mesh {
    /// Names and sizes; `rank = offset + tp + TP * (ep + EP * (pp + ...))`.
    pub axes: Vec<(String, u64)>,
    /// Rank of the first PE.
    #[serde(default)]
    pub offset: u32,
    /// Layers of each pp stage; even runs if absent.
    #[serde(default)]
    pub stages: Option<Vec<u64>>,
    /// Experts of each ep position; even runs if absent.
    #[serde(default)]
    pub experts: Option<Vec<u64>>,
    /// PEs count the layers and experts that they hold from 0.
    #[serde(default)]
    pub renumber: bool,
}

impl Mesh {
    /// Size of an axis; 1 if there is no such axis.
    pub fn size(&self, axis: &str) -> u64 {
        self.axes.iter().find(|(name, _)| name == axis).map_or(1, |(_, size)| *size)
    }

    /// Number of PEs.
    pub fn world(&self) -> u64 {
        self.axes.iter().map(|(_, size)| size).product()
    }

    /// Position along `axis` of the PE number `at`, counted from the offset.
    pub(super) fn position(&self, axis: &str, at: u64) -> u64 {
        let mut at = at;
        for (name, size) in &self.axes {
            if name == axis {
                return at % size;
            }
            at /= size;
        }
        0
    }

    fn check(&self) -> Result<(), LayoutError> {
        let bad = |cause: String| Err(LayoutError::BadMesh { cause });
        for (at, (name, size)) in self.axes.iter().enumerate() {
            if *size == 0 {
                return bad(format!("axis `{name}` has no PEs: give at least 1"));
            }
            if self.axes[..at].iter().any(|(other, _)| other == name) {
                return bad(format!("axis `{name}` is given twice"));
            }
        }
        let world = self.axes.iter().try_fold(1u64, |world, (_, size)| world.checked_mul(*size));
        match world.and_then(|world| world.checked_add(u64::from(self.offset))) {
            Some(world) if world <= WORLD_MAX => {}
            _ => return bad(format!("more than {WORLD_MAX} PEs")),
        }
        for (axis, runs) in [("pp", &self.stages), ("ep", &self.experts)] {
            let size = self.size(axis);
            if let Some(runs) = runs.as_ref().filter(|runs| runs.len() as u64 != size) {
                return bad(format!(
                    "{} numbers for the {size} positions of axis `{axis}`",
                    runs.len()
                ));
            }
        }
        Ok(())
    }
}

/// The mesh form of a layout: what people write.
///
/// ```
/// use syncline_layout::MeshLayout;
///
/// let mesh = MeshLayout::from_toml(
///     r#"
///     [mesh]
///     axes = [["tp", 2]]
///     [[tensor]]
///     match = "**.up.weight"
///     shard = [{dim = 0, axis = "tp"}]
///     [[weight]]
///     name = "layers.{0..1}.up.weight"
///     dtype = "bf16"
///     shape = [6, 4]
///     "#,
/// )?;
/// let layout = mesh.compile(mesh.specs())?;
/// assert_eq!(layout.tensors().len(), 2);
/// assert_eq!(layout.tensors()[1].placement().shard(1).unwrap().shape[0], 3);
/// # Ok::<(), syncline_layout::LayoutError>(())
/// ```
#[derive(Clone, Debug)]
pub struct MeshLayout {
    /// The PEs.
    pub mesh: Mesh,
    /// The rules; what none of them names is replicated, within the stage of its layer.
    pub rules: Vec<TensorRule>,
    /// How layers and experts are found in names.
    pub numbers: NameNumbers,
    pub(super) specs: Vec<TensorSpec>,
}

impl MeshLayout {
    /// A layout of `mesh` by `rules`.
    pub fn new(mesh: Mesh, rules: Vec<TensorRule>) -> Self {
        Self { mesh, rules, numbers: NameNumbers::default(), specs: Vec::new() }
    }

    /// The tensors that the file itself names.
    pub fn specs(&self) -> &[TensorSpec] {
        &self.specs
    }

    /// The rule for `name`, if one matches; the patterns are checked by [`compile`](Self::compile).
    pub fn rule_for(&self, name: &str) -> Option<&TensorRule> {
        let fits = |rule: &&TensorRule| {
            NamePattern::new(&rule.pattern).is_ok_and(|pattern| pattern.matches(name))
        };
        self.rules.iter().find(fits)
    }

    /// The rule of each tensor, as a position in [`rules`](Self::rules); `None` where none matches.
    pub fn rules_of(&self, specs: &[TensorSpec]) -> Result<Vec<Option<usize>>, LayoutError> {
        let rules = RuleSet::new(&self.rules)?;
        Ok(specs.iter().map(|spec| rules.index_of(&spec.name)).collect())
    }

    /// The explicit form for these tensors.
    pub fn compile(&self, specs: &[TensorSpec]) -> Result<Layout, LayoutError> {
        self.mesh.check()?;
        Compiler::new(self, specs)?.run(specs)
    }
}
