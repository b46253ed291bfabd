//! Installing what the machine lacks: a test runner, and the system's packages that tests and peers
//! use.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{self, cargo, succeeds};

/// What the installed things are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The tests alone.
    Tests,
    /// The peers beside the benchmarks too.
    Benchmarks,
}

/// A file that tells whether a package is there, and the package.
type Package = (&'static str, &'static str);

/// libFuzzer is C++.
const FOR_TESTS: &[Package] = &[("/usr/bin/gcc", "gcc"), ("/usr/bin/g++", "g++")];
/// Drivers without a GPU. Where one cannot be had, the tests that need it say so, and fail only in
/// CI.
const FOR_DEVICE_TESTS: &[Package] = &[
    ("/usr/share/vulkan/icd.d/lvp_icd.x86_64.json", "mesa-vulkan-drivers"),
    ("/usr/share/doc/libvulkan1", "libvulkan1"),
    (
        "/usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json",
        "vulkan-validationlayers",
    ),
    ("/etc/OpenCL/vendors/pocl.icd", "pocl-opencl-icd"),
    ("/usr/share/doc/ocl-icd-libopencl1", "ocl-icd-libopencl1"),
    ("/usr/bin/oclgrind", "oclgrind"),
];
/// The report is opened in a real browser; where none can be had, those tests say that they
/// are skipped.
const FOR_BROWSER_TESTS: &[Package] =
    &[("/usr/bin/chromium", "chromium"), ("/usr/bin/chromedriver", "chromium-driver")];
const FOR_BENCHMARKS: &[Package] = &[
    ("/usr/include/tbb/flow_graph.h", "libtbb-dev"),
    ("/usr/include/starpu/1.3/starpu.h", "libstarpu-dev"),
];

/// torch with gloo, beside refits between processes: Debian's, which is a tenth of what the wheel
/// and its libraries are.
const FOR_GLOO: &[Package] = &[("/usr/lib/python3/dist-packages/torch", "python3-torch")];

/// Resharding over MPI; where there is none, its tests and rows are left out, with a word.
const FOR_MPI: &[Package] = &[
    ("/usr/bin/mpirun", "openmpi-bin"),
    ("/usr/bin/mpicc", "libopenmpi-dev"),
    ("/usr/share/doc/libclang-dev", "libclang-dev"),
];
/// Two network namespaces stand for two hosts.
const FOR_NAMESPACES: &[Package] = &[("/usr/sbin/ip", "iproute2")];

/// Whether the MPI transport can be built here.
pub fn has_mpi() -> bool {
    succeeds("mpicc", &["--version"]) && succeeds("mpirun", &["--version"])
}

/// Where the Python of the tests lives, with the packages below: files of ours are read by others,
/// and the other way round.
const PYTHON: &str = "target/python";
const PYTHON_PACKAGES: &[&str] = &["safetensors>=0.8", "numpy"];
/// Succeeds where they are there; older ones do not know every element type.
const HAS_PYTHON_PACKAGES: &str = "import numpy, safetensors; \
    assert [int(part) for part in safetensors.__version__.split('.')[:2]] >= [0, 8]";

/// NVIDIA's compiler library, which needs no device: the tests compile CUDA C with it where it can
/// be had.
const CUDA_COMPILER: &str = "nvidia-cuda-nvrtc-cu12";

/// Where the packages of npm lie that tests use: rules of accessibility, and the engine by which
/// Chrome's own viewer reads traces.
const NODE: &str = "target/node";
const NODE_PACKAGES: &[&str] = &["axe-core@4.14.1", "@paulirish/trace_engine@0.0.65"];

/// The folder with the packages of npm; made if it is not there. `None`, with a word, where it
/// cannot be had: tests that need it then say that they are skipped.
pub fn node() -> Option<PathBuf> {
    let folder = std::path::absolute(NODE).ok()?;
    let is_there = |package: &&str| {
        let name = package.rsplit_once('@').map_or(*package, |(name, _)| name);
        folder.join("node_modules").join(name).is_dir()
    };
    if NODE_PACKAGES.iter().all(is_there) {
        return Some(folder);
    }
    let made = std::fs::create_dir_all(&folder).map_err(|error| error.to_string());
    let install = || {
        let mut npm = Command::new("npm");
        npm.args(["install", "--silent", "--no-fund", "--no-audit", "--no-save", "--prefix"]);
        command::run(npm.arg(&folder).args(NODE_PACKAGES))
    };
    match made.and_then(|()| install()) {
        Ok(()) => Some(folder),
        Err(message) => {
            eprintln!("no packages of npm for the tests: {message}");
            None
        }
    }
}

/// The Python with the packages that tests use; made if it is not there. `None`, with a word, where
/// it cannot be had: tests that need it then say that they are skipped.
pub fn python() -> Option<PathBuf> {
    let program = std::path::absolute(PYTHON).ok()?.join("bin/python3");
    let shown = program.display().to_string();
    let install = |packages: &[&str]| {
        let mut pip = Command::new(&program);
        command::run(pip.args(["-m", "pip", "install", "--quiet"]).args(packages))
    };
    if !succeeds(&shown, &["-c", HAS_PYTHON_PACKAGES]) {
        let made = command::run(Command::new("python3").args(["-m", "venv", PYTHON]));
        if let Err(message) = made.and_then(|()| install(PYTHON_PACKAGES)) {
            eprintln!("no Python for the tests: {message}");
            return None;
        }
    }
    if !succeeds(&shown, &["-c", "import nvidia.cuda_nvrtc"])
        && let Err(message) = install(&[CUDA_COMPILER])
    {
        eprintln!("CUDA C is not compiled in the tests: {message}");
    }
    Some(program)
}

/// Installs missing programs; reports failures.
fn install(packages: &[Package]) -> Result<(), String> {
    let missing: Vec<&str> = packages
        .iter()
        .filter(|(file, _)| !Path::new(file).exists())
        .map(|(_, name)| *name)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !succeeds("apt-get", &["--version"]) {
        return Err(format!("please install {}: this machine has no apt-get", missing.join(", ")));
    }
    let apt = |arguments: &[&str]| {
        let mut command = if is_root() {
            Command::new("apt-get")
        } else {
            let mut sudo = Command::new("sudo");
            sudo.arg("apt-get");
            sudo
        };
        command::run(command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive"))
    };
    apt(&["update", "-qq"])?;
    let mut all = vec!["install", "-y", "-qq", "--no-install-recommends"];
    all.extend(&missing);
    apt(&all)
}

/// Everything that `need` takes.
pub fn run(need: Need) -> Result<(), String> {
    install(FOR_TESTS)?;
    // A missing peer leaves out its rows, a missing browser or driver its tests; none of these is a
    // reason to do nothing.
    let wished: &[&[Package]] = match need {
        Need::Tests => &[FOR_BROWSER_TESTS],
        Need::Benchmarks => &[FOR_BENCHMARKS, FOR_GLOO],
    };
    for packages in [FOR_DEVICE_TESTS, FOR_MPI, FOR_NAMESPACES].iter().chain(wished) {
        if let Err(message) = install(packages) {
            eprintln!("{message}");
        }
    }
    if need == Need::Tests && !succeeds("cargo", &["nextest", "--version"]) {
        cargo(&["install", "--locked", "cargo-nextest"], &[])?;
    }
    Ok(())
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim() == "0")
}
