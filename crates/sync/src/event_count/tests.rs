use std::sync::atomic::AtomicU64;
use std::thread;

use super::*;

/// Two threads hand a count back and forth and never spin, so that each hand-over may park.
#[test]
fn no_wake_up_is_lost() {
    barrier::prepare();
    let sides: [(AtomicU64, EventCount); 2] = Default::default();
    let wait = |side: usize, round| {
        let (count, event) = &sides[side];
        assert!(event.wait_until(Spin::NONE, None, || count.load(Ordering::Acquire) >= round));
    };
    let publish = |side: usize, round| {
        let (count, event) = &sides[side];
        count.store(round, Ordering::Release);
        event.notify();
    };
    let rounds = 2_000;
    thread::scope(|threads| {
        threads.spawn(|| {
            for round in 1..=rounds {
                wait(0, round);
                publish(1, round);
            }
        });
        for round in 1..=rounds {
            publish(0, round);
            wait(1, round);
        }
    });
}

#[test]
fn a_deadline_ends_a_wait() {
    let event = EventCount::<OneProcess>::new();
    assert!(!event.wait_until(Spin::NONE, Some(Instant::now()), || false));
    let soon = Instant::now() + Duration::from_millis(2);
    assert!(!event.wait_until(Spin::NONE, Some(soon), || false));
    assert!(Instant::now() >= soon);
    event.park(event.epoch(), Some(Instant::now()));
    event.park(event.epoch().wrapping_sub(1), None);
}

/// The waiter parks in another mapping of the same memory: the system must find it by page.
#[cfg(target_os = "linux")]
#[test]
fn a_waiter_in_another_mapping_is_woken() {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

    let bytes = 4096;
    let file = memfd_create("event-count", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, bytes as u64).unwrap();
    let map = || {
        let flags = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping of a file of that length, which only this test knows.
        unsafe { mmap(std::ptr::null_mut(), bytes, flags, MapFlags::SHARED, &file, 0) }.unwrap()
    };
    let places = [map(), map()];
    // SAFETY: zero bytes are an event count; both mappings live until the threads have ended, and
    // all access is atomic.
    let [near, far] = places.map(|at| unsafe { &*at.cast::<EventCount<AcrossProcesses>>() });
    assert_eq!(size_of_val(near), 8);
    thread::scope(|threads| {
        let seen = far.epoch();
        let waiter = threads.spawn(move || {
            while far.epoch() == seen {
                far.park(seen, None);
            }
        });
        // Parked, as far as can be seen; an earlier event would be found by its count.
        while near.waiters.load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
        near.wake_all();
        waiter.join().unwrap();
    });
    // SAFETY: mapped above, and no reference is used any more.
    places.into_iter().for_each(|at| unsafe { munmap(at, bytes) }.unwrap());
}
