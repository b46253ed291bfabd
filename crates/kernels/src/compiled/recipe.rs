//! Recipes: what the sources of a kernel have in common in all languages.

use syncline_device::Grid;

/// How a kernel is made for a language.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recipe {
    /// What its elements are computed in.
    pub numbers: Numbers,
    /// What its scalars are, in order.
    pub scalars: &'static [ScalarUse],
    /// What goes around its own text.
    pub frame: Frame,
    /// Work items in a group.
    pub group: [u32; 3],
    /// How many groups a launch has.
    pub grid: Grid,
}

/// What elements are computed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbers {
    /// All arguments have one dtype, and are computed in its kind.
    Alike,
    /// All arguments have one dtype, and are moved as bits.
    Bits,
    /// As [`Numbers::Alike`] where the language computes in the kind, else as bits: for a value
    /// that is stored only.
    Value,
    /// Floats of any size are computed in single precision.
    Single,
    /// All in single precision, or all in double.
    SingleOrDouble,
    /// Each in the kind of its own dtype.
    Each,
    /// Argument 1 counts rows, the others are floats.
    Lookup,
}

/// What a scalar is for the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScalarUse {
    /// One of the numbers that it computes in.
    Number,
    /// A truth value.
    Flag,
}

/// What goes around the text of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// One work item for each element, number `i`, of the last argument; this statement, the same
    /// in all languages.
    Element(&'static str),
    /// One work item for each element; statements of each language.
    ElementText,
    /// One group for each row of argument 0.
    Row,
    /// One group for each tile of a product.
    Product,
    /// The text is whole.
    Whole,
}

impl Recipe {
    /// The recipe of the built-in kernel `name`.
    ///
    /// # Panics
    /// For a name that is not in the table of kernels, which a test goes through.
    pub(crate) fn of(name: &str) -> Self {
        use Numbers::{Alike, Bits, Each, Lookup, Single, SingleOrDouble, Value};
        use ScalarUse::{Flag, Number};
        let element = |numbers, scalars, target, statement| Self {
            numbers,
            scalars,
            frame: Frame::Element(statement),
            group: [64, 1, 1],
            grid: Grid::Elements { arg: target },
        };
        let row = |numbers, scalars| Self {
            numbers,
            scalars,
            frame: Frame::Row,
            group: [64, 1, 1],
            grid: Grid::Rows { arg: 0 },
        };
        let product = |numbers, scalars, target| Self {
            numbers,
            scalars,
            frame: Frame::Product,
            group: [8, 8, 1],
            grid: Grid::Tiles { arg: target, rows: 32, columns: 32 },
        };
        let whole = |numbers, scalars, group, grid| Self {
            numbers,
            scalars,
            frame: Frame::Whole,
            group,
            grid,
        };
        match name {
            "fill" => element(Value, &[Number], 0, "store_0(place_0(i), scalar_0());"),
            "copy" => element(Bits, &[], 1, "store_1(place_1(i), load_0(place_0(i)));"),
            "cast" => element(Each, &[], 1, "store_1(place_1(i), convert(load_0(place_0(i))));"),
            "add" => element(
                Alike,
                &[],
                2,
                "store_2(place_2(i), add(load_0(place_0(i)), load_1(place_1(i))));",
            ),
            "sub" => element(
                Alike,
                &[],
                2,
                "store_2(place_2(i), sub(load_0(place_0(i)), load_1(place_1(i))));",
            ),
            "mul" => element(
                Alike,
                &[],
                2,
                "store_2(place_2(i), mul(load_0(place_0(i)), load_1(place_1(i))));",
            ),
            "scale" => element(
                Alike,
                &[Number],
                1,
                "store_1(place_1(i), mul(scalar_0(), load_0(place_0(i))));",
            ),
            "axpy" => element(
                Alike,
                &[Number],
                1,
                "store_1(place_1(i), add(mul(scalar_0(), load_0(place_0(i))), load_1(place_1(i))));",
            ),
            "gelu" => element(
                Single,
                &[Flag],
                1,
                "store_1(place_1(i), gelu(load_0(place_0(i)), scalar_0()));",
            ),
            "silu" => element(Single, &[], 1, "store_1(place_1(i), silu(load_0(place_0(i))));"),
            "stencil" => {
                Self { frame: Frame::ElementText, ..element(Single, &[Number, Number], 1, "") }
            }
            "embedding" => Self { frame: Frame::ElementText, ..element(Lookup, &[], 2, "") },
            "reduce_sum" | "reduce_max" => row(Alike, &[]),
            "softmax" => row(Single, &[Flag]),
            "layernorm" | "rmsnorm" => row(Single, &[Number]),
            "gemm" => product(SingleOrDouble, &[Number, Number, Flag, Flag], 2),
            "syrk" => product(Single, &[Number, Number], 1),
            "trsm" => whole(
                Single,
                &[Number, Flag, Flag],
                [64, 1, 1],
                Grid::Tiles { arg: 1, rows: 64, columns: 64 },
            ),
            "potrf" => whole(Single, &[], [128, 1, 1], Grid::One),
            "transpose" => {
                whole(Bits, &[], [16, 8, 1], Grid::Tiles { arg: 1, rows: 16, columns: 16 })
            }
            other => unreachable!("no recipe for `{other}`"),
        }
    }

    /// Whether elements are reached by their number, so that the layout makes a difference to the
    /// source.
    pub(crate) fn counts_elements(&self) -> bool {
        matches!(self.frame, Frame::Element(_) | Frame::ElementText)
    }
}
