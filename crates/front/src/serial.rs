//! The serial runner: each task runs when it is submitted, on the calling thread.

use syncline_device::{BufferView, Element, Kernel, Scalar, call_now};
use syncline_tensor::Access;

use crate::access::{Arguments, Closed, Open};
use crate::live::refuse_devices;
use crate::submit::{BodyOutcome, Described, Submit, call};
use crate::{Error, ErrorKind, Result, Tensor};

/// Runs each task at once, on the calling thread: what all other ways must agree with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Serial;

/// A task that has run.
#[derive(Clone, Copy, Debug)]
pub struct Done;

fn views<A: Arguments>(arguments: &A) -> Result<Vec<(Access, BufferView)>> {
    arguments.fold(Ok(Vec::new()), &mut |views: Result<Vec<_>>, access, buffer, view| {
        let mut views = views?;
        views.push((access, buffer.view(*view)?));
        Ok(views)
    })
}

fn failed<H>(described: &Described<'_, H>, message: &str) -> Error {
    Error::new(ErrorKind::Task, format!("task `{}` failed: {message}", described.name))
}

impl Closed for Serial {}

impl Submit for Serial {
    type Handle = Done;

    fn empty<T: Element>(&self, shape: impl AsRef<[usize]>) -> Result<Tensor<T>> {
        Tensor::zeros(shape)
    }

    fn submit_body<A: Arguments, F, O: BodyOutcome + 'static>(
        &self,
        described: Described<'_, Done>,
        arguments: &A,
        body: F,
    ) -> Result<Done>
    where
        F: for<'a> Fn(<A::Kinds as Open>::Refs<'a>) -> O + Send + Sync + 'static,
    {
        refuse_devices(&described)?;
        let outcome = call_now(&views(arguments)?, &[], |args| call::<A::Kinds, O>(args, body))?;
        outcome.map(|()| Done).map_err(|message| failed(&described, &message))
    }

    fn submit_kernel<A: Arguments>(
        &self,
        described: Described<'_, Done>,
        arguments: &A,
        kernel: &Kernel,
        scalars: &[Scalar],
    ) -> Result<Done> {
        refuse_devices(&described)?;
        call_now(&views(arguments)?, scalars, |args| kernel.call(args))??;
        Ok(Done)
    }
}
