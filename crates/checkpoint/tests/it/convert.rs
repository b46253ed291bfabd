//! There and back, and what each rank holds in between.

use std::collections::BTreeMap;
use std::path::Path;

use syncline_checkpoint::{Checkpoint, ConversionOptions, verify};
use syncline_tensor::Dtype;
use syncline_testing::Rng;

use crate::models::{
    HEADS, Tensor, convert, directory, gpt2, llama, neox, qwen, read_file, tensor, write_model,
};

/// All tensors of a directory as the Hugging Face tools write it.
fn read_whole(folder: &Path) -> BTreeMap<String, (String, Vec<u64>, Vec<u8>)> {
    let files = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension() == Some("safetensors".as_ref()));
    files.flat_map(|path| read_file(&path)).collect()
}

fn as_map(tensors: &[Tensor]) -> BTreeMap<String, (String, Vec<u64>, Vec<u8>)> {
    let entry = |(name, element, shape, bytes): &Tensor| {
        (name.clone(), (element.to_string(), shape.clone(), bytes.clone()))
    };
    tensors.iter().map(entry).collect()
}

fn small_slots() -> ConversionOptions {
    let mut options = ConversionOptions::default();
    options.slot_bytes = 100;
    options.threads = 3;
    options
}

const PLAIN: &str = r#"{"n_head": 2, "n_embd": 8}"#;

/// As the Hugging Face tools save a model that has no output matrix: without the first part of
/// names, too.
fn without_output(tensors: Vec<Tensor>) -> Vec<Tensor> {
    let bare = |(name, element, shape, bytes): Tensor| {
        Some((name.strip_prefix("model.")?.to_owned(), element, shape, bytes))
    };
    tensors.into_iter().filter_map(bare).collect()
}

#[test]
fn every_family_comes_back_as_it_was() {
    let rng = &mut Rng::new(1);
    let causal = HEADS.replacen('{', r#"{"architectures": ["LlamaForCausalLM"], "#, 1);
    let models = [
        ("llama", llama(rng, 3, 0), HEADS, &["tp=4,pp=2", "pp=3"][..]),
        ("llama-without-output", without_output(llama(rng, 2, 0)), &causal, &["tp=2,pp=2"]),
        ("mixtral", llama(rng, 2, 4), HEADS, &["tp=2,ep=2", "ep=3"]),
        ("qwen", qwen(rng, 2, 0), HEADS, &["tp=2,pp=2", "tp=4"]),
        ("qwen-moe", qwen(rng, 2, 6), HEADS, &["tp=2,ep=3", "ep=2,pp=2"]),
        ("gpt2", gpt2(rng), PLAIN, &["tp=2,pp=2"]),
        ("neox", neox(rng), PLAIN, &["tp=2,pp=2"]),
    ];
    for (name, tensors, config, targets) in models {
        let folder = directory(&format!("family_{name}"));
        let first = folder.join("first");
        write_model(&first, &tensors, config);
        let mut last = first.clone();
        for (step, target) in targets.iter().enumerate() {
            let next = folder.join(format!("step{step}"));
            convert(&last, &next, target, small_slots());
            let (whole, part) =
                (Checkpoint::open(&first).unwrap(), Checkpoint::open(&next).unwrap());
            assert_eq!(verify(&whole, &part).unwrap(), [], "{name} {target}");
            last = next;
        }
        let back = folder.join("back");
        convert(&last, &back, "hf", small_slots());
        assert_eq!(read_whole(&back), as_map(&tensors), "{name}");
        assert_eq!(std::fs::read_to_string(back.join("config.json")).unwrap(), config);
        let again = Checkpoint::open(&back).unwrap();
        assert_eq!(again.layout().tensors().len(), tensors.len());
    }
}

/// Rows `rows` and columns `columns` of a matrix of 2-byte or 4-byte elements.
fn block(tensor: &Tensor, rows: std::ops::Range<u64>, columns: std::ops::Range<u64>) -> Vec<u8> {
    let (_, element, shape, bytes) = tensor;
    let size = crate::models::element_bits(element) / 8;
    let row = |row: u64| {
        let start = (row * shape[1] + columns.start) * size;
        let stop = (row * shape[1] + columns.end) * size;
        bytes[start as usize..stop as usize].to_vec()
    };
    rows.flat_map(row).collect()
}

fn named<'a>(tensors: &'a [Tensor], name: &str) -> &'a Tensor {
    tensors.iter().find(|tensor| tensor.0 == name).unwrap()
}

#[test]
fn ranks_hold_their_heads_and_stages() {
    let folder = directory("llama_ranks");
    let tensors = llama(&mut Rng::new(2), 2, 0);
    write_model(&folder.join("in"), &tensors, HEADS);
    convert(&folder.join("in"), &folder.join("out"), "tp=4,pp=2", small_slots());
    // Rank 5 = tp 1 of stage 1: layer 1, query head 1, key-value head 0, which it shares with
    // rank 4.
    let rank = read_file(&folder.join("out/rank-00005.safetensors"));
    let layer = |part: &str| format!("model.layers.1.{part}.weight");
    let (q, k) = (layer("self_attn.q_proj"), layer("self_attn.k_proj"));
    assert_eq!(rank[&q].2, block(named(&tensors, &q), 4..8, 0..16));
    assert_eq!(rank[&k].2, block(named(&tensors, &k), 0..4, 0..16));
    let (o, down) = (layer("self_attn.o_proj"), layer("mlp.down_proj"));
    assert_eq!(rank[&o].2, block(named(&tensors, &o), 0..16, 4..8));
    assert_eq!(rank[&down].2, block(named(&tensors, &down), 0..16, 6..12));
    assert_eq!(rank["lm_head.weight"].2, block(named(&tensors, "lm_head.weight"), 5..10, 0..16));
    assert!(!rank.contains_key("model.embed_tokens.weight"));
    assert!(!rank.contains_key("model.layers.0.self_attn.q_proj.weight"));
    assert_eq!(rank[&layer("input_layernorm")].1, [16]);
}

#[test]
fn fused_columns_are_split_block_by_block() {
    let folder = directory("gpt2_ranks");
    let tensors = gpt2(&mut Rng::new(3));
    write_model(&folder.join("in"), &tensors, PLAIN);
    convert(&folder.join("in"), &folder.join("out"), "tp=2", small_slots());
    let rank = read_file(&folder.join("out/rank-00001.safetensors"));
    let name = "transformer.h.0.attn.c_attn.weight";
    let whole = named(&tensors, name);
    let expected: Vec<u8> = (0..8)
        .flat_map(|row| {
            [4..8, 12..16, 20..24].map(|columns| block(whole, row..row + 1, columns)).concat()
        })
        .collect();
    assert_eq!((&rank[name].1[..], &rank[name].2), (&[8, 12][..], &expected));
}

#[test]
fn a_model_without_an_output_matrix_ties_it() {
    let folder = directory("tied");
    let mut tensors = llama(&mut Rng::new(4), 2, 0);
    tensors.retain(|tensor| tensor.0 != "lm_head.weight");
    write_model(&folder.join("in"), &tensors, HEADS);
    convert(&folder.join("in"), &folder.join("out"), "tp=2,pp=2", small_slots());
    let last = read_file(&folder.join("out/rank-00002.safetensors"));
    let first = read_file(&folder.join("out/rank-00000.safetensors"));
    assert_eq!(last["lm_head.weight"], first["model.embed_tokens.weight"]);
    convert(&folder.join("out"), &folder.join("back"), "hf", small_slots());
    assert_eq!(read_whole(&folder.join("back")), as_map(&tensors));
}

#[test]
fn every_element_type_passes_through() {
    let folder = directory("types");
    let rng = &mut Rng::new(5);
    let types = [
        "BOOL",
        "U8",
        "I8",
        "F8_E4M3",
        "F8_E5M2",
        "F8_E8M0",
        "U16",
        "I16",
        "F16",
        "BF16",
        "U32",
        "I32",
        "F32",
        "U64",
        "I64",
        "F64",
        "C64",
        "F4",
        "F6_E2M3",
        "F6_E3M2",
        "F8_E4M3FNUZ",
        "F8_E5M2FNUZ",
    ];
    let mut tensors: Vec<Tensor> = types
        .iter()
        .map(|element| tensor(rng, &format!("t.{element}"), element, &[3, 8]))
        .collect();
    tensors.push(tensor(rng, "scalar", "F32", &[]));
    tensors.push(tensor(rng, "empty", "F32", &[0, 7]));
    write_model(&folder.join("in"), &tensors, "{}");
    let source = Checkpoint::open(&folder.join("in")).unwrap();
    let mesh = syncline_layout::MeshLayout::from_toml(
        "mesh = {axes = [[\"tp\", 2]]}\n[[tensor]]\nmatch = \"t.*\"\nshard = [{dim = 1, axis = \"tp\"}]",
    );
    let layout = mesh.unwrap().compile(&source.layout().specs()).unwrap();
    let destination = syncline_checkpoint::Destination::Sharded(layout);
    let conversion =
        syncline_checkpoint::Conversion::new(&source, &destination, small_slots()).unwrap();
    conversion.run(&folder.join("out"), &|_| {}).unwrap();
    let rank = read_file(&folder.join("out/rank-00001.safetensors"));
    assert_eq!((rank["t.F4"].0.as_str(), &rank["t.F4"].1[..]), ("F4", &[3, 4][..]));
    convert(&folder.join("out"), &folder.join("back"), "hf", small_slots());
    assert_eq!(read_whole(&folder.join("back")), as_map(&tensors));
    crate::python::reads_every_type(&folder);
}

#[test]
fn floats_are_converted_on_the_way() {
    let folder = directory("dtype");
    let values = [1.0f32, -2.5, 1e-3, f32::INFINITY, 3.0e38, 0.1];
    let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let tensors =
        [("w".to_owned(), "F32", vec![6], bytes), tensor(&mut Rng::new(6), "ids", "I64", &[3])];
    write_model(&folder.join("in"), &tensors, "{}");
    let mut options = small_slots();
    options.dtype = Some(Dtype::BF16);
    convert(&folder.join("in"), &folder.join("out"), "hf", options);
    let out = read_whole(&folder.join("out"));
    assert_eq!((out["w"].0.as_str(), out["ids"].0.as_str()), ("BF16", "I64"));
    // Round to nearest even: add half a unit of what is cut off, and the last bit kept.
    let rounded = |value: &f32| {
        let bits = value.to_bits();
        ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
    };
    let expected: Vec<u8> = values.iter().flat_map(|value| rounded(value).to_le_bytes()).collect();
    assert_eq!(out["w"].2, expected);
    let (whole, part) = (
        Checkpoint::open(&folder.join("in")).unwrap(),
        Checkpoint::open(&folder.join("out")).unwrap(),
    );
    assert_eq!(verify(&whole, &part).unwrap(), []);
}

#[test]
fn verify_finds_a_single_wrong_byte() {
    let folder = directory("verify");
    let tensors = llama(&mut Rng::new(7), 1, 0);
    write_model(&folder.join("in"), &tensors, HEADS);
    convert(&folder.join("in"), &folder.join("out"), "tp=2", small_slots());
    let path = folder.join("out/rank-00001.safetensors");
    let mut file = std::fs::read(&path).unwrap();
    let last = file.len() - 1;
    file[last] ^= 1;
    std::fs::write(&path, file).unwrap();
    let (whole, part) = (
        Checkpoint::open(&folder.join("in")).unwrap(),
        Checkpoint::open(&folder.join("out")).unwrap(),
    );
    let found = verify(&whole, &part).unwrap();
    assert_eq!((found.len(), found[0].rank), (1, 1));
}
