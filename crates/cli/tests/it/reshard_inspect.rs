//! `reshard inspect`, and checkpoints of torch as sources of `reshard run`.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::support::{Tensor, command, directory, json, run, write_checkpoint};

/// A file that torch wrote.
fn data(name: &str) -> String {
    format!("{}/../checkpoint/tests/data/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_checkpoint_is_described_with_how_it_splits() {
    let folder = directory("inspect");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let shapes = [("gate", [6, 4]), ("up", [6, 4]), ("down", [4, 6])];
    let tensors = shapes.map(|(part, shape): (_, [u64; 2])| {
        let name = format!("model.layers.0.mlp.{part}_proj.weight");
        (name, "BF16", shape, vec![1; 48])
    });
    write_checkpoint(&folder.join("in"), &Vec::<Tensor>::from(tensors));
    fs::write(
        folder.join("in/config.json"),
        r#"{"model_type": "llama", "num_attention_heads": 2}"#,
    )
    .unwrap();
    let (source, page) = (path("in"), path("page.html"));
    let args = ["reshard", "inspect", &source, "--to", "tp=4", "--to", "tp=2"];
    let said = run(&[&args[..], &["-o", &page]].concat()).success();
    for words in [
        "format   safetensors, 1 files",
        "model    llama, family",
        "3 of 72 elements, 144 B",
        "bf16: 3 tensors",
        "model.layers.*.mlp.down_proj.weight",
        "dimension 1 in",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let page = fs::read_to_string(folder.join("page.html")).unwrap();
    assert!(page.contains("class=held") && page.contains("<th>rank 1"), "{page}");
    let form = json(&run(&[&args[..], &["--json"]].concat()).success());
    assert_eq!(form["format"], "syncline-inspection");
    assert_eq!((&form["bytes"], &form["dtypes"]["bf16"]["tensors"]), (&144.into(), &3.into()));
    assert_eq!(form["blocks"].as_array().unwrap().len(), 3);
    run(&["reshard", "run", &path("in"), &path("out"), "--to", "tp=2"]).success();
    let form = json(&run(&["reshard", "inspect", &path("out"), "--json"]).success());
    assert_eq!((&form["checkpoint"], &form["ranks"]), (&"sharded".into(), &2.into()));
    assert_eq!(form["unproven"].as_array().unwrap().len(), 0);
}

#[test]
fn torch_and_its_directories_are_sources() {
    let folder = directory("torch_sources");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    for name in ["state.pt", "legacy.pt", "dcp", "dcp_hf"] {
        run(&["reshard", "run", &data(name), &path(name), "--to", "hf"]).success();
        run(&["reshard", "verify", &data(name), &path(name)]).success();
        run(&["reshard", "verify", &path(name), &data(name)]).success();
    }
    let nested = data("nested.pt");
    let args = ["reshard", "run", &nested, &path("model"), "--to", "hf", "--prefix", "model"];
    run(&args).success();
    run(&["reshard", "verify", &nested, &path("model"), "--prefix", "model"]).success();
    let form = json(&run(&["reshard", "inspect", &nested, "--json"]).success());
    assert_eq!((&form["checkpoint"], &form["tensors"]), (&"torch".into(), &3.into()));
    let line = run(&["reshard", "inspect", &data("runs.pt")]).refusal();
    assert!(line.contains("system`"), "{line}");
}

/// The most memory that the process `pid` has had so far, in KiB; `None` if it has ended.
fn memory_kib(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().split(' ').next()?.parse().ok()
}

#[test]
fn a_conversion_takes_little_memory_whatever_the_size() {
    let folder = directory("larger_than_memory");
    let from = folder.join("in");
    fs::create_dir(&from).unwrap();
    // 768 MiB, most of it holes.
    let (count, bytes) = (12u64, 64 << 20);
    let mut header = serde_json::json!({});
    for at in 0..count {
        let offsets = [at * bytes, (at + 1) * bytes];
        header[format!("w.{at}")] =
            serde_json::json!({"dtype": "F32", "shape": [4096, 4096], "data_offsets": offsets});
    }
    let header = header.to_string();
    let mut file = File::create(from.join("model.safetensors")).unwrap();
    file.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
    file.write_all(header.as_bytes()).unwrap();
    file.set_len(8 + header.len() as u64 + count * bytes).unwrap();
    let convert = |from: &Path, to: &Path, target: &str| {
        let mut child = command(&["reshard", "run"])
            .args([from, to])
            .args(["--to", target, "--pes", "2"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut most = 0;
        while child.try_wait().unwrap().is_none() {
            most = most.max(memory_kib(child.id()).unwrap_or(0));
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(child.wait().unwrap().success());
        assert!((1..300 << 10).contains(&most), "{target}: {most} KiB");
    };
    convert(&from, &folder.join("dcp"), "dcp");
    fs::remove_dir_all(&from).unwrap();
    convert(&folder.join("dcp"), &folder.join("hf"), "hf");
    fs::remove_dir_all(&folder).unwrap();
}
