//! Memory of destinations on devices: every tensor a view, tensors side by side in few buffers.

use std::sync::Arc;

use syncline_device::{
    ALIGNMENT, Batch, Buffer, BufferView, Command, Deadline, Device, DeviceError, Lane, Pattern,
};
use syncline_tensor::View;

/// Tensors share a buffer up to this size: devices take few large allocations more readily than
/// many small ones.
const BUFFER_BYTES: u64 = 64 << 20;

/// The versions of one destination on a device.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    lane: Arc<dyn Lane>,
    versions: Vec<Vec<Option<BufferView>>>,
    bytes: u64,
}

impl DeviceMemory {
    /// Zeros for tensors of these sizes, `versions` times; where a size is 0 there is nothing.
    pub fn new(
        sizes: &[usize],
        versions: usize,
        device: &Arc<dyn Device>,
        lane: &Arc<dyn Lane>,
    ) -> Result<Self, DeviceError> {
        let mut memory = Self { lane: lane.clone(), versions: Vec::new(), bytes: 0 };
        for _ in 0..versions {
            let version = memory.lay_out(sizes, device)?;
            memory.versions.push(version);
        }
        Ok(memory)
    }

    fn lay_out(
        &mut self,
        sizes: &[usize],
        device: &Arc<dyn Device>,
    ) -> Result<Vec<Option<BufferView>>, DeviceError> {
        let mut views = vec![None; sizes.len()];
        let mut first = 0;
        while first < sizes.len() {
            let mut bytes = 0;
            let mut last = first;
            let mut places = Vec::new();
            while last < sizes.len() && (bytes == 0 || bytes + sizes[last] as u64 <= BUFFER_BYTES) {
                places.push(bytes);
                bytes += (sizes[last] as u64).next_multiple_of(ALIGNMENT);
                last += 1;
            }
            if bytes > 0 {
                let buffer = self.zeros(device, bytes)?;
                for (at, place) in (first..last).zip(places).filter(|(at, _)| sizes[*at] > 0) {
                    let view = View::bytes_at(place, sizes[at] as u64).map_err(|error| {
                        DeviceError::BadArgument { arg: at, message: error.to_string() }
                    })?;
                    views[at] = Some(buffer.view(view)?);
                }
            }
            first = last;
        }
        Ok(views)
    }

    fn zeros(&mut self, device: &Arc<dyn Device>, bytes: u64) -> Result<Buffer, DeviceError> {
        let buffer = device.buffer(bytes);
        let fill = Command::fill(buffer.all(), Pattern::new(&[0])?);
        self.lane.submit(Batch::from(fill))?.wait(Deadline::NEVER)?;
        self.bytes += bytes;
        Ok(buffer)
    }

    /// The tensors of one version.
    pub fn version(&self, index: usize) -> &[Option<BufferView>] {
        &self.versions[index]
    }

    /// A lane of the device.
    pub fn lane(&self) -> &Arc<dyn Lane> {
        &self.lane
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}
