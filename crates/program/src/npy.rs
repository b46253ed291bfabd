//! Arrays in files: numpy's `.npy`, written and read, and single tensors of safetensors files,
//! read.

use std::io::{self, Write};
use std::path::Path;

use half::{bf16, f16};
use serde_json::Value;
use syncline_device::Scalar;
use syncline_files::read_file;
use syncline_tensor::Dtype;

/// An array of a file: its elements one after the other, the last dimension fastest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    /// The element type.
    pub dtype: Dtype,
    /// Elements along each dimension.
    pub shape: Vec<u64>,
    /// The elements, little-endian.
    pub bytes: Vec<u8>,
}

const MAGIC: &[u8] = b"\x93NUMPY\x01\x00";

/// numpy's name of a dtype; one that numpy does not have is stored as integers of its size.
fn descriptor(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::Bool => "|b1",
        Dtype::I8 => "|i1",
        Dtype::U8 | Dtype::F8E4M3 | Dtype::F8E5M2 | Dtype::F8E8M0 => "|u1",
        Dtype::I16 => "<i2",
        Dtype::U16 | Dtype::BF16 => "<u2",
        Dtype::F16 => "<f2",
        Dtype::I32 => "<i4",
        Dtype::U32 => "<u4",
        Dtype::F32 => "<f4",
        Dtype::I64 => "<i8",
        Dtype::U64 => "<u8",
        Dtype::F64 => "<f8",
        Dtype::C64 => "<c8",
    }
}

/// Writes `array` so that `numpy.load` reads it.
pub fn write(out: &mut impl Write, array: &Array) -> io::Result<()> {
    let mut shape: String = array.shape.iter().map(|size| format!("{size}, ")).collect();
    if shape.len() > 2 && array.shape.len() > 1 {
        shape.truncate(shape.len() - 2);
    }
    let mut header = format!(
        "{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
        descriptor(array.dtype),
        shape.trim_end()
    );
    // The data begins at a multiple of 64 bytes.
    let unpadded = MAGIC.len() + 2 + header.len() + 1;
    header.push_str(&" ".repeat(unpadded.next_multiple_of(64) - unpadded));
    header.push('\n');
    let too_many = || io::Error::new(io::ErrorKind::InvalidInput, "too many dimensions");
    let length = u16::try_from(header.len()).map_err(|_| too_many())?;
    let parts = [MAGIC, &length.to_le_bytes(), header.as_bytes(), &array.bytes];
    parts.iter().try_for_each(|part| out.write_all(part))
}

/// Reads an array that numpy wrote, in C order and little-endian.
pub fn read(path: &Path) -> Result<Array, String> {
    let bytes = read_file(path).map_err(|error| error.to_string())?;
    if bytes.len() < 12 || &bytes[..6] != b"\x93NUMPY" {
        return Err("not a .npy file: it does not begin with its mark".to_owned());
    }
    let (start, length) = match bytes[6] {
        1 => (10, usize::from(u16::from_le_bytes([bytes[8], bytes[9]]))),
        _ => (12, u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]) as usize),
    };
    let header = bytes.get(start..start + length).ok_or("the header is cut off")?;
    let header = std::str::from_utf8(header).map_err(|_| "the header is not text")?;
    let after = |key: &str| {
        let place = header.find(key).ok_or(format!("the header has no {key}"))?;
        Ok::<_, String>(header[place + key.len()..].trim_start_matches([':', ' ']))
    };
    if after("'fortran_order'")?.starts_with("True") {
        return Err(
            "the array is in Fortran order: save it with numpy.ascontiguousarray".to_owned()
        );
    }
    let name = after("'descr'")?.trim_start_matches('\'');
    let name = name.split('\'').next().unwrap_or_default();
    let dtype = Dtype::ALL.into_iter().find(|dtype| {
        descriptor(*dtype).trim_start_matches(['<', '|'])
            == name.trim_start_matches(['<', '|', '='])
    });
    let dtype = dtype.filter(|_| !name.starts_with('>')).ok_or(format!("elements of `{name}`"))?;
    let inside = after("'shape'")?.trim_start_matches('(');
    let inside = inside.split(')').next().unwrap_or_default();
    let sizes = inside.split(',').map(str::trim).filter(|size| !size.is_empty());
    let shape: Vec<u64> = sizes
        .map(|size| size.parse().map_err(|_| format!("`{size}` in the shape")))
        .collect::<Result<_, _>>()?;
    let wanted = shape.iter().try_fold(dtype.bytes(), |product, size| product.checked_mul(*size));
    let data = &bytes[start + length..];
    if wanted != Some(data.len() as u64) {
        return Err(format!("{} bytes of data for a shape of {shape:?} {dtype}", data.len()));
    }
    Ok(Array { dtype, shape, bytes: data.to_vec() })
}

/// The bytes of tensor `name` of a safetensors file.
pub fn safetensor(path: &Path, name: &str) -> Result<Vec<u8>, String> {
    let bytes = read_file(path).map_err(|error| error.to_string())?;
    let length = bytes.first_chunk().map(|length| u64::from_le_bytes(*length));
    let length =
        length.and_then(|length| usize::try_from(length).ok()).ok_or("the header is cut off")?;
    let header =
        bytes.get(8..).and_then(|rest| rest.get(..length)).ok_or("the header is cut off")?;
    let header: Value = serde_json::from_slice(header).map_err(|error| error.to_string())?;
    let tensor = header.get(name).ok_or_else(|| {
        let names = header.as_object().map(|all| all.keys().map(String::as_str));
        let nearest = names.and_then(|names| syncline_spelling::nearest(name, names));
        let meant = nearest.map(|name| format!(": did you mean `{name}`?")).unwrap_or_default();
        format!("no tensor `{name}`{meant}")
    })?;
    let end = |at: usize| tensor["data_offsets"][at].as_u64().map(|end| end as usize);
    let (start, end) = end(0).zip(end(1)).ok_or("a tensor without its place")?;
    let data = bytes[8 + length..].get(start..end).ok_or("the data is cut off")?;
    Ok(data.to_vec())
}

/// One element of `dtype`, little-endian, nearest to `value`.
pub fn element(dtype: Dtype, value: Scalar) -> Vec<u8> {
    let (float, whole) = (value.as_f64(), value.as_i64().unwrap_or(value.as_f64() as i64));
    match dtype {
        Dtype::F16 => f16::from_f64(float).to_le_bytes().to_vec(),
        Dtype::BF16 => bf16::from_f64(float).to_le_bytes().to_vec(),
        Dtype::F32 => (float as f32).to_le_bytes().to_vec(),
        Dtype::F64 => float.to_le_bytes().to_vec(),
        Dtype::C64 => [(float as f32).to_le_bytes(), [0; 4]].concat(),
        other => whole.to_le_bytes()[..other.bytes() as usize].to_vec(),
    }
}
