//! Kernels that a program brings along: the shipped example, and sources that must be refused
//! before anything runs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use syncline_device::registry::BackendProbe;
use syncline_device::{Backend, Batch, Command as DeviceCommand, Deadline, KernelArg};
use syncline_program::{Program, ProgramOptions};
use syncline_testing::need;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/programs");

/// A folder of the test's own, with the files of the example.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("syncline-user-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        for file in ["collatz.json", "collatz.wgsl", "collatz.cl", "collatz.c"] {
            std::fs::copy(Path::new(EXAMPLES).join(file), path.join(file)).unwrap();
        }
        Self(path)
    }

    fn trace(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.0.join("collatz.json")).unwrap()).unwrap()
    }

    fn load(&self, trace: &Value) -> Result<Program, String> {
        let options = ProgramOptions::default().with_folder(&self.0).with_trusted_kernels(true);
        Program::from_bytes(trace.to_string().as_bytes(), &options).map_err(|e| e.to_string())
    }

    /// The message after `from` was replaced by `to` in `file`.
    fn refused(&self, file: &str, from: &str, to: &str) -> String {
        let path = self.0.join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{file} has no {from:?}");
        std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
        let message = self.load(&self.trace()).unwrap_err();
        std::fs::write(&path, text).unwrap();
        message
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn steps(mut n: u32) -> u32 {
    let mut count = 0;
    while n > 1 {
        n = if n.is_multiple_of(2) { n / 2 } else { 3 * n + 1 };
        count += 1;
    }
    count
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks(4).map(|bytes| u32::from_le_bytes(bytes.try_into().unwrap())).collect()
}

#[test]
fn the_example_has_sources_for_both_backends() {
    let folder = Folder::new("sources");
    let program = folder.load(&folder.trace()).unwrap();
    let kernel = &program.tasks()[0].kernel;
    let wgsl = kernel.source(Backend::Vulkan, &[]).unwrap();
    let opencl = kernel.source(Backend::OpenCl, &[]).unwrap();
    assert!(!kernel.supports(Backend::Cpu));
    let refused = program.run_serially().unwrap_err().to_string();
    assert!(
        refused.starts_with("tasks[0] (id 0).kernel: kernel `collatz` has no body"),
        "{refused}"
    );
    assert_eq!((&**wgsl.entry(), wgsl.group()), ("collatz", [64, 1, 1]));
    assert_eq!((&**opencl.entry(), opencl.group()), ("collatz", [64, 1, 1]));
    assert!(opencl.text().starts_with("#line 1 \""), "logs of drivers name the file");
}

#[test]
fn the_example_gives_the_output_to_expect() {
    let folder = Folder::new("cpu");
    let library = folder.0.join("libcollatz.so");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O2", "-o"])
        .args([&library, &folder.0.join("collatz.c")])
        .status();
    assert!(compiled.expect("a C compiler").success());
    let mut trace = folder.trace();
    trace["kernels"][0]["cpu"] = json!("libcollatz.so:collatz");
    trace["tasks"][0].as_object_mut().unwrap().remove("device");
    let program = folder.load(&trace).unwrap();
    let run = program.run_serially().unwrap();
    let numbers = words(&program.initial_contents(0).unwrap());
    let found = words(&run.contents[1]);
    assert_eq!(found, numbers.iter().map(|&n| steps(n)).collect::<Vec<_>>());
    let expected = std::fs::read(Path::new(EXAMPLES).join("collatz-expected.json")).unwrap();
    let expected: Value = serde_json::from_slice(&expected).unwrap();
    assert_eq!(expected["numbers"], json!(numbers[..8]));
    assert_eq!(expected["steps"], json!(found[..8]));
    assert_eq!(expected["longest"], json!(words(&run.contents[2])));
    assert_eq!(expected["sum_of_steps"], json!(found.iter().sum::<u32>()));
}

/// Runs the task with the program's own kernel on the first device of a backend, where there is
/// one.
fn on_device(probe: &dyn BackendProbe) {
    let what = format!("a {} device", probe.backend());
    let Some(device) = need(&what, probe.open(0)) else { return };
    let folder = Folder::new(&format!("device-{}", probe.backend()));
    let program = folder.load(&folder.trace()).unwrap();
    let task = &program.tasks()[0];
    let buffers = [0, 1].map(|index| {
        let buffer = device.buffer(4096);
        buffer.write(0, &program.initial_contents(index).unwrap()).unwrap();
        buffer
    });
    let args = program.trace().tasks[0].args.iter().zip(&buffers);
    let args = args
        .map(|(arg, buffer)| KernelArg::new(arg.arg.access, buffer.view(arg.arg.view).unwrap()));
    let command = DeviceCommand::dispatch(&task.kernel, args.collect(), task.scalars.clone());
    let done = device.lanes()[0].submit(Batch::new().command(command)).unwrap();
    done.wait(Deadline::after(Duration::from_secs(120))).unwrap();
    let (numbers, found) =
        (buffers[0].read::<u32>(0, 1024).unwrap(), buffers[1].read::<u32>(0, 1024).unwrap());
    assert_eq!(found, numbers.iter().map(|&n| steps(n)).collect::<Vec<_>>());
}

#[test]
fn the_example_runs_on_vulkan() {
    on_device(&syncline_vulkan::Probe::default());
}

#[test]
fn the_example_runs_on_opencl() {
    on_device(&syncline_opencl::Probe::default());
}

#[test]
fn wrong_wgsl_is_refused_with_file_and_line() {
    let folder = Folder::new("wgsl");
    let wrong = [
        // What the parser finds, what the validator finds, and what does not fit the kernel.
        ("var count = 0u;", "var count = 0u", "collatz.wgsl:23:5: "),
        ("var count = 0u;", "var count = cuont;", "collatz.wgsl:22:17: "),
        ("i >= params[STEPS + 2u]", "i", "collatz.wgsl:17:13: "),
        ("@binding(2)", "@binding(3)", "collatz.wgsl:4:"),
        ("@binding(2)", "@binding(3)", "binding 3: the kernel has 2 arguments"),
        (
            "var<storage, read> numbers",
            "var<storage, read_write> numbers",
            "binding 0 is not written",
        ),
        ("fn collatz(", "fn colatz(", "no compute function `collatz` (there are: colatz)"),
    ];
    for (from, to, wanted) in wrong {
        let message = folder.refused("collatz.wgsl", from, to);
        assert!(message.starts_with("kernels[0].wgsl: "), "{message}");
        assert!(message.contains(wanted), "{message}");
    }
}

#[test]
fn other_mistakes_say_what_is_wrong() {
    let folder = Folder::new("members");
    let wrong = [
        (r#""wgsl": "collatz.wgsl""#, r#""wgsl": "nowhere.wgsl""#, "nowhere.wgsl: No such file"),
        (r#"{"elements": 1}"#, r#"{"elements": 2}"#, "kernels[0].grid: expected"),
        (r#"[64, 1, 1]"#, r#"[64, 0, 1]"#, "kernels[0].group: expected three sizes"),
        (r#"["i64"]"#, r#"["int"]"#, "kernels[0].scalars: expected one of f32, f64, i64 and bool"),
        (
            r#""scalars": [1000]"#,
            r#""scalars": []"#,
            "tasks[0] (id 0).scalars: expected as many scalars",
        ),
    ];
    for (from, to, wanted) in wrong {
        let message = folder.refused("collatz.json", from, to);
        assert!(message.contains(wanted), "{message}");
    }
    let message = folder.refused("collatz.cl", "void collatz", "void other");
    assert!(message.contains("collatz.cl:1:1: no function `collatz`"), "{message}");
    let mut trace = folder.trace();
    for body in ["wgsl", "opencl"] {
        trace["kernels"][0].as_object_mut().unwrap().remove(body);
    }
    assert!(folder.load(&trace).unwrap_err().contains("needs one of `cpu`, `wgsl` and `opencl`"));
    let untrusted = ProgramOptions::default().with_folder(&folder.0);
    let error = Program::from_bytes(folder.trace().to_string().as_bytes(), &untrusted).unwrap_err();
    assert!(error.to_string().contains("--trust-kernels"), "{error}");
}
