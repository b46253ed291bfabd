//! Tensors in pickles of torch: where each lies in its storage, under the name of its path.

use std::collections::HashMap;

use syncline_layout::{Dims, NdBox};

use super::pickle::{Pickle, PickleValue, ValueId};
use super::torch_types::{
    REBUILD_PARAMETER, REBUILD_TENSOR, REBUILD_TYPED, UNTYPED, element_of_dtype,
    element_of_storage, is_dtype,
};
use crate::element::ElementType;
use crate::error::Malformed;
use crate::stored::{StoredBox, StoredTensor};

/// Containers within each other, at most.
const DEPTH_MAX: usize = 64;

/// Values that are visited in one pickle, at most: containers may share members, so that there are
/// far more paths than values.
const VISITS_MAX: usize = 1 << 26;

/// Tensors and other values that are found in one pickle, at most: far more than those of any model
/// with the states of its optimizer.
const FOUND_MAX: usize = 1 << 19;

/// What a reader of one file knows of its storages.
pub(super) trait Storages {
    /// The file, and where the bytes of the storage `key` begin and how many there are.
    fn find(&self, key: &str) -> Option<(u32, u64, u64)>;
}

/// The storage of a tensor, as the pickle describes it.
pub(super) struct StorageRef<'p> {
    pub(super) key: &'p str,
    /// `None` for bytes without a type.
    pub(super) element: Option<ElementType>,
    /// Its elements, as many as it says.
    pub(super) count: u64,
}

/// Reads the persistent id of a storage.
pub(super) fn storage<'p>(
    pickle: &'p Pickle<'_>,
    id: ValueId,
) -> Result<StorageRef<'p>, Malformed> {
    let wrong = || Malformed::from("the pickle refers to a value that is no storage");
    let PickleValue::Persistent(id) = pickle.get(id) else { return Err(wrong()) };
    let members = pickle.members(*id).ok_or_else(wrong)?;
    let &[kind, class, key, _device, count, ..] = members else { return Err(wrong()) };
    if pickle.text(kind) != Some("storage") {
        return Err(wrong());
    }
    // A view of another storage, which torch has not written since 2017.
    if members.get(5).is_some_and(|&view| *pickle.get(view) != PickleValue::None) {
        return Err("a storage that is a view of another one".into());
    }
    let class = pickle.global(class).ok_or_else(wrong)?;
    let element = match UNTYPED.contains(&class) {
        true => None,
        false => Some(
            element_of_storage(class)
                .ok_or_else(|| Malformed::new(format!("tensors of `{class}` cannot be read")))?,
        ),
    };
    let (key, count) = (pickle.text(key), pickle.size(count));
    Ok(StorageRef { key: key.ok_or_else(wrong)?, element, count: count.ok_or_else(wrong)? })
}

/// What a walk over a pickle finds.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Tensors by their paths, joined by dots.
    pub(super) tensors: Vec<(String, StoredTensor)>,
    /// Paths of other values, those of a container of such values as one.
    pub(super) others: Vec<String>,
}

/// Walks over the containers of a pickle.
pub(super) struct Walk<'p, 'a, S> {
    pickle: &'p Pickle<'a>,
    storages: &'p S,
    visits: usize,
    found: Found,
    /// Whether a container has tensors.
    has_tensors: HashMap<ValueId, bool>,
}

impl<'p, 'a, S: Storages> Walk<'p, 'a, S> {
    /// Finds all tensors.
    pub(super) fn tensors(pickle: &'p Pickle<'a>, storages: &'p S) -> Result<Found, Malformed> {
        let (found, has_tensors) = (Found::default(), HashMap::new());
        let mut walk = Self { pickle, storages, visits: 0, found, has_tensors };
        walk.visit(pickle.root(), &mut String::new(), 0)?;
        Ok(walk.found)
    }

    fn visit(&mut self, id: ValueId, path: &mut String, depth: usize) -> Result<bool, Malformed> {
        self.visits += 1;
        if depth > DEPTH_MAX || self.visits > VISITS_MAX {
            return Err("the pickle's containers are nested too deeply".into());
        }
        if self.found.tensors.len() + self.found.others.len() > FOUND_MAX {
            return Err(format!("the pickle has more than {FOUND_MAX} tensors and values").into());
        }
        if self.has_tensors.get(&id) == Some(&false) {
            return Ok(false);
        }
        if let Some(tensor) = self.tensor(id, 0).map_err(|cause| named(path, cause))? {
            self.found.tensors.push((path.clone(), tensor));
            return Ok(true);
        }
        let pickle = self.pickle;
        let before = self.found.others.len();
        let mut has_any = false;
        let mut members: Vec<(String, ValueId)> = Vec::new();
        if let Some(entries) = pickle.entries(id) {
            let key = |id: ValueId| match pickle.get(id) {
                PickleValue::Text(text) => text.to_string(),
                PickleValue::Int(number) => number.to_string(),
                _ => "?".to_owned(),
            };
            members.extend(entries.iter().map(|(name, value)| (key(*name), *value)));
        } else if let Some(list) = pickle.members(id) {
            members.extend(list.iter().enumerate().map(|(at, id)| (at.to_string(), *id)));
        } else if let Some((_, object)) = pickle.object(id)
            && let Some(state) = object.state
        {
            members.push((String::new(), state));
        }
        for (name, member) in members {
            let length = path.len();
            if !path.is_empty() && !name.is_empty() {
                path.push('.');
            }
            path.push_str(&name);
            has_any |= self.visit(member, path, depth + 1)?;
            path.truncate(length);
        }
        if !has_any {
            self.has_tensors.insert(id, false);
            self.found.others.truncate(before);
            self.found.others.push(path.clone());
        }
        Ok(has_any)
    }

    /// The tensor that the value is; `None` if it is none.
    fn tensor(&self, id: ValueId, depth: usize) -> Result<Option<StoredTensor>, Malformed> {
        let Some((class, object)) = self.pickle.object(id) else { return Ok(None) };
        let arguments = self.pickle.members(object.arguments).unwrap_or_default();
        if REBUILD_PARAMETER.contains(&class) && depth < DEPTH_MAX {
            let first = arguments.first().ok_or("a parameter without a tensor")?;
            return self.tensor(*first, depth + 1);
        }
        if class == REBUILD_TYPED {
            let &[function, _, inner, ..] = arguments else {
                return Err("a tensor of a class without arguments".into());
            };
            let function = self.pickle.global(function).unwrap_or_default();
            let inner = self.pickle.members(inner).unwrap_or_default();
            return match REBUILD_TENSOR.contains(&function) {
                true => self.rebuilt(function, inner).map(Some),
                false => Err(format!("a tensor made by `{function}` cannot be read").into()),
            };
        }
        if REBUILD_TENSOR.contains(&class) {
            return self.rebuilt(class, arguments).map(Some);
        }
        match class.starts_with("torch._utils._rebuild_") {
            true => Err(format!("a tensor made by `{class}` cannot be read").into()),
            false => Ok(None),
        }
    }

    /// The tensor of `function` with `arguments`: a storage, an offset, sizes and strides.
    fn rebuilt(&self, function: &str, arguments: &[ValueId]) -> Result<StoredTensor, Malformed> {
        let &[storage_id, offset, shape, strides, ref rest @ ..] = arguments else {
            return Err("a tensor without storage, sizes and strides".into());
        };
        let pickle = self.pickle;
        let storage = storage(pickle, storage_id)?;
        let said = rest.iter().filter_map(|&id| pickle.global(id)).find(|name| is_dtype(name));
        let element = match (said, storage.element) {
            (Some(dtype), _) if function.ends_with("_v3") => element_of_dtype(dtype)
                .ok_or_else(|| format!("tensors of `{dtype}` cannot be read"))?,
            (_, Some(element)) => element,
            _ => return Err("a tensor whose element type is not said".into()),
        };
        let bytes = element.dtype().bytes();
        let unit = storage.element.map_or(1, |of| of.dtype().bytes());
        let (file, start, held) = self
            .storages
            .find(storage.key)
            .ok_or_else(|| format!("the storage `{}` is not in the file", storage.key))?;
        if storage.count.checked_mul(unit) != Some(held) {
            return Err(format!(
                "the storage `{}` has {held} bytes, its tensors say {} elements of {unit}",
                storage.key, storage.count
            )
            .into());
        }
        let numbers = |id| sizes(pickle, id).ok_or("sizes that are no few numbers");
        let shape = numbers(shape)?;
        let mut strides = numbers(strides)?;
        let large = || Malformed::from("offsets that are too large");
        if strides.len() != shape.len() {
            return Err("unlike numbers of sizes and strides".into());
        }
        for stride in strides.iter_mut() {
            *stride = stride.checked_mul(bytes).ok_or_else(large)?;
        }
        let offset = pickle.size(offset).and_then(|offset| offset.checked_mul(bytes));
        let offset = offset.ok_or_else(large)?;
        // A tensor lies within its storage, not only within the file.
        let last = shape.iter().zip(strides.iter()).try_fold(offset, |sum, (&count, &stride)| {
            sum.checked_add(count.saturating_sub(1).checked_mul(stride)?)
        });
        let end = last.and_then(|last| last.checked_add(bytes));
        if !shape.contains(&0) && end.is_none_or(|end| end > held) {
            return Err(format!(
                "shape {shape} reaches past the {held} bytes of the storage `{}`",
                storage.key
            )
            .into());
        }
        let area = NdBox::whole(shape);
        let boxes = vec![StoredBox { area, file, start: start + offset.min(held), strides }];
        Ok(StoredTensor { element, shape, boxes })
    }
}

fn named(path: &str, cause: Malformed) -> Malformed {
    Malformed::new(format!("`{}`: {cause}", syncline_files::one_line(path)))
}

/// The numbers in a `torch.Size` or a tuple.
pub(super) fn sizes(pickle: &Pickle<'_>, id: ValueId) -> Option<Dims> {
    let id = match pickle.object(id) {
        Some(("torch.Size", object)) => *pickle.members(object.arguments)?.first()?,
        _ => id,
    };
    let numbers = pickle.members(id)?.iter().map(|&id| pickle.size(id));
    Dims::from_slice(&numbers.collect::<Option<Vec<u64>>>()?)
}

#[cfg(test)]
mod tests {
    use super::super::torch_types::is_allowed;
    use super::*;

    struct OneStorage;

    impl Storages for OneStorage {
        fn find(&self, _: &str) -> Option<(u32, u64, u64)> {
            Some((0, 0, 16))
        }
    }

    #[test]
    fn containers_that_share_members_do_not_fill_the_memory() {
        // A list with a tensor, then lists that have the one before twice.
        let mut bytes = b"\x80\x02]q\x00ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00\
            storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x04tQK\x00\
            K\x04\x85K\x01\x85\x89NtRa"
            .to_vec();
        let read = |bytes: &[u8]| {
            let (pickle, _) = Pickle::read(bytes, &is_allowed).unwrap();
            Walk::tensors(&pickle, &OneStorage)
        };
        assert_eq!(read(&[&bytes[..], b"."].concat()).unwrap().tensors.len(), 1);
        for at in 0..50 {
            bytes.extend([b']', b'q', at + 1, b'(', b'h', at, b'h', at, b'e']);
        }
        bytes.push(b'.');
        let error = read(&bytes).unwrap_err().to_string();
        assert!(error.contains("more than 524288 tensors"), "{error}");
    }
}
