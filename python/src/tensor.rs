//! Tensors of other packages, used where they lie: torch tensors, whatever has
//! `__array_interface__` or DLPack, and whatever has the buffer protocol.

use std::ffi::{c_char, c_void};
use std::ptr::NonNull;
use std::slice;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyDict, PyString, PyTuple};
use syncline::tensor::{Dtype, Region, View};

use crate::errors::SynclineError;

/// Memory of the process that an object of Python owns.
#[derive(Debug)]
pub(crate) struct Tensor {
    /// Keeps the memory where it is.
    _owner: Owner,
    start: usize,
    is_read_only: bool,
    dtype: Dtype,
    shape: Vec<u64>,
    /// In bytes.
    strides: Vec<i64>,
}

#[derive(Debug)]
enum Owner {
    Object(#[expect(dead_code, reason = "held, not used")] Py<PyAny>),
    Exported(#[expect(dead_code, reason = "held, not used")] Exported),
}

/// Returns the exception that refuses a tensor.
fn refused(message: impl Into<String>) -> PyErr {
    SynclineError::new_err(message.into())
}

impl Tensor {
    /// Returns the memory of `object`.
    pub(crate) fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let tensor = Self::find(object)?;
        let is_empty = tensor.shape.contains(&0);
        if tensor.start == 0 && !is_empty {
            return Err(refused("the tensor has no memory: its storage was freed or never made"));
        }
        if tensor.view().is_none() {
            return Err(refused("the tensor has too many dimensions or too large strides"));
        }
        Ok(tensor)
    }

    fn find(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = object.py();
        if is_of_torch(object)? {
            return of_torch(object);
        }
        if let Some(interface) = object.getattr_opt("__array_interface__")?
            && !is_numpy_scalar(object)?
        {
            return of_interface(object, object, &interface);
        }
        if object.hasattr("__dlpack__")? && !is_numpy_scalar(object)? {
            return of_dlpack(object);
        }
        let memory = py.import("builtins")?.getattr("memoryview")?.call1((object,));
        if let Ok(memory) = memory
            && !is_numpy_scalar(object)?
        {
            // An array over the same memory, which knows how to say where that is. It holds the
            // export, without which a bytearray could be resized and a file unmapped meanwhile.
            let array = py.import("numpy")?.getattr("asarray")?.call1((memory,))?;
            return of_interface(&array, &array, &array.getattr("__array_interface__")?);
        }
        Err(refused(format!(
            "{} is not a tensor: expected a numpy array, a torch tensor, or an object with DLPack, \
             the buffer protocol or __array_interface__",
            object.get_type().fully_qualified_name()?
        )))
    }

    pub(crate) fn dtype(&self) -> Dtype {
        self.dtype
    }

    pub(crate) fn shape(&self) -> &[u64] {
        &self.shape
    }

    pub(crate) fn bytes(&self) -> usize {
        self.shape.iter().product::<u64>() as usize * self.dtype.bytes() as usize
    }

    /// Refuses to write what must not be written.
    pub(crate) fn check_writable(&self) -> PyResult<()> {
        if self.is_read_only {
            return Err(refused("the tensor is read-only: it cannot be written"));
        }
        if self.view().is_some_and(|view| view.shares_bytes()) {
            return Err(refused("elements of the tensor share memory: it cannot be written"));
        }
        Ok(())
    }

    /// The elements, as a view of the address space.
    pub(crate) fn view(&self) -> Option<View> {
        View::strided(self.dtype, self.start as u64, &self.shape, &self.strides).ok()
    }

    /// The bytes that the elements take.
    pub(crate) fn region(&self) -> Region {
        self.view().map(|view| Region::of(&view)).expect("checked when it was made")
    }

    /// In bytes.
    pub(crate) fn strides(&self) -> &[i64] {
        &self.strides
    }

    /// The address of the first element.
    pub(crate) fn first(&self) -> *mut u8 {
        self.start as *mut u8
    }

    pub(crate) fn is_contiguous(&self) -> bool {
        self.view().is_some_and(|view| view.is_contiguous())
    }

    /// Returns the bytes of a contiguous tensor.
    ///
    /// # Safety
    /// Nothing writes them while they are used, and the tensor outlives them.
    pub(crate) unsafe fn slice<'a>(&self) -> &'a [u8] {
        let start = NonNull::new(self.start as *mut u8).unwrap_or(NonNull::dangling());
        // SAFETY: its owner has that many bytes there; the rest is the caller's promise.
        unsafe { slice::from_raw_parts(start.as_ptr(), self.bytes()) }
    }

    /// Returns the bytes of a contiguous tensor, to write them.
    ///
    /// # Safety
    /// Nothing else uses them while they are used, and the tensor outlives them.
    pub(crate) unsafe fn slice_mut<'a>(&self) -> &'a mut [u8] {
        let start = NonNull::new(self.start as *mut u8).unwrap_or(NonNull::dangling());
        // SAFETY: as above, and `check_writable` was called.
        unsafe { slice::from_raw_parts_mut(start.as_ptr(), self.bytes()) }
    }

    /// Calls `each` with the address of every run of elements that lie side by side, in row-major
    /// order, and how many bytes it has.
    fn runs(&self, each: &mut dyn FnMut(*mut u8, usize)) {
        let mut run = self.dtype.bytes();
        let mut dims = self.shape.len();
        while dims > 0 && (self.strides[dims - 1] == run as i64 || self.shape[dims - 1] == 1) {
            dims -= 1;
            run *= self.shape[dims];
        }
        if self.shape.contains(&0) {
            return;
        }
        let mut at = vec![0; dims];
        let mut address = self.start as i64;
        loop {
            each(address as *mut u8, run as usize);
            let mut dim = dims;
            loop {
                if dim == 0 {
                    return;
                }
                dim -= 1;
                at[dim] += 1;
                address += self.strides[dim];
                if at[dim] < self.shape[dim] {
                    break;
                }
                address -= self.strides[dim] * at[dim] as i64;
                at[dim] = 0;
            }
        }
    }

    /// Returns a copy of the elements, one after the other.
    ///
    /// # Safety
    /// Nothing writes the tensor meanwhile.
    pub(crate) unsafe fn packed(&self) -> Vec<u8> {
        let mut packed = Vec::with_capacity(self.bytes());
        self.runs(&mut |start, bytes| {
            // SAFETY: the run is part of the tensor.
            packed.extend_from_slice(unsafe { slice::from_raw_parts(start, bytes) });
        });
        packed
    }

    /// Writes the elements, given one after the other.
    ///
    /// # Safety
    /// Nothing else uses the tensor meanwhile, and `check_writable` was called.
    pub(crate) unsafe fn unpack(&self, mut packed: &[u8]) {
        self.runs(&mut |start, bytes| {
            let (run, rest) = packed.split_at(bytes);
            // SAFETY: the run is part of the tensor.
            unsafe { slice::from_raw_parts_mut(start, bytes) }.copy_from_slice(run);
            packed = rest;
        });
    }
}

/// Finds the first two of `tensors`, by their place, that share bytes of which one writes some.
pub(crate) fn overlap(tensors: &[(&Tensor, bool)]) -> Option<(usize, usize)> {
    let mut order: Vec<(u64, u64, usize)> = tensors
        .iter()
        .enumerate()
        .filter_map(|(at, (tensor, _))| {
            let (start, end) = tensor.view()?.span()?;
            Some((start, end, at))
        })
        .collect();
    order.sort_unstable();
    // Tensors that may still meet the next one.
    let mut open: Vec<(u64, usize)> = Vec::new();
    for (start, end, at) in order {
        open.retain(|(end, _)| *end > start);
        for &(_, other) in &open {
            let ((one, writes), (two, other_writes)) = (tensors[at], tensors[other]);
            if (writes || other_writes) && one.region().overlaps(&two.region()) {
                return Some((at.min(other), at.max(other)));
            }
        }
        open.push((end, at));
    }
    None
}

fn type_of<'py>(
    py: Python<'py>,
    cell: &'static PyOnceLock<Py<PyAny>>,
    module: &str,
    name: &str,
) -> PyResult<&'py Bound<'py, PyAny>> {
    cell.import(py, module, name)
}

fn is_numpy_scalar(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    static GENERIC: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    object.is_instance(type_of(object.py(), &GENERIC, "numpy", "generic")?)
}

fn is_of_torch(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    static TENSOR: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = object.py();
    if TENSOR.get(py).is_none() {
        // Nothing can be a tensor of torch unless torch is there; it is never imported here.
        let modules = py.import("sys")?.getattr("modules")?;
        let torch = modules.cast::<PyDict>()?.get_item("torch")?;
        if torch.is_none_or(|torch| torch.getattr("Tensor").is_err()) {
            return Ok(false);
        }
    }
    object.is_instance(type_of(py, &TENSOR, "torch", "Tensor")?)
}

/// A tensor of torch: asked directly, since gradients, float8 and the like are in the way of its
/// other interfaces, and since it knows the size of its storage.
fn of_torch(object: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    let py = object.py();
    let device = object.getattr("device")?.getattr("type")?;
    if device.cast::<PyString>()?.to_str()? != "cpu" {
        return Err(refused(format!(
            "the tensor is on device {device}: expected one in host memory"
        )));
    }
    if object.hasattr("_local_tensor")? {
        return Err(refused("a DTensor is not one piece of memory: pass its to_local()"));
    }
    let layout = object.getattr("layout")?.str()?;
    if layout.to_str()? != "torch.strided" {
        return Err(refused(format!("the tensor is {layout}: expected a strided one")));
    }
    if object.call_method0(pyo3::intern!(py, "is_neg"))?.is_truthy()?
        || object.call_method0(pyo3::intern!(py, "is_conj"))?.is_truthy()?
    {
        return Err(refused("the tensor is a lazy conjugate or negative: pass its resolve_conj()"));
    }
    let name = object.getattr(pyo3::intern!(py, "dtype"))?.str()?;
    let dtype = dtype_of_name(name.to_str()?)?;
    let shape: Vec<u64> = object.getattr(pyo3::intern!(py, "shape"))?.extract()?;
    let strides: Vec<i64> = object.call_method0(pyo3::intern!(py, "stride"))?.extract()?;
    let strides = strides.into_iter().map(|stride| stride * dtype.bytes() as i64).collect();
    let storage = object.call_method0(pyo3::intern!(py, "untyped_storage"))?;
    let first: u64 = object.call_method0(pyo3::intern!(py, "storage_offset"))?.extract()?;
    let held: u64 = storage.call_method0(pyo3::intern!(py, "nbytes"))?.extract()?;
    let start = object.call_method0(pyo3::intern!(py, "data_ptr"))?.extract()?;
    let _owner = Owner::Object(object.clone().unbind());
    let tensor = Tensor { _owner, start, is_read_only: false, dtype, shape, strides };
    let end = tensor.view().and_then(|view| Some(view.span()?.1 - view.offset()));
    if end.is_some_and(|end| first * dtype.bytes() + end > held) {
        return Err(refused("the tensor's storage was freed or made smaller than the tensor"));
    }
    Ok(tensor)
}

/// What `__array_interface__` of `array` says, which lies in memory of `owner`.
fn of_interface(
    owner: &Bound<'_, PyAny>,
    array: &Bound<'_, PyAny>,
    interface: &Bound<'_, PyAny>,
) -> PyResult<Tensor> {
    let interface = interface.cast::<PyDict>()?;
    let member = |name: &str| {
        let found = interface.get_item(name)?;
        found.ok_or_else(|| refused(format!("__array_interface__ has no member `{name}`")))
    };
    let typestr: String = member("typestr")?.extract()?;
    let dtype = dtype_of_typestr(&typestr, array)?;
    let shape: Vec<u64> = member("shape")?.extract()?;
    let data = interface.get_item("data")?.filter(|data| !data.is_none());
    let data = data.ok_or_else(|| refused("__array_interface__ has no address in `data`"))?;
    let (start, is_read_only): (usize, bool) = data.extract().map_err(|_: PyErr| {
        refused("__array_interface__: expected (address, read-only) as `data`")
    })?;
    if interface.get_item("mask")?.is_some_and(|mask| !mask.is_none()) {
        return Err(refused("masked arrays are not plain memory: pass their data"));
    }
    let strides = interface.get_item("strides")?.filter(|strides| !strides.is_none());
    let strides = match strides {
        Some(strides) => strides.extract()?,
        None => row_major(&shape, dtype.bytes() as i64),
    };
    if strides.len() != shape.len() {
        return Err(refused("__array_interface__: as many strides as dimensions are expected"));
    }
    let _owner = Owner::Object(owner.clone().unbind());
    Ok(Tensor { _owner, start, is_read_only, dtype, shape, strides })
}

fn row_major(shape: &[u64], element: i64) -> Vec<i64> {
    let mut strides = vec![element; shape.len()];
    for dim in (1..shape.len()).rev() {
        strides[dim - 1] = strides[dim].saturating_mul(shape[dim].max(1) as i64);
    }
    strides
}

fn dtype_of_typestr(typestr: &str, array: &Bound<'_, PyAny>) -> PyResult<Dtype> {
    let (order, kind) = typestr.split_at_checked(1).unwrap_or_default();
    let (kind, size) = kind.split_at_checked(1).unwrap_or_default();
    if order == ">" && size != "1" {
        return Err(refused("the tensor's elements are big-endian: expected little-endian ones"));
    }
    let found = match (kind, size) {
        ("b", "1") => Dtype::Bool,
        ("u", "1") => Dtype::U8,
        ("u", "2") => Dtype::U16,
        ("u", "4") => Dtype::U32,
        ("u", "8") => Dtype::U64,
        ("i", "1") => Dtype::I8,
        ("i", "2") => Dtype::I16,
        ("i", "4") => Dtype::I32,
        ("i", "8") => Dtype::I64,
        ("f", "2") => Dtype::F16,
        ("f", "4") => Dtype::F32,
        ("f", "8") => Dtype::F64,
        ("c", "8") => Dtype::C64,
        // Types of ml_dtypes: numpy takes them for raw bytes.
        _ => {
            let name = array.getattr("dtype").and_then(|dtype| dtype.getattr("name"));
            let name = name.map_or_else(|_| typestr.to_owned(), |name| name.to_string());
            return dtype_of_name(&name);
        }
    };
    Ok(found)
}

/// Returns the element type of this name: ours, numpy's or torch's.
pub(crate) fn dtype_of_name(name: &str) -> PyResult<Dtype> {
    let short = name.strip_prefix("torch.").unwrap_or(name);
    short.parse::<Dtype>().map_err(|error| refused(error.to_string()))
}

/// Returns the element type that a name, or a dtype of numpy or torch, means.
pub(crate) fn dtype_of(object: &Bound<'_, PyAny>) -> PyResult<Dtype> {
    if let Ok(name) = object.cast::<PyString>() {
        return dtype_of_name(name.to_str()?);
    }
    let text = object.str()?;
    if text.to_str()?.starts_with("torch.") {
        return dtype_of_name(text.to_str()?);
    }
    let dtype = object.py().import("numpy")?.getattr("dtype")?.call1((object,));
    let dtype = dtype.map_err(|_| refused(format!("{text} is no element type")))?;
    dtype_of_name(&dtype.getattr("name")?.to_string())
}

/// Memory that a DLPack capsule has handed over; given back when dropped.
#[derive(Debug)]
struct Exported {
    managed: NonNull<c_void>,
    delete: unsafe fn(NonNull<c_void>),
}

// SAFETY: DLPack's deleters may be called from any thread.
unsafe impl Send for Exported {}
// SAFETY: it is only kept and dropped.
unsafe impl Sync for Exported {}

impl Drop for Exported {
    fn drop(&mut self) {
        // Deleters of Python packages drop references.
        // SAFETY: the capsule was renamed, so that this is the only owner, and this is the only
        // call.
        let _ = Python::try_attach(|_| unsafe { (self.delete)(self.managed) });
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
struct DlTensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    dimensions: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    /// In elements; null for row-major order.
    strides: *const i64,
    byte_offset: u64,
}

#[repr(C)]
struct Managed {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    tensor: DlTensor,
}

const CPU: i32 = 1;
/// Host memory that a GPU reaches too.
const PINNED: [i32; 2] = [3, 11];
const READ_ONLY: u64 = 1;

unsafe fn delete_managed(managed: NonNull<c_void>) {
    let managed = managed.cast::<Managed>().as_ptr();
    // SAFETY: the caller owns it; the deleter is called once.
    unsafe { (*managed).deleter.into_iter().for_each(|delete| delete(managed)) }
}

unsafe fn delete_versioned(managed: NonNull<c_void>) {
    let managed = managed.cast::<Versioned>().as_ptr();
    // SAFETY: the caller owns it; the deleter is called once.
    unsafe { (*managed).deleter.into_iter().for_each(|delete| delete(managed)) }
}

fn of_dlpack(object: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    let py = object.py();
    let (device, _): (i32, i32) = object.call_method0("__dlpack_device__")?.extract()?;
    if device != CPU && !PINNED.contains(&device) {
        return Err(refused(format!(
            "the tensor is on a device of DLPack's type {device}: expected one in host memory"
        )));
    }
    let options = PyDict::new(py);
    options.set_item("max_version", PyTuple::new(py, [1, 0])?)?;
    let capsule = match object.call_method("__dlpack__", (), Some(&options)) {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            object.call_method0("__dlpack__")?
        }
        capsule => capsule.map_err(|error| {
            let refusal = refused(format!("the tensor cannot be exported: {error}"));
            refusal.set_cause(py, Some(error));
            refusal
        })?,
    };
    let capsule = capsule.cast::<PyCapsule>()?;
    let name = |text: &'static std::ffi::CStr| text.as_ptr() as *const c_char;
    // SAFETY: the names are C strings, the capsule is one.
    let is = |text| unsafe { pyo3::ffi::PyCapsule_IsValid(capsule.as_ptr(), name(text)) } == 1;
    let (old, used, delete): (_, _, unsafe fn(NonNull<c_void>)) = match () {
        () if is(c"dltensor_versioned") => {
            (c"dltensor_versioned", c"used_dltensor_versioned", delete_versioned)
        }
        () if is(c"dltensor") => (c"dltensor", c"used_dltensor", delete_managed),
        () => return Err(refused("__dlpack__ returned no capsule of DLPack")),
    };
    // SAFETY: it is valid under that name; renaming it makes us the owner of what it holds.
    let managed = unsafe {
        let managed = pyo3::ffi::PyCapsule_GetPointer(capsule.as_ptr(), name(old));
        pyo3::ffi::PyCapsule_SetName(capsule.as_ptr(), name(used));
        NonNull::new(managed)
    };
    let managed = managed.ok_or_else(|| refused("__dlpack__ returned an empty capsule"))?;
    let exported = Exported { managed, delete };
    let (tensor, is_read_only) = match old == c"dltensor" {
        // SAFETY: what the capsule's name says.
        true => (unsafe { managed.cast::<Managed>().as_ref() }.tensor, false),
        false => {
            // SAFETY: what the capsule's name says; the version comes first in every version.
            let versioned = unsafe { managed.cast::<Versioned>().as_ref() };
            if versioned.major != 1 {
                return Err(refused(format!("version {} of DLPack is unknown", versioned.major)));
            }
            (versioned.tensor, versioned.flags & READ_ONLY != 0)
        }
    };
    let dtype = dtype_of_dlpack(&tensor)?;
    let count = tensor.dimensions.max(0) as usize;
    let numbers = |start: *const i64| match start.is_null() || count == 0 {
        true => Vec::new(),
        // SAFETY: as many numbers as dimensions, by DLPack's contract.
        false => unsafe { slice::from_raw_parts(start, count) }.to_vec(),
    };
    let shape: Vec<u64> = numbers(tensor.shape).into_iter().map(|size| size as u64).collect();
    let strides = match tensor.strides.is_null() {
        true => row_major(&shape, dtype.bytes() as i64),
        false => {
            let strides = numbers(tensor.strides).into_iter();
            strides.map(|stride| stride.saturating_mul(dtype.bytes() as i64)).collect()
        }
    };
    let start = match tensor.data.is_null() {
        true => 0,
        false => tensor.data as usize + tensor.byte_offset as usize,
    };
    let _owner = Owner::Exported(exported);
    Ok(Tensor { _owner, start, is_read_only, dtype, shape, strides })
}

fn dtype_of_dlpack(tensor: &DlTensor) -> PyResult<Dtype> {
    let found = match (tensor.code, tensor.bits, tensor.lanes) {
        (0, 8, 1) => Dtype::I8,
        (0, 16, 1) => Dtype::I16,
        (0, 32, 1) => Dtype::I32,
        (0, 64, 1) => Dtype::I64,
        (1, 8, 1) => Dtype::U8,
        (1, 16, 1) => Dtype::U16,
        (1, 32, 1) => Dtype::U32,
        (1, 64, 1) => Dtype::U64,
        (2, 16, 1) => Dtype::F16,
        (2, 32, 1) => Dtype::F32,
        (2, 64, 1) => Dtype::F64,
        (4, 16, 1) => Dtype::BF16,
        (5, 64, 1) => Dtype::C64,
        (6, 8, 1) => Dtype::Bool,
        (10, 8, 1) => Dtype::F8E4M3,
        (12, 8, 1) => Dtype::F8E5M2,
        (14, 8, 1) => Dtype::F8E8M0,
        (code, bits, lanes) => {
            return Err(refused(format!(
                "elements of DLPack's type {code} with {bits} bits and {lanes} lanes are unknown"
            )));
        }
    };
    Ok(found)
}
