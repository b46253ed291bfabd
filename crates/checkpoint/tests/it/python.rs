//! The Python package `safetensors` reads what is written here, and the other way round.
//!
//! Needs a Python with `safetensors` and `numpy`: `SYNCLINE_PYTHON` names it, else `python3` is
//! tried.

use std::path::Path;
use std::process::Command;

use syncline_checkpoint::{Checkpoint, ConversionOptions, verify};
use syncline_testing::{Rng, need, succeed};

use crate::models::{convert, directory, gpt2, llama, neox, qwen, write_model};

fn python() -> Option<String> {
    let python = std::env::var("SYNCLINE_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    // Older ones do not know every element type.
    let has_them = "import numpy, safetensors; \
        assert [int(part) for part in safetensors.__version__.split('.')[:2]] >= [0, 8]";
    let has_them = succeed(Command::new(&python).args(["-c", has_them]));
    need("a Python with safetensors 0.8 and numpy (SYNCLINE_PYTHON names it)", has_them)?;
    Some(python)
}

fn run(python: &str, script: &str, arguments: &[&str]) {
    let output = Command::new(python).args(["-c", script]).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

#[test]
fn python_reads_what_is_written_here() {
    let Some(python) = python() else { return };
    let folder = directory("python_reads");
    write_model(&folder.join("in"), &gpt2(&mut Rng::new(1)), r#"{"n_head": 2, "n_embd": 8}"#);
    convert(&folder.join("in"), &folder.join("out"), "tp=2,pp=2", ConversionOptions::default());
    let script = r#"
import sys, numpy
from safetensors.numpy import load_file
from safetensors import safe_open
whole = load_file(sys.argv[1] + "/in/model.safetensors")
ranks = [load_file(f"{sys.argv[1]}/out/rank-{rank:05}.safetensors") for rank in range(4)]
name = "transformer.h.1.attn.c_attn.weight"
q, k, v = numpy.split(whole[name], 3, axis=1)
expected = numpy.concatenate([q[:, 4:], k[:, 4:], v[:, 4:]], axis=1)
assert (ranks[3][name].view(numpy.uint32) == expected.view(numpy.uint32)).all()
assert name not in ranks[1]
for rank in range(4):
    with safe_open(f"{sys.argv[1]}/out/rank-{rank:05}.safetensors", framework="np") as file:
        assert file.metadata() == {"format": "pt"}, file.metadata()
"#;
    run(&python, script, &[folder.to_str().unwrap()]);
}

#[test]
fn what_python_writes_is_read_here() {
    let Some(python) = python() else { return };
    let folder = directory("python_writes");
    let script = r#"
import sys, json, numpy
from safetensors.numpy import save_file
rng = numpy.random.default_rng(3)
first = {"a": rng.random((6, 4), dtype=numpy.float32), "b": rng.integers(0, 9, (3,), dtype=numpy.int64),
         "c": rng.random((4, 4)).astype(numpy.float16)}
second = {"d": numpy.zeros((0, 3), dtype=numpy.uint8), "e": numpy.array(True)}
save_file(first, sys.argv[1] + "/model-00001-of-00002.safetensors", metadata={"format": "np"})
save_file(second, sys.argv[1] + "/model-00002-of-00002.safetensors")
weights = {name: "model-00001-of-00002.safetensors" for name in first}
weights |= {name: "model-00002-of-00002.safetensors" for name in second}
json.dump({"metadata": {}, "weight_map": weights}, open(sys.argv[1] + "/model.safetensors.index.json", "w"))
"#;
    let from = folder.join("in");
    std::fs::create_dir(&from).unwrap();
    run(&python, script, &[from.to_str().unwrap()]);
    let source = Checkpoint::open(&from).unwrap();
    assert_eq!(source.layout().tensors().len(), 5);
    assert_eq!(source.metadata()["format"], "np");
    convert(&from, &folder.join("out"), "hf", ConversionOptions::default());
    let script = r#"
import sys, glob
from safetensors.numpy import load_file
def load(folder):
    return {name: value for path in glob.glob(folder + "/*.safetensors") for name, value in load_file(path).items()}
one, other = load(sys.argv[1] + "/in"), load(sys.argv[1] + "/out")
assert one.keys() == other.keys()
for name in one:
    assert one[name].dtype == other[name].dtype and one[name].shape == other[name].shape, name
    assert (one[name] == other[name]).all(), name
"#;
    run(&python, script, &[folder.to_str().unwrap()]);
    assert_eq!(verify(&source, &Checkpoint::open(&folder.join("out")).unwrap()).unwrap(), []);
}

/// The package finds the same types, shapes and bytes in `in`, of one file, and in what went to
/// ranks and back.
pub fn reads_every_type(folder: &Path) {
    let Some(python) = python() else { return };
    let script = r#"
import sys, glob, safetensors
def load(folder):
    return {name: (entry["dtype"], entry["shape"], bytes(entry["data"])) for path in glob.glob(folder + "/*.safetensors")
            for name, entry in safetensors.deserialize(open(path, "rb").read())}
one, other = load(sys.argv[1] + "/in"), load(sys.argv[1] + "/back")
assert len(one) == 24 and one == other, (sorted(one), sorted(other))
ranks = [load(f"{sys.argv[1]}/out")]
assert ranks[0]["t.F8_E4M3"][1] == [3, 4], ranks[0]["t.F8_E4M3"]
"#;
    run(&python, script, &[folder.to_str().unwrap()]);
}

/// What every rank must hold by numpy's own slices, for one tensor of each kind in each family.
#[test]
fn numpy_slices_every_family_alike() {
    let Some(python) = python() else { return };
    let rng = &mut Rng::new(9);
    let heads = r#"{"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 16}"#;
    let plain = r#"{"num_attention_heads": 2, "hidden_size": 8}"#;
    let families = [
        ("llama", llama(rng, 2, 0), heads, "tp=2,pp=2"),
        ("mixtral", llama(rng, 2, 4), heads, "tp=2,ep=2"),
        ("qwen", qwen(rng, 2, 0), heads, "tp=2,pp=2"),
        ("qwen-moe", qwen(rng, 2, 6), heads, "tp=2,ep=2"),
        ("neox", neox(rng), plain, "tp=2,pp=2"),
        ("gpt2", gpt2(rng), plain, "tp=2,pp=2"),
    ];
    // Types are moved as they are: two bytes an element, or four.
    let script = r#"
import sys, json, numpy, safetensors
def load(path):
    array = lambda entry: numpy.frombuffer(bytes(entry["data"]), numpy.uint32 if entry["dtype"] == "F32" else numpy.uint16)
    return {name: array(entry).reshape(entry["shape"]) for name, entry in safetensors.deserialize(open(path, "rb").read())}
folder, family, axes = sys.argv[1:4]
sizes = dict((axis.split("=")[0], int(axis.split("=")[1])) for axis in axes.split(","))
whole = load(folder + "/in/model.safetensors")
rows = ["q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "w1", "w3", "query_key_value", "dense_h_to_4h",
        "embed_tokens", "lm_head", "embed_in", "embed_out", "wte"]
columns = ["o_proj", "down_proj", "w2", "attention.dense.weight", "dense_4h_to_h"]
def expected(name, tp):
    tensor = whole[name]
    half = lambda array, axis: numpy.split(array, 2, axis=axis)[tp]
    if family == "gpt2":
        if "c_attn" in name:
            return numpy.concatenate([half(part, -1) for part in numpy.split(tensor, 3, axis=-1)], axis=-1)
        if "c_fc" in name:
            return half(tensor, -1)
        if "c_proj.weight" in name:
            return half(tensor, 0)
    if any(part in name for part in rows) and "norm" not in name:
        return half(tensor, 0)
    if any(part in name for part in columns):
        return half(tensor, 1)
    return tensor
def place(name):
    parts, where = name.split("."), {"pp": None, "ep": None}
    for word in ("layers", "h"):
        if word in parts and sizes.get("pp"):
            where["pp"] = int(parts[parts.index(word) + 1]) * sizes["pp"] // 2
    if "experts" in parts and sizes.get("ep"):
        count = 4 if family == "mixtral" else 6
        where["ep"] = int(parts[parts.index("experts") + 1]) * sizes["ep"] // count
    return where
checked = 0
for rank in range(4):
    tp, other = rank % 2, rank // 2
    held = load(f"{folder}/out/rank-{rank:05}.safetensors")
    for name in whole:
        where = place(name)
        if all(at in (None, other) for at in where.values()) and (where["pp"] is not None or "layers" in name or sizes.get("pp") is None):
            assert name in held, (family, rank, name)
            want = expected(name, tp)
            assert held[name].shape == want.shape and (held[name] == want).all(), (family, rank, name)
            checked += 1
        elif name in held and name not in ("lm_head.weight",):
            assert where["pp"] in (None, other) and where["ep"] in (None, other), (family, rank, name)
assert checked >= 8, checked
"#;
    for (family, tensors, config, axes) in families {
        let folder = directory(&format!("numpy_{family}"));
        write_model(&folder.join("in"), &tensors, config);
        convert(&folder.join("in"), &folder.join("out"), axes, ConversionOptions::default());
        run(&python, script, &[folder.to_str().unwrap(), family, axes]);
    }
}
