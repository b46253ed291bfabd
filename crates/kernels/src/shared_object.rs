//! A user's kernels from a shared object with a C interface.
//!
//! The function is
//! ```c
//! struct syncline_arg {
//!     void *data;
//!     const unsigned long long *shape;
//!     const long long *strides;
//!     unsigned int rank;
//!     unsigned int element_bytes;
//! };
//! int name(const struct syncline_arg *args, unsigned int arg_count,
//!          const double *scalars, unsigned int scalar_count);
//! ```
//! `data` is the element whose indices are all zero, strides are in bytes, and anything but 0 is a
//! failure.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use syncline_device::{DeviceError, Kernel, KernelArgs, KernelBuilder};

use crate::KernelError;

/// One argument as the function sees it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ForeignArg {
    /// The element whose indices are all zero.
    pub data: *mut c_void,
    /// Elements along each dimension.
    pub shape: *const u64,
    /// Bytes from element to element along each dimension.
    pub strides: *const i64,
    /// Number of dimensions.
    pub rank: u32,
    /// Size of an element.
    pub element_bytes: u32,
}

type Function = unsafe extern "C" fn(*const ForeignArg, u32, *const f64, u32) -> c_int;

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlerror() -> *mut c_char;
}

/// Both are the same on all Unix systems that this builds for: bind everything now, keep names to
/// the library.
const NOW: c_int = 2;

/// The kernel `name` whose body is the function `symbol` of the shared object at `path`.
///
/// # Safety
/// As [`add_shared_object`].
pub unsafe fn load_shared_object(
    name: &str,
    path: &str,
    symbol: &str,
) -> Result<Kernel, KernelError> {
    // SAFETY: the caller's promise is passed on.
    unsafe { add_shared_object(Kernel::builder(name), path, symbol) }.map(KernelBuilder::build)
}

/// Gives a kernel a body on the CPU: the function `symbol` of the shared object at `path`.
///
/// The library stays loaded until the program ends, since it is unknown what its functions left
/// behind.
///
/// # Safety
/// The function must have the interface of this module's documentation, touch nothing but the
/// elements of its arguments (and write only to elements that the task writes), and be fit to be
/// called from several threads at once.
pub unsafe fn add_shared_object(
    kernel: KernelBuilder,
    path: &str,
    symbol: &str,
) -> Result<KernelBuilder, KernelError> {
    let refused = |message: String| KernelError::SharedObject { library: path.to_owned(), message };
    let text =
        |text: &str| CString::new(text).map_err(|_| refused("a name with a zero byte".into()));
    let (c_path, c_symbol) = (text(path)?, text(symbol)?);
    // SAFETY: the path is a C string; what the library does while it is loaded is the caller's
    // promise.
    let handle = unsafe { dlopen(c_path.as_ptr(), NOW) };
    if handle.is_null() {
        return Err(refused(last_error()));
    }
    // SAFETY: the handle is that of a loaded library, and the symbol a C string.
    let function = unsafe { dlsym(handle, c_symbol.as_ptr()) };
    if function.is_null() {
        return Err(refused(last_error()));
    }
    // SAFETY: the caller promises that the function has this interface.
    let function: Function = unsafe { std::mem::transmute(function) };
    Ok(kernel.cpu(move |args: &mut KernelArgs<'_>| call(function, args)))
}

fn call(function: Function, args: &mut KernelArgs<'_>) -> Result<(), DeviceError> {
    let mut foreign = Vec::with_capacity(args.len());
    for arg in 0..args.len() {
        let view = args.view(arg)?;
        foreign.push(ForeignArg {
            data: args.pointer(arg)?.cast(),
            shape: view.shape().as_ptr(),
            strides: view.strides().as_ptr(),
            rank: view.rank() as u32,
            element_bytes: view.dtype().bytes() as u32,
        });
    }
    let scalars: Vec<f64> = args.scalars().iter().map(|scalar| scalar.as_f64()).collect();
    // SAFETY: the loader of the function promised that it has this interface and keeps to its
    // arguments, which are this call's to touch.
    let code = unsafe {
        function(foreign.as_ptr(), foreign.len() as u32, scalars.as_ptr(), scalars.len() as u32)
    };
    match code {
        0 => Ok(()),
        code => Err(DeviceError::BadArgument {
            arg: 0,
            message: format!("the function returned {code}"),
        }),
    }
}

fn last_error() -> String {
    // SAFETY: the pointer is null or a C string that lives until this thread's next call of
    // `dlerror`.
    let message = unsafe { dlerror() };
    if message.is_null() {
        return "unknown error".to_owned();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()
}
