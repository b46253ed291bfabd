//! Plans for people: totals, rounds, PEs, transfers.

use std::io::{self, Write};

use syncline::layout::{NdBox, Schedule, TransferPlan};
use syncline_files::one_line;

use super::size::show;

/// Lines of each table that are shown unless all are asked for.
const LINES_MAX: usize = 64;

pub(super) fn print(
    plan: &TransferPlan,
    schedule: &Schedule,
    full: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let lines = if full { usize::MAX } else { LINES_MAX };
    totals(plan, schedule, out)?;
    rounds(schedule, lines, out)?;
    batches(schedule, lines, out)?;
    ranks(plan, lines, out)?;
    transfers(plan, schedule, lines, out)
}

fn totals(plan: &TransferPlan, schedule: &Schedule, out: &mut dyn Write) -> io::Result<()> {
    let kept = plan.ops().iter().filter(|op| op.is_self_move()).count();
    let (total, moved) = (plan.bytes_total(), plan.bytes_moved());
    writeln!(out, "PEs          {}", plan.world())?;
    writeln!(out, "tensors      {}", plan.tensors().len())?;
    writeln!(out, "transfers    {} between PEs, {kept} within one", plan.ops().len() - kept)?;
    writeln!(out, "bytes        {} written, {} moved between PEs", show(total), show(moved))?;
    writeln!(
        out,
        "rounds       {} (lower bound {}), {} batches in slots of {}",
        schedule.rounds(),
        schedule.rounds_lower_bound(),
        schedule.batches().len(),
        show(schedule.slot_bytes())
    )?;
    writeln!(out, "fingerprint  {:016x}", plan.fingerprint())
}

fn rounds(schedule: &Schedule, lines: usize, out: &mut dyn Write) -> io::Result<()> {
    if schedule.rounds() == 0 {
        return Ok(());
    }
    let mut sums = vec![(0usize, 0u64); schedule.rounds() as usize];
    for batch in schedule.batches() {
        let sum = &mut sums[batch.round as usize];
        sum.0 += 1;
        sum.1 += batch.bytes;
    }
    writeln!(out, "\nround  batches         bytes       largest")?;
    for (round, (batches, bytes)) in sums.iter().enumerate().take(lines) {
        let largest = show(schedule.round_bytes_max()[round]);
        writeln!(out, "{round:>5}  {batches:>7}  {:>12}  {largest:>12}", show(*bytes))?;
    }
    more(sums.len(), lines, "rounds", out)
}

/// What each slot carries, and how full it is.
fn batches(schedule: &Schedule, lines: usize, out: &mut dyn Write) -> io::Result<()> {
    let all = schedule.batches();
    if all.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nround    PEs         batch         bytes   of slot  segments")?;
    for batch in all.iter().take(lines) {
        let peers = format!("{} -> {}", batch.src, batch.dst);
        let filled = batch.bytes as f64 / schedule.slot_bytes() as f64 * 100.0;
        writeln!(
            out,
            "{:>5}  {peers:<10}  {:>5}  {:>12}  {filled:>7.1}%  {:>8}",
            batch.round,
            batch.number,
            show(batch.bytes),
            batch.segments.len()
        )?;
    }
    more(all.len(), lines, "batches", out)
}

fn ranks(plan: &TransferPlan, lines: usize, out: &mut dyn Write) -> io::Result<()> {
    let (sent, received) = plan.traffic().by_rank(plan.world());
    let mut kept = vec![0; sent.len()];
    for op in plan.ops().iter().filter(|op| op.is_self_move()) {
        kept[op.dst as usize] += plan.bytes(op);
    }
    writeln!(out, "\n   PE         sends      receives         keeps")?;
    for rank in 0..sent.len().min(lines) {
        let [sent, received, kept] = [sent[rank], received[rank], kept[rank]].map(show);
        writeln!(out, "{rank:>5}  {sent:>12}  {received:>12}  {kept:>12}")?;
    }
    more(sent.len(), lines, "PEs", out)
}

fn transfers(
    plan: &TransferPlan,
    schedule: &Schedule,
    lines: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut parts: Vec<(Option<(u32, u64)>, u32, u64, u64)> = (0u32..)
        .zip(plan.ops())
        .filter(|(_, op)| op.is_self_move())
        .map(|(at, op)| (None, at, 0, plan.copy_box(op).elements()))
        .collect();
    for batch in schedule.batches() {
        let segments = batch.segments.iter();
        let place = |offset| Some((batch.round, offset));
        parts.extend(segments.map(|part| (place(part.offset), part.op, part.first, part.count)));
    }
    writeln!(out, "\nround    PEs           bytes  what")?;
    for &(place, op, first, count) in parts.iter().take(lines) {
        let op = &plan.ops()[op as usize];
        let (copy, tensor) = (plan.copy_box(op), plan.tensor(op));
        let round = place.map_or("stays".to_owned(), |(round, _)| round.to_string());
        let bytes = show(count * tensor.unit_bytes()[1]);
        let peers = format!("{} -> {}", op.src, op.dst);
        write!(out, "{round:>5}  {peers:<10}  {bytes:>12}  {}", one_line(&tensor.name))?;
        let (source, target) = plan.boxes(op, &NdBox::whole(copy.size));
        write!(out, " {source} -> {target}")?;
        if count < copy.elements() {
            write!(out, ", elements {first}..{} of {}", first + count, copy.elements())?;
        }
        if let Some((_, offset)) = place {
            write!(out, ", at byte {offset} of the slot")?;
        }
        writeln!(out)?;
    }
    more(parts.len(), lines, "transfers", out)
}

fn more(count: usize, lines: usize, what: &str, out: &mut dyn Write) -> io::Result<()> {
    if count <= lines {
        return Ok(());
    }
    writeln!(out, "  ... and {} more {what}: --full lists all", count - lines)
}
