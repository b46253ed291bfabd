//! Running the program, and what it is expected to print.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use syncline_testing::need;

use serde_json::{Value, json};
use syncline::trace::Trace;

/// What a run of the program gave.
#[derive(Debug)]
pub struct Run {
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Run {
    /// The output of a run that must succeed without a word on standard error.
    #[track_caller]
    pub fn success(self) -> String {
        assert_eq!((self.status, self.stderr.as_str()), (Some(0), ""), "{self:?}");
        self.stdout
    }

    /// The one line of a run that must fail with exit status 2.
    #[track_caller]
    pub fn refusal(self) -> String {
        assert_eq!((self.status, self.stdout.as_str()), (Some(2), ""), "{self:?}");
        assert_eq!(self.stderr.lines().count(), 1, "{self:?}");
        self.stderr
    }
}

/// The program, run from the root of the repository so that messages name files as people type
/// them.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_syncline"));
    command.args(args).current_dir(root()).stdin(Stdio::null());
    command
}

pub fn run(args: &[&str]) -> Run {
    finished(command(args).output().expect("the program starts"))
}

/// Runs the program with `input` as its standard input.
pub fn run_with_input(args: &[&str], input: &Path) -> Run {
    let input = File::open(input).expect("an input");
    finished(command(args).stdin(input).output().expect("the program starts"))
}

/// Returns what the program shows in a terminal, or `None` where the test is to be skipped.
pub fn in_terminal(args: &[&str]) -> Option<String> {
    let program = [&[env!("CARGO_BIN_EXE_syncline")], args].concat().join(" ");
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &program, "/dev/null"]);
    let output = need("`script`, which makes a terminal", script.stdin(Stdio::null()).output())?;
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{shown}");
    Some(shown)
}

pub fn finished(output: Output) -> Run {
    let text = |bytes| String::from_utf8(bytes).expect("the program prints UTF-8");
    Run { status: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A directory of one test's own, empty.
pub fn directory(test: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).expect("a directory for tests");
    directory
}

/// A tensor: name, element type as files name it, shape, bytes.
pub type Tensor = (String, &'static str, [u64; 2], Vec<u8>);

/// Writes a checkpoint of one file.
pub fn write_checkpoint(directory: &Path, tensors: &[Tensor]) {
    let mut header = json!({"__metadata__": {"format": "pt"}});
    let mut data = Vec::new();
    for (name, element, shape, bytes) in tensors {
        let start = data.len();
        data.extend_from_slice(bytes);
        header[name] =
            json!({"dtype": element, "shape": shape, "data_offsets": [start, data.len()]});
    }
    let header = header.to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.extend_from_slice(&data);
    fs::create_dir_all(directory).expect("a directory for tests");
    fs::write(directory.join("model.safetensors"), file).expect("a file for tests");
}

/// Writes `trace` as JSON and gives its path.
pub fn write_trace(directory: &Path, name: &str, trace: &Trace) -> String {
    trace.validate().expect("a valid trace");
    write_text(directory, &format!("{name}.json"), &trace.to_json())
}

pub fn write_text(directory: &Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    fs::write(&path, text).expect("a file for tests");
    path.to_str().expect("a plain path").to_owned()
}

pub fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("the program prints JSON")
}

/// Compares with `expected/NAME`.
#[track_caller]
pub fn assert_expected(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/expected").join(name);
    if std::env::var_os("SYNCLINE_BLESS").is_some() {
        fs::write(&path, found).expect("expectations can be written");
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, expected, "{name} differs; SYNCLINE_BLESS=1 rewrites it");
}
