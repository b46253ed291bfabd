//! `syncline reshard inspect`: what a checkpoint holds, and how it would split.

mod page;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use syncline::checkpoint::{
    Checkpoint, ElementType, Wanted, family_name, model_type, pattern_of, unproven_layout,
};
use syncline::layout::{Dims, Layout, TensorLayout};
use syncline_files::one_line;

use super::open;
use super::size::show;
use crate::outcome::{Failure, Outcome};
use crate::output::{to_file, to_standard_output};

/// Targets that are tried unless the checkpoint is sharded or `--to` names some.
const TARGETS: [&str; 6] = ["tp=2", "tp=4", "tp=8", "pp=2", "ep=2", "tp=2,pp=2"];

/// Tensors that are listed as the largest.
const LARGEST: usize = 10;

/// Arguments of `reshard inspect`.
#[derive(Args)]
pub(crate) struct InspectArgs {
    /// The checkpoint, of any format that `reshard run` reads.
    source: PathBuf,
    /// Take the tensors below this name only.
    #[arg(long, value_name = "NAME")]
    prefix: Option<String>,
    /// Targets to try, such as tp=4,pp=2; may be given several times. The first that is right is
    /// shown block by block.
    #[arg(long = "to", value_name = "AXES")]
    targets: Vec<String>,
    /// For programs.
    #[arg(long)]
    json: bool,
    /// Write a page with a picture of which rank holds what.
    #[arg(short, long, value_name = "PAGE")]
    output: Option<PathBuf>,
}

/// All that is shown.
struct Inspection {
    source: String,
    format: &'static str,
    model: Option<String>,
    family: Option<&'static str>,
    files: usize,
    file_bytes: u64,
    tensors: usize,
    elements: u64,
    bytes: u64,
    /// Tensors and bytes of each element type.
    dtypes: BTreeMap<&'static str, (usize, u64)>,
    ranks: u32,
    /// Why the layout that it has is not known to be right.
    unproven: Vec<String>,
    targets: Vec<Attempt>,
    /// The layout that `blocks` are split by.
    shown: Option<String>,
    blocks: Vec<BlockLine>,
    largest: Vec<(String, String, u64)>,
    others: Vec<String>,
}

/// A target that was tried.
struct Attempt {
    target: String,
    /// Why it is refused.
    refused: Option<String>,
}

/// Tensors of one pattern, element type and shape.
struct BlockLine {
    pattern: String,
    count: usize,
    dtype: &'static str,
    shape: Dims,
    bytes: u64,
    split: String,
    /// The first of them, with its place in the layout.
    first: Option<TensorLayout>,
}

pub(super) fn run(args: &InspectArgs) -> Result<Outcome, Failure> {
    let checkpoint = open(&args.source, args.prefix.as_deref())?;
    let found = Inspection::new(&checkpoint, &args.targets);
    if let Some(path) = &args.output {
        to_file(path, |out| page::write(&found, out))?;
    }
    to_standard_output(|out| {
        match args.json {
            true => writeln!(out, "{:#}", found.to_json())?,
            false => found.print(out)?,
        }
        Ok(Outcome::Success)
    })
}

impl Inspection {
    fn new(checkpoint: &Checkpoint, wanted: &[String]) -> Self {
        let (layout, folder) = (checkpoint.layout(), checkpoint.folder());
        let (ranks, is_sharded) = (layout.world(), layout.world() > 1);
        let mut shown = is_sharded.then(|| ("as it is".to_owned(), layout.clone()));
        let mut targets = Vec::new();
        if !is_sharded {
            let default = TARGETS.map(str::to_owned);
            for target in if wanted.is_empty() { &default[..] } else { wanted } {
                let tried = attempt(checkpoint, target);
                let refused = tried.as_ref().err().cloned();
                if let (None, Ok(layout)) = (&shown, tried) {
                    shown = Some((target.clone(), layout));
                }
                targets.push(Attempt { target: target.clone(), refused });
            }
        }
        let mut dtypes: BTreeMap<&'static str, (usize, u64)> = BTreeMap::new();
        let mut sizes = Vec::new();
        let mut lines: BTreeMap<(String, &'static str, Dims, String), BlockLine> = BTreeMap::new();
        for (index, tensor) in (0u32..).zip(layout.tensors()) {
            let element = checkpoint.element(index);
            let (dtype, shape) = (name_of(element), element.element_shape(tensor.shape()));
            let shape = shape.unwrap_or(*tensor.shape());
            let bytes = tensor.shape().volume() * tensor.dtype().bytes();
            let of_dtype = dtypes.entry(dtype).or_default();
            *of_dtype = (of_dtype.0 + 1, of_dtype.1 + bytes);
            let placed = shown.as_ref().and_then(|(_, layout)| layout.tensor(tensor.name()));
            let split = placed.map_or_else(String::new, split_of);
            let pattern = pattern_of(tensor.name());
            let line =
                lines.entry((pattern.clone(), dtype, shape, split.clone())).or_insert_with(|| {
                    BlockLine {
                        pattern,
                        count: 0,
                        dtype,
                        shape,
                        bytes: 0,
                        split,
                        first: placed.cloned(),
                    }
                });
            line.count += 1;
            line.bytes += bytes;
            sizes.push((bytes, index));
        }
        sizes.sort_by_key(|&(bytes, index)| (std::cmp::Reverse(bytes), index));
        let largest = sizes.iter().take(LARGEST).map(|&(bytes, index)| {
            let tensor = &layout.tensors()[index as usize];
            let element = checkpoint.element(index);
            let shape = element.element_shape(tensor.shape()).unwrap_or(*tensor.shape());
            (tensor.name().to_owned(), format!("{} {shape}", name_of(element)), bytes)
        });
        Self {
            source: folder.display().to_string(),
            format: checkpoint.format().name(),
            model: model_type(folder),
            family: family_name(folder),
            files: checkpoint.files().count(),
            file_bytes: checkpoint.files().map(|(_, bytes)| bytes).sum(),
            tensors: layout.tensors().len(),
            elements: (0u32..)
                .zip(layout.tensors())
                .filter_map(|(index, tensor)| {
                    Some(checkpoint.element(index).element_shape(tensor.shape())?.volume())
                })
                .sum(),
            bytes: sizes.iter().map(|(bytes, _)| bytes).sum(),
            dtypes,
            ranks,
            unproven: if is_sharded { unproven_layout(layout, folder) } else { Vec::new() },
            targets,
            shown: shown.map(|(name, _)| name),
            blocks: lines.into_values().collect(),
            largest: largest.collect(),
            others: checkpoint.others().to_vec(),
        }
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(
            out,
            "format   {}, {} files of {}",
            self.format,
            self.files,
            show(self.file_bytes)
        )?;
        let model = self.model.as_deref().map_or("not said".to_owned(), one_line);
        writeln!(out, "model    {model}, family {}", self.family.unwrap_or("unknown"))?;
        let (tensors, bytes) = (self.tensors, show(self.bytes));
        writeln!(out, "tensors  {tensors} of {} elements, {bytes}", self.elements)?;
        for (dtype, (count, bytes)) in &self.dtypes {
            writeln!(out, "dtype    {dtype}: {count} tensors, {}", show(*bytes))?;
        }
        writeln!(out, "layout   {} rank{}", self.ranks, if self.ranks == 1 { "" } else { "s" })?;
        for reason in &self.unproven {
            writeln!(out, "unproven {}", one_line(reason))?;
        }
        for Attempt { target, refused } in &self.targets {
            let said = refused.as_deref().map_or("right for this model".to_owned(), one_line);
            writeln!(out, "to       {target}: {said}")?;
        }
        if !self.others.is_empty() {
            let (count, first) = (self.others.len(), one_line(&self.others[0]));
            writeln!(out, "others   {count} values that are no tensors, such as {first}")?;
        }
        let shown = self.shown.as_deref().unwrap_or("not split");
        writeln!(out, "\nblocks, {shown}")?;
        let width = self.blocks.iter().map(|line| one_line(&line.pattern).len()).max().unwrap_or(0);
        for line in &self.blocks {
            let name = one_line(&line.pattern);
            let BlockLine { count, dtype, shape, bytes, split, .. } = line;
            writeln!(out, "{name:<width$}  {count} x {dtype} {shape}, {}  {split}", show(*bytes))?;
        }
        writeln!(out, "\nlargest")?;
        for (name, what, bytes) in &self.largest {
            writeln!(out, "{:>10}  {} {what}", show(*bytes), one_line(name))?;
        }
        Ok(())
    }

    fn to_json(&self) -> Value {
        let dtypes: BTreeMap<_, _> = self
            .dtypes
            .iter()
            .map(|(name, (count, bytes))| (name, json!({"tensors": count, "bytes": bytes})))
            .collect();
        let target = |of: &Attempt| json!({"to": of.target, "right": of.refused.is_none(), "why": of.refused});
        let block = |of: &BlockLine| {
            json!({"pattern": of.pattern, "tensors": of.count, "dtype": of.dtype,
                   "shape": of.shape.to_vec(), "bytes": of.bytes, "split": of.split})
        };
        let large = |(name, what, bytes): &(String, String, u64)| json!({"tensor": name, "what": what, "bytes": bytes});
        json!({"format": "syncline-inspection", "version": 1, "source": self.source,
               "checkpoint": self.format, "model_type": self.model, "family": self.family,
               "files": self.files, "file_bytes": self.file_bytes, "tensors": self.tensors,
               "elements": self.elements, "bytes": self.bytes, "dtypes": dtypes,
               "ranks": self.ranks, "unproven": self.unproven,
               "targets": self.targets.iter().map(target).collect::<Vec<_>>(),
               "blocks_split": self.shown,
               "blocks": self.blocks.iter().map(block).collect::<Vec<_>>(),
               "largest": self.largest.iter().map(large).collect::<Vec<_>>(),
               "others": self.others})
    }
}

/// The layout that a target comes to, or why it is refused.
fn attempt(checkpoint: &Checkpoint, target: &str) -> Result<Layout, String> {
    let specs = checkpoint.layout().specs();
    let wanted = Wanted::Axes(target.to_owned());
    let resolved = wanted.resolve(Vec::new(), &specs, checkpoint.folder());
    let (destination, _) = resolved.map_err(|error| error.to_string())?;
    let layout = destination.ranks().cloned().ok_or("not a layout of ranks")?;
    match &unproven_layout(&layout, checkpoint.folder())[..] {
        [] => Ok(layout),
        [only] => Err(only.clone()),
        [first, rest @ ..] => Err(format!("{first}; and {} more", rest.len())),
    }
}

fn name_of(element: ElementType) -> &'static str {
    match element {
        ElementType::Known(dtype) => dtype.name(),
        ElementType::Opaque(name, _) => name,
    }
}

/// Which dimensions are split into how many parts, and which ranks hold it.
fn split_of(tensor: &TensorLayout) -> String {
    let shards = tensor.placement().shards();
    let shape = tensor.shape();
    let mut said = Vec::new();
    for dim in 0..shape.len() {
        let parts: BTreeSet<Vec<(u64, u64)>> = shards
            .iter()
            .map(|shard| {
                let pieces = shard.pieces.iter();
                pieces.map(|piece| (piece.global.start[dim], piece.global.stop(dim))).collect()
            })
            .collect();
        if parts.len() > 1 {
            said.push(format!("dimension {dim} in {} parts", parts.len()));
        }
    }
    if said.is_empty() {
        said.push("whole".to_owned());
    }
    let ranks: Vec<u32> = shards.iter().map(|shard| shard.rank).collect();
    let (first, last) = (ranks.first().copied().unwrap_or(0), ranks.last().copied().unwrap_or(0));
    let on = match ranks.len() {
        1 => format!("rank {first}"),
        count if last - first + 1 == count as u32 => format!("ranks {first}..{last}"),
        count => format!("{count} ranks"),
    };
    format!("{} on {on}", said.join(", "))
}
