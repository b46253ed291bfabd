//! Arrays in files.

use std::path::PathBuf;

use syncline_program::{Program, ProgramOptions, npy};
use syncline_tensor::Dtype;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("syncline-program-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

fn write(path: &std::path::Path, array: &npy::Array) {
    npy::write(&mut std::fs::File::create(path).unwrap(), array).unwrap();
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn arrays_survive_their_file() {
    let folder = Folder::new("npy");
    let path = folder.0.join("a.npy");
    for shape in [vec![], vec![6], vec![2, 3], vec![1, 0, 4]] {
        for dtype in [Dtype::F32, Dtype::I64, Dtype::U8, Dtype::F16] {
            let bytes = shape.iter().product::<u64>() * dtype.bytes();
            let array = npy::Array {
                dtype,
                shape: shape.clone(),
                bytes: (0..bytes).map(|n| n as u8).collect(),
            };
            write(&path, &array);
            assert_eq!(npy::read(&path).unwrap(), array);
        }
    }
}

#[test]
fn buffers_begin_with_what_their_files_hold() {
    let folder = Folder::new("init");
    let array =
        npy::Array { dtype: Dtype::F32, shape: vec![2], bytes: vec![1, 2, 3, 4, 5, 6, 7, 8] };
    write(&folder.0.join("a.npy"), &array);
    let header = br#"{"w": {"dtype": "U8", "shape": [3], "data_offsets": [1, 4]}}"#;
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header);
    file.extend([9, 10, 11, 12]);
    std::fs::write(folder.0.join("w.safetensors"), file).unwrap();
    let text = r#"{"format": "syncline-trace", "version": 1, "tasks": [], "buffers": [
        {"id": 0, "bytes": 8, "init": {"file": "a.npy"}},
        {"id": 1, "bytes": 3, "init": {"file": "w.safetensors", "tensor": "w"}},
        {"id": 2, "bytes": 4, "init": {"fill": -1, "dtype": "i16"}},
        {"id": 3, "bytes": 8, "init": {"random": 5, "dtype": "i32"}},
        {"id": 4, "bytes": 2}]}"#;
    let options = ProgramOptions::default().with_folder(&folder.0);
    let program = Program::from_bytes(text.as_bytes(), &options).unwrap();
    let contents: Vec<_> = (0..5).map(|index| program.initial_contents(index).unwrap()).collect();
    assert_eq!(contents[0], array.bytes);
    assert_eq!(contents[1], [10, 11, 12]);
    assert_eq!(contents[2], [255; 4]);
    assert_eq!(contents[3], program.initial_contents(3).unwrap());
    assert_eq!(contents[4], [0, 0]);
}

#[test]
fn a_file_that_is_not_there_names_one_like_it() {
    let folder = Folder::new("meant");
    std::fs::write(folder.0.join("weights.npy"), b"").unwrap();
    let text = r#"{"format": "syncline-trace", "version": 1, "tasks": [],
        "buffers": [{"id": 0, "bytes": 8, "init": {"file": "wieghts.npy"}}]}"#;
    let options = ProgramOptions::default().with_folder(&folder.0);
    let error = Program::from_bytes(text.as_bytes(), &options).unwrap_err().to_string();
    assert!(
        error.starts_with("buffers[0].init: ") && error.contains("did you mean `weights.npy`?"),
        "{error}"
    );
}
