//! Conventions of every command: documents for programs, quiet, colours, byte-order marks.

use std::fs;

use serde_json::Value;

use crate::support::{command, directory, finished, json, run, write_checkpoint, write_text};

const CHOLESKY: &str = "examples/traces/cholesky.json";

#[test]
fn checks_and_conversions_speak_to_programs() {
    let folder = directory("conventions");
    let path = |name: &str| folder.join(name).to_str().expect("a plain path").to_owned();
    let text = run(&["deps", "graph", CHOLESKY, "--json", "--reduced"]).success();
    // Without the first edge.
    let mut edges = json(&text);
    let gone = edges["edges"].as_array_mut().expect("edges").remove(0);
    let edges = write_text(&folder, "edges.json", &edges.to_string());
    let found = run(&["deps", "check", CHOLESKY, "--against", &edges, "--json"]);
    assert_eq!((found.status, found.stderr.as_str()), (Some(1), ""), "{found:?}");
    let found = json(&found.stdout);
    assert_eq!(found["format"], "syncline-check");
    assert!(found["missing"].as_array().is_some_and(|missing| !missing.is_empty()), "{found}");
    assert_eq!(found["missing"][0]["pred"], gone["pred"], "{found}");

    let tensors = |bytes: Vec<u8>| {
        [("up", [4, 8]), ("down", [8, 4])].map(|(part, shape)| {
            (format!("model.layers.0.mlp.{part}_proj.weight"), "BF16", shape, bytes.clone())
        })
    };
    write_checkpoint(&folder.join("in"), &tensors((0..64).collect()));
    fs::write(folder.join("in/config.json"), "{}").expect("a file for tests");
    let convert = ["reshard", "run", &path("in"), &path("out"), "--to", "tp=2", "--json"];
    let done = json(&run(&convert).success());
    assert_eq!((&done["format"], &done["bytes"]), (&"syncline-conversion".into(), &128.into()));
    let verify = ["reshard", "verify", &path("in"), &path("out"), "--json"];
    let same = json(&run(&verify).success());
    assert_eq!(same["format"], "syncline-verification");
    assert_eq!((&same["differences"], &same["mismatch"]), (&Value::Array(vec![]), &Value::Null));
    write_checkpoint(&folder.join("in"), &tensors((1..65).collect()));
    let other = run(&verify);
    assert_eq!(other.status, Some(1), "{other:?}");
    let differences = json(&other.stdout)["differences"].as_array().expect("a list").len();
    assert_eq!(differences, 4, "both shards of both: {other:?}");
}

#[test]
fn marks_at_the_start_of_texts_are_no_part_of_them() {
    let folder = directory("byte_order_marks");
    let trace = fs::read_to_string(format!("{}/../../{CHOLESKY}", env!("CARGO_MANIFEST_DIR")));
    let marked = format!("\u{feff}{}", trace.expect("an example"));
    let marked = write_text(&folder, "cholesky.json", &marked);
    let graph = |path: &str| json(&run(&["deps", "graph", path, "--json"]).success());
    assert_eq!(graph(&marked), graph(CHOLESKY));
    let layout = "examples/reshard/train-tp2pp2.toml";
    let text = fs::read_to_string(format!("{}/../../{layout}", env!("CARGO_MANIFEST_DIR")));
    let marked = write_text(&folder, "a.toml", &format!("\u{feff}{}", text.expect("an example")));
    let to = ["--to", "examples/reshard/serve-tp4.toml"];
    let plan = |from: &str| run(&[&["reshard", "plan", "--from", from], &to[..]].concat());
    assert_eq!(plan(&marked).success(), plan(layout).success());
}

#[test]
fn colours_and_notes_follow_the_options() {
    let folder = directory("colours");
    let error = |options: &[&str]| run(&[&["deps", "graph", "nowhere.json"], options].concat());
    assert!(!error(&[]).refusal().contains('\x1b'), "no terminal, no colours");
    let coloured = error(&["--color", "always"]).refusal();
    assert!(coloured.starts_with("\x1b[1;31msyncline:\x1b[0m nowhere.json"), "{coloured:?}");
    let plain =
        |options: &[&str]| finished(command(options).env("NO_COLOR", "1").output().unwrap());
    assert!(!plain(&["deps", "graph", "nowhere.json"]).refusal().contains('\x1b'));
    // A capture that was cut off is read, with a note that --quiet leaves out.
    let capture = folder.join("cut.sltrace");
    let path = capture.to_str().expect("a plain path");
    run(&["deps", "convert", CHOLESKY, "-o", path]).success();
    let bytes = fs::read(&capture).expect("written");
    fs::write(&capture, &bytes[..bytes.len() * 2 / 3]).expect("cut off");
    let noted = run(&["deps", "graph", path]);
    assert!(noted.status == Some(0) && noted.stderr.contains("note: "), "{noted:?}");
    assert_eq!(run(&["deps", "graph", path, "--quiet"]).success(), noted.stdout);
    // Errors are said all the same.
    assert!(error(&["--quiet"]).refusal().contains("nowhere.json"));
    let help = run(&["--help"]).success();
    assert!(help.contains("Exit status:") && help.contains("130"), "{help}");
}
