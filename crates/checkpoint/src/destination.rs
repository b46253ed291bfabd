//! What a conversion writes: which files, with which tensors.

use std::collections::{BTreeMap, HashSet};

use syncline_layout::{Layout, TensorSpec};
use syncline_tensor::Dtype;

use crate::element::ElementType;
use crate::error::CheckpointError;
use crate::safetensors::{Header, TensorEntry};
use crate::source::{Checkpoint, INDEX_FILE, LAYOUT_FILE, SINGLE_FILE, rank_file, whole_shard};

/// The form of a new checkpoint.
#[derive(Clone, Debug)]
pub enum Destination {
    /// One file a rank, and the layout beside them.
    Sharded(Layout),
    /// As the Hugging Face tools write it: one file, or several of at most so many bytes and an
    /// index.
    HuggingFace {
        /// Bytes of tensors in one file, unless a single tensor has more.
        file_bytes_max: u64,
    },
}

/// A file to write.
#[derive(Clone, Debug)]
pub(crate) struct OutputFile {
    pub(crate) name: String,
    pub(crate) header: Header,
    pub(crate) header_bytes: Vec<u8>,
    /// Position in the layout and rank of each tensor of the header.
    pub(crate) tensors: Vec<(u32, u32)>,
}

impl Destination {
    /// The layout that it asks for, of `source`'s tensors with floats as `dtype` if that is given.
    pub(crate) fn layout(
        &self,
        source: &Checkpoint,
        dtype: Option<Dtype>,
    ) -> Result<Layout, CheckpointError> {
        match self {
            Self::Sharded(layout) => Ok(layout.clone()),
            Self::HuggingFace { .. } => {
                let mut builder = Layout::builder();
                for spec in target_specs(source, dtype) {
                    let shards = vec![whole_shard(0, spec.shape)];
                    builder.tensor(&spec.name, spec.dtype, &spec.shape, shards)?;
                }
                Ok(builder.finish())
            }
        }
    }

    /// The files, and the text files beside them.
    pub(crate) fn files(
        &self,
        layout: &Layout,
        source: &Checkpoint,
    ) -> Result<(Vec<OutputFile>, Vec<(String, String)>), CheckpointError> {
        let element = |tensor: u32| element_of(layout, tensor, source);
        match self {
            Self::Sharded(_) => {
                let mut ranks: BTreeMap<u32, Vec<(u32, u32)>> = BTreeMap::new();
                for (index, tensor) in (0u32..).zip(layout.tensors()) {
                    for shard in tensor.placement().shards() {
                        ranks.entry(shard.rank).or_default().push((index, shard.rank));
                    }
                }
                let file = |(rank, tensors)| {
                    output_file(rank_file(rank), layout, tensors, source, element)
                };
                let files = ranks.into_iter().map(file).collect::<Result<_, _>>()?;
                Ok((files, vec![(LAYOUT_FILE.to_owned(), layout.to_json())]))
            }
            Self::HuggingFace { file_bytes_max } => {
                let groups = group(layout, *file_bytes_max);
                let count = groups.len();
                let mut files = Vec::new();
                for (at, tensors) in groups.into_iter().enumerate() {
                    let name = match count {
                        1 => SINGLE_FILE.to_owned(),
                        _ => format!("model-{:05}-of-{count:05}.safetensors", at + 1),
                    };
                    files.push(output_file(name, layout, tensors, source, element)?);
                }
                let beside = if count > 1 {
                    vec![(INDEX_FILE.to_owned(), index(&files))]
                } else {
                    Vec::new()
                };
                Ok((files, beside))
            }
        }
    }
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

fn output_file(
    name: String,
    layout: &Layout,
    mut tensors: Vec<(u32, u32)>,
    source: &Checkpoint,
    element: impl Fn(u32) -> ElementType,
) -> Result<OutputFile, CheckpointError> {
    // Larger elements first, so that every tensor is aligned to its elements although no gaps are
    // allowed.
    tensors.sort_by_key(|&(tensor, _)| {
        std::cmp::Reverse(layout.tensors()[tensor as usize].dtype().bytes())
    });
    let mut header = Header { metadata: source.metadata().clone(), ..Default::default() };
    let mut names = HashSet::new();
    for &(tensor, rank) in &tensors {
        let placed = &layout.tensors()[tensor as usize];
        let shard = placed.placement().shard(rank).expect("the layout was asked for its shards");
        let local = placed.local_name(rank).to_owned();
        if !names.insert(local.clone()) {
            return Err(CheckpointError::NameClash { rank, name: local });
        }
        let element = element(tensor);
        if element.element_shape(&shard.shape).is_none() {
            return Err(CheckpointError::Target(format!(
                "tensor `{local}` on rank {rank}: packed {} elements would be cut: shard another dimension",
                element.name()
            )));
        }
        header.tensors.push(TensorEntry {
            name: local,
            element,
            stored_shape: shard.shape,
            start: 0,
            bytes: shard.shape.volume() * placed.dtype().bytes(),
        });
    }
    let header_bytes = header.write();
    Ok(OutputFile { name, header, header_bytes, tensors })
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
        for tensor in &file.header.tensors {
            weight_map.insert(&tensor.name, &file.name);
            total_size += tensor.bytes;
        }
    }
    let form =
        serde_json::json!({"metadata": {"total_size": total_size}, "weight_map": weight_map});
    serde_json::to_string_pretty(&form).expect("text and numbers can be written") + "\n"
}
