//! Pickles as data: nothing in them is ever called.
//!
//! A pickle is a program for a small machine, which can ask for any function to be called. This
//! machine builds [`PickleValue`]s instead. A call is a value with the name of its function; names
//! that the reader does not allow are errors. Values lie in one list and refer to each other
//! by position, so that no nesting is too deep for the stack.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::error::Malformed;

/// Values in one pickle: more than those of any checkpoint, and few enough for memory.
const VALUES_MAX: usize = 1 << 26;

/// The position of a value.
pub(super) type ValueId = u32;

/// A value in a pickle.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PickleValue<'a> {
    None,
    Bool(bool),
    Int(i64),
    /// An integer past 64 bits, in little-endian order.
    Long(&'a [u8]),
    Float(f64),
    Text(Cow<'a, str>),
    Bytes(&'a [u8]),
    Tuple(Vec<ValueId>),
    /// A list or a set.
    List(Vec<ValueId>),
    Dict(Vec<(ValueId, ValueId)>),
    /// A class or function, `module.name`.
    Global(Cow<'a, str>),
    /// An object, by what makes it and with what.
    Object(Box<PickledObject>),
    /// Something that is stored outside of the pickle.
    Persistent(ValueId),
}

/// An object: the class or function that would make it, and what it would be given.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PickledObject {
    pub(super) class: ValueId,
    pub(super) arguments: ValueId,
    pub(super) state: Option<ValueId>,
    pub(super) items: Vec<(ValueId, ValueId)>,
}

/// A pickle that was read.
#[derive(Debug)]
pub(super) struct Pickle<'a> {
    values: Vec<PickleValue<'a>>,
    root: ValueId,
}

impl<'a> Pickle<'a> {
    /// Reads the pickle at the start of `bytes`; returns what follows it, too. `is_allowed` decides
    /// on classes and functions.
    pub(super) fn read(
        bytes: &'a [u8],
        is_allowed: &dyn Fn(&str) -> bool,
    ) -> Result<(Self, &'a [u8]), Malformed> {
        let mut machine = Machine {
            rest: bytes,
            values: Vec::new(),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: HashMap::new(),
            is_allowed,
        };
        let root = machine.run()?;
        let (values, rest) = (machine.values, machine.rest);
        Ok((Self { values, root }, rest))
    }

    pub(super) fn root(&self) -> ValueId {
        self.root
    }

    pub(super) fn get(&self, id: ValueId) -> &PickleValue<'a> {
        &self.values[id as usize]
    }

    /// All values.
    pub(super) fn ids(&self) -> impl Iterator<Item = ValueId> + use<> {
        0..self.values.len() as ValueId
    }

    /// The object at `id` and the name of its class.
    pub(super) fn object(&self, id: ValueId) -> Option<(&str, &PickledObject)> {
        let PickleValue::Object(object) = self.get(id) else { return None };
        Some((self.global(object.class)?, object))
    }

    /// The name of the class or function at `id`.
    pub(super) fn global(&self, id: ValueId) -> Option<&str> {
        match self.get(id) {
            PickleValue::Global(name) => Some(name),
            _ => None,
        }
    }

    pub(super) fn text(&self, id: ValueId) -> Option<&str> {
        match self.get(id) {
            PickleValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A number that is not negative.
    pub(super) fn size(&self, id: ValueId) -> Option<u64> {
        match self.get(id) {
            PickleValue::Int(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    /// The members of a tuple or a list.
    pub(super) fn members(&self, id: ValueId) -> Option<&[ValueId]> {
        match self.get(id) {
            PickleValue::Tuple(members) | PickleValue::List(members) => Some(members),
            _ => None,
        }
    }

    /// The entries of a dict, or of an object that is one.
    pub(super) fn entries(&self, id: ValueId) -> Option<&[(ValueId, ValueId)]> {
        match self.get(id) {
            PickleValue::Dict(entries) => Some(entries),
            PickleValue::Object(object) => {
                let is_dict = matches!(
                    self.global(object.class),
                    Some("collections.OrderedDict" | "collections.defaultdict" | "builtins.dict")
                );
                is_dict.then_some(&object.items)
            }
            _ => None,
        }
    }

    /// The member `name` of an object's state.
    pub(super) fn member(&self, object: &PickledObject, name: &str) -> Option<ValueId> {
        let entries = self.entries(object.state?)?;
        let found = entries.iter().find(|(key, _)| self.text(*key) == Some(name));
        found.map(|(_, value)| *value)
    }
}

struct Machine<'a, 'f> {
    rest: &'a [u8],
    values: Vec<PickleValue<'a>>,
    stack: Vec<ValueId>,
    /// Heights of the stack.
    marks: Vec<usize>,
    memo: HashMap<u64, ValueId>,
    is_allowed: &'f dyn Fn(&str) -> bool,
}

impl<'a> Machine<'a, '_> {
    fn run(&mut self) -> Result<ValueId, Malformed> {
        loop {
            let code = self.take(1)?[0];
            if code == b'.' {
                return self.pop();
            }
            self.step(code)?;
        }
    }

    fn step(&mut self, code: u8) -> Result<(), Malformed> {
        use PickleValue::{Bool, Dict, List, Tuple};
        match code {
            // PROTO, FRAME.
            0x80 => self.take(1).map(|_| ()),
            0x95 => self.take(8).map(|_| ()),
            b'(' => {
                self.marks.push(self.stack.len());
                Ok(())
            }
            b'0' => self.pop().map(|_| ()),
            b'1' => self.take_to_mark().map(|_| ()),
            b'2' => {
                let top = self.top()?;
                self.stack.push(top);
                Ok(())
            }
            b'N' => self.push(PickleValue::None),
            0x88 => self.push(Bool(true)),
            0x89 => self.push(Bool(false)),
            b'J' | b'K' | b'M' | b'I' | b'L' | 0x8a | 0x8b | b'G' | b'F' => self.number(code),
            b'X' | b'U' | b'T' | 0x8c | 0x8d | b'S' | b'V' => self.text(code),
            b'B' | b'C' | 0x8e | 0x96 => {
                let length = self.length(match code {
                    b'B' => 4,
                    b'C' => 1,
                    _ => 8,
                })?;
                let bytes = self.take(length)?;
                self.push(PickleValue::Bytes(bytes))
            }
            b')' => self.push(Tuple(Vec::new())),
            0x85..=0x87 => {
                let count = usize::from(code - 0x84);
                let first = self.floor(count)?;
                let members = self.stack.split_off(first);
                self.push(Tuple(members))
            }
            b't' => {
                let members = self.take_to_mark()?;
                self.push(Tuple(members))
            }
            b']' | 0x8f => self.push(List(Vec::new())),
            b'l' | 0x91 => {
                let members = self.take_to_mark()?;
                self.push(List(members))
            }
            b'}' => self.push(Dict(Vec::new())),
            b'd' => {
                let entries = pairs(self.take_to_mark()?)?;
                self.push(Dict(entries))
            }
            b'a' => {
                let member = self.pop()?;
                self.append(vec![member])
            }
            b'e' | 0x90 => {
                let members = self.take_to_mark()?;
                self.append(members)
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.insert(vec![(key, value)])
            }
            b'u' => {
                let entries = pairs(self.take_to_mark()?)?;
                self.insert(entries)
            }
            b'c' | 0x93 => self.global(code),
            b'R' | 0x81 => {
                let (arguments, class) = (self.pop()?, self.pop()?);
                self.object(class, arguments)
            }
            0x92 => {
                // With keyword arguments, which no object that is read here has.
                let (_, arguments, class) = (self.pop()?, self.pop()?, self.pop()?);
                self.object(class, arguments)
            }
            b'b' => self.build(),
            b'Q' => {
                let id = self.pop()?;
                self.push(PickleValue::Persistent(id))
            }
            b'P' => {
                let line = self.line()?;
                self.push(PickleValue::Text(Cow::Borrowed(line)))?;
                let id = self.pop()?;
                self.push(PickleValue::Persistent(id))
            }
            b'q' | b'r' | b'p' | 0x94 => {
                let at = match code {
                    b'q' => self.fixed(1)?,
                    b'r' => self.fixed(4)?,
                    0x94 => self.memo.len() as u64,
                    _ => self.line()?.parse().map_err(|_| "a number in the pickle is none")?,
                };
                let top = self.top()?;
                self.memo.insert(at, top);
                Ok(())
            }
            b'h' | b'j' | b'g' => {
                let at = match code {
                    b'h' => self.fixed(1)?,
                    b'j' => self.fixed(4)?,
                    _ => self.line()?.parse().map_err(|_| "a number in the pickle is none")?,
                };
                let known = self.memo.get(&at).copied();
                self.stack.push(known.ok_or("the pickle refers to what it does not have")?);
                Ok(())
            }
            b'i' | b'o' => Err("the pickle makes an object of Python 2".into()),
            0x82..=0x84 => Err("the pickle uses a registry of extensions".into()),
            0x97 | 0x98 => Err("the pickle has buffers outside of it".into()),
            _ => Err(format!("no pickle: unknown instruction {code:#04x}").into()),
        }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or("the pickle is cut off")?;
        self.rest = rest;
        Ok(taken)
    }

    fn fixed(&mut self, bytes: usize) -> Result<u64, Malformed> {
        let taken = self.take(bytes)?;
        Ok(taken.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    fn length(&mut self, bytes: usize) -> Result<usize, Malformed> {
        usize::try_from(self.fixed(bytes)?)
            .map_err(|_| "a length in the pickle is too large".into())
    }

    fn line(&mut self) -> Result<&'a str, Malformed> {
        let end = self.rest.iter().position(|&byte| byte == b'\n');
        let line = self.take(end.ok_or("the pickle is cut off")?)?;
        self.take(1)?;
        std::str::from_utf8(line).map_err(|_| "a text in the pickle is not UTF-8".into())
    }

    fn push(&mut self, value: PickleValue<'a>) -> Result<(), Malformed> {
        if self.values.len() >= VALUES_MAX {
            return Err(format!("the pickle has more than {VALUES_MAX} values").into());
        }
        self.stack.push(self.values.len() as ValueId);
        self.values.push(value);
        Ok(())
    }

    /// The height below the topmost `count` values that belong to the latest mark.
    fn floor(&self, count: usize) -> Result<usize, Malformed> {
        let first = self.stack.len().checked_sub(count);
        let mark = self.marks.last().copied().unwrap_or(0);
        let first = first.filter(|&first| first >= mark);
        first.ok_or_else(|| "the pickle takes more than it has".into())
    }

    fn pop(&mut self) -> Result<ValueId, Malformed> {
        self.floor(1)?;
        self.stack.pop().ok_or_else(|| "the pickle takes more than it has".into())
    }

    fn top(&self) -> Result<ValueId, Malformed> {
        self.stack.last().copied().ok_or_else(|| "the pickle takes more than it has".into())
    }

    fn take_to_mark(&mut self) -> Result<Vec<ValueId>, Malformed> {
        let mark = self.marks.pop().ok_or("the pickle has no mark where it needs one")?;
        Ok(self.stack.split_off(mark))
    }

    fn number(&mut self, code: u8) -> Result<(), Malformed> {
        use PickleValue::{Bool, Float, Int};
        let none = || Malformed::from("a number in the pickle is none");
        let value = match code {
            b'J' => Int(i64::from(self.fixed(4)? as u32 as i32)),
            b'K' => Int(self.fixed(1)? as i64),
            b'M' => Int(self.fixed(2)? as i64),
            b'I' => match self.line()? {
                "00" => Bool(false),
                "01" => Bool(true),
                line => Int(line.parse().map_err(|_| none())?),
            },
            b'L' => Int(self.line()?.trim_end_matches('L').parse().map_err(|_| none())?),
            0x8a | 0x8b => {
                let length = self.length(if code == 0x8a { 1 } else { 4 })?;
                let bytes = self.take(length)?;
                match (bytes.len() <= 8, bytes.last()) {
                    (true, Some(last)) => {
                        let sign = if last & 0x80 != 0 { 0xff } else { 0 };
                        let mut wide = [sign; 8];
                        wide[..bytes.len()].copy_from_slice(bytes);
                        Int(i64::from_le_bytes(wide))
                    }
                    (true, None) => Int(0),
                    (false, _) => PickleValue::Long(bytes),
                }
            }
            b'G' => Float(f64::from_bits(self.fixed(8)?.swap_bytes())),
            _ => Float(self.line()?.parse().map_err(|_| none())?),
        };
        self.push(value)
    }

    fn text(&mut self, code: u8) -> Result<(), Malformed> {
        let text = match code {
            b'S' | b'V' => {
                let line = self.line()?;
                let line = line.trim_matches(|quote| code == b'S' && ['\'', '"'].contains(&quote));
                if line.contains('\\') {
                    return Err("the pickle has escapes in a text of protocol 0".into());
                }
                line
            }
            _ => {
                let length = self.length(match code {
                    b'U' | 0x8c => 1,
                    0x8d => 8,
                    _ => 4,
                })?;
                let bytes = self.take(length)?;
                match std::str::from_utf8(bytes) {
                    Ok(text) => text,
                    // Strings of Python 2 are bytes.
                    Err(_) if matches!(code, b'U' | b'T') => {
                        return self.push(PickleValue::Bytes(bytes));
                    }
                    Err(_) => return Err("a text in the pickle is not UTF-8".into()),
                }
            }
        };
        self.push(PickleValue::Text(Cow::Borrowed(text)))
    }

    fn global(&mut self, code: u8) -> Result<(), Malformed> {
        let name = if code == b'c' {
            let module = self.line()?;
            format!("{module}.{}", self.line()?)
        } else {
            let (name, module) = (self.pop()?, self.pop()?);
            let text = |id: ValueId| match &self.values[id as usize] {
                PickleValue::Text(text) => Ok(text),
                _ => Err(Malformed::from("the pickle names a class by a value that is no text")),
            };
            format!("{}.{}", text(module)?, text(name)?)
        };
        // What Python 2 called it.
        let name = name.replace("__builtin__.", "builtins.");
        if !(self.is_allowed)(&name) {
            let name = syncline_files::one_line(&name);
            return Err(format!(
                "the pickle wants `{name}`, which is no tensor, container or number: nothing was \
                 run"
            )
            .into());
        }
        self.push(PickleValue::Global(Cow::Owned(name)))
    }

    fn object(&mut self, class: ValueId, arguments: ValueId) -> Result<(), Malformed> {
        if !matches!(self.values[class as usize], PickleValue::Global(_)) {
            return Err("the pickle calls a value that is no class or function".into());
        }
        let object = PickledObject { class, arguments, ..Default::default() };
        self.push(PickleValue::Object(Box::new(object)))
    }

    fn append(&mut self, members: Vec<ValueId>) -> Result<(), Malformed> {
        let top = self.top()?;
        match &mut self.values[top as usize] {
            PickleValue::List(list) => list.extend(members),
            // Members of objects such as deques, which no tensor has.
            PickleValue::Object(_) => {}
            _ => return Err("the pickle appends to a value that is no list".into()),
        }
        Ok(())
    }

    fn insert(&mut self, entries: Vec<(ValueId, ValueId)>) -> Result<(), Malformed> {
        let top = self.top()?;
        match &mut self.values[top as usize] {
            PickleValue::Dict(dict) => dict.extend(entries),
            PickleValue::Object(object) => object.items.extend(entries),
            _ => return Err("the pickle adds an entry to a value that is no dict".into()),
        }
        Ok(())
    }

    fn build(&mut self) -> Result<(), Malformed> {
        let state = self.pop()?;
        let top = self.top()?;
        match &mut self.values[top as usize] {
            PickleValue::Object(object) => object.state = Some(state),
            _ => return Err("the pickle gives a state to a value that is no object".into()),
        }
        Ok(())
    }
}

fn pairs(members: Vec<ValueId>) -> Result<Vec<(ValueId, ValueId)>, Malformed> {
    let (pairs, []) = members.as_chunks::<2>() else {
        return Err("the pickle has a key without its value".into());
    };
    Ok(pairs.iter().map(|&[key, value]| (key, value)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Pickle<'_>, String> {
        let allowed = |name: &str| name == "collections.OrderedDict";
        let (pickle, rest) = Pickle::read(bytes, &allowed).map_err(|error| error.to_string())?;
        assert!(rest.is_empty());
        Ok(pickle)
    }

    #[test]
    fn containers_and_numbers_are_read() {
        // {'a': [1, -2, 2**40], 'b': (None, True, 0.5)} in protocol 2.
        let bytes = b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01]q\x02(K\x01J\xfe\xff\xff\xff\
            \x8a\x06\x00\x00\x00\x00\x00\x01eX\x01\x00\x00\x00bq\x03N\x88G?\xe0\x00\x00\x00\x00\
            \x00\x00\x87q\x04u.";
        let pickle = read(bytes).unwrap();
        let entries = pickle.entries(pickle.root()).unwrap();
        assert_eq!(entries.len(), 2);
        assert_eq!(pickle.text(entries[0].0), Some("a"));
        let numbers = pickle.members(entries[0].1).unwrap();
        let values: Vec<_> = numbers.iter().map(|&id| pickle.get(id).clone()).collect();
        use PickleValue::{Bool, Float, Int};
        assert_eq!(values, [Int(1), Int(-2), Int(1 << 40)]);
        let others = pickle.members(entries[1].1).unwrap();
        let values: Vec<_> = others.iter().map(|&id| pickle.get(id).clone()).collect();
        assert_eq!(values, [PickleValue::None, Bool(true), Float(0.5)]);
    }

    #[test]
    fn what_wants_to_run_something_is_refused_by_name() {
        let refused = read(b"cos\nsystem\n(S'true'\ntR.").unwrap_err();
        assert!(refused.contains("`os.system`") && refused.contains("nothing was run"));
        let refused = read(b"\x80\x04\x8c\x05posix\x8c\x06system\x93.").unwrap_err();
        assert!(refused.contains("`posix.system`"), "{refused}");
        // A text is called.
        assert!(read(b"X\x01\x00\x00\x00a)R.").unwrap_err().contains("no class"));
    }

    #[test]
    fn damage_is_one_error() {
        for bytes in [
            &b""[..],
            b".",
            b"(",
            b"(.",
            b"K",
            b"h\x00.",
            b"X\xff\xff\xff\xffa.",
            b"\x8d\xff\xff\xff\xff\xff\xff\xff\xffa.",
            b"(K\x01d.",
            b"K\x01K\x02a.",
            b"K\x01(a.",
            b"\x85.",
            b"I1x\n.",
            b"\xff.",
        ] {
            assert!(read(bytes).is_err(), "{bytes:?}");
        }
    }
}
