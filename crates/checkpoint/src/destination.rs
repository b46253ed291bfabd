//! What a conversion writes: which files, with which tensors.

use std::collections::{BTreeMap, HashSet};

use syncline_layout::{Dims, Layout, TensorSpec};
use syncline_tensor::Dtype;

use crate::element::ElementType;
use crate::error::CheckpointError;
use crate::formats::torch_writer::{self, NewTensor, PlacedItem, TorchLayout};
use crate::formats::{Checksum, METADATA_FILE};
use crate::safetensors::{Header, TensorEntry};
use crate::source::{Checkpoint, INDEX_FILE, LAYOUT_FILE, SINGLE_FILE, whole_shard};

/// The form of a new checkpoint.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Destination {
    /// One file a rank, and the layout beside them.
    Sharded(Layout),
    /// The same with other files.
    Ranks(Layout, RankFiles),
    /// As the Hugging Face tools write it: one file, or several of at most so many bytes and an
    /// index.
    HuggingFace {
        /// Bytes of tensors in one file, unless a single tensor has more.
        file_bytes_max: u64,
    },
    /// A directory that `torch.distributed.checkpoint.load` reads, with whole tensors.
    Distributed {
        /// Bytes of tensors in one file, unless a single tensor has more.
        file_bytes_max: u64,
    },
}

/// The files of ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RankFiles {
    /// `rank-00000.safetensors`.
    #[default]
    Safetensors,
    /// `model-rank-0-part-0.safetensors`, as vLLM's sharded state.
    Vllm,
    /// `mp_rank_00/model_optim_rng.pt`, as Megatron's ranks: a dict with the state dict as `model`.
    Megatron,
}

impl RankFiles {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Safetensors, Self::Vllm, Self::Megatron];

    /// The name of a rank's file.
    pub(crate) fn name(self, rank: u32) -> String {
        match self {
            Self::Safetensors => format!("rank-{rank:05}.safetensors"),
            Self::Vllm => format!("model-rank-{rank}-part-0.safetensors"),
            Self::Megatron => format!("mp_rank_{rank:02}/model_optim_rng.pt"),
        }
    }
}

/// A file to write.
#[derive(Clone, Debug)]
pub(crate) struct OutputFile {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    /// Bytes that are no tensors, by where they lie.
    pub(crate) fixed: Vec<(u64, Vec<u8>)>,
    pub(crate) tensors: Vec<OutputTensor>,
    /// Checksums to fill in at the end.
    pub(crate) sums: Vec<Checksum>,
}

/// A tensor of a file to write.
#[derive(Clone, Debug)]
pub(crate) struct OutputTensor {
    pub(crate) name: String,
    /// Position in the layout, and rank.
    pub(crate) place: (u32, u32),
    pub(crate) element: ElementType,
    /// In units of the type that plans move it as.
    pub(crate) shape: Dims,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// Files with tensors, and small files beside them.
pub(crate) type Files = (Vec<OutputFile>, Vec<(String, Vec<u8>)>);

impl Destination {
    /// The layout over ranks; `None` if tensors stay whole.
    pub fn ranks(&self) -> Option<&Layout> {
        match self {
            Self::Sharded(layout) | Self::Ranks(layout, _) => Some(layout),
            Self::HuggingFace { .. } | Self::Distributed { .. } => None,
        }
    }

    /// The same with other files of ranks, if it has ranks.
    #[must_use]
    pub fn with_files(self, files: RankFiles) -> Self {
        match self {
            Self::Sharded(layout) | Self::Ranks(layout, _) => Self::Ranks(layout, files),
            whole => whole,
        }
    }

    /// The layout that it asks for, of `source`'s tensors with floats as `dtype` if that is given.
    pub(crate) fn layout(
        &self,
        source: &Checkpoint,
        dtype: Option<Dtype>,
    ) -> Result<Layout, CheckpointError> {
        if let Some(layout) = self.ranks() {
            return Ok(layout.clone());
        }
        let mut builder = Layout::builder();
        for spec in target_specs(source, dtype) {
            let shards = vec![whole_shard(0, spec.shape)];
            builder.tensor(&spec.name, spec.dtype, &spec.shape, shards)?;
        }
        Ok(builder.finish())
    }

    /// The files, and the small files beside them.
    pub(crate) fn files(
        &self,
        layout: &Layout,
        source: &Checkpoint,
    ) -> Result<Files, CheckpointError> {
        match self {
            Self::Sharded(_) => rank_files(layout, source, RankFiles::Safetensors),
            Self::Ranks(_, files) => rank_files(layout, source, *files),
            Self::HuggingFace { file_bytes_max } => {
                let groups = group(layout, *file_bytes_max);
                let count = groups.len();
                let mut files = Vec::new();
                for (at, tensors) in groups.into_iter().enumerate() {
                    let name = match count {
                        1 => SINGLE_FILE.to_owned(),
                        _ => format!("model-{:05}-of-{count:05}.safetensors", at + 1),
                    };
                    let tensors = named_tensors(layout, tensors, source)?;
                    files.push(safetensors_file(name, tensors, source));
                }
                let mut beside = Vec::new();
                if count > 1 {
                    beside.push((INDEX_FILE.to_owned(), index(&files).into_bytes()));
                }
                Ok((files, beside))
            }
            Self::Distributed { file_bytes_max } => distributed(layout, source, *file_bytes_max),
        }
    }
}

/// A file a rank, and the layout.
fn rank_files(
    layout: &Layout,
    source: &Checkpoint,
    form: RankFiles,
) -> Result<Files, CheckpointError> {
    let mut ranks: BTreeMap<u32, Vec<(u32, u32)>> = BTreeMap::new();
    for (index, tensor) in (0u32..).zip(layout.tensors()) {
        for shard in tensor.placement().shards() {
            ranks.entry(shard.rank).or_default().push((index, shard.rank));
        }
    }
    let file = |(rank, tensors)| {
        let tensors = named_tensors(layout, tensors, source)?;
        match form {
            RankFiles::Megatron => {
                let laid_out = torch_writer::state_dict(&new_tensors(&tensors), Some("model"))?;
                Ok(torch_file(form.name(rank), tensors, laid_out))
            }
            _ => Ok(safetensors_file(form.name(rank), tensors, source)),
        }
    };
    let files = ranks.into_iter().map(file).collect::<Result<_, CheckpointError>>()?;
    Ok((files, vec![(LAYOUT_FILE.to_owned(), layout.to_json().into_bytes())]))
}

/// Files of `torch.distributed.checkpoint` with whole tensors, and their metadata.
fn distributed(
    layout: &Layout,
    source: &Checkpoint,
    file_bytes_max: u64,
) -> Result<Files, CheckpointError> {
    let (mut files, mut places) = (Vec::new(), Vec::new());
    for (at, tensors) in group(layout, file_bytes_max).into_iter().enumerate() {
        let tensors = named_tensors(layout, tensors, source)?;
        let (laid_out, items) = torch_writer::items(&new_tensors(&tensors))?;
        files.push(torch_file(format!("__0_{at}.distcp"), tensors, laid_out));
        places.extend(items);
    }
    let tensors = files.iter().flat_map(|file| file.tensors.iter().map(|of| (&*file.name, of)));
    let items = tensors.zip(places).map(|((file, of), (offset, bytes))| {
        let tensor = NewTensor { name: &of.name, element: of.element, shape: of.shape };
        PlacedItem { tensor, file, offset, bytes }
    });
    let metadata = torch_writer::metadata(&items.collect::<Vec<_>>())?;
    Ok((files, vec![(METADATA_FILE.to_owned(), metadata)]))
}

fn new_tensors(tensors: &[OutputTensor]) -> Vec<NewTensor<'_>> {
    let tensors = tensors.iter();
    tensors.map(|of| NewTensor { name: &of.name, element: of.element, shape: of.shape }).collect()
}

fn torch_file(name: String, mut tensors: Vec<OutputTensor>, laid_out: TorchLayout) -> OutputFile {
    let TorchLayout { bytes, places, fixed, sums } = laid_out;
    for (tensor, place) in tensors.iter_mut().zip(places) {
        tensor.offset = place;
    }
    OutputFile { name, bytes, fixed, tensors, sums }
}

/// The tensors of `source` with floats as `dtype`, if one is given.
pub fn target_specs(source: &Checkpoint, dtype: Option<Dtype>) -> Vec<TensorSpec> {
    let mut specs = source.layout().specs();
    for (index, spec) in (0u32..).zip(&mut specs) {
        let plain = matches!(source.element(index), ElementType::Known(_));
        if let Some(dtype) = dtype.filter(|_| plain && is_float(spec.dtype)) {
            spec.dtype = dtype;
        }
    }
    specs
}

/// True for the types that can be converted to each other.
pub(crate) fn is_float(dtype: Dtype) -> bool {
    syncline_copy::convert::is_supported(dtype, Dtype::F32)
}

/// A tensor keeps the name of its element type where its elements are not converted.
fn element_of(layout: &Layout, tensor: u32, source: &Checkpoint) -> ElementType {
    let target = &layout.tensors()[tensor as usize];
    let names = [target.name()].into_iter().chain(target.aliases().iter().map(String::as_str));
    let known = names.into_iter().find_map(|name| source.layout().index_of(name));
    match known.map(|known| source.element(known as u32)) {
        Some(element) if element.dtype() == target.dtype() => element,
        _ => ElementType::Known(target.dtype()),
    }
}

/// The tensors of a file under the names that they have there.
fn named_tensors(
    layout: &Layout,
    mut tensors: Vec<(u32, u32)>,
    source: &Checkpoint,
) -> Result<Vec<OutputTensor>, CheckpointError> {
    // Larger elements first, so that every tensor is aligned to its elements although no gaps are
    // allowed.
    tensors.sort_by_key(|&(tensor, _)| {
        std::cmp::Reverse(layout.tensors()[tensor as usize].dtype().bytes())
    });
    let mut found = Vec::new();
    let mut names = HashSet::new();
    for &(tensor, rank) in &tensors {
        let placed = &layout.tensors()[tensor as usize];
        let shard = placed.placement().shard(rank).expect("the layout was asked for its shards");
        let local = placed.local_name(rank).to_owned();
        if !names.insert(local.clone()) {
            return Err(CheckpointError::NameClash { rank, name: local });
        }
        let element = element_of(layout, tensor, source);
        if element.element_shape(&shard.shape).is_none() {
            return Err(CheckpointError::Target(format!(
                "tensor `{local}` on rank {rank}: packed {} elements would be cut: shard another dimension",
                element.name()
            )));
        }
        found.push(OutputTensor {
            name: local,
            place: (tensor, rank),
            element,
            shape: shard.shape,
            offset: 0,
            bytes: shard.shape.volume() * placed.dtype().bytes(),
        });
    }
    Ok(found)
}

fn safetensors_file(
    name: String,
    mut tensors: Vec<OutputTensor>,
    source: &Checkpoint,
) -> OutputFile {
    let mut header = Header { metadata: source.metadata().clone(), ..Default::default() };
    header.tensors.extend(tensors.iter().map(|of| TensorEntry {
        name: of.name.clone(),
        element: of.element,
        stored_shape: of.shape,
        start: 0,
        bytes: of.bytes,
    }));
    let head = header.write();
    for (tensor, entry) in tensors.iter_mut().zip(&header.tensors) {
        tensor.offset = header.data_start + entry.start;
    }
    let bytes = header.file_bytes();
    OutputFile { name, bytes, fixed: vec![(0, head)], tensors, sums: Vec::new() }
}

/// Tensors in runs of at most `bytes_max`.
fn group(layout: &Layout, bytes_max: u64) -> Vec<Vec<(u32, u32)>> {
    let mut groups = vec![Vec::new()];
    let mut bytes_in = 0u64;
    for (index, tensor) in (0u32..).zip(layout.tensors()) {
        let bytes = tensor.shape().volume() * tensor.dtype().bytes();
        let last = groups.last_mut().expect("it starts with one");
        if bytes_in.saturating_add(bytes) > bytes_max && !last.is_empty() {
            groups.push(vec![(index, 0)]);
            bytes_in = bytes;
        } else {
            last.push((index, 0));
            bytes_in += bytes;
        }
    }
    groups
}

fn index(files: &[OutputFile]) -> String {
    let mut weight_map = BTreeMap::new();
    let mut total_size = 0;
    for file in files {
        for tensor in &file.tensors {
            weight_map.insert(&tensor.name, &file.name);
            total_size += tensor.bytes;
        }
    }
    let form =
        serde_json::json!({"metadata": {"total_size": total_size}, "weight_map": weight_map});
    serde_json::to_string_pretty(&form).expect("text and numbers can be written") + "\n"
}
