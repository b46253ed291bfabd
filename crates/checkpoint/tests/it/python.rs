//! The Python package `safetensors` reads what is written here, and the other way round.
//!
//! Needs a Python with `safetensors` and `numpy`: `SYNCLINE_PYTHON` names it, else `python3` is tried.

use std::process::Command;

use syncline_checkpoint::{Checkpoint, ConversionOptions, verify};
use syncline_testing::Rng;

use crate::models::{convert, directory, gpt2, write_model};

fn python() -> Option<String> {
    let python = std::env::var("SYNCLINE_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let import = Command::new(&python).args(["-c", "import safetensors, numpy"]).output();
    if import.is_ok_and(|import| import.status.success()) {
        return Some(python);
    }
    eprintln!(
        "skipped: {python} has no safetensors and numpy; set SYNCLINE_PYTHON to one that has"
    );
    None
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
