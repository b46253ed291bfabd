//! Noticing that another process has ended, in whatever way.

use std::os::fd::OwnedFd;
use std::sync::Mutex;

use syncline_sync::lock;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// A handle on each process of the group, opened when it is first asked after.
///
/// A handle refers to the process and not to its number, so that a number given to another process
/// later does not deceive. It becomes readable at the process's end, also while nobody has reaped
/// it.
pub(crate) struct Processes {
    /// The namespace of process numbers that this process lives in; 0 if unknown.
    pub namespace: u64,
    handles: Mutex<Vec<Handle>>,
}

enum Handle {
    Unknown,
    Open(OwnedFd),
    /// The system cannot tell: only deadlines protect against this process.
    Unavailable,
    Dead,
}

impl Processes {
    /// Of a group of `size`.
    pub(super) fn new(size: usize) -> Self {
        let namespace = rustix::fs::stat("/proc/self/ns/pid").map_or(0, |status| status.st_ino);
        Self { namespace, handles: Mutex::new((0..size).map(|_| Handle::Unknown).collect()) }
    }

    /// Whether the process `pid` of `namespace`, which is PE `rank`, has ended.
    pub(super) fn has_died(&self, rank: usize, pid: u32, namespace: u64) -> bool {
        let mut handles = lock(&self.handles);
        let handle = &mut handles[rank];
        if matches!(handle, Handle::Unknown) {
            let is_comparable = namespace == self.namespace && namespace != 0;
            *handle = if is_comparable { Handle::open(pid) } else { Handle::Unavailable };
        }
        let ended = match handle {
            Handle::Open(fd) => {
                let now = Timespec { tv_sec: 0, tv_nsec: 0 };
                matches!(poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&now)), Ok(1))
            }
            Handle::Dead => true,
            Handle::Unknown | Handle::Unavailable => false,
        };
        if ended {
            *handle = Handle::Dead;
        }
        ended
    }
}

impl Handle {
    fn open(pid: u32) -> Self {
        // Another process wrote it.
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let Some(pid) = pid else { return Handle::Unavailable };
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(fd) => Handle::Open(fd),
            Err(Errno::SRCH) => Handle::Dead,
            Err(_) => Handle::Unavailable,
        }
    }
}
