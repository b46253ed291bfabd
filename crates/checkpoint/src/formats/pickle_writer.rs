//! Writing pickles of protocol 2: the few shapes that torch expects.

use std::collections::HashMap;

/// A pickle that is being written.
#[derive(Debug)]
pub(super) struct PickleWriter {
    bytes: Vec<u8>,
    /// Classes and functions that were written, by their numbers in the memo.
    globals: HashMap<String, u32>,
}

impl PickleWriter {
    pub(super) fn new() -> Self {
        Self { bytes: vec![0x80, 2], globals: HashMap::new() }
    }

    /// The bytes of the finished pickle.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.bytes.push(b'.');
        self.bytes
    }

    pub(super) fn none(&mut self) {
        self.bytes.push(b'N');
    }

    pub(super) fn flag(&mut self, value: bool) {
        self.bytes.push(if value { 0x88 } else { 0x89 });
    }

    pub(super) fn float(&mut self, value: f64) {
        self.bytes.push(b'G');
        self.bytes.extend(value.to_be_bytes());
    }

    pub(super) fn number(&mut self, value: u64) {
        match i32::try_from(value) {
            Ok(small) => {
                self.bytes.push(b'J');
                self.bytes.extend(small.to_le_bytes());
            }
            // With a byte for the sign.
            Err(_) => {
                self.bytes.extend([0x8a, 9]);
                self.bytes.extend(value.to_le_bytes());
                self.bytes.push(0);
            }
        }
    }

    pub(super) fn text(&mut self, text: &str) {
        self.bytes.push(b'X');
        // Names come from headers of at most 100 MB.
        self.bytes.extend((text.len() as u32).to_le_bytes());
        self.bytes.extend(text.as_bytes());
    }

    /// A class or function.
    pub(super) fn global(&mut self, module: &str, name: &str) {
        let text = format!("{module}\n{name}\n");
        let next = self.globals.len() as u32;
        if let Some(known) = self.globals.get(&text) {
            self.bytes.push(b'j');
            self.bytes.extend(known.to_le_bytes());
            return;
        }
        self.bytes.push(b'c');
        self.bytes.extend(text.as_bytes());
        self.bytes.push(b'r');
        self.bytes.extend(next.to_le_bytes());
        self.globals.insert(text, next);
    }

    pub(super) fn tuple(&mut self, members: impl FnOnce(&mut Self)) {
        self.bytes.push(b'(');
        members(self);
        self.bytes.push(b't');
    }

    pub(super) fn numbers(&mut self, values: &[u64]) {
        self.tuple(|tuple| values.iter().for_each(|&value| tuple.number(value)));
    }

    pub(super) fn list(&mut self, members: impl FnOnce(&mut Self)) {
        self.bytes.extend(b"](");
        members(self);
        self.bytes.push(b'e');
    }

    /// A dict; `entries` writes keys and values in turn.
    pub(super) fn dict(&mut self, entries: impl FnOnce(&mut Self)) {
        self.bytes.extend(b"}(");
        entries(self);
        self.bytes.push(b'u');
    }

    /// What a function makes of its arguments.
    pub(super) fn call(&mut self, module: &str, name: &str, arguments: impl FnOnce(&mut Self)) {
        self.global(module, name);
        self.tuple(arguments);
        self.bytes.push(b'R');
    }

    /// An ordered dict; `entries` writes keys and values in turn.
    pub(super) fn ordered(&mut self, entries: impl FnOnce(&mut Self)) {
        self.call("collections", "OrderedDict", |_| {});
        self.bytes.push(b'(');
        entries(self);
        self.bytes.push(b'u');
    }

    /// An object with a state.
    pub(super) fn object(&mut self, module: &str, name: &str, state: impl FnOnce(&mut Self)) {
        self.global(module, name);
        self.bytes.extend([b')', 0x81]);
        state(self);
        self.bytes.push(b'b');
    }

    /// Something that is stored outside of the pickle.
    pub(super) fn persistent(&mut self, id: impl FnOnce(&mut Self)) {
        self.tuple(id);
        self.bytes.push(b'Q');
    }
}
