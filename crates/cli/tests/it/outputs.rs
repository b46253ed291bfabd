//! Every command that writes a file replaces it whole, keeps its mode, follows links, and writes to
//! devices and pipes.

use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{directory, run};

const CHOLESKY: &str = "examples/programs/cholesky.json";

/// Every command that writes a file, with that file as its last argument.
fn writers(path: &str) -> Vec<Vec<String>> {
    let array = format!("A={path}");
    [
        &["example", "mlp", "-o", path][..],
        &["report", "examples/traces/cholesky.json", "-o", path],
        &["deps", "convert", "examples/traces/cholesky.json", "-o", path],
        &["run", CHOLESKY, "--capture", path],
        &["run", CHOLESKY, "--trace", path],
        &["run", CHOLESKY, "--report", path],
        &["run", CHOLESKY, "--output", &array],
    ]
    .map(|args| args.iter().map(ToString::to_string).collect())
    .to_vec()
}

fn run_all(args: &[String]) -> crate::support::Run {
    run(&args.iter().map(String::as_str).collect::<Vec<_>>())
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).expect("it is there").is_symlink()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_link_is_followed_and_the_file_behind_it_keeps_its_mode() {
    let folder = directory("outputs_links");
    let (link, real) = (folder.join("link.json"), folder.join("real.json"));
    symlink("real.json", &link).expect("a link");
    for args in writers(link.to_str().unwrap()) {
        fs::write(&real, "old").expect("a file");
        fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).expect("a mode");
        run_all(&args).success();
        assert!(is_link(&link), "{args:?}");
        let written = fs::metadata(&real).expect("a file");
        assert_eq!(written.permissions().mode() & 0o7777, 0o640, "{args:?}");
        assert!(written.len() > 100, "{args:?}");
        assert_eq!(names(&folder), ["link.json", "real.json"], "{args:?}");
    }
}

#[test]
fn a_full_device_is_one_error_and_stays_a_device() {
    let folder = directory("outputs_full");
    // By way of a link: a fault here must not replace the machine's device.
    let full = folder.join("full.json");
    symlink("/dev/full", &full).expect("a link");
    for args in writers(full.to_str().unwrap()) {
        let line = run_all(&args).refusal();
        assert!(line.contains("full.json: cannot be written: No space left"), "{args:?}: {line}");
        assert!(is_link(&full), "{args:?}");
        assert_eq!(names(&folder), ["full.json"], "{args:?}");
    }
    for args in [&["example", "mlp"][..], &["run", CHOLESKY], &["devices"], &["--help"]] {
        let full = File::options().write(true).open("/dev/full").expect("a device");
        let ended = crate::support::command(args).stdout(full).output().expect("it starts");
        assert_eq!(ended.status.code(), Some(2), "{args:?}");
        assert_eq!(String::from_utf8_lossy(&ended.stderr).lines().count(), 1, "{args:?}");
    }
}

#[test]
fn a_full_disk_leaves_the_old_file() {
    let folder = directory("outputs_full_disk");
    let old = folder.join("old.json");
    for args in writers(old.to_str().unwrap()) {
        fs::write(&old, "old").expect("a file");
        // A limit on the size of files stops the program where a full disk would.
        let command = crate::support::command(&[]);
        let shell = "trap '' XFSZ; ulimit -f 1; exec \"$@\"";
        let ended = Command::new("bash")
            .args(["-c", shell, "bash"])
            .arg(command.get_program())
            .args(&args)
            .current_dir(command.get_current_dir().expect("the root"))
            .output()
            .expect("it starts");
        let stderr = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(
            (ended.status.code(), stderr.lines().count()),
            (Some(2), 1),
            "{args:?} {stderr}"
        );
        assert!(stderr.contains("old.json: cannot be written: File too large"), "{stderr}");
        assert_eq!(fs::read_to_string(&old).expect("a file"), "old", "{args:?}");
        assert_eq!(names(&folder), ["old.json"], "{args:?}");
    }
}

#[test]
fn a_read_only_file_is_refused_and_stays() {
    let folder = directory("outputs_read_only");
    let old = folder.join("old.json");
    fs::write(&old, "old").expect("a file");
    fs::set_permissions(&old, fs::Permissions::from_mode(0o444)).expect("a mode");
    for args in writers(old.to_str().unwrap()) {
        let line = run_all(&args).refusal();
        assert!(line.contains("old.json: cannot be written: the file is read-only"), "{line}");
        assert_eq!(fs::read_to_string(&old).expect("a file"), "old");
    }
    assert_eq!(names(&folder), ["old.json"]);
}

#[test]
fn a_pipe_is_written_to() {
    let folder = directory("outputs_pipe");
    let pipe = folder.join("pipe.json");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    for args in writers(pipe.to_str().unwrap()) {
        let from: PathBuf = pipe.clone();
        let reader = std::thread::spawn(move || fs::read(from).expect("a pipe").len());
        run_all(&args).success();
        assert!(reader.join().expect("it reads") > 100, "{args:?}");
        assert!(fs::symlink_metadata(&pipe).expect("a pipe").file_type().is_fifo(), "{args:?}");
    }
    // The reader stops early.
    let from = pipe.clone();
    let reader = std::thread::spawn(move || drop(File::open(from)));
    let sizes = ["--set", "tiles=20"];
    run(&[&["example", "cholesky", "-o", pipe.to_str().unwrap()], &sizes[..]].concat()).success();
    reader.join().expect("it opens");
}

#[test]
fn a_dash_is_standard_output() {
    let shown = run(&["example", "mlp", "-o", "-"]).success();
    assert_eq!(run(&["example", "mlp"]).success(), shown);
    let ended = run(&["run", CHOLESKY, "--report", "-"]);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    assert!(ended.stdout.starts_with("<!doctype html>") && ended.stdout.ends_with("</html>\n"));
    assert!(ended.stderr.contains("critical path"), "{}", ended.stderr);
    let line = run(&["run", CHOLESKY, "--report", "-", "--trace", "-"]).refusal();
    assert!(line.contains("only one of the outputs"), "{line}");
    assert!(!Path::new("-").exists());
}
