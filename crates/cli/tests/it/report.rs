//! `report`.

use std::fs;

use crate::support::{directory, run, run_with_input, write_text};

const CHOLESKY: &str = "examples/traces/cholesky.json";

const TIMED: &str = r#"{"format": "syncline-trace", "version": 1, "buffers": [{"id": 0, "bytes": 8, "name": "x"}],
 "tasks": [{"id": 4, "name": "fill", "start_ns": 10, "end_ns": 30, "lane": 0,
   "args": [{"access": "output", "buffer": 0, "offset": 0, "dtype": "f32", "shape": [2], "strides": [4]}]}]}"#;

#[test]
fn one_trace_gives_one_page_and_nothing_else() {
    let directory = directory("one_trace_gives_one_page_and_nothing_else");
    let page = directory.join("page.html").to_str().expect("a plain path").to_owned();
    assert_eq!(run(&["report", CHOLESKY, "-o", &page]).success(), "");
    let written = fs::read_to_string(&page).expect("written");
    assert!(written.starts_with("<!doctype html>") && written.contains("\"title\":\"cholesky\""));
    assert_eq!(run(&["report", CHOLESKY, "-o", "-"]).success(), written);
    assert_eq!(fs::read_dir(&directory).expect("a directory").count(), 1);
}

#[test]
fn captures_and_standard_input_are_taken_too() {
    let directory = directory("captures_and_standard_input_are_taken_too");
    let json = write_text(&directory, "timed.json", TIMED);
    let capture = directory.join("timed.sltrace").to_str().expect("a plain path").to_owned();
    run(&["deps", "convert", &json, "-o", &capture]).success();
    let page = run(&["report", &json, "-o", "-"]).success();
    assert!(page.contains("\"makespan\":20,"), "the times are in the page");
    assert_eq!(run(&["report", &capture, "-o", "-"]).success(), page);
    let from_input = run_with_input(&["report", "-", "-o", "-"], json.as_ref()).success();
    assert!(from_input.contains("\"title\":\"standard input\""));
    let compared = run(&["report", &json, &capture, "-o", "-"]).success();
    assert!(compared.contains("\"compare\":{\"matched\":1,"));
}

#[test]
fn what_cannot_be_reported_is_refused_in_one_line() {
    let directory = directory("what_cannot_be_reported_is_refused_in_one_line");
    let backwards =
        write_text(&directory, "backwards.json", &TIMED.replace("\"end_ns\": 30", "\"end_ns\": 3"));
    let line = run(&["report", &backwards, "-o", "-"]).refusal();
    assert!(line.contains("backwards.json") && line.contains('4'), "{line}");
    let line = run(&["report", CHOLESKY, "-o", "nowhere/page.html"]).refusal();
    assert!(line.contains("nowhere/page.html: cannot be written"), "{line}");
    let line = run(&["report", "-", "-", "-o", "-"]).refusal();
    assert!(line.contains("cannot both come from standard input"), "{line}");
    assert_eq!(run(&["report", CHOLESKY, CHOLESKY, CHOLESKY, "-o", "-"]).status, Some(2));
    assert_eq!(run(&["report", CHOLESKY]).status, Some(2), "there is no default file");
}
