//! The host's access to memory that it cannot reach: through a pinned piece that it can, chunk by
//! chunk.

use std::fmt;
use std::sync::{Arc, Mutex};

use syncline_sync::{ignore_poison, lock};

use ash::vk;
use syncline_device::DeviceError;

use super::{Piece, Upload, Uploads};
use crate::gpu::Gpu;

/// Bytes moved at a time.
const CHUNK_BYTES: u64 = 4 << 20;

/// What reads and writes of the host go through. One at a time: they share the way to the device
/// anyway.
pub(super) struct Staging {
    uploads: Uploads,
    /// Made at the first use, since a device whose memory the host reaches never needs it.
    ready: Mutex<Option<Ready>>,
    gpu: Arc<Gpu>,
}

struct Ready {
    chunk: Upload,
    pool: vk::CommandPool,
    commands: vk::CommandBuffer,
    semaphore: vk::Semaphore,
    /// Chunks moved so far.
    moved: u64,
}

impl Staging {
    pub(super) fn new(gpu: &Arc<Gpu>, uploads: &Uploads) -> Self {
        Self { uploads: uploads.clone(), ready: Mutex::default(), gpu: gpu.clone() }
    }

    /// Copies from `piece` at `offset` to `target`.
    ///
    /// # Safety
    /// The range lies inside, and no thread writes it meanwhile.
    pub(super) unsafe fn read(
        &self,
        piece: &Piece,
        offset: u64,
        target: &mut [u8],
    ) -> Result<(), DeviceError> {
        let mut at = offset;
        for part in target.chunks_mut(CHUNK_BYTES as usize) {
            self.with_ready(|ready| {
                // SAFETY: the caller's promise for the device's side; the chunk is ours and as
                // large.
                unsafe {
                    self.move_chunk(ready, piece, at, part.len() as u64, Direction::ToHost)?;
                    std::ptr::copy_nonoverlapping(
                        ready.chunk.host(),
                        part.as_mut_ptr(),
                        part.len(),
                    );
                }
                Ok(())
            })?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Copies `source` to `piece` at `offset`.
    ///
    /// # Safety
    /// The range lies inside, and no thread touches it meanwhile.
    pub(super) unsafe fn write(
        &self,
        piece: &Piece,
        offset: u64,
        source: &[u8],
    ) -> Result<(), DeviceError> {
        let mut at = offset;
        for part in source.chunks(CHUNK_BYTES as usize) {
            self.with_ready(|ready| {
                // SAFETY: as in `read`.
                unsafe {
                    std::ptr::copy_nonoverlapping(part.as_ptr(), ready.chunk.host(), part.len());
                    self.move_chunk(ready, piece, at, part.len() as u64, Direction::ToDevice)
                }
            })?;
            at += part.len() as u64;
        }
        Ok(())
    }

    fn with_ready<T>(
        &self,
        run: impl FnOnce(&mut Ready) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        let mut ready = lock(&self.ready);
        let ready = match &mut *ready {
            Some(ready) => ready,
            none => none.insert(self.prepare()?),
        };
        run(ready)
    }

    fn prepare(&self) -> Result<Ready, DeviceError> {
        let gpu = &self.gpu;
        let chunk = self.uploads.take(CHUNK_BYTES)?;
        let semaphore = gpu.create_semaphore()?;
        let info = vk::CommandPoolCreateInfo::default()
            .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER)
            .queue_family_index(gpu.queues[0].family);
        // SAFETY: the family has a queue of ours.
        let pool = unsafe { gpu.raw.create_command_pool(&info, None) }
            .map_err(|error| gpu.error("vkCreateCommandPool", error))?;
        let info =
            vk::CommandBufferAllocateInfo::default().command_pool(pool).command_buffer_count(1);
        // SAFETY: the pool is ours alone.
        let commands = unsafe { gpu.raw.allocate_command_buffers(&info) }
            .map_err(|error| gpu.error("vkAllocateCommandBuffers", error))?[0];
        Ok(Ready { chunk, pool, commands, semaphore, moved: 0 })
    }

    /// Moves `bytes` bytes between the start of the chunk and `piece` at `offset`, and waits.
    ///
    /// # Safety
    /// The range lies inside, and no access conflicts.
    unsafe fn move_chunk(
        &self,
        ready: &mut Ready,
        piece: &Piece,
        offset: u64,
        bytes: u64,
        direction: Direction,
    ) -> Result<(), DeviceError> {
        let gpu = &self.gpu;
        let (chunk, chunk_start) = ready.chunk.piece().place();
        let (buffer, start) = piece.place();
        let (source, from, target, to) = match direction {
            Direction::ToHost => (buffer, start + offset, chunk, chunk_start),
            Direction::ToDevice => (chunk, chunk_start, buffer, start + offset),
        };
        let region = vk::BufferCopy::default().src_offset(from).dst_offset(to).size(bytes);
        let begin = vk::CommandBufferBeginInfo::default()
            .flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        let all = vk::PipelineStageFlags::ALL_COMMANDS;
        let before = vk::MemoryBarrier::default()
            .src_access_mask(vk::AccessFlags::MEMORY_WRITE)
            .dst_access_mask(vk::AccessFlags::MEMORY_READ | vk::AccessFlags::MEMORY_WRITE);
        let after = vk::MemoryBarrier::default()
            .src_access_mask(vk::AccessFlags::TRANSFER_WRITE)
            .dst_access_mask(vk::AccessFlags::HOST_READ | vk::AccessFlags::MEMORY_READ);
        let after_stages = vk::PipelineStageFlags::HOST | all;
        let value = ready.moved + 1;
        let none = vk::DependencyFlags::empty();
        // SAFETY: the command buffer has completed its last use, since every use is waited for, and
        // `lock` makes this the only one; both ranges lie in buffers that outlive the wait below.
        unsafe {
            let recorded = gpu.raw.begin_command_buffer(ready.commands, &begin).and_then(|()| {
                gpu.raw.cmd_pipeline_barrier(ready.commands, all, all, none, &[before], &[], &[]);
                gpu.raw.cmd_copy_buffer(ready.commands, source, target, &[region]);
                gpu.raw.cmd_pipeline_barrier(
                    ready.commands,
                    vk::PipelineStageFlags::TRANSFER,
                    after_stages,
                    none,
                    &[after],
                    &[],
                    &[],
                );
                gpu.raw.end_command_buffer(ready.commands)
            });
            recorded.map_err(|error| gpu.error("recording a staged copy", error))?;
            let signal = Some((ready.semaphore, value));
            gpu.queues[0]
                .submit(gpu, &[ready.commands], &[], signal, None)
                .map_err(|refused| refused.cause)?;
        }
        ready.moved = value;
        gpu.wait(ready.semaphore, value)
    }
}

#[derive(Clone, Copy)]
enum Direction {
    ToHost,
    ToDevice,
}

impl Drop for Staging {
    fn drop(&mut self) {
        let ready = ignore_poison(self.ready.get_mut());
        if let Some(ready) = ready {
            // SAFETY: every use was waited for; a device that was lost while in use has nothing
            // running.
            unsafe {
                self.gpu.raw.destroy_command_pool(ready.pool, None);
                self.gpu.raw.destroy_semaphore(ready.semaphore, None);
            }
        }
    }
}

impl fmt::Debug for Staging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Staging")
    }
}
