//! Families that are half known, targets that make no sense, and stages that lack a matrix: right
//! or refused.

use std::path::Path;

use syncline_checkpoint::{Checkpoint, ConversionOptions, verify};
use syncline_testing::Rng;

use crate::models::{
    HEADS, Tensor, convert, directory, gpt2, llama, qwen, read_file, refusal, tensor, write_model,
};

/// Two layers of these tensors, which are named within a layer of `stack`, beside an embedding and
/// an output.
fn model(stack: &str, parts: &[(&str, &[u64])]) -> Vec<Tensor> {
    let rng = &mut Rng::new(1);
    let mut tensors = vec![tensor(rng, "model.embed_tokens.weight", "BF16", &[20, 16])];
    for layer in 0..2 {
        for (part, shape) in parts {
            tensors.push(tensor(rng, &format!("{stack}.{layer}.{part}"), "BF16", shape));
        }
    }
    tensors.push(tensor(rng, "lm_head.weight", "BF16", &[20, 16]));
    tensors
}

const LLAMA: &str = "model.layers";

/// Attention of 4 query heads and 2 key-value heads of 4, then others.
fn with_attention<'a>(others: &[(&'a str, &'a [u64])]) -> Vec<(&'a str, &'a [u64])> {
    let attention: [(&str, &[u64]); 4] = [
        ("self_attn.q_proj.weight", &[16, 16]),
        ("self_attn.k_proj.weight", &[8, 16]),
        ("self_attn.v_proj.weight", &[8, 16]),
        ("self_attn.o_proj.weight", &[16, 16]),
    ];
    attention.iter().chain(others).copied().collect()
}

/// Without its last tensors.
fn attention<'a>(count: usize, others: &[(&'a str, &'a [u64])]) -> Vec<(&'a str, &'a [u64])> {
    let all = with_attention(others);
    all[..count].iter().chain(&all[4..]).copied().collect()
}

#[test]
fn a_block_that_is_half_known_is_refused_with_its_pattern_once() {
    let folder = directory("half_known");
    let cases: Vec<(&str, &str, Vec<(&str, &[u64])>, &str)> = vec![
        (
            "phi3",
            LLAMA,
            vec![("self_attn.qkv_proj.weight", &[32, 16]), ("self_attn.o_proj.weight", &[16, 16])],
            "model.layers.*.self_attn.qkv_proj.weight",
        ),
        (
            "baichuan",
            LLAMA,
            vec![("self_attn.W_pack.weight", &[48, 16]), ("self_attn.o_proj.weight", &[16, 16])],
            "model.layers.*.self_attn.W_pack.weight",
        ),
        (
            "deepseek",
            LLAMA,
            vec![
                ("self_attn.q_a_proj.weight", &[8, 16]),
                ("self_attn.q_b_proj.weight", &[16, 8]),
                ("self_attn.kv_a_proj_with_mqa.weight", &[8, 16]),
                ("self_attn.kv_b_proj.weight", &[16, 8]),
                ("self_attn.o_proj.weight", &[16, 16]),
            ],
            "model.layers.*.self_attn.kv_b_proj.weight",
        ),
        (
            "opt",
            "model.decoder.layers",
            attention(3, &[("self_attn.out_proj.weight", &[16, 16])]),
            "model.decoder.layers.*.self_attn.out_proj.weight",
        ),
        (
            "whisper",
            "model.encoder.layers",
            attention(3, &[("self_attn.out_proj.bias", &[16])]),
            "model.encoder.layers.*.self_attn.out_proj.bias",
        ),
        (
            "llama4",
            "language_model.model.layers",
            with_attention(&[
                ("feed_forward.shared_expert.up_proj.weight", &[24, 16]),
                ("feed_forward.shared_expert.down_proj.weight", &[16, 24]),
                ("feed_forward.experts.gate_up_proj", &[4, 16, 48]),
            ]),
            "language_model.model.layers.*.feed_forward.experts.gate_up_proj",
        ),
        (
            "gpt_oss",
            LLAMA,
            with_attention(&[("self_attn.sinks", &[4])]),
            "model.layers.*.self_attn.sinks",
        ),
        (
            "stablelm",
            LLAMA,
            with_attention(&[("self_attn.q_layernorm.norms.0.weight", &[4])]),
            "model.layers.*.self_attn.q_layernorm.norms.*.weight",
        ),
        (
            "bitnet",
            LLAMA,
            with_attention(&[("self_attn.attn_sub_norm.weight", &[16])]),
            "model.layers.*.self_attn.attn_sub_norm.weight",
        ),
        (
            "olmo2",
            LLAMA,
            with_attention(&[("self_attn.q_norm.weight", &[16])]),
            "more than one head",
        ),
        (
            "cohere",
            LLAMA,
            with_attention(&[("self_attn.q_norm.weight", &[4, 4])]),
            "self_attn.q_norm.weight",
        ),
        (
            "gated queries",
            LLAMA,
            vec![
                ("self_attn.q_proj.weight", &[32, 16]),
                ("self_attn.k_proj.weight", &[8, 16]),
                ("self_attn.v_proj.weight", &[8, 16]),
                ("self_attn.o_proj.weight", &[16, 16]),
            ],
            "do not fit 32 rows of queries",
        ),
        (
            "deepseek experts",
            LLAMA,
            vec![
                ("mlp.experts.0.up_proj.weight", &[8, 16]),
                ("mlp.experts.0.down_proj.weight", &[16, 8]),
                ("mlp.shared_experts.up_proj.weight", &[8, 16]),
                ("mlp.gate.weight", &[1, 16]),
            ],
            "model.layers.*.mlp.shared_experts.up_proj.weight",
        ),
        (
            "fp8 blocks",
            LLAMA,
            with_attention(&[("self_attn.q_proj.weight_scale_inv", &[1, 2])]),
            "model.layers.*.self_attn.q_proj.weight_scale_inv",
        ),
        (
            "exaone",
            "transformer.h",
            vec![("mlp.c_fc_0.weight", &[24, 16]), ("mlp.c_proj.weight", &[16, 24])],
            "transformer.h.*.mlp.c_fc_0.weight",
        ),
        (
            "gpt_bigcode",
            "transformer.h",
            vec![("attn.c_attn.weight", &[32, 24]), ("attn.c_proj.weight", &[24, 24])],
            "`transformer.h.*.attn`: 4 query heads of 4 do not fit",
        ),
        ("no partner", LLAMA, vec![("mlp.down_proj.weight", &[16, 24])], "has no partner"),
        (
            "unlike partners",
            LLAMA,
            vec![("mlp.up_proj.weight", &[24, 16]), ("mlp.down_proj.weight", &[16, 32])],
            "24 inner units on one side and 32 on the other",
        ),
    ];
    for (name, stack, parts, words) in cases {
        let from = folder.join(name).join("in");
        write_model(&from, &model(stack, &parts), HEADS);
        let said = refusal(&from, "tp=2", Default::default());
        assert!(said.contains("not proven right") && said.contains(words), "{name}: {said}");
        if words.starts_with("model") || words.starts_with("language_model") {
            assert_eq!(said.matches(&format!("`{words}` is not known")).count(), 1, "{said}");
        }
        // Nothing of a block that no rank splits can be wrong.
        let out = from.with_file_name("out");
        convert(&from, &out, "dp=2", Default::default());
        let (whole, part) = (Checkpoint::open(&from).unwrap(), Checkpoint::open(&out).unwrap());
        assert_eq!(verify(&whole, &part).unwrap(), [], "{name}");
    }
    let from = folder.join("bias/in");
    let mut tensors = llama(&mut Rng::new(2), 1, 0);
    tensors.push(tensor(&mut Rng::new(3), "lm_head.bias", "BF16", &[20]));
    write_model(&from, &tensors, HEADS);
    let said = refusal(&from, "tp=2", Default::default());
    assert!(said.contains("`lm_head.bias` is not known, and `lm_head.weight` is split"), "{said}");
}

#[test]
fn what_is_not_split_and_single_numbers_need_not_be_known() {
    let folder = directory("replicated");
    let parts = with_attention(&[
        ("self_attn.k_scale", &[]),
        ("self_attn.gate", &[1]),
        ("mamba.in_proj.weight", &[8, 16]),
        ("mamba.out_proj.weight", &[16, 8]),
    ]);
    write_model(&folder.join("in"), &model(LLAMA, &parts), HEADS);
    convert(&folder.join("in"), &folder.join("out"), "tp=2", Default::default());
    let rank = read_file(&folder.join("out/rank-00001.safetensors"));
    assert_eq!(rank["model.layers.1.mamba.in_proj.weight"].1, [8, 16]);
    assert_eq!(rank["model.layers.1.self_attn.q_proj.weight"].1, [8, 16]);
}

/// GPT-Neo keeps the matrices of its feed-forward blocks output first, GPT-2 input first, under the
/// same names.
#[test]
fn the_feed_forward_of_gpt_neo_is_split_along_its_inner_units() {
    let folder = directory("gpt_neo");
    let parts: [(&str, &[u64]); 5] = [
        ("ln_2.weight", &[16]),
        ("mlp.c_fc.weight", &[64, 16]),
        ("mlp.c_fc.bias", &[64]),
        ("mlp.c_proj.weight", &[16, 64]),
        ("mlp.c_proj.bias", &[16]),
    ];
    write_model(&folder.join("in"), &model("transformer.h", &parts), "{}");
    convert(&folder.join("in"), &folder.join("out"), "tp=4", Default::default());
    let rank = read_file(&folder.join("out/rank-00003.safetensors"));
    let shape = |part: &str| rank[&format!("transformer.h.1.mlp.{part}")].1.clone();
    assert_eq!((shape("c_fc.weight"), shape("c_fc.bias")), (vec![16, 16], vec![16]));
    assert_eq!((shape("c_proj.weight"), shape("c_proj.bias")), (vec![16, 16], vec![16]));
    let source = read_file(&folder.join("in/model.safetensors"));
    let name = "transformer.h.1.mlp.c_fc.weight";
    assert_eq!(rank[name].2, source[name].2[48 * 16 * 2..]);
    // Where both sides have one size, the configuration has to say which family it is.
    let square: [(&str, &[u64]); 3] =
        [("ln_2.weight", &[16]), ("mlp.c_fc.weight", &[16, 16]), ("mlp.c_proj.weight", &[16, 16])];
    for (kind, name, is_rows) in [("gpt_neo", "neo", true), ("gpt2", "gpt2", false)] {
        let (from, to) = (folder.join(name), folder.join(format!("{name}_out")));
        let config = format!(r#"{{"model_type": "{kind}"}}"#);
        write_model(&from, &model("transformer.h", &square), &config);
        convert(&from, &to, "tp=2", Default::default());
        let rank = read_file(&to.join("rank-00000.safetensors"));
        let expected = if is_rows { [8, 16] } else { [16, 8] };
        assert_eq!(rank["transformer.h.0.mlp.c_fc.weight"].1, expected);
    }
    let from = folder.join("unknown/in");
    write_model(&from, &model("transformer.h", &square), "{}");
    assert!(refusal(&from, "tp=2", Default::default()).contains("cannot be distinguished"));
}

#[test]
fn targets_that_make_no_sense_are_refused() {
    let folder = directory("targets");
    let from = folder.join("in");
    write_model(&from, &llama(&mut Rng::new(4), 2, 0), HEADS);
    let gpt2_like = folder.join("gpt2");
    write_model(&gpt2_like, &gpt2(&mut Rng::new(6)), r#"{"n_head": 2, "n_embd": 8}"#);
    let moe = folder.join("moe");
    write_model(&moe, &qwen(&mut Rng::new(5), 2, 6), HEADS);
    let other = folder.join("other");
    let rng = &mut Rng::new(6);
    write_model(&other, &[tensor(rng, "encoder.layer.0.dense.weight", "F32", &[4, 4])], "{}");
    for (from, target, words) in [
        (&from, "tp=2,cp=2", "axis `cp` is not known: expected tp, ep, pp, dp"),
        (&from, "ep=2", "ep=2: the model has no experts"),
        (&from, "pp=3", "pp=3: the model has 2 layers"),
        (&from, "tp=8", "holds parts of query heads"),
        (&gpt2_like, "tp=4", "holds parts of query heads in `c_attn.weight`"),
        (&from, "tp=3", "(of 4 query and 2 key-value heads: whole ones go to at most 2 ranks"),
        (&moe, "ep=7", "ep=7: the model has 6 experts"),
        (&other, "tp=2", "tp splits nothing"),
    ] {
        let said = refusal(from, target, Default::default());
        assert!(said.contains(words), "{target}: {said}");
    }
}

/// The names of the tensors of a rank.
fn names(folder: &Path, rank: u32) -> Vec<String> {
    read_file(&folder.join(format!("rank-{rank:05}.safetensors"))).into_keys().collect()
}

#[test]
fn a_tied_output_is_on_the_last_stage_under_every_prefix() {
    let folder = directory("tied_prefixes");
    for (at, (prefix, output)) in [
        ("model", "lm_head"),
        ("language_model.model", "language_model.lm_head"),
        ("model.language_model", "lm_head"),
        ("model.text_model", "lm_head"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut tensors = llama(&mut Rng::new(7), 2, 0);
        tensors.retain(|tensor| tensor.0 != "lm_head.weight");
        for tensor in &mut tensors {
            tensor.0 = tensor.0.replacen("model", prefix, 1);
        }
        let (from, to) = (folder.join(format!("in{at}")), folder.join(format!("out{at}")));
        write_model(&from, &tensors, HEADS);
        convert(&from, &to, "tp=2,pp=2", Default::default());
        for rank in [2, 3] {
            let names = names(&to, rank);
            assert!(names.contains(&format!("{output}.weight")), "{prefix}: {names:?}");
        }
    }
    // Two embeddings, and none of them known to be the output's.
    let mut tensors = llama(&mut Rng::new(8), 2, 0);
    tensors.retain(|tensor| tensor.0 != "lm_head.weight");
    tensors.push(tensor(&mut Rng::new(9), "other.embed_tokens.weight", "BF16", &[20, 16]));
    let from = folder.join("two/in");
    write_model(&from, &tensors, HEADS);
    let said = refusal(&from, "pp=2", Default::default());
    assert!(said.contains("the last stage lacks `model.embed_tokens.weight`"), "{said}");
}

/// The last stage gets embeddings as its output matrix only of models that have one.
#[test]
fn models_without_a_head_are_given_none() {
    let folder = directory("headless");
    let without_output = |prefix: &str| {
        let mut tensors = llama(&mut Rng::new(11), 2, 0);
        tensors.retain(|tensor| tensor.0 != "lm_head.weight");
        for tensor in &mut tensors {
            tensor.0 = tensor.0.replacen("model.", prefix, 1);
        }
        tensors
    };
    let says = |more: &str| HEADS.replacen('{', &format!("{{{more}, "), 1);
    let (causal, classifier, bare) = (
        says(r#""architectures": ["LlamaForCausalLM"]"#),
        says(r#""architectures": ["LlamaForSequenceClassification"]"#),
        says(r#""architectures": ["LlamaModel"]"#),
    );
    let untied = says(r#""architectures": ["LlamaForCausalLM"], "tie_word_embeddings": false"#);
    for (at, (prefix, config, head)) in [
        ("model.", &*causal, Ok(true)),
        ("", &*causal, Ok(true)),
        ("model.", &*classifier, Ok(false)),
        ("", &*bare, Ok(false)),
        // Not known to have one: refused, since the last stage may need it.
        ("", HEADS, Err("the last stage lacks `embed_tokens.weight`")),
        ("bert.", HEADS, Err("the last stage lacks `bert.embed_tokens.weight`")),
        ("model.", &*untied, Err("the last stage lacks `model.embed_tokens.weight`")),
    ]
    .into_iter()
    .enumerate()
    {
        let (from, to) = (folder.join(format!("{at}/in")), folder.join(format!("{at}/out")));
        write_model(&from, &without_output(prefix), config);
        match head {
            Ok(head) => {
                convert(&from, &to, "pp=2", Default::default());
                let known = [0, 1].map(|rank| names(&to, rank));
                let has = |names: &[String]| names.iter().any(|name| name.contains("lm_head"));
                assert!(!has(&known[0]) && has(&known[1]) == head, "{config}: {known:?}");
            }
            Err(words) => {
                let said = refusal(&from, "pp=2", Default::default());
                assert!(said.contains(words), "{said}");
            }
        }
    }
}

#[test]
fn stages_through_layers_that_predict_more_tokens_or_two_stacks_are_refused() {
    let folder = directory("predictors");
    let rng = &mut Rng::new(10);
    let extra = |tensors: &mut Vec<Tensor>, name: &str, rng: &mut Rng| {
        tensors.push(tensor(rng, name, "BF16", &[20, 16]));
    };
    for (name, tensor_name, config, words) in [
        ("deepseek", "model.layers.2.eh_proj.weight", HEADS, "predicts more tokens"),
        ("embedding", "model.layers.2.embed_tokens.weight", HEADS, "predicts more tokens"),
        ("qwen", "mtp.layers.0.mlp.weight", HEADS, "alike"),
        ("tower", "visual.blocks.0.attn.qkv.weight", HEADS, ""),
        ("tower of two", "visual.blocks.{0,1}.attn.qkv.weight", HEADS, "the first stage lacks"),
        ("head", "mtp.fc.weight", HEADS, "predicts more tokens"),
        ("projector", "projector.fc.weight", HEADS, ""),
        (
            "counted",
            "model.layers.2.more.weight",
            r#"{"num_attention_heads": 4, "num_hidden_layers": 2}"#,
            "has 3 layers, config.json says 2",
        ),
    ] {
        let mut tensors = llama(rng, 2, 0);
        for name in syncline_layout::expand_ranges(tensor_name).unwrap() {
            extra(&mut tensors, &name, rng);
        }
        let from = folder.join(name).join("in");
        write_model(&from, &tensors, config);
        if words.is_empty() {
            // Beside layers and unknown, it is on every stage.
            convert(&from, &from.with_file_name("out"), "pp=2", Default::default());
            assert!(names(&from.with_file_name("out"), 0).iter().any(|name| name == tensor_name));
            continue;
        }
        let said = refusal(&from, "pp=2", Default::default());
        assert!(said.contains(words), "{name}: {said}");
        let mut allowed = ConversionOptions::default();
        allowed.allow_unproven = true;
        convert(&from, &from.with_file_name("out"), "pp=2", allowed);
    }
}
