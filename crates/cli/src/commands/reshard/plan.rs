//! `syncline reshard plan`.

use std::path::Path;

use syncline::layout::{
    Layout, LayoutError, LayoutFile, PlanOptions, Schedule, TransferPlan, write_transfers,
};

use super::{Format, PlanArgs, simulate, text};
use crate::input::{name_of, read_bytes};
use crate::outcome::{Failure, Outcome};
use crate::output::to_standard_output;

pub(super) fn run(args: &PlanArgs) -> Result<Outcome, Failure> {
    let (from, to) = load_pair(&args.from, &args.to)?;
    let failed = |error: LayoutError| Failure::Reshard(Box::new(error));
    let options = PlanOptions::default();
    let options = if args.convert { options.convert_all() } else { options };
    let plan = TransferPlan::new(&from, &to, &options).map_err(failed)?;
    let schedule = Schedule::new(&plan, args.slot_bytes).map_err(failed)?;
    let format = if args.json { Format::Json } else { args.format };
    if let Some(cluster) = &args.simulate {
        return simulate::run(cluster, &plan, &schedule, format);
    }
    to_standard_output(|mut out| {
        match format {
            Format::Json => write_transfers(&plan, &schedule, &mut out)?,
            Format::Text => text::print(&plan, &schedule, args.full, out)?,
        }
        Ok(Outcome::Success)
    })
}

/// Reads both layouts; a mesh that names no tensors takes the other's.
pub(super) fn load_pair(from: &Path, to: &Path) -> Result<(Layout, Layout), Failure> {
    let (source, target) = (load(from)?, load(to)?);
    let (source_specs, target_specs) = (source.specs(), target.specs());
    if source_specs.is_empty() && target_specs.is_empty() {
        let both_mesh = matches!((&source, &target), (LayoutFile::Mesh(_), LayoutFile::Mesh(_)));
        if both_mesh {
            return Err(Failure::Usage(format!(
                "neither {} nor {} names tensors: add [[weight]] entries with name, dtype and shape, or give one in explicit form",
                name_of(from),
                name_of(to)
            )));
        }
    }
    Ok((
        source.resolve(&target_specs).map_err(in_file(from))?,
        target.resolve(&source_specs).map_err(in_file(to))?,
    ))
}

/// Reads one layout file; of a sharded checkpoint, the layout in it.
pub(super) fn load(path: &Path) -> Result<LayoutFile, Failure> {
    let inside = path.join("layout.json");
    let path = if path.is_dir() { &inside } else { path };
    let bytes = read_bytes(path)?;
    let text = std::str::from_utf8(&bytes).map_err(|error| {
        let place = format!("byte {}", error.valid_up_to());
        in_file(path)(LayoutError::Syntax { place, cause: "expected UTF-8 text".to_owned() })
    })?;
    LayoutFile::parse(text).map_err(in_file(path))
}

pub(super) fn in_file(path: &Path) -> impl Fn(LayoutError) -> Failure {
    move |source| Failure::Layout { file: name_of(path), source: Box::new(source) }
}
