//! The safetensors file: a length, a JSON header, then the tensors' bytes without gaps.

use std::collections::BTreeMap;
use std::mem::replace;

use serde::de::MapAccess;
use serde::{Deserialize, Serialize};
use syncline_layout::Dims;

use crate::element::ElementType;
use crate::error::Malformed;
use crate::unique::{Members, Unique};

/// The longest header accepted, as in the reference implementation.
const HEADER_BYTES_MAX: u64 = 100_000_000;

/// Headers are padded so that data starts at a multiple of this.
const DATA_ALIGN: usize = 64;

/// A tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorEntry {
    /// Name, unique in the file.
    pub name: String,
    /// Element type.
    pub element: ElementType,
    /// Shape in units of the type that plans move it as.
    pub stored_shape: Dims,
    /// First byte after the header.
    pub start: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// What the head of a file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Free text of the file's author.
    pub metadata: BTreeMap<String, String>,
    /// The tensors, by their place in the file.
    pub tensors: Vec<TensorEntry>,
    /// Where the tensors' bytes begin in the file.
    pub data_start: u64,
}

#[derive(Serialize, Deserialize)]
struct EntryForm {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// Tensors by their names, beside the metadata.
#[derive(Default)]
struct HeaderForm {
    metadata: BTreeMap<String, String>,
    tensors: BTreeMap<String, EntryForm>,
}

impl Members for HeaderForm {
    fn read<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
        if name == "__metadata__" {
            let metadata: Option<Unique<BTreeMap<_, _>>> = map.next_value()?;
            let before = metadata.map(|metadata| replace(&mut self.metadata, metadata.0));
            return Ok(before.is_none_or(|before| before.is_empty()));
        }
        self.tensors.read(name, map)
    }
}

impl Header {
    /// Reads the head of `file`; the error says which fault it has.
    pub fn parse(file: &[u8]) -> Result<Self, Malformed> {
        let length = file.first_chunk::<8>().ok_or("shorter than 8 bytes: no safetensors file")?;
        let length = u64::from_le_bytes(*length);
        if length > HEADER_BYTES_MAX {
            return Err(format!("header of {length} bytes: more than {HEADER_BYTES_MAX}").into());
        }
        let cut = || format!("cut off: the header has {length} bytes, the file {}", file.len());
        let text = file.get(8..8 + length as usize).ok_or_else(cut)?;
        let Unique(form): Unique<HeaderForm> =
            serde_json::from_slice(text).map_err(|error| format!("header: {error}"))?;
        let data_start = 8 + length;
        let mut tensors = Vec::with_capacity(form.tensors.len());
        for (name, entry) in form.tensors {
            tensors.push(parse_entry(name, &entry)?);
        }
        // Tensors of no bytes share their place with the next one, and come before it.
        let place = |tensor: &TensorEntry| (tensor.start, tensor.bytes);
        tensors.sort_by(|one, other| {
            place(one).cmp(&place(other)).then_with(|| one.name.cmp(&other.name))
        });
        let mut next = 0;
        for tensor in &tensors {
            if tensor.start != next {
                let (name, start) = (&tensor.name, tensor.start);
                return Err(format!("tensor `{name}` starts at {start}, expected {next}").into());
            }
            next += tensor.bytes;
        }
        let data = file.len() as u64 - data_start;
        if data != next {
            return Err(format!("tensors take {next} bytes, but {data} follow the header").into());
        }
        Ok(Self { metadata: form.metadata, tensors, data_start })
    }

    /// The header of a file with these tensors, laid out in this order; fills in where each starts.
    pub fn write(&mut self) -> Vec<u8> {
        let mut start = 0;
        let mut text = String::from("{");
        if !self.metadata.is_empty() {
            text.push_str("\"__metadata__\":");
            text.push_str(&json(&self.metadata));
            text.push(',');
        }
        for tensor in &mut self.tensors {
            tensor.start = start;
            start += tensor.bytes;
            let shape = tensor.element.element_shape(&tensor.stored_shape);
            let form = EntryForm {
                dtype: tensor.element.name().to_owned(),
                shape: shape.unwrap_or(tensor.stored_shape).to_vec(),
                data_offsets: [tensor.start, start],
            };
            text.push_str(&format!("{}:{},", json(&tensor.name), json(&form)));
        }
        if text.ends_with(',') {
            text.pop();
        }
        text.push('}');
        let padded = (8 + text.len()).next_multiple_of(DATA_ALIGN);
        text.push_str(&" ".repeat(padded - 8 - text.len()));
        self.data_start = padded as u64;
        let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(text.as_bytes());
        bytes
    }

    /// Bytes of the whole file.
    pub fn file_bytes(&self) -> u64 {
        self.data_start + self.tensors.iter().map(|tensor| tensor.bytes).sum::<u64>()
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("text and numbers can be written")
}

fn parse_entry(name: String, entry: &EntryForm) -> Result<TensorEntry, Malformed> {
    let wrong = |cause: String| Malformed::new(format!("tensor `{name}`: {cause}"));
    let element = ElementType::parse(&entry.dtype)
        .ok_or_else(|| wrong(format!("unknown dtype `{}`", entry.dtype)))?;
    let shape = Dims::from_slice(&entry.shape)
        .ok_or_else(|| wrong(format!("{} dimensions are too many", entry.shape.len())))?;
    let stored_shape = element
        .stored_shape(&shape)
        .ok_or_else(|| wrong(format!("shape {shape} of {} ends within a byte", entry.dtype)))?;
    let expected =
        stored_shape.checked_volume().and_then(|count| count.checked_mul(element.dtype().bytes()));
    let [start, stop] = entry.data_offsets;
    let bytes = stop.checked_sub(start).ok_or_else(|| wrong(format!("bytes {start}..{stop}")))?;
    if expected != Some(bytes) {
        let dtype = &entry.dtype;
        return Err(wrong(format!("{bytes} bytes do not fit {dtype} of shape {shape}")));
    }
    Ok(TensorEntry { name, element, stored_shape, start, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, element: &str, shape: &[u64]) -> TensorEntry {
        let element = ElementType::parse(element).unwrap();
        let stored_shape = element.stored_shape(&Dims::from_slice(shape).unwrap()).unwrap();
        let bytes = stored_shape.volume() * element.dtype().bytes();
        TensorEntry { name: name.to_owned(), element, stored_shape, start: 0, bytes }
    }

    #[test]
    fn headers_are_read_as_written() {
        let mut header = Header {
            metadata: BTreeMap::from([("format".to_owned(), "pt \"x\"".to_owned())]),
            tensors: vec![
                entry("w", "F64", &[2, 3]),
                entry("empty", "BF16", &[0, 3]),
                entry("nibbles", "F4", &[3, 4]),
                entry("scalar", "BOOL", &[]),
            ],
            data_start: 0,
        };
        let mut file = header.write();
        assert!(file.len().is_multiple_of(64));
        file.resize(header.file_bytes() as usize, 0);
        let mut read = Header::parse(&file).unwrap();
        // Tensors of no bytes share their place with the next one.
        read.tensors.sort_by_key(|tensor| {
            header.tensors.iter().position(|known| known.name == tensor.name)
        });
        assert_eq!(read, header);
    }

    #[test]
    fn tensors_of_no_bytes_come_before_those_that_they_share_a_place_with() {
        let mut header = Header {
            tensors: vec![
                entry("z", "U8", &[0]),
                entry("a", "U8", &[4]),
                entry("y", "U8", &[0, 2]),
            ],
            ..Default::default()
        };
        let mut file = header.write();
        file.resize(header.file_bytes() as usize, 0);
        assert_eq!(Header::parse(&file).unwrap().tensors, header.tensors);
    }

    #[test]
    fn damage_is_recognised() {
        let mut header = Header { tensors: vec![entry("w", "F32", &[4])], ..Default::default() };
        let mut file = header.write();
        file.resize(header.file_bytes() as usize, 0);
        for cut in [0, 7, 8, 20, file.len() - 1] {
            assert!(Header::parse(&file[..cut]).is_err(), "cut at {cut}");
        }
        let with = |text: &str| {
            let mut file = (text.len() as u64).to_le_bytes().to_vec();
            file.extend_from_slice(text.as_bytes());
            Header::parse(&file).unwrap_err().to_string()
        };
        assert!(with(r#"{"w":{"dtype":"X9","shape":[],"data_offsets":[0,0]}}"#).contains("`X9`"));
        assert!(
            with(r#"{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}"#)
                .contains("do not fit")
        );
        assert!(
            with(r#"{"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#)
                .contains("expected 0")
        );
        assert!(
            with(r#"{"w":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}}"#)
                .contains("within a byte")
        );
        assert!(with("{").contains("header"));
        let twice = r#"{"w":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},
            "w":{"dtype":"F32","shape":[0,3],"data_offsets":[0,0]}}"#;
        assert!(with(twice).contains("`w` is there twice"));
        let twice = r#"{"__metadata__":{"a":"1"},"__metadata__":{}}"#;
        assert!(with(twice).contains("`__metadata__` is there twice"));
        assert!(with(r#"{"__metadata__":{"a":"1","a":"2"}}"#).contains("`a` is there twice"));
        for shape in ["[4611686018427387904,4]", "[18446744073709551615]", "[1,1,1,1,1,1,1,1,1]"] {
            let text = format!(r#"{{"w":{{"dtype":"F64","shape":{shape},"data_offsets":[0,8]}}}}"#);
            with(&text);
        }
        let huge = [0xff; 16];
        assert!(Header::parse(&huge).unwrap_err().to_string().contains("more than"));
    }
}
