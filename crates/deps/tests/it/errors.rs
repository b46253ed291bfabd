//! Everything that is refused, and that nothing of it remains.

use syncline_deps::*;
use syncline_tensor::*;
use syncline_testing::for_seeds;

fn view(start: u64, bytes: u64) -> View {
    View::bytes_at(start, bytes).unwrap()
}

/// Two buffers of 64 bytes and two tasks.
fn some_program() -> Submitter {
    let mut submitter = Submitter::new(SubmitOptions { ring: 2, ..SubmitOptions::default() });
    let (a, b) = (submitter.create_buffer(64), submitter.create_buffer(64));
    for args in [[Arg::inout(a, view(0, 64))], [Arg::input(b, view(0, 32))]] {
        submitter.submit(DepInputs { args: &args, deps: &[] }, |_| ()).unwrap();
    }
    submitter
}

fn refuse(submitter: &mut Submitter, args: &[Arg], deps: &[TaskId]) -> SubmitError {
    submitter.submit(DepInputs { args, deps }, |edge| panic!("{edge:?} of a bad task")).unwrap_err()
}

/// Submissions that must be refused, with the errors and what they say.
fn bad_submissions() -> Vec<(Vec<Arg>, Vec<TaskId>, SubmitError, &'static str)> {
    let (a, b, unknown) = (BufferId(0), BufferId(1), BufferId(77));
    // Good on its own, conflicting, and in part new: what a half-done submit would leave behind.
    let good = [Arg::inout(a, view(0, 64)), Arg::output(b, view(3, 9))];
    let with = |bad: Arg| good.into_iter().chain([bad]).collect::<Vec<_>>();
    let flat = View::strided(Dtype::F32, 0, &[2, 4, 4], &[16, 0, 4]).unwrap();
    let task = |ring, sequence| TaskId::new(ring, sequence);
    let next = task(2, 2);
    vec![
        (
            with(Arg::input(unknown, view(0, 1))),
            vec![],
            SubmitError::UnknownBuffer { arg: 2, buffer: unknown },
            "argument 2 is in buffer b77, which was never declared or has been released",
        ),
        (
            with(Arg::input(b, view(60, 5))),
            vec![],
            SubmitError::OutsideBuffer { arg: 2, buffer: b, end: 65, bytes: 64 },
            "argument 2 ends at byte 65 of buffer b1, which has 64 bytes",
        ),
        (
            with(Arg::new(Access::NoDep, b, view(60, 5))),
            vec![],
            SubmitError::OutsideBuffer { arg: 2, buffer: b, end: 65, bytes: 64 },
            "shrink the view",
        ),
        (
            with(Arg::inout(a, flat)),
            vec![],
            SubmitError::BroadcastWrite { arg: 2, access: Access::InOut, buffer: a, dim: 1 },
            "through a zero stride in dimension 1: only reads may broadcast",
        ),
        (
            good.to_vec(),
            vec![task(2, 0), task(2, 2)],
            SubmitError::DepNeverIssued { position: 1, dep: task(2, 2), next },
            "explicit dependency 1 is on task 2:2, which was never issued",
        ),
        (
            good.to_vec(),
            vec![task(0, 0)],
            SubmitError::DepNeverIssued { position: 0, dep: task(0, 0), next },
            "task 0, which was never issued",
        ),
        (
            vec![Arg::input(a, view(0, 64)); (1 << 16) + 1],
            vec![],
            SubmitError::TooManyArgs { args: 65537, max: 65536 },
            "a task with 65537 arguments: at most 65536",
        ),
    ]
}

#[test]
fn each_bad_submission_has_its_error_and_leaves_nothing() {
    for (args, deps, error, text) in bad_submissions() {
        let (mut submitter, mut untouched) = (some_program(), some_program());
        for _ in 0..3 {
            assert_eq!(refuse(&mut submitter, &args, &deps), error);
        }
        assert!(error.to_string().contains(text), "{error}");
        let (ours, theirs) = (submitter.stats(), untouched.stats());
        assert_eq!((ours.tasks, ours.edges), (theirs.tasks, theirs.edges));
        assert_eq!((ours.map.views, ours.map.entries), (theirs.map.views, theirs.map.entries));
        // The next tasks are as if the bad one had never come.
        for args in [[Arg::inout(BufferId(0), view(1, 2))], [Arg::output(BufferId(1), view(0, 64))]]
        {
            let (mut after, mut expected) = (Vec::new(), Vec::new());
            let inputs = DepInputs { args: &args, deps: &[TaskId::new(2, 0)] };
            let task = submitter.submit(inputs, |edge| after.push(edge));
            assert_eq!(task, untouched.submit(inputs, |edge| expected.push(edge)));
            assert_eq!(after, expected);
        }
    }
}

#[test]
fn a_zero_stride_that_was_read_before_may_still_not_be_written() {
    let mut submitter = some_program();
    let flat = View::strided(Dtype::F32, 0, &[4, 4], &[0, 4]).unwrap();
    let args = [Arg::input(BufferId(0), flat)];
    submitter.submit(DepInputs { args: &args, deps: &[] }, |_| ()).unwrap();
    for access in Access::ALL.into_iter().filter(|access| access.writes()) {
        let args = [Arg::new(access, BufferId(0), flat)];
        let error = SubmitError::BroadcastWrite { arg: 0, access, buffer: BufferId(0), dim: 0 };
        assert_eq!(refuse(&mut submitter, &args, &[]), error);
    }
}

#[test]
fn bad_submissions_in_between_change_nothing() {
    for_seeds("bad_submissions_in_between_change_nothing", 20, |rng| {
        let (mut plain, mut disturbed) = (some_program(), some_program());
        let bad = bad_submissions();
        for _ in 0..60 {
            if rng.one_in(2) {
                // Those about dependencies are bad only for the first task.
                let (args, ..) = &bad[rng.below(4)];
                refuse(&mut disturbed, args, &[]);
            }
            let start = rng.range(0..60);
            let access = *rng.pick(&Access::ALL);
            let place = view(start, rng.range(1..64 - start + 1));
            let args = [Arg::new(access, BufferId(rng.range(0..2)), place)];
            let inputs = DepInputs { args: &args, deps: &[] };
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            disturbed.submit(inputs, |edge| ours.push(edge)).unwrap();
            plain.submit(inputs, |edge| theirs.push(edge)).unwrap();
            ours.sort_by_key(|edge| edge.pred);
            theirs.sort_by_key(|edge| edge.pred);
            assert_eq!(ours, theirs);
        }
    });
}

#[test]
fn buffers_are_declared_once_and_released_once() {
    let mut submitter = Submitter::new(SubmitOptions::default());
    let buffer = BufferId(u64::MAX);
    submitter.declare_buffer(buffer, 8).unwrap();
    let exists = SubmitError::BufferExists { buffer, bytes: 8 };
    assert_eq!(submitter.declare_buffer(buffer, 16), Err(exists));
    assert_ne!(submitter.create_buffer(8), buffer);
    submitter.release_buffer(buffer).unwrap();
    assert_eq!(submitter.release_buffer(buffer), Err(SubmitError::NoSuchBuffer { buffer }));
    assert_eq!(submitter.buffer_bytes(buffer), None);
    let args = [Arg::input(buffer, view(0, 0))];
    assert_eq!(
        refuse(&mut submitter, &args, &[]),
        SubmitError::UnknownBuffer { arg: 0, buffer },
        "also through an empty view"
    );
}

#[test]
fn scopes_are_left_as_often_as_entered() {
    let mut submitter = Submitter::new(SubmitOptions::default());
    submitter.enter_scope(ScopeKind::Manual);
    assert_eq!((submitter.scope_kind(), submitter.scope_depth()), (ScopeKind::Manual, 1));
    assert_eq!(submitter.leave_scope(), Ok(ScopeKind::Manual));
    let error = submitter.leave_scope().unwrap_err();
    assert_eq!(error, SubmitError::UnbalancedScope { entered: 1, left: 2 });
    assert_eq!(submitter.scope_depth(), 0);
}

#[test]
fn ids_that_were_never_issued_cannot_be_retired() {
    let mut submitter = some_program();
    assert!(!submitter.retire(TaskId::new(2, 2)) && !submitter.retire(TaskId::new(0, 0)));
    assert!(submitter.is_live(TaskId::new(2, 1)) && !submitter.is_live(TaskId::new(2, 2)));
    assert!(submitter.retire(TaskId::new(2, 1)) && !submitter.is_live(TaskId::new(2, 1)));
}
