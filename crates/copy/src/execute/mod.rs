//! Plans carried out: bytes moved through the caches or past them, converted on the way or not.

mod prefetch;
mod stream;
mod tuning;

use crate::convert::{Converter, mx};
use crate::plan::{CopyError, CopyPlan};

pub use stream::fence;
pub use tuning::FAN_MAX;

/// How the target is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// Through the caches: the target is small, or read again soon.
    Cached,
    /// Past the caches, with streaming stores where runs are long enough. The thread must call
    /// [`fence`] before it tells another one of the data.
    Streaming,
}

impl Store {
    /// Returns how to write a target of `bytes` that is not read again soon, counting everything
    /// that is copied at about the same time.
    pub const fn for_bytes(bytes: u64) -> Self {
        match bytes >= tuning::STREAM_BYTES {
            true => Self::Streaming,
            false => Self::Cached,
        }
    }
}

/// How elements change on the way.
#[derive(Clone, Copy, Debug)]
pub enum ElementChange {
    /// They keep their bytes.
    Nothing,
    /// Each run is converted.
    Each(Converter),
    /// Elements of one byte are restored with scales, one for every block.
    Restore {
        /// The conversion.
        restore: mx::Restorer,
        /// The scale of the tensor's first block.
        scales: *const u8,
        /// Elements of the tensor before the byte that the plan's offsets count from.
        start: usize,
    },
}

/// Where a copy's offsets count from: at the source, at the target.
pub type Part = (*const u8, *mut u8);

impl CopyPlan {
    /// Copies from `source` to `target`, converting each run with `convert` if there is one.
    ///
    /// ```
    /// use syncline_copy::{CopyPlan, Strides};
    ///
    /// // A matrix of 2x3 bytes to its transpose.
    /// let source = Strides { strides: &[3, 1], element_bytes: 1 };
    /// let target = Strides { strides: &[1, 2], element_bytes: 1 };
    /// let mut transposed = [0; 6];
    /// let plan = CopyPlan::strided(&[2, 3], source, target)?;
    /// plan.copy(&[1, 2, 3, 4, 5, 6], &mut transposed, None)?;
    /// assert_eq!(transposed, [1, 4, 2, 5, 3, 6]);
    /// # Ok::<(), syncline_copy::CopyError>(())
    /// ```
    ///
    /// # Errors
    /// If the plan touches bytes outside of the slices.
    ///
    /// # Panics
    /// If the plan's elements differ in size and there is no `convert`.
    pub fn copy(
        &self,
        source: &[u8],
        target: &mut [u8],
        convert: Option<Converter>,
    ) -> Result<(), CopyError> {
        if self.is_empty() {
            return Ok(());
        }
        let check = |side, span: std::ops::Range<u64>, bytes: usize| match span.end <= bytes as u64
            && span.start <= span.end
        {
            true => Ok(()),
            false => {
                Err(CopyError::OutOfBounds { side, needed_bytes: span.end, bytes: bytes as u64 })
            }
        };
        check("source", self.source_span(), source.len())?;
        check("target", self.target_span(), target.len())?;
        let change = convert.map_or(ElementChange::Nothing, ElementChange::Each);
        // SAFETY: both spans were just checked, and slices of one lifetime do not overlap where one
        // of them can be written.
        unsafe { self.run_as((source.as_ptr(), target.as_mut_ptr()), change, Store::Cached) };
        Ok(())
    }

    /// Copies from the buffer at `source` to the one at `target`, past the caches if there is much,
    /// and makes the bytes visible to what the thread stores next.
    ///
    /// # Safety
    /// `source` is readable over [`source_span`](Self::source_span) and `target` writable over
    /// [`target_span`](Self::target_span). Meanwhile nothing else writes the bytes that are read,
    /// nor touches the bytes that are written, and the two do not overlap.
    pub unsafe fn run(&self, source: *const u8, target: *mut u8) {
        let store = Store::for_bytes(self.bytes());
        // SAFETY: the caller's promise.
        unsafe { self.run_as((source, target), ElementChange::Nothing, store) };
        if store == Store::Streaming {
            fence();
        }
    }

    /// Copies within one buffer as if the whole source were read before the first byte is written.
    ///
    /// # Safety
    /// `base` is readable and writable over both spans, and nothing else touches the bytes that are
    /// read or written meanwhile.
    pub unsafe fn run_within(&self, base: *mut u8) {
        if self.is_disjoint() || self.is_empty() {
            // SAFETY: the caller's promise, and the two were found not to overlap.
            return unsafe { self.run(base, base) };
        }
        if self.loops().is_empty() {
            let source = base.wrapping_add(self.source_offset() as usize);
            let target = base.wrapping_add(self.target_offset() as usize);
            // SAFETY: one run on both sides; `copy` allows overlap.
            return unsafe { std::ptr::copy(source, target, self.run_bytes() as usize) };
        }
        let (out, back) = self.through_packed();
        let mut packed = vec![0u8; self.bytes() as usize];
        // SAFETY: `packed` is other memory, as large as all elements together.
        unsafe {
            out.run(base, packed.as_mut_ptr());
            back.run(packed.as_ptr(), base);
        }
    }

    /// Copies with a change on the way, written as `store` says.
    ///
    /// # Safety
    /// As [`run`](Self::run). Scales must be readable for every block of the source's span.
    ///
    /// # Panics
    /// If the plan's elements differ in size and nothing is changed.
    pub unsafe fn run_as(&self, part: Part, change: ElementChange, store: Store) {
        let (source, target) = part;
        let (source_bytes, bytes) = (self.source_run_bytes() as usize, self.run_bytes() as usize);
        match change {
            // SAFETY: the caller's promise.
            ElementChange::Nothing => unsafe { self.run_fan(&[part], store) },
            ElementChange::Each(convert) => self.for_each_run(|from, to| {
                // SAFETY: as above; the two sides do not overlap.
                let (source, target) = unsafe {
                    (
                        std::slice::from_raw_parts(source.add(from as usize), source_bytes),
                        std::slice::from_raw_parts_mut(target.add(to as usize), bytes),
                    )
                };
                convert(source, target);
            }),
            ElementChange::Restore { restore, scales, start } => self.for_each_run(|from, to| {
                // An element has one byte: offsets in bytes are numbers of elements.
                let first = start + from as usize;
                let skipped = first % mx::BLOCK;
                let blocks = (skipped + source_bytes).div_ceil(mx::BLOCK);
                // SAFETY: as above; these are the blocks that the run has a part in.
                let (source, scales, target) = unsafe {
                    (
                        std::slice::from_raw_parts(source.add(from as usize), source_bytes),
                        std::slice::from_raw_parts(scales.add(first / mx::BLOCK), blocks),
                        std::slice::from_raw_parts_mut(target.add(to as usize), bytes),
                    )
                };
                restore(source, skipped, scales, target);
            }),
        }
    }

    /// Copies several boxes of this shape in one pass: the first run of each, then the second of
    /// each.
    ///
    /// One box alone may be every other line of its source's rows. The memory delivers the lines
    /// between as well, and they may be gone when their box is copied. Row by row, all of the
    /// source is read once and in order, which a processor also predicts best. See
    /// [`shares_rows`](Self::shares_rows).
    ///
    /// # Safety
    /// As [`run`](Self::run), for each of them; targets do not overlap one another.
    ///
    /// # Panics
    /// If the plan's elements differ in size.
    pub unsafe fn run_fan(&self, parts: &[Part], store: Store) {
        let bytes = self.run_bytes() as usize;
        assert_eq!(bytes, self.source_run_bytes() as usize, "a copy that must convert: {self:?}");
        let are_lines = store == Store::Streaming
            && parts.iter().all(|&(_, target)| stream::has_whole_lines(self, target));
        // Runs of a few sizes, which are common, are worth a loop of their own: a call of memcpy
        // for each would cost more than the bytes.
        //
        // SAFETY: in every arm, the caller's promise is passed on.
        unsafe {
            match bytes {
                _ if are_lines => stream::copy_lines(self, parts),
                1 => self.run_fixed::<1>(parts),
                2 => self.run_fixed::<2>(parts),
                4 => self.run_fixed::<4>(parts),
                8 => self.run_fixed::<8>(parts),
                16 => self.run_fixed::<16>(parts),
                32 => self.run_fixed::<32>(parts),
                64 => self.run_fixed::<64>(parts),
                128 => self.run_fixed::<128>(parts),
                _ => self.for_each_part(parts, |from, to| stream::copy_run(from, to, bytes, store)),
            }
        }
    }

    /// Returns `true` if two boxes of this shape at a distance of `distance` bytes are better
    /// copied in one pass.
    pub fn shares_rows(&self, distance: u64) -> bool {
        let row_bytes = self.loops().last().map_or(0, |inner| inner.source_stride.unsigned_abs());
        distance < row_bytes && self.source_run_bytes() <= tuning::FAN_RUN_BYTES_MAX
    }

    /// # Safety
    /// As [`run_fan`](Self::run_fan), with runs of `BYTES`.
    unsafe fn run_fixed<const BYTES: usize>(&self, parts: &[Part]) {
        // SAFETY: each run lies within the spans that the caller vouches for.
        unsafe {
            self.for_each_part(parts, |from, to| std::ptr::copy_nonoverlapping(from, to, BYTES));
        }
    }

    /// Calls `run` with source and target of every run: the first of each part, then the second of
    /// each.
    ///
    /// # Safety
    /// The spans of the plan lie within what every part points to.
    #[inline(always)]
    unsafe fn for_each_part(&self, parts: &[Part], mut run: impl FnMut(*const u8, *mut u8)) {
        // SAFETY: the run lies within the span of its part.
        let mut one = |(source, target): Part, from: u64, to: u64| unsafe {
            run(source.add(from as usize), target.add(to as usize));
        };
        // Runs of a line each are most of the work of packing, where a loop around each of them
        // costs as much as the bytes.
        if let [only] = *parts {
            return self.for_each_run(|from, to| one(only, from, to));
        }
        self.for_each_run(|from, to| parts.iter().for_each(|&part| one(part, from, to)));
    }
}
