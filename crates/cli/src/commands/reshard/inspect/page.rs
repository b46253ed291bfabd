//! The page of `reshard inspect`: one self-contained file with a picture of which rank holds what.

use std::io::{self, Write};

use syncline::layout::TensorLayout;

use super::super::size::show;
use super::{Attempt, BlockLine, Inspection};

/// Ranks that get a picture in each row.
const RANKS_MAX: u32 = 16;

/// Width and height of a picture.
const SIZE: (u64, u64) = (72, 40);

const STYLE: &str = "body{font:14px system-ui,sans-serif;margin:2em;color:#222;background:#fff}\
    table{border-collapse:collapse}td,th{padding:.3em .6em;text-align:left;\
    border-bottom:1px solid #ddd;vertical-align:top}th{position:sticky;top:0;background:#fff}\
    .whole{fill:#eee;stroke:#999}.held{fill:#2a6fb0}.bad{color:#b00020}code{font-size:13px}\
    @media(prefers-color-scheme:dark){body,th{background:#161616;color:#ddd}\
    td,th{border-color:#333}.whole{fill:#2a2a2a;stroke:#666}.held{fill:#6cb2f0}}";

pub(super) fn write(found: &Inspection, out: &mut dyn Write) -> io::Result<()> {
    let title = escaped(&found.source);
    writeln!(
        out,
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\
         <style>{STYLE}</style><h1>{title}</h1><p>"
    )?;
    let model = escaped(found.model.as_deref().unwrap_or("not said"));
    let family = found.family.unwrap_or("unknown");
    writeln!(
        out,
        "{} in {} files of {}; model type {model}, family {family}; {} tensors of {} elements, {}; \
         {} ranks.</p>",
        found.format,
        found.files,
        show(found.file_bytes),
        found.tensors,
        found.elements,
        show(found.bytes),
        found.ranks
    )?;
    for reason in &found.unproven {
        writeln!(out, "<p class=bad>Not proven: {}</p>", escaped(reason))?;
    }
    if !found.targets.is_empty() {
        writeln!(out, "<h2>Targets</h2><table><tr><th>to<th>for this model")?;
        for Attempt { target, refused } in &found.targets {
            let said = match refused {
                None => "right".to_owned(),
                Some(why) => format!("<span class=bad>{}</span>", escaped(why)),
            };
            writeln!(out, "<tr><td><code>{}</code><td>{said}", escaped(target))?;
        }
        writeln!(out, "</table>")?;
    }
    let shown = found.shown.as_deref().unwrap_or("not split");
    writeln!(out, "<h2>Blocks, {}</h2>", escaped(shown))?;
    let last = found.blocks.iter().filter_map(|line| line.first.as_ref());
    let last = last.flat_map(|tensor| tensor.placement().shards()).map(|shard| shard.rank).max();
    let ranks = last.map_or(0, |last| last + 1).min(RANKS_MAX);
    write!(out, "<table><tr><th>tensors<th>number<th>type<th>shape<th>bytes<th>split")?;
    for rank in 0..ranks {
        write!(out, "<th>rank {rank}")?;
    }
    writeln!(out)?;
    for line in &found.blocks {
        let BlockLine { pattern, count, dtype, shape, bytes, split, first } = line;
        write!(
            out,
            "<tr><td><code>{}</code><td>{count}<td>{dtype}<td>{shape}<td>{}<td>{}",
            escaped(pattern),
            show(*bytes),
            escaped(split)
        )?;
        for rank in 0..ranks {
            write!(out, "<td>")?;
            if let Some(tensor) = first {
                picture(tensor, rank, out)?;
            }
        }
        writeln!(out)?;
    }
    writeln!(out, "</table><h2>Largest</h2><table><tr><th>tensor<th>what<th>bytes")?;
    for (name, what, bytes) in &found.largest {
        let (name, what) = (escaped(name), escaped(what));
        writeln!(out, "<tr><td><code>{name}</code><td>{what}<td>{}", show(*bytes))?;
    }
    writeln!(out, "</table></html>")
}

/// What a rank holds of a tensor: its last two dimensions, those before as one with the first.
fn picture(tensor: &TensorLayout, rank: u32, out: &mut dyn Write) -> io::Result<()> {
    let (width, height) = SIZE;
    write!(out, "<svg width={width} height={height} role=img aria-label=\"rank {rank}\">")?;
    write!(out, "<rect class=whole width={width} height={height} />")?;
    let shape = tensor.shape();
    let shard = tensor.placement().shard(rank);
    for piece in shard.iter().flat_map(|shard| &shard.pieces) {
        let along = |dim: Option<usize>, length: u64| {
            let Some(dim) = dim.filter(|&dim| shape[dim] > 0) else { return (0.0, length as f64) };
            let scale = length as f64 / shape[dim] as f64;
            (piece.global.start[dim] as f64 * scale, piece.global.size[dim] as f64 * scale)
        };
        let down = (!shape.is_empty()).then_some(0);
        let across = (shape.len() > 1).then(|| shape.len() - 1);
        let ((x, wide), (y, high)) = (along(across, width), along(down, height));
        write!(out, "<rect class=held x={x:.2} y={y:.2} width={wide:.2} height={high:.2} />")?;
    }
    write!(out, "</svg>")
}

fn escaped(text: &str) -> String {
    let text = syncline_files::one_line(text);
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
