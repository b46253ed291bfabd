//! Checkpoints as they are found on disk.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use syncline_layout::{Dims, Layout, NdBox, Piece, Shard};

use crate::element::ElementType;
use crate::error::CheckpointError;
use crate::file::read_regular;
use crate::map::MappedFile;
use crate::safetensors::Header;
use crate::truncation::reading;
use crate::unique::Unique;

pub(crate) const LAYOUT_FILE: &str = "layout.json";
pub(crate) const INDEX_FILE: &str = "model.safetensors.index.json";
pub(crate) const SINGLE_FILE: &str = "model.safetensors";

/// The name of a rank's file in a sharded checkpoint.
pub(crate) fn rank_file(rank: u32) -> String {
    format!("rank-{rank:05}.safetensors")
}

/// A checkpoint, mapped for reading.
///
/// Do not change its files while it is open: they are read where they are. A file that is cut short
/// meanwhile ends the process by a signal; other changes are found out before a result is given.
#[derive(Debug)]
pub struct Checkpoint {
    folder: PathBuf,
    layout: Layout,
    files: Vec<MappedFile>,
    /// Where each tensor lies, for each rank.
    places: HashMap<(u32, u32), Place>,
    elements: Vec<ElementType>,
    metadata: BTreeMap<String, String>,
}

/// A run of bytes in one of a checkpoint's files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Its position among the files.
    pub(crate) file: usize,
    /// The first byte.
    pub(crate) start: u64,
    pub(crate) bytes: u64,
}

#[derive(Deserialize)]
struct IndexForm {
    weight_map: Unique<BTreeMap<String, String>>,
}

impl Checkpoint {
    /// Opens the checkpoint in `folder`, or the one safetensors file given.
    pub fn open(folder: &Path) -> Result<Self, CheckpointError> {
        let mut reader = Reader::default();
        if folder.is_file() {
            reader.whole_files(&[folder.to_owned()])?;
        } else if folder.join(LAYOUT_FILE).is_file() {
            return reader.sharded(folder);
        } else if folder.join(INDEX_FILE).is_file() {
            reader.indexed(folder)?;
        } else if folder.join(SINGLE_FILE).is_file() {
            reader.whole_files(&[folder.join(SINGLE_FILE)])?;
        } else {
            return Err(CheckpointError::NoCheckpoint { folder: folder.to_owned() });
        }
        reader.finish_whole(folder)
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// How its tensors lie over ranks; all on rank 0 if it is not sharded.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Element type, as files name it, of the tensor at this position of the layout.
    pub fn element(&self, tensor: u32) -> ElementType {
        self.elements[tensor as usize]
    }

    /// Free text that its files carry.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// The bytes of a tensor's shard, where the file is mapped. If the file is cut short meanwhile,
    /// touching them ends the process by a signal; conversions and comparisons report it instead.
    pub fn shard(&self, tensor: u32, rank: u32) -> Option<&[u8]> {
        let &Place { file, start, bytes } = self.places.get(&(tensor, rank))?;
        self.files[file].bytes().get(start as usize..(start + bytes) as usize)
    }

    /// Where the shard of a tensor lies.
    pub(crate) fn place(&self, tensor: u32, rank: u32) -> Option<Place> {
        self.places.get(&(tensor, rank)).copied()
    }

    /// The same files as tensors of another form.
    pub(crate) fn with_form(
        self,
        layout: Layout,
        places: HashMap<(u32, u32), Place>,
        elements: Vec<ElementType>,
    ) -> Self {
        Self { layout, places, elements, ..self }
    }

    /// Bytes of all files, and when they were last changed: what a resumed conversion must find
    /// unchanged.
    pub(crate) fn state(&self) -> String {
        self.files.iter().map(MappedFile::state).collect()
    }

    /// Refuses what was read of files that have been changed since they were opened.
    pub(crate) fn check_unchanged(&self) -> Result<(), CheckpointError> {
        match self.files.iter().find(|file| !file.is_unchanged()) {
            Some(file) => Err(CheckpointError::Changed { file: file.path.clone() }),
            None => Ok(()),
        }
    }
}

fn read_text(path: &Path) -> Result<String, CheckpointError> {
    let failed = |source| CheckpointError::Read { file: path.to_owned(), source };
    read_regular(path).map_err(failed)
}

/// The file of each tensor, by the index in `folder`.
fn read_index(folder: &Path) -> Result<BTreeMap<String, String>, CheckpointError> {
    let path = folder.join(INDEX_FILE);
    let damaged = |cause: String| CheckpointError::Damaged { file: path.clone(), cause };
    let form: IndexForm =
        serde_json::from_str(&read_text(&path)?).map_err(|error| damaged(error.to_string()))?;
    let Unique(weight_map) = form.weight_map;
    // An index must not lead out of its directory.
    let is_outside = |name: &&String| name.contains('/') || ["", ".", ".."].contains(&&***name);
    match weight_map.values().find(is_outside) {
        Some(outside) => Err(damaged(format!("`{outside}` is not a file of this directory"))),
        None => Ok(weight_map),
    }
}

#[derive(Default)]
struct Reader {
    files: Vec<MappedFile>,
    headers: Vec<Header>,
    metadata: BTreeMap<String, String>,
}

impl Reader {
    fn file(&mut self, path: &Path) -> Result<usize, CheckpointError> {
        let file = MappedFile::open(path)?;
        let header = reading(|| Header::parse(file.bytes()))
            .map_err(|cause| CheckpointError::Damaged { file: path.to_owned(), cause })?;
        self.metadata.extend(header.metadata.clone());
        self.files.push(file);
        self.headers.push(header);
        Ok(self.files.len() - 1)
    }

    fn whole_files(&mut self, paths: &[PathBuf]) -> Result<(), CheckpointError> {
        paths.iter().try_for_each(|path| self.file(path).map(|_| ()))
    }

    /// The files of an index, each with all tensors that the index says it has.
    fn indexed(&mut self, folder: &Path) -> Result<(), CheckpointError> {
        let index = read_index(folder)?;
        let mut names_of: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (tensor, file) in &index {
            names_of.entry(file).or_default().push(tensor);
        }
        for (file, names) in names_of {
            let path = folder.join(file);
            let at = self.file(&path)?;
            let tensors = &self.headers[at].tensors;
            let held: HashSet<&str> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
            if let Some(name) = names.into_iter().find(|name| !held.contains(name)) {
                let cause = format!("tensor `{name}` is in {INDEX_FILE}, not in this file");
                return Err(CheckpointError::Damaged { file: path, cause });
            }
        }
        Ok(())
    }

    fn finish_whole(self, folder: &Path) -> Result<Checkpoint, CheckpointError> {
        let mut builder = Layout::builder();
        let mut places = HashMap::new();
        let mut elements = Vec::new();
        for (file, header) in self.headers.iter().enumerate() {
            for tensor in &header.tensors {
                let shape = tensor.stored_shape;
                let shard = whole_shard(0, shape);
                builder.tensor(&tensor.name, tensor.element.dtype(), &shape, vec![shard])?;
                let start = header.data_start + tensor.start;
                let place = Place { file, start, bytes: tensor.bytes };
                places.insert((elements.len() as u32, 0), place);
                elements.push(tensor.element);
            }
        }
        let Self { files, metadata, .. } = self;
        let (folder, layout) = (folder.to_owned(), builder.finish());
        Ok(Checkpoint { folder, layout, files, places, elements, metadata })
    }

    fn sharded(mut self, folder: &Path) -> Result<Checkpoint, CheckpointError> {
        let path = folder.join(LAYOUT_FILE);
        let damaged =
            |file: &Path, cause| CheckpointError::Damaged { file: file.to_owned(), cause };
        let layout = Layout::from_json(&read_text(&path)?)
            .map_err(|error| damaged(&path, error.to_string()))?;
        let mut file_of = HashMap::new();
        let mut entry_of = HashMap::new();
        let mut places = HashMap::new();
        let mut elements = Vec::new();
        for (index, tensor) in (0u32..).zip(layout.tensors()) {
            let mut element = ElementType::Known(tensor.dtype());
            for shard in tensor.placement().shards() {
                let rank = shard.rank;
                let path = folder.join(rank_file(rank));
                let file = match file_of.get(&rank) {
                    Some(&file) => file,
                    None => {
                        let file = self.file(&path)?;
                        for (at, entry) in self.headers[file].tensors.iter().enumerate() {
                            entry_of.insert((file, entry.name.clone()), at);
                        }
                        file_of.insert(rank, file);
                        file
                    }
                };
                let name = tensor.local_name(rank);
                let missing =
                    || damaged(&path, format!("tensor `{name}` is in the layout, not in the file"));
                let header = &self.headers[file];
                let at = *entry_of.get(&(file, name.to_owned())).ok_or_else(missing)?;
                let entry = &header.tensors[at];
                if entry.stored_shape != shard.shape || entry.element.dtype() != tensor.dtype() {
                    let cause = format!(
                        "tensor `{name}` is {} of shape {}, the layout says {} of shape {}",
                        entry.element.name(),
                        entry.stored_shape,
                        tensor.dtype(),
                        shard.shape
                    );
                    return Err(damaged(&path, cause));
                }
                element = entry.element;
                let start = header.data_start + entry.start;
                places.insert((index, rank), Place { file, start, bytes: entry.bytes });
            }
            elements.push(element);
        }
        let Self { files, metadata, .. } = self;
        Ok(Checkpoint { folder: folder.to_owned(), layout, files, places, elements, metadata })
    }
}

/// A shard that is the whole of a tensor.
pub(crate) fn whole_shard(rank: u32, shape: Dims) -> Shard {
    let piece = Piece { global: NdBox::whole(shape), local: shape.zeros() };
    Shard { rank, shape, pieces: vec![piece] }
}
