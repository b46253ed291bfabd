//! `reshard run` and `reshard verify`: checkpoints converted, killed, resumed, verified.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use syncline_testing::{Rng, need, succeed};

use crate::support::{Tensor, command, directory, in_terminal, json, run, write_checkpoint};

/// A model of `layers` layers of two matrices of 1 MiB each, as one file.
fn write_model(folder: &Path, layers: usize) {
    let mut rng = Rng::new(11);
    let parts = [("up", [512, 1024]), ("down", [1024, 512])];
    let parts = (0..layers).flat_map(|layer| parts.map(|(part, shape)| (layer, part, shape)));
    let tensors = parts.map(|(layer, part, shape)| {
        let name = format!("model.layers.{layer}.mlp.{part}_proj.weight");
        let bytes = (0..1 << 17).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
        (name, "BF16", shape, bytes)
    });
    write_checkpoint(folder, &tensors.collect::<Vec<Tensor>>());
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
    assert!(dry.contains("model.layers.1.mlp.down_proj.weight  bf16 [1024, 512] -> bf16 [1024, 256] on 2 ranks 2..3"), "{dry}");
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
fn a_terminal_shows_how_far_it_is() {
    let folder = directory("reshard_bar");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    write_model(&folder.join("in"), 8);
    // Slots of a line make it slow enough to be seen.
    let (from, to) = (path("in"), path("out"));
    let args = ["reshard", "run", &from, &to, "--to", "tp=4", "--slot-bytes", "64"];
    let Some(shown) = in_terminal(&args) else { return };
    for words in ["[#", "%  ", "MiB of 16.0 MiB, ", " GB/s, ", " s left", "tensors  16"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let piped = command(&["reshard", "run", &from, &path("again"), "--to", "tp=4"]).output();
    assert!(piped.unwrap().stderr.is_empty());
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
    // The other side of the block goes by a built-in rule: the two do not agree.
    let line = run(&args).refusal();
    let cause = "rank 0 holds a part of dimension 1 of `up_proj.weight`, to be whole";
    assert!(line.contains(cause) && line.contains("--allow-unproven"), "{line}");
    let dry = run(&[&args[..], &["--allow-unproven"]].concat()).success();
    assert!(
        dry.contains("up_proj.weight    bf16 [512, 1024] -> bf16 [512, 512] on 2 ranks 0..1"),
        "{dry}"
    );
    assert!(dry.contains("unproven `model.layers.*.mlp`: rank 0 holds a part"), "{dry}");
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
        said.stderr.contains("no rule names `model.layers.*.mlp.down_proj.weight` (1): replicated"),
        "{said:?}"
    );
}

#[test]
fn what_is_not_proven_is_written_on_demand_and_says_so() {
    let folder = directory("reshard_unproven");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let parts = [("qkv_proj", [48, 16]), ("o_proj", [16, 16])];
    let tensors = (0..3).flat_map(|layer| {
        parts.map(|(part, shape)| {
            let name = format!("model.layers.{layer}.self_attn.{part}.weight");
            (name, "BF16", shape, vec![1; (shape[0] * shape[1] * 2) as usize])
        })
    });
    write_checkpoint(&folder.join("in"), &tensors.collect::<Vec<Tensor>>());
    fs::write(folder.join("in/config.json"), r#"{"num_attention_heads": 4}"#).unwrap();
    let (from, to) = (path("in"), path("out"));
    let args = ["reshard", "run", &from, &to, "--to", "tp=2"];
    let reason = "`model.layers.*.self_attn.qkv_proj.weight` is not known";
    for transport in ["local", "shm"] {
        let line = run(&[&args[..], &["--transport", transport]].concat()).refusal();
        assert_eq!(line.matches(reason).count(), 1, "{line}");
        assert!(line.contains("--allow-unproven"), "{line}");
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    let said = run(&[&args[..], &["--allow-unproven"]].concat());
    assert_eq!(said.status, Some(0), "{said:?}");
    assert!(said.stdout.contains(&format!("unproven {reason}")), "{said:?}");
    let layout = json(&fs::read_to_string(folder.join("out/layout.json")).unwrap());
    assert!(layout["unproven"].to_string().contains(reason), "{layout}");
    // Every element is the same; only the split is in doubt.
    let found = run(&["reshard", "verify", &from, &to]);
    assert_eq!(found.status, Some(1), "{found:?}");
    assert!(found.stdout.contains(&format!("unproven {reason}")), "{found:?}");
    assert!(found.stdout.contains("6 tensors are the same, every element"), "{found:?}");
    run(&["reshard", "verify", &from, &to, "--allow-unproven"]).success();
}

/// The process ends by an error or by a signal, and nothing gets the destination's name.
#[test]
fn a_source_that_is_cut_short_meanwhile_is_no_destination() {
    let folder = directory("reshard_cut");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    write_model(&folder.join("in"), 8);
    let (from, to) = (path("in"), path("out"));
    // Slots of a line make it slow enough to be met.
    let args = ["reshard", "run", &from, &to, "--to", "tp=4", "--pes", "1", "--slot-bytes", "64"];
    let child = command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while !folder.join(".out.partial/rank-00000.safetensors.part").exists() {
        assert!(!folder.join("out").exists(), "it was too fast to be met");
        std::thread::yield_now();
    }
    let file = fs::File::options().write(true).open(folder.join("in/model.safetensors")).unwrap();
    file.set_len(4096 + 100).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    assert!(!folder.join("out").exists());
}

#[test]
fn a_dry_run_names_types_as_files_do() {
    let folder = directory("reshard_types");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let tensors = [("F8_E4M3FNUZ", 32), ("F4", 16), ("F16", 64)];
    let tensors = tensors.map(|(element, bytes): (&'static str, usize)| {
        (format!("layers.0.mlp.{element}.up_proj.weight"), element, [4, 8], vec![1; bytes])
    });
    write_checkpoint(&folder.join("in"), &tensors);
    let rules = "[[tensor]]\nmatch = \"**.up_proj.weight\"\nshard = [{dim = 0, axis = \"tp\"}]\n";
    fs::write(folder.join("rules.toml"), rules).unwrap();
    let (from, to, rules) = (path("in"), path("out"), path("rules.toml"));
    let args = ["reshard", "run", &from, &to, "--to", "tp=2,pp=1,dp=2", "--rules", &rules];
    let line = run(&[&args[..], &["--dtype", "bf16"]].concat()).refusal();
    assert!(line.contains("cannot be converted: there is no conversion to bf16"), "{line}");
    let dry = run(&[&args[..], &["--dry-run"]].concat()).success();
    for (name, line) in [
        ("F8_E4M3FNUZ", "f8_e4m3fnuz [4, 8] -> f8_e4m3fnuz [2, 8] on 4 ranks 0..3"),
        ("F4", "f4 [4, 8] -> f4 [2, 8] on 4 ranks 0..3"),
        ("F16", "f16 [4, 8] -> f16 [2, 8] on 4 ranks 0..3"),
    ] {
        let found = dry.lines().find(|line| line.contains(&format!(".{name}.")));
        assert!(found.is_some_and(|found| found.ends_with(line)), "{dry}");
    }
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
        (&["--to", "tp=2", "--rules", "absent.toml"], "absent.toml"),
        (&["--to", "tp=2", "--dtype", "i32"], "i32"),
        (&["--to", "tp=2,xp=2"], "axis `xp` is not known: expected tp, ep, pp, dp"),
        (&["--to", "tp=2,ep=2"], "ep=2: the model has no experts"),
        (&["--to", "pp=2"], "pp=2: the model has 1 layers"),
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
fn processes_write_what_threads_write() {
    let folder = directory("reshard_processes");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    write_model(&folder.join("in"), 3);
    let (from, whole) = (path("in"), path("whole"));
    run(&["reshard", "run", &from, &whole, "--to", "tp=2,pp=2"]).success();
    let expected = contents(&folder.join("whole"));
    // Fewer, as many and more processes than files.
    for pes in ["1", "3", "4", "7"] {
        let to = path(&format!("out{pes}"));
        let args = ["reshard", "run", &from, &to, "--to", "tp=2,pp=2", "--transport", "shm"];
        let said = run(&[&args[..], &["--pes", pes]].concat()).success();
        assert!(said.contains("files    4 written, 0 kept"), "{said}");
        assert_eq!(contents(Path::new(&to)), expected, "{pes} processes");
    }
    // One that fails is the command's failure, in its words, and the others end.
    let to = path("out3");
    let args = ["reshard", "run", &from, &to, "--to", "tp=2,pp=2", "--transport", "shm"];
    let line = run(&[&args[..], &["--pes", "3"]].concat()).refusal();
    assert!(line.contains("already exists"), "{line}");
}

#[test]
fn killed_processes_are_resumed_by_others() {
    let folder = directory("reshard_processes_killed");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    write_model(&folder.join("in"), 8);
    let (from, to) = (path("in"), path("out"));
    run(&["reshard", "run", &from, &path("whole"), "--to", "tp=4"]).success();
    let expected = contents(&folder.join("whole"));
    let base = ["reshard", "run", &from, &to, "--to", "tp=4", "--slot-bytes", "64KiB"];
    let args = [&base[..], &["--transport", "shm", "--pes", "3"]].concat();
    let mut rng = Rng::new(6);
    for _ in 0..4 {
        let mut child = command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(rng.range(5_000..150_000)));
        let _ = child.kill();
        child.wait().unwrap();
        let started = std::time::Instant::now();
        // The processes end with the one that started them; until then the directory is theirs.
        while !folder.join("out").exists() {
            let resumed = run(&[&base[..], &["--resume"]].concat());
            if resumed.status == Some(0) {
                break;
            }
            assert!(resumed.stderr.contains("another process is writing"), "{resumed:?}");
            assert!(started.elapsed() < Duration::from_secs(60));
        }
        assert_eq!(contents(&folder.join("out")), expected);
        assert!(!folder.join(".out.partial").exists());
        fs::remove_dir_all(folder.join("out")).unwrap();
    }
}

/// A file system of its own, gone at the end.
struct Mount(std::path::PathBuf);

impl Mount {
    fn new(folder: &Path, bytes: u64) -> Option<Self> {
        let options = format!("size={bytes}");
        let args = ["-t", "tmpfs", "-o", &options, "syncline-test"];
        need("the right to mount", succeed(Command::new("mount").args(args).arg(folder)))?;
        Some(Self(folder.to_owned()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_is_a_clear_error_and_goes_on_when_there_is_room() {
    let folder = directory("reshard_full");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    write_model(&folder.join("in"), 4);
    let disk = folder.join("disk");
    fs::create_dir(&disk).unwrap();
    // 8 MiB of tensors, and 4 MiB left of the disk as long as something else takes the rest.
    let Some(mount) = Mount::new(&disk, 12 << 20) else { return };
    fs::write(disk.join("other"), vec![0; 8 << 20]).unwrap();
    let (from, to) = (path("in"), path("disk/out"));
    for transport in ["local", "shm"] {
        let args = ["reshard", "run", &from, &to, "--to", "tp=2", "--transport", transport];
        let line = run(&[&args[..], &["--resume"]].concat()).refusal();
        assert!(line.contains("rank-0000") && line.contains("cannot be written"), "{line}");
        assert!(line.contains("No space left") && line.contains("--resume"), "{line}");
        assert!(!Path::new(&to).exists());
    }
    fs::remove_file(disk.join("other")).unwrap();
    run(&["reshard", "run", &from, &to, "--to", "tp=2", "--resume"]).success();
    run(&["reshard", "verify", &from, &to]).success();
    drop(mount);
}

#[test]
fn memory_is_bounded_by_slots_not_by_the_checkpoint() {
    let folder = directory("reshard_memory");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    write_model(&folder.join("in"), 48);
    // Data of at most 40 MiB: the program's own, two threads' stacks and slots, but not the 96 MiB
    // of tensors.
    let script = "ulimit -d 40960 && exec \"$0\" \"$@\"";
    let mut limited = Command::new("sh");
    limited.args(["-c", script, env!("CARGO_BIN_EXE_syncline"), "reshard", "run"]);
    limited.args([&path("in"), &path("out"), "--to", "tp=2", "--pes", "2", "--slot-bytes", "1MiB"]);
    let output = limited.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    run(&["reshard", "verify", &path("in"), &path("out")]).success();
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn maps_give_other_forms_and_alike_tensors_are_shown_once() {
    let folder = directory("reshard_maps");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    write_model(&folder.join("in"), 2);
    fs::write(
        folder.join("fuse.toml"),
        "[[map]]\nfrom = [\"model.layers.*.mlp.up_proj.weight\", \
         \"model.layers.*.mlp.down_proj.weight\"]\nto = \"layers.*.both\"\ndim = 0\n\
         [[map]]\nfrom = \"absent\"\nto = \"other\"\n",
    )
    .unwrap();
    let all = ["reshard", "run", &path("in"), &path("out"), "--to", "dp=2", "--dry-run"];
    let dry = run(&all).success();
    let line = dry.lines().find(|line| line.contains("model.layers.*.mlp.up_proj.weight"));
    assert!(line.is_some_and(|line| line.ends_with("(2 tensors)")), "{dry}");
    let dry = run(&[&all[..], &["--verbose"]].concat()).success();
    assert!(dry.contains("model.layers.0.mlp.up_proj.weight"), "{dry}");
    // Matrices of unlike shapes are no parts of one.
    let refused = run(&[&all[..], &["--map", &path("fuse.toml")]].concat()).refusal();
    assert!(refused.contains("its parts have unlike shapes"), "{refused}");
    let text = fs::read_to_string(folder.join("fuse.toml")).unwrap();
    let renames = text.replace("[\"model.layers.*.mlp.up_proj.weight\", ", "");
    let renames = renames.replace("down_proj.weight\"]", "down_proj.weight\"");
    fs::write(folder.join("fuse.toml"), renames).unwrap();
    let said = run(&[
        "reshard",
        "run",
        &path("in"),
        &path("out"),
        "--to",
        "dp=2",
        "--map",
        &path("fuse.toml"),
    ]);
    assert!(said.stderr.contains("no tensor for the map of `absent`"), "{said:?}");
    let map = path("fuse.toml");
    let said = run(&["reshard", "verify", &path("in"), &path("out"), "--map", &map]);
    assert!(said.status == Some(0) && said.stdout.contains("every element"), "{said:?}");
    let refused = run(&[&all[..], &["--map", "hf-to-mars"]].concat()).refusal();
    assert!(refused.contains("hf-to-megatron, megatron-to-hf"), "{refused}");
    fs::write(
        folder.join("rules.toml"),
        "[[tensor]]\nmatch = \"**.up_proj.weigth\"\nshard = [{dim = 0, axis = \"tp\"}]\n",
    )
    .unwrap();
    let said = run(&[&all[..], &["--rules", &path("rules.toml")]].concat());
    assert!(said.stderr.contains("no tensor matches the rule `**.up_proj.weigth`"), "{said:?}");
}
