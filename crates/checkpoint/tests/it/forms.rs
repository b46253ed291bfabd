//! Maps between forms: what they make, by hand, and that a map and its inverse are the identity.

use std::path::Path;

use syncline_checkpoint::{
    Checkpoint, CheckpointError, Conversion, Destination, MapRule, add_builtin_rules, builtin_maps,
    parse_maps, parse_target, target_specs, verify,
};
use syncline_layout::MeshLayout;
use syncline_testing::{Rng, for_seeds};

use crate::models::{HEADS, Tensor, directory, llama, qwen, read_file, tensor, write_model};

/// Writes the checkpoint in `from`, mapped, to `to`; returns how many rules found nothing.
fn map(from: &Path, to: &Path, target: &str, rules: &[MapRule]) -> Result<usize, CheckpointError> {
    let (source, unused) = Checkpoint::open(from)?.mapped(rules)?;
    let destination = match target {
        "hf" => Destination::HuggingFace { file_bytes_max: 1 << 20 },
        _ => {
            let specs = target_specs(&source, None);
            let mut mesh = MeshLayout::new(parse_target(target)?, Vec::new());
            add_builtin_rules(&mut mesh, &specs, from)?;
            Destination::Sharded(mesh.compile(&specs)?)
        }
    };
    Conversion::new(&source, &destination, Default::default())?.run(to, &|_| {})?;
    Ok(unused.len())
}

fn built_in(name: &str, folder: &Path) -> Vec<MapRule> {
    builtin_maps(name, &Checkpoint::open(folder).unwrap()).unwrap().unwrap()
}

fn typed(config: &str, kind: &str) -> String {
    config.replacen('{', &format!("{{\"model_type\": \"{kind}\", "), 1)
}

/// Rows of the tensor `name`, as bytes.
fn rows(folder: &Path, name: &str) -> Vec<Vec<u8>> {
    let file = read_file(&folder.join("model.safetensors"));
    let (_, shape, bytes) = &file[name];
    bytes.chunks(bytes.len() / shape[0] as usize).map(<[u8]>::to_vec).collect()
}

#[test]
fn megatron_has_the_heads_of_each_group_together() {
    let folder = directory("forms_megatron");
    let (from, to) = (folder.join("in"), folder.join("out"));
    write_model(&from, &llama(&mut Rng::new(1), 2, 0), &typed(HEADS, "llama"));
    map(&from, &to, "hf", &built_in("hf-to-megatron", &from)).unwrap();
    let part = |part: &str| rows(&from, &format!("model.layers.1.self_attn.{part}_proj.weight"));
    let (q, k, v) = (part("q"), part("k"), part("v"));
    // 4 query heads and 2 key-value heads of 4 rows.
    let expected = [&q[..8], &k[..4], &v[..4], &q[8..], &k[4..], &v[4..]].concat();
    assert_eq!(rows(&to, "decoder.layers.1.self_attention.linear_qkv.weight"), expected);
    let mlp = |part: &str| rows(&from, &format!("model.layers.0.mlp.{part}_proj.weight"));
    let expected = [mlp("gate"), mlp("up")].concat();
    assert_eq!(rows(&to, "decoder.layers.0.mlp.linear_fc1.weight"), expected);
    // Mapped and split at once is the same as one after the other.
    let maps = built_in("hf-to-megatron", &from);
    map(&from, &folder.join("at once"), "tp=2,pp=2", &maps).unwrap();
    map(&to, &folder.join("then"), "tp=2,pp=2", &[]).unwrap();
    for rank in 0..4 {
        let file =
            |name: &str| read_file(&folder.join(name).join(format!("rank-0000{rank}.safetensors")));
        assert_eq!(file("at once"), file("then"));
    }
    let refused = map(&folder.join("then"), &folder.join("no"), "hf", &maps).unwrap_err();
    assert!(refused.to_string().contains("convert it with --to hf first"), "{refused}");
}

#[test]
fn experts_are_fused_stacked_and_taken_from_the_stack_again() {
    let folder = directory("forms_experts");
    let (from, to, back) = (folder.join("in"), folder.join("out"), folder.join("back"));
    write_model(&from, &qwen(&mut Rng::new(2), 2, 3), &typed(HEADS, "qwen3_moe"));
    map(&from, &to, "hf", &built_in("hf-to-vllm", &from)).unwrap();
    let file = read_file(&to.join("model.safetensors"));
    let (_, shape, bytes) = &file["model.layers.1.mlp.experts.w13_weight"];
    assert_eq!(shape[..], [3, 16, 16]);
    let source = read_file(&from.join("model.safetensors"));
    let expert = |at: u64, part: &str| {
        source[&format!("model.layers.1.mlp.experts.{at}.{part}_proj.weight")].2.clone()
    };
    let expected: Vec<u8> =
        (0..3).flat_map(|at| [expert(at, "gate"), expert(at, "up")].concat()).collect();
    assert_eq!(*bytes, expected);
    // Stacked experts are split by the description of the family.
    map(&to, &folder.join("split"), "tp=2,ep=3", &[]).unwrap();
    map(&to, &back, "hf", &built_in("vllm-to-hf", &to)).unwrap();
    assert_eq!(read_file(&back.join("model.safetensors")), source);
}

/// In Megatron's form the norm before experts has a name of its own, also where only some layers
/// have experts.
#[test]
fn norms_are_named_by_what_their_own_layer_has() {
    let folder = directory("forms_mixed");
    let (from, to, back) = (folder.join("in"), folder.join("out"), folder.join("back"));
    let of_layer = |model: Vec<Tensor>, is_first: bool| {
        let first = move |name: &str| name.contains("layers.0.");
        model.into_iter().filter(move |tensor| first(&tensor.0) == is_first)
    };
    let (dense, mixture) = (qwen(&mut Rng::new(5), 3, 0), qwen(&mut Rng::new(6), 3, 2));
    let tensors: Vec<Tensor> = of_layer(dense, true).chain(of_layer(mixture, false)).collect();
    write_model(&from, &tensors, &typed(HEADS, "qwen3_moe"));
    map(&from, &to, "hf", &built_in("hf-to-megatron", &from)).unwrap();
    let file = read_file(&to.join("model.safetensors"));
    for layer in 0..3 {
        for (norm, is_of_experts) in
            [("mlp.linear_fc1.layer_norm_weight", false), ("pre_mlp_layernorm.weight", true)]
        {
            let name = format!("decoder.layers.{layer}.{norm}");
            assert_eq!(file.contains_key(&name), is_of_experts == (layer > 0), "{name}");
        }
    }
    map(&to, &back, "hf", &built_in("megatron-to-hf", &to)).unwrap();
    let model = |folder: &Path| read_file(&folder.join("model.safetensors"));
    assert_eq!(model(&from), model(&back));
}

/// Maps there and back give what was there, for all built-in maps and numbers of heads.
#[test]
fn a_map_and_its_inverse_are_the_identity() {
    let folder = directory("forms_identity");
    for_seeds("a_map_and_its_inverse_are_the_identity", 30, |rng| {
        let (key_value, group, size) =
            (1 + rng.below(3) as u64, 1 + rng.below(3) as u64, 1 + rng.below(3) as u64);
        let query = key_value * group;
        let experts = rng.below(3) as u64;
        let kind = *rng.pick(&["llama", "qwen3", "mixtral"]);
        let config = format!(
            r#"{{"model_type": "{kind}", "num_attention_heads": {query},
                "num_key_value_heads": {key_value}, "head_dim": {size}}}"#
        );
        let mut tensors = match kind {
            "qwen3" => qwen(rng, 2, experts),
            "mixtral" => llama(rng, 2, experts + 1),
            _ => llama(rng, 2, 0),
        };
        for tensor_of in &mut tensors {
            let name = tensor_of.0.clone();
            let heads = match name.split('.').rev().nth(1) {
                Some("q_proj") => query,
                Some("k_proj" | "v_proj") => key_value,
                _ => continue,
            };
            let mut shape = tensor_of.2.clone();
            shape[0] = heads * size;
            *tensor_of = tensor(rng, &name, "BF16", &shape);
        }
        let from = folder.join("in");
        write_model(&from, &tensors, &config);
        for (there, back) in [("hf-to-megatron", "megatron-to-hf"), ("hf-to-vllm", "vllm-to-hf")] {
            let (middle, last) = (folder.join("middle"), folder.join("last"));
            for old in [&middle, &last] {
                let _ = std::fs::remove_dir_all(old);
            }
            map(&from, &middle, "hf", &built_in(there, &from)).unwrap();
            let names = |folder: &Path| -> Vec<String> {
                read_file(&folder.join("model.safetensors")).into_keys().collect()
            };
            assert_ne!(names(&from), names(&middle));
            map(&middle, &last, "hf", &built_in(back, &middle)).unwrap();
            let file = |folder: &Path| read_file(&folder.join("model.safetensors"));
            assert_eq!(file(&from), file(&last), "{there} {config}");
            // The two forms are the same model.
            let (source, _) =
                Checkpoint::open(&from).unwrap().mapped(&built_in(there, &from)).unwrap();
            assert_eq!(verify(&source, &Checkpoint::open(&middle).unwrap()).unwrap(), []);
        }
    });
}

#[test]
fn maps_that_do_not_fit_are_refused_and_unused_ones_are_told() {
    let folder = directory("forms_refused");
    let from = folder.join("in");
    let parts: [Tensor; 2] = [
        tensor(&mut Rng::new(3), "a.0.x", "F32", &[6, 2]),
        tensor(&mut Rng::new(4), "a.1.y", "F32", &[4, 2]),
    ];
    write_model(&from, &parts, "{}");
    let said = |text: &str| {
        let rules = parse_maps(text).unwrap();
        let mapped = Checkpoint::open(&from).unwrap().mapped(&rules);
        mapped.map(|(_, unused)| unused.len()).map_err(|error| error.to_string())
    };
    for (text, words) in [
        ("from = [\"a.*.x\", \"a.*.y\"]\nto = \"b.*\"", "`a.0.y` is missing"),
        ("from = [\"a.0.x\", \"a.1.y\"]\nto = \"b\"\ndim = 1", "unlike shapes"),
        ("from = [\"a.0.x\", \"a.1.y\"]\nto = \"b\"\nparts = [1, 1]", "[6, 4] elements in a group"),
        ("from = [\"a.0.x\", \"a.1.y\"]\nto = \"b\"\ngroups = 3", "are no 3 groups"),
        ("from = \"a.0.x\"\nto = [\"b\", \"c\"]\nparts = [1, 3]", "no 1 groups of 2 parts"),
        ("from = \"a.0.x\"\nto = [\"b\", \"c\"]\nparts = [\"Q\", 1]", "see config.json"),
        ("from = \"a.0.x\"\nto = [\"b\", \"c\"]\ndim = 2", "no dimension 2"),
        ("from = \"a.0.x\"\nto = \"a.1.y\"", "`a.1.y` is there already"),
        ("from = \"a.*.y\"\nto = \"b\"", "gaps"),
        ("from = [\"a\", \"b\"]\nto = [\"c\", \"d\"]", "several names"),
    ] {
        let error = said(&format!("[[map]]\n{text}\n")).unwrap_err();
        assert!(error.contains(words), "{text}: {error}");
    }
    assert_eq!(said("[[map]]\nfrom = \"z\"\nto = \"y\"\n"), Ok(1));
    assert!(parse_maps("[[map]]\nfrom = \"z\"\n").is_err());
}

#[test]
fn built_in_maps_are_refused_for_models_they_are_not_for() {
    let folder = directory("forms_other_model");
    write_model(&folder, &llama(&mut Rng::new(4), 1, 0), &typed(HEADS, "gemma2"));
    let source = Checkpoint::open(&folder).unwrap();
    let refused = builtin_maps("hf-to-megatron", &source).unwrap_err().to_string();
    assert!(refused.contains("`gemma2`") && refused.contains("[[map]]"), "{refused}");
    assert!(builtin_maps("hf-to-nowhere", &source).unwrap().is_none());
}

#[test]
fn turned_padded_and_trimmed_tensors_are_what_loops_make_of_them() {
    let folder = directory("forms_turned");
    for_seeds("turned_padded_and_trimmed_tensors_are_what_loops_make_of_them", 60, |rng| {
        let mut size = || 1 + rng.below(6) as u64;
        let (rows, columns, after) = (size(), size(), size() + 3);
        let (dim, is_turned) = (rng.below(2), rng.one_in(2));
        let before = [rows, columns][dim];
        let weight = tensor(rng, "a.weight", "BF16", &[rows, columns]);
        let from = folder.join("in");
        write_model(&from, std::slice::from_ref(&weight), "{\"vocab_size\": 5}");
        let rules = format!(
            "[[map]]\nfrom = \"a.*\"\nto = \"b.*\"\ndim = {dim}\nsize = [{before}, {after}]\n\
             transpose = {is_turned}\n"
        );
        let rules = parse_maps(&rules).unwrap();
        let (middle, last) = (folder.join("middle"), folder.join("last"));
        for old in [&middle, &last] {
            let _ = std::fs::remove_dir_all(old);
        }
        map(&from, &middle, "hf", &rules).unwrap();
        let made = read_file(&middle.join("model.safetensors")).remove("b.weight").unwrap();
        let mut shape = [rows, columns];
        shape[dim] = after;
        let mut expected = Vec::new();
        let (outer, inner) = if is_turned { (shape[1], shape[0]) } else { (shape[0], shape[1]) };
        for one in 0..outer {
            for two in 0..inner {
                let (row, column) = if is_turned { (two, one) } else { (one, two) };
                let at = 2 * (row * columns + column) as usize;
                match row < rows && column < columns {
                    true => expected.extend_from_slice(&weight.3[at..at + 2]),
                    false => expected.extend_from_slice(&[0, 0]),
                }
            }
        }
        assert_eq!((made.1, made.2), (vec![outer, inner], expected));
        // What was padded comes back whole; what was trimmed has zeros.
        if after >= before {
            map(&middle, &last, "hf", &[rules[0].inverse()]).unwrap();
            let file = |folder: &Path| read_file(&folder.join("model.safetensors"));
            assert_eq!(file(&from), file(&last));
        }
    });
}
