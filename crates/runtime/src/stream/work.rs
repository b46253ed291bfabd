//! Work: what a slot keeps of a task until it has run.
//!
//! Everything that only submission needs stays with the description that the caller filled, which
//! is used again at once and so never leaves the submitter's cache.

use std::borrow::Cow;
use std::cell::{Cell, OnceCell};
use std::sync::Arc;

use syncline_device::{LateArgs, RawArg};
use syncline_tensor::{Access, Arg, PackedArgs, TaskId, View};

use super::body::Body;
use super::scope::ScopeState;
use super::task::TaskSpec;

/// Buffers' addresses that are kept in place.
const BASES: usize = 4;
/// Words of arguments that are kept in place: three matrices' worth.
const WORDS: usize = 21;

/// The task in a slot.
#[repr(C)]
pub(crate) struct Work {
    pub(crate) body: Body,
    pub(crate) id: TaskId,
    pub(crate) name: Cow<'static, str>,
    /// Looked at only where [`Traits::SCOPED`] says that there is one.
    pub(crate) scope: Option<Arc<ScopeState>>,
    pub(crate) priority: i32,
    pub(crate) blocks: u32,
    /// The first byte of each argument's buffer.
    bases: [*mut u8; BASES],
    /// All of them, where they are more.
    #[allow(clippy::box_collection, reason = "one word for what hardly any task has")]
    more_bases: Option<Box<Vec<*mut u8>>>,
    args: PackedArgs<WORDS>,
}

/// What is special about a task; nothing is about most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traits(u32);

impl Traits {
    /// It stands for a host access: it is not run, but granted.
    pub(crate) const HOST: Self = Self(1);
    /// Some argument is `Commutative` or `Reduce`.
    pub(crate) const EXCLUSIVE: Self = Self(2);
    /// It has a priority or several blocks, and goes through the shared queue.
    pub(crate) const QUEUED: Self = Self(4);
    /// It has several blocks.
    pub(crate) const BLOCKS: Self = Self(8);
    /// Its blocks run at the same time.
    pub(crate) const GANG: Self = Self(16);
    /// It belongs to a scope.
    pub(crate) const SCOPED: Self = Self(32);

    #[inline]
    pub(crate) fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline]
    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    /// Whether it has any of those in `other`.
    #[inline]
    pub(crate) fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// This and other traits.
    #[inline]
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[inline]
    fn of(spec: &TaskSpec, scoped: bool) -> Self {
        let when = |condition: bool, own: Self| if condition { own.0 } else { 0 };
        Self(
            when(spec.host, Self::HOST)
                | when(spec.exclusive, Self::EXCLUSIVE)
                | when(spec.priority != 0 || spec.blocks != 1, Self::QUEUED)
                | when(spec.blocks > 1, Self::BLOCKS)
                | when(spec.gang, Self::GANG)
                | when(scoped, Self::SCOPED),
        )
    }
}

impl Work {
    pub(crate) fn new() -> Self {
        Self {
            name: Cow::Borrowed(""),
            body: Body::Empty,
            id: TaskId::new(0, 0),
            scope: None,
            priority: 0,
            blocks: 1,
            bases: [std::ptr::null_mut(); BASES],
            more_bases: None,
            args: PackedArgs::new(),
        }
    }

    /// Takes over what has to be kept of a description; what is special about it.
    #[inline]
    pub(crate) fn fill(
        &mut self,
        id: TaskId,
        spec: &mut TaskSpec,
        scope: Option<&Arc<ScopeState>>,
    ) -> Traits {
        debug_assert!(self.scope.is_none() && matches!(self.body, Body::Empty));
        self.id = id;
        if let Some(scope) = scope {
            self.scope = Some(scope.clone());
        }
        // What is exchanged goes the way of the description: it is used again, without a look at
        // what it holds.
        std::mem::swap(&mut self.name, &mut spec.name);
        std::mem::swap(&mut self.body, &mut spec.body);
        (self.priority, self.blocks) = (spec.priority, spec.blocks);
        self.args.clear();
        for arg in spec.args.iter() {
            self.args.push(arg);
        }
        match self.bases.get_mut(..spec.places.len()) {
            Some(bases) => {
                bases.iter_mut().zip(&spec.places).for_each(|(base, place)| *base = place.base);
            }
            None => self.spill_bases(spec),
        }
        Traits::of(spec, scope.is_some())
    }

    #[cold]
    fn spill_bases(&mut self, spec: &TaskSpec) {
        let more = self.more_bases.get_or_insert_default();
        more.clear();
        more.extend(spec.places.iter().map(|place| place.base));
    }

    fn bases(&self) -> &[*mut u8] {
        match (self.bases.get(..self.args.len()), &self.more_bases) {
            (Some(bases), _) => bases,
            (None, Some(more)) => more,
            (None, None) => unreachable!("filled with as many as there are arguments"),
        }
    }

    /// The arguments as they were given.
    pub(crate) fn args(&self) -> impl Iterator<Item = Arg> + '_ {
        self.args.iter()
    }

    /// The arguments, and where their buffers are.
    pub(crate) fn places(&self) -> impl Iterator<Item = (Arg, *mut u8)> + '_ {
        self.args.iter().zip(self.bases().iter().copied())
    }
}

thread_local! {
    /// Room for the arguments of the task that this thread runs.
    static ROOM: Cell<Vec<RawArg>> = const { Cell::new(Vec::new()) };
}

/// A task's arguments as addresses, put together when they are first asked for.
pub(crate) struct Addresses<'a> {
    work: &'a Work,
    raw: OnceCell<Vec<RawArg>>,
}

impl<'a> Addresses<'a> {
    #[inline]
    pub(crate) fn of(work: &'a Work) -> Self {
        Self { work, raw: OnceCell::new() }
    }
}

impl LateArgs for Addresses<'_> {
    fn count(&self) -> usize {
        self.work.args.len()
    }

    fn get(&self) -> &[RawArg] {
        self.raw.get_or_init(|| {
            let mut raw = ROOM.take();
            raw.clear();
            raw.extend(self.work.places().map(|(arg, base)| RawArg {
                base,
                view: if arg.access == Access::NoDep { nothing_of(&arg.view) } else { arg.view },
                writes: arg.access.writes(),
            }));
            raw
        })
    }
}

impl Drop for Addresses<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(raw) = self.raw.take() {
            ROOM.set(raw);
        }
    }
}

/// An argument without order has no element that could be taken: others may write them at any time.
#[cold]
fn nothing_of(view: &View) -> View {
    let (dtype, offset) = (view.dtype(), view.offset());
    View::strided(dtype, offset, &[0], &[dtype.bytes() as i64]).expect("an empty view is valid")
}
