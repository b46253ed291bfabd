//! Both forms of a trace give back what they were given.

use serde_json::{Value, json};
use syncline_testing::for_seeds;
use syncline_trace::Trace;
use syncline_trace::capture::{CaptureEnd, CaptureReader};

use crate::random;

#[test]
fn json_gives_back_any_trace() {
    for_seeds("json_gives_back_any_trace", 400, |rng| {
        let trace = random::trace(rng);
        trace.validate().expect("the generator makes valid traces");
        let text = trace.to_json();
        assert_eq!(Trace::from_json(text.as_bytes()).expect("our own JSON"), trace, "{text}");
    });
}

#[test]
fn captures_give_back_any_trace() {
    for_seeds("captures_give_back_any_trace", 400, |rng| {
        let trace = random::trace(rng);
        let bytes = trace.write_capture(Vec::new()).expect("memory");
        let read = CaptureReader::read(&bytes).expect("our own capture");
        assert_eq!(read.end, CaptureEnd::Complete);
        assert_eq!(read.trace, trace);
        // And by way of JSON, which is what `convert` does there and back.
        let text = read.trace.to_json();
        let again = Trace::from_json(text.as_bytes()).expect("our own JSON");
        assert_eq!(again.write_capture(Vec::new()).expect("memory"), bytes);
    });
}

#[test]
fn members_of_programs_and_for_other_programs_survive() {
    let document = json!({
        "format": "syncline-trace", "version": 1, "x-made-by": {"tool": "x", "n": [1, 2.5, null]},
        "kernels": [{"name": "mine", "cpu": "libmine.so:mine", "args": ["input", "inout"]}],
        "buffers": [{"id": 0, "bytes": 65536, "name": "A", "init": {"random": 7, "dtype": "f32"}, "device": "cpu"}],
        "tasks": [{"id": 0, "kernel": "gemm", "scalars": {"alpha": -1.0, "beta": 1e-320, "transpose_b": true},
            "device": ["vulkan:0", "cpu"], "priority": 1, "blocks": 4,
            "args": [{"access": "inout", "buffer": 0, "offset": 0, "dtype": "f32", "shape": [64, 64],
                      "strides": [1024, 4], "x-role": "c"}]}]
    });
    let trace = Trace::from_json(document.to_string().as_bytes()).expect("a runnable trace");
    assert_eq!(trace.tasks[0].label(), "gemm");
    let bytes = trace.write_capture(Vec::new()).expect("memory");
    let back = CaptureReader::read(&bytes).expect("our own").trace.to_json();
    assert_eq!(serde_json::from_str::<Value>(&back).expect("JSON"), document);
}

#[test]
fn large_integers_are_texts_and_readers_take_both() {
    let large = (1u64 << 62).to_string();
    let text = |bytes: &str, stride: &str| {
        format!(
            r#"{{"format": "syncline-trace", "version": 1, "buffers": [{{"id": "7", "bytes": {bytes}}}],
            "tasks": [{{"id": "18446744073709551615", "args": [{{"access": "input", "buffer": 7, "offset": "8",
            "dtype": "u8", "shape": ["1"], "strides": [{stride}]}}]}}]}}"#
        )
    };
    let number = Trace::from_json(text(&large, "-9007199254740993").as_bytes()).expect("numbers");
    let quoted = text(&format!("\"{large}\""), "\"-9007199254740993\"");
    assert_eq!(Trace::from_json(quoted.as_bytes()).expect("texts"), number);
    let written: Value = serde_json::from_str(&number.to_json()).expect("JSON");
    assert_eq!(written["buffers"][0]["bytes"], json!(large));
    assert_eq!(written["buffers"][0]["id"], json!(7));
    assert_eq!(written["tasks"][0]["id"], json!(u64::MAX.to_string()));
    assert_eq!(written["tasks"][0]["args"][0]["strides"][0], json!("-9007199254740993"));
}

#[test]
fn the_shipped_examples_are_what_their_program_writes() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/traces/");
    let shipped =
        |name: &str| std::fs::read_to_string(format!("{directory}{name}.json")).expect(name);
    let cholesky = crate::examples::cholesky(4, 16).expect("small");
    let stencil = crate::examples::stencil(4, 16, 3).expect("small");
    assert_eq!(shipped("cholesky"), cholesky.to_json());
    assert_eq!(shipped("stencil"), stencil.to_json());
}
