//! Files that are not what they should be, and destinations that cannot be written.

use std::fs::{self, File};

use syncline_checkpoint::{
    Checkpoint, CheckpointError, Conversion, ConversionOptions, Destination, verify,
};
use syncline_tensor::Dtype;
use syncline_testing::{Rng, for_seeds};

use crate::models::{HEADS, convert, directory, file_bytes, llama, read_file, tensor, write_model};

#[test]
fn a_directory_without_a_checkpoint_says_what_is_expected() {
    let folder = directory("nothing");
    let error = Checkpoint::open(&folder).unwrap_err();
    assert!(error.to_string().contains("model.safetensors"), "{error}");
}

#[test]
fn damaged_files_are_refused_or_read_but_never_a_panic() {
    let folder = directory("damaged");
    let file = file_bytes(&llama(&mut Rng::new(1), 1, 0));
    let header = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize + 8;
    for_seeds("damaged_files_are_refused_or_read_but_never_a_panic", 200, |rng| {
        let mut file = file.clone();
        if rng.one_in(2) {
            file.truncate(rng.below(file.len()));
        } else {
            let at = rng.below(header);
            file[at] = rng.next_u64() as u8;
        }
        fs::write(folder.join("model.safetensors"), file).unwrap();
        let _ = Checkpoint::open(&folder);
    });
}

#[test]
fn a_layout_must_match_its_files() {
    let folder = directory("mismatch");
    write_model(&folder.join("in"), &llama(&mut Rng::new(2), 1, 0), HEADS);
    convert(&folder.join("in"), &folder.join("out"), "tp=2", ConversionOptions::default());
    let path = folder.join("out/layout.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("lm_head.weight", "head.weight")).unwrap();
    let error = Checkpoint::open(&folder.join("out")).unwrap_err().to_string();
    assert!(error.contains("rank-00000") && error.contains("`head.weight`"), "{error}");
    fs::write(&path, text).unwrap();
    fs::remove_file(folder.join("out/rank-00001.safetensors")).unwrap();
    let error = Checkpoint::open(&folder.join("out")).unwrap_err();
    assert!(matches!(error, CheckpointError::Read { .. }), "{error}");
}

#[test]
fn an_index_must_not_lead_elsewhere() {
    let folder = directory("index");
    let index = r#"{"weight_map": {"w": "../secret.safetensors"}}"#;
    fs::write(folder.join("model.safetensors.index.json"), index).unwrap();
    let error = Checkpoint::open(&folder).unwrap_err().to_string();
    assert!(error.contains("not a file of this directory"), "{error}");
}

/// A source that is cut short while it is mapped: an error that names the file, and nothing is
/// written under the destination's name.
#[test]
fn a_file_that_is_cut_short_while_it_is_read_is_an_error() {
    let folder = directory("cut_short");
    let rng = &mut Rng::new(12);
    let weight = |rng: &mut Rng, at: u32| {
        tensor(rng, &format!("model.layers.{at}.mlp.up_proj.weight"), "F32", &[512, 512])
    };
    let tensors = [weight(rng, 0), weight(rng, 1), weight(rng, 2)];
    let is_named = |error: &CheckpointError| match error {
        CheckpointError::Changed { file } => file.ends_with("model.safetensors"),
        _ => false,
    };
    let destination = Destination::HuggingFace { file_bytes_max: 1 << 30 };
    for (at, dtype) in [None, Some(Dtype::BF16)].into_iter().enumerate() {
        let (from, to) = (folder.join(format!("{at}/in")), folder.join(format!("{at}/out")));
        write_model(&from, &tensors, "{}");
        let source = Checkpoint::open(&from).unwrap();
        let mut options = ConversionOptions::default();
        (options.dtype, options.threads) = (dtype, 1);
        let conversion = Conversion::new(&source, &destination, options).unwrap();
        let cut = || {
            let file = File::options().write(true).open(from.join("model.safetensors"));
            file.unwrap().set_len(1 << 20).unwrap();
        };
        let error = conversion.run(&to, &|_| cut()).unwrap_err();
        assert!(is_named(&error), "{error}");
        assert!(!to.exists());
        let error = verify(&source, &source).unwrap_err();
        assert!(is_named(&error), "{error}");
    }
}

#[test]
fn what_is_there_is_never_overwritten() {
    let folder = directory("exists");
    write_model(&folder.join("in"), &llama(&mut Rng::new(3), 1, 0), "{}");
    fs::create_dir(folder.join("out")).unwrap();
    let source = Checkpoint::open(&folder.join("in")).unwrap();
    let destination = Destination::HuggingFace { file_bytes_max: 1 << 30 };
    let conversion = Conversion::new(&source, &destination, Default::default()).unwrap();
    let error = conversion.run(&folder.join("out"), &|_| {}).unwrap_err();
    assert!(matches!(error, CheckpointError::Exists { .. }), "{error}");
}

#[test]
fn an_interrupted_run_is_resumed_and_checked() {
    let folder = directory("resume");
    write_model(&folder.join("in"), &llama(&mut Rng::new(4), 1, 0), "{}");
    let source = Checkpoint::open(&folder.join("in")).unwrap();
    let destination = Destination::HuggingFace { file_bytes_max: 2000 };
    let options = ConversionOptions::default();
    let conversion = Conversion::new(&source, &destination, options.clone()).unwrap();
    conversion.run(&folder.join("whole"), &|_| {}).unwrap();
    // What a run leaves that was killed: some files whole, one of them damaged, one begun.
    let partial = folder.join(".out.partial");
    let stop_early = || {
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut once = options.clone();
            once.threads = 1;
            let conversion = Conversion::new(&source, &destination, once).unwrap();
            let half = conversion.bytes() / 2;
            conversion.run(&folder.join("out"), &|done| assert!(done < half, "stopped on purpose"))
        }));
        assert!(run.is_err());
    };
    stop_early();
    assert!(partial.exists() && !folder.join("out").exists());
    let error = conversion.run(&folder.join("out"), &|_| {}).unwrap_err();
    assert!(matches!(error, CheckpointError::Partial { .. }), "{error}");
    let whole = |entry: &fs::DirEntry| entry.path().extension() == Some("safetensors".as_ref());
    let mut files: Vec<_> = partial
        .read_dir()
        .unwrap()
        .map(Result::unwrap)
        .filter(whole)
        .map(|entry| entry.path())
        .collect();
    files.sort();
    assert!(files.len() > 1, "{files:?}");
    let mut damaged = fs::read(&files[0]).unwrap();
    *damaged.last_mut().unwrap() ^= 1;
    fs::write(&files[0], damaged).unwrap();
    let mut again = options.clone();
    again.resume = true;
    let resumed = Conversion::new(&source, &destination, again.clone()).unwrap();
    let summary = resumed.run(&folder.join("out"), &|_| {}).unwrap();
    assert_eq!(summary.files_kept as usize, files.len() - 1);
    for entry in folder.join("whole").read_dir().unwrap() {
        let name = entry.unwrap().file_name();
        if name.to_str().unwrap().ends_with(".safetensors") {
            let (one, other) = (folder.join("whole").join(&name), folder.join("out").join(&name));
            assert_eq!(read_file(&one), read_file(&other));
        }
    }
    assert!(!partial.exists());
    // What another conversion left is not taken for ours.
    fs::rename(folder.join("out"), folder.join("done")).unwrap();
    stop_early();
    let other = Destination::HuggingFace { file_bytes_max: 900 };
    let other = Conversion::new(&source, &other, again).unwrap();
    let error = other.run(&folder.join("out"), &|_| {}).unwrap_err();
    assert!(matches!(error, CheckpointError::OtherConversion { .. }), "{error}");
}
