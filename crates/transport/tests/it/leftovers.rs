//! The directory of shared memory: what groups left there, what is somebody else's, where it is
//! full; and who comes twice.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use syncline_testing::{need, succeed};
use syncline_transport::{ControlPlane, MemoryPlane, Session, Wait, shm};

/// Long enough for a busy machine, short enough to end a test that is stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// A directory of this test's own: others' groups must not be swept from here, nor these from
/// there.
pub struct Directory(PathBuf);

impl Directory {
    pub fn new(test: &str) -> Self {
        let path = Path::new("/dev/shm").join(format!("test-{test}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn options(&self) -> shm::Options {
        shm::Options { depth: 2, slot_bytes: 4096, directory: self.0.clone() }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn files_that_are_no_groups_are_left_alone() {
    let directory = Directory::new("notes");
    let write = |name: &str, content: &str| {
        let path = directory.0.join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    };
    let (empty, notes) = (write("syncline-empty", ""), write("syncline-notes", "my own notes"));
    shm::sweep(&directory.0);
    let wait = Wait::timeout(PATIENCE);
    let refused = shm::join("notes", 0, 1, &directory.options(), &wait).unwrap_err().to_string();
    assert!(refused.contains("is not a group of this user's"), "{refused}");
    // Whoever makes a group sweeps too.
    drop(shm::join("other", 0, 1, &directory.options(), &wait).unwrap());
    assert!(empty.exists());
    assert_eq!(fs::read_to_string(notes).unwrap(), "my own notes");
}

#[test]
fn a_pe_that_was_refused_and_comes_again_hears_why() {
    let directory = Directory::new("again");
    let good = directory.options();
    let other = shm::Options { depth: 3, ..good.clone() };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| shm::join("again", 0, 3, &good, &Wait::timeout(PATIENCE)));
        while !directory.0.join("syncline-again").exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let join = |rank, options| {
            let joined = shm::join("again", rank, 3, options, &Wait::timeout(PATIENCE));
            joined.unwrap_err().to_string()
        };
        let refused = join(1, &other);
        assert!(refused.contains("3 slots"), "{refused}");
        assert_eq!(join(1, &good), refused);
        assert_eq!(join(2, &good), refused);
        assert_eq!(first.join().unwrap().unwrap_err().to_string(), refused);
    });
}

/// A memory file system of its own, gone with its test.
struct Mounted(PathBuf);

impl Mounted {
    /// Returns `None` where this process may not mount, and the test is to be skipped.
    fn of(test: &str, bytes: usize) -> Option<Self> {
        let path = std::env::temp_dir().join(format!("syncline-{test}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        let options = format!("size={bytes},mode=0700");
        let mounted = Self(path);
        let arguments = ["-t", "tmpfs", "-o", &options, "tmpfs"];
        let mount = succeed(Command::new("mount").args(arguments).arg(&mounted.0));
        need("the right to mount", mount)?;
        Some(mounted)
    }

    /// A process that another test starts has all files open for a moment, and keeps their memory.
    fn wait_until_free(&self, bytes: u64) {
        let until = Instant::now() + PATIENCE;
        let is_free = || {
            let status = rustix::fs::statvfs(&self.0).unwrap();
            status.f_bfree * status.f_frsize >= bytes
        };
        while !is_free() {
            assert!(Instant::now() < until, "memory is not given back");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn is_empty(&self) -> bool {
        self.0.read_dir().unwrap().next().is_none()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_full_memory_file_system_fails_all_alike_and_leaves_nothing() {
    let Some(mounted) = Mounted::of("full", 1 << 20) else { return };
    let full = shm::Options { depth: 2, slot_bytes: 1 << 20, directory: mounted.0.clone() };
    let wait = Wait::timeout(PATIENCE);
    let refused = shm::join("full", 0, 2, &full, &wait).unwrap_err().to_string();
    assert!(refused.contains("has no room for"), "{refused}");
    assert!(mounted.is_empty());
    // The group fits, what it shall hold does not.
    let fits = shm::Options { slot_bytes: 4096, ..full };
    let errors: Vec<String> = std::thread::scope(|scope| {
        let pe = |rank: usize| {
            let fits = &fits;
            scope.spawn(move || {
                // Whoever joined last may have failed the group before the others hear that it is
                // complete.
                let mut endpoint = match shm::join("fits", rank, 3, fits, &Wait::timeout(PATIENCE))
                {
                    Ok(endpoint) => endpoint,
                    Err(error) => return error.to_string(),
                };
                if let Err(failure) = endpoint.allocate(1 << 20) {
                    return endpoint.fail(failure).to_string();
                }
                let wait = Wait::timeout(PATIENCE);
                Session::enter(&mut endpoint, 0, &wait).unwrap_err().to_string()
            })
        };
        let threads: Vec<_> = (0..3).map(pe).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
    assert!(errors[0].contains("has no room for"), "{errors:?}");
    assert!(mounted.is_empty(), "something is left behind");
}

/// Whoever comes first reserves the memory of the group, and only once: in half as much again, it
/// fits.
#[test]
fn pes_that_come_at_once_need_no_more_memory_than_their_group() {
    let Some(mounted) = Mounted::of("at-once", 3 << 20) else { return };
    let group = shm::Options { depth: 1, slot_bytes: 640 << 10, directory: mounted.0.clone() };
    for round in 0..20 {
        std::thread::scope(|scope| {
            let pe = |rank: usize| {
                let (name, group) = (format!("round-{round}"), &group);
                scope.spawn(move || {
                    drop(shm::join(&name, rank, 3, group, &Wait::timeout(PATIENCE)).unwrap());
                })
            };
            let threads: Vec<_> = (0..3).map(pe).collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        mounted.wait_until_free(5 << 19);
    }
    assert!(mounted.is_empty(), "something is left behind");
}

/// What a maker leaves that was killed before the group was complete.
#[test]
fn a_file_in_the_making_that_nobody_makes_is_replaced() {
    let directory = Directory::new("making");
    let path = directory.0.join("syncline-making");
    fs::write(&path, b"SYNCLIN0").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    drop(shm::join("making", 0, 1, &directory.options(), &Wait::timeout(PATIENCE)).unwrap());
    assert!(!path.exists());
}
