//! What holds for all layouts: there and back, two ways to one place, and parts that agree with the
//! whole.

use syncline_layout::{Dims, ShardRule, TensorRule};
use syncline_layout::{Layout, Mesh, MeshLayout, NameNumbers, TensorSpec, TransferPlan};
use syncline_tensor::Dtype;
use syncline_testing::for_seeds;

use crate::arrays::{checked_plan, filled, moved};
use crate::meshes::{any_layout, any_pair, any_specs};

#[test]
fn a_plan_and_its_inverse_are_the_identity() {
    for_seeds("a_plan_and_its_inverse_are_the_identity", 120, |rng| {
        let (from, to) = any_pair(rng);
        let before = filled(&from, str::to_owned);
        let there = checked_plan(&from, &to);
        let back = checked_plan(&to, &from);
        assert_eq!(moved(&back, &moved(&there, &before, &to), &from), before);
    });
}

#[test]
fn two_ways_to_one_layout_agree() {
    for_seeds("two_ways_to_one_layout_agree", 80, |rng| {
        let specs = any_specs(rng);
        let [a, b, c] = [0; 3].map(|_| any_layout(rng, &specs));
        let before = filled(&a, str::to_owned);
        let by_b = moved(&checked_plan(&a, &b), &before, &b);
        let by_b = moved(&checked_plan(&b, &c), &by_b, &c);
        assert_eq!(by_b, moved(&checked_plan(&a, &c), &before, &c));
    });
}

#[test]
fn every_part_agrees_with_the_whole() {
    for_seeds("every_part_agrees_with_the_whole", 80, |rng| {
        let (from, to) = any_pair(rng);
        let options = Default::default();
        let whole = TransferPlan::new(&from, &to, &options).unwrap();
        for rank in 0..whole.world() + 1 {
            let part = TransferPlan::for_rank(&from, &to, &options, rank).unwrap();
            let describe = |plan: &TransferPlan| -> Vec<_> {
                let ops = plan.ops().iter().filter(|op| op.src == rank || op.dst == rank);
                ops.map(|op| (op.tensor, op.src, op.dst, *plan.copy_box(op))).collect()
            };
            assert_eq!(describe(&part), describe(&whole));
            assert_eq!(part.ops().len(), describe(&part).len());
            assert_eq!(part.traffic(), whole.traffic());
            assert_eq!(part.fingerprint(), whole.fingerprint());
            assert_eq!(part.bytes_total(), whole.bytes_total());
        }
    });
}

#[test]
fn staying_where_it_is_moves_nothing() {
    for_seeds("staying_where_it_is_moves_nothing", 60, |rng| {
        let specs = any_specs(rng);
        let layout = any_layout(rng, &specs);
        let plan = checked_plan(&layout, &layout);
        assert_eq!(plan.bytes_moved(), 0);
        // One box a shard, however many pieces it has.
        let held = |tensor: &syncline_layout::TensorLayout| {
            let shards = tensor.placement().shards().iter();
            shards.filter(|shard| shard.shape.volume() > 0).count()
        };
        assert_eq!(plan.ops().len(), layout.tensors().iter().map(held).sum::<usize>());
    });
}

/// `count` tensors of `elements` f32, replicated on the PEs `first..first + pes`.
fn replicated(count: usize, elements: u64, first: u32, pes: u64) -> Layout {
    let specs: Vec<TensorSpec> = (0..count)
        .map(|index| TensorSpec {
            name: format!("t{index}"),
            dtype: Dtype::F32,
            shape: Dims::from_slice(&[elements]).unwrap(),
        })
        .collect();
    let mesh = Mesh { axes: vec![("dp".to_owned(), pes)], offset: first, ..Default::default() };
    MeshLayout::new(mesh, Vec::new()).compile(&specs).unwrap()
}

#[test]
fn replicas_share_the_sending_by_bytes() {
    for (sources, receivers, tensors) in [(4, 1, 40), (4, 3, 40), (3, 5, 21), (20, 7, 60)] {
        let from = replicated(tensors, 100, 0, sources);
        let to = replicated(tensors, 100, 100, receivers);
        let plan = checked_plan(&from, &to);
        let (sent, _) = plan.traffic().by_rank(plan.world());
        let sent = &sent[..sources as usize];
        let (least, most) = (sent.iter().min().unwrap(), sent.iter().max().unwrap());
        assert!(most - least <= 400, "{sources} sources send {sent:?}");
    }
}

#[test]
fn replicas_of_unlike_tensors_share_the_sending_by_bytes() {
    for_seeds("replicas_of_unlike_tensors_share_the_sending_by_bytes", 30, |rng| {
        let mut specs = Vec::new();
        for index in 0..60 {
            let shape = Dims::from_slice(&[4 * rng.range(1..200)]).unwrap();
            specs.push(TensorSpec { name: format!("t{index}"), dtype: Dtype::F32, shape });
        }
        let layout = |offset, tp, dp| {
            let axes = vec![("tp".to_owned(), tp), ("dp".to_owned(), dp)];
            let shard = vec![ShardRule { axis: "tp".to_owned(), ..Default::default() }];
            let rule = TensorRule { pattern: "**".to_owned(), shard, stage: None, tied_to: None };
            let mesh = Mesh { axes, offset, ..Default::default() };
            MeshLayout::new(mesh, vec![rule]).compile(&specs).unwrap()
        };
        let (from, to) = (layout(0, 2, 3), layout(6, 4, 1));
        let plan = checked_plan(&from, &to);
        let (sent, _) = plan.traffic().by_rank(plan.world());
        let mean = plan.bytes_moved() / 6;
        let largest = specs.iter().map(|spec| spec.shape.volume() * 4 / 4).max().unwrap();
        for bytes in &sent[..6] {
            assert!(bytes.abs_diff(mean) <= largest, "{sent:?} around {mean}");
        }
    });
}

#[test]
fn layers_and_experts_are_found_in_common_names() {
    let numbers = NameNumbers::default();
    assert_eq!(numbers.layer("transformer.h.7.attn.c_attn.weight"), Some(7));
    assert_eq!(numbers.layer("gpt_neox.layers.3.attention.dense.weight"), Some(3));
    assert_eq!(numbers.layer("model.embed_tokens.weight"), None);
    assert_eq!(numbers.expert("model.layers.0.block_sparse_moe.experts.6.w1.weight"), Some(6));
    assert_eq!(numbers.expert("model.layers.0.mlp.shared_expert.gate_proj.weight"), None);
}
