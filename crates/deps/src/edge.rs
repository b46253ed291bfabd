//! Edges: which task waits for which, what the edge is for, and why it is there.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

use syncline_tensor::TaskId;

/// What an edge does: a set of [`EdgeFlags::WAIT`] and [`EdgeFlags::RETAIN`].
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct EdgeFlags(u8);

impl EdgeFlags {
    /// The successor starts after the predecessor has finished.
    pub const WAIT: Self = Self(1);
    /// The predecessor's buffer stays alive until the successor has finished.
    pub const RETAIN: Self = Self(2);

    const NAMES: [(Self, &'static str); 2] = [(Self::WAIT, "wait"), (Self::RETAIN, "retain")];
}

/// Why an edge is there: a set of the constants below.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct EdgeKinds(u8);

impl EdgeKinds {
    /// The successor uses a buffer that the predecessor brought into being.
    pub const CREATOR: Self = Self(1);
    /// The successor reads what the predecessor wrote.
    pub const RAW: Self = Self(2);
    /// The successor overwrites what the predecessor read.
    pub const WAR: Self = Self(4);
    /// The successor overwrites what the predecessor wrote.
    pub const WAW: Self = Self(8);
    /// One of the two belongs to a commutative or reduction group that the other does not.
    pub const COMMUTATIVE: Self = Self(16);
    /// The caller asked for it.
    pub const EXPLICIT: Self = Self(32);
    /// The predecessor stands for a manual scope that was left in between.
    pub const BARRIER: Self = Self(64);

    const NAMES: [(Self, &'static str); 7] = [
        (Self::CREATOR, "creator"),
        (Self::RAW, "raw"),
        (Self::WAR, "war"),
        (Self::WAW, "waw"),
        (Self::COMMUTATIVE, "commutative"),
        (Self::EXPLICIT, "explicit"),
        (Self::BARRIER, "barrier"),
    ];
}

macro_rules! set_of_bits {
    ($name:ident) => {
        impl $name {
            /// The set with nothing in it.
            pub const EMPTY: Self = Self(0);

            /// Returns `true` if every member of `other` is in this set.
            #[inline]
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Returns the members of both sets.
            #[inline]
            pub const fn and(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// Returns `true` if nothing is in this set.
            #[inline]
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }

            #[inline]
            pub(crate) const fn from_bits(bits: u8) -> Self {
                Self(bits)
            }

            /// Returns the members as bits, for files.
            #[inline]
            pub const fn bits(self) -> u8 {
                self.0
            }

            /// Returns the names of the members, as files spell them.
            pub fn names(self) -> impl Iterator<Item = &'static str> {
                Self::NAMES
                    .into_iter()
                    .filter(move |(one, _)| self.contains(*one))
                    .map(|(_, name)| name)
            }

            /// Returns the member that files spell `name`.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::NAMES.into_iter().find(|(_, known)| *known == name).map(|(one, _)| one)
            }
        }

        impl BitOr for $name {
            type Output = Self;
            #[inline]
            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }

        impl BitOrAssign for $name {
            #[inline]
            fn bitor_assign(&mut self, other: Self) {
                self.0 |= other.0;
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                for (position, name) in self.names().enumerate() {
                    f.write_str(if position == 0 { "" } else { "+" })?;
                    f.write_str(name)?;
                }
                Ok(())
            }
        }
    };
}
set_of_bits!(EdgeFlags);
set_of_bits!(EdgeKinds);

/// `succ`, the task being submitted, depends on `pred`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The task that comes first.
    pub pred: TaskId,
    /// What the edge does.
    pub flags: EdgeFlags,
    /// Why it is there.
    pub kinds: EdgeKinds,
    /// Position of the predecessor's argument that conflicts, where there is one.
    pub pred_arg: Option<u16>,
    /// Position of the submitted task's argument that conflicts, where there is one.
    pub succ_arg: Option<u16>,
}
