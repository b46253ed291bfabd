//! `deps convert`.

use std::fs;

use crate::support::{directory, json, run, run_with_input, write_text};

const STENCIL: &str = "examples/traces/stencil.json";

#[test]
fn there_and_back_changes_nothing() {
    let directory = directory("there_and_back_changes_nothing");
    let at = |name: &str| directory.join(name).to_str().expect("a plain path").to_owned();
    let (capture, back) = (at("stencil.sltrace"), at("back.json"));
    assert_eq!(run(&["deps", "convert", STENCIL, "-o", &capture]).success(), "");
    assert_eq!(run(&["deps", "convert", &capture, "-o", &back]).success(), "");
    let whole = fs::read_to_string(&back).expect("written");
    assert_eq!(run(&["deps", "convert", &capture, "-o", "-"]).success(), whole);
    let shipped =
        run_with_input(&["deps", "convert", "-", "--output", "-"], back.as_ref()).success();
    assert_eq!(shipped, whole);
    let from_capture = run(&["deps", "graph", &capture, "--format", "json"]).success();
    assert_eq!(from_capture, run(&["deps", "graph", STENCIL, "--format", "json"]).success());
    let names: Vec<_> = fs::read_dir(&directory).expect("a directory").collect();
    assert_eq!(names.len(), 2, "nothing is left beside the files: {names:?}");
}

#[test]
fn a_capture_that_was_cut_off_is_used_as_far_as_it_goes() {
    let directory = directory("a_capture_that_was_cut_off_is_used_as_far_as_it_goes");
    let capture = directory.join("cut.sltrace").to_str().expect("a plain path").to_owned();
    run(&["deps", "convert", STENCIL, "-o", &capture]).success();
    let bytes = fs::read(&capture).expect("written");
    fs::write(&capture, &bytes[..bytes.len() / 2]).expect("a disk");
    let found = run(&["deps", "graph", &capture, "--format", "json"]);
    assert_eq!(found.status, Some(0));
    assert!(
        found.stderr.contains("note:") && found.stderr.contains("cut off at byte"),
        "{found:?}"
    );
    let tasks = json(&found.stdout)["tasks"].as_u64().expect("a number");
    assert!((1..48).contains(&tasks), "{tasks}");

    let mut wrong = bytes.clone();
    wrong[bytes.len() / 2] ^= 1;
    fs::write(&capture, &wrong).expect("a disk");
    let line = run(&["deps", "graph", &capture]).refusal();
    assert!(line.contains("cut.sltrace: byte ") && line.contains("is corrupted"), "{line}");
}

#[test]
fn the_ending_decides_and_nothing_else_will_do() {
    let line = run(&["deps", "convert", STENCIL, "-o", "stencil.txt"]).refusal();
    assert!(line.contains("expected .sltrace or .json"), "{line}");
    let directory = directory("the_ending_decides_and_nothing_else_will_do");
    let file = write_text(&directory, "file", "");
    let line = run(&["deps", "convert", STENCIL, "-o", &format!("{file}/x.json")]).refusal();
    assert!(line.contains("x.json: cannot be written"), "{line}");
}
