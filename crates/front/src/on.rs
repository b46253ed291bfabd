//! Tasks for some devices.

use syncline_device::{Element, Kernel, Scalar};

use crate::access::{Arguments, Closed, Open};
use crate::submit::{BodyOutcome, Described, Submit};
use crate::{Result, Tensor};

/// Takes tasks that run on some devices; see [`Submit::on`].
#[derive(Debug)]
pub struct OnDevices<'t, S> {
    to: &'t S,
    devices: &'t [&'t str],
}

impl<'t, S: Submit> OnDevices<'t, S> {
    pub(crate) fn new(to: &'t S, devices: &'t [&'t str]) -> Self {
        Self { to, devices }
    }

    fn described<'d>(
        &'d self,
        mut described: Described<'d, S::Handle>,
    ) -> Described<'d, S::Handle> {
        if described.devices.is_empty() {
            described.devices = self.devices.iter().map(|&device| device.into()).collect();
        }
        described
    }
}

impl<S> Closed for OnDevices<'_, S> {}

impl<S: Submit> Submit for OnDevices<'_, S> {
    type Handle = S::Handle;

    fn empty<T: Element>(&self, shape: impl AsRef<[usize]>) -> Result<Tensor<T>> {
        self.to.empty(shape)
    }

    fn submit_body<A: Arguments, F, O: BodyOutcome + 'static>(
        &self,
        described: Described<'_, Self::Handle>,
        arguments: &A,
        body: F,
    ) -> Result<Self::Handle>
    where
        F: for<'a> Fn(<A::Kinds as Open>::Refs<'a>) -> O + Send + Sync + 'static,
    {
        self.to.submit_body(self.described(described), arguments, body)
    }

    fn submit_kernel<A: Arguments>(
        &self,
        described: Described<'_, Self::Handle>,
        arguments: &A,
        kernel: &Kernel,
        scalars: &[Scalar],
    ) -> Result<Self::Handle> {
        self.to.submit_kernel(self.described(described), arguments, kernel, scalars)
    }
}
