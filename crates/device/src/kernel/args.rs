//! What a kernel on the CPU sees: its arguments as slices or strided views, and its scalars.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Range;

use syncline_tensor::{Access, Arg, BufferId, Region, View};

use super::Scalar;
use crate::{DeviceError, Element};

/// One argument as the address of its buffer's first byte, and a view into it.
#[derive(Clone, Copy, Debug)]
pub struct RawArg {
    /// The first byte of the buffer.
    pub base: *mut u8,
    /// Which bytes of it are the argument.
    pub view: View,
    /// Whether the kernel may write.
    pub writes: bool,
}

// SAFETY: a `RawArg` is an address and numbers; whoever turns it into references
// (`KernelArgs::from_raw`) promises that the bytes may be touched there.
unsafe impl Send for RawArg {}
// SAFETY: as above.
unsafe impl Sync for RawArg {}

/// The arguments of one run of a kernel on the CPU.
///
/// A slice is *taken*: the same bytes can be taken for reading any number of times, or for writing
/// once. What would break that rule (also through another argument that overlaps) is an error,
/// never undefined behaviour.
#[derive(Debug)]
pub struct KernelArgs<'a> {
    args: Source<'a>,
    scalars: &'a [Scalar],
    grid: [u32; 3],
    block: u32,
    blocks: u32,
    taken: Taken,
}

/// Arguments that are put together when they are first looked at, which many bodies never do.
pub trait LateArgs {
    /// How many there are.
    fn count(&self) -> usize;
    /// All of them.
    fn get(&self) -> &[RawArg];
}

/// Where the arguments come from.
#[derive(Clone, Copy)]
enum Source<'a> {
    Raw(&'a [RawArg]),
    Late(&'a dyn LateArgs),
}

impl Source<'_> {
    fn count(self) -> usize {
        match self {
            Source::Raw(args) => args.len(),
            Source::Late(args) => args.count(),
        }
    }
}

impl std::fmt::Debug for Source<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} arguments", self.count())
    }
}

/// Which arguments are out, one bit each.
#[derive(Debug, Default)]
struct Taken {
    shared: Cell<u64>,
    unique: Cell<u64>,
    strided: Cell<u64>,
    strided_mut: Cell<u64>,
}

impl<'a> KernelArgs<'a> {
    /// Arguments from addresses.
    ///
    /// # Safety
    /// Until `'a` ends, every byte of every view (at its base) must be allocated, initialised and
    /// not written by anybody else; bytes of an argument with `writes` must not be read by anybody
    /// else either.
    #[inline]
    pub unsafe fn from_raw(args: &'a [RawArg], scalars: &'a [Scalar]) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::of(Source::Raw(args), scalars) }
    }

    /// As [`KernelArgs::from_raw`], for arguments that are put together when they are needed.
    ///
    /// # Safety
    /// As for [`KernelArgs::from_raw`], of what `args` returns; and it must always return the same.
    #[inline]
    pub unsafe fn from_late(args: &'a dyn LateArgs, scalars: &'a [Scalar]) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::of(Source::Late(args), scalars) }
    }

    /// # Safety
    /// As for [`KernelArgs::from_raw`].
    #[inline]
    unsafe fn of(args: Source<'a>, scalars: &'a [Scalar]) -> Self {
        Self { args, scalars, grid: [1; 3], block: 0, blocks: 1, taken: Taken::default() }
    }

    fn all(&self) -> &'a [RawArg] {
        match self.args {
            Source::Raw(args) => args,
            Source::Late(args) => args.get(),
        }
    }

    /// The same arguments for a launch over `grid` groups.
    #[inline]
    #[must_use]
    pub fn with_grid(mut self, grid: [u32; 3]) -> Self {
        self.grid = grid;
        self
    }

    /// The same arguments for block `block` of `blocks` that run at the same time: what is written
    /// is then taken in parts, with [`KernelArgs::block_slice_mut`].
    ///
    /// # Safety
    /// All arguments of the same call that exist at the same time have the same `blocks`, and each
    /// another `block`.
    #[inline]
    #[must_use]
    pub unsafe fn with_block(mut self, block: u32, blocks: u32) -> Self {
        assert!(block < blocks, "block {block} of {blocks}");
        (self.block, self.blocks) = (block, blocks);
        self
    }

    /// How many arguments there are.
    pub fn len(&self) -> usize {
        self.args.count()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.args.count() == 0
    }

    /// The groups of the launch along each dimension.
    pub fn grid(&self) -> [u32; 3] {
        self.grid
    }

    /// Which block this is, and of how many.
    pub fn block(&self) -> (u32, u32) {
        (self.block, self.blocks)
    }

    /// The even share of `count` items that falls to this block.
    pub fn block_range(&self, count: usize) -> Range<usize> {
        let at = |block: u32| (count as u128 * block as u128 / self.blocks as u128) as usize;
        at(self.block)..at(self.block + 1)
    }

    /// All scalars.
    pub fn scalars(&self) -> &'a [Scalar] {
        self.scalars
    }

    /// Scalar number `index`.
    pub fn scalar(&self, index: usize) -> Result<Scalar, DeviceError> {
        self.scalars.get(index).copied().ok_or_else(|| DeviceError::BadArgument {
            arg: index,
            message: format!("there are {} scalars", self.scalars.len()),
        })
    }

    /// How argument `arg` lies in its buffer.
    pub fn view(&self, arg: usize) -> Result<&'a View, DeviceError> {
        Ok(&self.get(arg)?.view)
    }

    /// Whether argument `arg` may be written.
    pub fn writes(&self, arg: usize) -> Result<bool, DeviceError> {
        Ok(self.get(arg)?.writes)
    }

    /// The address of the element of `arg` whose indices are all zero. What is done with it is up
    /// to the kernel's own `unsafe`; the bytes of the view, and no others, are its to touch.
    ///
    /// # Errors
    /// Also where several blocks share what is written: a block has the address of its own part
    /// only.
    pub fn pointer(&self, arg: usize) -> Result<*mut u8, DeviceError> {
        let raw = self.get(arg)?;
        self.refuse_shared_by_blocks(arg)?;
        self.refuse_aliases_of_blocks(arg)?;
        Ok(raw.base.wrapping_add(raw.view.offset() as usize))
    }

    /// Argument `arg` as a check sees it, its buffer named by its address. What may be written may
    /// be read, too.
    pub(super) fn described(&self, arg: usize) -> Result<Arg, DeviceError> {
        let raw = self.get(arg)?;
        let access = if raw.writes { Access::InOut } else { Access::Input };
        Ok(Arg::new(access, BufferId(raw.base as u64), raw.view))
    }

    /// The same arguments for the body of another kernel, which may take them all.
    ///
    /// # Errors
    /// One was taken before: what was taken may still be in use.
    pub(super) fn lent(&mut self) -> Result<KernelArgs<'_>, DeviceError> {
        let Self { args, scalars, grid, block, blocks, .. } = *self;
        match self.taken.any() {
            0 => Ok(KernelArgs { args, scalars, grid, block, blocks, taken: Taken::default() }),
            taken => {
                let arg = taken.trailing_zeros() as usize;
                Err(bad(arg, "it was taken before, and cannot be lent to another kernel".into()))
            }
        }
    }

    /// All elements of a contiguous argument, to read.
    pub fn slice<T: Element>(&self, arg: usize) -> Result<&'a [T], DeviceError> {
        let (pointer, count) = self.contiguous::<T>(arg)?;
        self.take_shared(arg)?;
        // SAFETY: `contiguous` checked type, alignment and layout; `from_raw` promises that nobody
        // else writes these bytes during `'a`, and no slice for writing overlaps them (just
        // checked, and refused from now on).
        Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
    }

    /// All elements of a contiguous argument, to write.
    ///
    /// # Errors
    /// Also where the argument was taken before, or overlaps one that was; and where several blocks
    /// share it.
    pub fn slice_mut<T: Element>(&self, arg: usize) -> Result<&'a mut [T], DeviceError> {
        self.get(arg)?;
        self.refuse_shared_by_blocks(arg)?;
        self.take_mut(arg, |count| 0..count)
    }

    /// The share of this block in a contiguous argument, to write.
    pub fn block_slice_mut<T: Element>(&self, arg: usize) -> Result<&'a mut [T], DeviceError> {
        self.take_mut(arg, |count| self.block_range(count))
    }

    fn take_mut<T: Element>(
        &self,
        arg: usize,
        part: impl Fn(usize) -> Range<usize>,
    ) -> Result<&'a mut [T], DeviceError> {
        let (pointer, count) = self.contiguous::<T>(arg)?;
        self.refuse_read_only(arg)?;
        self.refuse_aliases_of_blocks(arg)?;
        self.refuse_overlap(arg, self.taken.any())?;
        self.note(&self.taken.unique, arg);
        let part = part(count);
        // SAFETY: `contiguous` checked type, alignment and layout, and `part` lies in `0..count`;
        // `from_raw` promises that nobody else touches these bytes during `'a` (other blocks take
        // other parts, since parts of different blocks are disjoint), and nothing that was taken
        // overlaps them.
        Ok(unsafe { std::slice::from_raw_parts_mut(pointer.add(part.start), part.len()) })
    }

    /// Any argument, to read element by element.
    pub fn strided<T: Element>(&self, arg: usize) -> Result<Strided<'a, T>, DeviceError> {
        let base = self.typed::<T>(arg)?;
        self.refuse_shared_by_blocks(arg)?;
        self.refuse_aliases_of_blocks(arg)?;
        self.refuse_overlap(arg, self.taken.unique.get())?;
        self.note(&self.taken.strided, arg);
        Ok(Strided { base, view: &self.all()[arg].view, element: PhantomData })
    }

    /// Any argument, to read and write element by element.
    pub fn strided_mut<T: Element>(&self, arg: usize) -> Result<StridedMut<'a, T>, DeviceError> {
        let base = self.typed::<T>(arg)?;
        self.refuse_shared_by_blocks(arg)?;
        self.refuse_read_only(arg)?;
        self.refuse_overlap(arg, self.taken.unique.get() | self.taken.shared.get())?;
        self.note(&self.taken.strided_mut, arg);
        Ok(StridedMut(Strided { base, view: &self.all()[arg].view, element: PhantomData }))
    }

    /// Notes that argument `arg` is taken as references to read.
    #[inline]
    pub(super) fn take_shared(&self, arg: usize) -> Result<(), DeviceError> {
        self.refuse_shared_by_blocks(arg)?;
        self.refuse_aliases_of_blocks(arg)?;
        self.refuse_overlap(arg, self.taken.unique.get() | self.taken.strided_mut.get())?;
        self.note(&self.taken.shared, arg);
        Ok(())
    }

    /// Notes that argument `arg` is taken as the only references to its bytes.
    #[inline]
    pub(super) fn take_unique(&self, arg: usize) -> Result<(), DeviceError> {
        self.refuse_shared_by_blocks(arg)?;
        self.refuse_read_only(arg)?;
        self.refuse_aliases_of_blocks(arg)?;
        self.refuse_overlap(arg, self.taken.any())?;
        self.note(&self.taken.unique, arg);
        Ok(())
    }

    fn get(&self, arg: usize) -> Result<&'a RawArg, DeviceError> {
        self.all().get(arg).ok_or_else(|| bad(arg, format!("there are {} arguments", self.len())))
    }

    /// The address of an argument whose elements are `T`s, each aligned.
    pub(super) fn typed<T: Element>(&self, arg: usize) -> Result<*mut T, DeviceError> {
        let raw = self.get(arg)?;
        if arg >= u64::BITS as usize {
            return Err(bad(arg, "only the first 64 can be taken: use `pointer`".into()));
        }
        if !T::holds(raw.view.dtype()) {
            let (has, wants) = (raw.view.dtype(), T::DTYPE);
            return Err(bad(arg, format!("its elements are {has}, the kernel reads {wants}")));
        }
        if raw.view.is_empty() {
            return Ok(std::ptr::NonNull::dangling().as_ptr());
        }
        let pointer = raw.base.wrapping_add(raw.view.offset() as usize);
        let aligned = |place: i64| place.rem_euclid(align_of::<T>() as i64) == 0;
        if !aligned(pointer as i64) || !raw.view.strides().iter().all(|&stride| aligned(stride)) {
            let bytes = align_of::<T>();
            return Err(bad(arg, format!("its elements are not aligned to {bytes} bytes")));
        }
        Ok(pointer.cast())
    }

    fn contiguous<T: Element>(&self, arg: usize) -> Result<(*mut T, usize), DeviceError> {
        let pointer = self.typed::<T>(arg)?;
        let view = &self.all()[arg].view;
        if !view.is_contiguous() {
            return Err(bad(arg, format!("{view:?} is not contiguous: take it as `strided`")));
        }
        Ok((pointer, view.elements() as usize))
    }

    fn refuse_read_only(&self, arg: usize) -> Result<(), DeviceError> {
        match self.all()[arg].writes {
            true => Ok(()),
            false => Err(bad(arg, "it is an input, and cannot be taken for writing".into())),
        }
    }

    /// What blocks write at the same time can be taken in disjoint parts only.
    fn refuse_shared_by_blocks(&self, arg: usize) -> Result<(), DeviceError> {
        if self.blocks > 1 && self.all()[arg].writes {
            return Err(bad(
                arg,
                format!("{} blocks share it: take `block_slice_mut`", self.blocks),
            ));
        }
        Ok(())
    }

    /// Blocks do not know what others have taken: where two arguments overlap and one is written,
    /// one block could write what another holds.
    fn refuse_aliases_of_blocks(&self, arg: usize) -> Result<(), DeviceError> {
        if self.blocks == 1 {
            return Ok(());
        }
        let (mine, writes) = (self.place(arg), self.all()[arg].writes);
        let aliases = |other: usize| {
            let theirs = self.place(other);
            other != arg
                && (writes || self.all()[other].writes)
                && mine.start < theirs.end
                && theirs.start < mine.end
        };
        match (0..self.len()).find(|&other| aliases(other)) {
            None => Ok(()),
            Some(other) => {
                let blocks = self.blocks;
                let message = format!(
                    "it overlaps argument {other}, which {blocks} blocks may touch meanwhile"
                );
                Err(bad(arg, message))
            }
        }
    }

    fn refuse_overlap(&self, arg: usize, taken: u64) -> Result<(), DeviceError> {
        let mine = self.place(arg);
        let mut left = taken;
        while left != 0 {
            let other = left.trailing_zeros() as usize;
            left &= left - 1;
            let theirs = self.place(other);
            if mine.start < theirs.end && theirs.start < mine.end && self.shares_bytes(arg, other) {
                return Err(bad(
                    arg,
                    format!("it overlaps argument {other}, which was taken before"),
                ));
            }
        }
        Ok(())
    }

    /// Returns `true` if two arguments have a byte in common, or may have. Tiles of one matrix may
    /// interleave without it.
    #[cold]
    fn shares_bytes(&self, one: usize, other: usize) -> bool {
        let (one, other) = (&self.all()[one], &self.all()[other]);
        one.base != other.base || Region::of(&one.view).overlaps(&Region::of(&other.view))
    }

    /// The addresses from the first byte of an argument to its last; nothing for an empty one.
    fn place(&self, arg: usize) -> Range<usize> {
        let RawArg { base, view, .. } = &self.all()[arg];
        let (start, end) = view.span().unwrap_or((0, 0));
        let base = *base as usize;
        base.wrapping_add(start as usize)..base.wrapping_add(end as usize)
    }

    fn note(&self, set: &Cell<u64>, arg: usize) {
        set.set(set.get() | 1 << arg);
    }
}

impl Taken {
    fn any(&self) -> u64 {
        self.shared.get() | self.unique.get() | self.strided.get() | self.strided_mut.get()
    }
}

pub(super) fn bad(arg: usize, message: String) -> DeviceError {
    DeviceError::BadArgument { arg, message }
}

/// An argument of any layout, read element by element.
#[derive(Clone, Copy, Debug)]
pub struct Strided<'a, T> {
    base: *mut T,
    view: &'a View,
    element: PhantomData<&'a T>,
}

impl<'a, T: Element> Strided<'a, T> {
    /// Elements along each dimension.
    pub fn shape(&self) -> &'a [u64] {
        self.view.shape()
    }

    /// The element at `index`.
    ///
    /// # Panics
    /// Where `index` has another rank than the view or lies outside, as for a slice.
    #[inline]
    pub fn get(&self, index: &[u64]) -> T {
        // SAFETY: `place` is the address of an element of the view, aligned (`typed`), and
        // initialised and not written by anybody else (`from_raw`); no reference for writing covers
        // it (`refuse_overlap`).
        unsafe { self.place(index).read() }
    }

    #[inline]
    fn place(&self, index: &[u64]) -> *mut T {
        let (shape, strides) = (self.view.shape(), self.view.strides());
        assert_eq!(index.len(), shape.len(), "an index of the view's rank");
        let mut bytes = 0i64;
        for ((&at, &size), &stride) in index.iter().zip(shape).zip(strides) {
            assert!(at < size, "index {index:?} of shape {shape:?}");
            bytes += at as i64 * stride;
        }
        self.base.wrapping_byte_offset(bytes as isize)
    }
}

/// An argument of any layout, read and written element by element.
#[derive(Debug)]
pub struct StridedMut<'a, T>(Strided<'a, T>);

impl<'a, T: Element> StridedMut<'a, T> {
    /// Elements along each dimension.
    pub fn shape(&self) -> &'a [u64] {
        self.0.shape()
    }

    /// The element at `index`.
    ///
    /// # Panics
    /// Where `index` has another rank than the view or lies outside, as for a slice.
    #[inline]
    pub fn get(&self, index: &[u64]) -> T {
        self.0.get(index)
    }

    /// Replaces the element at `index`.
    ///
    /// # Panics
    /// Where `index` has another rank than the view or lies outside, as for a slice.
    #[inline]
    pub fn set(&mut self, index: &[u64], value: T) {
        // SAFETY: as in `Strided::get`; `from_raw` gives sole access to what may be written, and no
        // reference at all covers it.
        unsafe { self.0.place(index).write(value) }
    }
}

#[cfg(test)]
mod tests {
    use syncline_tensor::Dtype;

    use super::*;

    fn arg(memory: &mut [f32], range: Range<u64>, writes: bool) -> RawArg {
        let view = View::contiguous(Dtype::F32, &[memory.len() as u64]).unwrap();
        RawArg { base: memory.as_mut_ptr().cast(), view: view.slice(0, range).unwrap(), writes }
    }

    #[test]
    fn blocks_take_disjoint_shares_that_cover_everything() {
        let mut memory = [0f32; 10];
        let args = [arg(&mut memory, 0..10, true)];
        for block in 0..4 {
            // SAFETY: `memory` outlives the arguments, and this thread alone touches it.
            let args = unsafe { KernelArgs::from_raw(&args, &[]).with_block(block, 4) };
            assert!(args.slice_mut::<f32>(0).is_err() && args.slice::<f32>(0).is_err());
            assert!(args.pointer(0).is_err(), "the address of what others write");
            args.block_slice_mut::<f32>(0).unwrap().iter_mut().for_each(|x| *x += 1.0);
            assert!(args.block_slice_mut::<f32>(0).is_err(), "taken twice");
        }
        assert_eq!(memory, [1.0; 10]);
    }

    #[test]
    fn blocks_cannot_reach_each_others_shares_through_another_argument() {
        let mut memory = [0f32; 8];
        for writes in [true, false] {
            let raw = [arg(&mut memory, 0..8, true), arg(&mut memory, 0..4, writes)];
            // SAFETY: as above. Block 0 of argument 0 is 0..4, block 1 of argument 1 is 2..4.
            let second = unsafe { KernelArgs::from_raw(&raw, &[]).with_block(1, 2) };
            assert!(second.block_slice_mut::<f32>(0).is_err());
            assert!(second.block_slice_mut::<f32>(1).is_err() && second.slice::<f32>(1).is_err());
            assert!(second.strided::<f32>(1).is_err());
        }
    }

    #[test]
    fn what_is_out_for_writing_cannot_be_taken_again() {
        let mut memory = [0f32; 8];
        let raw = [arg(&mut memory, 0..4, true), arg(&mut memory, 2..6, true)];
        // SAFETY: as above.
        let args = unsafe { KernelArgs::from_raw(&raw, &[]) };
        assert!(args.slice_mut::<f32>(0).is_ok());
        assert!(args.slice::<f32>(0).is_err() && args.slice::<f32>(1).is_err());
        assert!(args.strided::<f32>(1).is_err() && args.strided_mut::<f32>(1).is_err());
        // SAFETY: as above.
        let args = unsafe { KernelArgs::from_raw(&raw, &[]) };
        assert!(args.slice::<f32>(0).is_ok() && args.slice::<f32>(1).is_ok());
        assert!(args.strided_mut::<f32>(1).is_err() && args.slice_mut::<f32>(1).is_err());
        // Two strided views may overlap: elements are moved one by one, and no reference is made.
        // SAFETY: as above.
        let args = unsafe { KernelArgs::from_raw(&raw, &[]) };
        let (from, mut to) = (args.strided::<f32>(0).unwrap(), args.strided_mut::<f32>(1).unwrap());
        to.set(&[0], 5.0);
        assert_eq!(from.get(&[2]), 5.0);
    }

    #[test]
    fn elements_of_another_type_or_place_are_refused() {
        let mut memory = [0f32; 8];
        let mut raw = arg(&mut memory, 0..4, false);
        let shifted = View::strided(Dtype::F32, 2, &[2], &[4]).unwrap();
        for view in [raw.view, shifted, View::strided(Dtype::F32, 0, &[2], &[8]).unwrap()] {
            raw.view = view;
            let raw = [raw];
            // SAFETY: as above.
            let args = unsafe { KernelArgs::from_raw(&raw, &[]) };
            assert!(args.slice::<f64>(0).is_err() && args.slice::<i32>(0).is_err());
            assert_eq!(args.slice::<f32>(0).is_ok(), view.offset() == 0 && view.is_contiguous());
            assert!(args.slice_mut::<f32>(0).is_err() && args.slice::<f32>(1).is_err());
        }
    }
}
