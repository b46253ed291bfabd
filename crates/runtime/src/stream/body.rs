//! Bodies: what a task does, kept without an allocation where it is small.

use std::mem::{MaybeUninit, align_of, size_of};

use syncline_device::{Kernel, KernelArgs, KernelOutcome, Scalar};

use super::context::TaskContext;

/// Words of a closure that lie in the task itself; larger ones are boxed.
const INLINE_WORDS: usize = 6;

/// What a task does.
pub(crate) enum Body {
    /// Nothing: the task is there for its order.
    Empty,
    /// A closure that runs once.
    Once(InlineFn),
    /// A closure that runs once for each block, at the same time.
    Blocks(Box<BlockFn>),
    /// A kernel, once for each block.
    Kernel(Kernel, Vec<Scalar>),
    /// Several closures that run at the same time, each with its own arguments.
    Parts(Vec<Part>),
    /// A closure that may submit tasks of its own.
    Parent(Box<ParentFn>),
}

impl Body {
    /// Puts a body where there is mostly none: that is looked at here, without a call.
    #[inline]
    pub(crate) fn set(&mut self, body: Body) {
        match std::mem::replace(self, body) {
            Body::Empty => {}
            before => drop(before),
        }
    }
}

// One cache line of a slot.
#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<Body>() <= 64);

/// A body that several threads run at the same time.
pub(crate) type BlockFn = dyn Fn(&mut KernelArgs<'_>) -> Result<(), String> + Send + Sync;
/// A body that may submit tasks of its own.
pub(crate) type ParentFn = dyn FnOnce(&mut TaskContext<'_>) -> Result<(), String> + Send;

/// One of several bodies of a task: it sees the arguments `first..first + count`.
pub(crate) struct Part {
    pub(crate) first: usize,
    pub(crate) count: usize,
    /// Taken by the thread that runs it.
    pub(crate) body: syncline_sync::shim::Mutex<Option<InlineFn>>,
}

/// A closure of any type that runs at most once.
pub(crate) struct InlineFn {
    storage: [MaybeUninit<usize>; INLINE_WORDS],
    table: &'static Table,
}

struct Table {
    /// Runs the closure and leaves nothing behind.
    call: unsafe fn(*mut u8, &mut KernelArgs<'_>) -> Result<(), String>,
    /// Drops the closure without running it.
    drop: unsafe fn(*mut u8),
}

// SAFETY: `InlineFn::new` takes only closures that are `Send`.
unsafe impl Send for InlineFn {}

impl InlineFn {
    #[inline]
    pub(crate) fn new<O: KernelOutcome>(
        body: impl FnOnce(&mut KernelArgs<'_>) -> O + Send + 'static,
    ) -> Self {
        fn place<O, F>(body: F) -> InlineFn
        where
            O: KernelOutcome,
            F: FnOnce(&mut KernelArgs<'_>) -> O + Send + 'static,
        {
            let mut storage = [MaybeUninit::uninit(); INLINE_WORDS];
            // SAFETY: the caller checked that `F` fits in `storage` and needs no larger alignment
            // than a word.
            unsafe { storage.as_mut_ptr().cast::<F>().write(body) };
            InlineFn { storage, table: &Of::<O, F>::TABLE }
        }
        // The condition is known when this is compiled for a type: one of the two arms remains.
        if fits(size_of_val(&body), align_of_val(&body)) {
            place(body)
        } else {
            let boxed = Box::new(body);
            place(move |args: &mut KernelArgs<'_>| boxed(args))
        }
    }

    #[inline]
    pub(crate) fn call(self, args: &mut KernelArgs<'_>) -> Result<(), String> {
        let mut this = std::mem::ManuallyDrop::new(self);
        // SAFETY: `storage` holds the closure that `table` was made for, and is never used again:
        // `this` is not dropped.
        unsafe { (this.table.call)(this.storage.as_mut_ptr().cast(), args) }
    }
}

const fn fits(bytes: usize, align: usize) -> bool {
    bytes <= INLINE_WORDS * size_of::<usize>() && align <= align_of::<usize>()
}

impl Drop for InlineFn {
    fn drop(&mut self) {
        // SAFETY: `storage` holds the closure that `table` was made for; `call` forgets what it
        // consumed.
        unsafe { (self.table.drop)(self.storage.as_mut_ptr().cast()) }
    }
}

/// Carries the types that a table is made for.
struct Of<O, F>(std::marker::PhantomData<(O, F)>);

impl<O: KernelOutcome, F: FnOnce(&mut KernelArgs<'_>) -> O + Send + 'static> Of<O, F> {
    const TABLE: Table = Table { call: Self::call, drop: Self::drop };

    unsafe fn call(place: *mut u8, args: &mut KernelArgs<'_>) -> Result<(), String> {
        // SAFETY: the caller has an `F` at `place`, and gives it up.
        let body = unsafe { place.cast::<F>().read() };
        body(args).into_result()
    }

    unsafe fn drop(place: *mut u8) {
        // SAFETY: the caller has an `F` at `place`, and gives it up.
        unsafe { place.cast::<F>().drop_in_place() }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn args() -> KernelArgs<'static> {
        // SAFETY: there are no arguments.
        unsafe { KernelArgs::from_raw(&[], &[]) }
    }

    #[test]
    fn closures_of_any_size_run_once_and_are_dropped_once() {
        let token = Arc::new(());
        let small = token.clone();
        let large = (token.clone(), [7u64; 64]);
        let bodies = [
            InlineFn::new(move |_| drop(small)),
            InlineFn::new(move |_| {
                let (_token, numbers) = large;
                (numbers.iter().sum::<u64>() == 448).then_some(()).ok_or("sum")
            }),
        ];
        assert_eq!(Arc::strong_count(&token), 3);
        for body in bodies {
            assert_eq!(body.call(&mut args()), Ok(()));
        }
        assert_eq!(Arc::strong_count(&token), 1);
        let unused = (token.clone(), token.clone());
        drop(InlineFn::new(move |_| drop(unused)));
        assert_eq!(Arc::strong_count(&token), 1);
    }

    #[test]
    fn errors_come_back_as_text() {
        let body = InlineFn::new(|_| Err::<(), _>("no such luck"));
        assert_eq!(body.call(&mut args()), Err("no such luck".to_owned()));
    }
}
