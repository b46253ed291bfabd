//! `reshard run` and `reshard verify`: checkpoints converted, killed, resumed, verified.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::json;
use syncline_testing::Rng;

use crate::support::{command, directory, run};

/// A model of `layers` layers of two matrices of 1 MiB each, as one file.
fn write_model(folder: &Path, layers: usize) {
    let mut header = json!({"__metadata__": {"format": "pt"}});
    let mut data = Vec::new();
    let mut rng = Rng::new(11);
    for layer in 0..layers {
        for part in ["up", "down"] {
            let start = data.len();
            data.extend((0..1 << 17).flat_map(|_| rng.next_u64().to_le_bytes()));
            let name = format!("model.layers.{layer}.mlp.{part}_proj.weight");
            header[name] =
                json!({"dtype": "BF16", "shape": [512, 1024], "data_offsets": [start, data.len()]});
        }
    }
    let header = header.to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.extend_from_slice(&data);
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("model.safetensors"), file).unwrap();
    fs::write(folder.join("config.json"), "{}").unwrap();
}

/// Every file of a directory.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    files.map(|path| (name(&path), fs::read(&path).unwrap())).collect()
}

#[test]
fn a_checkpoint_goes_there_and_back() {
    let folder = directory("reshard_run");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    write_model(&folder.join("in"), 2);
    let dry = run(&["reshard", "run", &path("in"), &path("out"), "--to", "tp=2,pp=2", "--dry-run"])
        .success();
    assert!(dry.contains("model.layers.1.mlp.down_proj.weight  bf16 [512, 1024] -> bf16 [512, 512] on 2 ranks 2..3"), "{dry}");
    assert!(!folder.join("out").exists());
    let said =
        run(&["reshard", "run", &path("in"), &path("out"), "--to", "tp=2,pp=2", "--pes", "3"])
            .success();
    assert!(said.contains("tensors  4") && said.contains("files    4 written"), "{said}");
    assert!(
        run(&["reshard", "verify", &path("in"), &path("out")]).success().contains("every element")
    );
    run(&["reshard", "run", &path("out"), &path("back"), "--to", "hf"]).success();
    run(&["reshard", "verify", &path("in"), &path("back")]).success();
    run(&["reshard", "verify", &path("back"), &path("out")]).success();
    let plan = run(&["reshard", "plan", "--from", &path("out"), "--to", &path("out")]).success();
    assert!(plan.contains("0 B moved"), "{plan}");
    let line = run(&["reshard", "run", &path("in"), &path("out"), "--to", "tp=2"]).refusal();
    assert!(line.contains("already exists"), "{line}");
}

#[test]
fn a_wrong_element_is_found() {
    let folder = directory("reshard_verify");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    write_model(&folder.join("in"), 1);
    run(&["reshard", "run", &path("in"), &path("out"), "--to", "tp=2"]).success();
    let file = folder.join("out/rank-00001.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 4;
    fs::write(&file, bytes).unwrap();
    let found = run(&["reshard", "verify", &path("in"), &path("out")]);
    assert_eq!(found.status, Some(1), "{found:?}");
    assert!(found.stdout.contains("rank 1: differs first at element 262143"), "{found:?}");
}

#[test]
fn tensors_that_no_rule_names_are_reported() {
    let folder = directory("reshard_unnamed");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    write_model(&folder.join("in"), 1);
    fs::write(
        folder.join("rules.toml"),
        "[[tensor]]\nmatch = \"**.up_proj.weight\"\nshard = [{dim = 1, axis = \"tp\"}]\n",
    )
    .unwrap();
    fs::write(folder.join("mesh.toml"), "[mesh]\naxes = [[\"tp\", 2]]\n").unwrap();
    let args = [
        "reshard",
        "run",
        &path("in"),
        &path("out"),
        "--to",
        "tp=2",
        "--dry-run",
        "--rules",
        &path("rules.toml"),
    ];
    let dry = run(&args).success();
    assert!(dry.contains("up_proj.weight  bf16 [512, 1024] -> bf16 [512, 512]"), "{dry}");
    let mesh = "[mesh]\naxes = [[\"tp\", 2]]\n[[tensor]]\nmatch = \"**.up_proj.weight\"\n";
    fs::write(folder.join("mesh.toml"), mesh).unwrap();
    let said = run(&[
        "reshard",
        "run",
        &path("in"),
        &path("out"),
        "--to",
        &path("mesh.toml"),
        "--dry-run",
    ]);
    assert_eq!(said.status, Some(0));
    assert!(
        said.stderr.contains("no rule names `model.layers.0.mlp.down_proj.weight`"),
        "{said:?}"
    );
}

#[test]
fn bad_requests_are_one_line() {
    let folder = directory("reshard_refused");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    write_model(&folder.join("in"), 1);
    for (arguments, words) in [
        (&["--to", "tp=0"][..], "expected axes"),
        (&["--to", "nonsense"], "expected axes"),
        (&["--to", "tp=2", "--dtype", "f99"], "unknown dtype"),
        (&["--to", "tp=2", "--transport", "mpi"], "--transport local"),
        (&["--to", "tp=2", "--rules", "absent.toml"], "absent.toml"),
        (&["--to", "tp=2", "--dtype", "i32"], "i32"),
    ] {
        let (from, to) = (path("in"), path("out"));
        let all: Vec<&str> =
            ["reshard", "run", &from, &to].into_iter().chain(arguments.iter().copied()).collect();
        let line = run(&all).refusal();
        assert!(line.contains(words), "{line}");
    }
    let line = run(&["reshard", "run", &path("."), &path("out"), "--to", "tp=2"]).refusal();
    assert!(line.contains("no checkpoint"), "{line}");
}

#[test]
fn a_killed_run_leaves_nothing_or_what_can_be_resumed() {
    let folder = directory("reshard_killed");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    write_model(&folder.join("in"), 8);
    let before = contents(&folder.join("in"));
    run(&["reshard", "run", &path("in"), &path("whole"), "--to", "tp=4"]).success();
    let expected = contents(&folder.join("whole"));
    let (from, to) = (path("in"), path("out"));
    let args =
        ["reshard", "run", &from, &to, "--to", "tp=4", "--pes", "2", "--slot-bytes", "64KiB"];
    let mut rng = Rng::new(5);
    for _ in 0..5 {
        let mut child = command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(rng.range(1_000..60_000)));
        let _ = child.kill();
        child.wait().unwrap();
        assert_eq!(contents(&folder.join("in")), before);
        if !folder.join("out").exists() {
            let resumed: Vec<&str> = args.iter().copied().chain(["--resume"]).collect();
            run(&resumed).success();
        }
        assert_eq!(contents(&folder.join("out")), expected);
        assert!(!folder.join(".out.partial").exists());
        fs::remove_dir_all(folder.join("out")).unwrap();
    }
}

#[test]
fn memory_is_bounded_by_slots_not_by_the_checkpoint() {
    let folder = directory("reshard_memory");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    write_model(&folder.join("in"), 48);
    // Data of at most 40 MiB: the program's own, two threads' stacks and slots, but not the 96 MiB of tensors.
    let script = "ulimit -d 40960 && exec \"$0\" \"$@\"";
    let mut limited = Command::new("sh");
    limited.args(["-c", script, env!("CARGO_BIN_EXE_syncline"), "reshard", "run"]);
    limited.args([&path("in"), &path("out"), "--to", "tp=2", "--pes", "2", "--slot-bytes", "1MiB"]);
    let output = limited.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    run(&["reshard", "verify", &path("in"), &path("out")]).success();
    fs::remove_dir_all(&folder).unwrap();
}
