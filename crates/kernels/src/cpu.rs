//! Bodies on the CPU.
//!
//! All of them reach their arguments through [`operand`], the only file here with `unsafe`:
//! elements are loaded into a block of numbers of the type that is computed in, and stored back,
//! whatever their dtype and strides.

pub(crate) mod elementwise;
pub(crate) mod matrix;
pub(crate) mod number;
pub(crate) mod operand;
pub(crate) mod rows;
pub(crate) mod triangular;
