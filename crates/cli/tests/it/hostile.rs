//! Files that mean harm, or were never what they are taken for: one line and exit status 2, or an
//! honest answer. No crash, no hang, no word to the terminal.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use syncline_testing::{Rng, for_seeds};

use crate::support::{Run, command, directory, json, run, write_text};

const CHOLESKY: &str = "examples/programs/cholesky.json";
const LAYOUT: &str = "examples/reshard/train-tp2pp2.toml";
const MACHINE: &str = "[[device]]\nname = \"cpu:0\"\nlanes = 2\n";

/// Takes the color, sets the title of the window, rings, goes to the left, and turns the text
/// round.
const HOSTILE: &str = "\u{1b}[31m\u{1b}]0;owned\u{7}\r\u{9b}2J\u{202e}<b>\nnew line";

/// Every command that reads a file, with that file in the place of `FILE`.
const READERS: [&[&str]; 9] = [
    &["deps", "graph", "FILE"],
    &["deps", "check", "FILE"],
    &["deps", "check", "examples/traces/cholesky.json", "--against", "FILE"],
    &["deps", "convert", "FILE", "-o", "-"],
    &["report", "FILE", "-o", "-"],
    &["run", "FILE"],
    &["run", CHOLESKY, "--simulate", "FILE"],
    &["reshard", "plan", "--from", "FILE", "--to", LAYOUT],
    &["reshard", "plan", "--from", LAYOUT, "--to", LAYOUT, "--simulate", "FILE"],
];

fn read_by(reader: &[&str], file: &str) -> Run {
    run(&reader.iter().map(|&arg| if arg == "FILE" { file } else { arg }).collect::<Vec<_>>())
}

/// What a terminal acts upon. Tables may be aligned, and lines end.
#[track_caller]
fn assert_harmless(text: &str) {
    let acts = |char: &char| char.is_control() || matches!(char, '\u{202a}'..='\u{202e}');
    let found = text.chars().filter(|char| *char != '\n').find(acts);
    assert_eq!(found, None, "{text:?}");
}

#[track_caller]
fn assert_ended_well(found: &Run, what: &str) {
    match found.status {
        Some(0 | 1) => (),
        Some(2) => assert_eq!(found.stderr.lines().count(), 1, "{what}: {found:?}"),
        _ => panic!("{what}: {found:?}"),
    }
    assert_harmless(&found.stderr);
}

/// A program of two tasks with `name` wherever it has names, and `bytes` in its buffers.
fn program(name: &str, bytes: u64) -> String {
    let arg = |access: &str| serde_json::json!({"access": access, "buffer": 0, "offset": 0, "dtype": "f32", "shape": [4], "strides": [4]});
    let task = |id: u64| serde_json::json!({"id": id, "name": name, "kernel": "scale", "args": [arg("input"), arg("inout")]});
    let mut tasks = [task(1), task(2)];
    for task in &mut tasks {
        task["args"][1]["access"] = "output_existing".into();
        task["args"][1]["buffer"] = 1.into();
    }
    let buffer = |id: u64| serde_json::json!({"id": id, "bytes": bytes.to_string(), "name": name});
    serde_json::json!({"format": "syncline-trace", "version": 1,
        "buffers": [buffer(0), buffer(1)], "tasks": tasks})
    .to_string()
}

#[test]
fn names_and_paths_do_not_reach_the_terminal_unescaped() {
    let folder = directory("hostile_names");
    let path =
        write_text(&folder, &format!("a{}.json", HOSTILE.replace('/', "")), &program(HOSTILE, 64));
    for args in [
        &["deps", "graph", &path][..],
        &["deps", "graph", &path, "--format", "dot"],
        &["deps", "graph", &path, "--full"],
        &["deps", "check", &path],
        &["run", &path],
        &["run", &path, "--mode", "stream", "--check"],
        &["run", &path, "--mode", "serial", "--json"],
    ] {
        assert_harmless(&run(args).success());
    }
    // On a machine without any delay, the last line names the kernel that takes all of the time.
    let machine = format!("sync_ns = 0\ndispatch_ns = 0\nwake_ns = 0\n{MACHINE}");
    let machine = write_text(&folder, "machine.toml", &machine);
    let simulate = ["run", &path, "--simulate", &machine];
    let shown = run(&simulate).success();
    assert_harmless(&shown);
    let last = shown.lines().last().expect("a line");
    assert!(last.contains("\\u001b[31m") && last.contains("\\nnew line"), "{last}");
    let shown = run(&[&simulate[..], &["--json"]].concat()).success();
    assert_harmless(&shown);
    assert!(json(&shown)["limit"].as_str().expect("a line").contains(HOSTILE), "{shown}");
    // Errors about the file, its content, and what was typed.
    let spoilt = program(HOSTILE, 64).replace("\"scale\"", &serde_json::json!(HOSTILE).to_string());
    let spoilt = write_text(&folder, "spoilt.json", &spoilt);
    let known =
        program(HOSTILE, 64).replacen("\"name\"", &serde_json::json!(HOSTILE).to_string(), 1);
    let known = write_text(&folder, "known.json", &known);
    let toml = write_text(&folder, "bad.toml", "[mesh]\n\"\\u001b[31m\" = 1\naxes = []\n");
    let missing = format!("{path}.gone");
    for args in [
        &["run", &spoilt][..],
        &["run", &known],
        &["run", &path, "--output", &format!("not {HOSTILE}=x.npy")],
        &["deps", "graph", &missing],
        &["deps", "check", &path, "--against", &path],
        &["reshard", "plan", "--from", &toml, "--to", &toml],
        &["example", HOSTILE],
        &["run", &path, "--report", &format!("{missing}/page.html")],
    ] {
        let line = run(args).refusal();
        assert_harmless(&line);
    }
    let usage = run(&["deps", "graph", &path, HOSTILE]);
    assert_eq!(usage.status, Some(2));
    assert_harmless(&usage.stderr);
}

#[test]
fn misspelt_members_are_errors_in_every_form() {
    let folder = directory("hostile_members");
    let shipped = fs::read_to_string("../../examples/programs/mlp.json").expect("shipped");
    let misspelt = write_text(&folder, "p.json", &shipped.replacen("\"scalars\"", "\"scalar\"", 1));
    let line = run(&["run", &misspelt, "--check"]).refusal();
    assert!(
        line.contains("p.json: tasks[0] (id 0): unknown member `scalar` (did you mean `scalars`?)"),
        "{line}"
    );
    let layout = fs::read_to_string(Path::new("../..").join(LAYOUT)).expect("shipped");
    let misspelt = write_text(&folder, "l.toml", &layout.replacen("shard = ", "shards = ", 1));
    let line = run(&["reshard", "plan", "--from", &misspelt, "--to", LAYOUT]).refusal();
    assert!(
        line.contains(
            "l.toml: line 7, column 1: tensor[0]: unknown member `shards` (did you mean `shard`?)"
        ),
        "{line}"
    );
    let machine = write_text(&folder, "m.toml", &MACHINE.replace("lanes", "lane"));
    let line = run(&["run", CHOLESKY, "--simulate", &machine]).refusal();
    assert!(
        line.contains("m.toml: ") && line.contains("unknown member `lane` (did you mean `lanes`?)"),
        "{line}"
    );
    let rules = write_text(&folder, "r.toml", "[[tensor]]\nmatch = \"w\"\nshrad = []\n");
    let header = br#"{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header);
    file.extend_from_slice(&[0; 4]);
    fs::write(folder.join("model.safetensors"), file).expect("a disk");
    let source = folder.to_str().expect("a plain path");
    let target = folder.join("out");
    let line = run(&[
        "reshard",
        "run",
        source,
        target.to_str().unwrap(),
        "--to",
        "tp=1",
        "--rules",
        &rules,
    ])
    .refusal();
    assert!(line.contains("unknown member `shrad` (did you mean `shard`?)"), "{line}");
}

#[test]
fn random_bytes_end_every_reader_in_one_line() {
    let folder = directory("hostile_bytes");
    let capture = folder.join("good.sltrace").to_str().expect("a plain path").to_owned();
    run(&["deps", "convert", "examples/traces/stencil.json", "-o", &capture]).success();
    let edges =
        run(&["deps", "graph", "examples/traces/cholesky.json", "--format", "json"]).success();
    let shipped = |name: &str| fs::read(Path::new("../..").join(name)).expect("shipped");
    let good = [
        fs::read(&capture).expect("written"),
        shipped(CHOLESKY),
        edges.into_bytes(),
        shipped(LAYOUT),
        MACHINE.as_bytes().to_vec(),
        shipped("examples/reshard/cluster-h100.toml"),
        Vec::new(),
    ];
    for_seeds("random_bytes_end_every_reader_in_one_line", 24, |rng| {
        let mut bytes = rng.pick(&good).clone();
        spoil(rng, &mut bytes);
        let file = folder.join("spoilt");
        fs::write(&file, &bytes).expect("a disk");
        for reader in READERS {
            assert_ended_well(&read_by(reader, file.to_str().unwrap()), &reader.join(" "));
        }
    });
}

fn spoil(rng: &mut Rng, bytes: &mut Vec<u8>) {
    if bytes.is_empty() {
        bytes.extend((0..rng.below(4096)).map(|_| rng.next_u64() as u8));
    }
    for _ in 0..=rng.below(4) {
        let at = rng.below(bytes.len().max(1));
        match rng.below(4) {
            0 => bytes.truncate(at),
            1 => bytes.splice(at..at, [rng.next_u64() as u8; 3]).for_each(drop),
            2 if at < bytes.len() => bytes[at] = *rng.pick(b"0987654321{}[]\",-\xff"),
            _ if at < bytes.len() => bytes[at] ^= 1 << rng.below(8),
            _ => (),
        }
    }
}

#[test]
fn sizes_that_no_machine_has_are_errors_or_answered() {
    let folder = directory("hostile_sizes");
    for bytes in [1u64 << 62, u64::MAX] {
        let path = write_text(&folder, "large.json", &program("large", bytes));
        for mode in ["plan", "stream", "serial"] {
            let line = run(&["run", &path, "--mode", mode]).refusal();
            assert!(line.contains("large.json: buffers[0].bytes: buffers of "), "{mode}: {line}");
        }
        let machine = write_text(&folder, "m.toml", MACHINE);
        assert_ended_well(&run(&["run", &path, "--simulate", &machine]), "simulate");
        for args in [
            &["deps", "graph", &path][..],
            &["deps", "check", &path],
            &["deps", "convert", &path, "-o", "-"],
            &["report", &path, "-o", "-"],
        ] {
            run(args).success();
        }
    }
    for args in [
        &["example", "cholesky", "--set", "tiles=99999999"][..],
        &["example", "cholesky", "--set", "tiles=16384"],
        &["example", "stencil", "--set", "tile=18446744073709551615"],
        &["example", "butterfly", "--set", "stages=64"],
        &["example", "mlp", "--set", "layers=4194304", "--set", "parts=4194304"],
        &["example", "attention", "--set", "heads=99999999999"],
        &["example", "random", "--set", "seed=18446744073709551615"],
    ] {
        let line = run(args).refusal();
        assert!(line.contains("must be at most") || line.contains("would have"), "{line}");
    }
}

/// Two tasks over columns of 2^40 rows that lie side by side, and one over both.
const COLUMNS: &str = r#"{"format": "syncline-trace", "version": 1, "buffers": [{"id": 0, "bytes": "4398046511104"}],
 "tasks": [
  {"id": 0, "args": [{"access": "inout", "buffer": 0, "offset": 0, "dtype": "u8", "shape": ["1099511627776"], "strides": [4]}]},
  {"id": 1, "args": [{"access": "inout", "buffer": 0, "offset": 2, "dtype": "u8", "shape": ["1099511627776"], "strides": [4]}]},
  {"id": 2, "args": [{"access": "inout", "buffer": 0, "offset": 0, "dtype": "u8", "shape": ["549755813888", 2], "strides": [8, 2]}]},
  {"id": 3, "args": [{"access": "inout", "buffer": 0, "offset": 1, "dtype": "u8", "shape": [1024, 1024, 1024, 1024], "strides": [4, "4096", "4194304", "4294967296"]}]},
  {"id": 4, "args": [{"access": "input", "buffer": 0, "offset": 3, "dtype": "u8", "shape": ["1099511627776"], "strides": [0]}]}]}"#;

#[test]
fn views_of_a_tera_of_runs_cost_no_more_than_others() {
    let folder = directory("hostile_views");
    let path = write_text(&folder, "columns.json", COLUMNS);
    let found = json(&run(&["deps", "graph", &path, "--format", "json"]).success());
    let pairs: Vec<_> = (found["edges"].as_array().expect("a list").iter())
        .map(|edge| (edge["pred"].as_u64().unwrap(), edge["succ"].as_u64().unwrap()))
        .collect();
    // Bytes 0 and 2 of every 4, both of them, byte 1, byte 3 alone.
    assert_eq!(pairs, [(0, 2), (1, 2)]);
    // Brute force over bytes has a limit, and says so.
    let line = run(&["deps", "check", &path]).refusal();
    assert!(line.contains("columns.json: "), "{line}");
    let capture = folder.join("columns.sltrace").to_str().expect("a plain path").to_owned();
    run(&["deps", "convert", &path, "-o", &capture]).success();
    run(&["report", &capture, "-o", "-"]).success();
}

#[test]
fn inputs_that_are_no_files() {
    let folder = directory("hostile_inputs");
    let pipe = folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    let pipe = pipe.to_str().expect("a plain path");
    let text = fs::read("../../examples/traces/cholesky.json").expect("shipped");
    let writer = std::thread::spawn({
        let pipe = pipe.to_owned();
        move || File::options().write(true).open(pipe).unwrap().write_all(&text)
    });
    let by_pipe = run(&["deps", "graph", pipe, "--format", "json"]).success();
    writer.join().expect("it writes").expect("all of it");
    let by_name = run(&["deps", "graph", "examples/traces/cholesky.json", "--format", "json"]);
    assert_eq!(by_pipe, by_name.success());

    let zero = folder.join("zero");
    symlink("/dev/zero", &zero).expect("a link");
    for reader in READERS {
        let line = read_by(reader, zero.to_str().unwrap()).refusal();
        assert!(line.contains("zero: cannot be read: expected a file or a pipe"), "{line}");
        let line = read_by(reader, folder.to_str().unwrap()).refusal();
        assert!(line.contains("irectory"), "{line}");
    }
    let mut endless = command(&["deps", "graph", "-"]);
    let ended = endless.stdin(File::open("/dev/zero").unwrap()).output().expect("it starts");
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
    // A buffer's contents are read once for every run: a pipe would be waited for.
    let init = format!("\"init\": {{\"file\": {}}}, \"name\"", serde_json::json!(pipe));
    let text = program("x", 64).replacen("\"name\"", &init, 1);
    let path = write_text(&folder, "init.json", &text);
    let line = run(&["run", &path]).refusal();
    assert!(line.contains("not a regular file"), "{line}");
}
