//! Four programs with known answers, by way of JSON and the program.

use std::collections::BTreeMap;

use serde_json::Value;
use syncline::deps::ScopeKind;
use syncline::tensor::{Access, Arg, BufferId, Dtype, View};
use syncline::trace::{Trace, TraceBuffer, TraceScope, TraceTask};

use crate::support::{directory, json, run, write_trace};

fn row(start: u64, count: u64) -> View {
    View::strided(Dtype::F32, start * 4, &[count], &[4]).expect("small")
}

fn buffers(trace: &mut Trace, count: u64, elements: u64) -> Vec<BufferId> {
    let first = trace.buffers.len() as u64;
    for id in first..first + count {
        trace.buffers.push(TraceBuffer::new(BufferId(id), elements * 4));
    }
    (first..first + count).map(BufferId).collect()
}

/// The edges as the program shows them, from JSON and from a capture alike; checked by brute force
/// first.
fn edges(test: &str, trace: &Trace, form: &[&str]) -> Vec<Value> {
    let directory = directory(test);
    let path = write_trace(&directory, "trace", trace);
    let found = run(&["deps", "check", &path]).success();
    assert!(found.contains("0 missing, 0 superfluous"), "{found}");
    let capture = path.replace(".json", ".sltrace");
    run(&["deps", "convert", &path, "-o", &capture]).success();
    let graph =
        |path: &str| run(&[&["deps", "graph", path, "--format", "json"], form].concat()).success();
    let document = json(&graph(&path));
    assert_eq!(json(&graph(&capture)), document);
    assert_eq!(document["tasks"], trace.tasks.len());
    document["edges"].as_array().expect("a list").clone()
}

#[test]
fn readers_and_writers_of_distinct_slices_have_no_edges() {
    for access in [Access::OutputExisting, Access::Output] {
        let mut trace = Trace::default();
        let inputs = buffers(&mut trace, 6, 64);
        let outputs = buffers(&mut trace, 9, 20 * 8);
        for id in 0..20 {
            let reads = inputs.iter().map(|&input| Arg::input(input, row(0, 64)));
            let writes = outputs.iter().map(|&output| Arg::new(access, output, row(id * 8, 8)));
            trace.tasks.push(TraceTask::new(id, "part", reads.chain(writes)));
        }
        for form in [&[][..], &["--full"], &["--reduced"]] {
            assert_eq!(edges("readers_and_writers", &trace, form), Vec::<Value>::new());
        }
    }
}

#[test]
fn twenty_updates_of_one_tensor_are_a_chain() {
    let mut trace = Trace::default();
    let tensor = buffers(&mut trace, 1, 64)[0];
    for id in 0..20 {
        trace.tasks.push(TraceTask::new(id, "update", [Arg::inout(tensor, row(0, 64))]));
    }
    for (form, expected) in [(&[][..], 19), (&["--reduced"][..], 19), (&["--full"][..], 190)] {
        let found = edges("twenty_updates", &trace, form);
        assert_eq!(found.len(), expected);
        if expected == 19 {
            let chained =
                |edge: &Value| edge["succ"].as_u64() == edge["pred"].as_u64().map(|pred| pred + 1);
            assert!(found.iter().all(chained), "{found:?}");
        }
    }
}

#[test]
fn runtime_outputs_give_creator_edges() {
    let mut trace = Trace::default();
    let ids = buffers(&mut trace, 7, 64);
    let [a, b, c, d, e, f, g] = ids[..] else { panic!("seven buffers") };
    let whole = row(0, 64);
    let mut push = |name: &str, reads: [BufferId; 2], write: Arg, inner: bool| {
        let args = reads.map(|read| Arg::input(read, whole)).into_iter().chain([write]);
        let mut task = TraceTask::new(trace.tasks.len() as u64, name, args);
        task.scope_id = inner.then_some(0);
        trace.tasks.push(task);
    };
    push("c", [a, b], Arg::output(c, whole), false);
    push("d", [c, c], Arg::output(d, whole), true);
    push("e", [c, c], Arg::output(e, whole), true);
    push("g", [d, e], Arg::output(g, whole), true);
    push("f", [g, c], Arg::output_existing(f, whole), true);
    let scope = TraceScope {
        kind: ScopeKind::Auto,
        parent: None,
        name: Some("inner".into()),
        extra: Default::default(),
    };
    trace.scopes.push(scope);
    let found = edges("runtime_outputs", &trace, &[]);
    let pairs: Vec<_> =
        found.iter().map(|edge| (edge["pred"].clone(), edge["succ"].clone())).collect();
    let expected = [(0, 1), (0, 2), (1, 3), (2, 3), (0, 4), (3, 4)];
    assert_eq!(pairs, expected.map(|(pred, succ)| (Value::from(pred), Value::from(succ))));
    for edge in &found {
        let has = |member: &str, name: &str| {
            edge[member].as_array().is_some_and(|all| all.contains(&name.into()))
        };
        assert!(has("kinds", "creator") && has("flags", "retain"), "{edge}");
    }
}

#[test]
fn all_to_all_explicit_deps_are_all_there() {
    let mut trace = Trace::default();
    for id in 0..128 {
        let mut task = TraceTask::new(id, if id < 64 { "producer" } else { "consumer" }, []);
        task.deps = if id < 64 { Vec::new() } else { (0..64).collect() };
        trace.tasks.push(task);
    }
    for form in [&[][..], &["--full"], &["--reduced"]] {
        let found = edges("all_to_all", &trace, form);
        assert_eq!(found.len(), 4096);
        let mut into: BTreeMap<u64, u64> = BTreeMap::new();
        for edge in &found {
            assert_eq!(edge["kinds"], serde_json::json!(["explicit"]));
            *into.entry(edge["succ"].as_u64().expect("an id")).or_default() += 1;
        }
        assert!(into.values().all(|&count| count == 64));
    }
}
