//! What a buffer holds before the first task: zeros, one value, random numbers, or a file.

use std::path::{Path, PathBuf};

use serde_json::Value;
use syncline_device::Scalar;
use syncline_files::machine_memory_bytes;
use syncline_spelling::nearest;
use syncline_tensor::Dtype;
use syncline_trace::{Place, TraceBuffer};

use crate::error::ProgramError;
use crate::npy;

/// The initial contents of a buffer.
#[derive(Clone, Debug)]
pub(crate) enum Initial {
    /// All bytes zero.
    Zero,
    /// Every element the same.
    Fill(Scalar, Dtype),
    /// Elements from a generator with this seed: floats from 0 up to 1, integers from 0 to 99.
    Random(u64, Dtype),
    /// The data of a file.
    File(PathBuf, Option<String>),
    /// These bytes.
    Bytes(Vec<u8>),
}

impl Initial {
    /// Reads the member `init` of a buffer; files must exist, but are not yet read.
    pub(crate) fn of(
        buffer: &TraceBuffer,
        place: Place,
        folder: &Path,
    ) -> Result<Self, ProgramError> {
        let Some(init) = buffer.extra.get("init") else { return Ok(Initial::Zero) };
        let place = place.member("init");
        let refused = |expected| ProgramError::Shape { place, expected, found: init.to_string() };
        let dtype = match init.get("dtype") {
            None => Dtype::F32,
            Some(name) => {
                let name = name.as_str().ok_or_else(|| refused("a dtype by name"))?;
                name.parse().map_err(|source| ProgramError::Dtype { place, source })?
            }
        };
        let whole = buffer.bytes.is_multiple_of(dtype.bytes());
        let has = |member: &str| init.get(member).is_some();
        if ["fill", "random", "file"].into_iter().filter(|member| has(member)).count() > 1 {
            return Err(refused("only one of `fill`, `random` and `file`"));
        }
        if has("tensor") && (!has("file") || init["tensor"].as_str().is_none()) {
            return Err(refused("`tensor` with the name of one in a `file`"));
        }
        if let Some(value) = init.get("fill") {
            let value = match (value.as_i64(), value.as_f64()) {
                (Some(whole), _) => Scalar::I64(whole),
                (None, Some(float)) => Scalar::F64(float),
                _ => return Err(refused("`fill` with a number")),
            };
            return if whole {
                Ok(Initial::Fill(value, dtype))
            } else {
                Err(refused("whole elements"))
            };
        }
        if let Some(seed) = init.get("random") {
            // Integers above 2^53 may be texts.
            let seed = seed.as_u64().or_else(|| seed.as_str()?.parse().ok());
            let seed = seed.ok_or_else(|| refused("`random` with a seed"))?;
            return if whole {
                Ok(Initial::Random(seed, dtype))
            } else {
                Err(refused("whole elements"))
            };
        }
        let file = init.get("file").and_then(Value::as_str);
        let file = file.ok_or_else(|| refused("one of `fill`, `random` and `file`"))?;
        let path = folder.join(file);
        match std::fs::metadata(&path) {
            Ok(found) if found.is_file() => (),
            // A pipe could be read only once, and runs are repeated.
            Ok(_) => {
                let message = "not a regular file".to_owned();
                return Err(ProgramError::File { place, path, message });
            }
            Err(error) => {
                let meant = beside(&path).map(|name| format!(": did you mean `{name}`?"));
                let message = format!("{error}{}", meant.unwrap_or_default());
                return Err(ProgramError::File { place, path, message });
            }
        }
        let tensor = init.get("tensor").and_then(Value::as_str).map(str::to_owned);
        Ok(Initial::File(path, tensor))
    }

    /// The bytes themselves.
    pub(crate) fn contents(&self, bytes: u64, place: Place) -> Result<Vec<u8>, ProgramError> {
        require_memory(place, bytes)?;
        let place = place.member("init");
        let size = bytes as usize;
        match self {
            Initial::Zero => Ok(vec![0; size]),
            Initial::Bytes(bytes) => Ok(bytes.clone()),
            Initial::Fill(value, dtype) => {
                let element = npy::element(*dtype, *value);
                Ok(element.iter().copied().cycle().take(size).collect())
            }
            Initial::Random(seed, dtype) => Ok(random(*seed, *dtype, size)),
            Initial::File(path, tensor) => {
                let refused = |message| ProgramError::File { place, path: path.clone(), message };
                let contents = match tensor {
                    Some(name) => npy::safetensor(path, name).map_err(refused)?,
                    None => npy::read(path).map_err(refused)?.bytes,
                };
                if contents.len() != size {
                    let (path, found) = (path.clone(), contents.len() as u64);
                    return Err(ProgramError::FileSize { place, path, found, wanted: bytes });
                }
                Ok(contents)
            }
        }
    }
}

/// Refuses to allocate more than the machine's memory.
pub(crate) fn require_memory(place: Place, bytes: u64) -> Result<(), ProgramError> {
    let memory_bytes = machine_memory_bytes();
    if bytes > memory_bytes {
        return Err(ProgramError::Memory { place, bytes, memory_bytes });
    }
    Ok(())
}

/// The file in the same folder whose name is most like that of `path`.
fn beside(path: &Path) -> Option<String> {
    let wanted = path.file_name()?.to_str()?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let entries = std::fs::read_dir(folder.unwrap_or(Path::new("."))).ok()?;
    let names: Vec<String> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    nearest(wanted, names.iter().map(String::as_str)).map(str::to_owned)
}

/// The same numbers for the same seed, on every machine and in every version.
fn random(seed: u64, dtype: Dtype, size: usize) -> Vec<u8> {
    let mut state = seed;
    let mut word = || {
        // SplitMix64: fixed here, since programs rely on its numbers.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    };
    let float = matches!(dtype, Dtype::F16 | Dtype::BF16 | Dtype::F32 | Dtype::F64);
    let count = size / dtype.bytes() as usize;
    let mut bytes = Vec::with_capacity(size);
    for _ in 0..count {
        let word = word();
        let value = match float {
            true => Scalar::F64((word >> 40) as f64 / (1u64 << 24) as f64),
            false => Scalar::I64((word % 100) as i64),
        };
        bytes.extend(npy::element(dtype, value));
    }
    bytes
}
