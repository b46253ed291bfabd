//! `deps check`.

use crate::support::{assert_expected, directory, run, write_text};

const CHOLESKY: &str = "examples/traces/cholesky.json";

#[test]
fn what_the_runtime_wires_is_right() {
    for name in ["cholesky", "stencil"] {
        let path = format!("examples/traces/{name}.json");
        let found = run(&["deps", "check", &path]).success();
        assert!(found.contains("0 missing, 0 superfluous"), "{found}");
    }
}

#[test]
fn every_form_of_the_edges_is_right() {
    let directory = directory("every_form_of_the_edges_is_right");
    for form in [&[][..], &["--full"], &["--reduced"]] {
        let args = [&["deps", "graph", CHOLESKY, "--format", "json"], form].concat();
        let edges = write_text(&directory, "edges.json", &run(&args).success());
        run(&["deps", "check", CHOLESKY, "--against", &edges]).success();
    }
}

#[test]
fn what_is_wrong_is_found() {
    let directory = directory("what_is_wrong_is_found");
    let text = run(&["deps", "graph", CHOLESKY, "--format", "json", "--reduced"]).success();
    // Without 1 -> 4, with 2 -> 4 and 9 -> 3 in its place.
    let wrong: String = text
        .lines()
        .map(|line| match line.contains("\"pred\": 1, \"succ\": 4,") {
            true => "{\"pred\": 2, \"succ\": 4}, {\"pred\": 9, \"succ\": 3},".to_owned(),
            false => format!("{line}\n"),
        })
        .collect();
    let edges = write_text(&directory, "edges.json", &wrong);
    let found = run(&["deps", "check", CHOLESKY, "--against", &edges]);
    assert_eq!((found.status, found.stderr.as_str()), (Some(1), ""), "{found:?}");
    assert_expected("check-wrong.txt", &found.stdout);
}
