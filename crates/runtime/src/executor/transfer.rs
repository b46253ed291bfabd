//! Transfers through host memory: in pieces, with both legs under way at the same time.

use syncline_copy::{CopyPlan, cut};
use syncline_device::{
    Batch, Buffer, BufferView, Command, DeviceError, LaneKind, Point, SubmissionGuard,
};

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
        // Refuses what cannot be copied before anything is submitted.
        CopyPlan::new(source.view(), target.view()).map_err(DeviceError::from)?;
        let pieces = cut::views([source.view(), target.view()], chunk_bytes);
        let slot_bytes = pieces.first().map_or(0, |[largest, _]| largest.bytes());
        let slots: Vec<Buffer> =
            (0..SLOTS).map(|_| Buffer::new(self.staging.clone(), slot_bytes)).collect();

        // Memory is taken before anything is queued, so that lack of it leaves the target as it
        // was.
        slots.iter().try_for_each(|slot| slot.allocate().map(drop))?;

        // Transfers are queued whole: pieces of two that share lanes do not alternate.
        let _guard = SubmissionGuard::lock([&**from, &**to]);
        let mut last = None;
        for (number, [source_view, target_view]) in pieces.into_iter().enumerate() {
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
