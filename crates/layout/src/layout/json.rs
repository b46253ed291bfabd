//! The explicit form of layouts in JSON, `syncline-layout`.

use serde::{Deserialize, Serialize};
use syncline_tensor::Dtype;

use super::{Layout, LayoutBuilder, Piece, Shard, TensorLayout};
use crate::dims::{Dims, NdBox};
use crate::error::LayoutError;
use crate::number::Number;

const FORMAT: &str = "syncline-layout";
const VERSION: u64 = 1;

#[derive(Serialize, Deserialize)]
struct LayoutForm {
    format: String,
    version: u64,
    /// Why it is not known to be right for its model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unproven: Vec<String>,
    tensors: Vec<TensorForm>,
}

#[derive(Serialize, Deserialize)]
struct TensorForm {
    name: String,
    dtype: String,
    shape: Vec<Number>,
    /// Names of tensors that are tied to this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    aliases: Vec<String>,
    shards: Vec<ShardForm>,
}

#[derive(Serialize, Deserialize)]
struct ShardForm {
    rank: u32,
    /// What the rank calls the tensor, if not by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    shape: Vec<Number>,
    pieces: Vec<PieceForm>,
}

#[derive(Serialize, Deserialize)]
struct PieceForm {
    global: Vec<[Number; 2]>,
    local: Vec<Number>,
}

impl Layout {
    /// Reads the explicit form, checking it.
    pub fn from_json(text: &str) -> Result<Self, LayoutError> {
        let form: LayoutForm = syncline_files::from_json(text.as_bytes())?;
        if form.format != FORMAT || form.version != VERSION {
            let cause = format!(
                "expected format `{FORMAT}` version {VERSION}, found `{}` version {}",
                form.format, form.version
            );
            return Err(LayoutError::Syntax { place: "format".to_owned(), cause });
        }
        let mut builder = Layout::builder();
        for (index, tensor) in form.tensors.into_iter().enumerate() {
            add_tensor(&mut builder, index, tensor)?;
        }
        let mut layout = builder.finish();
        layout.set_unproven(form.unproven);
        Ok(layout)
    }

    /// Writes the explicit form; reading it gives an equal layout.
    pub fn to_json(&self) -> String {
        let form = LayoutForm {
            format: FORMAT.to_owned(),
            version: VERSION,
            unproven: self.unproven().to_vec(),
            tensors: self.tensors().iter().map(tensor_form).collect(),
        };
        serde_json::to_string(&form).expect("a layout has nothing that JSON cannot express")
    }
}

fn add_tensor(
    builder: &mut LayoutBuilder,
    index: usize,
    tensor: TensorForm,
) -> Result<(), LayoutError> {
    let name = &tensor.name;
    let dtype: Dtype = tensor.dtype.parse().map_err(|cause| LayoutError::Syntax {
        place: format!("tensors[{index}] `{name}`"),
        cause: format!("{cause}"),
    })?;
    let shape: Vec<u64> = tensor.shape.iter().map(|size| size.0).collect();
    let mut shards = Vec::with_capacity(tensor.shards.len());
    let mut local_names = Vec::new();
    for shard in tensor.shards {
        if let Some(local) = shard.name.filter(|local| local != name) {
            local_names.push((shard.rank, local));
        }
        let dims = |numbers: &[Number]| dims(name, numbers);
        let mut pieces = Vec::with_capacity(shard.pieces.len());
        for piece in &shard.pieces {
            pieces.push(Piece {
                global: global_box(name, index, shard.rank, &piece.global)?,
                local: dims(&piece.local)?,
            });
        }
        shards.push(Shard { rank: shard.rank, shape: dims(&shard.shape)?, pieces });
    }
    let placement = builder.placement(name, &shape, shards)?;
    builder.add(name, dtype, placement, tensor.aliases, local_names)
}

fn dims(tensor: &str, numbers: &[Number]) -> Result<Dims, LayoutError> {
    let too_many = || LayoutError::TooManyDims { tensor: tensor.to_owned(), dims: numbers.len() };
    let mut dims = Dims::splat(numbers.len(), 0).ok_or_else(too_many)?;
    dims.iter_mut().zip(numbers).for_each(|(to, from)| *to = from.0);
    Ok(dims)
}

fn global_box(
    tensor: &str,
    index: usize,
    rank: u32,
    spans: &[[Number; 2]],
) -> Result<NdBox, LayoutError> {
    let too_many = || LayoutError::TooManyDims { tensor: tensor.to_owned(), dims: spans.len() };
    let start = Dims::splat(spans.len(), 0).ok_or_else(too_many)?;
    let mut found = NdBox { start, size: start };
    for (dim, [start, stop]) in spans.iter().enumerate() {
        found.start[dim] = start.0;
        found.size[dim] = stop.0.checked_sub(start.0).ok_or_else(|| LayoutError::Syntax {
            place: format!("tensors[{index}] `{tensor}`, rank {rank}"),
            cause: format!("a piece's span [{}, {}] stops before it starts", start.0, stop.0),
        })?;
    }
    Ok(found)
}

fn tensor_form(tensor: &TensorLayout) -> TensorForm {
    let numbers = |dims: &Dims| dims.iter().map(|&value| Number(value)).collect();
    let piece = |piece: &Piece| PieceForm {
        global: (0..piece.local.len())
            .map(|dim| [Number(piece.global.start[dim]), Number(piece.global.stop(dim))])
            .collect(),
        local: numbers(&piece.local),
    };
    let shard = |shard: &Shard| {
        let local = tensor.local_name(shard.rank);
        ShardForm {
            rank: shard.rank,
            name: (local != tensor.name()).then(|| local.to_owned()),
            shape: numbers(&shard.shape),
            pieces: shard.pieces.iter().map(piece).collect(),
        }
    };
    TensorForm {
        name: tensor.name().to_owned(),
        dtype: tensor.dtype().name().to_owned(),
        shape: numbers(tensor.shape()),
        aliases: tensor.aliases().to_vec(),
        shards: tensor.placement().shards().iter().map(shard).collect(),
    }
}
