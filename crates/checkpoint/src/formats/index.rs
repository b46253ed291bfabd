//! Indexes of checkpoints in several files, `*.index.json`: the file of each tensor.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use serde::Deserialize;

use crate::error::{CheckpointError, Malformed};
use crate::file::read_regular;
use crate::unique::Unique;

#[derive(Deserialize)]
struct IndexForm {
    weight_map: Unique<BTreeMap<String, String>>,
}

/// The tensors that an index expects in each file.
pub(super) struct Index {
    name: String,
    pub(super) tensors_of: BTreeMap<String, Vec<String>>,
}

impl Index {
    /// Reads the index `name` in `folder`.
    pub(super) fn read(folder: &Path, name: &str) -> Result<Self, CheckpointError> {
        let path = folder.join(name);
        let text = read_regular(&path)
            .map_err(|source| CheckpointError::Read { file: path.clone(), source })?;
        let damaged = |cause: String| Malformed::new(cause).in_file(&path);
        let form: IndexForm =
            serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
        let mut tensors_of: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (tensor, file) in form.weight_map.0 {
            if !is_inside(&file) {
                return Err(damaged(format!("`{file}` is not a file of this directory")));
            }
            tensors_of.entry(file).or_default().push(tensor);
        }
        Ok(Self { name: name.to_owned(), tensors_of })
    }

    /// Refuses the file `file` at `path` if it lacks a tensor that the index says it has.
    pub(super) fn check(
        &self,
        file: &str,
        path: &Path,
        held: &HashSet<&str>,
    ) -> Result<(), CheckpointError> {
        let mut expected = self.tensors_of[file].iter();
        match expected.find(|name| !held.contains(name.as_str())) {
            None => Ok(()),
            Some(name) => {
                let cause = format!("tensor `{name}` is in {}, not in this file", self.name);
                Err(Malformed::new(cause).in_file(path))
            }
        }
    }
}

/// Returns `true` if a relative path does not lead out of its directory.
pub(super) fn is_inside(path: &str) -> bool {
    !path.contains('\\') && path.split('/').all(|part| !["", ".", ".."].contains(&part))
}
