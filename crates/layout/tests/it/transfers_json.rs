//! The plan as JSON: read back by a reader that knows only the format.

use std::collections::HashMap;

use serde_json::Value;
use syncline_layout::{Dims, Layout, NdBox, Schedule, write_transfers};
use syncline_testing::for_seeds;

use crate::arrays::{UNWRITTEN, checked_plan, filled, positions, unwritten};
use crate::meshes::any_pair;

fn written(from: &Layout, to: &Layout, slot_bytes: u64) -> Value {
    let plan = checked_plan(from, to);
    let schedule = Schedule::new(&plan, slot_bytes).unwrap();
    let mut text = Vec::new();
    write_transfers(&plan, &schedule, &mut text).unwrap();
    serde_json::from_slice(&text).unwrap()
}

fn read_box(spans: &Value) -> NdBox {
    let spans = spans.as_array().unwrap();
    let numbers =
        |at: usize| -> Vec<u64> { spans.iter().map(|span| span[at].as_u64().unwrap()).collect() };
    let start = numbers(0);
    let size: Vec<u64> = numbers(1).iter().zip(&start).map(|(stop, start)| stop - start).collect();
    NdBox { start: Dims::from_slice(&start).unwrap(), size: Dims::from_slice(&size).unwrap() }
}

/// The local shape of a tensor's shard, and its position in the layout.
fn shard_of(layout: &Layout, tensor: &str, rank: u32) -> (u32, Dims) {
    let index = layout.index_of(tensor).unwrap();
    (index as u32, layout.tensors()[index].placement().shard(rank).unwrap().shape)
}

/// A batch: its number, and the place, the bytes and the segment of every box in it.
type Packing = (u64, Vec<(u64, u64, u64)>);

/// Boxes lie in the slot one behind the other, segments each at an aligned place.
fn check_packing((_, mut boxes): Packing, slot_bytes: u64) {
    boxes.sort();
    let (mut end, mut segments) = (0u64, 0);
    for (offset, bytes, segment) in boxes {
        if segment == segments {
            end = end.next_multiple_of(64);
            segments += 1;
        }
        assert_eq!((offset, segment + 1), (end, segments));
        end += bytes;
    }
    assert!(end <= slot_bytes);
}

#[test]
fn the_ops_written_make_the_destination() {
    for_seeds("the_ops_written_make_the_destination", 60, |rng| {
        let (from, to) = any_pair(rng);
        let slot_bytes = 64 * rng.range(1..9);
        let plan = written(&from, &to, slot_bytes);
        let (before, mut after) = (filled(&from, str::to_owned), unwritten(&to));
        let (mut total, mut moved) = (0, 0);
        let mut peers: HashMap<(bool, u64, u64), u64> = HashMap::new();
        let mut slots: HashMap<(u64, u64), Packing> = HashMap::new();
        for (id, op) in plan["ops"].as_array().unwrap().iter().enumerate() {
            assert_eq!(op["id"].as_u64(), Some(id as u64));
            let number = |field: &str| op[field].as_u64().unwrap();
            let tensor = op["tensor"].as_str().unwrap();
            let (src, dst) = (number("src"), number("dst"));
            let (source, source_shape) = shard_of(&from, tensor, src as u32);
            let (target, target_shape) = shard_of(&to, tensor, dst as u32);
            let reads = positions(&read_box(&op["src_box"]), &source_shape);
            let writes = positions(&read_box(&op["dst_box"]), &target_shape);
            assert_eq!(reads.len(), writes.len());
            let element_bytes = to.tensor(tensor).unwrap().dtype().bytes();
            assert_eq!(number("bytes"), reads.len() as u64 * element_bytes);
            total += number("bytes");
            for (read, write) in reads.into_iter().zip(writes) {
                let to = &mut after.get_mut(&(target, dst as u32)).unwrap()[write as usize];
                assert_eq!(*to, UNWRITTEN);
                *to = before[&(source, src as u32)][read as usize];
            }
            if src == dst {
                let packing = ["round", "batch", "segment", "slot_offset"];
                assert!(packing.iter().all(|field| op[field].is_null()));
                continue;
            }
            moved += number("bytes");
            let round = number("round");
            assert!(round < plan["rounds"].as_u64().unwrap());
            assert_eq!(*peers.entry((true, src, round)).or_insert(dst), dst);
            assert_eq!(*peers.entry((false, dst, round)).or_insert(src), src);
            let slot = slots.entry((src, round)).or_insert((number("batch"), Vec::new()));
            assert_eq!(slot.0, number("batch"));
            slot.1.push((number("slot_offset"), number("bytes"), number("segment")));
        }
        slots.into_values().for_each(|slot| check_packing(slot, slot_bytes));
        assert_eq!(after, filled(&to, str::to_owned));
        assert_eq!(plan["bytes_total"].as_u64(), Some(total));
        assert_eq!(plan["bytes_moved"].as_u64(), Some(moved));
        assert_eq!(plan["rounds"], plan["rounds_lower_bound"]);
    });
}

#[test]
fn numbers_beyond_what_json_readers_hold_are_text() {
    let text = r#"{"format": "syncline-layout", "version": 1, "tensors": [{"name": "w", "dtype": "u8",
        "shape": ["9007199254740994"], "shards": [{"rank": 0, "shape": [9007199254740994],
        "pieces": [{"global": [[0, "9007199254740994"]], "local": [0]}]}]}]}"#;
    let layout = Layout::from_json(text).unwrap();
    assert_eq!(layout.tensors()[0].shape()[0], 9007199254740994);
    assert!(layout.to_json().contains("\"9007199254740994\""));
    let plan = written(&Layout::default(), &Layout::default(), 64);
    assert_eq!(plan["ops"].as_array().unwrap().len(), 0);
}
