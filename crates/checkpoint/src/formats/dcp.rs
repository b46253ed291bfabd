//! Directories of `torch.distributed.checkpoint`, of which Megatron-core's `torch_dist` is one:
//! `.metadata`, a pickle that says which part of which tensor lies where, and `.distcp` files, in
//! which each part is what `torch.save` writes.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use syncline_layout::{Dims, NdBox};

use super::index::is_inside;
use super::pickle::{Pickle, PickledObject, ValueId};
use super::torch::sizes;
use super::torch_files::read_tensors;
use super::torch_types::{element_of_dtype, is_allowed};
use crate::element::ElementType;
use crate::error::{CheckpointError, Malformed};
use crate::map::MappedFile;
use crate::source::{Checkpoint, CheckpointFormat, Contents};
use crate::stored::{StoredBox, StoredTensor};

pub(crate) const METADATA_FILE: &str = ".metadata";

/// Where one part of a tensor lies: file, first byte and bytes.
struct Item {
    path: String,
    offset: u64,
    bytes: u64,
}

/// A tensor as the metadata describes it.
struct Described {
    element: ElementType,
    shape: Dims,
    chunks: Vec<NdBox>,
}

/// Opens the directory.
pub(super) fn open(folder: &Path) -> Result<Checkpoint, CheckpointError> {
    let path = folder.join(METADATA_FILE);
    let metadata = MappedFile::open(&path)?;
    let (described, items, others) =
        parse(metadata.bytes()).map_err(|cause| cause.in_file(&path))?;
    let mut contents = Contents { others, ..Default::default() };
    // The metadata is one of the files that must not change.
    contents.files.push(metadata);
    let mut file_of: HashMap<String, u32> = HashMap::new();
    let mut tensors = Vec::new();
    for (name, Described { element, shape, chunks }) in described {
        let mut boxes = Vec::new();
        for chunk in chunks {
            let item = items.get(&(name.clone(), chunk.start)).ok_or_else(|| {
                let cause = format!("tensor `{name}`: nothing says where {chunk} lies");
                Malformed::new(cause).in_file(&path)
            })?;
            let file = match file_of.get(&item.path) {
                Some(&file) => file,
                None => {
                    let file = contents.map(&folder.join(&item.path))?;
                    file_of.insert(item.path.clone(), file);
                    file
                }
            };
            let part = part(contents.bytes(file), file, item, element, &chunk);
            let in_file = |cause: Malformed| {
                let cause = Malformed::new(format!("tensor `{name}`, {chunk}: {cause}"));
                cause.in_file(&contents.files[file as usize].path)
            };
            boxes.push(part.map_err(in_file)?);
        }
        tensors.push((name, StoredTensor { element, shape, boxes }));
    }
    contents.finish(folder, CheckpointFormat::Distributed, tensors)
}

/// The one tensor that an item is, at its place.
fn part(
    bytes: &[u8],
    file: u32,
    item: &Item,
    element: ElementType,
    chunk: &NdBox,
) -> Result<StoredBox, Malformed> {
    let end = item.offset.checked_add(item.bytes).filter(|&end| end <= bytes.len() as u64);
    let end = end.ok_or_else(|| {
        format!("bytes from {} on are past the file's {}", item.offset, bytes.len())
    })?;
    let saved = &bytes[item.offset as usize..end as usize];
    let found = read_tensors(saved, file, item.offset)?;
    let Ok([(_, tensor)]) = <[_; 1]>::try_from(found.tensors) else {
        return Err("it is not one tensor".into());
    };
    if tensor.shape != chunk.size || tensor.element != element {
        return Err(format!(
            "it is {} of shape {}, .metadata says {} of shape {}",
            tensor.element.name(),
            tensor.shape,
            element.name(),
            chunk.size
        )
        .into());
    }
    Ok(StoredBox { area: *chunk, ..tensor.boxes[0] })
}

type Parsed = (BTreeMap<String, Described>, HashMap<(String, Dims), Item>, Vec<String>);

/// Reads `.metadata`: the tensors, where their parts lie, and the names of what else there is.
fn parse(bytes: &[u8]) -> Result<Parsed, Malformed> {
    let (pickle, _) = Pickle::read(bytes, &is_allowed)?;
    let root = object(&pickle, pickle.root(), "Metadata")?;
    let member = |name: &str| {
        let id = pickle.member(root, name);
        id.ok_or_else(|| Malformed::new(format!("the metadata has no `{name}`")))
    };
    let entries = |id| pickle.entries(id).ok_or_else(|| Malformed::from("a member is no dict"));
    let (mut described, mut others) = (BTreeMap::new(), Vec::new());
    for &(name, value) in entries(member("state_dict_metadata")?)? {
        let name = pickle.text(name).ok_or("the name of a tensor is no text")?;
        let in_tensor = |cause: Malformed| Malformed::new(format!("tensor `{name}`: {cause}"));
        match object(&pickle, value, "TensorStorageMetadata") {
            Ok(tensor) => {
                let tensor = described_tensor(&pickle, tensor).map_err(in_tensor)?;
                if described.insert(name.to_owned(), tensor).is_some() {
                    return Err(format!("`{name}` is there twice").into());
                }
            }
            Err(_) if object(&pickle, value, "BytesStorageMetadata").is_ok() => {
                others.push(name.to_owned());
            }
            Err(cause) => return Err(in_tensor(cause)),
        }
    }
    let mut items = HashMap::new();
    for &(index, value) in entries(member("storage_data")?)? {
        let index = object(&pickle, index, "MetadataIndex")?;
        let name = pickle.member(index, "fqn").and_then(|id| pickle.text(id));
        let name = name.ok_or("an entry of the storage has no name")?;
        let offset = pickle.member(index, "offset").and_then(|id| sizes(&pickle, id));
        // Values that are no tensors have no offset.
        let Some(offset) = offset else { continue };
        items.insert((name.to_owned(), offset), item(&pickle, value)?);
    }
    Ok((described, items, others))
}

/// The object at `id` if its class is `name` of some package.
fn object<'p>(
    pickle: &'p Pickle<'_>,
    id: ValueId,
    name: &str,
) -> Result<&'p PickledObject, Malformed> {
    let (class, object) =
        pickle.object(id).ok_or_else(|| format!("no {name} where one has to be"))?;
    match class.rsplit('.').next() == Some(name) && class.starts_with("torch.") {
        true => Ok(object),
        false => Err(format!("`{class}` where {name} has to be").into()),
    }
}

fn described_tensor(pickle: &Pickle<'_>, tensor: &PickledObject) -> Result<Described, Malformed> {
    let member = |object, name: &str| {
        pickle.member(object, name).ok_or_else(|| Malformed::new(format!("it has no `{name}`")))
    };
    let properties = object(pickle, member(tensor, "properties")?, "TensorProperties")?;
    // A tuple; early versions had a dict.
    let dtype = match properties.state.and_then(|state| pickle.members(state)) {
        Some(members) => *members.first().ok_or("its properties are empty")?,
        None => member(properties, "dtype")?,
    };
    let dtype = pickle.global(dtype).ok_or("its element type is none")?;
    let element =
        element_of_dtype(dtype).ok_or_else(|| format!("elements of `{dtype}` cannot be read"))?;
    let shape = sizes(pickle, member(tensor, "size")?).ok_or("its size is none")?;
    let chunks = pickle.members(member(tensor, "chunks")?).ok_or("its chunks are no list")?;
    let chunk = |&id: &ValueId| {
        let chunk = object(pickle, id, "ChunkStorageMetadata")?;
        let start = sizes(pickle, member(chunk, "offsets")?);
        let size = sizes(pickle, member(chunk, "sizes")?);
        let (start, size) = start.zip(size).ok_or("a chunk without offsets and sizes")?;
        let fits =
            |dim: usize| start[dim].checked_add(size[dim]).is_some_and(|stop| stop <= shape[dim]);
        match start.len() == shape.len() && size.len() == shape.len() && (0..shape.len()).all(fits)
        {
            true => Ok(NdBox { start, size }),
            false => Err(Malformed::from("a chunk is not within the tensor")),
        }
    };
    let chunks = chunks.iter().map(chunk).collect::<Result<Vec<_>, _>>()?;
    // A chunk without elements, of a rank that has no part, shares its start with another one.
    let is_all = shape.contains(&0);
    let chunks = chunks.into_iter().filter(|chunk| is_all || !chunk.is_empty()).collect();
    Ok(Described { element, shape, chunks })
}

fn item(pickle: &Pickle<'_>, id: ValueId) -> Result<Item, Malformed> {
    let info = object(pickle, id, "_StorageInfo")?;
    let member = |name: &str| pickle.member(info, name);
    let path = member("relative_path").and_then(|id| pickle.text(id));
    let number = |name: &str| member(name).and_then(|id| pickle.size(id));
    let (path, offset, bytes) = (path, number("offset"), number("length"));
    let path = path.ok_or("an entry of the storage has no file")?;
    if !is_inside(path) {
        return Err(format!("`{path}` is not a file of this directory").into());
    }
    let transforms = member("transform_descriptors").and_then(|id| pickle.members(id));
    if transforms.is_some_and(|transforms| !transforms.is_empty()) {
        return Err("its parts are compressed: save it without extensions".into());
    }
    let (offset, bytes) = offset.zip(bytes).ok_or("an entry of the storage has no place")?;
    Ok(Item { path: path.to_owned(), offset, bytes })
}
