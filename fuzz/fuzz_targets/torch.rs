//! Any file of torch (zip archives, pickles, what torch wrote before 1.6), and any metadata and
//! file of `torch.distributed.checkpoint`: refused, or opened and read whole.
#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use syncline_checkpoint::Checkpoint;

const PARTS: [(&str, &[u8]); 3] = [
    (".metadata", include_bytes!("../../crates/checkpoint/tests/data/dcp/.metadata")),
    ("__0_0.distcp", include_bytes!("../../crates/checkpoint/tests/data/dcp/__0_0.distcp")),
    ("__1_0.distcp", include_bytes!("../../crates/checkpoint/tests/data/dcp/__1_0.distcp")),
];

static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = syncline_fuzz::folder("torch");
    for (name, bytes) in PARTS {
        fs::write(folder.join(name), bytes).expect("memory has room");
    }
    folder
});

fuzz_target!(|bytes: &[u8]| {
    let Some((&which, bytes)) = bytes.split_first() else { return };
    // A part of the directory is replaced for a moment, or it is a file by itself.
    let part = PARTS[..2].get(usize::from(which % 3));
    let path = FOLDER.join(part.map_or("any.pt", |(name, _)| name));
    fs::write(&path, bytes).expect("memory has room");
    let opened = Checkpoint::open(if part.is_some() { &FOLDER } else { &path });
    opened.iter().for_each(read);
    drop(opened);
    if let Some((_, original)) = part {
        fs::write(&path, original).expect("memory has room");
    }
});

/// Reads all tensors but vast ones: a view may repeat its elements as often as it says.
fn read(checkpoint: &Checkpoint) {
    for (index, tensor) in (0u32..).zip(checkpoint.layout().tensors()) {
        if tensor.shape().volume() < 1 << 16 {
            checkpoint.shard(index, 0).expect("it is on the only rank");
        }
    }
}
