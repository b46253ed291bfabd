//! Parts of devices, which live as long as the process.
//!
//! A thread of PoCL 3.1 that has ended a command reads its device once more after it has told
//! everybody, and keeps whole devices for ever, but not parts: one that was released in that moment
//! is used after it is gone. So parts are made once for each way to divide a device, and never
//! released.

use std::sync::Mutex;

use syncline_sync::lock;

use opencl3::device::{CL_DEVICE_PARTITION_EQUALLY, Device, SubDevice};

use crate::describe::DeviceId;

/// A device that was divided, the units of each part, and the parts.
type Divided = (DeviceId, u32, Vec<DeviceId>);

/// Parts of `units` units each of `device`.
///
/// # Errors
/// That the driver cannot divide it so.
pub(crate) fn divide(device: DeviceId, units: u32) -> Result<Vec<DeviceId>, String> {
    static DIVIDED: Mutex<Vec<Divided>> = Mutex::new(Vec::new());
    let mut divided = lock(&DIVIDED);
    let known = divided.iter().find(|(of, each, _)| (*of, *each) == (device, units));
    if let Some((_, _, parts)) = known {
        return Ok(parts.clone());
    }
    let properties = [CL_DEVICE_PARTITION_EQUALLY, units as isize, 0];
    let made = Device::new(device.0).create_sub_devices(&properties);
    let made = made.map_err(|error| format!("it cannot be divided: {error}"))?;
    let keep = |part: SubDevice| DeviceId(std::mem::ManuallyDrop::new(part).id());
    let parts: Vec<DeviceId> = made.into_iter().map(keep).collect();
    divided.push((device, units, parts.clone()));
    Ok(parts)
}
