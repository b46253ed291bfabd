//! Files of `torch.save` before torch 1.6: pickles, then each storage with its length.

use std::collections::{BTreeMap, HashMap};

use super::pickle::{Pickle, PickleValue, ValueId};
use super::torch::{Found, Storages, Walk, storage};
use super::torch_types::is_allowed;
use crate::error::Malformed;

/// The number that the first pickle is, in little-endian order.
const MAGIC: [u8; 10] = [0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];
const PROTOCOL: i64 = 1001;

/// Returns `true` if a file with these first bytes is one.
pub(super) fn is_legacy(first: &[u8]) -> bool {
    first.first() == Some(&0x80) && first.get(4..14) == Some(&MAGIC)
}

/// Finds the tensors in `bytes`, which begin at `start` of the file.
pub(super) fn read_tensors(bytes: &[u8], file: u32, start: u64) -> Result<Found, Malformed> {
    let next = |rest| Pickle::read(rest, &is_allowed);
    let (magic, rest) = next(bytes)?;
    if *magic.get(magic.root()) != PickleValue::Long(&MAGIC) {
        return Err("neither a zip archive nor a pickle of torch".into());
    }
    let (protocol, rest) = next(rest)?;
    if *protocol.get(protocol.root()) != PickleValue::Int(PROTOCOL) {
        return Err("a protocol of torch that is not known".into());
    }
    let (system, rest) = next(rest)?;
    let is_big = |(key, value): &(ValueId, ValueId)| {
        system.text(*key) == Some("little_endian")
            && *system.get(*value) == PickleValue::Bool(false)
    };
    if system.entries(system.root()).is_some_and(|entries| entries.iter().any(is_big)) {
        return Err("its bytes are in big-endian order".into());
    }
    let (pickle, rest) = next(rest)?;
    let (keys, mut rest) = next(rest)?;
    let units = units(&pickle)?;
    let mut found = BTreeMap::new();
    let members = keys.members(keys.root()).ok_or("the list of storages is none")?;
    for &key in members {
        let key = keys.text(key).ok_or("the name of a storage is no text")?;
        let unit = units.get(key).ok_or("a storage that no tensor has")?;
        let (count, after) = rest.split_first_chunk::<8>().ok_or("cut off before a storage")?;
        let size = u64::from_le_bytes(*count).checked_mul(*unit);
        let size = size.and_then(|size| usize::try_from(size).ok());
        let at = (bytes.len() - after.len()) as u64;
        let taken = size.and_then(|size| after.split_at_checked(size));
        let (storage, after) = taken.ok_or_else(|| format!("storage `{key}` is cut off"))?;
        found.insert(key.to_owned(), (file, start + at, storage.len() as u64));
        rest = after;
    }
    Walk::tensors(&pickle, &LegacyStorages(found))
}

/// The bytes of an element of each storage.
fn units(pickle: &Pickle<'_>) -> Result<HashMap<String, u64>, Malformed> {
    let mut units = HashMap::new();
    for id in pickle.ids() {
        if let PickleValue::Persistent(_) = pickle.get(id) {
            let found = storage(pickle, id)?;
            let unit = found.element.map_or(1, |element| element.dtype().bytes());
            if units.insert(found.key.to_owned(), unit).is_some_and(|before| before != unit) {
                return Err(format!("storage `{}` has two element types", found.key).into());
            }
        }
    }
    Ok(units)
}

struct LegacyStorages(BTreeMap<String, (u32, u64, u64)>);

impl Storages for LegacyStorages {
    fn find(&self, key: &str) -> Option<(u32, u64, u64)> {
        self.0.get(key).copied()
    }
}
