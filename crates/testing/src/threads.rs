//! The threads of this process.

use std::time::{Duration, Instant};

/// Returns how many threads of this process have a name that begins with `name`, of which the
/// system keeps 15 bytes. Waits until there are `expected`, since a thread has its name only when
/// it begins and is listed until it has gone, for some seconds at most.
///
/// # Panics
/// Where the system does not list threads.
pub fn threads_named(name: &str, expected: usize) -> usize {
    let count = || {
        let tasks = std::fs::read_dir("/proc/self/task").expect("Linux lists threads");
        let names = tasks.filter_map(|task| {
            // A thread may end while the directory is read.
            std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
        });
        names.filter(|own| own.starts_with(name)).count()
    };
    let began = Instant::now();
    loop {
        let now = count();
        if now == expected || began.elapsed() > Duration::from_secs(5) {
            return now;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
