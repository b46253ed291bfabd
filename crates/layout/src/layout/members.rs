//! Layouts of the PEs that are left when others are gone.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Layout, Placement};

impl Layout {
    /// Returns the same layout without the shards of PEs that `is_kept` returns `false` for.
    ///
    /// Tensors keep their positions and names, also tensors of which no PE that is kept
    /// holds anything.
    ///
    /// ```
    /// use syncline_layout::Layout;
    ///
    /// let shard = |rank: u32| {
    ///     format!(
    ///         r#"{{"rank": {rank}, "shape": [8],
    ///             "pieces": [{{"global": [[0, 8]], "local": [0]}}]}}"#
    ///     )
    /// };
    /// let both = Layout::from_json(&format!(
    ///     r#"{{"format": "syncline-layout", "version": 1, "tensors": [
    ///         {{"name": "w", "dtype": "u8", "shape": [8], "shards": [{}, {}]}}]}}"#,
    ///     shard(0),
    ///     shard(1)
    /// ))?;
    /// let left = both.restricted_to(|rank| rank == 1);
    /// let placement = left.tensors()[0].placement();
    /// assert!(placement.shard(0).is_none() && placement.shard(1).is_some());
    /// # Ok::<(), syncline_layout::LayoutError>(())
    /// ```
    #[must_use]
    pub fn restricted_to(&self, is_kept: impl Fn(u32) -> bool) -> Self {
        let mut builder = Self::builder();
        let mut known: HashMap<*const Placement, Arc<Placement>> = HashMap::new();
        for tensor in &self.tensors {
            let placement = known.entry(Arc::as_ptr(&tensor.placement)).or_insert_with(|| {
                let shards = tensor.placement.shards.iter();
                let kept = shards.filter(|shard| is_kept(shard.rank)).cloned().collect();
                builder.share(*tensor.shape(), kept)
            });
            let local_names = tensor.local_names.iter().filter(|(rank, _)| is_kept(*rank));
            let added = builder.add(
                &tensor.name,
                tensor.dtype,
                Arc::clone(placement),
                tensor.aliases.clone(),
                local_names.cloned().collect(),
            );
            added.expect("a part of a layout passes the checks of the whole");
        }
        let mut layout = builder.finish();
        layout.set_unproven(self.unproven.clone());
        layout
    }
}
