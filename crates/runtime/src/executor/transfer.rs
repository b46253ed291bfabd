//! Transfers through host memory: in pieces, with both legs under way at the same time.

use syncline_device::{Batch, Buffer, BufferView, Command, LaneKind, Point, SubmissionGuard};
use syncline_tensor::View;

use super::{ExecutorError, UnifiedExecutor};

/// Pieces of a staged transfer that are under way at the same time: one coming in while another
/// goes out, and one whose slot passes from leg to leg. With two alone, each piece would wait for
/// that hand-over, which goes by several threads.
const SLOTS: usize = 3;

impl UnifiedExecutor {
    /// Copies piece after piece, each from the source to a slot by a lane of the source's device,
    /// and from there to the target by one of the target's.
    ///
    /// No leg waits for anything but batches that were submitted before it: the slot's last use,
    /// and what conflicts with the piece. The order in which they are submitted is thus an order in
    /// which they can run.
    pub(super) fn execute_staged(
        &self,
        source: &BufferView,
        target: &BufferView,
    ) -> Result<Point, ExecutorError> {
        let from = self.context(source.buffer().device())?.lane(LaneKind::Copy);
        let to = self.context(target.buffer().device())?.lane(LaneKind::Copy);
        let chunk_bytes = chunk_bytes(source.view().bytes(), self.options.staging_chunk_bytes);
        let pieces = Pieces::new(source.view(), target.view(), chunk_bytes)?;
        let slot_bytes = pieces.bytes_max;
        let slots: Vec<Buffer> =
            (0..SLOTS).map(|_| Buffer::new(self.staging.clone(), slot_bytes)).collect();

        // Memory is taken before anything is queued, so that lack of it leaves the target as it
        // was.
        slots.iter().try_for_each(|slot| slot.allocate().map(drop))?;

        // Transfers are queued whole: pieces of two that share lanes do not alternate.
        let _guard = SubmissionGuard::lock([&**from, &**to]);
        let mut last = None;
        for (number, piece) in pieces.enumerate() {
            let (source_view, target_view) = piece?;
            let slot = slots[number % SLOTS].tensor(source_view.dtype(), source_view.shape())?;
            let source = source.buffer().view(source_view)?;
            let target = target.buffer().view(target_view)?;
            from.submit(Command::copy(source, slot.clone()).into())?;
            let slot = slot.buffer().tensor(target_view.dtype(), target_view.shape())?;
            last = Some(to.submit(Command::copy(slot, target).into())?);
        }
        match last {
            Some(point) => Ok(point),
            None => Ok(to.submit(Batch::new())?),
        }
    }
}

/// The size of pieces for a transfer of `bytes` in all: half of the usual one where that would make
/// few of them, since the first has nothing that it overlaps with, nor has the last.
fn chunk_bytes(bytes: u64, usual: u64) -> u64 {
    match bytes < 4 * usual {
        true => usual.div_ceil(2),
        false => usual,
    }
}

/// Cuts two views of one shape into pieces that fit a slot.
struct Pieces {
    source: View,
    target: View,
    /// Dimensions before it are walked one index at a time, itself in steps of `step`, those after
    /// it whole.
    dim: usize,
    step: u64,
    next: Option<Vec<u64>>,
    bytes_max: u64,
}

impl Pieces {
    fn new(source: &View, target: &View, chunk_bytes: u64) -> Result<Self, ExecutorError> {
        // Refuses what cannot be copied before anything is submitted.
        syncline_device::copy::CopyPlan::new(source, target)?;
        let shape = source.shape();
        let element = source.dtype().bytes();
        let mut inner_bytes = element;
        let mut dim = shape.len();
        while dim > 0 && inner_bytes.saturating_mul(shape[dim - 1]) <= chunk_bytes {
            dim -= 1;
            inner_bytes *= shape[dim];
        }
        // All fits in one piece, or dimension `dim - 1` is cut.
        let (dim, step) = match dim {
            0 => (0, shape.first().copied().unwrap_or(1)),
            _ => (dim - 1, (chunk_bytes / inner_bytes).max(1)),
        };
        let bytes_max = match shape.get(dim) {
            Some(&size) if size > 0 => step * shape[dim + 1..].iter().product::<u64>() * element,
            _ => element,
        };
        let next = (!source.is_empty()).then(|| vec![0; dim + usize::from(!shape.is_empty())]);
        Ok(Self { source: *source, target: *target, dim, step, next, bytes_max })
    }

    fn cut(&self, view: &View, at: &[u64]) -> Result<View, ExecutorError> {
        let mut piece = *view;
        for (dim, &start) in at.iter().enumerate() {
            let end = match dim == self.dim {
                true => (start + self.step).min(view.shape()[dim]),
                false => start + 1,
            };
            piece = piece.slice(dim, start..end)?;
        }
        Ok(piece)
    }

    /// Counts up like an odometer whose last wheel moves by `step`.
    fn advance(&self, mut at: Vec<u64>) -> Option<Vec<u64>> {
        for dim in (0..at.len()).rev() {
            at[dim] += if dim == self.dim { self.step } else { 1 };
            if at[dim] < self.source.shape()[dim] {
                return Some(at);
            }
            at[dim] = 0;
        }
        None
    }
}

impl Iterator for Pieces {
    type Item = Result<(View, View), ExecutorError>;

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.next.take()?;
        let piece = self
            .cut(&self.source, &at)
            .and_then(|source| Ok((source, self.cut(&self.target, &at)?)));
        self.next = self.advance(at);
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use syncline_tensor::Dtype;

    use super::*;

    #[test]
    fn pieces_cover_every_element_once_and_fit_their_slot() {
        syncline_testing::for_seeds("pieces_cover_every_element_once", 300, |rng| {
            let rank = rng.below(4);
            let shape: Vec<u64> = (0..rank).map(|_| rng.range(0..7)).collect();
            let view = View::contiguous(Dtype::F32, &shape).unwrap();
            let pieces = Pieces::new(&view, &view, rng.range(1..100)).unwrap();
            let bytes_max = pieces.bytes_max;
            let mut seen = vec![0; view.elements() as usize];
            for piece in pieces {
                let (source, target) = piece.unwrap();
                assert_eq!(source, target);
                assert!(source.bytes() <= bytes_max, "{source:?} in {bytes_max}");
                for_each_element(&source, |place| seen[place as usize / 4] += 1);
            }
            assert!(seen.iter().all(|&times| times == 1), "{shape:?}: {seen:?}");
        });
    }

    fn for_each_element(view: &View, mut visit: impl FnMut(u64)) {
        for number in 0..view.elements() {
            let (mut rest, mut place) = (number, view.offset() as i64);
            for (&size, &stride) in view.shape().iter().zip(view.strides()).rev() {
                place += (rest % size) as i64 * stride;
                rest /= size;
            }
            visit(place as u64);
        }
    }
}
