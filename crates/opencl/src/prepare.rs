//! From the commands of a batch to those of the driver.

use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, OnceLock};

use opencl3::kernel::set_kernel_arg;
use opencl3::memory::{
    CL_BUFFER_CREATE_TYPE_REGION, CL_MEM_COPY_HOST_PTR, CL_MEM_READ_ONLY, create_buffer,
    create_sub_buffer,
};
use opencl3::types::{cl_buffer_region, cl_mem};
use syncline_device::{
    Backend, BufferView, Command, DeviceError, DeviceSpec, Dispatch, KernelSource, Memory,
};

use crate::api::{Code, Mem};
use crate::command::{Hold, Launch, Op, Place};
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
    copies: KernelSource,
}

impl Preparer {
    pub(crate) fn new(context: Arc<Context>, at: usize) -> Result<Self, DeviceError> {
        let scratch = OpenClAllocator::new(&context, at, context.devices[at].1.memory_bytes)?;
        let copies = KernelSource::new(include_str!("copy.cl"), "copy_1", [1; 3]);
        Ok(Self { context, at, scratch, copies })
    }

    pub(crate) fn spec(&self) -> DeviceSpec {
        self.context.devices[self.at].0
    }

    fn device(&self) -> &Traits {
        &self.context.devices[self.at].1
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
                device: self.spec(),
                what: format!("{other:?} among prepared commands"),
            }),
        }
    }

    /// The memory of a view of this context's devices.
    fn memory<'a>(&self, target: &'a BufferView) -> Result<&'a OpenClMemory, DeviceError> {
        let memory = target.buffer().allocate()?.as_any().downcast_ref::<OpenClMemory>();
        memory.ok_or_else(|| DeviceError::WrongDevice {
            buffer: target.buffer().id(),
            buffer_device: target.buffer().device(),
            lane_device: self.spec(),
        })
    }

    /// A kernel with its arguments set, or nothing where there is nothing to launch.
    fn dispatch(&self, dispatch: &Dispatch) -> Result<Option<Launch>, DeviceError> {
        let (kernel, views) = (&dispatch.kernel, dispatch.views());
        let source = kernel.source(Backend::OpenCl, &views)?;
        let groups = source.groups(&views, dispatch.grid)?.map(|count| count as usize);
        if groups.contains(&0) {
            return Ok(None);
        }
        let local = source.group.map(|items| items.max(1) as usize);
        let items: usize = local.iter().product();
        let most = self.device().group_items_max;
        if items > most {
            return Err(DeviceError::KernelRefuses {
                kernel: kernel.name().clone(),
                backend: Backend::OpenCl,
                message: format!("groups of {items} items: the device has at most {most}").into(),
            });
        }
        let entry = self.context.programs.get(self.context.cl(), kernel.name(), &source)?;
        let taken = self.take(&entry)?;
        let (mut holds, mut starts) = (Vec::new(), Vec::new());
        for (number, (arg, view)) in dispatch.args.iter().zip(&views).enumerate() {
            let memory = self.memory(&arg.target)?;
            let span = view.span().unwrap_or((0, 0));
            let (start, part) = self.bound(memory, span, view.dtype().bytes())?;
            let mem = part.as_ref().map_or(memory.mem(), |part| part.0);
            self.set(&taken, number, &mem)?;
            holds.extend(part.map(Hold::Own));
            starts.push(start);
        }
        let mut words = Vec::new();
        entry.source().parameters(&views, &starts, &dispatch.scalars, &mut words)?;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let block = self.block(&bytes)?;
        self.set(&taken, dispatch.args.len(), &block.0)?;
        holds.push(block.1);
        let global = std::array::from_fn(|dim| groups[dim] * local[dim]);
        Ok(Some(Launch { kernel: taken, global, local, holds }))
    }

    /// What to bind for bytes `span` of a buffer, and the byte of the buffer at which it begins: all of it, unless the
    /// elements in front are more than a kernel can count.
    fn bound(
        &self,
        memory: &OpenClMemory,
        span: (u64, u64),
        element_bytes: u64,
    ) -> Result<(u64, Option<Mem>), DeviceError> {
        if span.1 / element_bytes <= u64::from(u32::MAX) {
            return Ok((0, None));
        }
        let start = span.0 / self.device().part_alignment * self.device().part_alignment;
        let size = memory.bytes() - start;
        let region = cl_buffer_region { origin: start as usize, size: size as usize };
        // SAFETY: the region lies inside of the buffer and begins at a multiple of the alignment that the device asks
        // for; the driver reads it during the call.
        let part = unsafe {
            let at = ptr::from_ref(&region).cast::<c_void>();
            create_sub_buffer(memory.mem(), 0, CL_BUFFER_CREATE_TYPE_REGION, at)
        };
        let part = part.map_err(|code| refused(self.spec(), "a part of a buffer", Code(code)))?;
        Ok((start, Some(Mem(part))))
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
        // SAFETY: the kernel object is ours alone while it is taken; a buffer is passed as its handle.
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
        static ENTRIES: OnceLock<[Arc<str>; 4]> = OnceLock::new();
        let entries =
            ENTRIES.get_or_init(|| ["copy_1", "copy_2", "copy_4", "copy_8"].map(Into::into));
        let mut source = self.copies.clone();
        source.entry = entries[bytes.trailing_zeros() as usize].clone();
        self.context.programs.get(self.context.cl(), &"strided copy".into(), &source)
    }
}

/// Where a view's buffer begins, for the driver.
fn start(memory: &OpenClMemory, offset: u64) -> Place {
    Place { mem: memory.mem(), offset: offset as usize }
}
