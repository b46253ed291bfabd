//! One engine for moving bytes between strided memories and between element formats.
//!
//! A [`CopyPlan`] reduces a copy to contiguous runs and the fewest loops around them, and [`cut`]
//! divides work into parts of a bounded size. The `execute` feature adds the code that moves bytes:
//! `CopyPlan::copy` between slices, `CopyPlan::run` between addresses. [`convert`] changes element
//! formats on the way.
//!
//! This crate knows views and element types only. It must never know of buffers, devices, threads
//! or transports. Without `execute`, it forbids unsafe code.

#![cfg_attr(not(feature = "execute"), forbid(unsafe_code))]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod convert;
pub mod cut;
#[cfg(feature = "execute")]
mod execute;
mod plan;

#[cfg(feature = "execute")]
pub use execute::{ElementChange, FAN_MAX, Part, Store, fence};
pub use plan::{CopyError, CopyPlan, Loop, Strides};
