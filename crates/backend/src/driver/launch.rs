//! What every driver needs to know of a dispatch before it can launch it, and where arguments lie.

use syncline_tensor::View;

use syncline_device::{Backend, BufferView, DeviceError, DeviceSpec, Dispatch, SourceRef};

/// A dispatch with its source chosen and its sizes checked.
#[derive(Debug)]
pub struct Launch {
    /// The source for the arguments that it has.
    pub source: SourceRef,
    /// How the arguments lie in their buffers.
    pub views: Vec<View>,
    /// Groups along each axis; none is zero.
    pub groups: [u32; 3],
    /// Work items of a group along each axis.
    pub items: [u32; 3],
}

impl Launch {
    /// What `dispatch` comes to on `backend`, on a device whose groups have at most `items_max`
    /// work items; `None` where there is nothing to launch.
    ///
    /// # Errors
    /// That the kernel has no source for it, or groups that are too large.
    pub fn of(
        dispatch: &Dispatch,
        backend: Backend,
        items_max: usize,
    ) -> Result<Option<Self>, DeviceError> {
        if dispatch.writes_nothing() {
            return Ok(None);
        }
        let (kernel, views) = (&dispatch.kernel, dispatch.views());
        let source = dispatch.source(backend)?;
        let groups = source.groups(&views, dispatch.grid)?;
        if groups.contains(&0) {
            return Ok(None);
        }
        let items = source.group().map(|items| items.max(1));
        let count: u64 = items.iter().map(|&items| u64::from(items)).product();
        if count > items_max as u64 {
            return Err(DeviceError::KernelRefuses {
                kernel: kernel.name().clone(),
                backend,
                message: format!("groups of {count} items: the device has at most {items_max}")
                    .into(),
            });
        }
        Ok(Some(Self { source, views, groups, items }))
    }

    /// The byte of each argument's buffer from which on it is bound: the first, unless the elements
    /// in front of the view are more than a kernel can count; then a multiple of `alignment`.
    pub fn bound_starts(&self, alignment: u64) -> Vec<u64> {
        let start = |view: &View| {
            let (first, end) = view.span().unwrap_or((0, 0));
            match end / view.dtype().bytes() <= u64::from(u32::MAX) {
                true => 0,
                false => first / alignment * alignment,
            }
        };
        self.views.iter().map(start).collect()
    }

    /// The parameter block of `dispatch`, whose arguments are bound from `bound_starts` on.
    ///
    /// # Errors
    /// Scalars that the kernel does not take, or a view that it cannot be told of.
    pub fn parameters(
        &self,
        dispatch: &Dispatch,
        bound_starts: &[u64],
    ) -> Result<Vec<u8>, DeviceError> {
        let mut words = Vec::new();
        self.source.parameters(&self.views, bound_starts, &dispatch.scalars, &mut words)?;
        Ok(words.iter().flat_map(|word| word.to_le_bytes()).collect())
    }
}

/// The memory of `view`'s buffer, if it is of the kind `M`, which lanes of `lane_device` reach.
///
/// # Errors
/// That it is not.
pub fn memory_of<M: 'static>(
    view: &BufferView,
    lane_device: DeviceSpec,
) -> Result<&M, DeviceError> {
    let buffer = view.buffer();
    let memory = buffer.allocate()?.as_any().downcast_ref::<M>();
    memory.ok_or_else(|| DeviceError::WrongDevice {
        buffer: buffer.id(),
        buffer_device: buffer.device(),
        lane_device,
    })
}

/// Where the host reaches `view`'s buffer, if it lives on a CPU device.
///
/// # Errors
/// That its memory cannot be had.
pub fn host_start(view: &BufferView) -> Result<Option<*mut u8>, DeviceError> {
    if view.buffer().device().backend != Backend::Cpu {
        return Ok(None);
    }
    let start = view.buffer().allocate()?.host_pointer();
    Ok(Some(start.expect("memory of a CPU device, which the host reaches").as_ptr()))
}

/// What a lane of `device` says to a copy that does not concern its device.
pub fn refuse_between_hosts(device: DeviceSpec) -> DeviceError {
    DeviceError::Unsupported {
        device,
        what: "a copy between two buffers of the host (a lane of a CPU device does that)".into(),
    }
}
