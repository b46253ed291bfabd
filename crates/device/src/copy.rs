//! Copies between strided views: as few and as long runs as their layouts allow.
//!
//! A [`CopyPlan`] is made once from two views and run any number of times on different memory. Runs
//! that are long and many enough go past the cache.

mod stream;

use syncline_tensor::{MAX_DIMS, Region, View};

use crate::{Copy, DeviceError};

/// Dimensions of a view and the bytes of an element.
const LOOPS_MAX: usize = MAX_DIMS + 1;

/// Copies of this size and more bypass the cache where their runs are long: they would only
/// displace what is there.
const STREAM_BYTES: u64 = 8 << 20;
const STREAM_RUN_BYTES: u64 = 4 << 10;

/// How to copy one view to another of the same shape.
///
/// ```
/// use syncline_tensor::{Dtype, View};
/// use syncline_device::copy::CopyPlan;
///
/// let matrix = View::contiguous(Dtype::F32, &[8, 8])?;
/// let plan = CopyPlan::new(&matrix.slice(1, 0..4)?, &matrix.slice(1, 4..8)?)?;
/// assert_eq!((plan.runs(), plan.run_bytes()), (8, 16));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyPlan {
    /// Outermost first.
    loops: [Loop; LOOPS_MAX],
    loop_count: usize,
    source_offset: i64,
    target_offset: i64,
    run_bytes: u64,
    bytes: u64,
    disjoint: bool,
}

/// One loop around the runs of a [`CopyPlan`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loop {
    /// How often it goes round.
    pub count: u64,
    /// Bytes from one round's source to the next one's.
    pub source_stride: i64,
    /// Bytes from one round's target to the next one's; never negative.
    pub target_stride: i64,
}

impl Loop {
    /// Calls `each` with the two offsets of every round of `loops`, outermost first, from `source`
    /// and `target` on.
    pub fn unroll(loops: &[Self], source: i64, target: i64, each: &mut impl FnMut(i64, i64)) {
        let Some((of, inner)) = loops.split_first() else { return each(source, target) };
        for round in 0..of.count as i64 {
            let (source, target) =
                (source + round * of.source_stride, target + round * of.target_stride);
            Self::unroll(inner, source, target, each);
        }
    }
}

impl CopyPlan {
    /// A plan for copying `source` to `target`.
    ///
    /// # Errors
    /// Where shapes or sizes of elements differ.
    pub fn new(source: &View, target: &View) -> Result<Self, DeviceError> {
        if source.shape() != target.shape() {
            return Err(DeviceError::ShapeMismatch {
                source_shape: source.shape().to_vec(),
                target_shape: target.shape().to_vec(),
            });
        }
        if source.dtype().bytes() != target.dtype().bytes() {
            return Err(DeviceError::ElementSize {
                source_dtype: source.dtype(),
                target_dtype: target.dtype(),
            });
        }
        let mut plan = Self {
            loops: [Loop::default(); LOOPS_MAX],
            loop_count: 0,
            source_offset: source.offset() as i64,
            target_offset: target.offset() as i64,
            run_bytes: 0,
            bytes: source.bytes(),
            disjoint: are_disjoint(source, target),
        };
        if plan.bytes > 0 {
            plan.lay_out(source, target);
        }
        Ok(plan)
    }

    /// Bytes copied in all.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of each contiguous run.
    pub const fn run_bytes(&self) -> u64 {
        self.run_bytes
    }

    /// How many runs there are.
    pub fn runs(&self) -> u64 {
        self.bytes.checked_div(self.run_bytes).unwrap_or(0)
    }

    /// The loops around the runs, outermost first, for a backend that copies with its own means.
    pub fn loops(&self) -> &[Loop] {
        &self.loops[..self.loop_count]
    }

    /// The byte of the source's buffer at which the first run begins.
    pub const fn source_offset(&self) -> u64 {
        self.source_offset as u64
    }

    /// The byte of the target's buffer at which the first run begins.
    pub const fn target_offset(&self) -> u64 {
        self.target_offset as u64
    }

    /// Copies from the buffer at `source` to the one at `target`.
    ///
    /// # Safety
    /// Both views lie inside what their pointers are valid for; nobody writes the bytes of the
    /// source nor touches those of the target meanwhile; and the bytes of the two do not overlap.
    pub unsafe fn run(&self, source: *const u8, target: *mut u8) {
        if self.bytes == 0 {
            return;
        }
        let source = source.wrapping_offset(self.source_offset as isize);
        let target = target.wrapping_offset(self.target_offset as isize);
        let streams = self.bytes >= STREAM_BYTES && self.run_bytes >= STREAM_RUN_BYTES;
        // SAFETY: the offsets lead to the first element of each view; the loops visit all others.
        unsafe {
            match (streams, self.run_bytes) {
                (true, _) => {
                    self.walk(source, target, |from, to| {
                        stream::copy(from, to, self.run_bytes as usize)
                    });
                    stream::finish();
                }
                (false, 1) => self.walk_elements::<u8>(source, target),
                (false, 2) => self.walk_elements::<u16>(source, target),
                (false, 4) => self.walk_elements::<u32>(source, target),
                (false, 8) => self.walk_elements::<u64>(source, target),
                (false, 16) => self.walk_elements::<u128>(source, target),
                (false, bytes) => self.walk(source, target, |from, to| {
                    std::ptr::copy_nonoverlapping(from, to, bytes as usize);
                }),
            }
        }
    }

    /// Copies within one buffer as if the whole source were read before the first byte is written.
    ///
    /// # Safety
    /// Both views lie inside what `base` is valid for, and nobody else touches their bytes
    /// meanwhile.
    pub unsafe fn run_within(&self, base: *mut u8) {
        if self.bytes == 0 {
            return;
        }
        if self.is_disjoint() {
            // SAFETY: the caller's promise, and the two were found not to overlap.
            return unsafe { self.run(base, base) };
        }
        if self.loop_count == 0 {
            let source = base.wrapping_offset(self.source_offset as isize);
            let target = base.wrapping_offset(self.target_offset as isize);
            // SAFETY: one run on both sides; `copy` allows overlap.
            return unsafe { std::ptr::copy(source, target, self.run_bytes as usize) };
        }
        let (out, back) = self.through_packed();
        let mut packed = vec![0u8; self.bytes as usize];
        // SAFETY: `packed` is other memory, as large as all elements together.
        unsafe {
            out.run(base, packed.as_mut_ptr());
            back.run(packed.as_ptr(), base);
        }
    }

    /// Calls `visit` with the first byte of every run in the source and in the target, in the order
    /// of the target's addresses where its layout allows.
    pub fn for_each_run(&self, mut visit: impl FnMut(u64, u64)) {
        if self.bytes == 0 {
            return;
        }
        let mut index = [0u64; LOOPS_MAX];
        let (mut source, mut target) = (self.source_offset, self.target_offset);
        let loops = &self.loops[..self.loop_count];
        loop {
            visit(source as u64, target as u64);
            // Counts up like an odometer, the last loop fastest.
            let Some(at) = (0..loops.len()).rev().find(|&at| index[at] + 1 < loops[at].count)
            else {
                return;
            };
            index[at] += 1;
            source += loops[at].source_stride;
            target += loops[at].target_stride;
            for after in at + 1..loops.len() {
                source -= index[after] as i64 * loops[after].source_stride;
                target -= index[after] as i64 * loops[after].target_stride;
                index[after] = 0;
            }
        }
    }

    /// The same copy in two steps, by way of contiguous memory that begins at byte 0: what overlaps
    /// can be copied as if all of it were read first.
    pub fn through_packed(&self) -> (CopyPlan, CopyPlan) {
        let (mut out, mut back) = (self.clone(), self.clone());
        let mut stride = self.run_bytes as i64;
        for at in (0..self.loop_count).rev() {
            out.loops[at].target_stride = stride;
            back.loops[at].source_stride = stride;
            stride *= self.loops[at].count as i64;
        }
        (out.target_offset, back.source_offset) = (0, 0);
        (out.disjoint, back.disjoint) = (true, true);
        (out, back)
    }

    /// Whether source and target, in one buffer, are known to share no byte.
    pub const fn is_disjoint(&self) -> bool {
        self.disjoint
    }

    fn lay_out(&mut self, source: &View, target: &View) {
        let mut loops: Vec<Loop> = Vec::with_capacity(LOOPS_MAX);
        let strides = source.strides().iter().zip(target.strides());
        for (&count, (&source_stride, &target_stride)) in source.shape().iter().zip(strides) {
            if count > 1 {
                loops.push(self.forwards(Loop { count, source_stride, target_stride }));
            }
        }
        // Writes in the order of addresses; where the target does not say, reads in theirs.
        loops.sort_by_key(|of| {
            std::cmp::Reverse((of.target_stride, of.source_stride.unsigned_abs()))
        });
        let bytes = source.dtype().bytes();
        loops.push(Loop { count: bytes, source_stride: 1, target_stride: 1 });
        let mut merged: Vec<Loop> = Vec::with_capacity(loops.len());
        for inner in loops.into_iter().rev() {
            match merged.last_mut() {
                Some(run) if continues(run, &inner) => run.count *= inner.count,
                _ => merged.push(inner),
            }
        }
        merged.reverse();
        let run = merged.pop().expect("the bytes of an element are always there");
        self.run_bytes = run.count;
        self.loop_count = merged.len();
        self.loops[..merged.len()].copy_from_slice(&merged);
    }

    /// The same elements along one dimension, visited so that the target's address grows.
    fn forwards(&mut self, of: Loop) -> Loop {
        if of.target_stride >= 0 {
            return of;
        }
        let last = of.count as i64 - 1;
        self.source_offset += last * of.source_stride;
        self.target_offset += last * of.target_stride;
        Loop { count: of.count, source_stride: -of.source_stride, target_stride: -of.target_stride }
    }

    /// Calls `copy` with the addresses of every run.
    ///
    /// # Safety
    /// As [`CopyPlan::run`], with pointers to the first elements.
    #[inline]
    unsafe fn walk(
        &self,
        source: *const u8,
        target: *mut u8,
        copy: impl Fn(*const u8, *mut u8) + std::marker::Copy,
    ) {
        walk(&self.loops[..self.loop_count], source, target, copy);
    }

    /// As `walk`, for runs of the size of a `T`.
    ///
    /// # Safety
    /// As [`CopyPlan::run`], with pointers to the first elements.
    #[inline]
    unsafe fn walk_elements<T: std::marker::Copy>(&self, source: *const u8, target: *mut u8) {
        walk(&self.loops[..self.loop_count], source, target, |from, to| {
            // SAFETY: both are addresses of elements in views that the caller vouches for.
            unsafe { to.cast::<T>().write_unaligned(from.cast::<T>().read_unaligned()) }
        });
    }
}

fn are_disjoint(source: &View, target: &View) -> bool {
    match (source.span(), target.span()) {
        (Some((start, end)), Some((other, other_end))) if start < other_end && other < end => {
            !Region::of(source).overlaps(&Region::of(target))
        }
        _ => true,
    }
}

/// Whether `outer` goes on where `run`, which lies inside it, ends.
fn continues(run: &Loop, outer: &Loop) -> bool {
    let count = run.count as i64;
    outer.source_stride == run.source_stride * count
        && outer.target_stride == run.target_stride * count
}

#[inline]
fn walk(
    loops: &[Loop],
    mut source: *const u8,
    mut target: *mut u8,
    copy: impl Fn(*const u8, *mut u8) + std::marker::Copy,
) {
    let Some((of, inner)) = loops.split_first() else { return copy(source, target) };
    for _ in 0..of.count {
        match inner {
            [] => copy(source, target),
            _ => walk(inner, source, target, copy),
        }
        source = source.wrapping_offset(of.source_stride as isize);
        target = target.wrapping_offset(of.target_stride as isize);
    }
}

/// Refuses a copy that cannot be: other shapes, or elements of another size.
pub(crate) fn check(copy: &Copy) -> Result<(), DeviceError> {
    CopyPlan::new(copy.source.view(), copy.target.view()).map(drop)
}
