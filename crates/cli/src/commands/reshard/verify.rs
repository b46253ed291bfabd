//! `syncline reshard verify`.

use syncline::checkpoint::{Checkpoint, CheckpointError, unproven, verify};
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
                writeln!(out, "{}", one_line(&cause.to_string()))?;
                Ok(Outcome::Found)
            });
        }
        Err(error) => return Err(error.into()),
    };
    let doubts = unproven(&target, &source);
    to_standard_output(|out| {
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
            writeln!(
                out,
                "{} tensors are the same, every element",
                target.layout().tensors().len()
            )?;
            let is_right = doubts.is_empty() || args.allow_unproven;
            return Ok(if is_right { Outcome::Success } else { Outcome::Found });
        }
        writeln!(out, "{} shards differ", differences.len())?;
        Ok(Outcome::Found)
    })
}
