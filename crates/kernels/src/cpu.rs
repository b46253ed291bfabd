//! Bodies on the CPU.
//!
//! All of them reach their arguments through [`operand`], the only file here with `unsafe`:
//! elements are loaded into a block of numbers of the type that is computed in, and stored back,
//! whatever their dtype and strides.

pub mod elementwise;
pub mod matrix;
pub mod number;
pub mod operand;
pub mod rows;
pub mod triangular;
