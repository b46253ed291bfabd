//! From the commands of a batch to those of the driver.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use opencl3::kernel::set_kernel_arg;
use opencl3::memory::{
    CL_BUFFER_CREATE_TYPE_REGION, CL_MEM_COPY_HOST_PTR, CL_MEM_READ_ONLY, create_buffer,
    create_sub_buffer,
};
use opencl3::types::{cl_buffer_region, cl_mem};
use syncline_backend::driver::{self, memory_of};
use syncline_device::{
    Backend, BufferView, DeviceError, DeviceSpec, Dispatch, KernelSource, Memory,
};

use crate::api::{Code, Mem};
use crate::command::{Hold, Launch, Place};
use crate::context::{Context, refused};
use crate::describe::Traits;
use crate::memory::{OpenClAllocator, OpenClMemory};
use crate::program::{Entry, Taken};

mod transfer;

/// What one device needs to prepare commands.
pub(crate) struct Preparer {
    pub(crate) context: Arc<Context>,
    /// Which of the context's devices.
    pub(crate) at: usize,
    /// Memory for parameter blocks and copies on the way; not counted as the device's use.
    scratch: OpenClAllocator,
    /// What copies units of 1, 2, 4 and 8 bytes.
    copies: [KernelSource; 4],
}

impl Preparer {
    pub(crate) fn new(context: Arc<Context>, at: usize) -> Result<Self, DeviceError> {
        let scratch = OpenClAllocator::new(&context, at, context.devices[at].1.memory_bytes)?;
        let text: Arc<str> = include_str!("copy.cl").into();
        let copies = ["copy_1", "copy_2", "copy_4", "copy_8"].map(|entry| {
            // SAFETY: it is launched by this crate alone, over the units that lie in its arguments.
            unsafe { KernelSource::native(Backend::OpenCl, text.clone(), entry, [1; 3]) }
        });
        Ok(Self { context, at, scratch, copies })
    }

    pub(crate) fn spec(&self) -> DeviceSpec {
        self.context.devices[self.at].0
    }

    fn device(&self) -> &Traits {
        &self.context.devices[self.at].1
    }

    /// The memory of a view of this context's devices.
    fn memory<'a>(&self, target: &'a BufferView) -> Result<&'a OpenClMemory, DeviceError> {
        memory_of(target, self.spec())
    }

    /// A kernel with its arguments set, or nothing where there is nothing to launch.
    pub(crate) fn prepare_launch(
        &self,
        dispatch: &Dispatch,
    ) -> Result<Option<Launch>, DeviceError> {
        let most = self.device().group_items_max;
        let Some(launch) = driver::Launch::of(dispatch, Backend::OpenCl, most)? else {
            return Ok(None);
        };
        let name = dispatch.kernel.name();
        let entry = self.context.programs[self.at].get(self.context.cl(), name, &launch.source)?;
        let kernel = self.take(&entry)?;
        let starts = launch.bound_starts(self.device().part_alignment);
        let mut holds = Vec::new();
        for (number, (arg, &start)) in dispatch.args.iter().zip(&starts).enumerate() {
            let memory = self.memory(&arg.target)?;
            let part = self.part(memory, start)?;
            let mem = part.as_ref().map_or(memory.mem(), |part| part.0);
            self.set(&kernel, number, &mem)?;
            holds.extend(part.map(Hold::Own));
        }
        let block = self.block(&launch.parameters(dispatch, &starts)?)?;
        self.set(&kernel, dispatch.args.len(), &block.0)?;
        holds.push(block.1);
        let local = launch.items.map(|items| items as usize);
        let global = std::array::from_fn(|dim| launch.groups[dim] as usize * local[dim]);
        Ok(Some(Launch { kernel, global, local, holds }))
    }

    /// What to bind for the bytes of a buffer from `start` on, where that is not all of it.
    fn part(&self, memory: &OpenClMemory, start: u64) -> Result<Option<Mem>, DeviceError> {
        if start == 0 {
            return Ok(None);
        }
        let size = memory.bytes() - start;
        let region = cl_buffer_region { origin: start as usize, size: size as usize };
        // SAFETY: the region lies inside of the buffer and begins at a multiple of the alignment
        // that the device asks for; the driver reads it during the call.
        let part = unsafe {
            let at = ptr::from_ref(&region).cast::<c_void>();
            create_sub_buffer(memory.mem(), 0, CL_BUFFER_CREATE_TYPE_REGION, at)
        };
        let part = part.map_err(|code| refused(self.spec(), "a part of a buffer", Code(code)))?;
        Ok(Some(Mem(part)))
    }

    /// A buffer that holds `bytes`.
    fn block(&self, bytes: &[u8]) -> Result<(cl_mem, Hold), DeviceError> {
        if self.context.direct {
            let memory = self.scratch.take(bytes.len() as u64)?;
            // SAFETY: the memory is ours alone, and as large as asked for.
            unsafe { memory.write(0, bytes) }?;
            return Ok((memory.mem(), Hold::Pooled(memory)));
        }
        let filled: &[u8] = if bytes.is_empty() { &[0; 4] } else { bytes };
        let flags = CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR;
        let at = filled.as_ptr().cast_mut().cast();
        // SAFETY: the driver copies the bytes during the call, and writes none.
        let mem = unsafe { create_buffer(self.context.cl(), flags, filled.len(), at) };
        let mem = mem.map_err(|code| refused(self.spec(), "a parameter block", Code(code)))?;
        Ok((mem, Hold::Own(Mem(mem))))
    }

    fn take(&self, entry: &Arc<Entry>) -> Result<Taken, DeviceError> {
        entry.take().map_err(|code| refused(self.spec(), "a kernel object", code))
    }

    fn set(&self, kernel: &Taken, number: usize, mem: &cl_mem) -> Result<(), DeviceError> {
        let at = ptr::from_ref(mem).cast::<c_void>();
        // SAFETY: the kernel object is ours alone while it is taken; a buffer is passed as its
        // handle.
        let set =
            unsafe { set_kernel_arg(kernel.kernel().0, number as u32, size_of::<cl_mem>(), at) };
        set.map_err(|code| DeviceError::BadArgument {
            arg: number,
            message: format!(
                "the driver refuses it: {} (a kernel takes one `__global` pointer for each argument, and one for the parameter block)",
                Code(code)
            ),
        })
    }

    /// The kernel that copies units of `bytes` bytes.
    fn copy_kernel(&self, bytes: u64) -> Result<Arc<Entry>, DeviceError> {
        let source = &self.copies[bytes.trailing_zeros() as usize];
        self.context.programs[self.at].get(self.context.cl(), &"strided copy".into(), source)
    }
}

/// Where a view's buffer begins, for the driver.
fn start(memory: &OpenClMemory, offset: u64) -> Place {
    Place { mem: memory.mem(), offset: offset as usize }
}
