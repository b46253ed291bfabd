//! Names of tasks: written once, then referred to by number.

use std::collections::HashMap;

/// The most names that are remembered: a program that makes up a new name for every task costs no
/// more memory.
const NAMES_MAX: usize = 1 << 16;
/// The longest name that is remembered.
const NAME_BYTES_MAX: usize = 1 << 10;
const RECENT: usize = 64;

/// Numbers of the names that a capture has written.
#[derive(Debug)]
pub(super) struct Names {
    numbers: HashMap<Box<str>, u32>,
    // Programs use few names, again and again: a lookup here costs a tenth of one in the map.
    recent: Vec<(Box<str>, u32)>,
}

/// What to do about a name.
pub(super) enum Named {
    /// It was written before, under this number.
    Known(u32),
    /// It has this number from now on: write it first.
    New(u32),
    /// It will not be remembered: write it in place.
    Inline,
}

impl Names {
    pub(super) fn new() -> Self {
        Self { numbers: HashMap::new(), recent: vec![("".into(), u32::MAX); RECENT] }
    }

    #[inline]
    pub(super) fn look_up(&mut self, name: &str) -> Named {
        let slot = slot_of(name);
        let (recent, number) = &self.recent[slot];
        if **recent == *name && *number != u32::MAX {
            return Named::Known(*number);
        }
        self.look_up_slowly(name, slot)
    }

    #[cold]
    fn look_up_slowly(&mut self, name: &str, slot: usize) -> Named {
        let known = self.numbers.get(name).copied();
        let number = known.unwrap_or(self.numbers.len() as u32);
        if known.is_none() {
            if self.numbers.len() == NAMES_MAX || name.len() > NAME_BYTES_MAX {
                return Named::Inline;
            }
            self.numbers.insert(name.into(), number);
        }
        self.recent[slot] = (name.into(), number);
        if known.is_some() { Named::Known(number) } else { Named::New(number) }
    }
}

fn slot_of(name: &str) -> usize {
    let bytes = name.as_bytes();
    let at = |index: usize| usize::from(*bytes.get(index).unwrap_or(&0));
    let last = at(bytes.len().wrapping_sub(1));
    (bytes.len()
        ^ at(0).wrapping_mul(7)
        ^ at(bytes.len() / 2).wrapping_mul(13)
        ^ last.wrapping_mul(31))
        % RECENT
}
