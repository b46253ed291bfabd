//! Random programs give what their serial run gives, bit for bit, in streams of every size.

use syncline_device::Buffer;
use syncline_runtime::stream::{Stream, StreamError, StreamOptions};
use syncline_testing::{Rng, for_seeds};

use super::program::{Features, Program, WORDS, initial};
use super::{LONG, ends, read};

/// Bounds from the tightest to the widest.
fn options(rng: &mut Rng) -> StreamOptions {
    StreamOptions {
        ring_tasks: *rng.pick(&[2, 4, 5, 16, 1024]),
        heap_bytes: *rng.pick(&[8 * WORDS, 1 << 20]),
        edge_pool: *rng.pick(&[1, 4, 4096]),
        map_entries: *rng.pick(&[64, 1 << 16]),
        workers: 1 + rng.below(3),
        help: !rng.one_in(3),
    }
}

fn buffers(stream: &Stream, program: &Program) -> Vec<Buffer> {
    let make = |buffer| stream.buffer_of(&initial(buffer)).expect("small");
    (0..program.buffers).map(make).collect()
}

fn check(rng: &mut Rng, features: Features) {
    let program = Program::random(rng, 60, features);
    let options = options(rng);
    let stream = Stream::new(options).expect("valid options");
    let buffers = buffers(&stream, &program);
    program.submit(&stream, &buffers);
    stream.wait_all_within(LONG).expect("nothing fails");
    let found: Vec<_> = buffers.iter().map(|buffer| read(&stream, buffer)).collect();
    assert_eq!(found, program.run_serially(), "{options:?}\n{program:#?}");
}

#[test]
fn plain_programs_equal_their_serial_run() {
    ends(|| {
        for_seeds("plain_programs_equal_their_serial_run", 250, |rng| {
            check(rng, Features::default());
        });
    });
}

#[test]
fn programs_with_outputs_manual_scopes_and_children_equal_their_serial_run() {
    let features = Features { manual: true, children: true, outputs: true, failures: false };
    ends(move || for_seeds("programs_with_outputs", 250, |rng| check(rng, features)));
}

#[test]
fn failures_take_exactly_their_dependants_with_them_and_keep_their_cause() {
    let features = Features { manual: true, children: true, outputs: true, failures: true };
    ends(move || {
        for_seeds("failures_take_exactly_their_dependants", 250, |rng| {
            let program = Program::random(rng, 50, features);
            let options = StreamOptions { map_entries: 1 << 16, ..options(rng) };
            let stream = Stream::new(options).expect("valid options");
            let buffers = buffers(&stream, &program);
            let handles = program.submit(&stream, &buffers);
            let origins = program.origins();
            for (at, handle) in handles.iter().enumerate() {
                let found = match stream.wait_within(handle, LONG) {
                    Ok(()) => None,
                    Err(StreamError::TaskFailed { failure, .. }) => Some(failure.task),
                    Err(other) => panic!("step {at}: {other}"),
                };
                let expected = origins[at].map(|origin| handles[origin].id());
                assert_eq!(found, expected, "step {at}\n{options:?}\n{program:#?}");
            }
            let failed = origins.iter().flatten().count();
            assert_eq!(stream.wait_all_within(LONG).is_err(), failed > 0);
            let found: Vec<_> = buffers.iter().map(|buffer| read(&stream, buffer)).collect();
            assert_eq!(found, program.run_serially(), "{options:?}\n{program:#?}");
            assert_eq!(stream.stats().failed, failed as u64);
        })
    });
}

#[test]
fn two_threads_submit_to_one_stream() {
    ends(|| {
        for_seeds("two_threads_submit_to_one_stream", 40, |rng| {
            let programs: Vec<_> =
                (0..2).map(|_| Program::random(rng, 60, Features::default())).collect();
            let stream = Stream::new(options(rng)).expect("valid options");
            std::thread::scope(|threads| {
                for program in &programs {
                    let stream = &stream;
                    threads.spawn(move || {
                        let buffers = buffers(stream, program);
                        program.submit(stream, &buffers);
                        let found: Vec<_> =
                            buffers.iter().map(|buffer| read(stream, buffer)).collect();
                        assert_eq!(found, program.run_serially());
                    });
                }
            });
            stream.wait_all_within(LONG).expect("nothing fails");
        })
    });
}
