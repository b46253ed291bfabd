//! The library: kernels by name.

use std::collections::BTreeMap;

use syncline_device::{Kernel, KernelBuilder, Scalar};
use syncline_tensor::Arg;

use syncline_spelling::nearest;

use crate::{KernelError, Signature, table};

/// A kernel and what it takes.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What it takes.
    pub signature: Signature,
    /// Its implementations.
    pub kernel: Kernel,
}

impl Entry {
    /// A kernel that refuses what does not fit its signature, wherever it is launched.
    pub fn new(signature: Signature, kernel: KernelBuilder) -> Self {
        let own = signature.clone();
        let check = move |args: &[Arg], scalars: &[Scalar]| {
            own.check(args, scalars).map_err(|error| {
                let (text, name) = (error.to_string(), format!("kernel `{}`", own.name));
                // Who reports it names the kernel, too.
                text.strip_prefix(&name).unwrap_or(&text).trim_start_matches([':', ',', ' ']).into()
            })
        };
        Self { signature, kernel: kernel.check(check).build() }
    }
}

/// Kernels by name: the built-in ones, and a user's own.
#[derive(Clone, Debug, Default)]
pub struct Library {
    entries: BTreeMap<String, Entry>,
}

impl Library {
    /// No kernel at all.
    pub fn new() -> Self {
        Self::default()
    }

    /// The built-in kernels.
    pub fn builtin() -> Self {
        let entries = table::builtin();
        Self { entries: entries.into_iter().map(|e| (e.signature.name.clone(), e)).collect() }
    }

    /// Adds a kernel under a name that is not taken.
    pub fn add(&mut self, entry: Entry) -> Result<(), KernelError> {
        let name = entry.signature.name.clone();
        if self.entries.contains_key(&name) {
            return Err(KernelError::Duplicate { name });
        }
        self.entries.insert(name, entry);
        Ok(())
    }

    /// The kernel of that name; an error names the nearest one.
    pub fn get(&self, name: &str) -> Result<&Entry, KernelError> {
        self.entries.get(name).ok_or_else(|| KernelError::Unknown {
            name: name.to_owned(),
            nearest: nearest(name, self.entries.keys().map(String::as_str)).map(str::to_owned),
        })
    }

    /// All kernels in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }
}
