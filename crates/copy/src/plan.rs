//! What a strided copy comes to: contiguous runs, and the fewest loops around them.

use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut, Range};

use syncline_tensor::{Dtype, MAX_DIMS, Region, View};

/// A copy that cannot be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// Source and target have different shapes.
    #[error("copy of {source_shape:?} to {target_shape:?}: the shapes must be the same")]
    ShapeMismatch {
        /// The source's shape.
        source_shape: Vec<u64>,
        /// The target's shape.
        target_shape: Vec<u64>,
    },
    /// Elements of source and target differ in size.
    #[error("copy of {source_dtype} to {target_dtype}: elements must have the same size")]
    ElementSize {
        /// The source's element type.
        source_dtype: Dtype,
        /// The target's element type.
        target_dtype: Dtype,
    },
    /// Several elements of the target share bytes: the result would depend on the order.
    #[error("copy to shape {shape:?} with strides {strides:?}: elements of the target may overlap")]
    TargetOverlaps {
        /// The target's shape.
        shape: Vec<u64>,
        /// The target's strides in bytes.
        strides: Vec<i64>,
    },
    /// More dimensions than a view can have, or a copy beyond the address space.
    #[error("copy of {extents:?} elements: at most {MAX_DIMS} dimensions and 2^63 bytes")]
    TooLarge {
        /// Elements in each dimension.
        extents: Vec<u64>,
    },
    /// A memory is smaller than what the copy touches in it.
    #[error("copy of bytes up to {needed_bytes} in a {side} of {bytes} bytes")]
    OutOfBounds {
        /// Which memory: `source` or `target`.
        side: &'static str,
        /// The first byte after the last one that the copy touches.
        needed_bytes: u64,
        /// Bytes of the memory.
        bytes: u64,
    },
}

/// One loop around the runs of a [`CopyPlan`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Loop {
    /// Number of iterations.
    pub count: u64,
    /// Bytes from one iteration's source to the next one's.
    pub source_stride: i64,
    /// Bytes from one iteration's target to the next one's; never negative.
    pub target_stride: i64,
}

impl Loop {
    /// Calls `each` with the two offsets of every iteration of `loops`, outermost first, from
    /// `source` and `target` on.
    pub fn unroll(loops: &[Self], source: i64, target: i64, each: &mut impl FnMut(i64, i64)) {
        let Some((of, inner)) = loops.split_first() else { return each(source, target) };
        of.repeat(source, target, |source, target| Self::unroll(inner, source, target, each));
    }

    /// Calls `each` with the two offsets of every iteration of this loop.
    #[inline(always)]
    fn repeat(self, mut source: i64, mut target: i64, mut each: impl FnMut(i64, i64)) {
        for _ in 0..self.count {
            each(source, target);
            // After the last iteration, these may lie anywhere.
            source = source.wrapping_add(self.source_stride);
            target = target.wrapping_add(self.target_stride);
        }
    }

    /// Returns `true` if `outer` continues where this loop, which lies inside it, ends.
    fn continues_in(self, outer: Self) -> bool {
        let length = |stride: i64| stride.checked_mul(i64::try_from(self.count).ok()?);
        length(self.source_stride) == Some(outer.source_stride)
            && length(self.target_stride) == Some(outer.target_stride)
    }
}

/// At most [`MAX_DIMS`] loops, kept inline.
#[derive(Clone, Copy, Default)]
struct Loops {
    count: usize,
    each: [Loop; MAX_DIMS],
}

impl Loops {
    fn push(&mut self, each: Loop) {
        self.each[self.count] = each;
        self.count += 1;
    }
}

impl Deref for Loops {
    type Target = [Loop];

    #[inline]
    fn deref(&self) -> &[Loop] {
        &self.each[..self.count]
    }
}

impl DerefMut for Loops {
    fn deref_mut(&mut self) -> &mut [Loop] {
        &mut self.each[..self.count]
    }
}

impl PartialEq for Loops {
    fn eq(&self, other: &Self) -> bool {
        self[..] == other[..]
    }
}

impl Eq for Loops {}

impl Hash for Loops {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self[..].hash(state);
    }
}

impl std::fmt::Debug for Loops {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self[..].fmt(f)
    }
}

/// How elements lie in one memory of [`CopyPlan::strided`].
#[derive(Clone, Copy, Debug)]
pub struct Strides<'a> {
    /// Bytes from one element to the next in each dimension.
    pub strides: &'a [i64],
    /// Bytes of an element.
    pub element_bytes: u64,
}

/// How to copy elements from one strided memory to another: made once, run any number of times.
///
/// Elements may have different sizes on the two sides; such a plan is run with a conversion.
///
/// ```
/// use syncline_copy::CopyPlan;
/// use syncline_tensor::{Dtype, View};
///
/// let matrix = View::contiguous(Dtype::F32, &[8, 8])?;
/// let plan = CopyPlan::new(&matrix.slice(1, 0..4)?, &matrix.slice(1, 4..8)?)?;
/// assert_eq!((plan.runs(), plan.run_bytes()), (8, 16));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CopyPlan {
    /// Outermost first.
    loops: Loops,
    source_offset: i64,
    target_offset: i64,
    /// Elements that are contiguous on both sides.
    run_elements: u64,
    source_element: u64,
    target_element: u64,
    is_disjoint: bool,
}

impl CopyPlan {
    /// Plans a copy of `source` to `target`. Offsets count from the start of each view's buffer.
    ///
    /// # Errors
    /// If the shapes or the sizes of elements differ, or elements of `target` share bytes.
    pub fn new(source: &View, target: &View) -> Result<Self, CopyError> {
        if source.shape() != target.shape() {
            return Err(CopyError::ShapeMismatch {
                source_shape: source.shape().to_vec(),
                target_shape: target.shape().to_vec(),
            });
        }
        let element = source.dtype().bytes();
        if element != target.dtype().bytes() {
            return Err(CopyError::ElementSize {
                source_dtype: source.dtype(),
                target_dtype: target.dtype(),
            });
        }
        if overlaps_itself(target) {
            return Err(CopyError::TargetOverlaps {
                shape: target.shape().to_vec(),
                strides: target.strides().to_vec(),
            });
        }
        let strides = source.strides().iter().zip(target.strides());
        let dims = source.shape().iter().zip(strides);
        let dims = dims.map(|(&count, (&source_stride, &target_stride))| Loop {
            count,
            source_stride,
            target_stride,
        });
        let mut plan = Self::of_loops(dims, element, element);
        plan.source_offset += source.offset() as i64;
        plan.target_offset += target.offset() as i64;
        plan.is_disjoint = are_disjoint(source, target);
        Ok(plan)
    }

    /// Plans a copy of `extents` elements between two memories. The first element of each is at
    /// offset 0, from which negative strides reach back.
    ///
    /// # Errors
    /// If there are too many dimensions, or too many bytes for a 63-bit offset; if elements of the
    /// target overlap, or interleave in a way that row-major memories never do.
    pub fn strided(
        extents: &[u64],
        source: Strides<'_>,
        target: Strides<'_>,
    ) -> Result<Self, CopyError> {
        let too_large = || CopyError::TooLarge { extents: extents.to_vec() };
        let fits = |side: Strides<'_>| {
            let dims = extents.iter().zip(side.strides);
            let reach = dims.filter(|(count, _)| **count > 1).try_fold(
                side.element_bytes,
                |reach, (count, stride)| {
                    stride.unsigned_abs().checked_mul(*count - 1)?.checked_add(reach)
                },
            );
            let bytes =
                extents.iter().try_fold(side.element_bytes, |all, &count| all.checked_mul(count));
            let is_small = |bytes: Option<u64>| bytes.is_some_and(|bytes| bytes <= i64::MAX as u64);
            side.strides.len() == extents.len()
                && (extents.contains(&0) || (is_small(reach) && is_small(bytes)))
        };
        if extents.len() > MAX_DIMS || !fits(source) || !fits(target) {
            return Err(too_large());
        }
        let strides = source.strides.iter().zip(target.strides);
        let dims = extents.iter().zip(strides);
        let dims = dims.map(|(&count, (&source, &target))| Loop {
            count,
            source_stride: source,
            target_stride: target,
        });
        let plan = Self::of_loops(dims, source.element_bytes, target.element_bytes);
        // From the innermost loop outwards, each has to step over what lies inside.
        let mut reach = plan.run_bytes();
        let mut steps_over = |each: &Loop| {
            let stride = each.target_stride as u64;
            let is_over = stride >= reach;
            reach = stride * (each.count - 1) + reach.min(stride);
            is_over
        };
        match plan.loops.iter().rev().all(&mut steps_over) {
            true => Ok(plan),
            false => Err(CopyError::TargetOverlaps {
                shape: extents.to_vec(),
                strides: target.strides.to_vec(),
            }),
        }
    }

    /// Plans a copy of one run of `bytes`.
    pub fn flat(bytes: u64) -> Self {
        let run = Loop { count: bytes, source_stride: 1, target_stride: 1 };
        Self::of_loops([run].into_iter(), 1, 1)
    }

    /// The plan of at most [`MAX_DIMS`] loops around single elements.
    fn of_loops(
        dims: impl Iterator<Item = Loop> + Clone,
        source_element: u64,
        target_element: u64,
    ) -> Self {
        let mut plan = Self {
            loops: Loops::default(),
            source_offset: 0,
            target_offset: 0,
            run_elements: 0,
            source_element,
            target_element,
            is_disjoint: false,
        };
        if dims.clone().any(|each| each.count == 0) {
            return plan;
        }
        let mut loops = Loops::default();
        for each in dims.filter(|each| each.count > 1) {
            loops.push(plan.forwards(each));
        }
        // Writes in the order of addresses. Where the target does not decide, reads in their order.
        loops.sort_by_key(|of| {
            std::cmp::Reverse((of.target_stride, of.source_stride.unsigned_abs()))
        });
        let mut run = Loop {
            count: 1,
            source_stride: source_element as i64,
            target_stride: target_element as i64,
        };
        let merged = &mut plan.loops;
        for &each in loops.iter().rev() {
            match merged.last_mut() {
                None if run.continues_in(each) => run.count *= each.count,
                Some(inner) if inner.continues_in(each) => inner.count *= each.count,
                _ => merged.push(each),
            }
        }
        merged.reverse();
        plan.run_elements = run.count;
        plan
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

    /// Bytes written at the target.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.runs() * self.run_bytes()
    }

    /// Bytes of a run at the target; 0 if there is nothing to copy.
    #[inline]
    pub const fn run_bytes(&self) -> u64 {
        self.run_elements * self.target_element
    }

    /// Bytes of a run at the source; 0 if there is nothing to copy.
    #[inline]
    pub const fn source_run_bytes(&self) -> u64 {
        self.run_elements * self.source_element
    }

    /// Number of runs.
    #[inline]
    pub fn runs(&self) -> u64 {
        match self.run_elements {
            0 => 0,
            _ => self.loops.iter().map(|each| each.count).product(),
        }
    }

    /// Returns `true` if there is nothing to copy.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.run_elements == 0
    }

    /// The loops around the runs, outermost first, for a backend that copies with its own means.
    #[inline]
    pub fn loops(&self) -> &[Loop] {
        &self.loops
    }

    /// The byte of the source's buffer at which the first run begins.
    pub const fn source_offset(&self) -> u64 {
        self.source_offset as u64
    }

    /// The byte of the target's buffer at which the first run begins.
    pub const fn target_offset(&self) -> u64 {
        self.target_offset as u64
    }

    /// The same copy with its first run at other offsets. Negative strides reach back from there.
    #[must_use]
    pub fn with_offsets(self, source: u64, target: u64) -> Self {
        Self { source_offset: source as i64, target_offset: target as i64, ..self }
    }

    /// The same copy with both offsets moved by so many bytes.
    #[must_use]
    pub fn shifted(self, source: i64, target: i64) -> Self {
        let (source, target) = (self.source_offset + source, self.target_offset + target);
        Self { source_offset: source, target_offset: target, ..self }
    }

    /// The bytes of the source's buffer from the first to the last one read.
    pub fn source_span(&self) -> Range<u64> {
        self.span(self.source_offset, self.source_run_bytes(), |each| each.source_stride)
    }

    /// The bytes of the target's buffer from the first to the last one written.
    pub fn target_span(&self) -> Range<u64> {
        self.span(self.target_offset, self.run_bytes(), |each| each.target_stride)
    }

    #[inline]
    fn span(&self, offset: i64, run_bytes: u64, stride: impl Fn(&Loop) -> i64) -> Range<u64> {
        let (mut start, mut end) = (offset, offset.saturating_add(run_bytes as i64));
        for each in self.loops.iter() {
            let reach = (each.count as i64 - 1) * stride(each);
            let side = if reach < 0 { &mut start } else { &mut end };
            *side = side.saturating_add(reach);
        }
        start as u64..end as u64
    }

    /// Returns `true` if source and target, in one buffer, are known to share no byte.
    pub const fn is_disjoint(&self) -> bool {
        self.is_disjoint
    }

    pub(crate) const fn target_element(&self) -> u64 {
        self.target_element
    }

    /// Writes the count of each loop and the elements of a run to `extents`, and returns how many
    /// numbers these are.
    pub(crate) fn extents(&self, extents: &mut [u64; MAX_DIMS + 1]) -> usize {
        let loops = self.loops.len();
        extents.iter_mut().zip(self.loops.iter()).for_each(|(to, each)| *to = each.count);
        extents[loops] = self.run_elements;
        loops + 1
    }

    /// The part of the copy that starts at this iteration of each loop and element of the run, and
    /// has that many of them.
    pub(crate) fn part(&self, start: &[u64], size: &[u64]) -> Self {
        let (run, loops) = (self.loops.len(), &self.loops);
        let mut part = Self { loops: Loops::default(), run_elements: size[run], ..self.clone() };
        part.source_offset += (start[run] * self.source_element) as i64;
        part.target_offset += (start[run] * self.target_element) as i64;
        for (each, (&first, &count)) in loops.iter().zip(start.iter().zip(size)) {
            part.source_offset += first as i64 * each.source_stride;
            part.target_offset += first as i64 * each.target_stride;
            if count > 1 {
                part.loops.push(Loop { count, ..*each });
            }
        }
        part
    }

    /// Calls `visit` with the offsets, source and target, of every run, in the order of the
    /// target's addresses where its layout allows.
    #[inline(always)]
    pub fn for_each_run(&self, mut visit: impl FnMut(u64, u64)) {
        if self.is_empty() {
            return;
        }
        let (source, target) = (self.source_offset, self.target_offset);
        let mut visit = |source: i64, target: i64| visit(source as u64, target as u64);
        // Nearly all copies have one loop or two: they are worth code without calls.
        match *self.loops {
            [] => visit(source, target),
            [only] => only.repeat(source, target, visit),
            [outer, inner] => outer.repeat(source, target, |source, target| {
                inner.repeat(source, target, &mut visit);
            }),
            [ref outer @ .., inner] => {
                Loop::unroll(outer, source, target, &mut |source, target| {
                    inner.repeat(source, target, &mut visit);
                })
            }
        }
    }

    /// The same copy in two steps, by way of contiguous memory that begins at byte 0: what overlaps
    /// can be copied as if all of it were read first.
    pub fn through_packed(&self) -> (Self, Self) {
        (self.gathered(), self.scattered())
    }

    /// The same elements, unconverted, to a target in which they lie one after the other.
    #[must_use]
    pub fn gathered(&self) -> Self {
        Self { target_element: self.source_element, ..self.clone() }.to_packed()
    }

    /// The same elements, already converted, from a source in which they lie one after the other.
    #[must_use]
    pub fn scattered(&self) -> Self {
        Self { source_element: self.target_element, ..self.clone() }.from_packed()
    }

    /// The same elements to a target in which they lie one after the other from byte 0 on.
    #[must_use]
    pub fn to_packed(&self) -> Self {
        self.packed(
            self.run_bytes(),
            |plan| &mut plan.target_offset,
            |each| &mut each.target_stride,
        )
    }

    /// The same elements from a source in which they lie one after the other from byte 0 on.
    #[must_use]
    pub fn from_packed(&self) -> Self {
        let run_bytes = self.source_run_bytes();
        self.packed(run_bytes, |plan| &mut plan.source_offset, |each| &mut each.source_stride)
    }

    fn packed(
        &self,
        run_bytes: u64,
        offset: fn(&mut Self) -> &mut i64,
        stride: fn(&mut Loop) -> &mut i64,
    ) -> Self {
        let mut packed = Self { is_disjoint: true, ..self.clone() };
        *offset(&mut packed) = 0;
        let mut step = run_bytes as i64;
        for each in packed.loops.iter_mut().rev() {
            *stride(each) = step;
            step *= each.count as i64;
        }
        packed
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

/// Returns `true` if some byte belongs to several elements of `view`.
fn overlaps_itself(view: &View) -> bool {
    if !view.shares_bytes() {
        return false;
    }
    // Two elements that overlap have equal indices up to some dimension. Moved by the same amount,
    // they still overlap: so the equal indices can all be 0, and the first that differs 0 in one.
    let mut rest = *view;
    while rest.rank() > 0 {
        let first = rest.index(0, 0).expect("the view is not empty");
        let others = rest.slice(0, 1..rest.shape()[0]).expect("a part of the dimension");
        if Region::of(&first).overlaps(&Region::of(&others)) {
            return true;
        }
        rest = first;
    }
    false
}
