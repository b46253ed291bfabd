//! A made-up decoder, written as the Hugging Face tools write it.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use serde_json::json;

use crate::Effort;

/// Bytes of tensors in one file.
const FILE_BYTES: u64 = 1 << 30;

/// Name, rows and columns of a tensor of two-byte floats.
type Tensor = (String, u64, u64);

/// How large it is.
pub(super) struct Model {
    pub layers: u64,
    width: u64,
}

impl Model {
    /// 4 GiB, or 1 GiB where there is little time.
    pub(super) fn new(effort: Effort) -> Self {
        match effort {
            Effort::Smoke => Self { layers: 2, width: 64 },
            Effort::Quick => Self { layers: 8, width: 2176 },
            Effort::Full => Self { layers: 20, width: 2816 },
        }
    }

    fn tensors(&self) -> Vec<Tensor> {
        let width = self.width;
        let mut tensors = vec![("model.embed_tokens.weight".to_owned(), 8 * width, width)];
        for layer in 0..self.layers {
            let mut add = |part: &str, rows: u64, columns: u64| {
                tensors.push((format!("model.layers.{layer}.{part}.weight"), rows, columns));
            };
            for part in ["q_proj", "k_proj", "v_proj", "o_proj"] {
                add(&format!("self_attn.{part}"), width, width);
            }
            add("mlp.gate_proj", 3 * width, width);
            add("mlp.up_proj", 3 * width, width);
            add("mlp.down_proj", width, 3 * width);
        }
        tensors.push(("lm_head.weight".to_owned(), 8 * width, width));
        tensors
    }

    /// Bytes of all tensors.
    pub(super) fn bytes(&self) -> u64 {
        self.tensors().iter().map(|(_, rows, columns)| rows * columns * 2).sum()
    }

    /// Writes it in files of about a gigabyte, with an index.
    pub(super) fn write(&self, folder: &Path) {
        fs::create_dir_all(folder).expect("a folder for checkpoints");
        let mut files: Vec<Vec<Tensor>> = vec![Vec::new()];
        let mut bytes = 0;
        for tensor in self.tensors() {
            if bytes > FILE_BYTES {
                files.push(Vec::new());
                bytes = 0;
            }
            bytes += tensor.1 * tensor.2 * 2;
            files.last_mut().expect("it starts with one").push(tensor);
        }
        let mut weights = serde_json::Map::new();
        for (at, tensors) in files.iter().enumerate() {
            let name = format!("model-{:05}-of-{:05}.safetensors", at + 1, files.len());
            weights.extend(tensors.iter().map(|tensor| (tensor.0.clone(), json!(name))));
            write_file(&folder.join(name), tensors);
        }
        let index = json!({"metadata": {}, "weight_map": weights}).to_string();
        fs::write(folder.join("model.safetensors.index.json"), index).expect("room on the disk");
        let config = json!({"num_attention_heads": 16, "num_hidden_layers": self.layers});
        fs::write(folder.join("config.json"), config.to_string()).expect("room on the disk");
    }
}

fn write_file(path: &Path, tensors: &[Tensor]) {
    let mut header = json!({"__metadata__": {"format": "pt"}});
    let mut end = 0;
    for (name, rows, columns) in tensors {
        let start = end;
        end += rows * columns * 2;
        header[name] =
            json!({"dtype": "F16", "shape": [rows, columns], "data_offsets": [start, end]});
    }
    let header = header.to_string();
    let mut out = BufWriter::new(File::create(path).expect("room on the disk"));
    let mut write = |bytes: &[u8]| out.write_all(bytes).expect("room on the disk");
    write(&(header.len() as u64).to_le_bytes());
    write(header.as_bytes());
    // Values do not matter to a copy; they differ so that no file system can share them.
    let mut state = 1u64;
    let mut block = vec![0; 1 << 20];
    let mut left = end;
    while left > 0 {
        let count = left.min(block.len() as u64) as usize;
        for word in block.as_chunks_mut::<8>().0 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            *word = state.to_le_bytes();
        }
        write(&block[..count]);
        left -= count as u64;
    }
    out.flush().expect("room on the disk");
}
