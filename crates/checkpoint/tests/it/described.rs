//! Families by their descriptions: what each rank holds of the blocks that names alone do not
//! explain.

use std::path::Path;

use syncline_layout::{Layout, expand_ranges};
use syncline_testing::Rng;

use crate::models::{Tensor, convert, directory, refusal, tensor, write_model};

/// Tensors by their names, with ranges, and their shapes.
fn model(parts: &[(&str, &[u64])]) -> Vec<Tensor> {
    let rng = &mut Rng::new(1);
    let mut tensors = Vec::new();
    for (pattern, shape) in parts {
        for name in expand_ranges(pattern).unwrap() {
            tensors.push(tensor(rng, &name, "BF16", shape));
        }
    }
    tensors
}

/// The elements along `dim` that `rank` holds of a tensor, in its order; `None` if it has none.
fn held(folder: &Path, name: &str, rank: u32, dim: usize) -> Option<Vec<u64>> {
    let text = std::fs::read_to_string(folder.join("layout.json")).unwrap();
    let layout = Layout::from_json(&text).unwrap();
    let shard = layout.tensor(name).unwrap_or_else(|| panic!("{name}")).placement().shard(rank)?;
    let piece = |piece: &syncline_layout::Piece| {
        let (from, size) = (piece.global.start[dim], piece.global.size[dim]);
        (piece.local[dim], from..from + size)
    };
    let mut pieces: Vec<_> = shard.pieces.iter().map(piece).collect();
    pieces.sort_by_key(|(local, _)| *local);
    pieces.dedup();
    Some(pieces.into_iter().flat_map(|(_, range)| range).collect())
}

/// Converts the model and compares what a rank holds along a dimension of some tensors.
#[track_caller]
fn check(
    name: &str,
    config: &str,
    parts: &[(&str, &[u64])],
    target: &str,
    expected: &[(&str, u32, usize, &[std::ops::Range<u64>])],
) {
    let folder = directory(&format!("described_{name}_{target}"));
    write_model(&folder.join("in"), &model(parts), config);
    convert(&folder.join("in"), &folder.join("out"), target, Default::default());
    for (tensor, rank, dim, ranges) in expected {
        let found = held(&folder.join("out"), tensor, *rank, *dim);
        let ranges: Vec<u64> = ranges.iter().cloned().flatten().collect();
        assert_eq!(found, Some(ranges), "{name} at {target}: {tensor} on rank {rank}");
    }
}

#[track_caller]
fn check_refused(name: &str, config: &str, parts: &[(&str, &[u64])], target: &str, words: &str) {
    let folder = directory(&format!("refused_{name}_{target}"));
    write_model(&folder.join("in"), &model(parts), config);
    let said = refusal(&folder.join("in"), target, Default::default());
    assert!(said.contains(words), "{name} at {target}: {said}");
}

#[test]
fn fused_queries_keys_and_values_are_split_head_by_head() {
    let config = r#"{"model_type": "phi3", "num_attention_heads": 4, "num_key_value_heads": 2,
        "hidden_size": 16}"#;
    let parts: &[(&str, &[u64])] = &[
        ("model.layers.{0,1}.self_attn.qkv_proj.weight", &[32, 16]),
        ("model.layers.{0,1}.self_attn.o_proj.weight", &[16, 16]),
        ("model.layers.{0,1}.mlp.gate_up_proj.weight", &[12, 16]),
        ("model.layers.{0,1}.mlp.down_proj.weight", &[16, 6]),
    ];
    let (qkv, out) =
        ("model.layers.1.self_attn.qkv_proj.weight", "model.layers.1.self_attn.o_proj.weight");
    let up = "model.layers.0.mlp.gate_up_proj.weight";
    check(
        "phi3",
        config,
        parts,
        "tp=2",
        &[
            (qkv, 1, 0, &[8..16, 20..24, 28..32]),
            (out, 1, 1, std::slice::from_ref(&(8..16))),
            (up, 1, 0, &[3..6, 9..12]),
        ],
    );
    // Two ranks share each key-value head.
    check(
        "phi3",
        config,
        parts,
        "tp=4",
        &[(qkv, 1, 0, &[4..8, 16..20, 24..28]), (qkv, 2, 0, &[8..12, 20..24, 28..32])],
    );
    check_refused("phi3", config, parts, "tp=3", "whole ones go to at most 2 ranks");
    // Without the type of the model, the order of the three is not known.
    let unknown = config.replace("phi3", "unheard of");
    let words = "`model.layers.*.self_attn.qkv_proj.weight` is not known";
    check_refused("unknown", &unknown, parts, "tp=2", words);
    let wrong = config.replace("\"num_attention_heads\": 4", "\"num_attention_heads\": 8");
    check_refused("wrong", &wrong, parts, "tp=2", "do not fit");
}

#[test]
fn groups_of_heads_stay_together() {
    let config = r#"{"model_type": "falcon", "num_attention_heads": 4, "num_kv_heads": 2,
        "hidden_size": 16, "new_decoder_architecture": true}"#;
    let parts: &[(&str, &[u64])] = &[
        ("transformer.h.{0,1}.self_attention.query_key_value.weight", &[32, 16]),
        ("transformer.h.{0,1}.self_attention.dense.weight", &[16, 16]),
    ];
    let qkv = "transformer.h.0.self_attention.query_key_value.weight";
    check("groups", config, parts, "tp=2", &[(qkv, 1, 0, std::slice::from_ref(&(16..32)))]);
    // Sums of a group that two ranks have would count it twice.
    check_refused("groups", config, parts, "tp=4", "parts of groups");
    let one = r#"{"model_type": "falcon", "num_attention_heads": 6, "hidden_size": 24,
        "num_kv_heads": 6, "multi_query": true}"#;
    let parts: &[(&str, &[u64])] = &[
        ("transformer.h.{0,1}.self_attention.query_key_value.weight", &[32, 24]),
        ("transformer.h.{0,1}.self_attention.dense.weight", &[24, 24]),
    ];
    check("one", one, parts, "tp=3", &[(qkv, 1, 0, &[8..16, 24..32])]);
}

#[test]
fn latent_attention_is_split_between_its_heads_and_experts_between_ranks() {
    let config = r#"{"model_type": "deepseek_v3", "num_attention_heads": 4, "hidden_size": 16,
        "num_key_value_heads": 4, "qk_nope_head_dim": 4, "qk_rope_head_dim": 2, "v_head_dim": 3}"#;
    let parts: &[(&str, &[u64])] = &[
        ("model.layers.{0,1}.self_attn.q_a_proj.weight", &[8, 16]),
        ("model.layers.{0,1}.self_attn.q_b_proj.weight", &[24, 8]),
        ("model.layers.{0,1}.self_attn.kv_a_proj_with_mqa.weight", &[10, 16]),
        ("model.layers.{0,1}.self_attn.kv_b_proj.weight", &[28, 8]),
        ("model.layers.{0,1}.self_attn.o_proj.weight", &[16, 12]),
        ("model.layers.1.mlp.gate.weight", &[4, 16]),
        ("model.layers.1.mlp.gate.e_score_correction_bias", &[4]),
        ("model.layers.1.mlp.experts.{0..3}.{gate,up}_proj.weight", &[6, 16]),
        ("model.layers.1.mlp.experts.{0..3}.down_proj.weight", &[16, 6]),
        ("model.layers.1.mlp.shared_experts.{gate,up}_proj.weight", &[6, 16]),
        ("model.layers.1.mlp.shared_experts.down_proj.weight", &[16, 6]),
    ];
    check(
        "mla",
        config,
        parts,
        "tp=2,ep=2",
        &[
            ("model.layers.0.self_attn.q_b_proj.weight", 1, 0, std::slice::from_ref(&(12..24))),
            ("model.layers.0.self_attn.kv_b_proj.weight", 1, 0, std::slice::from_ref(&(14..28))),
            ("model.layers.0.self_attn.o_proj.weight", 3, 1, std::slice::from_ref(&(6..12))),
            ("model.layers.0.self_attn.q_a_proj.weight", 3, 0, std::slice::from_ref(&(0..8))),
            ("model.layers.1.mlp.experts.3.up_proj.weight", 3, 0, std::slice::from_ref(&(3..6))),
            ("model.layers.1.mlp.gate.weight", 2, 0, std::slice::from_ref(&(0..4))),
        ],
    );
    let wrong = config.replace("\"v_head_dim\": 3", "\"v_head_dim\": 2");
    check_refused("mla", &wrong, parts, "tp=2", "do not fit");
    let missing = config.replace(", \"v_head_dim\": 3", "");
    check_refused("mla_missing", &missing, parts, "tp=2", "config.json has no `v_head_dim`");
}

#[test]
fn stacked_experts_are_split_over_experts_and_inner_units() {
    let llama4 = r#"{"model_type": "llama4_text"}"#;
    let parts: &[(&str, &[u64])] = &[
        ("model.layers.{0,1}.feed_forward.experts.gate_up_proj", &[4, 16, 12]),
        ("model.layers.{0,1}.feed_forward.experts.down_proj", &[4, 6, 16]),
        ("model.layers.{0,1}.feed_forward.router.weight", &[4, 16]),
    ];
    let (up, down) = (
        "model.layers.0.feed_forward.experts.gate_up_proj",
        "model.layers.0.feed_forward.experts.down_proj",
    );
    check(
        "llama4",
        llama4,
        parts,
        "tp=2,ep=2",
        &[
            (up, 3, 0, std::slice::from_ref(&(2..4))),
            (up, 3, 2, &[3..6, 9..12]),
            (down, 3, 1, std::slice::from_ref(&(3..6))),
        ],
    );
    // gpt_oss has each gate beside its unit.
    let gpt_oss = r#"{"model_type": "gpt_oss"}"#;
    let parts: &[(&str, &[u64])] = &[
        ("model.layers.{0,1}.mlp.experts.gate_up_proj", &[4, 16, 12]),
        ("model.layers.{0,1}.mlp.experts.gate_up_proj_bias", &[4, 12]),
        ("model.layers.{0,1}.mlp.experts.down_proj", &[4, 6, 16]),
        ("model.layers.{0,1}.mlp.experts.down_proj_bias", &[4, 16]),
    ];
    let up = "model.layers.0.mlp.experts.gate_up_proj";
    check("gpt_oss", gpt_oss, parts, "tp=2", &[(up, 1, 2, std::slice::from_ref(&(6..12)))]);
    // dbrx has the rows of all experts one after the other.
    let dbrx = r#"{"model_type": "dbrx", "ffn_config": {"moe_num_experts": 3}}"#;
    let parts: &[(&str, &[u64])] =
        &[("transformer.blocks.{0,1}.ffn.experts.mlp.{w1,v1,w2}", &[12, 16])];
    let down = "transformer.blocks.1.ffn.experts.mlp.w2";
    check("dbrx", dbrx, parts, "tp=2", &[(down, 1, 0, &[2..4, 6..8, 10..12])]);
}

#[test]
fn linear_attention_is_split_between_its_key_heads() {
    let config = r#"{"model_type": "qwen3_next", "num_attention_heads": 2, "head_dim": 4,
        "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 3,
        "linear_value_head_dim": 2}"#;
    let parts: &[(&str, &[u64])] = &[
        ("model.layers.{0,1}.linear_attn.in_proj_qkvz.weight", &[28, 16]),
        ("model.layers.{0,1}.linear_attn.in_proj_ba.weight", &[8, 16]),
        ("model.layers.{0,1}.linear_attn.conv1d.weight", &[20, 1, 4]),
        ("model.layers.{0,1}.linear_attn.{A_log,dt_bias}", &[4]),
        ("model.layers.{0,1}.linear_attn.norm.weight", &[2]),
        ("model.layers.{0,1}.linear_attn.out_proj.weight", &[16, 8]),
    ];
    let name = |part: &str| format!("model.layers.0.linear_attn.{part}");
    check(
        "linear",
        config,
        parts,
        "tp=2",
        &[
            (&name("in_proj_qkvz.weight"), 1, 0, std::slice::from_ref(&(14..28))),
            (&name("conv1d.weight"), 1, 0, &[3..6, 9..12, 16..20]),
            (&name("out_proj.weight"), 1, 1, std::slice::from_ref(&(4..8))),
            (&name("A_log"), 1, 0, std::slice::from_ref(&(2..4))),
        ],
    );
}

#[test]
fn blocks_that_cannot_be_split_stay_whole_and_rules_that_split_them_are_refused() {
    let config = r#"{"model_type": "olmo2", "num_attention_heads": 4, "hidden_size": 16}"#;
    let parts: &[(&str, &[u64])] = &[
        ("model.layers.{0,1}.self_attn.{q,k,v,o}_proj.weight", &[16, 16]),
        ("model.layers.{0,1}.self_attn.{q,k}_norm.weight", &[16]),
        ("model.layers.{0,1}.mlp.{gate,up}_proj.weight", &[6, 16]),
        ("model.layers.{0,1}.mlp.down_proj.weight", &[16, 6]),
    ];
    check(
        "olmo2",
        config,
        parts,
        "tp=2",
        &[
            ("model.layers.0.self_attn.q_proj.weight", 1, 0, std::slice::from_ref(&(0..16))),
            ("model.layers.0.mlp.up_proj.weight", 1, 0, std::slice::from_ref(&(3..6))),
        ],
    );
    let folder = directory("whole_all_the_same");
    write_model(&folder.join("in"), &model(parts), config);
    let source = syncline_checkpoint::Checkpoint::open(&folder.join("in")).unwrap();
    let text = "mesh = {axes = [[\"tp\", 2]]}\n[[tensor]]\nmatch = \"**.q_proj.weight\"\n\
                shard = [{dim = 0, axis = \"tp\"}]\n";
    let mesh = syncline_layout::MeshLayout::from_toml(text).unwrap();
    let layout = mesh.compile(&source.layout().specs()).unwrap();
    let destination = syncline_checkpoint::Destination::Sharded(layout);
    let refused = syncline_checkpoint::Conversion::new(&source, &destination, Default::default())
        .unwrap_err();
    assert!(refused.to_string().contains("its norms span all heads"), "{refused}");
}

#[test]
fn towers_are_split_by_their_own_heads_and_feed_the_first_stage() {
    let config = r#"{"model_type": "llava",
        "text_config": {"model_type": "llama", "num_attention_heads": 4, "hidden_size": 16},
        "vision_config": {"model_type": "clip_vision_model", "num_attention_heads": 2,
            "hidden_size": 12}}"#;
    let tower = "vision_tower.vision_model.encoder.layers.{0..2}";
    let parts: &[(&str, &[u64])] = &[
        ("model.embed_tokens.weight", &[20, 16]),
        ("model.layers.{0,1}.self_attn.{q,k,v,o}_proj.weight", &[16, 16]),
        ("model.norm.weight", &[16]),
        ("lm_head.weight", &[20, 16]),
        ("multi_modal_projector.linear_1.weight", &[16, 12]),
        (&format!("{tower}.self_attn.{{q,k,v,out}}_proj.weight"), &[12, 12]),
        (&format!("{tower}.self_attn.{{q,k,v,out}}_proj.bias"), &[12]),
    ];
    let out = "vision_tower.vision_model.encoder.layers.2.self_attn.out_proj.weight";
    check("llava", config, parts, "tp=2,pp=2", &[(out, 1, 1, std::slice::from_ref(&(6..12)))]);
    let folder = directory("described_llava_tp=2,pp=2");
    write_model(&folder.join("in"), &model(parts), config);
    convert(&folder.join("in"), &folder.join("out"), "tp=2,pp=2", Default::default());
    assert_eq!(held(&folder.join("out"), out, 2, 1), None);
    // The decoder's two layers are shared by the stages, whatever the tower's number of layers.
    let last = "model.layers.1.self_attn.q_proj.weight";
    assert_eq!(held(&folder.join("out"), last, 0, 0), None);
    assert!(held(&folder.join("out"), last, 2, 0).is_some());
    check_refused("tower", config, parts, "tp=4", "vision_tower");
}
