//! Cases that were computed by hand.

use super::*;
use crate::{Layout, PlanOptions};

/// One tensor of bytes, as ranges on ranks.
fn layout(bytes: u64, shards: &[(u32, u64, u64)]) -> Layout {
    let shard = |(rank, start, stop): &(u32, u64, u64)| {
        let size = stop - start;
        format!(
            r#"{{"rank": {rank}, "shape": [{size}], "pieces": [{{"global": [[{start}, {stop}]], "local": [0]}}]}}"#
        )
    };
    let shards: Vec<String> = shards.iter().map(shard).collect();
    let text = format!(
        r#"{{"format": "syncline-layout", "version": 1, "tensors": [{{"name": "w", "dtype": "u8", "shape": [{bytes}],
        "shards": [{}]}}]}}"#,
        shards.join(", ")
    );
    Layout::from_json(&text).unwrap()
}

const GB: u64 = 1_000_000_000;

fn predict(from: &Layout, to: &Layout, cluster: &str) -> Prediction {
    let plan = TransferPlan::new(from, to, &PlanOptions::default()).unwrap();
    let schedule = Schedule::new(&plan, GB / 10 / 64 * 64).unwrap();
    simulate(&plan, &schedule, &Cluster::from_toml(cluster).unwrap()).unwrap()
}

#[track_caller]
fn assert_close(got: f64, expected: f64) {
    assert!((got - expected).abs() < expected * 1e-3 + 1e-9, "{got} s, not {expected}");
}

const TWO_NODES: &str = "pes_per_node = 2
[memory]
gb_per_s = 100
[intra]
gb_per_s = 20
latency_us = 1000
[nic]
gb_per_s = 10
latency_us = 2000
shared_by = 2";

#[test]
fn one_pair_on_a_node_goes_at_the_pace_of_its_link() {
    let (from, to) = (layout(GB, &[(0, 0, GB)]), layout(GB, &[(1, 0, GB)]));
    let predicted = predict(&from, &to, TWO_NODES);
    // 1 GB at 20 GB/s, and a millisecond.
    assert_close(predicted.seconds, 0.051);
    assert_close(predicted.seconds_min, 0.05);
    assert_eq!((predicted.bytes_moved, predicted.bytes_kept), (GB, 0));
}

#[test]
fn between_nodes_the_card_decides() {
    let (from, to) = (layout(GB, &[(0, 0, GB)]), layout(GB, &[(2, 0, GB)]));
    assert_close(predict(&from, &to, TWO_NODES).seconds, 0.102);
}

#[test]
fn two_pairs_share_a_card_and_not_their_node() {
    let half = GB / 2;
    let from = layout(GB, &[(0, 0, half), (1, half, GB)]);
    let across = layout(GB, &[(2, 0, half), (3, half, GB)]);
    let predicted = predict(&from, &across, TWO_NODES);
    // Together 1 GB through one card.
    assert_close(predicted.seconds, 0.102);
    let nic = predicted.links.iter().find(|link| link.kind == LinkKind::NicOut).unwrap();
    assert_eq!((nic.links, nic.bytes_total, nic.bytes_max), (1, GB, GB));
    // Swapped on their node each has its own link: half a GB at 20 GB/s.
    let swapped = layout(GB, &[(1, 0, half), (0, half, GB)]);
    assert_close(predict(&from, &swapped, TWO_NODES).seconds, 0.026);
}

#[test]
fn a_receiver_takes_one_sender_after_the_other() {
    let half = GB / 2;
    let from = layout(GB, &[(1, 0, half), (2, half, GB)]);
    let to = layout(GB, &[(0, 0, GB)]);
    // Half a GB at 20 GB/s from the node, half a GB at 10 GB/s from the other.
    let predicted = predict(&from, &to, TWO_NODES);
    assert_close(predicted.seconds_min, 0.05);
    assert!(predicted.seconds >= 0.075 && predicted.seconds < 0.0775, "{}", predicted.seconds);
}

#[test]
fn what_stays_is_copied_beside_the_rest() {
    let half = GB / 2;
    let from = layout(GB, &[(0, 0, GB)]);
    let to = layout(GB, &[(0, 0, half), (1, half, GB)]);
    let predicted = predict(&from, &to, TWO_NODES);
    assert_eq!((predicted.bytes_moved, predicted.bytes_kept), (half, half));
    // The link is slower than the memory, which has half its pace for either.
    assert_close(predicted.seconds, 0.026);
}

#[test]
fn messages_cost_their_ends() {
    let (from, to) = (layout(GB, &[(0, 0, GB)]), layout(GB, &[(1, 0, GB)]));
    let costly = format!("message_us = 1000\n{TWO_NODES}");
    let predicted = predict(&from, &to, &costly);
    assert_close(predicted.seconds, 0.051 + predicted.messages as f64 * 1e-3);
}

#[test]
fn direct_placement_needs_the_memory_once() {
    let (from, to) = (layout(GB, &[(0, 0, GB)]), layout(GB, &[(1, 0, GB)]));
    let narrow = "pes_per_node = 2
        [memory]
        gb_per_s = 10
        shared_by = 2
        [intra]
        gb_per_s = 1000";
    assert_close(predict(&from, &to, narrow).seconds, 0.2);
    assert_close(predict(&from, &to, &format!("direct = true\n{narrow}")).seconds, 0.1);
}

#[test]
fn clusters_that_make_no_sense_are_refused() {
    for (text, says) in [
        ("pes_per_node = 0\n[memory]\ngb_per_s = 1\n[intra]\ngb_per_s = 1", "pes_per_node"),
        ("pes_per_node = 1\n[memory]\ngb_per_s = 0\n[intra]\ngb_per_s = 1", "memory"),
        ("pes_per_node = 1\n[intra]\ngb_per_s = 1", "memory"),
        ("pes_per_node = 1\nspeed = 3", "line 2"),
    ] {
        let error = Cluster::from_toml(text).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    let (from, to) = (layout(GB, &[(0, 0, GB)]), layout(GB, &[(1, 0, GB)]));
    let plan = TransferPlan::new(&from, &to, &PlanOptions::default()).unwrap();
    let schedule = Schedule::new(&plan, 1 << 20).unwrap();
    let alone = "pes_per_node = 1\n[memory]\ngb_per_s = 1\n[intra]\ngb_per_s = 1";
    let error = simulate(&plan, &schedule, &Cluster::from_toml(alone).unwrap()).unwrap_err();
    assert!(error.to_string().contains("add [nic]"), "{error}");
}
