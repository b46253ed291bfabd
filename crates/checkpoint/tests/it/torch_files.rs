//! Files that torch wrote (`tests/data`, by torch 1.13 and 2.15), beside their contents by torch.
//!
//! `state.pt` and `legacy.pt` hold views, shared storages and parameters; `nested.pt` is a training
//! checkpoint; `runs.pt` wants a command to be run; `dcp` and `dcp_hf` were saved by two ranks.

use std::fs;
use std::path::{Path, PathBuf};

use syncline_checkpoint::{
    Checkpoint, CheckpointFormat, Conversion, ConversionOptions, Destination, RankFiles, Wanted,
    target_specs, verify,
};
use syncline_layout::NdBox;
use syncline_tensor::Dtype;
use syncline_testing::{Rng, for_seeds};

use crate::models::{HEADS, directory, llama, write_model};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// Name, element type, shape and bytes of each tensor, as torch wrote them down.
fn said(name: &str) -> Vec<(String, Dtype, Vec<u64>, Vec<u8>)> {
    let text = fs::read_to_string(data(name)).unwrap();
    let form: serde_json::Value = serde_json::from_str(&text).unwrap();
    let tensor = |(name, of): (&String, &serde_json::Value)| {
        let shape = of[1].as_array().unwrap().iter().map(|size| size.as_u64().unwrap()).collect();
        let hex = of[2].as_str().unwrap();
        let byte = |at: usize| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap();
        let bytes = (0..hex.len() / 2).map(byte).collect();
        (name.clone(), of[0].as_str().unwrap().parse().unwrap(), shape, bytes)
    };
    form.as_object().unwrap().iter().map(tensor).collect()
}

fn assert_holds(checkpoint: &Checkpoint, expected: &str) {
    let expected = said(expected);
    assert_eq!(checkpoint.layout().tensors().len(), expected.len());
    for (name, dtype, shape, bytes) in expected {
        let index = checkpoint.layout().index_of(&name).unwrap_or_else(|| panic!("{name}"));
        let tensor = &checkpoint.layout().tensors()[index];
        assert_eq!((tensor.dtype(), &tensor.shape()[..]), (dtype, &shape[..]), "{name}");
        assert_eq!(*checkpoint.shard(index as u32, 0).unwrap(), bytes, "{name}");
    }
}

#[test]
fn tensors_are_what_torch_saved() {
    for name in ["state.pt", "legacy.pt"] {
        let checkpoint = Checkpoint::open(&data(name)).unwrap();
        assert_eq!(checkpoint.format(), CheckpointFormat::Torch);
        assert_holds(&checkpoint, "state.json");
    }
    assert_holds(&Checkpoint::open(&data("new.pt")).unwrap(), "new.json");
}

#[test]
fn parts_of_ranks_are_put_together() {
    let checkpoint = Checkpoint::open(&data("dcp")).unwrap();
    assert_eq!(checkpoint.format(), CheckpointFormat::Distributed);
    assert_holds(&checkpoint, "dcp.json");
    assert_eq!(checkpoint.others(), ["epoch"]);
    // Of the tensors that the other writer takes.
    let by_offsets = Checkpoint::open(&data("dcp_hf")).unwrap();
    assert_eq!(by_offsets.format(), CheckpointFormat::Distributed);
    for tensor in by_offsets.layout().tensors() {
        let at = |of: &Checkpoint| of.layout().index_of(tensor.name()).unwrap() as u32;
        let held = by_offsets.shard(at(&by_offsets), 0).unwrap();
        assert_eq!(held, checkpoint.shard(at(&checkpoint), 0).unwrap(), "{}", tensor.name());
    }
    assert_eq!(by_offsets.layout().tensors().len(), 3);
}

#[test]
fn any_box_is_cut_out_of_what_is_stored() {
    let folders = ["state.pt", "legacy.pt", "dcp", "dcp_hf"];
    let checkpoints = folders.map(|name| Checkpoint::open(&data(name)).unwrap());
    for_seeds("any_box_is_cut_out_of_what_is_stored", 300, |rng| {
        let checkpoint = &checkpoints[rng.below(checkpoints.len())];
        let at = rng.below(checkpoint.layout().tensors().len());
        let tensor = &checkpoint.layout().tensors()[at];
        let mut area = NdBox::whole(*tensor.shape());
        for dim in 0..area.size.len() {
            let size = area.size[dim];
            area.start[dim] = rng.below(size as usize + 1) as u64;
            area.size[dim] = rng.below((size - area.start[dim]) as usize + 1) as u64;
        }
        let whole = checkpoint.shard(at as u32, 0).unwrap();
        let (mut memory, bytes) = (Vec::new(), tensor.dtype().bytes() as usize);
        let run = checkpoint.read(at as u32, 0, &area, &mut memory);
        let read = run.unwrap_or(&memory).to_vec();
        // Element by element.
        let (inner, outer) = (area.size.row_major_strides(1), tensor.shape().row_major_strides(1));
        let mut expected = Vec::new();
        for element in 0..area.volume() {
            let place = (0..area.size.len())
                .map(|dim| (area.start[dim] + element / inner[dim] % area.size[dim]) * outer[dim]);
            let from = place.sum::<u64>() as usize * bytes;
            expected.extend_from_slice(&whole[from..from + bytes]);
        }
        assert_eq!(read, expected, "{} {area}", tensor.name());
    });
}

#[test]
fn torch_files_become_safetensors_and_the_same_tensors() {
    let folder = directory("torch_to_hf");
    for name in ["state.pt", "legacy.pt", "dcp", "dcp_hf"] {
        let source = Checkpoint::open(&data(name)).unwrap();
        let to = folder.join(name);
        let hf = Destination::HuggingFace { file_bytes_max: 1 << 20 };
        let options = ConversionOptions::default();
        Conversion::new(&source, &hf, options).unwrap().run(&to, &|_| {}).unwrap();
        let target = Checkpoint::open(&to).unwrap();
        assert_eq!(target.format(), CheckpointFormat::Safetensors);
        assert!(verify(&source, &target).unwrap().is_empty(), "{name}");
        assert!(verify(&target, &source).unwrap().is_empty(), "{name}");
    }
}

#[test]
fn directories_of_torch_are_written_and_read_again() {
    let folder = directory("to_dcp");
    for name in ["state.pt", "new.pt", "dcp"] {
        let source = Checkpoint::open(&data(name)).unwrap();
        // Small files, so that there are several.
        let target = Destination::Distributed { file_bytes_max: 64 };
        let conversion = Conversion::new(&source, &target, Default::default()).unwrap();
        let to = folder.join(name);
        conversion.run(&to, &|_| {}).unwrap();
        let written = Checkpoint::open(&to).unwrap();
        assert_eq!(written.format(), CheckpointFormat::Distributed);
        assert!(written.files().count() > 1, "{name}");
        assert!(verify(&source, &written).unwrap().is_empty(), "{name}");
        assert!(verify(&written, &source).unwrap().is_empty(), "{name}");
    }
}

#[test]
fn ranks_have_the_files_that_their_readers_expect() {
    let folder = directory("rank_files");
    let from = folder.join("in");
    write_model(&from, &llama(&mut Rng::new(5), 2, 0), HEADS);
    let source = Checkpoint::open(&from).unwrap();
    let specs = target_specs(&source, None);
    let (destination, _) =
        Wanted::Axes("tp=2".to_owned()).resolve(Vec::new(), &specs, &from).unwrap();
    for (files, name) in [
        (RankFiles::Safetensors, "rank-00001.safetensors"),
        (RankFiles::Vllm, "model-rank-1-part-0.safetensors"),
        (RankFiles::Megatron, "mp_rank_01/model_optim_rng.pt"),
    ] {
        let to = folder.join(format!("{files:?}"));
        let destination = destination.clone().with_files(files);
        let conversion = Conversion::new(&source, &destination, Default::default()).unwrap();
        conversion.run(&to, &|_| {}).unwrap();
        assert!(to.join(name).is_file() && to.join("config.json").is_file(), "{name}");
        let written = Checkpoint::open(&to).unwrap();
        assert_eq!(written.format(), CheckpointFormat::Sharded);
        assert!(verify(&source, &written).unwrap().is_empty(), "{name}");
        // A rank's file of Megatron is a checkpoint of torch by itself.
        if files == RankFiles::Megatron {
            let rank = Checkpoint::open_below(&to.join(name), "model").unwrap();
            assert_eq!(rank.layout().tensors().len(), written.layout().tensors().len());
        }
    }
}

#[test]
fn an_interrupted_directory_of_torch_is_gone_on_with() {
    let folder = directory("dcp_resumed");
    let source = Checkpoint::open(&data("state.pt")).unwrap();
    let target = Destination::Distributed { file_bytes_max: 64 };
    let conversion = Conversion::new(&source, &target, Default::default()).unwrap();
    conversion.run(&folder.join("whole"), &|_| {}).unwrap();
    let mut options = ConversionOptions::default();
    options.resume = true;
    let conversion = Conversion::new(&source, &target, options).unwrap();
    // What a run that was killed leaves: some files, one of them damaged.
    let journal = folder.join("whole/.conversion");
    assert!(!journal.exists());
    fs::rename(folder.join("whole"), folder.join(".again.partial")).unwrap();
    let damaged = folder.join(".again.partial/__0_1.distcp");
    let mut bytes = fs::read(&damaged).unwrap();
    bytes[20] ^= 1;
    fs::write(&damaged, bytes).unwrap();
    let summary = conversion.run(&folder.join("again"), &|_| {}).unwrap();
    assert_eq!(summary.files, 1);
    assert!(verify(&source, &Checkpoint::open(&folder.join("again")).unwrap()).unwrap().is_empty());
}

#[test]
fn a_prefix_takes_one_part_of_a_training_checkpoint() {
    let all = Checkpoint::open(&data("nested.pt")).unwrap();
    let names = |of: &Checkpoint| {
        let mut names: Vec<_> =
            of.layout().tensors().iter().map(|tensor| tensor.name().to_owned()).collect();
        names.sort();
        names
    };
    let expected = ["model.layers.0", "model.layers.1.w", "optimizer.state.0.exp_avg"];
    assert_eq!(names(&all), expected);
    assert_eq!(all.others(), ["args", "iteration", "optimizer.param_groups"]);
    let model = Checkpoint::open_below(&data("nested.pt"), "model").unwrap();
    assert_eq!(names(&model), ["layers.0", "layers.1.w"]);
    let error = Checkpoint::open_below(&data("nested.pt"), "module").unwrap_err().to_string();
    assert!(error.contains("`module`") && error.contains("model, optimizer"), "{error}");
}

#[test]
fn a_pickle_that_wants_to_run_something_is_refused_by_name() {
    let error = Checkpoint::open(&data("runs.pt")).unwrap_err().to_string();
    assert!(error.contains("runs.pt") && error.contains(".system`"), "{error}");
}

#[test]
fn damaged_torch_files_are_refused_or_read_but_never_a_panic() {
    let folder = directory("damaged_torch");
    let names = ["state.pt", "legacy.pt", "nested.pt", "new.pt"];
    let files = names.map(|name| fs::read(data(name)).unwrap());
    let dcp = folder.join("dcp");
    fs::create_dir_all(&dcp).unwrap();
    let parts: Vec<_> = data("dcp").read_dir().unwrap().map(|part| part.unwrap().path()).collect();
    for part in &parts {
        fs::copy(part, dcp.join(part.file_name().unwrap())).unwrap();
    }
    for_seeds("damaged_torch_files_are_refused_or_read_but_never_a_panic", 300, |rng| {
        let of_dcp = rng.one_in(3).then(|| &parts[rng.below(parts.len())]);
        let mut file = match of_dcp {
            Some(part) => fs::read(part).unwrap(),
            None => files[rng.below(files.len())].clone(),
        };
        if rng.one_in(3) {
            file.truncate(rng.below(file.len()));
        } else {
            for _ in 0..1 + rng.below(3) {
                let at = rng.below(file.len());
                file[at] = rng.next_u64() as u8;
            }
        }
        let (opened, path) = match of_dcp {
            Some(part) => (dcp.clone(), dcp.join(part.file_name().unwrap())),
            None => (folder.join("damaged.pt"), folder.join("damaged.pt")),
        };
        fs::write(&path, file).unwrap();
        // What was opened can be read whole.
        if let Ok(checkpoint) = Checkpoint::open(&opened) {
            for (at, tensor) in (0u32..).zip(checkpoint.layout().tensors()) {
                // A view may repeat its elements as often as it says.
                if tensor.shape().volume() < 1 << 20 {
                    checkpoint.shard(at, 0).unwrap();
                }
            }
        }
        // Restored after it was read: a mapped file must not be cut short.
        if let Some(part) = of_dcp {
            fs::copy(part, path).unwrap();
        }
    });
}

#[test]
fn what_is_no_checkpoint_is_told_apart() {
    let folder = directory("told_apart");
    let refused = |name: &str, bytes: &[u8]| {
        fs::write(folder.join(name), bytes).unwrap();
        Checkpoint::open(&folder.join(name)).unwrap_err().to_string()
    };
    assert!(refused("a.gguf", b"GGUF\x03").contains("GGUF"));
    assert!(refused("a.h5", b"\x89HDF\r\n").contains("HDF5"));
    assert!(refused("a.bin", b"xxxxxxxxxxxxxxxxxxxxxx").contains("neither a zip archive"));
    assert!(refused("__0_0.distcp", b"").contains("name its directory"));
    let opened = |path: &Path| Checkpoint::open(path).unwrap_err().to_string();
    assert!(opened(&folder.join("absent")).contains("No such file"));
    fs::create_dir_all(folder.join("some/mp_rank_00")).unwrap();
    assert!(opened(&folder.join("some")).contains("Megatron"));
    fs::create_dir_all(folder.join("none")).unwrap();
    assert!(opened(&folder.join("none")).contains("the directory is empty"));
    fs::write(folder.join("none/__0_0.distcp"), b"").unwrap();
    assert!(opened(&folder.join("none")).contains("without their .metadata"));
}

#[test]
fn parts_in_directories_and_adapters_are_known() {
    let folder = directory("parts");
    let model = llama(&mut Rng::new(7), 1, 0);
    for part in ["text", "image"] {
        write_model(&folder.join(part), &model, HEADS);
    }
    // Several models side by side are no checkpoint.
    assert!(Checkpoint::open(&folder).unwrap_err().to_string().contains("no checkpoint"));
    fs::write(folder.join("model_index.json"), "{}").unwrap();
    let parts = Checkpoint::open(&folder).unwrap();
    assert_eq!(parts.layout().tensors().len(), 2 * model.len());
    assert!(parts.layout().tensor("image.lm_head.weight").is_some());
    let adapter = folder.join("adapter");
    write_model(&adapter, &model, HEADS);
    let name = |name: &str| adapter.join(name);
    fs::rename(name("model.safetensors"), name("adapter_model.safetensors")).unwrap();
    assert_eq!(Checkpoint::open(&adapter).unwrap().format(), CheckpointFormat::Adapter);
    // Files without an index are one checkpoint, unless they share names: then they are of ranks.
    fs::rename(name("adapter_model.safetensors"), name("one.safetensors")).unwrap();
    Checkpoint::open(&adapter).unwrap();
    fs::copy(name("one.safetensors"), name("two.safetensors")).unwrap();
    let error = Checkpoint::open(&adapter).unwrap_err().to_string();
    assert!(error.contains("is also in") && error.contains("one.safetensors"), "{error}");
}
