//! Programs: PTX, or CUDA C that NVIDIA's compiler library turns into PTX where it is installed.

use std::ffi::{CStr, CString};
use std::sync::Arc;

use cudarc::driver::result;
use cudarc::driver::sys::CUfunction;
use cudarc::nvrtc::{CompileError, CompileOptions, compile_ptx_with_opts};
use syncline_backend::driver::{CompiledProgram, ProgramCache};
use syncline_device::{DeviceError, KernelSource};

use crate::api::{Module, Primary, text};

/// The programs of one device.
pub(crate) struct Programs {
    primary: Arc<Primary>,
    /// What to compile for, such as `compute_80`.
    architecture: String,
    cache: ProgramCache<Module, Entry>,
}

/// A function that can be launched.
pub(crate) struct Entry {
    pub(crate) function: Function,
    /// What the function lives in.
    _module: CompiledProgram<Module>,
}

/// A function's handle.
#[derive(Clone, Copy)]
pub(crate) struct Function(pub(crate) CUfunction);

// SAFETY: functions may be launched from any thread that has entered their context.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Programs {
    pub(crate) fn new(primary: Arc<Primary>, architecture: String) -> Self {
        Self { primary, architecture, cache: ProgramCache::new() }
    }

    /// What `source` starts.
    ///
    /// # Errors
    /// The compiler's log, or that there is no such function.
    pub(crate) fn get(
        &self,
        kernel: &Arc<str>,
        source: &KernelSource,
    ) -> Result<Arc<Entry>, DeviceError> {
        self.cache.get(
            kernel,
            source,
            |text| self.load(text),
            |module, name| {
                // SAFETY: the module is loaded, and lives as long as the entry.
                let found = self
                    .primary
                    .enter()
                    .and_then(|()| unsafe { result::module::get_function(module.handle, name) });
                let function = found.map_err(|error| {
                    let (entry, error) = (source.entry(), text(error));
                    format!("there is no `extern \"C\" __global__` function `{entry}`: {error}")
                })?;
                Ok(Entry { function: Function(function), _module: module })
            },
        )
    }

    fn load(&self, source: &str) -> Result<Module, Arc<str>> {
        let ptx = match is_ptx(source) {
            true => CString::new(source).map_err(|_| Arc::from("its PTX has a zero byte"))?,
            false => compile(source, &self.architecture)?,
        };
        Module::load(&self.primary, &ptx)
            .map_err(|error| format!("the driver does not load its PTX: {}", text(error)).into())
    }
}

/// Whether `source` is PTX, which begins with its version, as opposed to CUDA C.
fn is_ptx(source: &str) -> bool {
    let mut lines = source.lines().map(str::trim);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with("//"));
    first.is_some_and(|line| line.starts_with(".version"))
}

/// Compiles CUDA C to PTX for `architecture`, such as `compute_80`. Needs no device, only NVIDIA's
/// compiler library.
///
/// # Errors
/// That the library is not there, or its log.
pub fn compile(source: &str, architecture: &str) -> Result<CString, Arc<str>> {
    // SAFETY: this loads the library, whose initialisers are trusted like those of any other.
    if !unsafe { cudarc::nvrtc::sys::is_culib_present() } {
        return Err("libnvrtc not found, which compiles CUDA C: give PTX instead".into());
    }
    if source.contains('\0') {
        return Err("its CUDA C has a zero byte".into());
    }
    let options = CompileOptions {
        options: vec![format!("--gpu-architecture={architecture}")],
        ..CompileOptions::default()
    };
    let ptx = compile_ptx_with_opts(source, options).map_err(|error| match error {
        CompileError::CompileError { log, .. } => {
            format!("its CUDA C does not compile:\n{}", log.to_string_lossy().trim())
        }
        other => format!("its CUDA C does not compile: {other:?}"),
    })?;
    let bytes = ptx.as_bytes().unwrap_or_default();
    let ptx = CStr::from_bytes_until_nul(bytes).map(CStr::to_owned);
    ptx.or_else(|_| CString::new(bytes)).map_err(|_| "the compiler's PTX has a zero byte".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ptx_is_told_from_c() {
        assert!(is_ptx("//\n// Generated\n//\n\n.version 8.5\n.target sm_52\n"));
        assert!(!is_ptx("// .version 8.5\nextern \"C\" __global__ void f() {}\n"));
        assert!(!is_ptx(""));
    }
}
