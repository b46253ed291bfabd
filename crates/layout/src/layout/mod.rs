//! Layouts: how named tensors lie over the PEs of a group.
//!
//! A [`Layout`] is the explicit form: for every tensor, which PE holds which boxes of it, and
//! where. People write the mesh form ([`MeshLayout`]), which compiles to this one; programs
//! exchange this one. Tensors that lie alike share one [`Placement`], and everything that is
//! computed per placement is computed once for all of them: a model of 20,000 tensors has a few
//! dozen placements.

mod build;
mod check;
mod classes;
mod compile;
#[cfg(feature = "json")]
mod file;
mod form;
#[cfg(feature = "json")]
mod json;
mod members;
mod mesh;
#[cfg(feature = "json")]
mod mesh_form;
mod names;
mod pattern;
mod rule_set;
mod rules;
mod ties;

use std::collections::HashMap;
use std::sync::Arc;

use syncline_tensor::Dtype;

use crate::dims::{Dims, NdBox};
use crate::hash::Fingerprint;

pub use build::LayoutBuilder;
pub(crate) use check::{BYTES_MAX, WORLD_MAX};
pub(crate) use classes::Classes;
#[cfg(feature = "json")]
pub use file::LayoutFile;
pub(crate) use form::{Form, gcd, scaled};
pub use mesh::{Mesh, MeshLayout};
pub use names::NameNumbers;
pub use pattern::{NamePattern, expand_ranges};
pub use rules::{BlockRule, NamedStage, ShardRule, Stage, TensorRule};

/// The name, element type and shape of a tensor, whatever its placement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Name of the whole tensor.
    pub name: String,
    /// Element type.
    pub dtype: Dtype,
    /// Global shape.
    pub shape: Dims,
}

/// A box of a tensor, and where a shard keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Piece {
    /// Where it lies in the whole tensor.
    pub global: NdBox,
    /// Where its first element lies in the shard.
    pub local: Dims,
}

impl Piece {
    /// The box that it fills in the shard.
    pub fn local_box(&self) -> NdBox {
        NdBox { start: self.local, size: self.global.size }
    }
}

/// What one PE holds of a tensor: a dense row-major array of `shape`, filled by pieces.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shard {
    /// The PE.
    pub rank: u32,
    /// Local shape in elements.
    pub shape: Dims,
    /// Disjoint pieces; adjacent ones are merged.
    pub pieces: Vec<Piece>,
}

/// How tensors of one shape lie over the PEs; shared by all tensors that lie alike.
#[derive(Debug, PartialEq, Eq)]
pub struct Placement {
    pub(crate) shape: Dims,
    pub(crate) shards: Vec<Shard>,
    pub(crate) hash: u64,
    /// What it has in common with placements of other shapes; `None` where it is its own form.
    pub(crate) form: Option<Form>,
    /// Of one that is its own form; those of others are the form's.
    pub(crate) classes: Classes,
    /// Elements of the largest shard, sizes of 0 counted as 1.
    shard_span_max: u64,
    /// Elements of all shards; the largest number there is, if they are more.
    shards_elements: u64,
}

impl Placement {
    /// One that is its own form.
    pub(crate) fn plain(shape: Dims, shards: Vec<Shard>, hash: u64) -> Self {
        let classes = Classes::new(&shards);
        Self { classes, ..Self::formed(shape, shards, hash, None) }
    }

    /// One of shards that were checked.
    fn formed(shape: Dims, shards: Vec<Shard>, hash: u64, form: Option<Form>) -> Self {
        let (mut shard_span_max, mut shards_elements) = (0, 0u64);
        for shard in &shards {
            let span = check::span(&shard.shape).unwrap_or(u64::MAX);
            shard_span_max = span.max(shard_span_max);
            shards_elements = shards_elements.saturating_add(shard.shape.volume());
        }
        let classes = Classes::default();
        Self { shape, shards, hash, form, classes, shard_span_max, shards_elements }
    }

    /// Global shape.
    pub fn shape(&self) -> &Dims {
        &self.shape
    }

    /// What each PE holds, by rank; PEs that hold nothing are absent.
    pub fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// What `rank` holds.
    pub fn shard(&self, rank: u32) -> Option<&Shard> {
        let at = self.shards.binary_search_by_key(&rank, |shard| shard.rank).ok()?;
        Some(&self.shards[at])
    }
}

/// One tensor of a [`Layout`].
#[derive(Clone, Debug)]
pub struct TensorLayout {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    pub(crate) placement: Arc<Placement>,
    pub(crate) aliases: Vec<String>,
    /// `(rank, name)` where a PE has another name for it, by rank.
    pub(crate) local_names: Vec<(u32, String)>,
}

impl TensorLayout {
    /// Name of the whole tensor, unique in its layout.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Element type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Global shape.
    pub fn shape(&self) -> &Dims {
        &self.placement.shape
    }

    /// How it lies over the PEs.
    pub fn placement(&self) -> &Arc<Placement> {
        &self.placement
    }

    /// Other names of the same values: the tensors that are tied to it.
    pub fn aliases(&self) -> &[String] {
        &self.aliases
    }

    /// Its name, then its aliases.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        [self.name()].into_iter().chain(self.aliases.iter().map(String::as_str))
    }

    /// What `rank` calls it: differs from the name where layers or experts are renumbered, and
    /// where a PE holds it only under the name of a tensor tied to it.
    pub fn local_name(&self, rank: u32) -> &str {
        match self.local_names.binary_search_by_key(&rank, |(rank, _)| *rank) {
            Ok(at) => &self.local_names[at].1,
            Err(_) => &self.name,
        }
    }
}

/// How a set of named tensors lies over PEs, checked and in explicit form.
///
/// ```
/// use syncline_layout::Layout;
///
/// let layout = Layout::from_json(
///     r#"{"format": "syncline-layout", "version": 1,
///         "tensors": [{"name": "w", "dtype": "bf16", "shape": [4, 2],
///           "shards": [
///             {"rank": 0, "shape": [2, 2],
///              "pieces": [{"global": [[0, 2], [0, 2]], "local": [0, 0]}]},
///             {"rank": 1, "shape": [2, 2],
///              "pieces": [{"global": [[2, 4], [0, 2]], "local": [0, 0]}]}]}]}"#,
/// )?;
/// assert_eq!(layout.world(), 2);
/// let shard = layout.tensor("w").unwrap().placement().shard(1).unwrap();
/// assert_eq!(shard.pieces[0].global.start[0], 2);
/// # Ok::<(), syncline_layout::LayoutError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Layout {
    pub(crate) tensors: Vec<TensorLayout>,
    /// Names and aliases.
    pub(crate) by_name: HashMap<String, u32>,
    unproven: Vec<String>,
}

impl Layout {
    /// An empty layout to add tensors to.
    pub fn builder() -> LayoutBuilder {
        LayoutBuilder::default()
    }

    /// The tensors, in the order in which they were given.
    pub fn tensors(&self) -> &[TensorLayout] {
        &self.tensors
    }

    /// The tensor with this name or alias.
    pub fn tensor(&self, name: &str) -> Option<&TensorLayout> {
        self.index_of(name).map(|index| &self.tensors[index])
    }

    /// Position in [`tensors`](Self::tensors) of the tensor with this name or alias.
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).map(|&index| index as usize)
    }

    /// Position of what `tensor`, of another layout, is here: the tensor with its name, or else
    /// with one of its aliases.
    pub(crate) fn counterpart_of(&self, tensor: &TensorLayout) -> Option<usize> {
        tensor.names().find_map(|name| self.index_of(name))
    }

    /// Why it is not known to be right for its model; empty if it is, or if that was not checked.
    pub fn unproven(&self) -> &[String] {
        &self.unproven
    }

    /// Notes why the layout is not known to be right for its model. The explicit form keeps the
    /// notes.
    pub fn set_unproven(&mut self, reasons: Vec<String>) {
        self.unproven = reasons;
    }

    /// One more than the highest rank that holds something; 0 if none does.
    pub fn world(&self) -> u32 {
        let last =
            |tensor: &TensorLayout| tensor.placement.shards.last().map(|shard| shard.rank + 1);
        self.tensors.iter().filter_map(last).max().unwrap_or(0)
    }

    /// Names, element types and shapes of all tensors.
    pub fn specs(&self) -> Vec<TensorSpec> {
        let spec = |tensor: &TensorLayout| TensorSpec {
            name: tensor.name.clone(),
            dtype: tensor.dtype,
            shape: *tensor.shape(),
        };
        self.tensors.iter().map(spec).collect()
    }

    /// A number that two equal layouts share, on any machine, and two different ones hardly ever.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = Fingerprint::new(0x1a70);
        for tensor in &self.tensors {
            hasher.text(&tensor.name);
            hasher.text(tensor.dtype.name());
            hasher.word(tensor.placement.hash);
            for alias in &tensor.aliases {
                hasher.text(alias);
            }
            for (rank, name) in &tensor.local_names {
                hasher.word(u64::from(*rank));
                hasher.text(name);
            }
        }
        hasher.finish()
    }
}
