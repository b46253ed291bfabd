//! The mesh form in TOML and JSON.

use serde::Deserialize;
use syncline_tensor::Dtype;

use super::TensorSpec;
use super::mesh::{Mesh, MeshLayout};
use super::pattern::expand_ranges;
use super::rules::TensorRule;
use crate::dims::Dims;
use crate::error::LayoutError;
use crate::number::Number;

/// Tensors that the file itself names; `name` may have ranges such as `{0..23}`.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
struct WeightForm {
    name: String,
    dtype: String,
    shape: Vec<Number>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MeshForm {
    mesh: Mesh,
    #[serde(default)]
    tensor: Vec<TensorRule>,
    #[serde(default)]
    weight: Vec<WeightForm>,
    #[serde(default)]
    stages: Option<Vec<u64>>,
}

impl MeshLayout {
    /// Reads the form in TOML.
    pub fn from_toml(text: &str) -> Result<Self, LayoutError> {
        Self::from_form(syncline_files::from_toml(text)?)
    }

    /// Reads the form in JSON.
    pub fn from_json(text: &str) -> Result<Self, LayoutError> {
        Self::from_form(syncline_files::from_json(text.as_bytes())?)
    }

    fn from_form(form: MeshForm) -> Result<Self, LayoutError> {
        let mut layout = Self::new(form.mesh, form.tensor);
        layout.mesh.stages = layout.mesh.stages.or(form.stages);
        for weight in form.weight {
            let place = || format!("weight `{}`", weight.name);
            let dtype: Dtype = weight.dtype.parse().map_err(|cause| LayoutError::Syntax {
                place: place(),
                cause: format!("{cause}"),
            })?;
            let dims = weight.shape.len();
            let sizes: Vec<u64> = weight.shape.iter().map(|size| size.0).collect();
            let shape = Dims::from_slice(&sizes)
                .ok_or_else(|| LayoutError::TooManyDims { tensor: weight.name.clone(), dims })?;
            for name in expand_ranges(&weight.name)? {
                layout.specs.push(TensorSpec { name, dtype, shape });
            }
        }
        Ok(layout)
    }
}
