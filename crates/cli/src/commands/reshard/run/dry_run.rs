//! `--dry-run`: what each tensor will become.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::{self, Write};

use syncline::checkpoint::{Checkpoint, Destination, ElementType, pattern_of};
use syncline::layout::{Dims, Shard, TensorSpec};
use syncline::tensor::Dtype;
use syncline_files::one_line;

/// One line for each tensor of `source`, or for all that are alike: `specs` are what they become,
/// before they are split.
pub(super) fn show_tensors(
    source: &Checkpoint,
    destination: &Destination,
    specs: &[TensorSpec],
    verbose: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    // Lines in the order of their first tensors, with how many tensors they are for.
    let mut lines: Vec<(String, String, usize)> = Vec::new();
    let mut known: HashMap<(String, String), usize> = HashMap::new();
    for spec in specs {
        let name = one_line(&spec.name);
        let line = line(source, destination, spec);
        if verbose {
            lines.push((name, line, 1));
            continue;
        }
        let pattern = one_line(&pattern_of(&spec.name));
        match known.entry((pattern.clone(), line.clone())) {
            Entry::Vacant(entry) => {
                entry.insert(lines.len());
                lines.push((name, line, 1));
            }
            Entry::Occupied(entry) => {
                let of_several = &mut lines[*entry.get()];
                of_several.0 = pattern;
                of_several.2 += 1;
            }
        }
    }
    let width = lines.iter().map(|(name, ..)| name.chars().count()).max().unwrap_or(0);
    for (name, line, count) in lines {
        let times = if count > 1 { format!(" ({count} tensors)") } else { String::new() };
        writeln!(out, "{name:<width$}  {line}{times}")?;
    }
    Ok(())
}

/// The element type and shape of a tensor, before and after.
fn line(source: &Checkpoint, destination: &Destination, spec: &TensorSpec) -> String {
    let index = source.layout().index_of(&spec.name);
    let element = index.map_or(ElementType::Known(spec.dtype), |at| source.element(at as u32));
    let before = describe(element, &spec.shape);
    // Tensors without a conversion keep their type, also where plans have no name for that.
    let becomes = |dtype: Dtype| match element.dtype() == dtype {
        true => element,
        false => ElementType::Known(dtype),
    };
    let Some(layout) = destination.ranks() else {
        return format!("{before} -> {}", describe(becomes(spec.dtype), &spec.shape));
    };
    let Some(tensor) = layout.tensor(&spec.name) else {
        return format!("{before} -> not in the destination");
    };
    let shards = tensor.placement().shards();
    let alike = shards.chunk_by(|one, next| one.shape == next.shape);
    let parts = alike.map(|shards| {
        let part = describe(becomes(tensor.dtype()), &shards[0].shape);
        format!("{part} on {}", ranks(shards))
    });
    format!("{before} -> {}", parts.collect::<Vec<_>>().join(", "))
}

/// Type and shape, in elements.
fn describe(element: ElementType, shape: &Dims) -> String {
    let name = match element {
        ElementType::Known(dtype) => dtype.to_string(),
        ElementType::Opaque(name, _) => name.to_lowercase(),
    };
    format!("{name} {}", element.element_shape(shape).unwrap_or(*shape))
}

/// `rank 3`, `2 ranks 0..1`, `4 ranks 0..1, 4..5`.
fn ranks(shards: &[Shard]) -> String {
    if let [only] = shards {
        return format!("rank {}", only.rank);
    }
    let runs = shards.chunk_by(|one, next| one.rank + 1 == next.rank).map(|run| match run {
        [only] => only.rank.to_string(),
        _ => format!("{}..{}", run[0].rank, run[run.len() - 1].rank),
    });
    format!("{} ranks {}", shards.len(), runs.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_do_not_follow_each_other_are_told_apart() {
        let shape = Dims::from_slice(&[2]).unwrap();
        let shard = |rank| Shard { rank, shape, pieces: Vec::new() };
        let all = |ranks: &[u32]| ranks.iter().copied().map(shard).collect::<Vec<_>>();
        assert_eq!(ranks(&all(&[3])), "rank 3");
        assert_eq!(ranks(&all(&[0, 1, 2])), "3 ranks 0..2");
        assert_eq!(ranks(&all(&[0, 1, 4, 5])), "4 ranks 0..1, 4..5");
        assert_eq!(ranks(&all(&[0, 2])), "2 ranks 0, 2");
    }
}
