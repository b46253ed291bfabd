//! Bodies called at once, on the calling thread.

use syncline_tensor::{Access, Region};

use super::host::Entered;
use super::uses::HostUse;
use super::{Buffer, BufferView};
use crate::{Backend, Deadline, DeviceError, KernelArgs, RawArg, Scalar};

/// Calls `body` on the calling thread with arguments that are accessed as `args` say, as soon as
/// their buffers, which must be the host's, have no other user.
///
/// ```
/// use syncline_device::{Buffer, call_now};
/// use syncline_tensor::{Access, Dtype};
///
/// let numbers = Buffer::from(vec![1u32, 2, 3]);
/// let args = [(Access::InOut, numbers.tensor(Dtype::U32, &[3])?)];
/// call_now(&args, &[], |args| args.slice_mut::<u32>(0).map(|all| all.reverse()))??;
/// assert_eq!(numbers.read::<u32>(0, 3)?, [3, 2, 1]);
/// # Ok::<(), syncline_device::DeviceError>(())
/// ```
///
/// # Errors
/// A buffer that this thread itself keeps in use, one of another device, or one that failed work
/// should have written.
pub fn call_now<R>(
    args: &[(Access, BufferView)],
    scalars: &[Scalar],
    body: impl FnOnce(&mut KernelArgs<'_>) -> R,
) -> Result<R, DeviceError> {
    // In one order everywhere: two threads do not wait for each other crosswise.
    let mut buffers: Vec<(&Buffer, bool)> = Vec::with_capacity(args.len());
    for (access, view) in args {
        match buffers.iter_mut().find(|(buffer, _)| buffer.id() == view.buffer().id()) {
            Some((_, writes)) => *writes |= access.writes(),
            None => buffers.push((view.buffer(), access.writes())),
        }
    }
    buffers.sort_by_key(|(buffer, _)| buffer.id());
    let mut entered: Vec<Entered<'_>> = Vec::with_capacity(buffers.len());
    for (buffer, writes) in &buffers {
        if buffer.device().backend != Backend::Cpu {
            let (device, what) = (buffer.device(), "calling a closure on its memory".into());
            return Err(DeviceError::Unsupported { device, what });
        }
        entered.push(buffer.enter(HostUse::new(*writes, true), Deadline::NEVER)?);
        buffer.allocate()?;
    }
    let mut raw = Vec::with_capacity(args.len());
    for (access, view) in args {
        let (buffer, region) = (view.buffer(), Region::of(view.view()));
        match access.reads() {
            true => buffer.hazards().failure(&region).map_or(Ok(()), Err)?,
            false if access.writes() => buffer.hazards().forgive(&region),
            false => {}
        }
        let view = crate::kernel::seen(*access, view.view());
        let Some(base) = buffer.host_pointer().map(|base| base.as_ptr()) else {
            let (device, what) = (buffer.device(), "memory that the host does not reach".into());
            return Err(DeviceError::Unsupported { device, what });
        };
        raw.push(RawArg { base, view, writes: access.writes() });
    }
    // SAFETY: the views lie inside their buffers, whose memory the host reaches: it is a CPU's.
    // `entered` keeps everybody else off the buffers that are written, and writers off the others.
    let mut args = unsafe { KernelArgs::from_raw(&raw, scalars) };
    let result = body(&mut args);
    drop(entered);
    Ok(result)
}
