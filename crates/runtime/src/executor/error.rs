//! What an executor refuses, and what its devices report.

use syncline_device::{DeviceError, DeviceSpec};
use syncline_plan::MachineError;
use syncline_tensor::{BufferId, ViewError};

/// An executor was asked for what it cannot do, or a device failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum ExecutorError {
    #[error("{device} is not a device of this executor, which has: {}", list(.available))]
    NoSuchDevice { device: DeviceSpec, available: Vec<DeviceSpec> },
    #[error("{device} is a device of this executor already")]
    DuplicateDevice { device: DeviceSpec },
    #[error("lane {lane} of {device}, which has {lanes}")]
    NoSuchLane { device: DeviceSpec, lane: usize, lanes: usize },
    #[error(
        "buffer {buffer} lives on {device}, buffer {other_buffer} on {other}: transfer one of them first"
    )]
    SeveralDevices {
        buffer: BufferId,
        device: DeviceSpec,
        other_buffer: BufferId,
        other: DeviceSpec,
    },
    #[error(
        "no way was found for bytes from {source_device} to {target}: add a CPU device that copies from and to both, \
         so that they can go through its memory"
    )]
    NoRoute { source_device: DeviceSpec, target: DeviceSpec },
    #[error(transparent)]
    Machine(#[from] MachineError),
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    View(#[from] ViewError),
}

fn list(devices: &[DeviceSpec]) -> String {
    match devices {
        [] => "none".into(),
        _ => devices.iter().map(DeviceSpec::to_string).collect::<Vec<_>>().join(", "),
    }
}
