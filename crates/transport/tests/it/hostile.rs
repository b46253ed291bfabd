//! Files and boards with contents that nobody sensible writes: refused, or given up at the
//! deadline; no panic, no signal.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use syncline_testing::{Rng, for_seeds};
use syncline_transport::{Failure, Header, RECORD_WORDS, Session, Transport, Wait, WindowId, shm};

use crate::leftovers::Directory;

/// Long enough to do something, short enough to give up a hundred times.
const SHORT: Duration = Duration::from_millis(20);

/// The file of a group that another process has open, whose first words are a board's.
fn board(directory: &Directory, name: &str, bytes: u64, words: &[u64]) -> File {
    let path = directory.path().join(format!("syncline-{name}"));
    let mut options = File::options();
    let file = options.read(true).write(true).create(true).mode(0o600).open(path).unwrap();
    file.set_len(bytes).unwrap();
    let words: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    file.write_all_at(&words[..words.len().min(bytes as usize)], 0).unwrap();
    // A file that nobody has locked is taken for one that was left behind.
    flock(&file, FlockOperation::NonBlockingLockShared).unwrap();
    file
}

/// Everything that an endpoint can be asked, each with a short deadline.
fn use_endpoint(mut endpoint: impl Transport, rng: &mut Rng) {
    let size = endpoint.shape().size;
    for _ in 0..3 {
        let peer = rng.below(size);
        let fill = &mut |slot: &mut [u8]| {
            slot.fill(1);
            Header::default()
        };
        let _ = endpoint.try_send(peer, 64, fill);
        let _ = endpoint.try_receive(peer, &mut |_, bytes| {
            assert!(bytes.len() <= 4096);
            Ok(())
        });
        let id = endpoint.ticket(peer).window.map_or(WindowId::default(), |(id, _)| id);
        let _ = endpoint.peer_window(peer, id);
        let id = WindowId { place: rng.extreme() & !0xfff, bytes: rng.extreme() };
        let _ = endpoint.peer_window(peer, id);
        if let Ok(Some(window)) = endpoint.allocate(100) {
            // SAFETY: the window is this PE's own.
            unsafe { window.start().write_bytes(7, window.bytes()) };
        }
        let session = Session::enter(&mut endpoint, rng.extreme(), &Wait::timeout(SHORT));
        let _ = session.and_then(|session| session.finish(&Wait::timeout(SHORT)));
        let _ = endpoint.failure().map(|failure| failure.to_string());
    }
}

#[test]
fn boards_of_any_contents_are_refused_or_given_up() {
    let directory = Directory::new("hostile");
    for_seeds("boards_of_any_contents_are_refused_or_given_up", 300, |rng| {
        let name = format!("board-{}", rng.next_u64());
        let magic = u64::from_le_bytes(*b"SYNCLIN2");
        // The header fits in half of the cases: then what is behind it is used.
        let fits = rng.one_in(2);
        let header = match fits {
            true => [2, 2, 4096],
            false => std::array::from_fn(|_| rng.extreme()),
        };
        let mut words = vec![magic];
        words.extend(header);
        let count = if rng.one_in(3) { 4 } else { 1 << 12 };
        let is_zero = rng.one_in(3);
        words.extend((words.len()..count).map(|_| if is_zero { 0 } else { rng.extreme() }));
        if rng.one_in(2) && words.len() > 9 {
            // Both have joined, it says; the records start after the header.
            let records = 128 / 8;
            for member in 0..2 {
                words[records + member * 1_024 / 8] = 1;
            }
            words[4] = if rng.one_in(2) { 0 } else { words[4] };
        }
        let bytes = if fits && !rng.one_in(8) { 64 << 10 } else { rng.extreme() % (64 << 10) };
        let _held = board(&directory, &name, bytes, &words);
        let joined = shm::join(&name, rng.below(2), 2, &directory.options(), &Wait::timeout(SHORT));
        match joined {
            Ok(endpoint) => use_endpoint(endpoint, rng),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        let _ = fs::remove_file(directory.path().join(format!("syncline-{name}")));
    });
}

#[test]
fn what_is_no_file_is_no_group() {
    let directory = Directory::new("no-file");
    let at = |name: &str| directory.path().join(format!("syncline-{name}"));
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, at("fifo"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", at("link")).unwrap();
    fs::create_dir(at("folder")).unwrap();
    for name in ["fifo", "link", "folder"] {
        let joined = shm::join(name, 0, 1, &directory.options(), &Wait::timeout(SHORT));
        joined.unwrap_err();
        assert!(fs::symlink_metadata(at(name)).is_ok(), "{name} is still there");
    }
}

#[test]
fn any_words_are_a_failure() {
    for_seeds("any_words_are_a_failure", 2_000, |rng| {
        let words: [u64; RECORD_WORDS] = std::array::from_fn(|_| rng.extreme());
        let text = Failure::decode(&words).to_string();
        assert!(!text.is_empty() && !text.contains(char::is_control), "{text:?}");
    });
}
