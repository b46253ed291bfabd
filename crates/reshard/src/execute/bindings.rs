//! Bindings: where the tensors of one PE lie.

use std::marker::PhantomData;

use syncline_device::BufferView;

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
    /// A view with gaps, or elements in another order than the shard's.
    #[error(
        "tensor `{name}` of the {side} layout: a shard is bound to elements that lie one after the other, this view is strided"
    )]
    Strided {
        /// The tensor.
        name: String,
        /// `source` or `destination`.
        side: &'static str,
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

/// Where one shard lies.
#[derive(Clone, Debug)]
pub(crate) enum Held {
    /// In memory of the process, from this byte on.
    Host(*mut u8),
    /// In memory of a device.
    View(BufferView),
}

impl Held {
    /// The elements of `view`, which are `expected` bytes one after the other.
    fn view(
        shards: &super::Shards,
        name: &str,
        view: BufferView,
    ) -> Result<(usize, Self), BindError> {
        let at = shards.find(name, view.view().bytes() as usize)?;
        if !view.view().is_contiguous() {
            return Err(BindError::Strided { name: name.to_owned(), side: shards.side() });
        }
        Ok((at, Held::View(view)))
    }
}

/// The tensors that a PE sends from, by position in the source layout.
#[derive(Clone, Debug)]
pub struct Sources<'a> {
    held: Vec<Option<Held>>,
    borrowed: PhantomData<&'a [u8]>,
}

// SAFETY: it stands for shared slices, which may be used from any thread.
unsafe impl Send for Sources<'_> {}
// SAFETY: as above.
unsafe impl Sync for Sources<'_> {}

impl<'a> Sources<'a> {
    /// Nothing bound yet.
    pub fn new(refit: &Refit) -> Self {
        Self { held: vec![None; refit.sources().len()], borrowed: PhantomData }
    }

    /// This PE's shard of tensor `name` lies in `bytes`.
    pub fn bind(
        &mut self,
        refit: &Refit,
        name: &str,
        bytes: &'a [u8],
    ) -> Result<&mut Self, BindError> {
        let at = refit.sources().find(name, bytes.len())?;
        self.held[at] = Some(Held::Host(bytes.as_ptr().cast_mut()));
        Ok(self)
    }

    /// This PE's shard of tensor `name` is in memory of a device: all elements of `view`, in row-major order.
    ///
    /// The refit reads it after all work submitted before, on the lanes of the service ([`CopyService::add_device`]).
    ///
    /// [`CopyService::add_device`]: crate::CopyService::add_device
    pub fn bind_view(
        &mut self,
        refit: &Refit,
        name: &str,
        view: BufferView,
    ) -> Result<&mut Self, BindError> {
        let (at, held) = Held::view(refit.sources(), name, view)?;
        self.held[at] = Some(held);
        Ok(self)
    }

    /// Checks that everything that `refit` reads is bound.
    pub(crate) fn check(&self, refit: &Refit) -> Result<(), BindError> {
        refit.sources().check_bound(&self.held)
    }

    /// The first byte of a tensor that was checked to be bound to memory of the process.
    pub(crate) fn start(&self, tensor: u32) -> *const u8 {
        match self.held(tensor) {
            Some(Held::Host(start)) => *start,
            _ => std::ptr::null(),
        }
    }

    pub(crate) fn held(&self, tensor: u32) -> Option<&Held> {
        self.held[tensor as usize].as_ref()
    }

    /// Whether anything is in memory of a device.
    pub(crate) fn has_views(&self) -> bool {
        self.held.iter().any(|held| matches!(held, Some(Held::View(_))))
    }
}

/// Memory of the caller's that a PE receives into, by position in the destination layout.
///
/// It is written in place: after a failed refit it holds old and new values mixed, and the error says
/// that it failed. Use a [`Destination`](super::Destination) where that must not be.
#[derive(Debug)]
pub struct Targets<'a> {
    held: Vec<Option<Held>>,
    borrowed: PhantomData<&'a mut [u8]>,
}

// SAFETY: it stands for exclusive slices, which may move between threads.
unsafe impl Send for Targets<'_> {}
// SAFETY: shared, it only gives out pointers; the executor writes each byte from one thread.
unsafe impl Sync for Targets<'_> {}

impl<'a> Targets<'a> {
    /// Nothing bound yet.
    pub fn new(refit: &Refit) -> Self {
        Self { held: vec![None; refit.targets().len()], borrowed: PhantomData }
    }

    /// This PE's shard of tensor `name` goes to `bytes`.
    pub fn bind(
        &mut self,
        refit: &Refit,
        name: &str,
        bytes: &'a mut [u8],
    ) -> Result<&mut Self, BindError> {
        let at = refit.targets().find(name, bytes.len())?;
        self.held[at] = Some(Held::Host(bytes.as_mut_ptr()));
        Ok(self)
    }

    /// This PE's shard of tensor `name` goes to memory of a device: all elements of `view`, in row-major order.
    ///
    /// Work on the buffer that is submitted while a refit writes it waits for the parts that were submitted by then; what
    /// shall see all of the refit is submitted after it.
    pub fn bind_view(
        &mut self,
        refit: &Refit,
        name: &str,
        view: BufferView,
    ) -> Result<&mut Self, BindError> {
        let (at, held) = Held::view(refit.targets(), name, view)?;
        self.held[at] = Some(held);
        Ok(self)
    }

    pub(crate) fn check(&self, refit: &Refit) -> Result<(), BindError> {
        refit.targets().check_bound(&self.held)
    }

    pub(crate) fn start(&self, tensor: u32) -> *mut u8 {
        match self.held(tensor) {
            Some(Held::Host(start)) => *start,
            _ => std::ptr::null_mut(),
        }
    }

    pub(crate) fn held(&self, tensor: u32) -> Option<&Held> {
        self.held[tensor as usize].as_ref()
    }

    pub(crate) fn has_views(&self) -> bool {
        self.held.iter().any(|held| matches!(held, Some(Held::View(_))))
    }
}
