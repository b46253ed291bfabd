//! Programs that are refused before anything runs.

use syncline_program::{ExampleError, Program, ProgramOptions, RunOptions, example};

/// A program of one task, `kernel` on two buffers of four floats; `task` and `buffer` are further
/// members.
fn refused(task: &str, buffer: &str) -> String {
    let text = format!(
        r#"{{"format": "syncline-trace", "version": 1,
        "buffers": [{{"id": 0, "bytes": 16, "name": "x"{buffer}}}, {{"id": 1, "bytes": 16}}],
        "tasks": [{{"id": 4, {task} "args": [
          {{"access": "input", "buffer": 0, "offset": 0, "dtype": "f32", "shape": [4], "strides": [4]}},
          {{"access": "output_existing", "buffer": 1, "offset": 0, "dtype": "f32", "shape": [4], "strides": [4]}}]}}]}}"#
    );
    Program::from_bytes(text.as_bytes(), &ProgramOptions::default()).unwrap_err().to_string()
}

#[test]
fn wrong_programs_are_refused_with_their_place() {
    let cases = [
        ("", "", "tasks[0] (id 4): the member `kernel` is missing"),
        (
            r#""kernel": "scael","#,
            "",
            "tasks[0] (id 4).kernel: no kernel `scael`: did you mean `scale`?",
        ),
        (
            r#""kernel": "add","#,
            "",
            "tasks[0] (id 4): kernel `add` takes 3 arguments (left, right, target), not 2",
        ),
        (r#""kernel": "transpose","#, "", "kernel `transpose`: source [4] must be a matrix"),
        (
            r#""kernel": "axpy","#,
            "",
            "accessed as output_existing, it needs one that reads and writes",
        ),
        (
            r#""kernel": "scale", "scalars": {"alhpa": 2},"#,
            "",
            "tasks[0] (id 4).scalars: kernel `scale` has no scalar `alhpa`: did you mean `alpha`?",
        ),
        (
            r#""kernel": "scale", "scalars": {"alpha": "2"},"#,
            "",
            "expected a number or a truth value, found \"2\"",
        ),
        (
            r#""kernel": "scale", "device": "gpu","#,
            "",
            "tasks[0] (id 4).device: expected a device such as",
        ),
        (
            r#""kernel": "scale", "device": "cup:0","#,
            "",
            "tasks[0] (id 4).device: no device `cup:0`: did you mean `cpu:0`?",
        ),
        (
            r#""kernel": "scale", "blocks": 0,"#,
            "",
            "tasks[0] (id 4).blocks: expected a whole number",
        ),
        (
            r#""kernel": "scale","#,
            r#", "init": {"file": "nowhere.npy"}"#,
            "buffers[0].init: nowhere.npy: No such file",
        ),
        (r#""kernel": "scale","#, r#", "init": {}"#, "expected one of `fill`, `random` and `file`"),
        (
            r#""kernel": "scale","#,
            r#", "init": {"filled": 1}"#,
            "buffers[0] (id 0).init: unknown member `filled` (did you mean `fill`?)",
        ),
        (
            r#""kernel": "scale","#,
            r#", "init": {"fill": 1, "random": 2}"#,
            "buffers[0].init: expected only one of `fill`, `random` and `file`",
        ),
        (
            r#""kernel": "scale","#,
            r#", "init": {"fill": 1, "tensor": "w"}"#,
            "buffers[0].init: expected `tensor` with the name of one in a `file`",
        ),
        (
            r#""kernel": "scale","#,
            r#", "init": {"file": "/dev/zero"}"#,
            "buffers[0].init: /dev/zero: not a regular file",
        ),
        (
            r#""kernel": "scale", "scalar": {"alpha": 2},"#,
            "",
            "tasks[0] (id 4): unknown member `scalar` (did you mean `scalars`?)",
        ),
        (
            r#""kernel": "scale", "blocks": 2,"#,
            "",
            "tasks[0] (id 4).blocks: kernel `scale` does not share its work out over blocks",
        ),
        (
            r#""kernel": "scale","#,
            r#", "init": {"fill": 1, "dtype": "f33"}"#,
            "buffers[0].init: unknown dtype `f33` (did you mean `f32`?)",
        ),
    ];
    for (task, buffer, wanted) in cases {
        let error = refused(task, buffer);
        assert!(error.contains(wanted), "{error}\n  should say\n{wanted}");
    }
}

#[test]
fn machines_with_members_that_they_do_not_have_are_refused() {
    let machine = "sync_ns = 200\nx-rack = 3\n[[device]]\nname = \"cpu:0\"\nx-socket = 1\n";
    syncline_program::machine_from_toml(machine).unwrap();
    for (from, to, expected) in [
        (
            "sync_ns",
            "sync_us",
            "line 1, column 1: unknown member `sync_us` (did you mean `sync_ns`?)",
        ),
        ("name", "lane = 2\nname", "device[0]: unknown member `lane` (did you mean `lanes`?)"),
        ("name", "name = \"a\"\nname", "duplicate key"),
        ("[[device]]", "[[link]]\nfro = \"a\"\n[[device]]", "link[0]: unknown member `fro`"),
    ] {
        let error = syncline_program::machine_from_toml(&machine.replacen(from, to, 1));
        let error = error.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_buffer_larger_than_the_machine_is_refused_however_it_is_run() {
    for bytes in [1u64 << 62, u64::MAX, (1 << 42) + 1] {
        let text = format!(
            r#"{{"format": "syncline-trace", "version": 1, "tasks": [],
            "buffers": [{{"id": 0, "bytes": 16}}, {{"id": 1, "bytes": "{bytes}"}}]}}"#
        );
        let program = Program::from_bytes(text.as_bytes(), &ProgramOptions::default()).unwrap();
        let options = RunOptions::default();
        for error in [
            program.run_serially().unwrap_err(),
            program.run_streamed(&options).unwrap_err(),
            program.run_planned(&options).unwrap_err(),
        ] {
            let error = error.to_string();
            assert!(error.starts_with("buffers[1].bytes: buffers of "), "{error}");
        }
        let error = program.initial_contents(1).unwrap_err().to_string();
        assert!(error.starts_with("buffers[1]: buffers of "), "{error}");
    }
}

#[test]
fn code_of_a_program_is_not_loaded_unasked() {
    let text = r#"{"format": "syncline-trace", "version": 1, "buffers": [], "tasks": [],
        "kernels": [{"name": "mine", "cpu": "libmine.so:mine", "args": ["input"]}]}"#;
    let error = Program::from_bytes(text.as_bytes(), &ProgramOptions::default()).unwrap_err();
    assert!(error.to_string().contains("--trust-kernels"), "{error}");
}

#[test]
fn unknown_examples_and_settings_name_the_nearest() {
    let error = example("cholesy", &[]).unwrap_err();
    assert!(error.to_string().contains("did you mean `cholesky`?"), "{error}");
    let error = example("cholesky", &[("tlies".to_owned(), 3)]).unwrap_err();
    assert!(error.to_string().contains("did you mean `tiles`?"), "{error}");
    let error = example("cholesky", &[("tiles".to_owned(), 0)]).unwrap_err();
    assert!(matches!(error, ExampleError::TooSmall { least: 1, .. }));
}
