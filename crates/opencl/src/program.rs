//! Programs: OpenCL C, compiled once for each context and kept on disk between runs.

use std::collections::HashMap;
use std::ffi::CString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use opencl3::kernel::create_kernel;
use opencl3::program::{
    CL_PROGRAM_BINARIES, CL_PROGRAM_BUILD_LOG, build_program, create_program_with_binary,
    create_program_with_source, get_program_build_info, get_program_info,
};
use opencl3::types::{cl_context, cl_device_id};
use syncline_device::{DeviceError, KernelSource};

use crate::api::{ClKernel, Code, Program};
use crate::describe::Traits;
use crate::disk::Disk;

/// The programs of one context.
pub(crate) struct Programs {
    devices: Vec<Traits>,
    disk: Option<Disk>,
    /// By text, so that sources with the same text are compiled once.
    built: Mutex<HashMap<Arc<str>, Arc<OnceLock<Result<Program, Arc<str>>>>>>,
    /// By the key of the source: what a dispatch looks up.
    entries: Mutex<HashMap<usize, Arc<Entry>>>,
}

/// A function that can be launched.
pub(crate) struct Entry {
    /// Keeps the key from being taken for another source's.
    _source: KernelSource,
    built: Arc<OnceLock<Result<Program, Arc<str>>>>,
    name: CString,
    /// Kernel objects that nobody uses: making one takes longer than setting its arguments.
    idle: Mutex<Vec<ClKernel>>,
}

impl Programs {
    pub(crate) fn new(devices: Vec<Traits>, cache: Option<PathBuf>) -> Self {
        // The binding for several binaries at once passes the driver wrong addresses: contexts of several devices
        // compile anew.
        let disk = cache.filter(|_| devices.len() == 1).map(Disk::new);
        Self { devices, disk, built: Mutex::default(), entries: Mutex::default() }
    }

    /// What `source` starts, compiled for all devices of the context.
    ///
    /// # Errors
    /// The compiler's log, or that there is no such function.
    pub(crate) fn get(
        &self,
        context: cl_context,
        kernel: &Arc<str>,
        source: &KernelSource,
    ) -> Result<Arc<Entry>, DeviceError> {
        if let Some(found) = lock(&self.entries).get(&source.key()) {
            return Ok(found.clone());
        }
        let failed = |message: String| DeviceError::KernelFailed {
            kernel: kernel.clone(),
            task: None,
            message: message.into(),
        };
        let built = lock(&self.built).entry(source.text.clone()).or_default().clone();
        // Other programs are compiled at the same time; whoever needs this one waits for it.
        if let Err(log) = built.get_or_init(|| self.build(context, &source.text)) {
            return Err(failed(format!("its OpenCL C does not compile:\n{log}")));
        }
        let name = CString::new(&*source.entry)
            .map_err(|_| failed(format!("`{}` cannot be a function's name", source.entry)))?;
        let entry = Entry { _source: source.clone(), built, name, idle: Mutex::default() };
        let first = entry.make().map_err(|code| {
            failed(format!("there is no kernel function `{}` in its source: {code}", source.entry))
        })?;
        lock(&entry.idle).push(first);
        let mut entries = lock(&self.entries);
        Ok(entries.entry(source.key()).or_insert_with(|| Arc::new(entry)).clone())
    }

    fn build(&self, context: cl_context, text: &str) -> Result<Program, Arc<str>> {
        let ids: Vec<cl_device_id> = self.devices.iter().map(|of| of.id.0).collect();
        let name = self.disk.as_ref().map(|_| self.file_name(text));
        if let Some((disk, name)) = self.disk.as_ref().zip(name.as_ref())
            && let Some(binaries) = disk.read(name, ids.len())
            && let Some(program) = from_binaries(context, &ids, &binaries)
        {
            return Ok(program);
        }
        let program = create_program_with_source(context, &[text])
            .map(Program)
            .map_err(|code| Code(code).to_string())?;
        if let Err(code) = build_program(program.0, &ids, c"", None, std::ptr::null_mut()) {
            return Err(log(&program, &ids, Code(code)).into());
        }
        if let Some((disk, name)) = self.disk.as_ref().zip(name.as_ref())
            && let Ok(found) = get_program_info(program.0, CL_PROGRAM_BINARIES)
        {
            let binaries: Vec<Vec<u8>> = found.into();
            disk.write(name, &binaries);
        }
        Ok(program)
    }

    /// What the binaries of `text` are called: a name that no other text, device or driver version has.
    fn file_name(&self, text: &str) -> String {
        let mut parts = vec![text];
        parts.extend(self.devices.iter().flat_map(|of| [of.name.as_str(), of.driver.as_str()]));
        Disk::name(&parts)
    }
}

/// A program from what an earlier run has kept; anything amiss means that there is none.
fn from_binaries(
    context: cl_context,
    ids: &[cl_device_id],
    binaries: &[Vec<u8>],
) -> Option<Program> {
    let parts: Vec<&[u8]> = binaries.iter().map(Vec::as_slice).collect();
    // SAFETY: the devices are those of the context, and there is a binary for each.
    let program = unsafe { create_program_with_binary(context, ids, &parts) };
    let program = Program(program.ok()?);
    build_program(program.0, ids, c"", None, std::ptr::null_mut()).ok()?;
    Some(program)
}

fn log(program: &Program, ids: &[cl_device_id], code: Code) -> String {
    let mut text = String::new();
    for &id in ids {
        if let Ok(found) = get_program_build_info(program.0, id, CL_PROGRAM_BUILD_LOG) {
            let found = String::from(found);
            let found = found.trim_matches(|c: char| c.is_whitespace() || c == '\0');
            if !text.contains(found) {
                text.push_str(found);
                text.push('\n');
            }
        }
    }
    match text.trim() {
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
        match self.built.get() {
            Some(Ok(program)) => Ok(ClKernel(create_kernel(program.0, &self.name)?)),
            _ => unreachable!("an entry is made of a program that was built"),
        }
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
