//! Memory follows the live tasks; the number of edges does not follow the submitted ones.

use syncline_deps::*;
use syncline_tensor::*;
use syncline_testing::Rng;

/// Submits a task and retires the one `lag` before it; the number of its edges.
fn stream(submitter: &mut Submitter, args: &[Arg], lag: u64) -> usize {
    let mut edges = 0;
    let task = submitter.submit(DepInputs { args, deps: &[] }, |_| edges += 1).unwrap();
    if task.sequence() >= lag {
        assert!(submitter.retire(TaskId::new(0, task.sequence() - lag)));
    }
    edges
}

#[test]
fn memory_follows_what_is_live_through_ever_new_views() {
    let mut submitter = Submitter::new(SubmitOptions::default());
    let buffer = submitter.create_buffer(1 << 40);
    let mut rng = Rng::new(7);
    let mut largest = 0;
    for at in 0..60_000u64 {
        let start = 64 * at + rng.range(0..64);
        let written = View::bytes_at(start, rng.range(1..200)).unwrap();
        let read = View::strided(Dtype::U8, start, &[4, 32], &[4096, 1]).unwrap();
        stream(&mut submitter, &[Arg::inout(buffer, written), Arg::input(buffer, read)], 50);
        if at == 6_000 {
            largest = submitter.stats().map.bytes;
        }
    }
    let stats = submitter.stats().map;
    assert!(stats.views < 8_000 && stats.entries < 16_000, "{stats:?}");
    assert!(stats.bytes <= 3 * largest, "{} bytes, once {largest}", stats.bytes);
}

#[test]
fn memory_follows_what_is_live_under_many_readers() {
    let mut submitter = Submitter::new(SubmitOptions::default());
    let (buffer, whole) = (submitter.create_buffer(64), View::bytes_at(0, 64).unwrap());
    for _ in 0..100_000 {
        stream(&mut submitter, &[Arg::input(buffer, whole)], 10);
    }
    let stats = submitter.stats().map;
    assert!(stats.entries < 64 && stats.bytes < 1 << 16, "{stats:?}");
    assert!(stream(&mut submitter, &[Arg::inout(buffer, whole)], 10) <= 10);
}

#[test]
fn memory_follows_the_buffers_that_exist() {
    let mut submitter = Submitter::new(SubmitOptions::default());
    let whole = View::bytes_at(0, 64).unwrap();
    for _ in 0..20_000 {
        let buffer = submitter.create_buffer(64);
        stream(&mut submitter, &[Arg::output(buffer, whole)], 1_000_000);
        stream(&mut submitter, &[Arg::inout(buffer, whole)], 1_000_000);
        submitter.release_buffer(buffer).unwrap();
    }
    let stats = submitter.stats().map;
    assert!(stats.views == 0 && stats.bytes < 1 << 16, "{stats:?}");
}

/// Readers of a whole whose parts are written by others: no single write covers it, and yet its
/// readers must not add up.
#[test]
fn edges_stay_few_when_no_write_covers_what_is_read() {
    let mut submitter = Submitter::new(SubmitOptions { full: true, ..SubmitOptions::default() });
    let buffer = submitter.create_buffer(64);
    let bytes = |start, count| View::bytes_at(start, count).unwrap();
    let never = u64::MAX;
    stream(&mut submitter, &[Arg::inout(buffer, bytes(0, 64))], never);
    for round in 0..1_000 {
        let left = stream(&mut submitter, &[Arg::inout(buffer, bytes(0, 40))], never);
        let right = stream(&mut submitter, &[Arg::inout(buffer, bytes(30, 34))], never);
        let reader = stream(&mut submitter, &[Arg::input(buffer, bytes(0, 64))], never);
        assert!(left + right + reader <= 9, "{left} {right} {reader} in round {round}");
    }
    assert!(submitter.stats().map.entries <= 8);
}

/// The same for groups: members that are ordered by accesses elsewhere replace one another.
#[test]
fn edges_stay_few_when_a_group_is_interrupted_elsewhere() {
    for interruption in [Access::Input, Access::InOut, Access::Reduce] {
        let options = SubmitOptions { full: true, ..SubmitOptions::default() };
        let mut submitter = Submitter::new(options);
        let buffer = submitter.create_buffer(64);
        let bytes = |start, count| View::bytes_at(start, count).unwrap();
        for round in 0..1_000 {
            let mut edges = 0;
            for (access, view) in
                [(Access::Commutative, bytes(0, 64)), (interruption, bytes(20, 10))]
            {
                edges += stream(&mut submitter, &[Arg::new(access, buffer, view)], u64::MAX);
            }
            assert!(edges <= 4, "{edges} edges in round {round} with {interruption}");
        }
    }
}

/// After tiles were used and overwritten as a whole, they cost nothing any more.
#[test]
fn tiles_that_are_overwritten_as_a_whole_are_forgotten() {
    let mut submitter = Submitter::new(SubmitOptions::default());
    let buffer = submitter.create_buffer(1 << 20);
    let whole = View::bytes_at(0, 1 << 20).unwrap();
    for tiles in [100, 2_000] {
        for at in 0..tiles {
            let tile = View::bytes_at(at * 64, 64).unwrap();
            stream(&mut submitter, &[Arg::inout(buffer, tile)], u64::MAX);
        }
        let edges = stream(&mut submitter, &[Arg::inout(buffer, whole)], u64::MAX);
        // The tiles, and the whole before them, from which they may not have left a byte.
        assert!((tiles as usize..=tiles as usize + 1).contains(&edges), "{edges} of {tiles}");
        for _ in 0..200 {
            assert_eq!(stream(&mut submitter, &[Arg::inout(buffer, whole)], u64::MAX), 1);
        }
        let stats = submitter.stats().map;
        assert_eq!((stats.views, stats.entries), (1, 1));
    }
}
