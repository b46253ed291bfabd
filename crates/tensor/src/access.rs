//! How a task touches an argument, and the argument itself.

use std::fmt;
use std::str::FromStr;

use syncline_spelling::meant;

use crate::{BufferId, View};

/// What a task does with the bytes of one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Reads.
    Input,
    /// Writes a fresh buffer, which the runtime allocates.
    Output,
    /// Reads and writes.
    InOut,
    /// Writes a buffer that existed before; ordered like any write.
    OutputExisting,
    /// Keeps the buffer alive, and orders nothing.
    NoDep,
    /// Reads and writes, in any order with other commutative accesses of the same bytes, but never
    /// at the same time.
    Commutative,
    /// Contributes to a reduction: grouped with other `Reduce` accesses like
    /// [`Access::Commutative`].
    Reduce,
}

impl Access {
    /// Every access, in the order of the documentation.
    pub const ALL: [Access; 7] = [
        Access::Input,
        Access::Output,
        Access::InOut,
        Access::OutputExisting,
        Access::NoDep,
        Access::Commutative,
        Access::Reduce,
    ];

    /// Whether the task sees what was there before.
    #[inline]
    pub const fn reads(self) -> bool {
        matches!(self, Access::Input | Access::InOut | Access::Commutative | Access::Reduce)
    }

    /// Whether the task changes the content.
    #[inline]
    pub const fn writes(self) -> bool {
        !matches!(self, Access::Input | Access::NoDep)
    }

    /// Whether accesses of this kind stay unordered among themselves.
    #[inline]
    pub const fn is_grouped(self) -> bool {
        matches!(self, Access::Commutative | Access::Reduce)
    }

    /// The name used in files.
    pub const fn name(self) -> &'static str {
        match self {
            Access::Input => "input",
            Access::Output => "output",
            Access::InOut => "inout",
            Access::OutputExisting => "output_existing",
            Access::NoDep => "no_dep",
            Access::Commutative => "commutative",
            Access::Reduce => "reduce",
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no access.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown access `{name}`{meant}: expected one of input, output, inout, output_existing, no_dep, commutative, reduce",
    name = .0, meant = meant(.0, Access::ALL.map(Access::name))
)]
pub struct UnknownAccess(pub String);

impl FromStr for Access {
    type Err = UnknownAccess;

    fn from_str(name: &str) -> Result<Self, UnknownAccess> {
        Access::ALL
            .into_iter()
            .find(|access| access.name() == name)
            .ok_or_else(|| UnknownAccess(name.to_owned()))
    }
}

/// One tagged argument of a task: which bytes of which buffer, and what happens to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arg {
    /// What the task does with the bytes.
    pub access: Access,
    /// The buffer that the bytes are in.
    pub buffer: BufferId,
    /// Which of its bytes.
    pub view: View,
}

impl Arg {
    /// An argument; the constructors named after accesses are shorter.
    #[inline]
    pub const fn new(access: Access, buffer: BufferId, view: View) -> Self {
        Self { access, buffer, view }
    }

    /// `buffer` is read through `view`.
    pub const fn input(buffer: BufferId, view: View) -> Self {
        Self::new(Access::Input, buffer, view)
    }

    /// The fresh `buffer` is written through `view`.
    pub const fn output(buffer: BufferId, view: View) -> Self {
        Self::new(Access::Output, buffer, view)
    }

    /// `buffer` is read and written through `view`.
    pub const fn inout(buffer: BufferId, view: View) -> Self {
        Self::new(Access::InOut, buffer, view)
    }

    /// `buffer`, which existed before, is written through `view`.
    pub const fn output_existing(buffer: BufferId, view: View) -> Self {
        Self::new(Access::OutputExisting, buffer, view)
    }
}
