//! Copies and fills: the driver's own commands where they can express it, our own code or a kernel
//! elsewhere.

use syncline_backend::driver::{host_start, refuse_between_hosts};
use syncline_copy::{CopyPlan, Loop};
use syncline_device::{BufferView, Copy, DeviceError, Fill, Memory};
use syncline_tensor::View;

use super::{Preparer, start};
use crate::command::{Hold, Launch, Native, Op, Place, Rows};

/// One side of a copy.
enum Side<'a> {
    Device(&'a crate::memory::OpenClMemory),
    Host(*mut u8),
}

/// Work items of a copy kernel's group.
const GROUP: usize = 64;
/// From this size on our own copies, which go past the cache, are faster than the driver's.
const NATIVE_BYTES: u64 = 8 << 20;

impl Preparer {
    pub(crate) fn prepare_copy(&self, copy: &Copy, ops: &mut Vec<Op>) -> Result<(), DeviceError> {
        let plan = CopyPlan::new(copy.source.view(), copy.target.view())?;
        let (source, target) = (self.side(&copy.source)?, self.side(&copy.target)?);
        if plan.bytes() == 0 {
            return Ok(());
        }
        let within = copy.source.buffer().id() == copy.target.buffer().id();
        let overlaps = within && !plan.is_disjoint();
        let is_flat = plan.loops().is_empty();
        if self.context.direct && (!is_flat || overlaps || plan.bytes() >= NATIVE_BYTES) {
            let (from, to) = (address(&source), address(&target));
            ops.push(Op::Native(Box::new(match within {
                true => Native::Within { plan, base: to },
                false => Native::Copy { plan, source: from, target: to },
            })));
            return Ok(());
        }
        if overlaps {
            let (out, back) = plan.through_packed();
            let packed = self.scratch.take(plan.bytes())?;
            let Side::Device(memory) = target else {
                return Err(refuse_between_hosts(self.spec()));
            };
            ops.push(self.copy_by_kernel(&out, start(memory, 0), start(&packed, 0), Vec::new())?);
            let place = start(&packed, 0);
            ops.push(self.copy_by_kernel(
                &back,
                place,
                start(memory, 0),
                vec![Hold::Pooled(packed)],
            )?);
            return Ok(());
        }
        match (source, target) {
            (Side::Device(source), Side::Device(target)) => {
                let (source, target) = (start(source, 0), start(target, 0));
                match rows(&plan, plan.loops()) {
                    Some(rows) => ops.push(between_buffers(&plan, rows, source, target)),
                    None => ops.push(self.copy_by_kernel(&plan, source, target, Vec::new())?),
                }
                Ok(())
            }
            (Side::Host(source), Side::Device(target)) => {
                self.runs_of_host(&plan, |rows, from, to| {
                    let (source, target) = (source.wrapping_add(from), start(target, to as u64));
                    ops.push(match rows.is_flat() {
                        true => Op::Upload { source, target, bytes: rows.bytes },
                        false => Op::UploadRows { source, target, rows },
                    });
                });
                Ok(())
            }
            (Side::Device(source), Side::Host(target)) => {
                self.runs_of_host(&plan, |rows, from, to| {
                    let (source, target) = (start(source, from as u64), target.wrapping_add(to));
                    ops.push(match rows.is_flat() {
                        true => Op::Download { source, target, bytes: rows.bytes },
                        false => Op::DownloadRows { source, target, rows },
                    });
                });
                Ok(())
            }
            (Side::Host(_), Side::Host(_)) => Err(refuse_between_hosts(self.spec())),
        }
    }

    pub(crate) fn prepare_fill(&self, fill: &Fill, ops: &mut Vec<Op>) -> Result<(), DeviceError> {
        let view = fill.target.view();
        let memory = self.memory(&fill.target)?;
        if view.is_empty() {
            return Ok(());
        }
        let pattern = fill.pattern;
        let bytes = pattern.bytes().len() as u64;
        if view.is_contiguous() && view.offset().is_multiple_of(bytes) {
            let target = start(memory, view.offset());
            ops.push(Op::Fill { target, pattern, bytes: view.bytes() as usize });
            return Ok(());
        }
        if self.context.direct {
            let base = address(&Side::Device(memory));
            ops.push(Op::Native(Box::new(Native::Fill { base, view: *view, pattern })));
            return Ok(());
        }
        // The pattern as an element that is read again and again.
        let (mem, held) = self.block(pattern.bytes())?;
        let strides = vec![0; view.rank()];
        let source = View::strided(view.dtype(), 0, view.shape(), &strides);
        let source = source.expect("all elements in one place");
        let plan = CopyPlan::new(&source, view)?;
        let source = Place { mem, offset: 0 };
        ops.push(self.copy_by_kernel(&plan, source, start(memory, 0), vec![held])?);
        Ok(())
    }

    fn side<'a>(&self, view: &'a BufferView) -> Result<Side<'a>, DeviceError> {
        match host_start(view)? {
            Some(start) => Ok(Side::Host(start)),
            None => Ok(Side::Device(self.memory(view)?)),
        }
    }

    /// A launch that copies unit by unit whatever the plan says.
    fn copy_by_kernel(
        &self,
        plan: &CopyPlan,
        source: Place,
        target: Place,
        mut holds: Vec<Hold>,
    ) -> Result<Op, DeviceError> {
        let unit = unit_bytes(plan);
        let entry = self.copy_kernel(unit)?;
        let kernel = self.take(&entry)?;
        let units = plan.bytes() / unit;
        let mut words = vec![units, plan.loops().len() as u64 + 1];
        words.extend([plan.source_offset(), plan.target_offset()]);
        words.extend([plan.run_bytes() / unit, unit, unit]);
        for of in plan.loops().iter().rev() {
            words.extend([of.count, of.source_stride as u64, of.target_stride as u64]);
        }
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let (block, held) = self.block(&bytes)?;
        holds.push(held);
        for (number, mem) in [source.mem, target.mem, block].iter().enumerate() {
            self.set(&kernel, number, mem)?;
        }
        let global = [(units as usize).next_multiple_of(GROUP), 1, 1];
        Ok(Op::Launch(Launch { kernel, global, local: [GROUP, 1, 1], holds }))
    }

    /// Calls `each` for groups of rows that the driver can move between host and device, with the
    /// bytes of the two buffers at which they begin. Loops further out are unrolled: a kernel
    /// cannot reach the host's memory.
    fn runs_of_host(&self, plan: &CopyPlan, mut each: impl FnMut(Rows, usize, usize)) {
        let loops = plan.loops();
        let inner = (0..=loops.len()).find_map(|at| Some((at, rows(plan, &loops[at..])?)));
        let (outer, rows) = inner.expect("a single run is always possible");
        Loop::unroll(
            &loops[..outer],
            plan.source_offset() as i64,
            plan.target_offset() as i64,
            &mut |from, to| each(rows, from as usize, to as usize),
        );
    }
}

fn address(side: &Side<'_>) -> *mut u8 {
    match side {
        Side::Host(start) => *start,
        Side::Device(memory) => {
            let start = memory.host_pointer();
            start.expect("the context is direct, so that the host reaches its memory").as_ptr()
        }
    }
}

fn between_buffers(plan: &CopyPlan, rows: Rows, source: Place, target: Place) -> Op {
    let source = Place { offset: plan.source_offset() as usize, ..source };
    let target = Place { offset: plan.target_offset() as usize, ..target };
    match rows.is_flat() {
        true => Op::Copy { source, target, bytes: rows.bytes },
        false => Op::Rows { source, target, rows },
    }
}

/// The runs of a plan inside `loops` as rows, if the driver's commands can express that: at most
/// two loops, forwards, each step at least as long as the loop inside, the outer by whole rows.
fn rows(plan: &CopyPlan, loops: &[Loop]) -> Option<Rows> {
    let bytes = plan.run_bytes() as usize;
    let whole = [bytes, bytes];
    let (count, source, target) = match loops {
        [] => ([1, 1], whole, whole),
        [row] => {
            let (source, target) = (pitch(row.source_stride)?, pitch(row.target_stride)?);
            let rows = row.count as usize;
            let all = |pitch: usize| [pitch, pitch.saturating_mul(rows)];
            ([rows, 1], all(source), all(target))
        }
        [group, row] => {
            let of = |group: i64, row: i64| Some([pitch(row)?, pitch(group)?]);
            let source = of(group.source_stride, row.source_stride)?;
            let target = of(group.target_stride, row.target_stride)?;
            ([row.count as usize, group.count as usize], source, target)
        }
        _ => return None,
    };
    let fits = |[row, group]: [usize; 2]| {
        row >= bytes && group >= row.saturating_mul(count[0]) && group.is_multiple_of(row)
    };
    (fits(source) && fits(target)).then_some(Rows { bytes, count, source, target })
}

fn pitch(stride: i64) -> Option<usize> {
    usize::try_from(stride).ok().filter(|&pitch| pitch > 0)
}

impl Rows {
    fn is_flat(&self) -> bool {
        self.count == [1, 1]
    }
}

/// The largest unit of which all places and sizes are multiples.
fn unit_bytes(plan: &CopyPlan) -> u64 {
    let all = plan.run_bytes() | plan.source_offset() | plan.target_offset();
    let all = plan.loops().iter().fold(all, |all, of| {
        all | of.source_stride.unsigned_abs() | of.target_stride.unsigned_abs()
    });
    1 << all.trailing_zeros().min(3)
}
