//! Files of `torch.save`: zip archives, and what torch wrote before 1.6.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::index::Index;
use super::legacy;
use super::pickle::Pickle;
use super::torch::{Found, Storages, Walk};
use super::torch_types::is_allowed;
use super::zip::{LOCAL, ZipArchive};
use crate::error::{CheckpointError, Malformed};
use crate::file::open_regular;
use crate::source::{Checkpoint, CheckpointFormat, Contents};
use crate::stored::StoredTensor;

/// The pickle of an archive.
const PICKLE: &str = "data.pkl";

/// Formats that are known by their first bytes, and not read.
const REFUSED: [(&[u8], &str, &str); 3] = [
    (b"GGUF", "GGUF", "convert the checkpoint that it was made from"),
    (b"\x89HDF", "HDF5", "save it as safetensors"),
    (b"\x1f\x8b", "a compressed file", "unpack it"),
];

/// Returns `true` if torch wrote the file, by its first bytes; refuses formats of others by name.
pub(super) fn is_torch(path: &Path) -> Result<bool, CheckpointError> {
    let failed = |source| CheckpointError::Read { file: path.to_owned(), source };
    let mut first = Vec::new();
    let file: File = open_regular(path).map_err(failed)?;
    file.take(512).read_to_end(&mut first).map_err(failed)?;
    let refused = |format, way_out| {
        Err(CheckpointError::Unsupported { path: path.to_owned(), format, way_out })
    };
    if let Some((_, format, way_out)) = REFUSED.iter().find(|(magic, ..)| first.starts_with(magic))
    {
        return refused(format, way_out);
    }
    if first.get(257..262) == Some(b"ustar") {
        return refused("a tar file of torch before 0.1.10", "load and save it with a newer torch");
    }
    if first.starts_with(LOCAL) || legacy::is_legacy(&first) {
        return Ok(true);
    }
    let is_named = path
        .extension()
        .is_some_and(|end| ["bin", "pt", "pth", "ckpt"].iter().any(|of| end == *of));
    match is_named {
        true => Err(Malformed::from("neither a zip archive nor a pickle of torch").in_file(path)),
        false => Ok(false),
    }
}

/// Opens files of `torch.save`, all tensors in their containers.
pub(super) fn open(path: &Path, files: &[PathBuf]) -> Result<Checkpoint, CheckpointError> {
    let mut contents = Contents::default();
    let mut tensors: Vec<(String, StoredTensor)> = Vec::new();
    for file in files {
        let found = read_file(&mut contents, file)?;
        tensors.extend(found.tensors);
        contents.others.extend(found.others);
    }
    if tensors.is_empty() {
        return Err(Malformed::from("there are no tensors in it").in_file(&files[0]));
    }
    check_names(path, &tensors)?;
    let is_adapter = files.len() == 1 && files[0].ends_with("adapter_model.bin");
    let format = if is_adapter { CheckpointFormat::Adapter } else { CheckpointFormat::Torch };
    contents.finish(path, format, tensors)
}

/// Opens the files of an index, each with all tensors that the index says it has.
pub(super) fn open_indexed(folder: &Path, name: &str) -> Result<Checkpoint, CheckpointError> {
    let index = Index::read(folder, name)?;
    let mut contents = Contents::default();
    let mut tensors = Vec::new();
    for file in index.tensors_of.keys() {
        let path = folder.join(file);
        let found = read_file(&mut contents, &path)?;
        let held: HashSet<&str> = found.tensors.iter().map(|(name, _)| name.as_str()).collect();
        index.check(file, &path, &held)?;
        tensors.extend(found.tensors);
        contents.others.extend(found.others);
    }
    check_names(folder, &tensors)?;
    contents.finish(folder, CheckpointFormat::Torch, tensors)
}

/// Refuses files that share names: they are parts of ranks.
fn check_names(path: &Path, tensors: &[(String, StoredTensor)]) -> Result<(), CheckpointError> {
    let mut seen = HashSet::new();
    match tensors.iter().find(|(name, _)| !seen.insert(name)) {
        None => Ok(()),
        Some((name, _)) => {
            let cause = format!("tensor `{name}` is there twice: these are files of several ranks");
            Err(Malformed::new(cause).in_file(path))
        }
    }
}

fn read_file(contents: &mut Contents, path: &Path) -> Result<Found, CheckpointError> {
    let file = contents.map(path)?;
    read_tensors(contents.bytes(file), file, 0).map_err(|cause| cause.in_file(path))
}

/// Finds the tensors of what `torch.save` wrote to `bytes`, which begin at `start` of the file.
pub(super) fn read_tensors(bytes: &[u8], file: u32, start: u64) -> Result<Found, Malformed> {
    if !bytes.starts_with(LOCAL) {
        return legacy::read_tensors(bytes, file, start);
    }
    let archive = ZipArchive::read(bytes)?;
    let mut pickles = archive.entries().filter_map(|(name, _)| name.strip_suffix(PICKLE));
    let Some(folder) = pickles.find(|folder| folder.is_empty() || folder.ends_with('/')) else {
        return Err("a zip archive without data.pkl: not written by torch.save".into());
    };
    if archive.entries().any(|(name, _)| name == format!("{folder}constants.pkl")) {
        return Err("a TorchScript program: save its state_dict() with torch.save".into());
    }
    let order = archive.get(&format!("{folder}byteorder")).unwrap_or(b"little");
    if order != b"little" {
        return Err("its bytes are in big-endian order".into());
    }
    let pickle = archive.get(&format!("{folder}{PICKLE}")).expect("it was found above");
    let (pickle, _) = Pickle::read(pickle, &is_allowed)?;
    Walk::tensors(&pickle, &ArchiveStorages { archive: &archive, folder, file, start })
}

/// Storages that are entries of an archive.
struct ArchiveStorages<'a> {
    archive: &'a ZipArchive<'a>,
    folder: &'a str,
    file: u32,
    start: u64,
}

impl Storages for ArchiveStorages<'_> {
    fn find(&self, key: &str) -> Option<(u32, u64, u64)> {
        let range = self.archive.range(&format!("{}data/{key}", self.folder))?;
        Some((self.file, self.start + range.start as u64, range.len() as u64))
    }
}
