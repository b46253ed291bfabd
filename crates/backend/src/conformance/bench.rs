//! What a case works with: lanes of its own where the device allows, kernels, deadlines.

use std::fmt;
use std::sync::Arc;
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use syncline_tensor::ViewError;

use super::kernels;
use syncline_device::{
    Batch, Buffer, Command, Deadline, Device, DeviceError, Element, Kernel, Lane, LaneKind, Point,
};

/// Why a case did not pass.
#[derive(Debug)]
pub(super) enum Fault {
    Skip(String),
    Fail(String),
}

impl From<DeviceError> for Fault {
    fn from(error: DeviceError) -> Self {
        Fault::Fail(error.to_string())
    }
}

impl From<ViewError> for Fault {
    fn from(error: ViewError) -> Self {
        Fault::Fail(error.to_string())
    }
}

/// Fails the case, with the text, unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err($crate::conformance::bench::Fault::Fail(format!($($text)+)));
        }
    };
}
pub(super) use ensure;

/// How many lanes a case can count on where lanes can be opened.
const LANES: usize = 3;
/// Far beyond what any case takes.
const CASE_TIME: Duration = Duration::from_secs(30);

pub(super) struct Bench<'a> {
    pub(super) device: &'a Arc<dyn Device>,
    pub(super) thorough: bool,
    lanes: Vec<Arc<dyn Lane>>,
    kernels: &'a [Kernel],
}

impl<'a> Bench<'a> {
    pub(super) fn new(
        device: &'a Arc<dyn Device>,
        kernels: &'a [Kernel],
        thorough: bool,
    ) -> Result<Self, Fault> {
        let open = |number| device.open_lane(LaneKind::Compute, &format!("case {number}"));
        let lanes = match device.info().capabilities.open_lanes {
            true => (0..LANES).map(open).collect::<Result<_, _>>()?,
            false => device.lanes().to_vec(),
        };
        Ok(Self { device, thorough, lanes, kernels })
    }

    /// Leaves lanes that are shared with later cases usable.
    pub(super) fn finish(&self) -> Result<(), Fault> {
        for lane in &self.lanes {
            // A case may end with a lane failed on purpose; what matters is that it has come to
            // rest.
            let _ = lane.synchronize(self.in_time());
            lane.recover();
        }
        Ok(())
    }

    pub(super) fn in_time(&self) -> Deadline {
        Deadline::after(CASE_TIME)
    }

    /// As long as a case may take, and a little longer: waits in it end before.
    pub(super) fn case_time(&self) -> Duration {
        2 * CASE_TIME
    }

    /// Soon enough to be waited for in vain.
    pub(super) fn soon(&self) -> Deadline {
        Deadline::after(Duration::from_millis(10))
    }

    /// `quick` of something, or `thorough` of it.
    pub(super) fn count(&self, quick: u64, thorough: u64) -> u64 {
        if self.thorough { thorough } else { quick }
    }

    /// The first lane.
    pub(super) fn lane(&self) -> &dyn Lane {
        &*self.lanes[0]
    }

    /// `N` lanes that are independent of each other.
    pub(super) fn lanes<const N: usize>(&self) -> Result<[&dyn Lane; N], Fault> {
        match self.lanes.len() >= N {
            true => Ok(std::array::from_fn(|at| &*self.lanes[at])),
            false => Err(Fault::Skip(format!("needs {N} lanes, there are {}", self.lanes.len()))),
        }
    }

    pub(super) fn need(&self, capability: bool, what: &str) -> Result<(), Fault> {
        match capability {
            true => Ok(()),
            false => Err(Fault::Skip(format!("the device has no {what}"))),
        }
    }

    pub(super) fn need_wait_before_signal(&self) -> Result<(), Fault> {
        self.need(self.device.info().capabilities.wait_before_signal, "wait-before-signal")
    }

    pub(super) fn need_host_functions(&self) -> Result<(), Fault> {
        self.need(self.device.info().capabilities.host_functions, "host functions")
    }

    pub(super) fn need_maps(&self) -> Result<(), Fault> {
        self.need(self.device.info().capabilities.host_visible, "memory that the host reaches")
    }

    /// The kernel called `name`, which must run on this device.
    pub(super) fn kernel(&self, name: &str) -> Result<Kernel, Fault> {
        let given = self.kernels.iter().find(|kernel| **kernel.name() == *name).cloned();
        let kernel = given.unwrap_or_else(|| kernels::by_name(name));
        let backend = self.device.spec().backend;
        match kernel.supports(backend) {
            true => Ok(kernel),
            false => Err(Fault::Skip(format!("kernel `{name}` was not given for {backend}"))),
        }
    }

    /// A buffer that holds `elements`.
    pub(super) fn buffer<T: Element>(&self, elements: &[T]) -> Result<Buffer, Fault> {
        let buffer = self.device.buffer(size_of_val(elements) as u64);
        buffer.write(0, elements)?;
        Ok(buffer)
    }

    /// Submits to `lane` and waits.
    pub(super) fn run(&self, command: Command) -> Result<(), Fault> {
        Ok(self.lane().submit(Batch::from(command))?.wait(self.in_time())?)
    }

    /// Waits, as long as a case may take.
    pub(super) fn wait(&self, point: &Point) -> Result<(), Fault> {
        Ok(point.wait(self.in_time())?)
    }
}

/// What a thread of a case returned.
pub(super) fn joined<T, E: Into<Fault>>(
    handle: ScopedJoinHandle<'_, Result<T, E>>,
) -> Result<T, Fault> {
    match handle.join() {
        Ok(result) => result.map_err(Into::into),
        Err(_) => Err(Fault::Fail("a thread of the case panicked".into())),
    }
}

/// Fails unless `result` is an error that `is_right` accepts.
pub(super) fn refused<T: fmt::Debug>(
    result: Result<T, DeviceError>,
    is_right: impl Fn(&DeviceError) -> bool,
) -> Result<(), Fault> {
    match result {
        Err(error) if is_right(&error) => Ok(()),
        other => Err(Fault::Fail(format!("expected another error than {other:?}"))),
    }
}

/// Random numbers that are the same in every run.
pub(super) struct Numbers(u64);

impl Numbers {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number below `bound`.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (word ^ (word >> 29)) % bound
    }
}
