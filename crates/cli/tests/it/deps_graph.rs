//! `deps graph`.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use syncline::deps::ScopeKind;
use syncline::tensor::{Access, Arg, BufferId, Dtype, View};
use syncline::trace::{Trace, TraceBuffer, TraceTask};

use crate::support::{assert_expected, command, directory, json, run, run_with_input, write_trace};

const CHOLESKY: &str = "examples/traces/cholesky.json";
const STENCIL: &str = "examples/traces/stencil.json";

#[test]
fn text_says_what_waits_for_what_and_why() {
    assert_expected("cholesky.txt", &run(&["deps", "graph", CHOLESKY]).success());
    assert_expected("stencil.txt", &run(&["deps", "graph", STENCIL]).success());
}

#[test]
fn full_and_reduced_are_the_same_order() {
    let full = run(&["deps", "graph", CHOLESKY, "--full"]).success();
    assert_expected("cholesky-full.txt", &full);
    let reduced = run(&["deps", "graph", CHOLESKY, "--reduced"]).success();
    assert_expected("cholesky-reduced.txt", &reduced);
}

#[test]
fn json_and_dot() {
    let found = run(&["deps", "graph", CHOLESKY, "--format", "json"]).success();
    assert_expected("cholesky.json", &found);
    let document = json(&found);
    assert_eq!((&document["format"], &document["version"]), (&"syncline-deps".into(), &1.into()));
    assert_eq!(
        (&document["tasks"], document["edges"].as_array().map(Vec::len)),
        (&20.into(), Some(30))
    );
    assert_expected(
        "cholesky.dot",
        &run(&["deps", "graph", CHOLESKY, "--format", "dot"]).success(),
    );
}

#[test]
fn a_graph_of_everything() {
    let directory = directory("a_graph_of_everything");
    let trace = everything();
    let path = write_trace(&directory, "everything", &trace);
    let found = run_with_input(&["deps", "graph", "-"], path.as_ref()).success();
    assert_expected("everything.txt", &found);
    let found = run_with_input(&["deps", "graph", "-", "--format", "dot"], path.as_ref()).success();
    assert_expected("everything.dot", &found);
    let found =
        run_with_input(&["deps", "graph", "-", "--full", "--format", "json"], path.as_ref());
    assert_expected("everything-full.json", &found.success());
}

/// Every kind of edge, views that are no boxes, names that need care.
fn everything() -> Trace {
    let (x, y) = (BufferId(0), BufferId(1));
    let row = |start: u64, end: u64| {
        View::strided(Dtype::F32, start * 4, &[end - start], &[4]).expect("small")
    };
    let diagonal = View::strided(Dtype::F32, 0, &[4], &[20]).expect("small");
    let group = |access| Arg::new(access, y, row(0, 4));
    let mut trace = Trace::default();
    trace.buffers.push(TraceBuffer::new(x, 64).named("x\ty"));
    trace.buffers.push(TraceBuffer::new(y, 64));
    let mut push = |name: &str, args: &[Arg], deps: &[u64], scope| {
        let mut task = TraceTask::new(trace.tasks.len() as u64 * 10, name, args.iter().copied());
        (task.deps, task.scope) = (deps.to_vec(), scope);
        trace.tasks.push(task);
    };
    push("make \"x\"", &[Arg::output(x, row(0, 16))], &[], ScopeKind::Auto);
    push("read\nrow", &[Arg::input(x, row(0, 4)), Arg::output(y, row(0, 8))], &[], ScopeKind::Auto);
    push("diagonal", &[Arg::inout(x, diagonal)], &[], ScopeKind::Auto);
    push("add", &[group(Access::Commutative)], &[], ScopeKind::Auto);
    push("add", &[group(Access::Commutative)], &[], ScopeKind::Auto);
    push("by hand", &[Arg::inout(y, row(2, 6))], &[10], ScopeKind::Manual);
    push(
        "peek",
        &[Arg::input(y, row(0, 16)), Arg::new(Access::NoDep, x, row(0, 1))],
        &[],
        ScopeKind::Auto,
    );
    push("", &[], &[0, 60], ScopeKind::Auto);
    trace
}

#[test]
fn a_closed_pipe_is_success() {
    let directory = directory("a_closed_pipe_is_success");
    let mut trace = Trace::default();
    for id in 0..500 {
        let mut task = TraceTask::new(id, "a task with a rather long name", []);
        task.deps = (id.saturating_sub(20)..id).collect();
        trace.tasks.push(task);
    }
    let path = write_trace(&directory, "long", &trace);
    let mut child = command(&["deps", "graph", &path, "--full"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut line = String::new();
    let mut out = BufReader::with_capacity(64, child.stdout.take().expect("piped"));
    out.read_line(&mut line).expect("a line");
    drop(out);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}
