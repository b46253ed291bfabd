//! Models made up for tests, and the bytes of their shards.

use syncline_layout::Layout;
use syncline_reshard::{Refit, Sources};
use syncline_tensor::Dtype;
use syncline_testing::Rng;

use crate::arrays;
pub use crate::meshes::model;

/// The bits of an element, from the number that `arrays` gives it.
pub fn element(dtype: Dtype, value: u64) -> Vec<u8> {
    Rng::new(value).next_u64().to_le_bytes()[..dtype.bytes() as usize].to_vec()
}

/// The bytes that `rank` must hold of each tensor of `layout`; `None` where it holds nothing.
pub fn shards(layout: &Layout, rank: usize) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for tensor in layout.tensors() {
        let Some(shard) = tensor.placement().shard(rank as u32) else { continue };
        let values = arrays::expected(tensor.name(), tensor.shape(), shard);
        let bytes = values.into_iter().flat_map(|value| element(tensor.dtype(), value)).collect();
        all.push((tensor.name().to_owned(), bytes));
    }
    all
}

/// Binds every shard that is not empty.
pub fn bind<'a>(refit: &Refit, shards: &'a [(String, Vec<u8>)]) -> Sources<'a> {
    let mut sources = Sources::new(refit);
    for (name, bytes) in shards.iter().filter(|(_, bytes)| !bytes.is_empty()) {
        sources.bind(refit, name, bytes).unwrap();
    }
    sources
}
