//! Names, links, pipes, and files that are changed meanwhile: nothing is followed, nothing hangs,
//! nothing is silent.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use syncline_checkpoint::{
    Checkpoint, CheckpointError, Conversion, ConversionOptions, Destination,
};
use syncline_testing::{Rng, for_seeds};

use crate::models::{
    HEADS, convert, directory, file_bytes, llama, read_file, refusal, tensor, try_convert,
    write_model,
};

fn pipe(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
}

/// A small model in a directory of its own.
fn model(test: &str) -> (PathBuf, PathBuf) {
    let folder = directory(test);
    write_model(&folder.join("in"), &llama(&mut Rng::new(1), 1, 0), HEADS);
    (folder.join("in"), folder)
}

#[test]
fn an_index_that_names_a_tensor_its_file_lacks_is_refused() {
    let (from, _) = model("index_lacks");
    let file = from.join("model-00001-of-00001.safetensors");
    fs::rename(from.join("model.safetensors"), &file).unwrap();
    let write = |text: &str| fs::write(from.join("model.safetensors.index.json"), text).unwrap();
    let name = "model-00001-of-00001.safetensors";
    write(&format!(r#"{{"weight_map": {{"lm_head.weight": "{name}"}}}}"#));
    Checkpoint::open(&from).unwrap();
    write(&format!(r#"{{"weight_map": {{"lm_head.weight": "{name}", "absent": "{name}"}}}}"#));
    let error = Checkpoint::open(&from).unwrap_err().to_string();
    assert!(error.contains(name) && error.contains("tensor `absent` is in model."), "{error}");
    write(&format!(r#"{{"weight_map": {{"w": "{name}", "w": "{name}"}}}}"#));
    let error = Checkpoint::open(&from).unwrap_err().to_string();
    assert!(error.contains("`w` is there twice"), "{error}");
    for outside in ["", ".", "..", "../in/model.safetensors", "/etc/passwd", "a/../b", "a//b"] {
        write(&format!(r#"{{"weight_map": {{"w": "{outside}"}}}}"#));
        let error = Checkpoint::open(&from).unwrap_err().to_string();
        assert!(error.contains("not a file of this directory"), "{error}");
    }
}

#[test]
fn pipes_and_devices_are_refused_and_never_waited_for() {
    let (from, folder) = model("pipes");
    convert(&from, &folder.join("out"), "tp=2", Default::default());
    let replace_by_pipe = |path: &Path| {
        fs::remove_file(path).unwrap();
        pipe(path);
    };
    let rank = folder.join("out/rank-00001.safetensors");
    replace_by_pipe(&rank);
    let error = Checkpoint::open(&folder.join("out")).unwrap_err().to_string();
    assert!(error.contains("rank-00001") && error.contains("not a regular file"), "{error}");
    fs::remove_file(&rank).unwrap();
    symlink("/dev/zero", &rank).unwrap();
    let error = Checkpoint::open(&folder.join("out")).unwrap_err().to_string();
    assert!(error.contains("not a regular file"), "{error}");
    let index = r#"{"weight_map": {"w": "model-1.safetensors"}}"#;
    fs::write(folder.join("model.safetensors.index.json"), index).unwrap();
    pipe(&folder.join("model-1.safetensors"));
    let error = Checkpoint::open(&folder).unwrap_err().to_string();
    assert!(error.contains("not a regular file"), "{error}");
    replace_by_pipe(&from.join("config.json"));
    assert!(refusal(&from, "tp=2", Default::default()).contains("not a regular file"));
}

#[test]
fn names_of_tensors_are_not_paths() {
    let folder = directory("names");
    let rng = &mut Rng::new(2);
    let names = ["../escape", "/tmp/escape", "a/../../b", "..", "", "line\nbreak", "nul\0"];
    let tensors: Vec<_> = names.iter().map(|name| tensor(rng, name, "F32", &[2])).collect();
    write_model(&folder.join("in"), &tensors, "{}");
    convert(&folder.join("in"), &folder.join("ranks"), "dp=2", Default::default());
    convert(&folder.join("ranks"), &folder.join("back"), "hf", Default::default());
    let expected = read_file(&folder.join("in/model.safetensors"));
    assert_eq!(read_file(&folder.join("back/model.safetensors")), expected);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 3);
}

#[test]
fn damaged_layouts_and_indices_are_refused_or_read_but_never_a_panic() {
    let (from, folder) = model("damaged_layouts");
    convert(&from, &folder.join("out"), "tp=2", Default::default());
    let mut options = ConversionOptions::default();
    options.threads = 1;
    convert(&folder.join("out"), &folder.join("back"), "hf", options);
    let layout = fs::read(folder.join("out/layout.json")).unwrap();
    let index = fs::read(folder.join("back/model.safetensors.index.json")).ok();
    let test = "damaged_layouts_and_indices_are_refused_or_read_but_never_a_panic";
    for_seeds(test, 300, |rng| {
        let (path, text) = match &index {
            Some(index) if rng.one_in(3) => ("back/model.safetensors.index.json", index),
            _ => ("out/layout.json", &layout),
        };
        let mut text = text.clone();
        for _ in 0..1 + rng.below(3) {
            let at = rng.below(text.len());
            match rng.below(4) {
                0 => text.truncate(at.max(1)),
                1 => text[at] = rng.next_u64() as u8,
                // Numbers that are too large.
                _ => {
                    let digit = text.iter().skip(at).position(u8::is_ascii_digit);
                    let Some(digit) = digit else { continue };
                    let number = rng.pick(&["9", "4294967295", "1152921504606846976", "-1"]);
                    text.splice(at + digit..at + digit + 1, number.bytes());
                }
            }
        }
        fs::write(folder.join(path), text).unwrap();
        let _ = Checkpoint::open(folder.join(path).parent().unwrap());
    });
}

/// Writes through names under which a link or a pipe was planted.
#[test]
fn planted_links_are_not_followed() {
    let (from, folder) = model("planted");
    let victim = folder.join("victim");
    let keep = || fs::write(&victim, "precious").unwrap();
    keep();
    let (out, partial) = (folder.join("out"), folder.join(".out.partial"));
    // The directory itself.
    fs::create_dir(folder.join("elsewhere")).unwrap();
    symlink(folder.join("elsewhere"), &partial).unwrap();
    let error = try_convert(&from, &out, "tp=2", Default::default()).unwrap_err();
    assert!(error.to_string().contains(".out.partial: cannot be written"), "{error}");
    assert_eq!(fs::read_dir(folder.join("elsewhere")).unwrap().count(), 0);
    fs::remove_file(&partial).unwrap();
    // The journal.
    let planted: [&dyn Fn(&Path); 2] = [&|path| symlink(&victim, path).unwrap(), &pipe];
    for plant in planted {
        fs::create_dir(&partial).unwrap();
        plant(&partial.join(".conversion"));
        let error = try_convert(&from, &out, "tp=2", Default::default()).unwrap_err();
        assert!(error.to_string().contains(".conversion: cannot be written"), "{error}");
        fs::remove_dir_all(&partial).unwrap();
    }
    // All that is written: replaced, whatever it was.
    let names =
        ["rank-00000.safetensors", "rank-00001.safetensors.part", "layout.json", "config.json"];
    for plant in planted {
        fs::create_dir(&partial).unwrap();
        names.iter().for_each(|name| plant(&partial.join(name)));
        convert(&from, &out, "tp=2", Default::default());
        for entry in fs::read_dir(&out).unwrap() {
            assert!(entry.unwrap().file_type().unwrap().is_file());
        }
        Checkpoint::open(&out).unwrap();
        fs::remove_dir_all(&out).unwrap();
    }
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    // A file that is complete, but elsewhere, is not kept on a resume.
    convert(&from, &folder.join("done"), "tp=2", Default::default());
    let mut resume = ConversionOptions::default();
    resume.resume = true;
    fs::create_dir(&partial).unwrap();
    symlink(folder.join("done/rank-00000.safetensors"), partial.join("rank-00000.safetensors"))
        .unwrap();
    let summary = try_convert(&from, &out, "tp=2", resume).unwrap();
    assert_eq!((summary.files, summary.files_kept), (2, 0));
    assert!(out.join("rank-00000.safetensors").symlink_metadata().unwrap().is_file());
}

#[test]
fn what_is_read_of_a_file_that_changes_is_not_a_result() {
    let (from, folder) = model("changed");
    let path = from.join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    // Longer, or of the same length and rewritten; one that is cut short is a test of the program.
    for (at, changed) in [[&bytes[..], &[0]].concat(), bytes.clone()].into_iter().enumerate() {
        fs::write(&path, &bytes).unwrap();
        // Times of files have a coarse clock.
        std::thread::sleep(std::time::Duration::from_millis(50));
        let source = Checkpoint::open(&from).unwrap();
        let destination = Destination::HuggingFace { file_bytes_max: 1 << 30 };
        let conversion = Conversion::new(&source, &destination, Default::default()).unwrap();
        let is_first = AtomicBool::new(true);
        let out = folder.join(format!("out{at}"));
        let error = conversion
            .run(&out, &|_| {
                if is_first.swap(false, Ordering::Relaxed) {
                    let mut file = fs::File::options().write(true).open(&path).unwrap();
                    std::io::Write::write_all(&mut file, &changed).unwrap();
                }
            })
            .unwrap_err();
        assert!(matches!(error, CheckpointError::Changed { .. }), "{error}");
        assert!(!out.exists());
        let error = syncline_checkpoint::verify(&source, &source).unwrap_err();
        assert!(matches!(error, CheckpointError::Changed { .. }), "{error}");
    }
}

#[test]
fn one_file_of_two_tensors_of_a_name_is_refused() {
    let folder = directory("twice");
    let tensors =
        [tensor(&mut Rng::new(5), "w", "F32", &[0]), tensor(&mut Rng::new(5), "v", "F32", &[0])];
    let mut bytes = file_bytes(&tensors);
    let at = bytes.windows(3).position(|part| part == b"\"v\"").unwrap();
    bytes[at + 1] = b'w';
    fs::write(folder.join("model.safetensors"), bytes).unwrap();
    let error = Checkpoint::open(&folder).unwrap_err().to_string();
    assert!(error.contains("`w` is there twice"), "{error}");
}

/// Models put together of the words of many families: refused or written, never a panic.
#[test]
fn models_of_any_names_and_shapes_are_written_or_refused() {
    let folder = directory("any_names");
    let words = [
        "model",
        "layers",
        "h",
        "0",
        "1",
        "007",
        "self_attn",
        "attn",
        "mlp",
        "experts",
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
        "q_norm",
        "c_attn",
        "c_fc",
        "c_proj",
        "gate_up_proj",
        "up_proj",
        "down_proj",
        "gate",
        "gpt_neox",
        "attention",
        "query_key_value",
        "dense",
        "embed_tokens",
        "wte",
        "lm_head",
        "ln_2",
        "",
        "é",
        "..",
    ];
    let configs = [
        "{}",
        r#"{"num_attention_heads": 2}"#,
        r#"{"num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 2}"#,
        r#"{"n_head": 16777216, "model_type": "gpt2"}"#,
    ];
    let (mut tried, mut written) = (0, 0);
    for_seeds("models_of_any_names_and_shapes_are_written_or_refused", 300, |rng| {
        let mut tensors = std::collections::BTreeMap::new();
        for _ in 0..1 + rng.below(8) {
            let mut parts: Vec<&str> = (0..1 + rng.below(5)).map(|_| *rng.pick(&words)).collect();
            if rng.one_in(2) {
                parts.splice(0..0, ["model", "layers", *rng.pick(&["0", "1", "00"]), "self_attn"]);
            }
            parts.push(*rng.pick(&["weight", "bias", "weight", "é"]));
            let shape: Vec<u64> = (0..rng.below(4)).map(|_| rng.below(7) as u64).collect();
            let name = parts.join(".");
            tensors.insert(name.clone(), tensor(rng, &name, "BF16", &shape));
        }
        let tensors: Vec<_> = tensors.into_values().collect();
        let config = *rng.pick(&configs);
        write_model(&folder.join("in"), &tensors, config);
        let target = format!("tp={},pp={}", 1 + rng.below(4), 1 + rng.below(2));
        let mut options = ConversionOptions::default();
        options.allow_unproven = rng.one_in(2);
        if try_convert(&folder.join("in"), &folder.join("out"), &target, options).is_ok() {
            let [whole, part] =
                ["in", "out"].map(|name| Checkpoint::open(&folder.join(name)).unwrap());
            assert_eq!(syncline_checkpoint::verify(&whole, &part).unwrap(), []);
            fs::remove_dir_all(folder.join("out")).unwrap();
            written += 1;
        }
        tried += 1;
    });
    assert!(tried < 50 || 10 * written > tried, "{written} of {tried}");
}
