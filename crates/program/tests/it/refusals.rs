//! Programs that are refused before anything runs.

use syncline_program::{ExampleError, LoadOptions, Program, example};

/// A program of one task, `kernel` on two buffers of four floats; `task` and `buffer` are further members.
fn refused(task: &str, buffer: &str) -> String {
    let text = format!(
        r#"{{"format": "syncline-trace", "version": 1,
        "buffers": [{{"id": 0, "bytes": 16, "name": "x"{buffer}}}, {{"id": 1, "bytes": 16}}],
        "tasks": [{{"id": 4, {task} "args": [
          {{"access": "input", "buffer": 0, "offset": 0, "dtype": "f32", "shape": [4], "strides": [4]}},
          {{"access": "output_existing", "buffer": 1, "offset": 0, "dtype": "f32", "shape": [4], "strides": [4]}}]}}]}}"#
    );
    Program::from_bytes(text.as_bytes(), &LoadOptions::default()).unwrap_err().to_string()
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
        (
            r#""kernel": "scale","#,
            r#", "init": {"filled": 1}"#,
            "expected one of `fill`, `random` and `file`",
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
fn code_of_a_program_is_not_loaded_unasked() {
    let text = r#"{"format": "syncline-trace", "version": 1, "buffers": [], "tasks": [],
        "kernels": [{"name": "mine", "cpu": "libmine.so:mine", "args": ["input"]}]}"#;
    let error = Program::from_bytes(text.as_bytes(), &LoadOptions::default()).unwrap_err();
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
