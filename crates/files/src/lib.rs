//! What every file of the project has in common.
//!
//! - [`Output`] and [`write_file`]: a regular file is replaced whole or not at all, and what is no regular
//!   file is written to.
//!
//! This crate knows no format.
#![forbid(unsafe_code)]

mod output;

pub use output::{Output, temporary_name, write_file};
