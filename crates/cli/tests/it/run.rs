//! `run`, `example`, `kernels` and `devices`.

use std::fs;

use serde_json::{Value, json};
use syncline_testing::need;

use crate::support::{command, directory, finished, in_terminal, run, run_with_input, write_text};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Every example that ships, and the buffer that holds its result.
const SHIPPED: [(&str, &str); 6] = [
    ("cholesky", "A"),
    ("stencil", "even"),
    ("butterfly", "odd"),
    ("mlp", "y"),
    ("attention", "y"),
    ("random", "b0"),
];

#[test]
fn shipped_programs_are_what_example_writes() {
    for (name, _) in SHIPPED {
        let written = run(&["example", name]).success();
        let shipped = fs::read_to_string(format!("../../examples/programs/{name}.json")).unwrap();
        assert!(
            written == shipped,
            "examples/programs/{name}.json is not what `syncline example` writes"
        );
    }
}

/// A few figures of an array of floats or integers of four bytes.
fn figures(npy: &[u8]) -> Value {
    let header = usize::from(u16::from_le_bytes([npy[8], npy[9]])) + 10;
    let integers = String::from_utf8_lossy(&npy[..header]).contains("<i4");
    let numbers: Vec<f64> = npy[header..]
        .chunks(4)
        .map(|bytes| {
            let bytes = bytes.try_into().unwrap();
            if integers {
                i32::from_le_bytes(bytes).into()
            } else {
                f32::from_le_bytes(bytes).into()
            }
        })
        .collect();
    let squares: f64 = numbers.iter().map(|x| x * x).sum();
    json!({"elements": numbers.len(), "sum": numbers.iter().sum::<f64>(), "norm": squares.sqrt(),
           "last": numbers.last()})
}

#[test]
fn shipped_programs_give_the_output_to_expect() {
    let folder = directory("shipped");
    let expected_path = "../../examples/programs/expected.json";
    let mut found = json!({});
    for (name, buffer) in SHIPPED {
        let file = folder.join(format!("{name}.npy"));
        let output = format!("{buffer}={}", file.display());
        let program = format!("examples/programs/{name}.json");
        let text = run(&["run", &program, "--check", "--output", &output]).success();
        assert!(text.contains("the same as the serial run, bit for bit"), "{text}");
        let array = fs::read(&file).unwrap();
        if name == "cholesky" {
            // No task sees the whole matrix; its tiles say how long its rows are.
            let header = String::from_utf8_lossy(&array[..128]).into_owned();
            assert!(header.contains("'shape': (384, 384)"), "{header}");
        }
        found[name] = figures(&array);
        found[name]["buffer"] = json!(buffer);
    }
    if std::env::var_os("SYNCLINE_BLESS").is_some() {
        fs::write(expected_path, format!("{found:#}\n")).unwrap();
    }
    let expected: Value = serde_json::from_slice(&fs::read(expected_path).unwrap()).unwrap();
    for (name, _) in SHIPPED {
        for figure in ["elements", "sum", "norm", "last"] {
            let (found, expected) = (&found[name][figure], &expected[name][figure]);
            let (x, y) = (found.as_f64().unwrap(), expected.as_f64().unwrap());
            // Processors with and without fused multiply-add round differently.
            assert!((x - y).abs() <= 1e-3 * y.abs().max(1.0), "{name} {figure}: {x}, not {y}");
        }
    }
}

#[test]
fn every_mode_and_every_file() {
    let folder = directory("run-files");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let program = "examples/programs/mlp.json";
    let (capture, trace, report) = (path("run.sltrace"), path("trace.json"), path("report.html"));
    for mode in ["plan", "stream", "serial"] {
        let files = ["--capture", &capture, "--trace", &trace, "--report", &report];
        let text =
            run(&[&["run", program, "--mode", mode, "--json"], &files[..]].concat()).success();
        let facts: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(facts["tasks"], 24, "{mode}");
        assert!(facts["makespan_ns"].as_u64().unwrap() > 0);
        let events: Value = serde_json::from_slice(&fs::read(&trace).unwrap()).unwrap();
        let events = events["traceEvents"].as_array().unwrap();
        let of = |phase: &str| events.iter().filter(|event| event["ph"] == phase).count();
        let kernels = events.iter().filter(|event| event["cat"] == "kernel").count();
        assert_eq!(kernels, 24, "{mode}: a slice for each task");
        assert!(of("s") > 0 && of("M") > 0, "{mode}: arrows and tracks");
        assert_viewable(events);
        let page = fs::read_to_string(&report).unwrap();
        assert!(page.starts_with("<!doctype html>") && page.contains("gelu"), "{mode}");
        // What was captured can be analysed, reported, and run again.
        run(&["deps", "check", &capture]).success();
        run(&["report", &capture, "-o", &report]).success();
        run(&["run", &capture, "--check"]).success();
    }
}

#[test]
fn a_run_says_where_it_comes_from() {
    let folder = directory("run-provenance");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (capture, trace, page) = (path("my run.sltrace"), path("trace.json"), path("page.html"));
    let program = "examples/programs/cholesky.json";
    let files = ["--capture", &capture, "--trace", &trace, "--report", &page, "--repeat", "2"];
    let text = run(&[&["run", program, "--json"], &files[..]].concat()).success();
    let said = json_of(&text)["provenance"].clone();
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(said["host"], host.trim());
    assert_eq!(said["version"], format!("syncline {}", env!("CARGO_PKG_VERSION")));
    assert_eq!((&said["mode"], &said["repeats"]), (&json!("plan"), &json!(2)));
    let command = said["command"].as_str().unwrap();
    assert!(command.starts_with("syncline run examples/programs/cholesky.json"), "{command}");
    assert!(command.contains(&format!("'{capture}'")), "quoted for a shell: {command}");
    assert!(said["date"].as_str().is_some_and(|date| date.ends_with(" UTC")), "{said}");
    assert!(said["processor"].is_string() && said["seeds"].is_string(), "{said}");
    // The same in every file, and in pages that are made from the capture.
    assert_eq!(json_of(&fs::read_to_string(&trace).unwrap())["otherData"], said);
    let captured = run(&["deps", "convert", &capture, "-o", "-"]).success();
    assert_eq!(json_of(&captured)["provenance"], said);
    let later = run(&["report", &capture, "-o", "-"]).success();
    for page in [fs::read_to_string(&page).unwrap(), later] {
        assert!(page.contains(&format!("[\"host\",\"{}\"]", host.trim())), "{program}");
    }
    // A run of the capture is another run.
    let again = run(&["run", &capture, "--mode", "serial", "--json"]).success();
    assert_eq!(json_of(&again)["provenance"]["mode"], "serial");
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// What a viewer takes for granted: slices of a track do not overlap, arrows have two ends that lie
/// on slices and go forwards in time, counters do not fall below zero and end where they began.
fn assert_viewable(events: &[Value]) {
    let ns = |value: &Value| (value.as_f64().unwrap() * 1000.0).round() as i64;
    let of = |phase: &'static str| events.iter().filter(move |event| event["ph"] == phase);
    let mut slices: Vec<(i64, i64, i64)> = of("X")
        .map(|slice| {
            let start = ns(&slice["ts"]);
            (slice["tid"].as_i64().unwrap(), start, start + ns(&slice["dur"]))
        })
        .collect();
    slices.sort_unstable();
    for pair in slices.windows(2) {
        let [(track, _, end), (other, start, _)] = pair else { unreachable!() };
        assert!(track != other || end <= start, "slices overlap on track {track}: {pair:?}");
    }
    let named = |name: &'static str| of("M").filter(move |event| event["name"] == name);
    let tracks: Vec<_> = named("thread_name").map(|track| (&track["pid"], &track["tid"])).collect();
    assert!(of("X").all(|slice| tracks.contains(&(&slice["pid"], &slice["tid"]))));
    let processes: Vec<&Value> = named("process_name").map(|event| &event["pid"]).collect();
    assert!(events.iter().all(|event| processes.contains(&&event["pid"])), "all have names");
    let on_slice = |event: &Value| {
        let (track, at) = (event["tid"].as_i64().unwrap(), ns(&event["ts"]));
        slices.iter().any(|&(of, start, end)| of == track && (start..=end).contains(&at))
    };
    assert_eq!(of("s").count(), of("f").count());
    for start in of("s") {
        let end = of("f").find(|end| end["id"] == start["id"]).expect("an arrow has two ends");
        assert!(on_slice(start) && on_slice(end), "{start} {end}");
        assert!(ns(&start["ts"]) <= ns(&end["ts"]), "{start} {end}");
    }
    let mut counters: std::collections::BTreeMap<String, Vec<i64>> = Default::default();
    for event in of("C") {
        let values = event["args"].as_object().unwrap().values();
        let name = format!("{} of {}", event["name"].as_str().unwrap(), event["pid"]);
        counters.entry(name).or_default().extend(values.map(|value| value.as_i64().unwrap()));
    }
    let names: Vec<_> = counters.keys().collect();
    assert!(counters.contains_key("running tasks of 1"), "{names:?}");
    assert!(counters.keys().any(|name| name.starts_with("memory")), "{names:?}");
    for (name, values) in &counters {
        assert!(values.iter().all(|&value| value >= 0), "{name}: {values:?}");
        assert_eq!(values.last(), Some(&0), "{name} ends where it began");
    }
}

#[test]
fn a_terminal_shows_a_bar_and_a_pipe_none() {
    let folder = directory("run-bar");
    let file = folder.join("long.json");
    let file = file.to_str().unwrap();
    run(&["example", "random", "--set", "tasks=300", "--set", "elements=50000", "-o", file])
        .success();
    let Some(shown) = in_terminal(&["run", file, "--repeat", "20"]) else { return };
    assert!(shown.contains("of 6000 tasks") && shown.contains("critical path"), "{shown}");
    let piped = command(&["run", file]).output().unwrap();
    assert!(piped.status.success() && piped.stderr.is_empty(), "{piped:?}");
}

#[test]
fn a_watched_run_shows_its_workers() {
    let file = directory("run-watch").join("random.json");
    let file = file.to_str().unwrap();
    run(&["example", "random", "--set", "tasks=300", "--set", "elements=50000", "-o", file])
        .success();
    let watched = ["run", file, "--repeat", "10", "--watch"];
    for mode in ["plan", "stream"] {
        // Without a terminal plain lines, the last of which counts everything.
        let piped =
            finished(command(&[&watched[..], &["--mode", mode]].concat()).output().unwrap());
        assert_eq!(piped.status, Some(0), "{piped:?}");
        assert!(piped.stdout.contains("critical path") && !piped.stdout.contains("failures"));
        let last = piped.stderr.lines().last().unwrap();
        assert!(last.contains("3000 of 3000 tasks, "), "{last}");
        assert!(last.contains("memory ") && last.contains("failures 0"), "{last}");
        assert!(last.contains("workers busy ") && !piped.stderr.contains('\x1b'), "{last}");
    }
    let quiet = run(&[&watched[..], &["--quiet"]].concat()).success();
    assert!(quiet.contains("critical path"));
    let Some(shown) = in_terminal(&watched) else { return };
    assert!(shown.contains("3000 of 3000 tasks") && shown.contains("[###"), "{shown}");
    assert!(shown.contains("\x1b[") && shown.contains("% "), "lines are drawn anew: {shown}");
}

#[test]
fn several_devices_exchange_what_they_need() {
    let program = "examples/programs/cholesky.json";
    let trace = directory("run-devices").join("trace.json");
    let files = ["--trace", trace.to_str().unwrap()];
    let devices = ["run", program, "--devices", "cpu:0,cpu:1"];
    let table = run(&devices).success();
    for row in ["devices", "tasks", "time", "critical path", "lane cpu:0/0", "peak memory cpu:0"] {
        assert!(table.lines().any(|line| line.starts_with(row)), "no {row} in\n{table}");
    }
    let text = run(&[&devices[..], &files, &["--check", "--json"]].concat()).success();
    let events: Value = serde_json::from_slice(&fs::read(&trace).unwrap()).unwrap();
    assert_viewable(events["traceEvents"].as_array().unwrap());
    let facts: Value = serde_json::from_str(&text).unwrap();
    let routes = facts["bytes_by_route"].as_object().unwrap().values();
    let moved: u64 = routes.map(|bytes| bytes.as_u64().unwrap()).sum();
    assert_eq!(facts["bytes_moved"], moved);
    assert_eq!(facts["differences"], json!([]));
    let lanes = facts["lanes"].as_array().unwrap();
    let ran_on = |device: &str| {
        lanes
            .iter()
            .any(|lane| lane["name"].as_str().unwrap().starts_with(device) && lane["tasks"] != 0)
    };
    assert!(ran_on("cpu:0") || ran_on("cpu:1"), "{text}");
}

#[test]
fn a_program_from_standard_input() {
    let folder = directory("run-input");
    let file = folder.join("random.json");
    let written = run(&["example", "random", "--set", "tasks=20", "-o", file.to_str().unwrap()]);
    written.success();
    assert!(run_with_input(&["run", "-", "--check"], &file).success().contains("bit for bit"));
}

#[test]
fn bad_programs_are_refused_in_one_line() {
    let folder = directory("run-refused");
    let program = |text: &str, name: &str| write_text(&folder, name, text);
    let base = r#"{"format": "syncline-trace", "version": 1, "buffers": [{"id": 0, "bytes": 16, "name": "x"}],
        "tasks": [{"id": 0, "kernel": "KERNEL", "args": [
        {"access": "output_existing", "buffer": 0, "offset": 0, "dtype": "f32", "shape": [4], "strides": [4]}]}]}"#;
    let typo = program(&base.replace("KERNEL", "fil"), "typo.json");
    let line = run(&["run", &typo]).refusal();
    assert!(line.contains("tasks[0]") && line.contains("did you mean `fill`?"), "{line}");
    let good = program(&base.replace("KERNEL", "fill"), "good.json");
    let line = run(&["run", &good, "--output", "y=y.npy"]).refusal();
    assert!(line.contains("no buffer is called `y`"), "{line}");
    let line = run(&["run", &good, "--devices", "cpu:0,vulkan:99"]).refusal();
    assert!(line.contains("vulkan:99"), "{line}");
    let line = run(&["run", &good, "--devices", "cpu:0,cpu:0"]).refusal();
    assert!(line.contains("cpu:0 is named twice"), "{line}");
    let line = run(&["run", &good, "--mode", "stream", "--devices", "cpu:0,vulkan:0"]).refusal();
    assert!(line.contains("a stream runs on one CPU device"), "{line}");
    let nowhere = folder.join("nowhere/F").display().to_string();
    let array = format!("x={nowhere}");
    for files in [["--output", &array], ["--report", &nowhere], ["--trace", &nowhere]] {
        // What was asked for before it is not written either: nothing has run.
        let capture = folder.join("early.sltrace");
        let before = ["run", &good, "--capture", capture.to_str().unwrap()];
        let line = run(&[&before[..], &files].concat()).refusal();
        assert!(line.contains("nowhere/F") && !capture.exists(), "{line}");
    }
    let line = run(&["example", "cholesy"]).refusal();
    assert!(line.contains("did you mean `cholesky`?"), "{line}");
    let line = run(&["run", "nowhere.json"]).refusal();
    assert!(line.contains("nowhere.json"), "{line}");
}

#[test]
fn kernels_and_devices_are_listed() {
    let kernels: Value = serde_json::from_str(&run(&["kernels", "--json"]).success()).unwrap();
    let names: Vec<_> = kernels["kernels"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    for name in ["gemm", "softmax", "potrf", "embedding", "transpose"] {
        assert!(names.contains(&name), "{names:?}");
    }
    let text = run(&["kernels"]).success();
    assert!(text.contains("c = alpha * op(a) * op(b) + beta * c  [cpu, vulkan, opencl]"), "{text}");
    for kernel in kernels["kernels"].as_array().unwrap() {
        assert_eq!(kernel["devices"], json!(["cpu", "vulkan", "opencl"]), "{kernel}");
        assert!(kernel["tolerance"].is_string(), "{kernel}");
    }
    let devices: Value = serde_json::from_str(&run(&["devices", "--json"]).success()).unwrap();
    assert_eq!(devices["devices"][0]["device"], "cpu:0");
    // Every backend has devices, or a reason why not.
    let list = devices["devices"].as_array().unwrap().iter();
    let mut backends: Vec<&str> =
        list.map(|one| one["device"].as_str().unwrap().split(':').next().unwrap()).collect();
    for one in devices["unusable"].as_array().unwrap() {
        assert!(!one["why"].as_str().unwrap().is_empty(), "{one}");
        backends.push(one["backend"].as_str().unwrap());
    }
    backends.sort_unstable();
    backends.dedup();
    assert_eq!(backends, ["cpu", "cuda", "opencl", "vulkan"]);
    let text = run(&["devices"]).success();
    assert!(backends.iter().all(|backend| text.contains(backend)), "{text}");
}

/// One plan over three backends: checked, with its lanes and copies in the table, the trace and the
/// page.
#[test]
fn one_plan_runs_over_cpu_vulkan_and_opencl() {
    let listed = run(&["devices"]).success();
    let has_both = listed.contains("vulkan:0") && listed.contains("opencl:0");
    let Some(()) = need("vulkan:0 and opencl:0", has_both.then_some(()).ok_or(&listed)) else {
        return;
    };
    let folder = directory("run-mixed");
    let (trace, page) = (folder.join("trace.json"), folder.join("page.html"));
    let (trace, page) = (trace.to_str().unwrap(), page.to_str().unwrap());
    let readme = fs::read_to_string(format!("{ROOT}/README.md")).unwrap();
    let mixed = |line: &&str| line.contains("--devices cpu,vulkan:0,opencl:0");
    let line = readme.lines().filter(|line| line.starts_with("syncline run")).find(mixed);
    let words: Vec<&str> = line.expect("README shows it").split(' ').skip(1).collect();
    let table = run(&[&words[..], &["--trace", trace, "--report", page]].concat()).success();
    for row in ["lane vulkan:0/0", "lane opencl:0/0", "moved vulkan:0 -> cpu:0", "check"] {
        assert!(table.lines().any(|line| line.starts_with(row)), "no {row} in\n{table}");
    }
    assert!(table.contains("floats within"), "{table}");
    let events: Value = serde_json::from_slice(&fs::read(trace).unwrap()).unwrap();
    let events = events["traceEvents"].as_array().unwrap();
    assert_viewable(events);
    // Each task ran on the device that it names.
    let program: Value =
        serde_json::from_str(&fs::read_to_string(format!("{ROOT}/{}", words[1])).unwrap()).unwrap();
    for device in ["cpu:0", "vulkan:0", "opencl:0"] {
        let is_process =
            |event: &&Value| event["name"] == "process_name" && event["args"]["name"] == device;
        assert_eq!(events.iter().filter(is_process).count(), 1, "a process for {device}");
        let named = program["tasks"].as_array().unwrap().iter();
        let named = named.filter(|task| task["device"] == device).count();
        let ran = tasks_on(events, device);
        assert!(named > 0 && ran == named, "{ran} of {named} tasks ran on {device}");
    }
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("vulkan:0") && page.contains("opencl:0"));
    let chosen = ["run", "examples/programs/cholesky.json", "--devices", "cpu,vulkan:0,opencl:0"];
    run(&[&chosen[..], &["--repeat", "3", "--check"]].concat()).success();
}

/// How many tasks the lanes of `device` ran.
fn tasks_on(events: &[Value], device: &str) -> usize {
    let prefix = format!("{device}/");
    let is_its = |track: &&Value| {
        let name = track["args"]["name"].as_str();
        track["ph"] == "M" && name.is_some_and(|name| name.starts_with(&prefix))
    };
    let tracks: Vec<&Value> = events.iter().filter(is_its).map(|track| &track["tid"]).collect();
    let ran = |event: &&Value| event["cat"] == "kernel" && tracks.contains(&&event["tid"]);
    events.iter().filter(ran).count()
}

#[test]
fn machines_that_are_not_here_are_simulated() {
    let folder = directory("run-simulated");
    let machine = |lanes: u32, name: &str| {
        write_text(&folder, name, &format!("[[device]]\nname = \"cpu:0\"\nlanes = {lanes}\n"))
    };
    let capture = folder.join("timed.sltrace");
    let capture = capture.to_str().unwrap();
    let program = "examples/programs/stencil.json";
    run(&["run", program, "--mode", "serial", "--capture", capture]).success();
    let makespan = |machine: &str| {
        let text = run(&["run", capture, "--simulate", machine, "--json"]).success();
        serde_json::from_str::<Value>(&text).unwrap()["makespan_ns"].as_u64().unwrap()
    };
    let (one, four) = (makespan(&machine(1, "one.toml")), makespan(&machine(4, "four.toml")));
    assert!(four < one && one <= 5 * four, "{one} ns on one lane, {four} ns on four");
    let broken = write_text(&folder, "broken.toml", "[[device]]\nname = 3\n");
    let line = run(&["run", program, "--simulate", &broken]).refusal();
    assert!(line.contains("broken.toml") && line.contains("line 2"), "{line}");
}
