//! The file behind a group: named by one who makes it, taken for a group when it is complete, and
//! nameless as soon as all know it.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::fs::{self, AtFlags, CWD, FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::{JoinError, Options};
use crate::board::{Board, BoardState, Layout};
use crate::failure::Shape;
use crate::local;
use crate::region::{PAGE, Region, pages};
use crate::{Phase, Wait, Window, WindowId};

/// What the names of all groups' files start with.
const PREFIX: &str = "syncline-";

const PERMISSIONS: Mode = Mode::RUSR.union(Mode::WUSR);

/// A group's file, mapped.
///
/// While any process has it open, a shared lock says so; a file that nobody has locked was left
/// behind.
pub(crate) struct Segment {
    file: File,
    path: PathBuf,
    /// The board at the start of the file.
    pub board: Board,
    /// What the group's maker chose.
    pub shape: Shape,
}

impl Segment {
    /// Opens the file of group `name`, or makes it.
    pub(super) fn open_or_create(
        name: &str,
        rank: usize,
        options: &Options,
        layout: Layout,
        wait: &Wait<'_>,
    ) -> Result<Self, JoinError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if name.is_empty() || name.len() > 200 || !name.bytes().all(is_plain) {
            return Err(JoinError::Name(name.to_owned()));
        }
        let path = options.directory.join(format!("{PREFIX}{name}"));
        loop {
            let made = match Self::open_existing(&path)? {
                Found::Group(segment) => return Ok(*segment),
                Found::Nothing => Self::create(&path, options, layout)?,
                Found::Busy => None,
            };
            if let Some(segment) = made {
                return Ok(segment);
            }
            // Somebody else is opening, clearing or making it at this moment.
            if let Some(failure) = wait.until(Phase::Join, rank).expired(rank) {
                return Err(failure.into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Makes the file of a group, if nobody else does: whoever names one first reserves its memory.
    ///
    /// A file has its name only while it is locked, and says that it is being made until it is
    /// complete: nobody takes it for a group before, and what a maker that is killed leaves is
    /// known as such. `None` if the name is taken by now.
    fn create(path: &Path, options: &Options, layout: Layout) -> Result<Option<Self>, JoinError> {
        let directory = &options.directory;
        sweep(directory);
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = File::from(
            fs::open(directory, flags, PERMISSIONS).map_err(system("make a file in", directory))?,
        );
        // Whatever the process forbids for its new files.
        fs::fchmod(&file, PERMISSIONS).map_err(system("make a file in", directory))?;
        let no_room = |cause, bytes| match cause {
            Errno::NOSPC | Errno::FBIG => {
                JoinError::NoSpace { directory: directory.clone(), bytes }
            }
            cause => system("reserve memory in", directory)(cause),
        };
        let bytes = pages(layout.bytes);
        Board::announce(&file).map_err(|cause| no_room(cause, bytes))?;
        fs::flock(&file, FlockOperation::NonBlockingLockShared).map_err(system("lock", path))?;
        let own = format!("/proc/self/fd/{}", file.as_raw_fd());
        match fs::linkat(CWD, own, CWD, path, AtFlags::SYMLINK_FOLLOW) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Ok(None),
            Err(cause) => return Err(system("name", path)(cause)),
        }
        let made = Self::complete(&file, bytes, layout);
        let board = made.map_err(|cause| {
            remove_if_same(&file, path);
            no_room(cause, bytes)
        })?;
        let shape = board.shape();
        Ok(Some(Self { file, path: path.to_owned(), board, shape }))
    }

    fn complete(file: &File, bytes: usize, layout: Layout) -> Result<Board, Errno> {
        // Reserved at once: a write into a full file system would end the process by a signal.
        fs::fallocate(file, FallocateFlags::empty(), 0, bytes as u64)?;
        let region = Region::shared(file.as_fd(), 0, bytes)?;
        let board = Board::new(Arc::new(region), layout);
        board.initialise();
        Ok(board)
    }

    fn open_existing(path: &Path) -> Result<Found, JoinError> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match fs::open(path, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(Found::Nothing),
            Err(cause) => return Err(system("open", path)(cause)),
        };
        let foreign = |problem| JoinError::Foreign { path: path.to_owned(), problem };
        let status = fs::fstat(&file).map_err(system("look at", path))?;
        if fs::FileType::from_raw_mode(status.st_mode) != fs::FileType::RegularFile {
            return Err(foreign("it is no regular file"));
        }
        if status.st_uid != rustix::process::geteuid().as_raw() {
            return Err(foreign("another user owns it"));
        }
        if status.st_mode & 0o777 != 0o600 {
            return Err(foreign("its permissions are not 0600"));
        }
        if remove_if_left(&file, path) {
            return Ok(Found::Nothing);
        }
        match fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(Found::Busy),
            Err(cause) => return Err(system("lock", path)(cause)),
        }
        if !is_same(&file, path) || Board::state(&file) == Some(BoardState::InTheMaking) {
            return Ok(Found::Busy);
        }
        let status = fs::fstat(&file).map_err(system("look at", path))?;
        let bytes = status.st_size as usize;
        if bytes < PAGE {
            return Err(foreign("it is too short"));
        }
        let region = Region::shared(file.as_fd(), 0, PAGE).map_err(system("map", path))?;
        let shape = Board::shape_in(&region).ok_or(foreign("it has another format"))?;
        let Shape { size, depth, slot_bytes } = shape;
        let (_, layout) = local::layout(size, &local::Options { depth, slot_bytes })
            .map_err(|_| foreign("its header describes no group"))?;
        if pages(layout.bytes) > bytes {
            return Err(foreign("it is shorter than its header says"));
        }
        let region = Region::shared(file.as_fd(), 0, layout.bytes).map_err(system("map", path))?;
        let board = Board::new(Arc::new(region), layout);
        Ok(Found::Group(Box::new(Self { file, path: path.to_owned(), board, shape })))
    }

    /// Removes the name, if it still is this file's.
    pub(super) fn unlink(&self) {
        remove_if_same(&self.file, &self.path);
    }

    /// A new window at the end of the file.
    pub(super) fn allocate(segment: &Arc<Self>, bytes: usize) -> Result<Window, String> {
        let length = bytes.max(1).checked_next_multiple_of(PAGE);
        let length = length.ok_or_else(|| format!("{bytes} bytes exceed the address space"))?;
        let directory = || segment.path.parent().unwrap_or(&segment.path).display();
        let end = &segment.board.header().end;
        let offset = end.fetch_add(length as u64, Ordering::Relaxed);
        // Every process of the group can write it, and it must not lead into the board.
        let is_behind = offset >= segment.board.bytes() && offset.is_multiple_of(PAGE as u64);
        if !is_behind || offset.checked_add(length as u64).is_none_or(|end| end > i64::MAX as u64) {
            return Err(format!("the group's file is damaged: its end is said to be at {offset}"));
        }
        fs::fallocate(&segment.file, FallocateFlags::empty(), offset, length as u64)
            .map_err(|errno| format!("{} has no room for {length} bytes: {errno}", directory()))?;
        let region = Region::shared(segment.file.as_fd(), offset, length)
            .map_err(|errno| format!("cannot map a window of {length} bytes: {errno}"))?;
        let owned = Owned { segment: segment.clone(), offset, length: length as u64 };
        let id = WindowId { place: offset, bytes: length as u64 };
        Ok(Window { id, region: Arc::new(region), group: None, _owned: Some(Arc::new(owned)) })
    }

    /// A window that `peer` has made.
    pub(super) fn open(&self, peer: usize, id: WindowId) -> Result<Window, String> {
        let size = fs::fstat(&self.file).map_err(|errno| errno.to_string())?.st_size as u64;
        let WindowId { place, bytes } = id;
        let is_whole = |number: u64| number.is_multiple_of(PAGE as u64);
        let is_inside = is_whole(place)
            && is_whole(bytes)
            && bytes > 0
            && place >= self.board.bytes()
            && place.checked_add(bytes).is_some_and(|end| end <= size);
        if !is_inside {
            return Err(format!("PE {peer} announced a window that it does not have"));
        }
        let region = Region::shared(self.file.as_fd(), place, bytes as usize)
            .map_err(|errno| format!("cannot map a window of PE {peer}: {errno}"))?;
        Ok(Window { id, region: Arc::new(region), group: None, _owned: None })
    }
}

/// What there is under a group's name.
enum Found {
    Group(Box<Segment>),
    Nothing,
    /// A file that somebody is making, or clearing away.
    Busy,
}

/// Gives a window's memory back when its owner has let go of it.
struct Owned {
    segment: Arc<Segment>,
    offset: u64,
    length: u64,
}

impl Drop for Owned {
    fn drop(&mut self) {
        // In a group that has failed a late peer may still be writing here. It would need the pages
        // again, and get a signal where there are none left.
        if self.segment.board.verdict().1.is_some() {
            return;
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // Failing that, the memory goes with the file.
        let _ = fs::fallocate(&self.segment.file, flags, self.offset, self.length);
    }
}

fn system<'a>(what: &'static str, path: &'a Path) -> impl Fn(Errno) -> JoinError + 'a {
    move |cause| JoinError::System { what, path: path.to_owned(), cause }
}

/// Whether `path` names `file`.
fn is_same(file: &File, path: &Path) -> bool {
    match (fs::fstat(file), fs::lstat(path)) {
        (Ok(ours), Ok(named)) => (ours.st_dev, ours.st_ino) == (named.st_dev, named.st_ino),
        _ => false,
    }
}

/// Removes the name of a group's file that no process has: everyone who had was killed before the
/// group was complete.
fn remove_if_left(file: &File, path: &Path) -> bool {
    let is_left = Board::state(file).is_some()
        && fs::flock(file, FlockOperation::NonBlockingLockExclusive).is_ok();
    if is_left {
        remove_if_same(file, path);
    }
    is_left
}

/// Removes what groups of this user have left in `directory`.
///
/// A file has its name only while it is locked, so that one which can be locked exclusively belongs
/// to nobody. Whoever opens it at this moment finds it taken and tries again.
pub(crate) fn sweep(directory: &Path) {
    let Ok(entries) = directory.read_dir() else { return };
    let is_ours = |entry: &std::fs::DirEntry| {
        entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes())
    };
    for entry in entries.filter_map(Result::ok).filter(is_ours) {
        let path = entry.path();
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(file) = fs::open(&path, flags, Mode::empty()).map(File::from) else { continue };
        let is_group = |status: &fs::Stat| {
            status.st_uid == rustix::process::geteuid().as_raw()
                && fs::FileType::from_raw_mode(status.st_mode) == fs::FileType::RegularFile
                && status.st_mode & 0o777 == PERMISSIONS.as_raw_mode()
        };
        if fs::fstat(&file).is_ok_and(|status| is_group(&status)) {
            remove_if_left(&file, &path);
        }
    }
}

fn remove_if_same(file: &File, path: &Path) {
    if is_same(file, path) {
        // Gone already is as good.
        let _ = fs::unlink(path);
    }
}
