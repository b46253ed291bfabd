//! The CPU backend: workers that run lanes, plans and streams, ordinary memory, Rust closures as
//! kernels.

mod device;
mod lane;
mod memory;
mod queue;
mod ready;
mod run;
mod workers;

pub use device::{CpuDevice, CpuOptions};
pub use memory::HostMemory;
pub use workers::{Served, Source, Turn, Workers, WorkersHandle};

use std::sync::Arc;

use crate::{Allocator, DeviceSpec};

/// Memory of the host, of which at most `cap_bytes` are in use at the same time. Every lane of
/// every device can copy from and to it.
pub fn host_memory(cap_bytes: u64) -> Arc<dyn Allocator> {
    Arc::new(memory::CpuAllocator::new(DeviceSpec::CPU, cap_bytes))
}
