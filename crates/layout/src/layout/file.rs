//! Layout files: either form, recognised by their members.

use serde::Deserialize;
use syncline_files::FormError;

use super::{Layout, MeshLayout, TensorSpec};
use crate::error::LayoutError;

/// A layout file as read: explicit, or a mesh that still needs tensors.
#[derive(Clone, Debug)]
pub enum LayoutFile {
    /// The explicit form.
    Explicit(Layout),
    /// The mesh form, TOML or JSON.
    Mesh(MeshLayout),
}

/// The members that distinguish the JSON forms; the reader of each form reads the rest.
#[derive(Deserialize)]
struct Outline {
    mesh: Option<serde::de::IgnoredAny>,
}

impl LayoutFile {
    /// Reads a layout file of any form.
    pub fn parse(text: &str) -> Result<Self, LayoutError> {
        if !text.trim_start().starts_with('{') {
            return MeshLayout::from_toml(text).map(Self::Mesh);
        }
        let outline: Outline =
            serde_json::from_str(text).map_err(|error| FormError::of_json(&error, None))?;
        match outline.mesh {
            Some(_) => MeshLayout::from_json(text).map(Self::Mesh),
            None => Layout::from_json(text).map(Self::Explicit),
        }
    }

    /// The tensors that the file itself names.
    pub fn specs(&self) -> Vec<TensorSpec> {
        match self {
            Self::Explicit(layout) => layout.specs(),
            Self::Mesh(mesh) => mesh.specs().to_vec(),
        }
    }

    /// The layout in explicit form; a mesh without tensors of its own is applied to `specs`.
    pub fn resolve(self, specs: &[TensorSpec]) -> Result<Layout, LayoutError> {
        match self {
            Self::Explicit(layout) => Ok(layout),
            Self::Mesh(mesh) if mesh.specs().is_empty() => mesh.compile(specs),
            Self::Mesh(mesh) => mesh.compile(mesh.specs()),
        }
    }
}
