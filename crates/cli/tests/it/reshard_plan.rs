//! `reshard plan`: both forms of layouts in, text and JSON out.

use serde_json::Value;

use crate::support::{directory, run, write_text};

const FROM: &str = r#"
[mesh]
axes = [["tp", 2]]

[[tensor]]
match = "**.{q,k}.weight"
shard = [{dim = 0, axis = "tp"}]

[[weight]]
name = "layers.{0..1}.{q,k}.weight"
dtype = "bf16"
shape = [8, 4]

[[weight]]
name = "norm"
dtype = "f32"
shape = [4]
"#;

const TO: &str = r#"
[mesh]
axes = [["tp", 4]]

[[tensor]]
match = "**.{q,k}.weight"
shard = [{dim = 1, axis = "tp"}]
"#;

#[test]
fn text_shows_totals_rounds_and_transfers() {
    let folder = directory("reshard_plan_text");
    let (from, to) = (write_text(&folder, "a.toml", FROM), write_text(&folder, "b.toml", TO));
    let text = run(&["reshard", "plan", "--from", &from, "--to", &to]).success();
    for line in [
        "PEs          4",
        "tensors      5",
        "transfers    26 between PEs, 10 within one",
        "bytes        320 B written, 224 B moved between PEs",
        "rounds       3 (lower bound 3), 6 batches in slots of 16.0 MiB",
        "round    PEs         batch         bytes   of slot  segments",
        "of the slot",
        "stays  0 -> 0               8 B  layers.0.q.weight [0:4, 0:1] -> [0:4, 0:1]",
    ] {
        assert!(text.contains(line), "no `{line}` in\n{text}");
    }
}

#[test]
fn json_is_the_documented_form() {
    let folder = directory("reshard_plan_json");
    let (from, to) = (write_text(&folder, "a.toml", FROM), write_text(&folder, "b.toml", TO));
    let args = ["reshard", "plan", "--from", &from, "--to", &to, "--format", "json"];
    let plan: Value = serde_json::from_str(&run(&args).success()).unwrap();
    assert_eq!(plan["format"], "syncline-transfers");
    assert_eq!(
        (plan["bytes_total"].as_u64(), plan["bytes_moved"].as_u64()),
        (Some(320), Some(224))
    );
    assert_eq!(plan["rounds"], plan["rounds_lower_bound"]);
    let small: Vec<&str> = args.iter().copied().chain(["--slot-bytes", "64"]).collect();
    let small: Value = serde_json::from_str(&run(&small).success()).unwrap();
    assert!(small["rounds"].as_u64() > plan["rounds"].as_u64());
    assert_eq!(small["rounds"], small["rounds_lower_bound"]);
}

#[test]
fn what_cannot_be_planned_is_one_line() {
    let folder = directory("reshard_plan_refusals");
    let (from, to) = (write_text(&folder, "a.toml", FROM), write_text(&folder, "b.toml", TO));
    let other = write_text(&folder, "c.toml", &FROM.replace("norm", "norms"));
    let broken = write_text(&folder, "d.toml", "[mesh]\naxes = 7\n");
    let json = write_text(&folder, "e.json", "{\"format\": 1}");
    for (from, to, words) in [
        (&from, &other, vec!["`norms`", "not in the source"]),
        (&to, &to, vec!["names tensors", "[[weight]]"]),
        (&from, &broken, vec!["d.toml", "line 2"]),
        (&json, &to, vec!["e.json", "line 1"]),
        (&"missing.toml".to_owned(), &to, vec!["missing.toml", "cannot be read"]),
    ] {
        let line = run(&["reshard", "plan", "--from", from, "--to", to]).refusal();
        assert!(words.iter().all(|word| line.contains(word)), "{line}");
    }
    let args = ["reshard", "plan", "--from", &from, "--to", &to, "--slot-bytes", "100"];
    assert!(run(&args).refusal().contains("multiple of 64"));
}

#[test]
fn shipped_layouts_are_planned() {
    let (from, to) = ("examples/reshard/train-tp2pp2.toml", "examples/reshard/serve-tp4.toml");
    let text = run(&["reshard", "plan", "--from", from, "--to", to]).success();
    assert!(text.contains("rounds       3 (lower bound 3)"), "{text}");
}

#[test]
fn a_refit_is_predicted_on_a_cluster() {
    let folder = directory("reshard_plan_simulate");
    let (from, to) = (write_text(&folder, "a.toml", FROM), write_text(&folder, "b.toml", TO));
    let cluster = "examples/reshard/cluster-h100.toml";
    let args = ["reshard", "plan", "--from", &from, "--to", &to, "--simulate", cluster];
    let text = run(&args).success();
    for line in ["PEs          4 on 1 nodes", "rounds       3, 6 messages", "bound", "intra out"] {
        assert!(text.contains(line), "no `{line}` in\n{text}");
    }
    let json = run(&[&args[..], &["--format", "json"]].concat()).success();
    let predicted: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(predicted["format"], "syncline-prediction");
    assert_eq!(predicted["bytes_moved"].as_u64(), Some(224));
    // Three messages one after the other at 10 us each is the least that some PE needs.
    let seconds = predicted["seconds"].as_f64().unwrap();
    assert!((20e-6..60e-6).contains(&seconds), "{seconds}");
    let broken = write_text(&folder, "c.toml", "pes_per_node = 8\n[memory]\ngb_per_s = -1\n");
    let line = run(&[&args[..6], &["--simulate", &broken]].concat()).refusal();
    assert!(line.contains("c.toml"), "{line}");
}

#[test]
fn a_trillion_parameters_are_predicted() {
    let base = ["reshard", "plan", "--from", "examples/reshard/moe-1t-train-256.toml", "--to"];
    let rest = ["--convert", "--format", "json", "--slot-bytes", "256MiB", "--simulate"];
    let predict = |to: &str, cluster: &str| -> Value {
        let (to, cluster) =
            (format!("examples/reshard/{to}"), format!("examples/reshard/{cluster}"));
        let text = run(&[&base[..], &[&to], &rest[..], &[&cluster]].concat()).success();
        serde_json::from_str(&text).unwrap()
    };
    let own = predict("moe-1t-serve-128-fp8.toml", "cluster-h100.toml");
    assert_eq!(own["pes"].as_u64(), Some(384));
    // A byte for each of the 1.03 trillion parameters, and more for parameters that several hold.
    let moved = own["bytes_moved"].as_u64().unwrap() as f64;
    assert!((1.02e12..1.5e12).contains(&moved), "{moved}");
    // 128 cards of 46 GB/s cannot take it faster than this.
    let (seconds, bound) = (own["seconds"].as_f64().unwrap(), own["seconds_min"].as_f64().unwrap());
    assert!(bound >= moved / 128.0 / 46e9 && seconds >= bound, "{seconds} {bound}");
    assert!(own["rounds"].as_u64() > Some(0));
}
