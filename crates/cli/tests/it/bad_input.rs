//! Bad input: one line that names the file, the place and what was expected; exit status 2.

use crate::support::{directory, run, run_with_input, write_text};

const CHOLESKY: &str = "examples/traces/cholesky.json";

#[test]
fn files_that_are_no_traces() {
    let directory = directory("files_that_are_no_traces");
    let arg = r#"{"access": "inout", "buffer": 0, "offset": 0, "dtype": "f32", "shape": [4], "strides": [0]}"#;
    let head = r#"{"format": "syncline-trace", "version": 1, "buffers": [{"id": 0, "bytes": 16}], "tasks": "#;
    for (text, expected) in [
        ("", "bad.json: line 1, column 0: not JSON"),
        ("{\n \"format\" 3}", "bad.json: line 2, column 11: not JSON: expected `:`"),
        ("{}", "bad.json: the file as a whole: the member `format` is missing"),
        (r#"{"format": "syncline-layout"}"#, "bad.json: format: expected \"syncline-trace\""),
        (&format!("{head} 4}}"), "expected a list for the member `tasks`"),
        (
            &format!(r#"{head} [{{"id": 8, "args": [{arg}]}}]}}"#),
            "bad.json: tasks[0] (id 8).args[0]: a write through a view with a zero stride",
        ),
        (
            &format!(r#"{head} [{{"id": 8, "deps": [7], "args": []}}]}}"#),
            "bad.json: tasks[0] (id 8).deps[0]: no earlier task has id 7",
        ),
        ("\u{1b}[31m", "bad.json: line 1, column 1"),
    ] {
        let path = write_text(&directory, "bad.json", text);
        for command in [
            &["deps", "graph", &path][..],
            &["deps", "check", &path],
            &["deps", "convert", &path, "-o", "-"],
        ] {
            let line = run(command).refusal();
            assert!(line.contains(expected), "{text}: {line}");
            assert!(!line.contains('\u{1b}'), "{line:?}");
        }
        let line = run_with_input(&["deps", "graph", "-"], path.as_ref()).refusal();
        assert!(line.starts_with("syncline: <standard input>: "), "{line}");
    }
}

#[test]
fn files_that_are_not_there() {
    let line = run(&["deps", "graph", "no-such-file.json"]).refusal();
    assert!(line.contains("no-such-file.json: cannot be read: No such file"), "{line}");
    let line = run(&["deps", "check", CHOLESKY, "--against", "no-such-file.json"]).refusal();
    assert!(line.contains("no-such-file.json: cannot be read"), "{line}");
}

#[test]
fn edges_that_are_not_of_the_trace() {
    let directory = directory("edges_that_are_not_of_the_trace");
    let head = r#"{"format": "syncline-deps", "version": 1, "tasks": 20, "edges": "#;
    for (text, expected) in [
        (r#"{"format": "syncline-trace"}"#, "edges.json: format: expected \"syncline-deps\""),
        (
            r#"{"format": "syncline-deps", "version": 1, "tasks": 3, "edges": []}"#,
            "of a trace with 3 tasks, this trace has 20",
        ),
        (&format!("{head} 1}}"), "edges: expected a list, found 1"),
        (
            &format!(r#"{head} [{{"pred": 0, "succ": 99}}]}}"#),
            "edges[0].succ: the trace has no task with id 99",
        ),
        (&format!(r#"{head} [{{"pred": 0}}]}}"#), "edges[0]: the member `succ` is missing"),
        (
            &format!(r#"{head} [{{"pred": 0, "succ": 1, "kinds": ["odd"]}}]}}"#),
            "edges[0].kinds[0]: expected the name of a kind of edge",
        ),
        (
            &format!(r#"{head} [{{"pred": 0, "succ": 1, "args": [[1]]}}]}}"#),
            "edges[0].args[0]: expected a pair of positions",
        ),
    ] {
        let path = write_text(&directory, "edges.json", text);
        let line = run(&["deps", "check", CHOLESKY, "--against", &path]).refusal();
        assert!(line.contains(expected), "{text}: {line}");
    }
    let line = run(&["deps", "check", "-", "--against", "-"]).refusal();
    assert!(line.contains("cannot both come from standard input"), "{line}");
}

#[test]
fn usage_that_is_none() {
    for args in [
        &[][..],
        &["deps"],
        &["deps", "graph"],
        &["nonsense"],
        &["deps", "graph", CHOLESKY, "--full", "--reduced"],
        &["deps", "graph", CHOLESKY, "--format", "png"],
    ] {
        let found = run(args);
        assert_eq!((found.status, found.stdout.as_str()), (Some(2), ""), "{found:?}");
        assert!(!found.stderr.is_empty());
    }
    assert_eq!(run(&["--help"]).status, Some(0));
    assert!(run(&["--version"]).success().starts_with("syncline "));
}
