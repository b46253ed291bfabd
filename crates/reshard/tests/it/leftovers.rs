//! What lies in the directory of shared memory: left by groups, or by somebody else; and who comes twice.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use syncline_reshard::transport::{Wait, shm};

use crate::groups::PATIENCE;

/// A directory of this test's own: others' groups must not be swept from here, nor these from there.
struct Directory(PathBuf);

impl Directory {
    fn new(test: &str) -> Self {
        let path = Path::new("/dev/shm").join(format!("test-{test}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn options(&self) -> shm::Options {
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
