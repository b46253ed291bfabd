//! Any `config.json`, index and `layout.json` beside a small model: opened or refused.
#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use syncline_checkpoint::Checkpoint;

const HEADER: &str = r#"{"a.weight":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}"#;

static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = syncline_fuzz::folder("checkpoint");
    let mut file = (HEADER.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(HEADER.as_bytes());
    file.extend([0; 16]);
    for name in ["model.safetensors", "rank-00000.safetensors"] {
        fs::write(folder.join(name), &file).expect("memory has room");
    }
    folder
});

fuzz_target!(|bytes: &[u8]| {
    let Some((&which, text)) = bytes.split_first() else { return };
    let names = ["model.safetensors.index.json", "layout.json"];
    let path = FOLDER.join(names[usize::from(which) % names.len()]);
    fs::write(&path, text).expect("memory has room");
    let _ = Checkpoint::open(&FOLDER);
    fs::remove_file(&path).expect("it was made above");
});
