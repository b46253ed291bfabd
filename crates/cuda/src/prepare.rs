//! From the commands of a batch to those of the driver.

mod transfer;

use std::sync::Arc;

use syncline_backend::driver::{self, memory_of};
use syncline_device::{Backend, BufferView, DeviceError, Dispatch, Memory};

use crate::command::Launch;
use crate::context::Context;
use crate::memory::{CudaAllocator, CudaMemory};

/// What a device needs to prepare commands.
pub(crate) struct Preparer {
    pub(crate) context: Arc<Context>,
    /// Memory for parameter blocks and copies on the way; not counted as the device's use.
    scratch: CudaAllocator,
}

impl Preparer {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        let scratch = CudaAllocator::new(&context, u64::MAX);
        Self { context, scratch }
    }

    /// The memory of a view of this device.
    fn memory<'a>(&self, target: &'a BufferView) -> Result<&'a CudaMemory, DeviceError> {
        memory_of(target, self.context.spec)
    }

    /// A kernel with its arguments, or nothing where there is nothing to launch.
    pub(crate) fn prepare_launch(
        &self,
        dispatch: &Dispatch,
    ) -> Result<Option<Launch>, DeviceError> {
        let most = self.context.block_items_max;
        let Some(launch) = driver::Launch::of(dispatch, Backend::Cuda, most)? else {
            return Ok(None);
        };
        let entry = self.context.programs.get(dispatch.kernel.name(), &launch.source)?;
        let starts = launch.bound_starts(BOUND_ALIGNMENT);
        let mut args = Vec::new();
        for (arg, start) in dispatch.args.iter().zip(&starts) {
            args.push(self.memory(&arg.target)?.start() + start);
        }
        let bytes = launch.parameters(dispatch, &starts)?;
        let block = self.scratch.take(bytes.len() as u64)?;
        // SAFETY: the memory is ours alone, and as large as asked for.
        unsafe { block.write(0, &bytes) }?;
        args.push(block.start());
        Ok(Some(Launch { entry, groups: launch.groups, items: launch.items, args, block }))
    }
}

/// Bound memory begins at a multiple of this many bytes: what the driver aligns allocations to.
const BOUND_ALIGNMENT: u64 = 256;
