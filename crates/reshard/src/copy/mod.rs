//! Copies of boxes between two memories, at the speed of the memory.
//!
//! A [`CopyShape`] is a box reduced to what a copy needs: runs that are contiguous on both sides,
//! and the fewest loops around them. It is computed once for each piece of a plan and used by every
//! refit.

mod fan;
mod prefetch;
mod stream;
#[cfg(test)]
mod tests;

use syncline_copy::convert::{Converter, mx};

pub(crate) use fan::{PARTS_MAX, Part, copy_fan};
pub(crate) use stream::{Store, fence};

/// One loop around the runs: steps in bytes on each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Loop {
    pub count: usize,
    pub source_step: usize,
    pub target_step: usize,
}

/// A box of elements between two row-major memories.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CopyShape {
    /// Elements that are contiguous on both sides.
    pub run_elements: usize,
    /// Bytes of one run at the source.
    pub source_run_bytes: usize,
    /// Bytes of one run at the target.
    pub target_run_bytes: usize,
    /// The loops around a run, outermost first.
    pub loops: Box<[Loop]>,
}

impl CopyShape {
    /// The shape of a box with `extents` elements, between memories with these steps in bytes per
    /// dimension and these element sizes.
    pub fn new(
        extents: &[usize],
        source_steps: &[usize],
        target_steps: &[usize],
        source_element: usize,
        target_element: usize,
    ) -> Self {
        let mut run_elements = 1;
        let mut loops: Vec<Loop> = Vec::new();
        let dims = extents.iter().zip(source_steps).zip(target_steps);
        for ((&count, &source_step), &target_step) in dims.rev() {
            if count == 1 {
                continue;
            }
            let extends_run = loops.is_empty()
                && source_step == run_elements * source_element
                && target_step == run_elements * target_element;
            if extends_run {
                run_elements *= count;
                continue;
            }
            match loops.last_mut() {
                Some(inner)
                    if source_step == inner.count * inner.source_step
                        && target_step == inner.count * inner.target_step =>
                {
                    inner.count *= count;
                }
                _ => loops.push(Loop { count, source_step, target_step }),
            }
        }
        loops.reverse();
        Self {
            run_elements,
            source_run_bytes: run_elements * source_element,
            target_run_bytes: run_elements * target_element,
            loops: loops.into(),
        }
    }

    /// One run of `bytes`.
    pub fn bytes(bytes: usize) -> Self {
        let (source_run_bytes, target_run_bytes) = (bytes, bytes);
        Self { run_elements: bytes, source_run_bytes, target_run_bytes, loops: Box::new([]) }
    }

    /// The same elements from a source in which they lie one after the other.
    pub fn packed_source(&self) -> Self {
        let mut packed = self.clone();
        let mut step = self.source_run_bytes;
        for each in packed.loops.iter_mut().rev() {
            each.source_step = step;
            step *= each.count;
        }
        packed
    }

    /// The same elements to a target in which they lie one after the other, without a change of
    /// type.
    pub fn gathered(&self) -> Self {
        let mut packed = self.clone();
        packed.target_run_bytes = self.source_run_bytes;
        packed.packed_target()
    }

    /// The same elements from a source in which they lie one after the other, without a change of
    /// type.
    pub fn scattered(&self) -> Self {
        let mut packed = self.clone();
        packed.source_run_bytes = self.target_run_bytes;
        packed.packed_source()
    }

    /// The same elements to a target in which they lie one after the other.
    pub fn packed_target(&self) -> Self {
        let mut packed = self.clone();
        let mut step = self.target_run_bytes;
        for each in packed.loops.iter_mut().rev() {
            each.target_step = step;
            step *= each.count;
        }
        packed
    }

    /// The same copy in parts of at most `bytes_max` at the target, but at least an element: each
    /// with the offsets, in bytes, of its first element.
    pub fn parts(&self, bytes_max: usize) -> Vec<(Self, usize, usize)> {
        let mut parts = Vec::new();
        self.split(bytes_max, 0, 0, &mut parts);
        parts
    }

    fn split(
        &self,
        bytes_max: usize,
        source: usize,
        target: usize,
        parts: &mut Vec<(Self, usize, usize)>,
    ) {
        if self.target_bytes() <= bytes_max {
            return parts.push((self.clone(), source, target));
        }
        let Some((outer, inner)) = self.loops.split_first() else {
            let source_element = self.source_run_bytes / self.run_elements;
            let target_element = self.target_run_bytes / self.run_elements;
            let most = (bytes_max / target_element).max(1);
            for first in (0..self.run_elements).step_by(most) {
                let count = most.min(self.run_elements - first);
                let part = Self {
                    run_elements: count,
                    source_run_bytes: count * source_element,
                    target_run_bytes: count * target_element,
                    loops: Box::new([]),
                };
                parts.push((
                    part,
                    source + first * source_element,
                    target + first * target_element,
                ));
            }
            return;
        };
        let row = Self { loops: inner.into(), ..self.clone() };
        let most = bytes_max / row.target_bytes().max(1);
        for first in (0..outer.count).step_by(most.max(1)) {
            let (source, target) =
                (source + first * outer.source_step, target + first * outer.target_step);
            if most <= 1 {
                row.split(bytes_max, source, target, parts);
                continue;
            }
            let mut part = self.clone();
            part.loops[0].count = most.min(outer.count - first);
            parts.push((part, source, target));
        }
    }

    /// Runs in all.
    pub fn runs(&self) -> usize {
        self.loops.iter().map(|each| each.count).product()
    }

    /// Bytes written at the target.
    pub fn target_bytes(&self) -> usize {
        self.runs() * self.target_run_bytes
    }

    /// Bytes from the first to one past the last that is touched: at the source, at the target.
    pub fn spans(&self) -> (usize, usize) {
        if self.runs() == 0 || self.run_elements == 0 {
            return (0, 0);
        }
        let far = |step: fn(&Loop) -> usize| -> usize {
            self.loops.iter().map(|each| (each.count - 1) * step(each)).sum()
        };
        (
            far(|each| each.source_step) + self.source_run_bytes,
            far(|each| each.target_step) + self.target_run_bytes,
        )
    }

    /// Calls `run` with the byte offsets, source and target, of every run.
    #[inline(always)]
    pub fn for_each_run(&self, mut run: impl FnMut(usize, usize)) {
        match *self.loops {
            [] => run(0, 0),
            [only] => repeat(only, 0, 0, &mut run),
            [ref outer @ .., inner] => {
                visit(outer, 0, 0, &mut |source, target| repeat(inner, source, target, &mut run));
            }
        }
    }
}

#[inline(always)]
fn repeat(each: Loop, source: usize, target: usize, run: &mut impl FnMut(usize, usize)) {
    for index in 0..each.count {
        run(source + index * each.source_step, target + index * each.target_step);
    }
}

fn visit(loops: &[Loop], source: usize, target: usize, run: &mut dyn FnMut(usize, usize)) {
    let Some((first, rest)) = loops.split_first() else {
        return run(source, target);
    };
    for index in 0..first.count {
        visit(rest, source + index * first.source_step, target + index * first.target_step, run);
    }
}

/// What is done to the elements of a box on the way.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    Nothing,
    Each(Converter),
    /// Elements are restored with the scales of the tensor that starts here, one for every block;
    /// the box starts at this element of the tensor.
    Restore(mx::Restorer, *const u8, usize),
}

/// Copies the box that starts at `source` to the box that starts at `target`.
///
/// # Safety
/// `source` must be readable and `target` writable over the [`spans`](CopyShape::spans) of `shape`,
/// and the bytes written must not be read or written by anything else meanwhile. Scales must be
/// readable for every block of the source's span.
pub(crate) unsafe fn copy_box(
    shape: &CopyShape,
    source: *const u8,
    target: *mut u8,
    change: Change,
    store: Store,
) {
    let bytes = shape.target_run_bytes;
    if shape.run_elements == 0 {
        return;
    }
    match change {
        // SAFETY: the caller's promise is passed on.
        Change::Nothing => unsafe { copy_fan(shape, &[(source, target)], store) },
        Change::Each(convert) => shape.for_each_run(|from, to| {
            // SAFETY: as above; the two sides do not overlap, because the target is nobody else's.
            let (source, target) = unsafe {
                (
                    std::slice::from_raw_parts(source.add(from), shape.source_run_bytes),
                    std::slice::from_raw_parts_mut(target.add(to), bytes),
                )
            };
            convert(source, target);
        }),
        Change::Restore(restore, scales, start) => shape.for_each_run(|from, to| {
            // An element has one byte: offsets in bytes are numbers of elements.
            let first = start + from;
            let skipped = first % mx::BLOCK;
            let blocks = (skipped + shape.source_run_bytes).div_ceil(mx::BLOCK);
            // SAFETY: as above; these are the blocks that the run has a part in.
            let (source, scales, target) = unsafe {
                (
                    std::slice::from_raw_parts(source.add(from), shape.source_run_bytes),
                    std::slice::from_raw_parts(scales.add(first / mx::BLOCK), blocks),
                    std::slice::from_raw_parts_mut(target.add(to), bytes),
                )
            };
            restore(source, skipped, scales, target);
        }),
    }
}
