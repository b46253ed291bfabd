//! MXFP8 in plans: quantised and restored on the way, scales where the layout puts them.

use std::sync::Arc;

use syncline_copy::convert::mx;
use syncline_device::Device;
use syncline_layout::{Dims, Layout, MeshLayout, PlanOptions, TensorSpec, TransferPlan};
use syncline_reshard::{ServiceOptions, Target, Targets};
use syncline_tensor::Dtype;
use syncline_testing::{Rng, for_seeds};
use syncline_transport::local;

use crate::devices::bind_on;
use crate::groups::{PATIENCE, on_threads, world};
use crate::models::bind;

const ROWS: u64 = 24;
const COLUMNS: u64 = 32 * 12;

fn spec(name: &str, dtype: Dtype, columns: u64) -> TensorSpec {
    let shape = Dims::from_slice(&[ROWS, columns]).unwrap();
    TensorSpec { name: name.to_owned(), dtype, shape }
}

/// Tensor `w`, with its scales where it has eight bits, split along `dim`; the scales along
/// `scale_dim`.
fn layout(dtype: Dtype, dim: usize, scale_dim: usize, axes: &str) -> Layout {
    let toml = format!(
        r#"
        [mesh]
        axes = {axes}
        [[tensor]]
        match = "w"
        shard = [{{dim = {dim}, axis = "tp"}}]
        [[tensor]]
        match = "w_scale"
        shard = [{{dim = {scale_dim}, axis = "tp"}}]
        "#
    );
    let mut specs = vec![spec("w", dtype, COLUMNS)];
    if dtype.bytes() == 1 {
        specs.push(spec("w_scale", Dtype::F8E8M0, COLUMNS / 32));
    }
    MeshLayout::from_toml(&toml).unwrap().compile(&specs).unwrap()
}

/// What each PE holds of a layout whose whole tensors are given, cut out element by element.
fn cut(layout: &Layout, rank: usize, whole: &[(&str, &[u8])]) -> Vec<(String, Vec<u8>)> {
    let mut held = Vec::new();
    for tensor in layout.tensors() {
        let Some(shard) = tensor.placement().shard(rank as u32) else { continue };
        let whole = whole.iter().find(|(name, _)| *name == tensor.name()).unwrap().1;
        let element = tensor.dtype().bytes() as usize;
        let mut bytes = vec![0; shard.shape.volume() as usize * element];
        for piece in &shard.pieces {
            let to = crate::arrays::positions(&piece.local_box(), &shard.shape);
            let from = crate::arrays::positions(&piece.global, tensor.shape());
            for (to, from) in to.into_iter().zip(from) {
                let source = &whole[from as usize * element..][..element];
                bytes[to as usize * element..][..element].copy_from_slice(source);
            }
        }
        held.push((tensor.name().to_owned(), bytes));
    }
    held
}

fn random_plain(rng: &mut Rng, dtype: Dtype) -> Vec<u8> {
    let elements = (ROWS * COLUMNS) as usize;
    let element = |rng: &mut Rng| {
        // Any bits at all: NaN, infinities and subnormals among them.
        rng.next_u64().to_le_bytes()[..dtype.bytes() as usize].to_vec()
    };
    (0..elements).flat_map(|_| element(rng)).collect()
}

/// Moves `before` to `to` on threads, directly and through slots, and compares with `after`.
fn check(
    rng: &mut Rng,
    (from, before): (&Layout, &[(&str, &[u8])]),
    (to, after): (&Layout, &[(&str, &[u8])]),
    options: &PlanOptions,
) {
    let group = local::Options { depth: 2, slot_bytes: *rng.pick(&[64, 192, 4096]) };
    for into_memory in [false, true] {
        let service_options = ServiceOptions {
            timeout: PATIENCE,
            separate_lanes: Some(rng.one_in(2)),
            ..Default::default()
        };
        on_threads(world(from, to), &group, service_options, |service| {
            let rank = service.rank();
            let refit = service.prepare(from, to, options).unwrap();
            let (mine, expected) = (cut(from, rank, before), cut(to, rank, after));
            let sources = bind(&refit, &mine);
            if into_memory {
                let mut memory: Vec<_> =
                    expected.iter().map(|(_, bytes)| vec![0xee; bytes.len()]).collect();
                let mut targets = Targets::new(&refit);
                for ((name, _), bytes) in expected.iter().zip(&mut memory) {
                    targets.bind(&refit, name, bytes).unwrap();
                }
                service.refit(&refit, &sources, Target::Memory(&mut targets)).unwrap();
                for ((name, bytes), got) in expected.iter().zip(&memory) {
                    assert!(bytes == got, "`{name}` on PE {rank}");
                }
            } else {
                let destination = service.destination(&refit).unwrap();
                service.refit(&refit, &sources, Target::Destination(&destination)).unwrap();
                let reading = destination.read().unwrap();
                for (name, bytes) in &expected {
                    assert!(reading.tensor(name) == Some(bytes), "`{name}` on PE {rank}");
                }
            }
        });
    }
}

#[test]
fn blocks_are_quantised_and_restored_on_the_way() {
    for_seeds("blocks_are_quantised_and_restored_on_the_way", 12, |rng| {
        let plain = *rng.pick(&[Dtype::F32, Dtype::F16, Dtype::BF16]);
        let blocked = *rng.pick(&[Dtype::F8E4M3, Dtype::F8E5M2]);
        let axes = [r#"[["tp", 2]]"#, r#"[["tp", 3]]"#, r#"[["tp", 2], ["dp", 2]]"#];
        let wide = layout(plain, rng.below(2), 0, rng.pick::<&str>(&axes));
        // Scales go where their own rule says, also where that is not beside their elements.
        let narrow = layout(blocked, rng.below(2), rng.below(2), rng.pick::<&str>(&axes));
        let values = random_plain(rng, plain);
        let count = (ROWS * COLUMNS) as usize;
        let (mut elements, mut scales) = (vec![0; count], vec![0; count / 32]);
        mx::quantise(plain, &values, blocked, &mut elements, &mut scales).unwrap();
        let blocks: [(&str, &[u8]); 2] = [("w", &elements), ("w_scale", &scales)];
        let options = PlanOptions::default()
            .convert(plain, blocked)
            .convert(blocked, plain)
            .block_scales("w", "_scale");
        check(rng, (&wide, &[("w", &values)]), (&narrow, &blocks), &options);
        // Back: the sender needs elements and scales, so they lie alike.
        let dim = rng.below(2);
        let alike = layout(blocked, dim, dim, rng.pick::<&str>(&axes));
        check(rng, (&narrow, &blocks), (&alike, &blocks), &options);
        let mut restored = vec![0; values.len()];
        mx::dequantise(blocked, &elements, &scales, plain, &mut restored).unwrap();
        check(rng, (&alike, &blocks), (&wide, &[("w", &restored)]), &options);
    });
}

/// Quantises and restores with elements and scales in memory of `device`, on both sides or from
/// there to the host.
pub fn block_refits(device: &Arc<dyn Device>) {
    let mut rng = Rng::new(9);
    for (plain, blocked) in [(Dtype::F32, Dtype::F8E4M3), (Dtype::BF16, Dtype::F8E5M2)] {
        let values = random_plain(&mut rng, plain);
        let count = (ROWS * COLUMNS) as usize;
        let (mut elements, mut scales) = (vec![0; count], vec![0; count / 32]);
        mx::quantise(plain, &values, blocked, &mut elements, &mut scales).unwrap();
        let mut restored = vec![0; values.len()];
        mx::dequantise(blocked, &elements, &scales, plain, &mut restored).unwrap();
        let blocks: [(&str, &[u8]); 2] = [("w", &elements), ("w_scale", &scales)];
        let options = PlanOptions::default()
            .convert(plain, blocked)
            .convert(blocked, plain)
            .block_scales("w", "_scale");
        let wide = layout(plain, 0, 0, r#"[["tp", 3]]"#);
        for dim in [0, 1] {
            let narrow = layout(blocked, dim, dim, r#"[["tp", 2]]"#);
            let (before, after) = ([("w", &values[..])], [("w", &restored[..])]);
            check_on(device, (&wide, &before), (&narrow, &blocks), &options);
            check_on(device, (&narrow, &blocks), (&wide, &after), &options);
        }
    }
}

/// As [`check`], from memory of `device` to memory of the same and of the host.
fn check_on(
    device: &Arc<dyn Device>,
    (from, before): (&Layout, &[(&str, &[u8])]),
    (to, after): (&Layout, &[(&str, &[u8])]),
    options: &PlanOptions,
) {
    // To memory of the device, with checksums, everything goes through slots; otherwise straight
    // into destinations.
    for (checksums, to_host) in [(false, false), (false, true), (true, false), (true, true)] {
        let group = local::Options { depth: 2, slot_bytes: 1024 };
        let service_options = ServiceOptions { timeout: PATIENCE, checksums, ..Default::default() };
        on_threads(world(from, to), &group, service_options, |service| {
            let rank = service.rank();
            let refit = service.prepare(from, to, options).unwrap();
            service.add_device(device).unwrap();
            let sources = bind_on(device, &refit, &cut(from, rank, before));
            let destination = match to_host {
                true => service.destination(&refit).unwrap(),
                false => service.destination_on(&refit, device).unwrap(),
            };
            service.refit(&refit, &sources, Target::Destination(&destination)).unwrap();
            let reading = destination.read().unwrap();
            for (name, bytes) in cut(to, rank, after) {
                let is_same = match to_host {
                    true => reading.tensor(&name) == Some(&bytes[..]),
                    false => reading.view(&name).unwrap().to_vec::<u8>().unwrap() == bytes,
                };
                assert!(is_same, "`{name}` on PE {rank}, checksums {checksums}, to host {to_host}");
            }
        });
    }
}

#[test]
fn bytes_on_the_way_are_those_of_the_blocks() {
    let axes = r#"[["tp", 2]]"#;
    let options =
        PlanOptions::default().convert(Dtype::F32, Dtype::F8E4M3).block_scales("w", "_scale");
    let (wide, narrow) = (layout(Dtype::F32, 0, 0, axes), layout(Dtype::F8E4M3, 1, 1, axes));
    let plan = TransferPlan::new(&wide, &narrow, &options).unwrap();
    assert_eq!(plan.bytes_total(), ROWS * COLUMNS + ROWS * COLUMNS / 32);
    assert_eq!(plan.bytes_moved(), plan.bytes_total() / 2);
    let scales = plan.ops().iter().find(|op| plan.tensor(op).name == "w_scale").unwrap();
    let size = plan.copy_box(scales).size;
    let (source, target) = plan.boxes(scales, &syncline_layout::NdBox::whole(size));
    assert_eq!((source.size[1], target.size[1]), (COLUMNS / 2, COLUMNS / 64));
}

#[test]
fn what_cuts_a_block_or_lacks_scales_is_refused() {
    let options = PlanOptions::default()
        .convert(Dtype::F32, Dtype::F8E4M3)
        .convert(Dtype::F8E4M3, Dtype::F32)
        .block_scales("w", "_scale");
    let refusal =
        |from: &Layout, to: &Layout| TransferPlan::new(from, to, &options).unwrap_err().to_string();
    let wide = layout(Dtype::F32, 0, 0, r#"[["tp", 2]]"#);
    // 384 columns over 5 PEs: 77 on the first.
    let cut = layout(Dtype::F8E4M3, 1, 0, r#"[["tp", 5]]"#);
    assert!(refusal(&wide, &cut).contains("`w`: its shard on rank 0 cuts a block"));
    let narrow = layout(Dtype::F8E4M3, 0, 1, r#"[["tp", 2]]"#);
    assert!(refusal(&narrow, &wide).contains("`w_scale` do not lie as its blocks do"));
    let without = |layout: &Layout| {
        let mut builder = Layout::builder();
        let tensor = &layout.tensors()[0];
        let shards = tensor.placement().shards().to_vec();
        builder.tensor(tensor.name(), tensor.dtype(), tensor.shape(), shards).unwrap();
        builder.finish()
    };
    assert!(refusal(&wide, &without(&narrow)).contains("has no `w_scale` for its scales"));
    assert!(refusal(&without(&narrow), &wide).contains("has no `w_scale` with its scales"));
    // Without the declaration the change of type is one of single elements, and the scales are an
    // unknown tensor.
    let undeclared = PlanOptions::default().convert(Dtype::F32, Dtype::F8E4M3);
    let unknown = TransferPlan::new(&wide, &narrow, &undeclared).unwrap_err().to_string();
    assert!(unknown.contains("`w_scale` of the destination is not in the source"), "{unknown}");
}

/// Whole tensors on each of two PEs; `tied` pairs a name with the one that it is tied to.
fn whole(tied: &[(&str, &str)], specs: &[TensorSpec]) -> Layout {
    let rule =
        |(name, to): &(&str, &str)| format!("[[tensor]]\nmatch = \"{name}\"\ntied_to = \"{to}\"\n");
    let rules: String = tied.iter().map(rule).collect();
    let toml = format!("mesh = {{axes = [[\"tp\", 2]]}}\n{rules}");
    MeshLayout::from_toml(&toml).unwrap().compile(specs).unwrap()
}

fn tied_options() -> PlanOptions {
    PlanOptions::default()
        .convert(Dtype::BF16, Dtype::F8E4M3)
        .convert(Dtype::F8E4M3, Dtype::BF16)
        .block_scales("{embed,head}", "_scale")
}

#[test]
fn tied_tensors_have_their_scales_under_any_of_their_names() {
    let rng = &mut Rng::new(11);
    let (plain, blocked) = (Dtype::BF16, Dtype::F8E4M3);
    let values = random_plain(rng, plain);
    let count = (ROWS * COLUMNS) as usize;
    let (mut elements, mut scales) = (vec![0; count], vec![0; count / 32]);
    mx::quantise(plain, &values, blocked, &mut elements, &mut scales).unwrap();
    let mut restored = vec![0; values.len()];
    mx::dequantise(blocked, &elements, &scales, plain, &mut restored).unwrap();
    let scale = |name| spec(name, Dtype::F8E8M0, COLUMNS / 32);
    let wide = whole(&[], &[spec("embed", plain, COLUMNS)]);
    let head = spec("head", blocked, COLUMNS);
    // The scales of either name, or of both, apart or tied themselves.
    for (tied, scale_names) in [
        (&[("embed", "head")][..], &["head_scale"][..]),
        (&[("embed", "head")], &["embed_scale"]),
        (&[("embed", "head")], &["embed_scale", "head_scale"]),
        (&[("embed", "head"), ("embed_scale", "head_scale")], &["head_scale"]),
    ] {
        let specs: Vec<TensorSpec> =
            [head.clone()].into_iter().chain(scale_names.iter().map(|name| scale(name))).collect();
        let narrow = whole(tied, &specs);
        let blocks: Vec<(&str, &[u8])> = [("head", &elements[..])]
            .into_iter()
            .chain(scale_names.iter().map(|&name| (name, &scales[..])))
            .collect();
        let options = tied_options();
        check(rng, (&wide, &[("embed", &values)]), (&narrow, &blocks), &options);
        check(rng, (&narrow, &blocks), (&wide, &[("embed", &restored)]), &options);
    }
}

#[test]
fn scales_of_tensors_that_become_one_are_dropped_with_them() {
    let specs = ["embed", "head"].map(|name| spec(name, Dtype::F8E4M3, COLUMNS));
    let scales = ["embed_scale", "head_scale"].map(|name| spec(name, Dtype::F8E8M0, COLUMNS / 32));
    let from = whole(&[], &[&specs[..], &scales[..]].concat());
    let to = whole(&[("head", "embed")], &[spec("embed", Dtype::BF16, COLUMNS)]);
    let plan = TransferPlan::new(&from, &to, &tied_options()).unwrap();
    assert_eq!(plan.bytes_total(), 2 * ROWS * COLUMNS * 2);
}

#[test]
fn blocks_of_tied_tensors_are_never_cast_without_scales() {
    let refusal = |from: &Layout, to: &Layout| {
        TransferPlan::new(from, to, &tied_options()).unwrap_err().to_string()
    };
    let tied = [("embed", "head")];
    let (wide, narrow) = (Dtype::BF16, Dtype::F8E4M3);
    let embed = whole(&[], &[spec("embed", wide, COLUMNS)]);
    let head = whole(&tied, &[spec("head", narrow, COLUMNS)]);
    let error = refusal(&embed, &head);
    assert!(
        error.contains("`head`: the destination has no `head_scale` or `embed_scale`"),
        "{error}"
    );
    let error = refusal(&head, &embed);
    assert!(error.contains("`embed`: the source has no `head_scale` or `embed_scale`"), "{error}");
    // One tensor of scales for two tensors.
    let both = |dtype| ["embed", "head"].map(|name| spec(name, dtype, COLUMNS)).to_vec();
    let mut specs = both(narrow);
    specs.push(spec("head_scale", Dtype::F8E8M0, COLUMNS / 32));
    let shared = whole(&[("embed_scale", "head_scale")], &specs);
    let error = refusal(&whole(&[], &both(wide)), &shared);
    assert!(error.contains("`head_scale`: it would have the scales of `head`"), "{error}");
    assert!(error.contains("and of `embed`"), "{error}");
}

#[test]
fn scales_are_never_those_of_other_elements() {
    // The source has a tensor by the name of the scales: moved as it is, it would scale elements
    // that it has never seen.
    let scales = spec("head_scale", Dtype::F8E8M0, COLUMNS / 32);
    let from = whole(&[], &[spec("head", Dtype::BF16, COLUMNS), scales.clone()]);
    let to = whole(&[], &[spec("head", Dtype::F8E4M3, COLUMNS), scales]);
    let error = TransferPlan::new(&from, &to, &tied_options()).unwrap_err().to_string();
    assert!(error.contains("`head`: its scales `head_scale` are made on the way"), "{error}");
    // Of several declarations the first that matches counts: these are the scales of nothing.
    let options = tied_options().block_scales("head", "_other");
    let other = spec("head_other", Dtype::F8E8M0, COLUMNS / 32);
    let from = whole(&[], &[spec("head", Dtype::BF16, COLUMNS)]);
    let specs = [to.specs(), vec![other]].concat();
    let error = TransferPlan::new(&from, &whole(&[], &specs), &options).unwrap_err().to_string();
    assert!(error.contains("`head_other` of the destination is not in the source"), "{error}");
    // Without a suffix a tensor would be its own scales.
    let options = PlanOptions::default().convert(Dtype::BF16, Dtype::F8E4M3).block_scales("**", "");
    let error = TransferPlan::new(&from, &to, &options).unwrap_err().to_string();
    assert!(error.contains("`**`: without a suffix"), "{error}");
}
