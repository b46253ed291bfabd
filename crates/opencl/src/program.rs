//! Programs: OpenCL C, compiled once for each device of a context and kept on disk between runs.

use std::ffi::CString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use syncline_sync::lock;

use opencl3::kernel::create_kernel;
use opencl3::program::{
    CL_PROGRAM_BINARIES, CL_PROGRAM_BUILD_LOG, build_program, create_program_with_binary,
    create_program_with_source, get_program_build_info, get_program_info,
};
use opencl3::types::{cl_context, cl_device_id};
use syncline_backend::driver::{CompiledProgram, ProgramCache};
use syncline_device::{DeviceError, KernelSource};

use crate::api::{ClKernel, ClProgram, Code};
use crate::describe::Traits;
use crate::disk::Disk;

/// The programs of one device. Devices of a context do not share them: a thread that uses one
/// waits for no compiler of another, and a binary can be had and given for one alone.
pub(crate) struct Programs {
    /// Its number in the context.
    at: usize,
    device: Traits,
    disk: Option<Disk>,
    cache: ProgramCache<ClProgram, Entry>,
}

/// A function that can be launched.
pub(crate) struct Entry {
    program: CompiledProgram<ClProgram>,
    name: CString,
    /// Kernel objects that are not in use: making one takes longer than setting its arguments.
    idle: Mutex<Vec<ClKernel>>,
}

impl Programs {
    pub(crate) fn new(at: usize, device: &Traits, cache: Option<PathBuf>) -> Self {
        Self { at, device: device.clone(), disk: cache.map(Disk::new), cache: ProgramCache::new() }
    }

    /// What `source` starts.
    ///
    /// # Errors
    /// The compiler's log, or that there is no such function.
    pub(crate) fn get(
        &self,
        context: cl_context,
        kernel: &Arc<str>,
        source: &KernelSource,
    ) -> Result<Arc<Entry>, DeviceError> {
        let compile = |text: &str| self.build(context, text);
        self.cache.get(kernel, source, compile, |program, name| {
            let entry = Entry { program, name, idle: Mutex::default() };
            let first = entry.make().map_err(|code| {
                format!("there is no kernel function `{}` in its source: {code}", source.entry())
            })?;
            lock(&entry.idle).push(first);
            Ok(entry)
        })
    }

    fn build(&self, context: cl_context, text: &str) -> Result<ClProgram, Arc<str>> {
        let id = self.device.id.0;
        let name = Disk::name(&[text, &self.device.name, &self.device.driver]);
        let kept = self.disk.as_ref().and_then(|disk| disk.read(&name));
        if let Some(program) = kept.and_then(|binary| from_binary(context, id, &binary)) {
            return Ok(program);
        }
        let program = create_program_with_source(context, &[text])
            .map(ClProgram)
            .map_err(|code| format!("its OpenCL C is refused: {}", Code(code)))?;
        if let Err(code) = build_program(program.0, &[id], c"", None, std::ptr::null_mut()) {
            let log = log(&program, id, Code(code));
            return Err(format!("its OpenCL C does not compile:\n{log}").into());
        }
        if let Some(disk) = &self.disk
            && let Ok(found) = get_program_info(program.0, CL_PROGRAM_BINARIES)
        {
            // One for each device of the context, empty for devices that it was not compiled for.
            let binaries: Vec<Vec<u8>> = found.into();
            binaries.get(self.at).inspect(|binary| disk.write(&name, binary));
        }
        Ok(program)
    }
}

/// A program from what an earlier run has kept; anything amiss means that there is none.
fn from_binary(context: cl_context, id: cl_device_id, binary: &[u8]) -> Option<ClProgram> {
    // SAFETY: the device is one of the context.
    let program = unsafe { create_program_with_binary(context, &[id], &[binary]) };
    let program = ClProgram(program.ok()?);
    build_program(program.0, &[id], c"", None, std::ptr::null_mut()).ok()?;
    Some(program)
}

fn log(program: &ClProgram, id: cl_device_id, code: Code) -> String {
    let found = get_program_build_info(program.0, id, CL_PROGRAM_BUILD_LOG);
    let text = found.map(String::from).unwrap_or_default();
    match text.trim_matches(|c: char| c.is_whitespace() || c == '\0') {
        "" => format!("{code}, and the compiler says nothing"),
        text => text.to_owned(),
    }
}

impl Entry {
    /// A kernel object for the caller alone.
    pub(crate) fn take(self: &Arc<Self>) -> Result<Taken, Code> {
        let idle = lock(&self.idle).pop();
        let kernel = idle.map_or_else(|| self.make(), Ok)?;
        Ok(Taken { kernel: Some(kernel), entry: self.clone() })
    }

    fn make(&self) -> Result<ClKernel, Code> {
        Ok(ClKernel(create_kernel(self.program.0, &self.name)?))
    }
}

/// A kernel object in use, which goes back when dropped.
pub(crate) struct Taken {
    kernel: Option<ClKernel>,
    entry: Arc<Entry>,
}

impl Taken {
    pub(crate) fn kernel(&self) -> &ClKernel {
        self.kernel.as_ref().expect("taken only by drop")
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        lock(&self.entry.idle).extend(self.kernel.take());
    }
}
