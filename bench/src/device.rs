//! `device`: what dispatches and copies cost on devices, beside the same by hand.
//!
//! A driver that is missing leaves out its rows, and says so.

mod ash_peer;
mod chain;
mod copies;
mod gemm;
mod mixed;
mod opencl;
mod vulkan;
#[cfg(feature = "wgpu")]
mod wgpu_peer;

use crate::Effort;
use crate::row::Row;

/// Runs the benchmark.
pub(crate) fn run(effort: Effort) -> Vec<Row> {
    let mut rows = vulkan::run(effort);
    rows.extend(opencl::run(effort));
    rows.extend(mixed::run(effort));
    rows.extend(gemm::run(effort));
    rows
}
