//! What every file of the project has in common.
//!
//! - [`Output`] and [`write_file`]: a regular file is replaced whole or not at all; devices
//!   and pipes are written to.
//! - `from_json`, `from_toml` and `read_strictly`, with the feature `json`: members that a form
//!   does not have are errors, as are members that are given twice; members that start with
//!   `x-` are for others and ignored.
//! - [`read_file`]: a file whole, unless it is larger than the memory of the machine or has no end.
//! - [`this_program`]: the command that starts this program again.
//! - [`one_line`] and [`Escaped`]: nothing from a file acts upon a terminal.
//!
//! This crate knows no format.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(unreachable_pub)]

mod escape;
#[cfg(feature = "json")]
mod form;
mod input;
mod output;
mod program;

pub use escape::{Escaped, one_line};
#[cfg(feature = "json")]
pub use form::{
    FormError, Strict, from_json, from_toml, is_foreign, read_strictly, unknown_member,
};
pub use input::{machine_memory_bytes, read_all, read_file};
pub use output::{Output, temporary_name, write_file};
pub use program::{set_this_program, this_program};
