//! Any text given to the reader of edges, for a small trace.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use syncline_deps::DepGraph;
use syncline_trace::{Trace, read_edges, write_edges};

static TRACE: LazyLock<Trace> = LazyLock::new(|| {
    let text = br#"{"format": "syncline-trace", "version": 1, "buffers": [{"id": 0, "bytes": 64}],
        "tasks": [{"id": 0, "args": []}, {"id": 1, "args": []}, {"id": 2, "args": []}]}"#;
    Trace::from_json(text).expect("a small trace")
});

fn written(edges: &DepGraph) -> Vec<u8> {
    let mut text = Vec::new();
    write_edges(edges, &mut text).expect("memory");
    text
}

fuzz_target!(|bytes: &[u8]| {
    if let Ok(edges) = read_edges(bytes, &TRACE) {
        let again = read_edges(&written(&edges), &TRACE);
        assert_eq!(written(&again.expect("a read form can be written")), written(&edges));
    }
});
