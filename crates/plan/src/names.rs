//! Interned names: every distinct string is kept once and known by a number.

use rustc_hash::FxHashMap;

/// A number that stands for a string of its [`Names`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NameId(pub u32);

/// The distinct strings of a graph.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    strings: Vec<Box<str>>,
    ids: FxHashMap<Box<str>, NameId>,
}

impl Names {
    /// Returns the names `strings`, or `None` if two are the same. More cannot be interned: a table
    /// of names that a file chose could be made to take quadratic time.
    pub(crate) fn of_file(strings: Vec<Box<str>>) -> Option<Self> {
        let mut sorted: Vec<&str> = strings.iter().map(|name| &**name).collect();
        sorted.sort_unstable();
        let is_unique = sorted.windows(2).all(|pair| pair[0] != pair[1]);
        is_unique.then(|| Self { strings, ids: FxHashMap::default() })
    }

    /// The number of `name`, a new one if it was never seen.
    pub(crate) fn intern(&mut self, name: &str) -> NameId {
        if let Some(&id) = self.ids.get(name) {
            return id;
        }
        let id = NameId(self.strings.len() as u32);
        self.strings.push(name.into());
        self.ids.insert(name.into(), id);
        id
    }

    /// The string that `id` stands for.
    pub(crate) fn get(&self, id: NameId) -> &str {
        &self.strings[id.0 as usize]
    }

    /// All strings, by number.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        self.strings.iter().map(|name| &**name)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.strings.len()
    }
}
