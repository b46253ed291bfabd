//! Bindings: where the tensors of one PE lie.

use std::marker::PhantomData;

use super::Refit;

/// A tensor that is missing or does not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// A name that the layout does not have.
    #[error("the {side} layout has no tensor `{name}`")]
    Unknown {
        /// The name.
        name: String,
        /// `source` or `destination`.
        side: &'static str,
    },
    /// Memory of another size than the shard's.
    #[error(
        "tensor `{name}`: {got} bytes given, this PE's shard in the {side} layout has {expected}"
    )]
    Size {
        /// The tensor.
        name: String,
        /// `source` or `destination`.
        side: &'static str,
        /// The size of the shard.
        expected: usize,
        /// The size of the memory.
        got: usize,
    },
    /// A tensor without memory.
    #[error(
        "tensor `{name}` of the {side} layout is not bound: this PE holds {expected} bytes of it"
    )]
    Unbound {
        /// The tensor.
        name: String,
        /// `source` or `destination`.
        side: &'static str,
        /// The size of the shard.
        expected: usize,
    },
}

/// The tensors that a PE sends from, by position in the source layout.
#[derive(Clone, Debug)]
pub struct Sources<'a> {
    starts: Vec<Option<*const u8>>,
    borrowed: PhantomData<&'a [u8]>,
}

// SAFETY: it stands for shared slices, which may be used from any thread.
unsafe impl Send for Sources<'_> {}
// SAFETY: as above.
unsafe impl Sync for Sources<'_> {}

impl<'a> Sources<'a> {
    /// Nothing bound yet.
    pub fn new(refit: &Refit) -> Self {
        Self { starts: vec![None; refit.sources().len()], borrowed: PhantomData }
    }

    /// This PE's shard of tensor `name` lies in `bytes`.
    pub fn bind(
        &mut self,
        refit: &Refit,
        name: &str,
        bytes: &'a [u8],
    ) -> Result<&mut Self, BindError> {
        let at = refit.sources().find(name, bytes.len())?;
        self.starts[at] = Some(bytes.as_ptr());
        Ok(self)
    }

    /// Checks that everything that `refit` reads is bound.
    pub(crate) fn check(&self, refit: &Refit) -> Result<(), BindError> {
        refit.sources().check_bound(&self.starts)
    }

    /// The first byte of a tensor that was checked to be bound.
    pub(crate) fn start(&self, tensor: u32) -> *const u8 {
        self.starts[tensor as usize].unwrap_or(std::ptr::null())
    }
}

/// Memory of the caller's that a PE receives into, by position in the destination layout.
///
/// It is written in place: after a failed refit it holds old and new values mixed, and the error says
/// that it failed. Use a [`Destination`](super::Destination) where that must not be.
#[derive(Debug)]
pub struct Targets<'a> {
    starts: Vec<Option<*const u8>>,
    borrowed: PhantomData<&'a mut [u8]>,
}

// SAFETY: it stands for exclusive slices, which may move between threads.
unsafe impl Send for Targets<'_> {}
// SAFETY: shared, it only gives out pointers; the executor writes each byte from one thread.
unsafe impl Sync for Targets<'_> {}

impl<'a> Targets<'a> {
    /// Nothing bound yet.
    pub fn new(refit: &Refit) -> Self {
        Self { starts: vec![None; refit.targets().len()], borrowed: PhantomData }
    }

    /// This PE's shard of tensor `name` goes to `bytes`.
    pub fn bind(
        &mut self,
        refit: &Refit,
        name: &str,
        bytes: &'a mut [u8],
    ) -> Result<&mut Self, BindError> {
        let at = refit.targets().find(name, bytes.len())?;
        self.starts[at] = Some(bytes.as_mut_ptr());
        Ok(self)
    }

    pub(crate) fn check(&self, refit: &Refit) -> Result<(), BindError> {
        refit.targets().check_bound(&self.starts)
    }

    pub(crate) fn start(&self, tensor: u32) -> *mut u8 {
        self.starts[tensor as usize].unwrap_or(std::ptr::null()).cast_mut()
    }
}
