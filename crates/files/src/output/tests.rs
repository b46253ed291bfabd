use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

/// A folder of one test's own, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("syncline-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The names in it, in order.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    write_file(path, |out| out.write_all(text.as_bytes()))
}

fn mode_of(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_file_is_replaced_whole_and_keeps_its_mode() {
    let folder = Folder::new("replaced_whole");
    let path = folder.at("out");
    write(&path, "first").unwrap();
    let fresh = mode_of(&path);
    File::create(folder.at("plain")).unwrap();
    assert_eq!(fresh, mode_of(&folder.at("plain")), "a new file has the usual mode");
    for mode in [0o640, 0o755, 0o600, 0o666] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let before = fs::metadata(&path).unwrap().ino();
        write(&path, "second").unwrap();
        assert_eq!(mode_of(&path), mode);
        assert_ne!(fs::metadata(&path).unwrap().ino(), before, "replaced, not overwritten");
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "second");
    assert_eq!(folder.names(), ["out", "plain"]);
}

#[test]
fn what_fails_leaves_the_old_file_and_nothing_else() {
    let folder = Folder::new("what_fails");
    let path = folder.at("out");
    write(&path, "old").unwrap();
    let failed = write_file(&path, |out| {
        out.write_all(&[7; 1 << 20])?;
        Err::<(), _>(io::Error::other("no more"))
    });
    assert_eq!(failed.unwrap_err().to_string(), "no more");
    assert_eq!((fs::read_to_string(&path).unwrap().as_str(), folder.names().len()), ("old", 1));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    let refused = write(&path, "new").unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    assert_eq!((fs::read_to_string(&path).unwrap().as_str(), folder.names().len()), ("old", 1));
    assert_eq!(write(&folder.0, "x").unwrap_err().kind(), io::ErrorKind::IsADirectory);
    assert_eq!(write(&folder.at("no/out"), "x").unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(write(&path.join("out"), "x").unwrap_err().kind(), io::ErrorKind::NotADirectory);
}

#[test]
fn links_are_followed_and_stay() {
    let folder = Folder::new("links_are_followed");
    fs::create_dir(folder.at("inner")).unwrap();
    symlink("inner/real", folder.at("one")).unwrap();
    symlink("one", folder.at("two")).unwrap();
    for text in ["into nothing", "into a file"] {
        write(&folder.at("two"), text).unwrap();
        assert_eq!(fs::read_to_string(folder.at("inner/real")).unwrap(), text);
        assert!(fs::symlink_metadata(folder.at("one")).unwrap().is_symlink());
        assert!(fs::symlink_metadata(folder.at("two")).unwrap().is_symlink());
    }
    assert_eq!(folder.names(), ["inner", "one", "two"]);
    symlink("loop", folder.at("loop")).unwrap();
    assert!(write(&folder.at("loop"), "x").is_err());
}

#[test]
fn devices_and_pipes_are_written_to() {
    let folder = Folder::new("devices_and_pipes");
    // By way of a link: a fault here must not replace the machine's device.
    symlink("/dev/full", folder.at("full")).unwrap();
    let full = write(&folder.at("full"), "x").unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    assert!(fs::symlink_metadata(folder.at("full")).unwrap().is_symlink());
    let pipe = folder.at("pipe");
    rustix::fs::mknodat(CWD, &pipe, rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o600), 0)
        .unwrap();
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || {
            let mut text = String::new();
            File::open(pipe).unwrap().read_to_string(&mut text).unwrap();
            text
        }
    });
    write(&pipe, "through the pipe").unwrap();
    assert_eq!(reader.join().unwrap(), "through the pipe");
    assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
    assert_eq!(folder.names(), ["full", "pipe"]);
}

#[test]
fn temporary_names_differ() {
    assert_ne!(temporary_name(), temporary_name());
}
