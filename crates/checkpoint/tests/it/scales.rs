//! Scales of block-quantized weights: on every rank, each element has the scale that it has in the
//! whole model.

use std::fs;
use std::path::Path;

use syncline_checkpoint::{Checkpoint, CheckpointError, Conversion, Wanted, target_specs};
use syncline_testing::{Rng, for_seeds};

use crate::models::{HEADS, Tensor, directory, llama, tensor, write_model};

/// Quantizes the matrices of layers in blocks of `rows` x `columns`; with no columns, each row has
/// a scale.
fn quantized(rng: &mut Rng, (rows, columns): (u64, Option<u64>)) -> Vec<Tensor> {
    let mut tensors = Vec::new();
    for (name, element, shape, bytes) in llama(rng, 2, 0) {
        if shape.len() != 2 || !name.contains(".layers.") {
            tensors.push((name, element, shape, bytes));
            continue;
        }
        let (ending, across) = match columns {
            Some(columns) => ("_inv", shape[1].div_ceil(columns)),
            None => ("", 1),
        };
        let scales = [shape[0].div_ceil(rows), across];
        tensors.push(tensor(rng, &format!("{name}_scale{ending}"), "F32", &scales));
        tensors.push(tensor(rng, &name, "F8_E4M3", &shape));
    }
    tensors
}

fn convert(from: &Path, to: &Path, axes: &str) -> Result<(), CheckpointError> {
    let _ = fs::remove_dir_all(to);
    let source = Checkpoint::open(from)?;
    let specs = target_specs(&source, None);
    let wanted = Wanted::Axes(axes.to_owned());
    let (destination, _) = wanted.resolve(Vec::new(), &specs, from)?;
    Conversion::new(&source, &destination, Default::default())?.run(to, &|_| {})?;
    Ok(())
}

/// The scale of the element at `row` and `column`, by the scales of a whole or a local weight.
fn scale(bytes: &[u8], across: u64, block: (u64, Option<u64>), row: u64, column: u64) -> [u8; 4] {
    let column = block.1.map_or(0, |columns| column / columns);
    let at = (row / block.0 * across + column) as usize * 4;
    bytes[at..at + 4].try_into().unwrap()
}

#[test]
fn every_element_keeps_its_scale() {
    let folder = directory("scales");
    for_seeds("every_element_keeps_its_scale", 12, |rng| {
        let block = *rng.pick(&[(4, Some(4)), (2, Some(4)), (4, Some(2)), (1, None)]);
        let axes = *rng.pick(&["tp=2", "tp=2,pp=2", "pp=2"]);
        let config = match block.1 {
            Some(columns) => HEADS.replacen(
                '{',
                &format!(
                    r#"{{"model_type": "llama", "quantization_config":
                        {{"quant_method": "fp8", "weight_block_size": [{}, {columns}]}},"#,
                    block.0
                ),
                1,
            ),
            None => HEADS.replacen('{', r#"{"model_type": "llama","#, 1),
        };
        let (from, to) = (folder.join("in"), folder.join("out"));
        write_model(&from, &quantized(rng, block), &config);
        convert(&from, &to, axes).unwrap_or_else(|error| panic!("{block:?} {axes}: {error}"));
        let (whole, split) = (Checkpoint::open(&from).unwrap(), Checkpoint::open(&to).unwrap());
        let mut seen = 0;
        for (index, weight) in (0u32..).zip(split.layout().tensors()) {
            let ending = if block.1.is_some() { "_scale_inv" } else { "_scale" };
            let name = format!("{}{ending}", weight.name());
            let Some(scales) = split.layout().index_of(&name) else { continue };
            let all = whole.layout().index_of(&name).unwrap();
            let all_across = whole.layout().tensors()[all].shape()[1];
            let all_scales = whole.shard(all as u32, 0).unwrap();
            for shard in weight.placement().shards() {
                let held = split.layout().tensors()[scales].placement().shard(shard.rank).unwrap();
                let local = split.shard(scales as u32, shard.rank).unwrap();
                for piece in &shard.pieces {
                    for row in 0..piece.global.size[0] {
                        for column in 0..piece.global.size[1] {
                            let here = (piece.local[0] + row, piece.local[1] + column);
                            let there =
                                (piece.global.start[0] + row, piece.global.start[1] + column);
                            let found = scale(&local, held.shape[1], block, here.0, here.1);
                            let expected = scale(&all_scales, all_across, block, there.0, there.1);
                            assert_eq!(found, expected, "{name} {here:?}, tensor {index}");
                            seen += 1;
                        }
                    }
                }
            }
        }
        // Two layers of 1,920 elements each.
        assert!(seen >= 2 * 1920, "{seen}");
    });
}

#[test]
fn splits_through_blocks_and_blocks_that_nothing_tells_are_refused() {
    let folder = directory("scales_refused");
    let (from, to) = (folder.join("in"), folder.join("out"));
    let quantization = |size: &str| {
        HEADS.replacen(
            '{',
            &format!(
                r#"{{"model_type": "llama", "quantization_config":
                    {{"quant_method": "fp8", "weight_block_size": {size}}},"#
            ),
            1,
        )
    };
    // Of the 24 rows of an MLP, each of two ranks has 12, and a block has 16.
    let tensors = quantized(&mut Rng::new(3), (16, Some(4)));
    write_model(&from, &tensors, &quantization("[16, 4]"));
    let error = convert(&from, &to, "tp=2").unwrap_err().to_string();
    assert!(error.contains("do not fall on the blocks of its scales"), "{error}");
    assert!(!to.exists());
    let tensors = quantized(&mut Rng::new(3), (4, Some(4)));
    write_model(&from, &tensors, &quantization("null"));
    let error = convert(&from, &to, "tp=2").unwrap_err().to_string();
    assert!(error.contains("weight_scale_inv` is not known"), "{error}");
    convert(&from, &to, "pp=2").unwrap();
}
