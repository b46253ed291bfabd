//! Sizes, as for every command.

pub(super) use crate::units::{bytes as show, parse_size as parse};
