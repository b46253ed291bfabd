//! Traces for viewers, opened by the trace engine of Chrome's own viewer (`@paulirish/trace_engine`
//! from npm): its processes, tracks and slices are those of the run.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use syncline_testing::need;

use crate::support::{directory, json, run};

/// Prints what the engine has made of the trace: processes, and of each track its name and slices.
const SCRIPT: &str = r#"
import fs from "fs";
globalThis.DOMRect ??= class {
  constructor(x, y, width, height) { Object.assign(this, { x, y, width, height }); }
  static fromRect(rect) { return new DOMRect(rect.x, rect.y, rect.width, rect.height); }
};
const engine = await import("@paulirish/trace_engine/models/trace/trace.js");
const trace = JSON.parse(fs.readFileSync(process.argv[1]));
const model = engine.TraceModel.Model.createWithAllHandlers();
await model.parse(trace.traceEvents, { metadata: {} });
const { data } = model.parsedTrace();
const processes = [...data.Meta.processNames].map(([pid, event]) => [String(pid), event.args.name]);
const tracks = engine.Handlers.Threads.threadsInTrace(data)
  .map(({ pid, name, entries }) => ({ pid, name, slices: entries.map((entry) => entry.name).sort() }));
console.log(JSON.stringify({ bounds: data.Meta.traceBounds, processes: Object.fromEntries(processes), tracks }));
"#;

/// What the engine says of `trace`; `None` where the test is to be skipped.
fn opened(trace: &Path) -> Option<Value> {
    let folder = std::env::var_os("SYNCLINE_NODE").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/node"),
        PathBuf::from,
    );
    let is_there = folder.join("node_modules/@paulirish/trace_engine").is_dir();
    let what =
        "@paulirish/trace_engine of npm (SYNCLINE_NODE names the folder of its node_modules)";
    need(what, is_there.then_some(()).ok_or("it is not there"))?;
    let mut node = Command::new("node");
    node.args(["--input-type=module", "--eval", SCRIPT]).arg(trace).current_dir(folder);
    let output = need("node", node.output())?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(json(&String::from_utf8(output.stdout).expect("UTF-8")))
}

#[test]
fn the_engine_of_a_viewer_finds_devices_lanes_and_slices() {
    let file = directory("viewer").join("trace.json");
    let trace = file.to_str().expect("a plain path");
    let devices = ["--devices", "cpu:0,cpu:1", "--trace", trace, "--json"];
    let program = ["run", "examples/programs/cholesky.json"];
    let facts = json(&run(&[&program[..], &devices].concat()).success());
    let Some(found) = opened(&file) else { return };
    let processes = found["processes"].as_object().expect("processes");
    let names: Vec<&str> = processes.values().filter_map(Value::as_str).collect();
    for name in ["cholesky", "cpu:0", "cpu:1"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    // By track the slices of the file, read without the engine.
    let written = json(&fs::read_to_string(&file).expect("written"));
    let events = written["traceEvents"].as_array().expect("events");
    let mut slices: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for event in events.iter().filter(|event| event["name"] == "thread_name") {
        let name = event["args"]["name"].as_str().expect("a name");
        let of_track = events.iter().filter(|one| one["ph"] == "X" && one["tid"] == event["tid"]);
        let mut names: Vec<&str> = of_track.filter_map(|one| one["name"].as_str()).collect();
        names.sort_unstable();
        slices.insert(name, names);
    }
    let tracks = found["tracks"].as_array().expect("tracks");
    for track in tracks {
        let name = track["name"].as_str().expect("a name");
        let found: Vec<&str> =
            track["slices"].as_array().expect("slices").iter().filter_map(Value::as_str).collect();
        assert_eq!(slices[name], found, "{name}");
        let device = name.split_once('/').expect("lanes are named after devices").0;
        assert_eq!(processes[&track["pid"].to_string()], device, "{name}");
    }
    let ran: usize =
        tracks.iter().map(|track| track["slices"].as_array().map_or(0, Vec::len)).sum();
    assert_eq!(ran, slices.values().map(Vec::len).sum::<usize>(), "no slice is lost");
    // Its bounds leave out time zero; whole microseconds are enough to see that it is the same run.
    let end_us = found["bounds"]["max"].as_f64().expect("bounds");
    let makespan_us = facts["makespan_ns"].as_f64().expect("a time") / 1e3;
    assert!((end_us - makespan_us).abs() <= 1.0, "{end_us} us, {makespan_us} us");
}
