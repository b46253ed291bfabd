//! Executors by the names of their devices.

use std::sync::Arc;

use syncline_device::DeviceSpec;
use syncline_device::cpu::{CpuDevice, CpuOptions};
use syncline_front::{Error, ErrorKind, Result};
use syncline_runtime::UnifiedExecutor;

/// Opens executors by the names of their devices.
pub trait OpenDevices: Sized {
    /// An executor with `devices`, separated by commas: `cpu`, `vulkan:0`, `opencl:1`. A name
    /// without a number is the first of its kind; `cpu*2` is a CPU with two lanes.
    ///
    /// ```
    /// use syncline::prelude::*;
    ///
    /// let executor = UnifiedExecutor::open("cpu")?;
    /// let mut x = vec![1.0f32; 8];
    /// executor.scope(|s| {
    ///     let x = s.borrow_mut(&mut x, [8])?;
    ///     s.task("double", x.update()).run(|mut x| x.apply(|x| 2.0 * x))?;
    ///     Ok(())
    /// })?;
    /// assert_eq!(x, [2.0; 8]);
    /// # Ok::<(), syncline::Error>(())
    /// ```
    ///
    /// # Errors
    /// A name that is none, a device that is missing, or one that is named twice.
    fn open(devices: &str) -> Result<Self>;
}

impl OpenDevices for UnifiedExecutor {
    fn open(devices: &str) -> Result<Self> {
        let (registry, mut executor) = (crate::registry(), UnifiedExecutor::new());
        let unknown = |error: &dyn std::fmt::Display| {
            Error::new(ErrorKind::Device, format!("devices `{devices}`: {error}"))
        };
        for name in devices.split(',').map(str::trim) {
            let (name, lanes) = match name.split_once('*') {
                None => (name, None),
                Some((name, lanes)) => {
                    let lanes = lanes.parse::<usize>().map_err(|error| unknown(&error))?;
                    (name, Some(lanes))
                }
            };
            let spec: DeviceSpec = name.parse().map_err(|error| unknown(&error))?;
            let device = match lanes {
                Some(lanes) if spec.backend == syncline_device::Backend::Cpu => {
                    CpuDevice::open(CpuOptions::new(spec.index).compute_lanes(lanes))?
                }
                Some(_) => return Err(unknown(&"only a CPU takes a number of lanes")),
                None => registry.open(spec).map_err(|error| unknown(&error))?,
            };
            executor.add_device(Arc::clone(&device))?;
        }
        Ok(executor)
    }
}
