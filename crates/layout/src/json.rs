//! Plans with their schedule in JSON, `syncline-transfers`.

use std::io::{self, Write};

use serde::Serialize;

use crate::dims::NdBox;
use crate::number::Number;
use crate::schedule::Schedule;
use crate::transfer::{TransferOp, TransferPlan};

/// A box as spans of start and stop.
type Spans = Vec<[Number; 2]>;

#[derive(Serialize)]
struct OpForm<'a> {
    id: Number,
    tensor: &'a str,
    src: u32,
    dst: u32,
    src_box: Spans,
    dst_box: Spans,
    bytes: Number,
    round: Option<u32>,
    batch: Option<u32>,
    segment: Option<u32>,
    slot_offset: Option<Number>,
}

/// Where a segment is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Packed {
    round: u32,
    /// Counts the batches of a pair.
    batch: u32,
    /// Counts the segments of a batch.
    segment: u32,
    /// Bytes from the start of the slot.
    offset: u64,
}

#[derive(Serialize)]
struct TotalsForm {
    rounds: u32,
    rounds_lower_bound: u32,
    bytes_total: Number,
    bytes_moved: Number,
    world: u32,
    slot_bytes: Number,
    fingerprint: String,
}

/// Writes `plan` as `schedule` carries it out: a transfer that is cut to fit slots is one op for
/// each box of its parts, with the round, the batch of the pair, the segment of the batch and the
/// place in the slot at which it is packed.
///
/// Everything is written as it is made, so that plans of any size can be printed.
pub fn write_transfers(
    plan: &TransferPlan,
    schedule: &Schedule,
    out: &mut impl Write,
) -> io::Result<()> {
    out.write_all(b"{\"format\":\"syncline-transfers\",\"version\":1,\"ops\":[")?;
    let mut parts: Vec<(u32, u64, u64, Option<Packed>)> = (0u32..)
        .zip(plan.ops())
        .filter(|(_, op)| op.is_self_move())
        .map(|(at, op)| (at, 0, plan.copy_box(op).elements(), None))
        .collect();
    for batch in schedule.batches() {
        parts.extend((0u32..).zip(&batch.segments).map(|(segment, part)| {
            let (round, batch, offset) = (batch.round, batch.number, part.offset);
            (part.op, part.first, part.count, Some(Packed { round, batch, segment, offset }))
        }));
    }
    parts.sort_unstable();
    let mut id = 0;
    for (op, first, count, mut packed) in parts {
        let op = &plan.ops()[op as usize];
        for part in plan.copy_box(op).boxes(first..first + count) {
            out.write_all(if id == 0 { b"\n" } else { b",\n" })?;
            let form = op_form(plan, op, &part, id, packed);
            serde_json::to_writer(&mut *out, &form)?;
            // The boxes of a segment lie one behind the other.
            packed.iter_mut().for_each(|packed| packed.offset += form.bytes.0);
            id += 1;
        }
    }
    let totals = TotalsForm {
        rounds: schedule.rounds(),
        rounds_lower_bound: schedule.rounds_lower_bound(),
        bytes_total: Number(plan.bytes_total()),
        bytes_moved: Number(plan.bytes_moved()),
        world: plan.world(),
        slot_bytes: Number(schedule.slot_bytes()),
        fingerprint: format!("{:016x}", plan.fingerprint()),
    };
    let totals = serde_json::to_string(&totals)?;
    // The totals are members of the outer object: their own braces go.
    writeln!(out, "],\n{}", &totals[1..])
}

fn op_form<'a>(
    plan: &'a TransferPlan,
    op: &TransferOp,
    part: &NdBox,
    id: u64,
    packed: Option<Packed>,
) -> OpForm<'a> {
    let tensor = plan.tensor(op);
    let spans = |place: &NdBox| {
        let span = |dim: usize| [Number(place.start[dim]), Number(place.stop(dim))];
        (0..place.start.len()).map(span).collect()
    };
    let (source, target) = plan.boxes(op, part);
    OpForm {
        id: Number(id),
        tensor: &tensor.name,
        src: op.src,
        dst: op.dst,
        src_box: spans(&source),
        dst_box: spans(&target),
        bytes: Number(part.volume() * tensor.unit_bytes()[1]),
        round: packed.map(|packed| packed.round),
        batch: packed.map(|packed| packed.batch),
        segment: packed.map(|packed| packed.segment),
        slot_offset: packed.map(|packed| Number(packed.offset)),
    }
}
