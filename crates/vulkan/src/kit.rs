//! What all lanes of a device share.

use std::sync::Arc;

use ash::vk;
use syncline_device::{Buffer, BufferView, DeviceError, Memory};

use crate::gpu::Gpu;
use crate::memory::{VulkanAllocator, VulkanMemory};
use crate::pipeline::Pipelines;

/// The device's memory and kernels.
#[derive(Debug)]
pub(crate) struct Kit {
    pub(crate) pipelines: Pipelines,
    pub(crate) allocator: Arc<VulkanAllocator>,
    pub(crate) gpu: Arc<Gpu>,
}

impl Kit {
    /// The memory of `buffer`, if it is of this device.
    pub(crate) fn memory<'b>(
        &self,
        buffer: &'b Buffer,
    ) -> Result<Option<&'b VulkanMemory>, DeviceError> {
        let memory = buffer.allocate()?.as_any().downcast_ref::<VulkanMemory>();
        Ok(memory.filter(|memory| memory.belongs_to(&self.gpu)))
    }

    /// Where the buffer of `view` lies.
    pub(crate) fn place(&self, view: &BufferView) -> Result<(vk::Buffer, u64), DeviceError> {
        let buffer = view.buffer();
        match self.memory(buffer)? {
            Some(memory) => Ok(memory.piece().place()),
            None => Err(DeviceError::WrongDevice {
                buffer: buffer.id(),
                buffer_device: buffer.device(),
                lane_device: self.gpu.spec,
            }),
        }
    }

    /// Where the host reaches the buffer of `view`, if it does.
    pub(crate) fn host(&self, view: &BufferView) -> Result<Option<*mut u8>, DeviceError> {
        let memory: &dyn Memory = view.buffer().allocate()?;
        Ok(memory.host_pointer().map(|start| start.as_ptr()))
    }
}
