//! From the commands of a batch to those of the driver.

mod transfer;

use std::sync::Arc;

use syncline_device::{Backend, BufferView, Command, DeviceError, Dispatch, Memory};

use crate::command::{Launch, Op};
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

    /// Appends what `command` comes to. Host functions and recordings are not for the driver.
    pub(crate) fn prepare_command(
        &self,
        command: &Command,
        ops: &mut Vec<Op>,
    ) -> Result<(), DeviceError> {
        match command {
            Command::Copy(copy) => self.copy(copy, ops),
            Command::Fill(fill) => self.fill(fill, ops),
            Command::Dispatch(dispatch) => {
                ops.extend(self.dispatch(dispatch)?.map(Op::Launch));
                Ok(())
            }
            other => Err(DeviceError::Unsupported {
                device: self.context.spec,
                what: format!("{other:?} among prepared commands"),
            }),
        }
    }

    /// The memory of a view of this device.
    fn memory<'a>(&self, target: &'a BufferView) -> Result<&'a CudaMemory, DeviceError> {
        let memory = target.buffer().allocate()?.as_any().downcast_ref::<CudaMemory>();
        memory.ok_or_else(|| DeviceError::WrongDevice {
            buffer: target.buffer().id(),
            buffer_device: target.buffer().device(),
            lane_device: self.context.spec,
        })
    }

    /// A kernel with its arguments, or nothing where there is nothing to launch.
    fn dispatch(&self, dispatch: &Dispatch) -> Result<Option<Launch>, DeviceError> {
        let (kernel, views) = (&dispatch.kernel, dispatch.views());
        let source = kernel.source(Backend::Cuda, &views)?;
        let groups = source.groups(&views, dispatch.grid)?;
        if groups.contains(&0) {
            return Ok(None);
        }
        let items = source.group.map(|items| items.max(1));
        let count = items.iter().map(|&items| items as usize).product::<usize>();
        let most = self.context.block_items_max;
        if count > most {
            return Err(DeviceError::KernelRefuses {
                kernel: kernel.name().clone(),
                backend: Backend::Cuda,
                message: format!("blocks of {count} threads: the device has at most {most}").into(),
            });
        }
        let entry = self.context.programs.get(kernel.name(), &source)?;
        let (mut args, mut starts) = (Vec::new(), Vec::new());
        for (arg, view) in dispatch.args.iter().zip(&views) {
            let memory = self.memory(&arg.target)?;
            let span = view.span().unwrap_or((0, 0));
            // All of the buffer, unless the elements in front are more than a kernel can count.
            let fits = span.1 / view.dtype().bytes() <= u64::from(u32::MAX);
            let start = if fits { 0 } else { span.0 / BOUND_ALIGNMENT * BOUND_ALIGNMENT };
            args.push(memory.start() + start);
            starts.push(start);
        }
        let mut words = Vec::new();
        entry.source.parameters(&views, &starts, &dispatch.scalars, &mut words)?;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let block = self.scratch.take(bytes.len() as u64)?;
        // SAFETY: the memory is ours alone, and as large as asked for.
        unsafe { block.write(0, &bytes) }?;
        args.push(block.start());
        Ok(Some(Launch { entry, groups, items, args, block }))
    }
}

/// What is bound begins at a multiple of this many bytes: what the driver aligns allocations to.
const BOUND_ALIGNMENT: u64 = 256;
