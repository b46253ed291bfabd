//! `verify` in both orders, and wrong splits that it finds whatever rules made them.

use std::path::Path;

use syncline_checkpoint::{
    Checkpoint, CheckpointError, Conversion, ConversionOptions, Destination, unproven, verify,
};
use syncline_layout::{Dims, Layout, MeshLayout, NdBox, Piece, Shard};
use syncline_tensor::Dtype;
use syncline_testing::{Rng, for_seeds};

use crate::models::{
    HEADS, Tensor, convert, directory, file_bytes, llama, tensor, try_convert, write_model,
};

fn open(folder: &Path) -> Checkpoint {
    Checkpoint::open(folder).unwrap()
}

/// The same answer in both orders: how many shards differ.
#[track_caller]
fn both_ways(one: &Path, other: &Path) -> [usize; 2] {
    let (one, other) = (open(one), open(other));
    [verify(&one, &other).unwrap().len(), verify(&other, &one).unwrap().len()]
}

/// Values from 2^-12 to 2^4, of both signs.
fn floats(rng: &mut Rng, count: usize) -> Vec<f32> {
    let value = |rng: &mut Rng| {
        let size = 2f32.powi(rng.below(16) as i32 - 12);
        let fraction = 1.0 + rng.below(1 << 20) as f32 / (1 << 20) as f32;
        if rng.one_in(2) { size * fraction } else { -size * fraction }
    };
    (0..count).map(|_| value(rng)).collect()
}

#[test]
fn a_cast_is_the_same_in_both_orders_and_a_change_is_not() {
    let folder = directory("symmetric");
    let values = floats(&mut Rng::new(1), 24 * 16 * 2);
    let matrix = |at: usize, name: &str, shape: [u64; 2]| -> Tensor {
        let part = &values[at * 24 * 16..][..24 * 16];
        let bytes = part.iter().flat_map(|value| value.to_le_bytes()).collect();
        (format!("model.layers.0.mlp.{name}.weight"), "F32", shape.to_vec(), bytes)
    };
    let tensors = [matrix(0, "up_proj", [24, 16]), matrix(1, "down_proj", [16, 24])];
    write_model(&folder.join("f32"), &tensors, "{}");
    let cast = |from: &str, to: &str, target: &str, dtype| {
        let mut options = ConversionOptions::default();
        options.dtype = Some(dtype);
        convert(&folder.join(from), &folder.join(to), target, options);
    };
    let types = [
        ("bf16", Dtype::BF16),
        ("f16", Dtype::F16),
        ("f8_e4m3", Dtype::F8E4M3),
        ("f8_e5m2", Dtype::F8E5M2),
    ];
    for (name, dtype) in types {
        cast("f32", name, "hf", dtype);
        assert_eq!(both_ways(&folder.join("f32"), &folder.join(name)), [0, 0], "{name}");
        if name != "bf16" {
            let cast_of = format!("{name}-of-bf16");
            cast("bf16", &cast_of, "tp=2,dp=2", dtype);
            let found = both_ways(&folder.join("bf16"), &folder.join(&cast_of));
            assert_eq!(found, [0, 0], "{name}");
        }
    }
    // A bit of one copy of a shard, in the wide and in the narrow one.
    for (one, other) in [("bf16", "f8_e4m3-of-bf16"), ("f32", "f8_e5m2")] {
        for changed in [one, other] {
            let names = ["rank-00003.safetensors", "model.safetensors"];
            let paths = names.map(|name| folder.join(changed).join(name));
            let path = paths.iter().find(|path| path.exists()).unwrap();
            let kept = std::fs::read(path).unwrap();
            let mut bytes = kept.clone();
            // The exponent of the last element.
            *bytes.last_mut().unwrap() ^= 0x10;
            std::fs::write(path, bytes).unwrap();
            let found = both_ways(&folder.join(one), &folder.join(other));
            // Read in the order in which the copies are sources, the one that is right may be
            // taken.
            assert!(found[0] > 0, "{one} {other} {changed}: {found:?}");
            std::fs::write(path, kept).unwrap();
        }
    }
    // What is no cast of the other is none in any order.
    let other = [matrix(1, "up_proj", [24, 16]), matrix(0, "down_proj", [16, 24])];
    write_model(&folder.join("other"), &other, "{}");
    assert_eq!(both_ways(&folder.join("other"), &folder.join("f8_e4m3")), [2, 2]);
}

/// A layout of `source` by rules, written however wrong it is; its note is taken away again.
fn write_wrong(from: &Path, to: &Path, rules: &str) {
    let source = open(from);
    let text = format!("mesh = {{axes = [[\"tp\", 2]]}}\n{rules}");
    let mesh = MeshLayout::from_toml(&text).unwrap();
    let layout = mesh.compile(&source.layout().specs()).unwrap();
    let destination = Destination::Sharded(layout);
    let refused = Conversion::new(&source, &destination, Default::default()).unwrap_err();
    assert!(matches!(refused, CheckpointError::Unproven { .. }), "{refused}");
    let mut options = ConversionOptions::default();
    options.allow_unproven = true;
    let conversion = Conversion::new(&source, &destination, options).unwrap();
    conversion.run(to, &|_| {}).unwrap();
    let path = to.join("layout.json");
    let layout = Layout::from_json(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(layout.unproven(), conversion.unproven());
    let mut layout = layout;
    layout.set_unproven(Vec::new());
    std::fs::write(path, layout.to_json()).unwrap();
}

fn rule(pattern: &str, shard: &str) -> String {
    format!("[[tensor]]\nmatch = \"{pattern}\"\nshard = [{{axis = \"tp\", {shard}}}]\n")
}

#[test]
fn wrong_splits_are_found_although_every_element_is_there() {
    let folder = directory("wrong");
    let from = folder.join("in");
    write_model(&from, &llama(&mut Rng::new(2), 2, 0), HEADS);
    let attention =
        [rule("**.{q,k,v}_proj.weight", "dim = 0"), rule("**.o_proj.weight", "dim = 1")].concat();
    let feed_forward =
        [rule("**.{gate,up}_proj.weight", "dim = 0"), rule("**.down_proj.weight", "dim = 1")]
            .concat();
    for (at, (rules, words)) in [
        (rule("**.q_proj.weight", "dim = 0"), "other query heads in `o_proj.weight` than"),
        (attention.replace("{q,k,v}", "{q,k}"), "other key-value heads in `v_proj.weight` than"),
        (
            // Every rank has all key-value heads, and takes the wrong ones for its own queries.
            rule("**.q_proj.weight", "dim = 0") + &rule("**.o_proj.weight", "dim = 1"),
            "share its 2 key-value heads unevenly",
        ),
        (attention.replace("dim = 1", "dim = 0"), "a part of dimension 0 of `o_proj.weight`"),
        (feed_forward.replace("dim = 1", "dim = 1, stride = 2"), "other inner units in `down_"),
        (feed_forward.replace("{gate,up}", "gate"), "other inner units in `up_proj.weight`"),
        (rule("**.embed_tokens.weight", "dim = 1"), "dimension 1 of `embed_tokens.weight`"),
    ]
    .into_iter()
    .enumerate()
    {
        let to = folder.join(format!("out{at}"));
        write_wrong(&from, &to, &rules);
        let (whole, part) = (open(&from), open(&to));
        assert_eq!(verify(&whole, &part).unwrap(), []);
        let doubts = unproven(&part, &whole).join("; ");
        assert!(doubts.contains(words), "{rules}: {doubts}");
    }
    for (rules, target) in [(attention, "right0"), (feed_forward, "right1")] {
        let source = open(&from);
        let text = format!("mesh = {{axes = [[\"tp\", 2]]}}\n{rules}");
        let mesh = MeshLayout::from_toml(&text).unwrap();
        let layout = mesh.compile(&source.layout().specs()).unwrap();
        let destination = Destination::Sharded(layout);
        let conversion = Conversion::new(&source, &destination, Default::default()).unwrap();
        conversion.run(&folder.join(target), &|_| {}).unwrap();
        assert_eq!(unproven(&open(&folder.join(target)), &source), [""; 0]);
    }
}

/// The heads that each rank has: queries, keys, values, and the queries of the output.
type Heads = [Vec<u64>; 4];

/// Right, by the definition: all of a rank's query heads look for their key-value head where it is.
fn is_right(ranks: &[Heads], query: u64, key_value: u64) -> bool {
    let one = |[queries, keys, values, outputs]: &Heads| {
        if queries.is_empty() || queries != outputs || keys.is_empty() || keys != values {
            return false;
        }
        let share = queries.len() / keys.len();
        let finds = |(at, head): (usize, &u64)| {
            keys.get(at / share.max(1)) == Some(&(head * key_value / query))
        };
        queries.len() == share * keys.len() && queries.iter().enumerate().all(finds)
    };
    let has_all = |part: usize, count: u64| {
        (0..count).all(|head| ranks.iter().any(|heads| heads[part].contains(&head)))
    };
    ranks.iter().all(one)
        && has_all(0, query)
        && has_all(1, key_value)
        && has_all(2, key_value)
        && has_all(3, query)
}

/// Some of `count` heads in their order.
fn some(rng: &mut Rng, count: u64) -> Vec<u64> {
    (0..count).filter(|_| rng.one_in(2)).collect()
}

fn random_ranks(rng: &mut Rng, query: u64, key_value: u64) -> Vec<Heads> {
    let group = query / key_value;
    let count = 1 + rng.below(3) as u64;
    let mut ranks: Vec<Heads> = (0..count)
        .map(|rank| {
            // Whole groups, then some of them damaged.
            let keys: Vec<u64> = (0..key_value).filter(|key| key % count == rank).collect();
            let queries: Vec<u64> =
                keys.iter().flat_map(|key| key * group..(key + 1) * group).collect();
            [queries.clone(), keys.clone(), keys, queries]
        })
        .collect();
    for _ in 0..rng.below(3) {
        let rank = rng.below(ranks.len());
        match rng.below(3) {
            0 => {
                let (queries, keys) = (some(rng, query), some(rng, key_value));
                ranks[rank] = [queries.clone(), keys.clone(), keys, queries];
            }
            1 => ranks[rank][rng.below(4)] = some(rng, key_value),
            // One head only, with the key-value head that it needs.
            _ => {
                let head = rng.below(query as usize) as u64;
                let key = vec![head / group];
                ranks[rank] = [vec![head], key.clone(), key, vec![head]];
            }
        }
    }
    ranks
}

/// The shard with these heads of 2 elements along `dim`.
fn shard_of(rank: u32, shape: [u64; 2], dim: usize, heads: &[u64]) -> Shard {
    let mut local = Dims::from_slice(&shape).unwrap();
    local[dim] = heads.len() as u64 * 2;
    let piece = |(at, head): (usize, &u64)| {
        let (mut global, mut place) = (NdBox::whole(local), local.zeros());
        (global.start[dim], global.size[dim]) = (head * 2, 2);
        place[dim] = at as u64 * 2;
        Piece { global, local: place }
    };
    Shard { rank, shape: local, pieces: heads.iter().enumerate().map(piece).collect() }
}

#[test]
fn the_judgement_of_any_distribution_of_heads_is_that_of_the_definition() {
    let folder = directory("judgement");
    let mut seen = [0, 0];
    for_seeds("the_judgement_of_any_distribution_of_heads_is_that_of_the_definition", 200, |rng| {
        let key_value = 1 + rng.below(3) as u64;
        let query = key_value * (1 + rng.below(3) as u64);
        let shapes = [[query * 2, 3], [key_value * 2, 3], [key_value * 2, 3], [3, query * 2]];
        let names = ["q_proj", "k_proj", "v_proj", "o_proj"]
            .map(|part| format!("model.layers.0.self_attn.{part}.weight"));
        let tensors: Vec<Tensor> = std::iter::zip(&names, &shapes)
            .map(|(name, shape)| tensor(rng, name, "BF16", shape))
            .collect();
        let config = format!(r#"{{"num_attention_heads": {query}, "head_dim": 2}}"#);
        std::fs::write(folder.join("model.safetensors"), file_bytes(&tensors)).unwrap();
        std::fs::write(folder.join("config.json"), config).unwrap();
        let ranks = random_ranks(rng, query, key_value);
        let mut builder = Layout::builder();
        for (part, name) in names.iter().enumerate() {
            let dim = usize::from(part == 3);
            let shards = (0..)
                .zip(&ranks)
                .map(|(rank, heads)| shard_of(rank, shapes[part], dim, &heads[part]));
            builder.tensor(name, Dtype::BF16, &shapes[part], shards.collect()).unwrap();
        }
        let source = open(&folder);
        let destination = Destination::Sharded(builder.finish());
        let judged = Conversion::new(&source, &destination, Default::default());
        let expected = is_right(&ranks, query, key_value);
        assert_eq!(judged.is_ok(), expected, "{query}/{key_value}: {ranks:?}");
        if let Err(error) = judged {
            assert!(matches!(error, CheckpointError::Unproven { .. }), "{error}");
        }
        seen[usize::from(expected)] += 1;
    });
    assert!(seen[0] > 20 && seen[1] > 20, "{seen:?}");
}

#[test]
fn elements_that_no_rank_holds_are_a_doubt() {
    let folder = directory("uncovered");
    let from = folder.join("in");
    write_model(&from, &[tensor(&mut Rng::new(3), "w", "F32", &[4, 2])], "{}");
    let source = open(&from);
    let mut builder = Layout::builder();
    let shards = vec![shard_of(0, [4, 2], 0, &[0])];
    builder.tensor("w", Dtype::F32, &[4, 2], shards).unwrap();
    let destination = Destination::Sharded(builder.finish());
    let error = Conversion::new(&source, &destination, Default::default()).unwrap_err();
    assert!(error.to_string().contains("no rank holds"), "{error}");
    assert!(try_convert(&from, &folder.join("out"), "hf", Default::default()).is_ok());
}
