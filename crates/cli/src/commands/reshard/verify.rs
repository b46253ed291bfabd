//! `syncline reshard verify`.

use serde_json::{Value, json};
use syncline::checkpoint::{Checkpoint, CheckpointError, Difference, unproven, verify};
use syncline_files::one_line;

use super::maps::mapped;
use super::{VerifyArgs, open};
use crate::outcome::{Failure, Outcome};
use crate::output::to_standard_output;

/// Differences that are listed; the rest are counted.
const LINES_MAX: usize = 50;

pub(super) fn run(args: &VerifyArgs) -> Result<Outcome, Failure> {
    let source = mapped(open(&args.source, args.prefix.as_deref())?, &args.maps, true)?;
    let target = Checkpoint::open(&args.destination)?;
    let differences = match verify(&source, &target) {
        Ok(differences) => differences,
        // Tensors that do not match at all are a finding, not a failure to read.
        Err(CheckpointError::Reshard(cause)) => {
            return to_standard_output(|out| {
                let cause = cause.to_string();
                match args.json {
                    true => writeln!(out, "{:#}", document(0, &[], &[], Some(&cause)))?,
                    false => writeln!(out, "{}", one_line(&cause))?,
                }
                Ok(Outcome::Found)
            });
        }
        Err(error) => return Err(error.into()),
    };
    let doubts = unproven(&target, &source);
    let is_right = differences.is_empty() && (doubts.is_empty() || args.allow_unproven);
    let outcome = if is_right { Outcome::Success } else { Outcome::Found };
    let tensors = target.layout().tensors().len();
    to_standard_output(|out| {
        if args.json {
            writeln!(out, "{:#}", document(tensors, &differences, &doubts, None))?;
            return Ok(outcome);
        }
        for doubt in &doubts {
            writeln!(out, "unproven {}", one_line(doubt))?;
        }
        for one in differences.iter().take(LINES_MAX) {
            let (tensor, rank, index) = (one_line(&one.tensor), one.rank, &one.index);
            writeln!(
                out,
                "tensor `{tensor}`, rank {rank}: differs first at element {} {index:?}: {} for {}; \
                 {} elements differ",
                one.element, one.held, one.expected, one.count
            )?;
        }
        if differences.is_empty() {
            writeln!(out, "{tensors} tensors are the same, every element")?;
            return Ok(outcome);
        }
        writeln!(out, "{} shards differ", differences.len())?;
        Ok(outcome)
    })
}

/// The findings for programs; `mismatch` says why the tensors cannot be compared at all.
fn document(
    tensors: usize,
    differences: &[Difference],
    doubts: &[String],
    mismatch: Option<&str>,
) -> Value {
    let difference =
        |one: &Difference| json!({"tensor": one.tensor, "rank": one.rank, "element": one.element});
    let differences: Vec<Value> = differences.iter().map(difference).collect();
    json!({"format": "syncline-verification", "version": 1, "tensors": tensors,
           "differences": differences, "unproven": doubts, "mismatch": mismatch})
}
