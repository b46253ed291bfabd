//! Bindings: where the tensors of one PE lie.

use std::collections::HashMap;
use std::marker::PhantomData;

use syncline_device::BufferView;

use super::apart::{self, Span};
use super::{Refit, Shards};

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
    /// Two tensors in the same memory of a device, of which one is written.
    #[error(
        "tensor `{name}` of the destination layout is bound to memory that tensor `{other}` of the {side} layout has too: a refit writes the one while it needs the other"
    )]
    Aliased {
        /// The tensor that is written.
        name: String,
        /// The other tensor.
        other: String,
        /// Where the other one is: `source` or `destination`.
        side: &'static str,
    },
    /// Bindings of one refit used in another.
    #[error(
        "these bindings are for another {side} layout, or for another PE: make them anew from the refit that they are used in"
    )]
    OtherLayout {
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

/// Where the tensors of one side lie, by position in its layout.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    /// Which shards these are.
    identity: u64,
    /// The first byte of what is in memory of the process, null otherwise: eight bytes for each of
    /// many thousand tensors.
    starts: Vec<*mut u8>,
    /// What is in memory of devices; views are large, and most often there are none.
    views: HashMap<u32, BufferView>,
}

impl Bound {
    fn new(shards: &Shards) -> Self {
        let starts = vec![std::ptr::null_mut(); shards.len()];
        Self { identity: shards.identity(), starts, views: HashMap::new() }
    }

    fn bind(
        &mut self,
        shards: &Shards,
        name: &str,
        start: *mut u8,
        bytes: usize,
    ) -> Result<(), BindError> {
        self.check_identity(shards)?;
        let at = shards.find(name, bytes)?;
        self.set(shards, name, at, start)
    }

    /// Binds memory of which only the first element's address is known.
    fn bind_memory(
        &mut self,
        shards: &Shards,
        name: &str,
        first: *mut u8,
    ) -> Result<(), BindError> {
        self.check_identity(shards)?;
        let unknown = || BindError::Unknown { name: name.to_owned(), side: shards.side() };
        let at = shards.position(name).ok_or_else(unknown)?;
        // Offsets count from the lowest address.
        self.starts[at] = first.wrapping_sub(shards.origin(at).unwrap_or(0) as usize);
        self.views.remove(&(at as u32));
        Ok(())
    }

    fn set(
        &mut self,
        shards: &Shards,
        name: &str,
        at: usize,
        start: *mut u8,
    ) -> Result<(), BindError> {
        if shards.origin(at).is_some() {
            return Err(BindError::Strided { name: name.to_owned(), side: shards.side() });
        }
        self.starts[at] = start;
        self.views.remove(&(at as u32));
        Ok(())
    }

    fn bind_view(
        &mut self,
        shards: &Shards,
        name: &str,
        view: BufferView,
    ) -> Result<(), BindError> {
        self.check_identity(shards)?;
        let at = shards.find(name, view.view().bytes() as usize)?;
        if !view.view().is_contiguous() || shards.origin(at).is_some() {
            return Err(BindError::Strided { name: name.to_owned(), side: shards.side() });
        }
        self.starts[at] = std::ptr::null_mut();
        self.views.insert(at as u32, view);
        Ok(())
    }

    /// Checks that these are bindings of `shards`, and that everything that a refit touches of them
    /// is bound.
    pub fn check(&self, shards: &Shards) -> Result<(), BindError> {
        self.check_identity(shards)?;
        let is_bound =
            |at: usize| !self.starts[at].is_null() || self.views.contains_key(&(at as u32));
        shards.check_bound(is_bound)
    }

    /// What is in memory of devices.
    fn spans<'s>(&'s self, shards: &'s Shards, is_target: bool) -> impl Iterator<Item = Span<'s>> {
        let used = self.views.iter().filter(|(at, _)| shards.is_used(**at as usize));
        used.filter_map(move |(&at, view)| Span::new(view, is_target, shards.name(at as usize)))
    }

    /// What was bound has the sizes of the shards that it was bound as, and nothing else is known
    /// of it.
    fn check_identity(&self, shards: &Shards) -> Result<(), BindError> {
        match self.identity == shards.identity() {
            true => Ok(()),
            false => Err(BindError::OtherLayout { side: shards.side() }),
        }
    }

    /// The first byte of a tensor that was checked to be bound to memory of the process.
    pub fn start(&self, tensor: u32) -> *mut u8 {
        self.starts[tensor as usize]
    }

    pub fn held(&self, tensor: u32) -> Option<Held> {
        if let Some(view) = self.views.get(&tensor) {
            return Some(Held::View(view.clone()));
        }
        let start = self.start(tensor);
        (!start.is_null()).then_some(Held::Host(start))
    }

    /// Whether anything is in memory of a device.
    pub fn has_views(&self) -> bool {
        !self.views.is_empty()
    }
}

/// The tensors that a PE sends from, by position in the source layout.
#[derive(Clone, Debug)]
pub struct Sources<'a> {
    pub(crate) bound: Bound,
    borrowed: PhantomData<&'a [u8]>,
}

// SAFETY: it stands for shared slices, which may be used from any thread.
unsafe impl Send for Sources<'_> {}
// SAFETY: as above.
unsafe impl Sync for Sources<'_> {}

impl<'a> Sources<'a> {
    /// Nothing bound yet.
    pub fn new(refit: &Refit) -> Self {
        Self { bound: Bound::new(refit.sources()), borrowed: PhantomData }
    }

    /// Checks that all that `refit` reads on this PE is bound. A refit checks it too, but fails the
    /// whole group.
    pub fn check(&self, refit: &Refit) -> Result<(), BindError> {
        self.bound.check(refit.sources())
    }

    /// This PE's shard of tensor `name` lies in `bytes`.
    pub fn bind(
        &mut self,
        refit: &Refit,
        name: &str,
        bytes: &'a [u8],
    ) -> Result<&mut Self, BindError> {
        // Sources are only read.
        self.bound.bind(refit.sources(), name, bytes.as_ptr().cast_mut(), bytes.len())?;
        Ok(self)
    }

    /// This PE's shard of tensor `name` lies at `first`, its first element, with the strides that
    /// `refit` was prepared for.
    ///
    /// # Safety
    /// The elements of the shard are readable there for `'a`, and nothing writes them meanwhile.
    pub unsafe fn bind_memory(
        &mut self,
        refit: &Refit,
        name: &str,
        first: *const u8,
    ) -> Result<&mut Self, BindError> {
        self.bound.bind_memory(refit.sources(), name, first.cast_mut())?;
        Ok(self)
    }

    /// This PE's shard of tensor `name` is in memory of a device: all elements of `view`, in
    /// row-major order.
    ///
    /// The refit reads it after all work submitted before, on the lanes of the service
    /// ([`CopyService::add_device`]).
    ///
    /// [`CopyService::add_device`]: crate::CopyService::add_device
    pub fn bind_view(
        &mut self,
        refit: &Refit,
        name: &str,
        view: BufferView,
    ) -> Result<&mut Self, BindError> {
        self.bound.bind_view(refit.sources(), name, view)?;
        Ok(self)
    }
}

/// Memory of the caller's that a PE receives into, by position in the destination layout.
///
/// It is written in place: after a failed refit it holds old and new values mixed, and the error
/// says that it failed. Use a [`Destination`](super::Destination) where that must not be.
#[derive(Debug)]
pub struct Targets<'a> {
    pub(crate) bound: Bound,
    borrowed: PhantomData<&'a mut [u8]>,
}

// SAFETY: it stands for exclusive slices, which may move between threads.
unsafe impl Send for Targets<'_> {}
// SAFETY: shared, it only gives out pointers; the executor writes each byte from one thread.
unsafe impl Sync for Targets<'_> {}

impl<'a> Targets<'a> {
    /// Nothing bound yet.
    pub fn new(refit: &Refit) -> Self {
        Self { bound: Bound::new(refit.targets()), borrowed: PhantomData }
    }

    /// This PE's shard of tensor `name` goes to `bytes`.
    pub fn bind(
        &mut self,
        refit: &Refit,
        name: &str,
        bytes: &'a mut [u8],
    ) -> Result<&mut Self, BindError> {
        self.bound.bind(refit.targets(), name, bytes.as_mut_ptr(), bytes.len())?;
        Ok(self)
    }

    /// This PE's shard of tensor `name` goes to `first`, the place of its first element, with the
    /// strides that `refit` was prepared for. Bytes between the elements are left alone.
    ///
    /// # Safety
    /// The elements of the shard are writable there for `'a`, and nothing else touches them
    /// meanwhile.
    pub unsafe fn bind_memory(
        &mut self,
        refit: &Refit,
        name: &str,
        first: *mut u8,
    ) -> Result<&mut Self, BindError> {
        self.bound.bind_memory(refit.targets(), name, first)?;
        Ok(self)
    }

    /// This PE's shard of tensor `name` goes to memory of a device: all elements of `view`, in
    /// row-major order.
    ///
    /// Work on the buffer that is submitted while a refit writes it waits for the parts that were
    /// submitted by then; what shall see all of the refit is submitted after it.
    pub fn bind_view(
        &mut self,
        refit: &Refit,
        name: &str,
        view: BufferView,
    ) -> Result<&mut Self, BindError> {
        self.bound.bind_view(refit.targets(), name, view)?;
        Ok(self)
    }

    /// Checks that all that `refit` needs is bound, and that nothing is written that is also read,
    /// or written twice. A refit checks it too, but fails the whole group.
    pub fn check(&self, refit: &Refit, sources: &Sources<'_>) -> Result<(), BindError> {
        self.bound.check(refit.targets())?;
        let written = self.bound.spans(refit.targets(), true);
        apart::check(written.chain(sources.bound.spans(refit.sources(), false)).collect())
    }
}
