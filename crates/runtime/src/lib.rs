//! The runtime: puts kernels, transfers and whole plans on the lanes of devices.
//!
//! [`UnifiedExecutor`] holds a context for each device and knows how data and order get from one to
//! another. [`replay`] runs execution plans. [`stream`] runs tasks while others are still being
//! submitted.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod executor;
pub mod replay;
pub mod stream;

pub use executor::{
    DeviceContext, ExecutorError, ExecutorOptions, Path, Topology, UnifiedExecutor,
};
