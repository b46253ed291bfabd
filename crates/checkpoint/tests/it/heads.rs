//! Attention heads: for every number of heads and ranks, each rank's heads by brute force, or a
//! refusal.

use std::collections::BTreeMap;
use std::path::Path;

use syncline_checkpoint::{CheckpointError, ConversionOptions, parse_rules};

use crate::models::{Tensor, convert, directory, read_file, refusal, try_convert, write_model};

const SIZE: u64 = 2;
const WIDTH: u64 = 3;

/// A matrix whose elements say which head they are of; heads are rows or columns.
fn heads_matrix(name: &str, heads: u64, is_rows: bool) -> Tensor {
    let (rows, columns) = if is_rows { (heads * SIZE, WIDTH) } else { (WIDTH, heads * SIZE) };
    let head = |row, column| (if is_rows { row } else { column }) / SIZE;
    let cells = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
    let bytes = cells.flat_map(|(row, column)| (head(row, column) as u16).to_le_bytes()).collect();
    (name.to_owned(), "BF16", vec![rows, columns], bytes)
}

fn model(query: u64, key_value: u64) -> Vec<Tensor> {
    let name = |part: &str| format!("model.layers.0.{part}.weight");
    let filler = |part: &str, rows: u64, columns: u64| {
        (name(part), "BF16", vec![rows, columns], vec![0; (rows * columns * 2) as usize])
    };
    vec![
        heads_matrix(&name("self_attn.q_proj"), query, true),
        heads_matrix(&name("self_attn.k_proj"), key_value, true),
        heads_matrix(&name("self_attn.v_proj"), key_value, true),
        heads_matrix(&name("self_attn.o_proj"), query, false),
        filler("mlp.up_proj", 32, WIDTH),
        filler("mlp.down_proj", WIDTH, 32),
    ]
}

/// The heads that a rank's matrix has, in its order.
fn heads_of(file: &BTreeMap<String, (String, Vec<u64>, Vec<u8>)>, part: &str) -> Vec<u64> {
    let (_, shape, bytes) = &file[&format!("model.layers.0.self_attn.{part}_proj.weight")];
    let cell = |row: u64, column: u64| {
        let at = ((row * shape[1] + column) * 2) as usize;
        u64::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
    };
    let is_rows = shape[1] == WIDTH;
    let along = if is_rows { shape[0] } else { shape[1] };
    let at = |at: u64| if is_rows { cell(at, 0) } else { cell(0, at) };
    let elements: Vec<u64> = (0..along).map(at).collect();
    let heads = elements.chunks(SIZE as usize).map(|head| {
        assert!(head.iter().all(|&element| element == head[0]) && head.len() as u64 == SIZE);
        head[0]
    });
    heads.collect()
}

/// Every rank finds the key-value head of each of its query heads where its own numbers of heads
/// say.
fn check(folder: &Path, query: u64, key_value: u64, tp: u64) {
    let mut all = Vec::new();
    for rank in 0..tp {
        let file = read_file(&folder.join(format!("rank-{rank:05}.safetensors")));
        let queries = heads_of(&file, "q");
        let (keys, values) = (heads_of(&file, "k"), heads_of(&file, "v"));
        let place = format!("{query}/{key_value} at tp={tp}, rank {rank}: {queries:?}, {keys:?}");
        assert_eq!(keys, values, "{place}");
        assert_eq!(queries, heads_of(&file, "o"), "{place}");
        assert!(!queries.is_empty() && queries.len().is_multiple_of(keys.len()), "{place}");
        for (at, head) in queries.iter().enumerate() {
            let key = keys[at / (queries.len() / keys.len())];
            assert_eq!(key, head * key_value / query, "{place}");
        }
        all.extend(queries);
    }
    all.sort_unstable();
    assert_eq!(all, (0..query).collect::<Vec<_>>());
}

const MODELS: [(u64, u64); 13] = [
    (28, 4),
    (14, 2),
    (12, 4),
    (36, 4),
    (12, 2),
    (24, 8),
    (40, 8),
    (56, 8),
    (8, 2),
    (71, 1),
    (48, 1),
    (16, 16),
    (12, 12),
];
const RANKS: [u64; 6] = [2, 3, 4, 6, 8, 16];

#[test]
fn each_rank_has_the_key_value_heads_of_its_queries_or_nothing_is_written() {
    let folder = directory("heads");
    for (query, key_value) in MODELS {
        let name = format!("{query}-{key_value}");
        let from = folder.join(&name);
        let config = format!(
            r#"{{"num_attention_heads": {query}, "num_key_value_heads": {key_value},
                "head_dim": {SIZE}, "hidden_size": {WIDTH}, "num_hidden_layers": 1}}"#
        );
        write_model(&from, &model(query, key_value), &config);
        for tp in RANKS {
            let to = folder.join(format!("{name}-{tp}"));
            let done = try_convert(&from, &to, &format!("tp={tp}"), Default::default());
            // Whole key-value heads for each rank, or ranks that share one evenly and have queries.
            let can = tp <= key_value || (tp.is_multiple_of(key_value) && tp <= query);
            match done {
                Ok(_) => check(&to, query, key_value, tp),
                Err(CheckpointError::Unproven { .. }) => assert!(!to.exists()),
                Err(error) => panic!("{name} at {tp}: {error}"),
            }
            assert_eq!(to.exists(), can, "{name} at {tp}");
        }
    }
}

#[test]
fn heads_that_are_not_known_are_never_cut() {
    let folder = directory("heads_unknown");
    let tensors = model(8, 2);
    let mut allowed = ConversionOptions::default();
    allowed.allow_unproven = true;
    for (name, config, words) in [
        ("empty", "{}", "no `num_attention_heads`"),
        ("malformed", "{\"num_attention_heads\": 8", "cannot be read"),
        ("text", "[]", "expected an object"),
        ("nan", r#"{"num_attention_heads": 8, "x": NaN}"#, "cannot be read"),
        ("list", r#"{"num_attention_heads": [8, 4]}"#, "layers differ"),
        ("other", r#"{"num_attention_heads": 3, "head_dim": 2}"#, "do not fit"),
        ("keys", r#"{"num_attention_heads": 8, "num_key_value_heads": 4}"#, "do not fit"),
        ("vision", r#"{"vision_config": {"num_attention_heads": 8}}"#, "no `num_attention"),
    ] {
        let from = folder.join(name).join("in");
        write_model(&from, &tensors, config);
        let said = refusal(&from, "tp=2", Default::default());
        assert!(said.contains(words) && said.contains("--allow-unproven"), "{name}: {said}");
        // Copies of the whole need no heads.
        convert(&from, &from.with_file_name("dp"), "dp=2", Default::default());
        // The override is in the layout that it gives.
        let out = from.with_file_name("out");
        convert(&from, &out, "tp=2", allowed.clone());
        let layout = std::fs::read_to_string(out.join("layout.json")).unwrap();
        let layout: serde_json::Value = serde_json::from_str(&layout).unwrap();
        let reasons = layout["unproven"].to_string();
        assert!(reasons.contains(words), "{name}: {reasons}");
    }
    let from = folder.join("absent/in");
    write_model(&from, &tensors, "");
    std::fs::remove_file(from.join("config.json")).unwrap();
    assert!(refusal(&from, "tp=2", Default::default()).contains("config.json: cannot be read"));
}

#[test]
fn heads_are_read_from_all_shapes_of_configurations() {
    let folder = directory("heads_configurations");
    for (at, config) in [
        r#"{"text_config": {"num_attention_heads": 14, "num_key_value_heads": 2}}"#,
        r#"{"n_head": 14, "n_head_kv": 2}"#,
        r#"{"num_heads": 14, "num_kv_heads": 2}"#,
        r#"{"num_attention_heads": [14, 14], "num_key_value_heads": null}"#,
        r#"{"num_attention_heads": 14, "vision_config": {"num_attention_heads": 4}}"#,
    ]
    .into_iter()
    .enumerate()
    {
        let (from, to) = (folder.join(format!("in{at}")), folder.join(format!("out{at}")));
        write_model(&from, &model(14, 2), config);
        convert(&from, &to, "tp=4", Default::default());
        check(&to, 14, 2, 4);
        // The file itself, beside its configuration, which goes along.
        let (file, to) = (from.join("model.safetensors"), folder.join(format!("file{at}")));
        convert(&file, &to, "tp=4", Default::default());
        check(&to, 14, 2, 4);
        assert_eq!(std::fs::read_to_string(to.join("config.json")).unwrap(), config);
    }
}

#[test]
fn groups_are_a_rule_that_files_may_give() {
    let rules = "[[tensor]]\nmatch = \"q\"\nshard = [{dim = 0, axis = \"tp\", groups = 2}]\n";
    assert_eq!(parse_rules(rules).unwrap()[0].shard[0].groups, Some(2));
}
