//! Checkpoints of safetensors files: whole, with an index, of ranks, over several directories, and
//! with the offsets that `torch.distributed.checkpoint` saves.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use syncline_layout::{Dims, Layout};

use super::index::Index;
use super::torch_files::read_tensors;
use crate::destination::RankFiles;
use crate::element::ElementType;
use crate::error::{CheckpointError, Malformed};
use crate::file::read_regular;
use crate::safetensors::{Header, TensorEntry};
use crate::source::{Checkpoint, CheckpointFormat, Contents, LAYOUT_FILE};
use crate::stored::{StoredBox, StoredTensor};

/// The member of the metadata with the offsets that `torch.distributed.checkpoint` saves.
const OFFSETS: &str = "DCP_SHARDING_INFO";

/// Where a tensor of a file begins in the whole tensor.
#[derive(Deserialize)]
struct OffsetsForm {
    saved_offsets: Vec<u64>,
}

#[derive(Default)]
struct Reader {
    contents: Contents,
    headers: Vec<Header>,
}

impl Reader {
    fn file(&mut self, path: &Path) -> Result<u32, CheckpointError> {
        let file = self.contents.map(path)?;
        let header = Header::parse(self.contents.bytes(file));
        let header = header.map_err(|cause| cause.in_file(path))?;
        self.contents.metadata.extend(header.metadata.clone());
        self.headers.push(header);
        Ok(file)
    }

    /// The tensors in the file of a rank.
    fn rank(
        &mut self,
        path: &Path,
        files: RankFiles,
    ) -> Result<HashMap<String, StoredTensor>, CheckpointError> {
        if files == RankFiles::Megatron {
            let file = self.contents.map(path)?;
            let found = read_tensors(self.contents.bytes(file), file, 0);
            let found = found.map_err(|cause| cause.in_file(path))?;
            let below = |(name, tensor): (String, StoredTensor)| {
                Some((name.strip_prefix("model.")?.to_owned(), tensor))
            };
            return Ok(found.tensors.into_iter().filter_map(below).collect());
        }
        let file = self.file(path)?;
        let header = self.headers.last().expect("it was just read");
        let tensors = header.tensors.iter();
        Ok(tensors.map(|entry| (entry.name.clone(), stored(file, header, entry))).collect())
    }

    fn path(&self, file: u32) -> &Path {
        &self.contents.files[file as usize].path
    }

    /// The tensors of all files, with `prefix` of each file before their names.
    fn tensors(
        &self,
        prefix: impl Fn(u32) -> String,
    ) -> Result<Vec<(String, StoredTensor)>, CheckpointError> {
        let mut tensors: Vec<(String, StoredTensor)> = Vec::new();
        let mut file_of: HashMap<String, u32> = HashMap::new();
        for (file, header) in (0u32..).zip(&self.headers) {
            for entry in &header.tensors {
                let name = prefix(file) + &entry.name;
                if let Some(other) = file_of.insert(name.clone(), file) {
                    let other = self.path(other).display();
                    let cause = format!("tensor `{name}` is also in {other}");
                    return Err(Malformed::new(cause).in_file(self.path(file)));
                }
                tensors.push((name, stored(file, header, entry)));
            }
        }
        Ok(tensors)
    }
}

fn stored(file: u32, header: &Header, entry: &TensorEntry) -> StoredTensor {
    let (element, shape) = (entry.element, entry.stored_shape);
    let start = header.data_start + entry.start;
    let boxes = vec![StoredBox::row_major(file, start, shape, element.dtype().bytes())];
    StoredTensor { element, shape, boxes }
}

/// Opens files with whole tensors, or with parts of them where their offsets are saved.
pub(super) fn open(path: &Path, files: &[PathBuf]) -> Result<Checkpoint, CheckpointError> {
    let mut reader = Reader::default();
    for file in files {
        reader.file(file)?;
    }
    if reader.headers.iter().any(|header| header.metadata.contains_key(OFFSETS)) {
        return with_offsets(path, reader);
    }
    let is_adapter = files.len() == 1 && files[0].ends_with("adapter_model.safetensors");
    let format = if is_adapter { CheckpointFormat::Adapter } else { CheckpointFormat::Safetensors };
    let tensors = reader.tensors(|_| String::new())?;
    reader.contents.finish(path, format, tensors)
}

/// Opens the files of an index, each with all tensors that the index says it has.
pub(super) fn open_indexed(folder: &Path, name: &str) -> Result<Checkpoint, CheckpointError> {
    let index = Index::read(folder, name)?;
    let mut reader = Reader::default();
    for file in index.tensors_of.keys() {
        let path = folder.join(file);
        let at = reader.file(&path)?;
        let tensors = &reader.headers[at as usize].tensors;
        let held: HashSet<&str> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
        index.check(file, &path, &held)?;
    }
    let tensors = reader.tensors(|_| String::new())?;
    reader.contents.finish(folder, CheckpointFormat::Safetensors, tensors)
}

/// Opens the directories in `folder` that have safetensors files; names get the directory's before
/// them. Returns `None` if there are none.
pub(super) fn open_folders(
    folder: &Path,
    listed: &[PathBuf],
) -> Result<Option<Checkpoint>, CheckpointError> {
    let mut reader = Reader::default();
    let mut folder_of: Vec<String> = Vec::new();
    for inner in listed.iter().filter(|path| path.is_dir()) {
        let Some(name) = inner.file_name().and_then(|name| name.to_str()) else { continue };
        let is_weights = |path: &&PathBuf| path.extension().is_some_and(|end| end == "safetensors");
        for path in super::listed(inner)?.iter().filter(is_weights) {
            reader.file(path)?;
            folder_of.push(format!("{name}."));
        }
    }
    if folder_of.is_empty() {
        return Ok(None);
    }
    let tensors = reader.tensors(|file| folder_of[file as usize].clone())?;
    reader.contents.finish(folder, CheckpointFormat::Safetensors, tensors).map(Some)
}

/// Tensors put together from the files of ranks.
fn with_offsets(folder: &Path, mut reader: Reader) -> Result<Checkpoint, CheckpointError> {
    let mut tensors: BTreeMap<String, StoredTensor> = BTreeMap::new();
    for (file, header) in (0u32..).zip(&reader.headers) {
        let damaged = |cause: String| Malformed::new(cause).in_file(reader.path(file));
        let text = header.metadata.get(OFFSETS).map_or("{}", String::as_str);
        let offsets: BTreeMap<String, OffsetsForm> =
            serde_json::from_str(text).map_err(|error| damaged(format!("{OFFSETS}: {error}")))?;
        for entry in &header.tensors {
            let mut part = stored(file, header, entry);
            if let Some(form) = offsets.get(&entry.name) {
                let start = Dims::from_slice(&form.saved_offsets);
                let start = start.filter(|start| start.len() == part.shape.len());
                let start = start.ok_or_else(|| {
                    damaged(format!("{OFFSETS}: the offsets of `{}` do not fit", entry.name))
                })?;
                part.boxes[0].area.start = start;
            }
            let whole = tensors.entry(entry.name.clone()).or_insert_with(|| {
                let (element, shape) = (part.element, part.shape.zeros());
                StoredTensor { element, shape, boxes: Vec::new() }
            });
            join(whole, part)
                .map_err(|cause| damaged(format!("tensor `{}`: {cause}", entry.name)))?;
        }
    }
    reader.contents.metadata.remove(OFFSETS);
    reader.contents.finish(folder, CheckpointFormat::Distributed, tensors)
}

/// Adds a part to a tensor, whose shape grows as far as the part reaches.
fn join(whole: &mut StoredTensor, part: StoredTensor) -> Result<(), Malformed> {
    let area = part.boxes[0].area;
    if whole.shape.len() != area.size.len() || whole.element != part.element {
        return Err("its parts have unlike shapes or element types".into());
    }
    if !matches!(part.element, ElementType::Known(_)) {
        return Err("parts of packed elements".into());
    }
    for dim in 0..area.size.len() {
        let stop = area.start[dim].checked_add(area.size[dim]);
        let stop = stop.ok_or("an offset is too large")?;
        whole.shape[dim] = whole.shape[dim].max(stop);
    }
    // Replicated parts are saved by several ranks.
    if !whole.boxes.iter().any(|known| known.area == area) {
        whole.boxes.extend(part.boxes);
    }
    Ok(())
}

/// Opens a file a rank, as `layout.json` says.
pub(super) fn open_sharded(folder: &Path) -> Result<Checkpoint, CheckpointError> {
    let mut reader = Reader::default();
    let path = folder.join(LAYOUT_FILE);
    let text = read_regular(&path)
        .map_err(|source| CheckpointError::Read { file: path.clone(), source })?;
    let layout = Layout::from_json(&text)
        .map_err(|error| Malformed::new(error.to_string()).in_file(&path))?;
    let first = layout.tensors().iter().find_map(|of| of.placement().shards().first());
    let has =
        |files: &RankFiles| first.is_some_and(|of| folder.join(files.name(of.rank)).is_file());
    let files = RankFiles::ALL.into_iter().find(has).unwrap_or_default();
    let mut tensors_of: HashMap<u32, HashMap<String, StoredTensor>> = HashMap::new();
    let mut boxes = HashMap::new();
    let mut elements = Vec::new();
    for (index, tensor) in (0u32..).zip(layout.tensors()) {
        let mut element = ElementType::Known(tensor.dtype());
        for shard in tensor.placement().shards() {
            let rank = shard.rank;
            let path = folder.join(files.name(rank));
            if let Entry::Vacant(entry) = tensors_of.entry(rank) {
                entry.insert(reader.rank(&path, files)?);
            }
            let name = tensor.local_name(rank);
            let damaged = |cause: String| Malformed::new(cause).in_file(&path);
            let missing = || damaged(format!("tensor `{name}` is in the layout, not in the file"));
            let stored = tensors_of[&rank].get(name).ok_or_else(missing)?;
            if stored.shape != shard.shape || stored.element.dtype() != tensor.dtype() {
                return Err(damaged(format!(
                    "tensor `{name}` is {} of shape {}, the layout says {} of shape {}",
                    stored.element.name(),
                    stored.shape,
                    tensor.dtype(),
                    shard.shape
                )));
            }
            stored
                .check(|file| reader.contents.bytes(file).len() as u64)
                .map_err(|cause| damaged(format!("tensor `{name}`: {cause}")))?;
            element = stored.element;
            boxes.insert((index, rank), stored.boxes.clone());
        }
        elements.push(element);
    }
    let format = CheckpointFormat::Sharded;
    Ok(reader.contents.with_layout(folder, format, layout, boxes, elements))
}
