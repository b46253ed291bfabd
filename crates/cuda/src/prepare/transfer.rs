//! Copies and fills: the driver's flat and rectangular ones, and pinned slots between the device
//! and other memory.

use std::sync::Arc;

use syncline_backend::driver::{host_start, refuse_between_hosts};
use syncline_copy::{CopyPlan, Loop};
use syncline_device::{Copy, DeviceError, Fill, Pattern};

use super::Preparer;
use crate::api::Pinned;
use crate::command::{Call, Op, Place, Rows, Set, Slot, Unit};

/// The most that a copy takes of a pinned slot at a time.
const SLOT_BYTES: u64 = 16 << 20;

impl Preparer {
    pub(crate) fn prepare_copy(&self, copy: &Copy, ops: &mut Vec<Op>) -> Result<(), DeviceError> {
        let plan = CopyPlan::new(copy.source.view(), copy.target.view())?;
        let (source, target) = (host_start(&copy.source)?, host_start(&copy.target)?);
        match (source, target) {
            (Some(_), Some(_)) => Err(refuse_between_hosts(self.context.spec)),
            (Some(source), None) => {
                let target = Place::Device(self.memory(&copy.target)?.start());
                self.upload(&plan, source, target, ops)
            }
            (None, Some(target)) => {
                let source = Place::Device(self.memory(&copy.source)?.start());
                self.download(&plan, source, target, ops)
            }
            (None, None) => {
                let source = Place::Device(self.memory(&copy.source)?.start());
                let target = Place::Device(self.memory(&copy.target)?.start());
                let within = copy.source.buffer().id() == copy.target.buffer().id();
                if within && !plan.is_disjoint() {
                    return self.copy_through(&plan, source, target, ops);
                }
                rows(&plan, source, target, ops);
                Ok(())
            }
        }
    }

    /// As if all were read before anything is written, by way of a pinned slot.
    fn copy_through(
        &self,
        plan: &CopyPlan,
        source: Place,
        target: Place,
        ops: &mut Vec<Op>,
    ) -> Result<(), DeviceError> {
        let (out, back) = plan.through_packed();
        let slot = self.slot(plan.bytes())?;
        let packed = Place::Pinned(slot.start());
        rows(&out, source, packed, ops);
        rows(&back, packed, target, ops);
        ops.push(Op::Keep(slot));
        Ok(())
    }

    /// From memory of the host: our code packs, the device takes the packed bytes.
    fn upload(
        &self,
        plan: &CopyPlan,
        source: *mut u8,
        target: Place,
        ops: &mut Vec<Op>,
    ) -> Result<(), DeviceError> {
        if plan.bytes() == 0 {
            return Ok(());
        }
        let slot = self.slot(plan.bytes().min(SLOT_BYTES))?;
        for part in plan.parts(SLOT_BYTES) {
            let (out, back) = part.through_packed();
            ops.push(call(out, source, slot.start(), &slot));
            rows(&back, Place::Pinned(slot.start()), target, ops);
        }
        ops.push(Op::Keep(slot));
        Ok(())
    }

    /// To memory of the host: the device packs, our code puts where it belongs.
    fn download(
        &self,
        plan: &CopyPlan,
        source: Place,
        target: *mut u8,
        ops: &mut Vec<Op>,
    ) -> Result<(), DeviceError> {
        if plan.bytes() == 0 {
            return Ok(());
        }
        let slot = self.slot(plan.bytes().min(SLOT_BYTES))?;
        for part in plan.parts(SLOT_BYTES) {
            let (out, back) = part.through_packed();
            rows(&out, source, Place::Pinned(slot.start()), ops);
            ops.push(call(back, slot.start(), target, &slot));
        }
        Ok(())
    }

    pub(crate) fn prepare_fill(&self, fill: &Fill, ops: &mut Vec<Op>) -> Result<(), DeviceError> {
        let start = self.memory(&fill.target)?.start();
        let view = fill.target.view();
        // The runs of the view, forwards.
        let plan = CopyPlan::new(view, view)?;
        if plan.bytes() == 0 {
            return Ok(());
        }
        let size = fill.pattern.bytes().len() as u64;
        let elements = Loop {
            count: plan.run_bytes() / size,
            source_stride: size as i64,
            target_stride: size as i64,
        };
        let mut loops = plan.loops().to_vec();
        loops.push(elements);
        // Rows of elements along the longest loop, whichever it is: each is one command.
        let longest = (0..loops.len()).max_by_key(|&at| loops[at].count).unwrap_or(0);
        let row = loops.remove(longest);
        Loop::unroll(&loops, 0, plan.target_offset() as i64, &mut |_, to| {
            for (offset, unit) in units(&fill.pattern, to as u64, row.target_stride as u64) {
                let (target, pitch) = (start + to as u64 + offset, row.target_stride as usize);
                ops.push(Op::Set(Set { target, unit, pitch, count: row.count as usize }));
            }
        });
        Ok(())
    }

    /// A pinned slot of at least `bytes` bytes.
    fn slot(&self, bytes: u64) -> Result<Arc<Slot>, DeviceError> {
        let (pool, primary) = (&self.context.pinned, &self.context.primary);
        let pinned = pool.take(bytes, |bytes| Pinned::new(primary, bytes))?;
        Ok(Slot::new(pinned, pool))
    }
}

fn call(plan: CopyPlan, source: *const u8, target: *mut u8, slot: &Arc<Slot>) -> Op {
    Op::Call(Box::new(Call { plan, source, target, slot: slot.clone() }))
}

/// A plan as rectangles: the innermost loop where the driver can express it, the others unrolled.
fn rows(plan: &CopyPlan, source: Place, target: Place, ops: &mut Vec<Op>) {
    if plan.bytes() == 0 {
        return;
    }
    let (bytes, loops) = (plan.run_bytes() as usize, plan.loops());
    let pitch = |stride: i64| usize::try_from(stride).ok().filter(|&pitch| pitch >= bytes);
    let row = loops.last().and_then(|row| {
        let (source, target) = (pitch(row.source_stride)?, pitch(row.target_stride)?);
        // What the driver takes as the distance between rows has a limit, which is at least this.
        (source.max(target) <= i32::MAX as usize).then_some((row.count as usize, source, target))
    });
    let (outer, (count, source_pitch, target_pitch)) = match row {
        Some(row) => (&loops[..loops.len() - 1], row),
        None => (loops, (1, bytes, bytes)),
    };
    Loop::unroll(
        outer,
        plan.source_offset() as i64,
        plan.target_offset() as i64,
        &mut |from, to| {
            let (source, target) = (source.at(from as u64), target.at(to as u64));
            ops.push(Op::Copy(Rows { source, target, bytes, count, source_pitch, target_pitch }));
        },
    );
}

/// A pattern as units that can be set, with their places in it: as large as the places of the
/// elements allow, which begin at `start`, every `stride` bytes. Buffers begin at multiples
/// of more than any unit.
fn units(pattern: &Pattern, start: u64, stride: u64) -> Vec<(u64, Unit)> {
    let bytes = pattern.bytes();
    let aligned = 1usize << (bytes.len() as u64 | start | stride).trailing_zeros().min(2);
    let unit = |part: &[u8]| match part {
        [a, b, c, d] => Unit::Four(u32::from_le_bytes([*a, *b, *c, *d])),
        [a, b] => Unit::Two(u16::from_le_bytes([*a, *b])),
        part => Unit::One(part[0]),
    };
    let parts = bytes.chunks(aligned).zip((0..).step_by(aligned));
    parts.map(|(part, at)| (at, unit(part))).collect()
}

#[cfg(test)]
mod tests {
    use syncline_tensor::{Dtype, View};
    use syncline_testing::{Rng, for_seeds};

    use super::*;

    /// Carries out copies and sets on plain memory, in place of a device.
    fn carry_out(ops: &[Op], memory: &mut [u8], source: &[u8]) {
        for op in ops {
            match op {
                Op::Copy(rows) => {
                    let (Place::Device(from), Place::Device(to)) = (rows.source, rows.target)
                    else {
                        panic!("not between buffers of the device")
                    };
                    for row in 0..rows.count {
                        let from = from as usize + row * rows.source_pitch;
                        let to = to as usize + row * rows.target_pitch;
                        memory[to..to + rows.bytes]
                            .copy_from_slice(&source[from..from + rows.bytes]);
                    }
                }
                Op::Set(set) => {
                    for number in 0..set.count {
                        let to = set.target as usize + number * set.pitch;
                        assert_eq!(to % set.unit.bytes(), 0, "a unit that is not aligned");
                        match set.unit {
                            Unit::One(value) => memory[to] = value,
                            Unit::Two(value) => {
                                memory[to..to + 2].copy_from_slice(&value.to_le_bytes());
                            }
                            Unit::Four(value) => {
                                memory[to..to + 4].copy_from_slice(&value.to_le_bytes());
                            }
                        }
                    }
                }
                _ => panic!("neither a copy nor a set"),
            }
        }
    }

    /// A view of `shape` in any order of dimensions, with gaps and reversals.
    fn strided(rng: &mut Rng, dtype: Dtype, shape: &[u64]) -> View {
        let mut order: Vec<usize> = (0..shape.len()).collect();
        rng.shuffle(&mut order);
        let mut strides = vec![0i64; shape.len()];
        let (mut extent, mut offset) = (dtype.bytes(), rng.range(0..9));
        for dim in order {
            let stride = extent + rng.range(0..5);
            strides[dim] = stride as i64;
            extent = stride * shape[dim];
            if rng.one_in(4) {
                strides[dim] = -strides[dim];
                offset += stride * (shape[dim] - 1);
            }
        }
        View::strided(dtype, offset, shape, &strides).unwrap()
    }

    fn places(view: &View) -> Vec<usize> {
        let place_of = |number: u64| {
            let (mut rest, mut place) = (number, view.offset() as i64);
            for (&size, &stride) in view.shape().iter().zip(view.strides()).rev() {
                place += (rest % size) as i64 * stride;
                rest /= size;
            }
            place as usize
        };
        (0..view.elements()).map(place_of).collect()
    }

    fn random_pair(rng: &mut Rng) -> (View, View, usize) {
        let dtype = *rng.pick(&[Dtype::U8, Dtype::F16, Dtype::F32, Dtype::F64]);
        let shape: Vec<u64> = (0..rng.range(0..4)).map(|_| rng.range(1..7)).collect();
        let (one, other) = (strided(rng, dtype, &shape), strided(rng, dtype, &shape));
        let end = |view: &View| view.span().unwrap().1 as usize;
        (one, other, end(&one).max(end(&other)) + 3)
    }

    #[test]
    fn rectangles_copy_what_the_views_say() {
        for_seeds("rectangles_copy_what_the_views_say", 500, |rng| {
            let (from, to, bytes) = random_pair(rng);
            let source: Vec<u8> = (0..bytes).map(|at| at as u8).collect();
            let (mut found, mut expected) = (vec![0xee; bytes], vec![0xee; bytes]);
            let size = from.dtype().bytes() as usize;
            for (read, write) in places(&from).into_iter().zip(places(&to)) {
                expected[write..write + size].copy_from_slice(&source[read..read + size]);
            }
            let mut ops = Vec::new();
            let plan = CopyPlan::new(&from, &to).unwrap();
            rows(&plan, Place::Device(0), Place::Device(0), &mut ops);
            carry_out(&ops, &mut found, &source);
            assert_eq!(found, expected, "{from:?} to {to:?}");
        });
    }

    #[test]
    fn units_are_aligned_and_make_up_the_pattern() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8];
        for size in [1usize, 2, 4, 8] {
            for (start, stride) in [(0, 8), (4, 8), (2, 6), (1, 9), (3, 64), (8, 16)] {
                if stride < size as u64 {
                    continue;
                }
                let pattern = Pattern::new(&bytes[..size]).unwrap();
                let mut memory = vec![0u8; 64 * 4];
                let ops: Vec<Op> = units(&pattern, start, stride)
                    .into_iter()
                    .map(|(offset, unit)| {
                        let target = start + offset;
                        Op::Set(Set { target, unit, pitch: stride as usize, count: 3 })
                    })
                    .collect();
                carry_out(&ops, &mut memory, &[]);
                for number in 0..3 {
                    let at = (start + number * stride) as usize;
                    assert_eq!(memory[at..at + size], bytes[..size], "{size} at {start}, {stride}");
                }
            }
        }
    }
}
