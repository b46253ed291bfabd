//! `syncline reshard run`: a checkpoint in another layout.

use std::io::{self, Write};
use std::path::Path;

use syncline_checkpoint::{
    Checkpoint, Conversion, ConversionOptions, Destination, Summary, add_builtin_rules,
    parse_rules, parse_target, target_specs,
};
use syncline_deps::Dtype;
use syncline_reshard::{Layout, LayoutFile, MeshLayout, ReshardError, TensorRule, TensorSpec};

use super::plan::{in_file, load};
use super::progress::ProgressLine;
use super::size::show;
use super::{RunArgs, Transport};
use crate::input::{name_of, read_bytes};
use crate::outcome::{Failure, Outcome, one_line};
use crate::output::to_standard_output;

pub(super) fn run(args: &RunArgs) -> Result<Outcome, Failure> {
    if args.transport != Transport::Local {
        return Err(Failure::Usage(
            "checkpoints are converted by threads that all reach the files: use --transport local"
                .to_owned(),
        ));
    }
    let dtype = args.dtype.as_deref().map(str::parse::<Dtype>).transpose();
    let dtype = dtype.map_err(|error| Failure::Usage(format!("--dtype: {error}")))?;
    let source = Checkpoint::open(&args.source)?;
    let specs = target_specs(&source, dtype);
    let (destination, unnamed) = destination(args, &specs)?;
    for name in &unnamed {
        eprintln!("syncline: warning: no rule names `{}`: it is replicated", one_line(name));
    }
    let mut options = ConversionOptions::default();
    options.threads = args.pes.unwrap_or(options.threads).max(1);
    options.slot_bytes = args.slot_bytes.max(64);
    options.dtype = dtype;
    options.resume = args.resume;
    let conversion = Conversion::new(&source, &destination, options)?;
    if args.dry_run {
        return to_standard_output(|out| {
            show_tensors(&source, &destination, &specs, out)?;
            writeln!(out, "{} would be written", show(conversion.bytes()))?;
            Ok(Outcome::Success)
        });
    }
    let progress = ProgressLine::new(conversion.bytes());
    let summary = conversion.run(&args.destination, &|done| progress.update(done));
    progress.finish();
    let summary = summary?;
    to_standard_output(|out| show_summary(&summary, out))
}

/// What to make, and the tensors that no rule names.
fn destination(
    args: &RunArgs,
    specs: &[TensorSpec],
) -> Result<(Destination, Vec<String>), Failure> {
    if args.to == "hf" {
        let destination = Destination::HuggingFace { file_bytes_max: args.file_bytes };
        return Ok((destination, Vec::new()));
    }
    let path = Path::new(&args.to);
    let mut mesh = if path.exists() {
        match load(path)? {
            LayoutFile::Explicit(layout) => return Ok((Destination::Sharded(layout), Vec::new())),
            LayoutFile::Mesh(mesh) => mesh,
        }
    } else {
        MeshLayout::new(parse_target(&args.to)?, Vec::new())
    };
    if let Some(path) = &args.rules {
        mesh.rules.splice(0..0, read_rules(path)?);
    }
    // A layout that has rules of its own says all there is to say.
    if !path.exists() || mesh.rules.is_empty() {
        add_builtin_rules(&mut mesh, specs, &args.source);
    }
    let unnamed = unnamed(&mesh, specs);
    let compiled: Result<Layout, ReshardError> = mesh.compile(specs);
    let layout = compiled.map_err(|error| Failure::Reshard(Box::new(error)))?;
    Ok((Destination::Sharded(layout), unnamed))
}

fn read_rules(path: &Path) -> Result<Vec<TensorRule>, Failure> {
    let bytes = read_bytes(path)?;
    let text = String::from_utf8(bytes)
        .map_err(|_| Failure::Usage(format!("{}: expected UTF-8 text", name_of(path))))?;
    parse_rules(&text).map_err(in_file(path))
}

fn unnamed(mesh: &MeshLayout, specs: &[TensorSpec]) -> Vec<String> {
    let names = specs.iter().map(|spec| &spec.name);
    names.filter(|name| mesh.rule_for(name).is_none()).cloned().collect()
}

fn show_tensors(
    source: &Checkpoint,
    destination: &Destination,
    specs: &[TensorSpec],
    out: &mut dyn Write,
) -> io::Result<()> {
    for spec in specs {
        let before = source.layout().tensor(&spec.name);
        let dtype = before.map_or(spec.dtype, |tensor| tensor.dtype());
        write!(out, "{}  {dtype} {}", one_line(&spec.name), spec.shape)?;
        let Destination::Sharded(layout) = destination else {
            writeln!(out, " -> {} {}", spec.dtype, spec.shape)?;
            continue;
        };
        let Some(tensor) = layout.tensor(&spec.name) else {
            writeln!(out, " -> not in the destination")?;
            continue;
        };
        let shards = tensor.placement().shards();
        let shapes = shards.chunk_by(|one, next| one.shape == next.shape);
        write!(out, " -> {}", tensor.dtype())?;
        for run in shapes {
            write!(out, " {}", run[0].shape)?;
            match run {
                [only] => write!(out, " on rank {}", only.rank)?,
                [first, .., last] => {
                    write!(out, " on {} ranks {}..{}", run.len(), first.rank, last.rank)?
                }
                [] => {}
            }
        }
        writeln!(out)?;
    }
    Ok(())
}

fn show_summary(summary: &Summary, out: &mut dyn Write) -> io::Result<Outcome> {
    let seconds = summary.elapsed.as_secs_f64();
    writeln!(out, "tensors  {}", summary.tensors)?;
    writeln!(out, "files    {} written, {} kept", summary.files, summary.files_kept)?;
    writeln!(out, "bytes    {} in {seconds:.2} s", show(summary.bytes))?;
    writeln!(out, "rate     {:.2} GB/s", summary.bytes as f64 / 1e9 / seconds.max(1e-9))?;
    Ok(Outcome::Success)
}
