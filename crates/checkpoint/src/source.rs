//! Checkpoints as they are found on disk.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use syncline_copy::CopyPlan;
use syncline_copy::convert::Converter;
use syncline_layout::{Dims, Fingerprint, Layout, NdBox, Piece, Shard};

use crate::element::ElementType;
use crate::error::CheckpointError;
use crate::formats;
use crate::map::MappedFile;
use crate::stored::{StoredBox, StoredTensor};

pub(crate) const LAYOUT_FILE: &str = "layout.json";
pub(crate) const INDEX_FILE: &str = "model.safetensors.index.json";
pub(crate) const SINGLE_FILE: &str = "model.safetensors";

/// Bytes that are read before their memory is given back: the memory of a conversion does not grow
/// with the checkpoint, and few pages are read twice.
pub(crate) const RELEASE_BYTES: u64 = 64 << 20;

/// The formats that checkpoints are read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CheckpointFormat {
    /// Safetensors files with whole tensors.
    Safetensors,
    /// Safetensors files with the local tensors of each rank, and `layout.json`.
    Sharded,
    /// A LoRA adapter: `adapter_model.safetensors` or `.bin` and `adapter_config.json`.
    Adapter,
    /// Files of `torch.save`.
    Torch,
    /// A directory of `torch.distributed.checkpoint`; Megatron-core's `torch_dist` is one.
    Distributed,
}

impl CheckpointFormat {
    /// Its name in outputs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Safetensors => "safetensors",
            Self::Sharded => "sharded",
            Self::Adapter => "adapter",
            Self::Torch => "torch",
            Self::Distributed => "dcp",
        }
    }
}

/// A checkpoint, mapped for reading.
///
/// Do not change its files while it is open: they are read where they are. A file that is cut short
/// meanwhile ends the process by a signal; other changes are found out before a result is given.
#[derive(Debug)]
pub struct Checkpoint {
    folder: PathBuf,
    format: CheckpointFormat,
    layout: Layout,
    files: Vec<MappedFile>,
    /// Where the shard of each tensor lies, by tensor and rank.
    boxes: HashMap<(u32, u32), Vec<StoredBox>>,
    elements: Vec<ElementType>,
    metadata: BTreeMap<String, String>,
    others: Vec<String>,
    /// The tensors are in another form than in the files.
    is_mapped: bool,
}

/// What a reader of some format has found.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) files: Vec<MappedFile>,
    pub(crate) metadata: BTreeMap<String, String>,
    /// Names of values that are no tensors.
    pub(crate) others: Vec<String>,
}

impl Contents {
    /// Maps a file.
    pub(crate) fn map(&mut self, path: &Path) -> Result<u32, CheckpointError> {
        self.files.push(MappedFile::open(path)?);
        Ok((self.files.len() - 1) as u32)
    }

    /// Returns the bytes of a file that was mapped.
    pub(crate) fn bytes(&self, file: u32) -> &[u8] {
        self.files[file as usize].bytes()
    }

    /// The checkpoint of whole tensors, checked.
    pub(crate) fn finish(
        self,
        path: &Path,
        format: CheckpointFormat,
        tensors: impl IntoIterator<Item = (String, StoredTensor)>,
    ) -> Result<Checkpoint, CheckpointError> {
        let mut builder = Layout::builder();
        let (mut boxes, mut elements) = (HashMap::new(), Vec::new());
        for (name, tensor) in tensors {
            let file = tensor.boxes.first().map(|first| &self.files[first.file as usize].path);
            tensor.check(|file| self.bytes(file).len() as u64).map_err(|cause| {
                let file = file.map_or(path, PathBuf::as_path).to_owned();
                CheckpointError::Damaged { file, cause: format!("tensor `{name}`: {cause}") }
            })?;
            let StoredTensor { element, shape, boxes: parts } = tensor;
            let shard = whole_shard(0, shape);
            builder.tensor(&name, element.dtype(), &shape, vec![shard])?;
            boxes.insert((elements.len() as u32, 0), parts);
            elements.push(element);
        }
        Ok(self.with_layout(path, format, builder.finish(), boxes, elements))
    }

    /// The checkpoint with shards of ranks, each of them checked.
    pub(crate) fn with_layout(
        self,
        path: &Path,
        format: CheckpointFormat,
        layout: Layout,
        boxes: HashMap<(u32, u32), Vec<StoredBox>>,
        elements: Vec<ElementType>,
    ) -> Checkpoint {
        let Self { files, metadata, others } = self;
        let folder = path.to_owned();
        Checkpoint {
            folder,
            format,
            layout,
            files,
            boxes,
            elements,
            metadata,
            others,
            is_mapped: false,
        }
    }
}

/// Where elements of a shard go: at `start` of a row-major array of `shape`.
pub(crate) struct Landing<'a> {
    pub(crate) start: Dims,
    pub(crate) shape: &'a Dims,
    /// Bytes of an element, in the file and in the array.
    pub(crate) element_bytes: (u64, u64),
}

impl Checkpoint {
    /// Opens the checkpoint in `folder`, or the one file given, of any format that is known.
    pub fn open(folder: &Path) -> Result<Self, CheckpointError> {
        formats::open(folder, None)
    }

    /// Opens a checkpoint and takes the tensors below `prefix`, such as `model` in a training
    /// checkpoint, with the prefix removed from their names.
    pub fn open_below(folder: &Path, prefix: &str) -> Result<Self, CheckpointError> {
        formats::open(folder, Some(prefix))
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The format of its files.
    pub fn format(&self) -> CheckpointFormat {
        self.format
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

    /// Names of values in its files that are no tensors, such as arguments of a training: they are
    /// not carried over.
    pub fn others(&self) -> &[String] {
        &self.others
    }

    /// Returns the files and their bytes.
    pub fn files(&self) -> impl Iterator<Item = (&Path, u64)> {
        self.files.iter().map(|file| (&*file.path, file.bytes().len() as u64))
    }

    /// Returns the bytes of a tensor's shard in row-major order: from the file where they lie there
    /// as one run, else put together. If the file is cut short meanwhile, touching them ends the
    /// process by a signal; conversions and comparisons report it instead.
    pub fn shard(&self, tensor: u32, rank: u32) -> Option<Cow<'_, [u8]>> {
        let placement = self.layout.tensors().get(tensor as usize)?.placement();
        let area = NdBox::whole(placement.shard(rank)?.shape);
        let mut memory = Vec::new();
        match self.read(tensor, rank, &area, &mut memory) {
            Some(run) => Some(Cow::Borrowed(run)),
            None => Some(Cow::Owned(memory)),
        }
    }

    /// Reads the box `area` of a tensor's shard in row-major order: returns its bytes where they
    /// lie in a file as one run, else puts them together in `memory`.
    ///
    /// # Panics
    /// Panics if `rank` has no shard of the tensor.
    pub fn read(
        &self,
        tensor: u32,
        rank: u32,
        area: &NdBox,
        memory: &mut Vec<u8>,
    ) -> Option<&[u8]> {
        let element_bytes = self.layout.tensors()[tensor as usize].dtype().bytes();
        let start = area.start.zeros();
        let element_bytes = (element_bytes, element_bytes);
        let landing = Landing { start, shape: &area.size, element_bytes };
        let bytes = area.volume() * element_bytes.1;
        if let Some(run) = self.run_of(tensor, rank, area, &landing, bytes) {
            return Some(run);
        }
        memory.clear();
        memory.resize(bytes as usize, 0);
        self.copy_box(tensor, rank, area, &landing, None, memory);
        None
    }

    /// Returns the bytes of `area` if all `bytes` of the array are one run of a file.
    pub(crate) fn run_of(
        &self,
        tensor: u32,
        rank: u32,
        area: &NdBox,
        landing: &Landing<'_>,
        bytes: u64,
    ) -> Option<&[u8]> {
        let whole = self.boxes_in(tensor, rank, area).next()?;
        let plan = plan_of(&whole, area, landing);
        if plan.bytes() != bytes || plan.runs() != 1 {
            return None;
        }
        let run = plan.source_span();
        Some(&self.files[whole.file as usize].bytes()[run.start as usize..run.end as usize])
    }

    /// Copies the elements of `area` to their places in `target`, converting them.
    pub(crate) fn copy_box(
        &self,
        tensor: u32,
        rank: u32,
        area: &NdBox,
        landing: &Landing<'_>,
        convert: Option<Converter>,
        target: &mut [u8],
    ) {
        for part in self.boxes_in(tensor, rank, area) {
            let source = self.files[part.file as usize].bytes();
            let copied = plan_of(&part, area, landing).copy(source, target, convert);
            copied.expect("boxes lie in their files: that was checked when they were opened");
        }
    }

    /// Elements of `area` that are stored; all others are zero.
    pub(crate) fn elements_in(&self, tensor: u32, rank: u32, area: &NdBox) -> u64 {
        self.boxes_in(tensor, rank, area).map(|part| part.area.volume()).sum()
    }

    /// The stored boxes, cut to `area` of a shard.
    fn boxes_in(
        &self,
        tensor: u32,
        rank: u32,
        area: &NdBox,
    ) -> impl Iterator<Item = StoredBox> + Clone {
        let boxes = self.boxes.get(&(tensor, rank)).expect("the rank holds the tensor");
        boxes.iter().filter_map(move |part| part.cut(area))
    }

    /// Its tensors as they are stored, by name; an error if they are sharded.
    pub(crate) fn whole_tensors(&self) -> Result<BTreeMap<String, StoredTensor>, String> {
        let mut tensors = BTreeMap::new();
        for (index, tensor) in (0u32..).zip(self.layout.tensors()) {
            // Of an empty tensor, no piece is kept.
            let is_all = |shard: &Shard| {
                let held = shard.pieces.iter().map(|piece| piece.global.volume());
                shard.shape == *tensor.shape() && held.sum::<u64>() == shard.shape.volume()
            };
            let is_whole = matches!(tensor.placement().shards(), [only] if is_all(only));
            let Some(boxes) = self.boxes.get(&(index, 0)).filter(|_| is_whole) else {
                return Err(tensor.name().to_owned());
            };
            let (element, shape, boxes) = (self.element(index), *tensor.shape(), boxes.clone());
            tensors.insert(tensor.name().to_owned(), StoredTensor { element, shape, boxes });
        }
        Ok(tensors)
    }

    /// The same files as tensors of another form.
    pub(crate) fn with_tensors(
        self,
        tensors: BTreeMap<String, StoredTensor>,
    ) -> Result<Self, CheckpointError> {
        let mut builder = Layout::builder();
        let (mut boxes, mut elements) = (HashMap::new(), Vec::new());
        for (index, (name, tensor)) in (0u32..).zip(tensors) {
            let shards = vec![whole_shard(0, tensor.shape)];
            builder.tensor(&name, tensor.element.dtype(), &tensor.shape, shards)?;
            boxes.insert((index, 0), tensor.boxes);
            elements.push(tensor.element);
        }
        Ok(Self { layout: builder.finish(), boxes, elements, is_mapped: true, ..self })
    }

    /// Bytes of all files, when they were last changed, and where tensors of another form lie in
    /// them: what a resumed conversion must find unchanged.
    pub(crate) fn state(&self) -> String {
        let mut state: String = self.files.iter().map(MappedFile::state).collect();
        if self.is_mapped {
            let mut hasher = Fingerprint::new(self.boxes.len() as u64);
            for index in (0u32..).take(self.elements.len()) {
                for part in self.boxes.get(&(index, 0)).into_iter().flatten() {
                    hasher.text(&format!("{part:?}"));
                }
            }
            state += &format!("{:016x}", hasher.finish());
        }
        state
    }

    /// Gives back the memory of what was read, if the bytes read have passed another multiple of
    /// [`RELEASE_BYTES`].
    pub(crate) fn release_after(&self, bytes_before: u64, bytes: u64) {
        if bytes_before / RELEASE_BYTES != (bytes_before + bytes) / RELEASE_BYTES {
            self.files.iter().for_each(MappedFile::release);
        }
    }

    /// Refuses what was read of files that have been changed since they were opened.
    pub(crate) fn check_unchanged(&self) -> Result<(), CheckpointError> {
        match self.files.iter().find(|file| !file.is_unchanged()) {
            Some(file) => Err(CheckpointError::Changed { file: file.path.clone() }),
            None => Ok(()),
        }
    }
}

/// Plans the copy of `part`, which lies in `area`, to where it lands.
fn plan_of(part: &StoredBox, area: &NdBox, landing: &Landing<'_>) -> CopyPlan {
    let mut start = landing.start;
    for dim in 0..start.len() {
        start[dim] += part.area.start[dim] - area.start[dim];
    }
    let plan = part.copy_to(&start, landing.shape, landing.element_bytes);
    plan.expect("boxes were checked when they were opened")
}

/// A shard that is the whole of a tensor.
pub(crate) fn whole_shard(rank: u32, shape: Dims) -> Shard {
    let piece = Piece { global: NdBox::whole(shape), local: shape.zeros() };
    Shard { rank, shape, pieces: vec![piece] }
}
