//! Laying out files of `torch.save` and directories of `torch.distributed.checkpoint`.

use syncline_layout::Dims;

use super::pickle_writer::PickleWriter;
use super::torch_types::{dtype_of_element, storage_of_element};
use super::zip_writer::{Checksum, ZipWriter};
use crate::element::ElementType;
use crate::error::CheckpointError;

/// What a file has beside the bytes of tensors.
#[derive(Debug, Default)]
pub(crate) struct TorchLayout {
    pub(crate) bytes: u64,
    /// Where the bytes of each tensor go.
    pub(crate) places: Vec<u64>,
    /// Bytes that are no tensors, by where they lie.
    pub(crate) fixed: Vec<(u64, Vec<u8>)>,
    pub(crate) sums: Vec<Checksum>,
}

/// A tensor of a new file: name, element type and shape in units of what plans move.
pub(crate) struct NewTensor<'a> {
    pub(crate) name: &'a str,
    pub(crate) element: ElementType,
    pub(crate) shape: Dims,
}

impl NewTensor<'_> {
    fn bytes(&self) -> u64 {
        self.shape.volume() * self.element.dtype().bytes()
    }

    /// torch's names of the element type; an error if it has none.
    fn names(&self) -> Result<(&'static str, &'static str), CheckpointError> {
        dtype_of_element(self.element).zip(storage_of_element(self.element)).ok_or_else(|| {
            CheckpointError::NotConvertible {
                tensor: self.name.to_owned(),
                element: self.element.name(),
                cause: "torch has no such element type".to_owned(),
            }
        })
    }

    /// Writes the tensor, whose bytes are the storage `key`.
    fn write(&self, key: usize, out: &mut PickleWriter) -> Result<(), CheckpointError> {
        let (dtype, storage) = self.names()?;
        // Types since torch 2.1 have no storages of their own.
        let is_new = dtype.starts_with("float8") || dtype.starts_with("float4");
        let is_new = is_new || ["uint16", "uint32", "uint64"].contains(&dtype);
        let name = if is_new { "_rebuild_tensor_v3" } else { "_rebuild_tensor_v2" };
        out.call("torch._utils", name, |out| {
            out.persistent(|out| {
                out.text("storage");
                match is_new {
                    true => out.global("torch.storage", "UntypedStorage"),
                    false => out.global("torch", &format!("{storage}Storage")),
                }
                out.text(&key.to_string());
                out.text("cpu");
                out.number(if is_new { self.bytes() } else { self.shape.volume() });
            });
            out.number(0);
            out.numbers(&self.shape);
            out.numbers(&self.shape.row_major_strides(1));
            out.flag(false);
            out.ordered(|_| {});
            if is_new {
                out.global("torch", dtype);
            }
        });
        Ok(())
    }
}

/// A file of `torch.save` with a state dict; with `member`, of a dict with the state dict as this
/// member.
pub(crate) fn state_dict(
    tensors: &[NewTensor<'_>],
    member: Option<&str>,
) -> Result<TorchLayout, CheckpointError> {
    tensors.iter().try_for_each(|tensor| tensor.names().map(|_| ()))?;
    let mut out = PickleWriter::new();
    let entries = |out: &mut PickleWriter| {
        for (key, tensor) in tensors.iter().enumerate() {
            out.text(tensor.name);
            tensor.write(key, out).expect("the names of all types were looked up");
        }
    };
    match member {
        None => out.ordered(entries),
        Some(member) => out.dict(|out| {
            out.text(member);
            out.ordered(entries);
            // What Megatron asks of a checkpoint.
            out.text("checkpoint_version");
            out.float(3.0);
            out.text("iteration");
            out.number(0);
        }),
    }
    let mut layout = TorchLayout::default();
    let sizes: Vec<u64> = tensors.iter().map(NewTensor::bytes).collect();
    archive(&out.finish(), &sizes, &mut layout);
    Ok(layout)
}

/// A file of `torch.distributed.checkpoint`: each tensor an archive of its own. Returns where each
/// begins and how many bytes it has, too.
pub(crate) fn items(
    tensors: &[NewTensor<'_>],
) -> Result<(TorchLayout, Vec<(u64, u64)>), CheckpointError> {
    let (mut layout, mut items) = (TorchLayout::default(), Vec::new());
    for tensor in tensors {
        let mut out = PickleWriter::new();
        tensor.write(0, &mut out)?;
        let start = layout.bytes;
        archive(&out.finish(), &[tensor.bytes()], &mut layout);
        items.push((start, layout.bytes - start));
    }
    Ok((layout, items))
}

/// Adds an archive with a pickle and storages of these sizes at the end of the file.
fn archive(pickle: &[u8], sizes: &[u64], layout: &mut TorchLayout) {
    let mut zip = ZipWriter::new(layout.bytes);
    zip.bytes("archive/data.pkl", pickle);
    zip.bytes("archive/byteorder", b"little");
    for (key, size) in sizes.iter().enumerate() {
        layout.places.push(zip.tensor(&format!("archive/data/{key}"), *size));
    }
    zip.bytes("archive/version", b"3\n");
    layout.bytes = zip.finish();
    layout.fixed.append(&mut zip.fixed);
    layout.sums.append(&mut zip.sums);
}

/// Where a whole tensor lies in a directory of `torch.distributed.checkpoint`.
pub(crate) struct PlacedItem<'a> {
    pub(crate) tensor: NewTensor<'a>,
    pub(crate) file: &'a str,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// The `.metadata` of a directory of `torch.distributed.checkpoint` with whole tensors.
pub(crate) fn metadata(items: &[PlacedItem<'_>]) -> Result<Vec<u8>, CheckpointError> {
    const MODULE: &str = "torch.distributed.checkpoint.metadata";
    items.iter().try_for_each(|item| item.tensor.names().map(|_| ()))?;
    let size = |out: &mut PickleWriter, dims: &[u64]| {
        out.call("torch", "Size", |out| out.numbers(dims));
    };
    let mut out = PickleWriter::new();
    out.object(MODULE, "Metadata", |out| {
        out.dict(|out| {
            out.text("state_dict_metadata");
            out.dict(|out| {
                for PlacedItem { tensor, .. } in items {
                    let (dtype, _) = tensor.names().expect("all types were looked up");
                    out.text(tensor.name);
                    out.object(MODULE, "TensorStorageMetadata", |out| {
                        out.dict(|out| {
                            out.text("properties");
                            out.object(MODULE, "TensorProperties", |out| {
                                out.tuple(|out| {
                                    out.global("torch", dtype);
                                    let layout = "_get_layout";
                                    out.call("torch.serialization", layout, |out| {
                                        out.text("torch.strided");
                                    });
                                    out.flag(false);
                                    out.call(MODULE, "_MEM_FORMAT_ENCODING", |out| out.number(0));
                                    out.flag(false);
                                });
                            });
                            out.text("size");
                            size(out, &tensor.shape);
                            out.text("chunks");
                            out.list(|out| {
                                out.object(MODULE, "ChunkStorageMetadata", |out| {
                                    out.dict(|out| {
                                        out.text("offsets");
                                        size(out, &tensor.shape.zeros());
                                        out.text("sizes");
                                        size(out, &tensor.shape);
                                    });
                                });
                            });
                        });
                    });
                }
            });
            out.text("planner_data");
            out.dict(|out| {
                for PlacedItem { tensor, .. } in items {
                    out.text(tensor.name);
                    out.tuple(|out| out.text(tensor.name));
                }
            });
            out.text("storage_data");
            out.dict(|out| items.iter().for_each(|item| storage_entry(item, out, &size)));
            out.text("storage_meta");
            out.none();
            out.text("version");
            out.text("1.0.0");
        });
    });
    Ok(out.finish())
}

/// The key and the value that say where an item lies.
fn storage_entry(
    item: &PlacedItem<'_>,
    out: &mut PickleWriter,
    size: &dyn Fn(&mut PickleWriter, &[u64]),
) {
    out.object("torch.distributed.checkpoint.metadata", "MetadataIndex", |out| {
        out.dict(|out| {
            out.text("fqn");
            out.text(item.tensor.name);
            out.text("offset");
            size(out, &item.tensor.shape.zeros());
            out.text("index");
            out.number(0);
        });
    });
    out.object("torch.distributed.checkpoint.filesystem", "_StorageInfo", |out| {
        out.dict(|out| {
            out.text("relative_path");
            out.text(item.file);
            out.text("offset");
            out.number(item.offset);
            out.text("length");
            out.number(item.bytes);
            out.text("transform_descriptors");
            out.none();
        });
    });
}
