//! The numbers by which a plan's parts know each other.

use std::fmt;

macro_rules! index {
    ($(#[$doc:meta])* $name:ident($width:ty), $letter:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub $width);

        impl $name {
            /// As an index of a slice.
            #[inline]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($letter, "{}"), self.0)
            }
        }
    };
}

index!(
    /// A task's place in submission order.
    TaskIndex(u32),
    "t"
);
index!(
    /// An op's place in its plan, lane after lane.
    OpIndex(u32),
    "op"
);
index!(
    /// A lane of a plan.
    LaneIndex(u16),
    "lane "
);
index!(
    /// A copy of a plan.
    CopyIndex(u32),
    "c"
);
index!(
    /// A memory of a plan.
    MemoryIndex(u32),
    "m"
);
