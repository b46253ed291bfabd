//! `reshard refit`: a made-up model between processes and between threads.

use serde_json::Value;

use crate::support::{directory, run, write_text};

fn mesh(axes: &str, dim: usize) -> String {
    format!(
        r#"
[mesh]
axes = {axes}

[[tensor]]
match = "layers.*.w"
shard = [{{dim = {dim}, axis = "tp"}}]

[[weight]]
name = "layers.{{0..3}}.w"
dtype = "bf16"
shape = [24, 40]

[[weight]]
name = "scale"
dtype = "f32"
shape = []
"#
    )
}

#[test]
fn every_element_arrives_over_every_transport() {
    let folder = directory("reshard_refit");
    let from = write_text(&folder, "a.toml", &mesh(r#"[["tp", 4]]"#, 0));
    let to = write_text(&folder, "b.toml", &mesh(r#"[["tp", 2], ["dp", 2]]"#, 1));
    for transport in ["local", "shm"] {
        let base = ["reshard", "refit", "--from", &from, "--to", &to, "--transport", transport];
        let text = run(&[&base[..], &["--repeat", "2"]].concat()).success();
        assert!(text.contains("every element is right"), "{text}");
        let args = [&base[..], &["--json", "--checksums", "--slot-bytes", "128"]].concat();
        let result: Value = serde_json::from_str(&run(&args).success()).unwrap();
        assert_eq!((result["pes"].as_u64(), result["wrong_tensors"].as_u64()), (Some(4), Some(0)));
        // Twice the model, and the scale on every PE.
        let expected = 2 * 4 * 24 * 40 * 2 + 4 * 4;
        assert_eq!(result["bytes_total"].as_u64(), Some(expected));
    }
}

#[test]
fn what_cannot_be_refitted_is_refused_in_one_line() {
    let folder = directory("reshard_refit_refused");
    let from = write_text(&folder, "a.toml", &mesh(r#"[["tp", 4]]"#, 0));
    let base = ["reshard", "refit", "--from", &from, "--to", &from];
    let few = run(&[&base[..], &["--pes", "2"]].concat()).refusal();
    assert!(few.contains("the layouts place tensors on 4 PEs"), "{few}");
    let slots = run(&[&base[..], &["--slot-bytes", "100"]].concat()).refusal();
    assert!(slots.contains("multiple of 64"), "{slots}");
    let full = run(&[&base[..], &["--slot-bytes", "1048576GiB"]].concat()).refusal();
    assert!(full.contains("no room for"), "{full}");
}
