//! Formats of checkpoints: which one a file or a directory has, and its reader.
//!
//! A reader finds where tensors lie in files; what reads elements knows of no format.

mod dcp;
mod index;
mod legacy;
mod pickle;
mod pickle_writer;
mod safetensors_files;
mod torch;
mod torch_files;
mod torch_types;
pub(crate) mod torch_writer;
mod zip;
mod zip_writer;

pub(crate) use dcp::METADATA_FILE;
pub(crate) use zip_writer::Checksum;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::error::CheckpointError;
use crate::source::{Checkpoint, INDEX_FILE, LAYOUT_FILE, SINGLE_FILE};
use crate::truncation::reading;

/// Names that weights in one file usually have, in the order in which they are tried.
const SINGLE_FILES: [&str; 4] =
    [SINGLE_FILE, "adapter_model.safetensors", "pytorch_model.bin", "adapter_model.bin"];

/// First parts of names that an error lists.
const FIRSTS_MAX: usize = 8;

/// Lists the parts of a model that lie in directories of their own.
const PARTS_FILE: &str = "model_index.json";

/// What Megatron writes beside the directories of its iterations.
const MEGATRON_LATEST: &str = "latest_checkpointed_iteration.txt";

/// Where the Hugging Face writer of `torch.distributed.checkpoint` puts the files of its ranks.
const SHARDED_FOLDER: &str = "sharded";

/// Opens the checkpoint at `path`; with `prefix`, the tensors below it.
pub(crate) fn open(path: &Path, prefix: Option<&str>) -> Result<Checkpoint, CheckpointError> {
    let open = || if path.is_file() { open_file(path) } else { open_folder(path) };
    let found = reading(open)?;
    match prefix {
        Some(prefix) => below(found, prefix),
        None => Ok(found),
    }
}

fn open_file(path: &Path) -> Result<Checkpoint, CheckpointError> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if name == METADATA_FILE || name.ends_with(".distcp") {
        return Err(CheckpointError::Unsupported {
            path: path.to_owned(),
            format: "one file of torch.distributed.checkpoint",
            way_out: "name its directory",
        });
    }
    if torch_files::is_torch(path)? {
        return torch_files::open(path, &[path.to_owned()]);
    }
    safetensors_files::open(path, &[path.to_owned()])
}

fn open_folder(folder: &Path) -> Result<Checkpoint, CheckpointError> {
    let has = |name: &str| folder.join(name).is_file();
    if has(LAYOUT_FILE) {
        return safetensors_files::open_sharded(folder);
    }
    if has(METADATA_FILE) {
        return dcp::open(folder);
    }
    if has(INDEX_FILE) {
        return safetensors_files::open_indexed(folder, INDEX_FILE);
    }
    if let Some(single) = SINGLE_FILES.into_iter().find(|name| has(name)) {
        return open_some(folder, &[folder.join(single)]);
    }
    let listed = listed(folder)?;
    let names = || listed.iter().filter_map(|path| path.file_name()?.to_str());
    let ends = |end: &str| {
        let of = |path: &&PathBuf| path.to_str().is_some_and(|name| name.ends_with(end));
        listed.iter().filter(of).cloned().collect::<Vec<_>>()
    };
    if let Some(index) = names().find(|name| name.ends_with(".safetensors.index.json")) {
        return safetensors_files::open_indexed(folder, index);
    }
    if let Some(index) = names().find(|name| name.ends_with(".bin.index.json")) {
        return torch_files::open_indexed(folder, index);
    }
    for end in [".safetensors", ".bin", ".pt", ".pth"] {
        let files = ends(end);
        // Beside other weights, torch files are states of optimizers and arguments of a training.
        if !files.is_empty() {
            return open_some(folder, &files);
        }
    }
    if has(MEGATRON_LATEST) {
        return open_iteration(folder);
    }
    if folder.join(SHARDED_FOLDER).is_dir() {
        return open_folder(&folder.join(SHARDED_FOLDER));
    }
    // Without a list of its parts, directories of weights are several models.
    let parts = match has(PARTS_FILE) {
        true => safetensors_files::open_folders(folder, &listed)?,
        false => None,
    };
    parts.ok_or_else(|| no_checkpoint(folder, &listed))
}

/// Opens files of one format.
fn open_some(folder: &Path, files: &[PathBuf]) -> Result<Checkpoint, CheckpointError> {
    match torch_files::is_torch(&files[0])? {
        true => torch_files::open(folder, files),
        false => safetensors_files::open(folder, files),
    }
}

/// The entries of a directory, by name.
fn listed(folder: &Path) -> Result<Vec<PathBuf>, CheckpointError> {
    let failed = |source| CheckpointError::Read { file: folder.to_owned(), source };
    let entries = folder.read_dir().map_err(failed)?;
    let paths: Result<Vec<PathBuf>, _> = entries.map(|entry| Ok(entry?.path())).collect();
    let mut paths = paths.map_err(failed)?;
    paths.sort();
    Ok(paths)
}

/// The iteration that Megatron wrote last.
fn open_iteration(folder: &Path) -> Result<Checkpoint, CheckpointError> {
    let path = folder.join(MEGATRON_LATEST);
    let text = crate::file::read_regular(&path)
        .map_err(|source| CheckpointError::Read { file: path.clone(), source })?;
    let number = text.trim();
    let iteration = match number.parse::<u64>() {
        Ok(number) => format!("iter_{number:07}"),
        Err(_) if number == "release" => number.to_owned(),
        Err(_) => {
            let cause = format!("`{}` is no iteration", syncline_files::one_line(number));
            return Err(CheckpointError::Damaged { file: path, cause });
        }
    };
    open_folder(&folder.join(iteration))
}

/// Says what the directory has instead of a checkpoint.
fn no_checkpoint(folder: &Path, listed: &[PathBuf]) -> CheckpointError {
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let find = |fits: fn(&str) -> bool| listed.iter().map(name).find(|name| fits(name));
    if find(|name| name.starts_with("mp_rank_")).is_some() {
        return CheckpointError::Unsupported {
            path: folder.to_owned(),
            format: "a directory of Megatron's ranks",
            way_out: "save it with --ckpt-format torch_dist, or name the file of one rank",
        };
    }
    if find(|name| name.ends_with(".gguf")).is_some() {
        return CheckpointError::Unsupported {
            path: folder.to_owned(),
            format: "GGUF",
            way_out: "convert the checkpoint that it was made from",
        };
    }
    if find(|name| name.ends_with(".distcp")).is_some() {
        let found = ".distcp files without their .metadata: the save was interrupted".to_owned();
        return CheckpointError::NoCheckpoint { folder: folder.to_owned(), found };
    }
    let found = match listed.len() {
        0 => "the directory is empty".to_owned(),
        1 => format!("`{}` only", syncline_files::one_line(&name(&listed[0]))),
        more => format!("{more} other files or directories"),
    };
    CheckpointError::NoCheckpoint { folder: folder.to_owned(), found }
}

/// The tensors below `prefix`, without it.
fn below(checkpoint: Checkpoint, prefix: &str) -> Result<Checkpoint, CheckpointError> {
    let prefix = prefix.trim_end_matches('.');
    let tensors = checkpoint.whole_tensors().map_err(|_| {
        CheckpointError::Target("a prefix is for checkpoints that are not sharded".to_owned())
    })?;
    let rest = |name: &str| Some(name.strip_prefix(prefix)?.strip_prefix('.')?.to_owned());
    let found: BTreeMap<_, _> =
        tensors.iter().filter_map(|(name, of)| Some((rest(name)?, of.clone()))).collect();
    if found.is_empty() {
        let firsts: BTreeSet<&str> =
            tensors.keys().filter_map(|name| name.split('.').next()).collect();
        let firsts = firsts.into_iter().take(FIRSTS_MAX).collect::<Vec<_>>().join(", ");
        return Err(CheckpointError::Target(format!(
            "no tensor is below `{prefix}`: names begin with {firsts}"
        )));
    }
    checkpoint.with_tensors(found)
}
