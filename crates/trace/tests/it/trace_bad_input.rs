//! Every bad input has its own error, which names the place.

use serde_json::{Value, json};
use syncline_deps::DepInputs;
use syncline_tensor::{Arg, BufferId, TaskId, View};
use syncline_trace::capture::{CaptureReader, CaptureWriter, MARK, TaskLabel};
use syncline_trace::{Trace, TraceError, read_edges};

/// A small valid trace to spoil.
fn good() -> Value {
    let arg = json!({"access": "inout", "buffer": 0, "offset": 0, "dtype": "f32", "shape": [4, 4], "strides": [16, 4]});
    json!({"format": "syncline-trace", "version": 1, "buffers": [{"id": 0, "bytes": 64}],
        "tasks": [{"id": 3, "name": "a", "scope": "auto", "deps": [], "args": [arg]},
                  {"id": 5, "name": "b", "scope": "auto", "deps": [3], "args": [arg]}]})
}

/// The error that the trace gives when `pointer` is set to `value`.
fn spoiled(pointer: &str, value: Value) -> String {
    let mut document = good();
    *document.pointer_mut(pointer).expect(pointer) = value;
    error_of(&document.to_string())
}

fn error_of(text: &str) -> String {
    Trace::from_json(text.as_bytes()).expect_err(text).to_string()
}

#[test]
fn the_good_one_is_good() {
    Trace::from_json(good().to_string().as_bytes()).expect("valid");
}

#[test]
fn values_that_cannot_be() {
    let cases = [
        (
            "/tasks/1/args/0/strides",
            json!([0, 4]),
            "tasks[1] (id 5).args[0]: a write through a view with a zero stride",
        ),
        (
            "/tasks/1/args/0/offset",
            json!(4),
            "tasks[1] (id 5).args[0]: the view ends at byte 68, buffer b0 has 64 bytes",
        ),
        (
            "/tasks/1/args/0/strides",
            json!([-16, 4]),
            "tasks[1] (id 5).args[0]: the view begins 48 bytes before",
        ),
        (
            "/tasks/0/args/0/shape",
            json!([1, 1, 1]),
            "args[0]: a shape of 3 dimensions with 2 strides",
        ),
        (
            "/tasks/0/args/0/shape",
            json!([u64::MAX, 4]),
            "args[0]: the view's size or place does not fit",
        ),
        ("/tasks/0/args/0/buffer", json!(9), "tasks[0] (id 3).args[0]: no buffer b9 is declared"),
        ("/tasks/1/deps", json!([4]), "tasks[1] (id 5).deps[0]: no earlier task has id 4"),
        ("/tasks/1/deps", json!([3, 5]), "tasks[1] (id 5).deps[1]: no earlier task has id 5"),
        (
            "/tasks/1/id",
            json!(3),
            "tasks[1] (id 3): ids must increase, but the task before has id 3",
        ),
        ("/tasks/1/scope_id", json!(0), "scope 0 of 0 is not declared"),
    ];
    for (pointer, value, expected) in cases {
        let mut document = good();
        if pointer.ends_with("scope_id") {
            document["tasks"][1]["scope_id"] = value;
        } else {
            *document.pointer_mut(pointer).expect(pointer) = value;
        }
        let error = error_of(&document.to_string());
        assert!(error.contains(expected), "{pointer}: {error}");
    }
    let nine = json!([1, 1, 1, 1, 1, 1, 1, 1, 1]);
    let mut document = good();
    document["tasks"][0]["args"][0]["shape"] = nine.clone();
    document["tasks"][0]["args"][0]["strides"] = nine;
    assert!(error_of(&document.to_string()).contains("a view of 9 dimensions: at most 8"));
}

#[test]
fn values_of_the_wrong_shape() {
    let cases = [
        (
            "/format",
            json!("syncline-deps"),
            "format: expected \"syncline-trace\", found the text \"syncline-deps\"",
        ),
        ("/version", json!(2), "version: this program reads version 1, the file has version 2"),
        ("/buffers", json!(3), "expected a list for the member `buffers`"),
        ("/tasks", json!({}), "expected a list for the member `tasks`"),
        ("/tasks/1", json!(7), "tasks[1]: expected an object, found 7"),
        (
            "/tasks/1/args",
            json!("none"),
            "tasks[1] (id 5).args: expected a list, found the text \"none\"",
        ),
        (
            "/tasks/1/args/0",
            json!([]),
            "tasks[1] (id 5).args[0]: expected an object, found a list of 0",
        ),
        (
            "/tasks/1/args/0/access",
            json!("write"),
            "tasks[1] (id 5).args[0].access: unknown access `write`",
        ),
        (
            "/tasks/1/args/0/dtype",
            json!("f33"),
            "tasks[1] (id 5).args[0].dtype: unknown dtype `f33`",
        ),
        (
            "/tasks/1/args/0/shape",
            json!([4, -4]),
            "tasks[1] (id 5).args[0].shape[1]: expected an integer from 0",
        ),
        (
            "/tasks/1/args/0/strides",
            json!([4, 1.5]),
            "args[0].strides[1]: expected an integer from -2^63",
        ),
        ("/tasks/1/args/0/offset", json!("+1"), "args[0].offset: expected an integer from 0"),
        (
            "/tasks/1/scope",
            json!("automatic"),
            "tasks[1] (id 5).scope: expected \"auto\" or \"manual\"",
        ),
        ("/tasks/1/deps", json!([null]), "tasks[1] (id 5).deps[0]: expected an integer"),
        ("/tasks/1/name", json!(3), "tasks[1] (id 5).name: expected a text, found 3"),
        ("/buffers/0/bytes", json!(-1), "buffers[0] (id 0).bytes: expected an integer from 0"),
    ];
    for (pointer, value, expected) in cases {
        let error = spoiled(pointer, value);
        assert!(error.contains(expected), "{pointer}: {error}");
    }
    for (object, member) in [
        ("/tasks/0", "args"),
        ("/tasks/0", "id"),
        ("", "tasks"),
        ("", "format"),
        ("/tasks/0/args/0", "strides"),
    ] {
        let mut document = good();
        let members = document.pointer_mut(object).and_then(Value::as_object_mut).expect(object);
        members.remove(member);
        let error = error_of(&document.to_string());
        assert!(error.contains(&format!("the member `{member}` is missing")), "{error}");
    }
}

#[test]
fn text_that_is_not_json() {
    for (text, expected) in [
        ("", "line 1, column 0: not JSON: EOF"),
        (
            "{\"format\": \"syncline-trace\",\n \"version\": 1,\n \"tasks\": [}",
            "line 3, column 12: not JSON",
        ),
        ("[]", "invalid type: sequence, expected an object with the members"),
        (
            "{\"format\": \"syncline-trace\", \"version\": 1, \"buffers\": [], \"tasks\": []} x",
            "line 1, column",
        ),
        ("\u{0}\u{1}", "not JSON"),
    ] {
        let error = error_of(text);
        assert!(error.contains(expected), "{text:?}: {error}");
    }
    let deep = "[".repeat(100_000);
    assert!(error_of(&deep).contains("line 1"));
    let in_extra = format!("{{\"x\": {deep}");
    assert!(
        error_of(&in_extra).contains("recursion limit"),
        "deep nesting is refused, not followed"
    );
}

/// The place of a member that a form does not have, and the member.
const MEMBERS: [(&str, &str); 9] = [
    ("", "unknown member `tasc` (did you mean `tasks`?)"),
    ("/buffers/0", "buffers[0] (id 0): unknown member `byts` (did you mean `bytes`?)"),
    ("/buffers/0/init", "buffers[0] (id 0).init: unknown member `filll` (did you mean `fill`?)"),
    ("/kernels/0", "kernels[0]: unknown member `wsgl` (did you mean `wgsl`?)"),
    ("/kernels/0/grid", "kernels[0].grid: unknown member `element` (did you mean `elements`?)"),
    ("/scopes/0", "scopes[0]: unknown member `kinds` (did you mean `kind`?)"),
    ("/tasks/1", "tasks[1] (id 5): unknown member `scalar` (did you mean `scalars`?)"),
    ("/tasks/1", "tasks[1] (id 5): unknown member `zzzzzz`; known are `id`, `name`, `scope`"),
    (
        "/tasks/1/args/0",
        "tasks[1] (id 5).args[0]: unknown member `stride` (did you mean `strides`?)",
    ),
];

#[test]
fn members_that_the_form_does_not_have() {
    let mut document = good();
    document["kernels"] = json!([{"name": "k", "args": [], "grid": {"elements": 0}}]);
    document["buffers"][0]["init"] = json!({"fill": 1});
    document["scopes"] = json!([{"kind": "auto"}]);
    Trace::from_json(document.to_string().as_bytes()).expect("valid");
    for (pointer, expected) in MEMBERS {
        let name = expected.split('`').nth(1).expect("a name");
        let mut spoiled = document.clone();
        spoiled.pointer_mut(pointer).expect(pointer)[name] = json!({"alpha": 1});
        let error = error_of(&spoiled.to_string());
        assert!(error.contains(expected), "{pointer}: {error}");
        // A member for other programs, with the same name.
        let mut foreign = document.clone();
        foreign.pointer_mut(pointer).expect(pointer)[&format!("x-{name}")] = json!([1]);
        let trace = Trace::from_json(foreign.to_string().as_bytes()).expect("valid");
        let bytes = trace.write_capture(Vec::new()).expect("memory");
        assert_eq!(CaptureReader::read(&bytes).expect("our own").trace, trace);
    }
    let mut trace = Trace::from_json(document.to_string().as_bytes()).expect("valid");
    trace.tasks[0].extra.insert("blocs".to_owned(), json!(4));
    let bytes = trace.write_capture(Vec::new()).expect("memory");
    let error = CaptureReader::read(&bytes).expect_err("misspelt").to_string();
    assert!(error.contains("unknown member `blocs` (did you mean `blocks`?)"), "{error}");
    // A member that is kept in a field cannot be among the other members too.
    trace.tasks[0].extra = [("id".to_owned(), json!(4))].into_iter().collect();
    let error = trace.validate().expect_err("doubled").to_string();
    assert!(error.contains("tasks[0] (id 3): the member `id` is given twice"), "{error}");
}

#[test]
fn members_that_are_given_twice() {
    let mut document = good();
    document["kernels"] = json!([{"name": "k", "args": []}]);
    document["tasks"][1]["scalars"] = json!({"alpha": 1, "more": {"deep": [{"beta": 2}]}});
    document["scopes"] = json!([{"kind": "auto"}]);
    document["stats"] = json!([{"done": 1}]);
    let text = document.to_string();
    Trace::from_json(text.as_bytes()).expect("valid");
    for (member, place) in [
        (r#""format":"syncline-trace""#, ""),
        (r#""version":1"#, ""),
        (r#""stats":[{"done":1}]"#, ""),
        (r#""bytes":64"#, "buffers[0]: "),
        (r#""kind":"auto""#, "scopes[0]: "),
        (r#""done":1"#, "stats[0]: "),
        (r#""name":"k""#, "kernels[0]: "),
        (r#""id":5"#, "tasks[1]: "),
        (r#""name":"b""#, "tasks[1]: "),
        (r#""dtype":"f32""#, "tasks[0].args[0]: "),
        (r#""alpha":1"#, "tasks[1].scalars: "),
        (r#""beta":2"#, "tasks[1].scalars.more.deep[0]: "),
    ] {
        assert!(text.contains(member), "{member}");
        let error = error_of(&text.replacen(member, &format!("{member},{member}"), 1));
        let name = member.split('"').nth(1).expect("a name");
        let expected = format!(": {place}the member `{name}` is given twice");
        assert!(error.starts_with("line 1, column ") && error.ends_with(&expected), "{error}");
    }
}

#[test]
fn edges_with_members_that_they_do_not_have() {
    let trace = Trace::from_json(good().to_string().as_bytes()).expect("valid");
    let of = |text: &str| read_edges(text.as_bytes(), &trace);
    let text = r#"{"format": "syncline-deps", "version": 1, "tasks": 2, "edges": [{"pred": 3, "succ": 5}]}"#;
    of(text).expect("valid");
    of(&text.replace("\"tasks\"", "\"x-edge\": 1, \"tasks\"")).expect("valid");
    for (from, to, expected) in [
        ("\"tasks\"", "\"edge\": 1, \"tasks\"", "unknown member `edge` (did you mean `edges`?)"),
        (
            "\"pred\"",
            "\"kind\": [], \"pred\"",
            "edges[0]: unknown member `kind` (did you mean `kinds`?)",
        ),
        ("\"pred\"", "\"pred\": 5, \"pred\"", "edges[0]: the member `pred` is given twice"),
    ] {
        let error = of(&text.replace(from, to)).expect_err(to).to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn scopes_that_do_not_nest() {
    let mut document = good();
    document["scopes"] = json!([{"kind": "auto"}, {"kind": "manual"}]);
    document["tasks"][0]["scope_id"] = json!(1);
    document["tasks"][0]["scope"] = json!("manual");
    document["tasks"][1]["scope_id"] = json!(0);
    let error = error_of(&document.to_string());
    assert!(
        error.contains("tasks[1] (id 5).scope_id: scope 0 had been left before this task"),
        "{error}"
    );
    document["tasks"][1]["scope_id"] = json!(1);
    let error = error_of(&document.to_string());
    assert!(error.contains("the task is said to be `auto`, but scope 1 is `manual`"), "{error}");

    let mut writer = CaptureWriter::new(Vec::new()).expect("memory");
    writer.leave_scope().expect("memory");
    let bytes = writer.finish().expect("memory");
    let error = CaptureReader::read(&bytes).expect_err("unbalanced").to_string();
    assert!(error.contains("record 0 leaves a scope that was never entered"), "{error}");
}

#[test]
fn captures_of_something_else() {
    let of = |bytes: &[u8]| CaptureReader::read(bytes).expect_err("no capture");
    assert!(matches!(of(b"hello, world"), TraceError::NotACapture));
    assert!(of(&MARK).to_string().contains("the file ends before its first record"));
    let newer = [MARK.as_slice(), &[9, 0, 0, 0]].concat();
    assert!(matches!(of(&newer), TraceError::CaptureVersion { found: 9, supported: 1 }));
}

#[test]
fn what_a_writer_refuses_leaves_the_capture_readable() {
    let buffer = BufferId(0);
    let args = [Arg::inout(buffer, View::bytes_at(0, 8).expect("small"))];
    let inputs = DepInputs { args: &args, deps: &[] };
    let mut writer = CaptureWriter::new(Vec::new()).expect("memory");
    writer.buffer(buffer, 8, None).expect("memory");
    writer.submit(TaskId::new(0, 4), TaskLabel::default(), &inputs).expect("memory");
    writer.submit(TaskId::new(0, 4), TaskLabel::default(), &inputs).expect_err("an id twice");
    let huge = format!("{{\"x-\": \"{}\"}}", "y".repeat(1 << 24));
    let label = TaskLabel { name: None, extra: Some(&huge) };
    writer.submit(TaskId::new(0, 5), label, &inputs).expect_err("too long");
    let label = TaskLabel { name: Some(&huge), extra: None };
    writer.submit(TaskId::new(0, 5), label, &inputs).expect_err("too long a name");
    writer.submit(TaskId::new(0, 5), TaskLabel::named("after"), &inputs).expect("memory");
    let read = CaptureReader::read(&writer.finish().expect("memory")).expect("intact");
    let ids: Vec<u64> = read.trace.tasks.iter().map(|task| task.id).collect();
    assert_eq!(ids, [4, 5]);
    assert_eq!(read.trace.tasks[1].label(), "after");
}
