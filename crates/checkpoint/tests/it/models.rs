//! Small checkpoints of the common families.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use syncline_checkpoint::{
    Checkpoint, CheckpointError, Conversion, ConversionOptions, Destination, Summary,
    add_builtin_rules, parse_target, target_specs,
};
use syncline_layout::MeshLayout;
use syncline_testing::Rng;

/// Name, type, shape and bytes of a tensor.
pub type Tensor = (String, &'static str, Vec<u64>, Vec<u8>);

/// An empty directory of one test's own.
pub fn directory(test: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    directory
}

pub fn element_bits(element: &str) -> u64 {
    match element {
        "F4" => 4,
        "F6_E2M3" | "F6_E3M2" => 6,
        "BOOL" | "U8" | "I8" => 8,
        name if name.starts_with("F8_") => 8,
        "U16" | "I16" | "F16" | "BF16" => 16,
        "U32" | "I32" | "F32" => 32,
        _ => 64,
    }
}

pub fn tensor(rng: &mut Rng, name: &str, element: &'static str, shape: &[u64]) -> Tensor {
    let bytes = shape.iter().product::<u64>() * element_bits(element) / 8;
    let bytes = (0..bytes).map(|_| rng.next_u64() as u8).collect();
    (name.to_owned(), element, shape.to_vec(), bytes)
}

/// A safetensors file written by hand.
pub fn file_bytes(tensors: &[Tensor]) -> Vec<u8> {
    let mut header = serde_json::json!({"__metadata__": {"format": "pt"}});
    let mut data = Vec::new();
    for (name, element, shape, bytes) in tensors {
        let start = data.len();
        data.extend_from_slice(bytes);
        header[name] = serde_json::json!({"dtype": element, "shape": shape, "data_offsets": [start, data.len()]});
    }
    let header = header.to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.extend_from_slice(&data);
    file
}

/// Reads a safetensors file by hand.
pub fn read_file(path: &Path) -> BTreeMap<String, (String, Vec<u64>, Vec<u8>)> {
    let file = fs::read(path).unwrap();
    let length = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    let header: serde_json::Value = serde_json::from_slice(&file[8..8 + length]).unwrap();
    let data = &file[8 + length..];
    let mut tensors = BTreeMap::new();
    for (name, entry) in header.as_object().unwrap() {
        if name == "__metadata__" {
            assert_eq!(entry["format"], "pt");
            continue;
        }
        let number = |value: &serde_json::Value| value.as_u64().unwrap();
        let shape = entry["shape"].as_array().unwrap().iter().map(number).collect();
        let offsets = &entry["data_offsets"];
        let bytes = data[number(&offsets[0]) as usize..number(&offsets[1]) as usize].to_vec();
        tensors.insert(name.clone(), (entry["dtype"].as_str().unwrap().to_owned(), shape, bytes));
    }
    tensors
}

/// The configuration of the models below, but for GPT-2 and GPT-NeoX.
pub const HEADS: &str =
    r#"{"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 16}"#;

/// A model with 4 query heads and 2 key-value heads of 4, like Llama, with experts if there are
/// any.
pub fn llama(rng: &mut Rng, layers: u64, experts: u64) -> Vec<Tensor> {
    let mut tensors = vec![tensor(rng, "model.embed_tokens.weight", "BF16", &[20, 16])];
    for layer in 0..layers {
        let mut add = |part: &str, shape: &[u64]| {
            tensors.push(tensor(rng, &format!("model.layers.{layer}.{part}"), "BF16", shape));
        };
        add("self_attn.q_proj.weight", &[16, 16]);
        add("self_attn.k_proj.weight", &[8, 16]);
        add("self_attn.v_proj.weight", &[8, 16]);
        add("self_attn.o_proj.weight", &[16, 16]);
        add("input_layernorm.weight", &[16]);
        if experts == 0 {
            add("mlp.gate_proj.weight", &[24, 16]);
            add("mlp.up_proj.weight", &[24, 16]);
            add("mlp.down_proj.weight", &[16, 24]);
        } else {
            add("block_sparse_moe.gate.weight", &[experts, 16]);
        }
        for expert in 0..experts {
            add(&format!("block_sparse_moe.experts.{expert}.w1.weight"), &[12, 16]);
            add(&format!("block_sparse_moe.experts.{expert}.w2.weight"), &[16, 12]);
            add(&format!("block_sparse_moe.experts.{expert}.w3.weight"), &[12, 16]);
        }
    }
    tensors.push(tensor(rng, "model.norm.weight", "BF16", &[16]));
    tensors.push(tensor(rng, "lm_head.weight", "BF16", &[20, 16]));
    tensors
}

/// Like Qwen: biases on queries, keys and values, norms of heads; with experts, one shared by all
/// beside them.
pub fn qwen(rng: &mut Rng, layers: u64, experts: u64) -> Vec<Tensor> {
    let mut tensors = vec![tensor(rng, "model.embed_tokens.weight", "BF16", &[20, 16])];
    for layer in 0..layers {
        let mut add = |part: &str, shape: &[u64]| {
            tensors.push(tensor(rng, &format!("model.layers.{layer}.{part}"), "BF16", shape));
        };
        for (part, rows) in [("q", 16), ("k", 8), ("v", 8)] {
            add(&format!("self_attn.{part}_proj.weight"), &[rows, 16]);
            add(&format!("self_attn.{part}_proj.bias"), &[rows]);
        }
        add("self_attn.o_proj.weight", &[16, 16]);
        add("self_attn.q_norm.weight", &[4]);
        add("self_attn.k_norm.weight", &[4]);
        add("input_layernorm.weight", &[16]);
        add("post_attention_layernorm.weight", &[16]);
        let mut mlp = |place: &str, hidden: u64| {
            add(&format!("{place}.gate_proj.weight"), &[hidden, 16]);
            add(&format!("{place}.up_proj.weight"), &[hidden, 16]);
            add(&format!("{place}.down_proj.weight"), &[16, hidden]);
        };
        if experts == 0 {
            mlp("mlp", 24);
            continue;
        }
        mlp("mlp.shared_expert", 16);
        for expert in 0..experts {
            mlp(&format!("mlp.experts.{expert}"), 8);
        }
        add("mlp.gate.weight", &[experts, 16]);
        add("mlp.shared_expert_gate.weight", &[1, 16]);
    }
    tensors.push(tensor(rng, "model.norm.weight", "BF16", &[16]));
    tensors.push(tensor(rng, "lm_head.weight", "BF16", &[20, 16]));
    tensors
}

pub fn gpt2(rng: &mut Rng) -> Vec<Tensor> {
    let mut tensors = vec![tensor(rng, "transformer.wte.weight", "F32", &[10, 8])];
    tensors.push(tensor(rng, "transformer.wpe.weight", "F32", &[6, 8]));
    for layer in 0..2 {
        let mut add = |part: &str, shape: &[u64]| {
            tensors.push(tensor(rng, &format!("transformer.h.{layer}.{part}"), "F32", shape));
        };
        add("attn.c_attn.weight", &[8, 24]);
        add("attn.c_attn.bias", &[24]);
        add("attn.c_proj.weight", &[8, 8]);
        add("mlp.c_fc.weight", &[8, 32]);
        add("mlp.c_proj.weight", &[32, 8]);
        add("ln_1.weight", &[8]);
    }
    tensors.push(tensor(rng, "transformer.ln_f.weight", "F32", &[8]));
    tensors
}

pub fn neox(rng: &mut Rng) -> Vec<Tensor> {
    let mut tensors = vec![tensor(rng, "gpt_neox.embed_in.weight", "F16", &[10, 8])];
    for layer in 0..2 {
        let mut add = |part: &str, shape: &[u64]| {
            tensors.push(tensor(rng, &format!("gpt_neox.layers.{layer}.{part}"), "F16", shape));
        };
        add("attention.query_key_value.weight", &[24, 8]);
        add("attention.dense.weight", &[8, 8]);
        add("mlp.dense_h_to_4h.weight", &[32, 8]);
        add("mlp.dense_4h_to_h.weight", &[8, 32]);
    }
    tensors.push(tensor(rng, "embed_out.weight", "F16", &[10, 8]));
    tensors
}

/// Writes `tensors` as one file, and a configuration beside it.
pub fn write_model(folder: &Path, tensors: &[Tensor], config: &str) {
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("model.safetensors"), file_bytes(tensors)).unwrap();
    fs::write(folder.join("config.json"), config).unwrap();
}

/// Converts by the built-in rules, or to `hf`.
pub fn convert(from: &Path, to: &Path, target: &str, options: ConversionOptions) -> Summary {
    try_convert(from, to, target, options).unwrap_or_else(|error| panic!("{target}: {error}"))
}

/// The same, where it may be refused.
pub fn try_convert(
    from: &Path,
    to: &Path,
    target: &str,
    options: ConversionOptions,
) -> Result<Summary, CheckpointError> {
    let source = Checkpoint::open(from)?;
    let destination = match target {
        "hf" => Destination::HuggingFace { file_bytes_max: 6000 },
        _ => {
            let specs = target_specs(&source, options.dtype);
            let mut mesh = MeshLayout::new(parse_target(target)?, Vec::new());
            add_builtin_rules(&mut mesh, &specs, from)?;
            Destination::Sharded(mesh.compile(&specs)?)
        }
    };
    Conversion::new(&source, &destination, options)?.run(to, &|_| {})
}

/// The reason why a conversion is refused, before anything is written.
#[track_caller]
pub fn refusal(from: &Path, target: &str, options: ConversionOptions) -> String {
    let to = from.with_file_name("refused");
    let error = try_convert(from, &to, target, options).unwrap_err();
    assert!(!to.exists() && !to.with_file_name(".refused.partial").exists(), "{error}");
    error.to_string()
}
