//! Building layouts: tensors in, checked and shared placements out.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use syncline_tensor::Dtype;

use super::check::{BYTES_MAX, check_bytes, check_placement, merge_pieces};
use super::form::{Form, scaled, unit_of};
use super::{Layout, Placement, Shard, TensorLayout};
use crate::dims::Dims;
use crate::error::LayoutError;
use crate::hash::Fingerprint;

/// Collects the tensors of a [`Layout`], checking each.
#[derive(Debug, Default)]
pub struct LayoutBuilder {
    layout: Layout,
    shared: HashMap<u64, Vec<Arc<Placement>>>,
    /// Of all shards.
    bytes: u64,
}

impl LayoutBuilder {
    /// Adds a tensor that lies as `shards` say.
    pub fn tensor(
        &mut self,
        name: &str,
        dtype: Dtype,
        shape: &[u64],
        shards: Vec<Shard>,
    ) -> Result<&mut Self, LayoutError> {
        let placement = self.placement(name, shape, shards)?;
        self.add(name, dtype, placement, Vec::new(), Vec::new())?;
        Ok(self)
    }

    /// Checks a placement, on behalf of the tensor `name`; equal ones come back as one.
    pub(crate) fn placement(
        &mut self,
        name: &str,
        shape: &[u64],
        mut shards: Vec<Shard>,
    ) -> Result<Arc<Placement>, LayoutError> {
        let too_many = || LayoutError::TooManyDims { tensor: name.to_owned(), dims: shape.len() };
        let shape = Dims::from_slice(shape).ok_or_else(too_many)?;
        // By rank, so that lookups are binary searches and equal placements compare equal.
        shards.sort_by_key(|shard| shard.rank);
        check_placement(name, &shape, &shards)?;
        for shard in &mut shards {
            merge_pieces(&mut shard.pieces);
        }
        Ok(self.share(shape, shards))
    }

    /// The placement with these shards, which were checked; equal ones come back as one.
    pub(super) fn share(&mut self, shape: Dims, shards: Vec<Shard>) -> Arc<Placement> {
        let hash = hash_placement(&shape, &shards);
        let known = self.shared.entry(hash).or_default();
        if let Some(same) =
            known.iter().find(|known| known.shape == shape && known.shards == shards)
        {
            return Arc::clone(same);
        }
        let unit = unit_of(&shape, &shards);
        let placement = if unit.iter().any(|&unit| unit > 1) {
            let (form_shape, form_shards) =
                scaled(&shape, &shards, &unit, |value, unit| value / unit);
            let form = Some(Form { placement: self.share(form_shape, form_shards), unit });
            Placement::formed(shape, shards, hash, form)
        } else {
            Placement::plain(shape, shards, hash)
        };
        let placement = Arc::new(placement);
        self.shared.entry(hash).or_default().push(Arc::clone(&placement));
        placement
    }

    /// Adds a tensor whose placement has been checked.
    pub(crate) fn add(
        &mut self,
        name: &str,
        dtype: Dtype,
        placement: Arc<Placement>,
        aliases: Vec<String>,
        mut local_names: Vec<(u32, String)>,
    ) -> Result<(), LayoutError> {
        check_bytes(name, &placement, dtype.bytes())?;
        let bytes = placement.shards_elements.checked_mul(dtype.bytes());
        let bytes = bytes.and_then(|bytes| bytes.checked_add(self.bytes));
        let Some(bytes) = bytes.filter(|&bytes| bytes <= BYTES_MAX) else {
            return Err(LayoutError::LayoutTooLarge { tensor: name.to_owned() });
        };
        let index = self.layout.tensors.len() as u32;
        for name in aliases.iter().map(String::as_str).chain([name]) {
            match self.layout.by_name.entry(name.to_owned()) {
                Entry::Vacant(new) => new.insert(index),
                Entry::Occupied(_) => {
                    // What was added before stays usable.
                    self.layout.by_name.retain(|_, at| *at < index);
                    return Err(LayoutError::DuplicateTensor { tensor: name.to_owned() });
                }
            };
        }
        self.bytes = bytes;
        local_names.sort();
        let name = name.to_owned();
        self.layout.tensors.push(TensorLayout { name, dtype, placement, aliases, local_names });
        Ok(())
    }

    /// The layout of all tensors added.
    pub fn finish(self) -> Layout {
        self.layout
    }
}

fn hash_placement(shape: &Dims, shards: &[Shard]) -> u64 {
    let mut hasher = Fingerprint::new(0x91ace);
    hasher.words(shape);
    for shard in shards {
        hasher.word(u64::from(shard.rank));
        hasher.words(&shard.shape);
        for piece in &shard.pieces {
            hasher.words(&piece.global.start);
            hasher.words(&piece.global.size);
            hasher.words(&piece.local);
        }
    }
    hasher.finish()
}
