//! Successive runs that are under way at the same time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use syncline_device::{CancelToken, Deadline};
use syncline_plan::{Machine, TaskIndex};
use syncline_runtime::replay::{
    Bindings, BoundPlan, LoadOptions, LoadedPlan, RunError, Steal, TaskBody,
};

use super::{compile, devices, increment, words, zeroed};

const STEALS: [Steal; 2] = [Steal::Off, Steal::On];

/// Two independent columns of `rounds` tasks each on two lanes.
fn columns(rounds: u64, steal: Steal, mut body: impl FnMut(TaskIndex) -> TaskBody) -> LoadedPlan {
    let plan = compile(&words(2, rounds), &Machine::cpu(2));
    let options = LoadOptions::default().with_steal(steal);
    LoadedPlan::load_with(plan, devices(), |task, _| Some(body(task.index())), options).unwrap()
}

fn wait_until(what: impl Fn() -> bool) -> Result<(), String> {
    let until = Instant::now() + Duration::from_secs(60);
    while !what() {
        if Instant::now() > until {
            return Err("it never came".to_owned());
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

#[test]
fn a_run_begins_while_the_one_before_is_still_under_way() {
    for steal in STEALS {
        let firsts = Arc::new(AtomicU64::new(0));
        let mut loaded = columns(1, steal, |task| {
            let firsts = Arc::clone(&firsts);
            TaskBody::new(move |_| match task.0 {
                0 => {
                    firsts.fetch_add(1, Ordering::SeqCst);
                    Ok(())
                }
                // In each run the second column waits for the first one of the run after.
                _ => wait_until(|| firsts.load(Ordering::SeqCst) >= 2),
            })
        });
        let buffer = zeroed(16);
        let bindings = Bindings::new().bind("words", &buffer);
        let mut bound = loaded.bind(&bindings).unwrap();
        let tickets = [bound.start().unwrap(), bound.start().unwrap()];
        for ticket in tickets {
            ticket.wait().unwrap();
        }
    }
}

#[test]
fn where_data_leave_no_room_runs_come_one_after_the_other() {
    for (steal, lanes) in STEALS.into_iter().zip([1, 2]).chain([(Steal::On, 3), (Steal::Off, 3)]) {
        let plan = compile(&words(1, 5), &Machine::cpu(lanes));
        let options = LoadOptions::default().with_steal(steal);
        let mut loaded =
            LoadedPlan::load_with(plan, devices(), |_, _| Some(increment()), options).unwrap();
        let buffer = zeroed(8);
        let bindings = Bindings::new().bind("words", &buffer);
        let mut bound = loaded.bind(&bindings).unwrap();
        let mut last = None;
        for at in 0..200 {
            // Mixed with plain runs, and most tickets dropped.
            match at % 7 {
                6 => bound.run().unwrap(),
                _ => last = Some(bound.start().unwrap()),
            }
        }
        last.unwrap().wait().unwrap();
        drop(bound);
        assert_eq!(buffer.read::<u64>(0, 1).unwrap(), [1_000], "{steal:?}, {lanes} lanes");
    }
}

#[test]
fn a_failed_run_takes_those_started_after_it_along_and_no_other() {
    for steal in STEALS {
        let runs = Arc::new(AtomicU64::new(0));
        let mut loaded = columns(3, steal, |task| {
            let runs = Arc::clone(&runs);
            TaskBody::new(move |args| {
                // The first task of the first column counts runs; the third one fails.
                if task.0 == 0 && runs.fetch_add(1, Ordering::SeqCst) == 2 {
                    return Err("on purpose".to_owned());
                }
                args.open().slice_mut::<u64>(0).map_err(|error| error.to_string())?[0] += 1;
                Ok(())
            })
        });
        let buffer = zeroed(16);
        let bindings = Bindings::new().bind("words", &buffer);
        let mut bound = loaded.bind(&bindings).unwrap();
        let started: Vec<_> = (0..4).map(|_| bound.start().unwrap()).collect();
        // The failure may be seen before these are started: then they are as any.
        let later: Vec<_> = (0..3).map(|_| bound.start().unwrap()).collect();
        let outcomes: Vec<_> = started.into_iter().map(|ticket| ticket.wait()).collect();
        assert_eq!(outcomes[..2], [Ok(()), Ok(())], "{steal:?}");
        let failed = RunError::Failed {
            task: "word".into(),
            index: TaskIndex(0),
            cause: "on purpose".into(),
        };
        assert_eq!(outcomes[2], Err(failed.clone()), "{steal:?}");
        let rest: Vec<_> =
            outcomes[3..].iter().cloned().chain(later.into_iter().map(|t| t.wait())).collect();
        // Those that were started before the failure was seen end with it, all others run.
        let first_well = rest.iter().position(Result::is_ok).unwrap_or(rest.len());
        assert!(rest[..first_well].iter().all(|outcome| *outcome == Err(failed.clone())));
        assert!(rest[first_well..].iter().all(Result::is_ok), "{rest:?}");
        bound.run().unwrap();
        bound.start().unwrap().wait().unwrap();
    }
}

/// Bodies of the second run that had begun before its failure was known may have run, in its second
/// column too; all of the first run has.
#[test]
fn the_failure_of_a_later_run_does_not_touch_the_one_before() {
    for steal in STEALS {
        let calls: Arc<[AtomicU64; 4]> = Arc::default();
        let has_failed = Arc::new(AtomicBool::new(false));
        let mut loaded = columns(2, steal, |task| {
            let (calls, has_failed) = (Arc::clone(&calls), Arc::clone(&has_failed));
            TaskBody::new(move |args| {
                let run = calls[task.index()].fetch_add(1, Ordering::SeqCst) + 1;
                match (task.0, run) {
                    (0, 2) => {
                        has_failed.store(true, Ordering::SeqCst);
                        return Err("in the second run".to_owned());
                    }
                    // The second column of the first run goes on only when the second run has
                    // failed.
                    (1, 1) => wait_until(|| has_failed.load(Ordering::SeqCst))?,
                    _ => {}
                }
                args.open().slice_mut::<u64>(0).map_err(|error| error.to_string())?[0] += 1;
                Ok(())
            })
        });
        let buffer = zeroed(16);
        let bindings = Bindings::new().bind("words", &buffer);
        let mut bound = loaded.bind(&bindings).unwrap();
        let (first, second) = (bound.start().unwrap(), bound.start().unwrap());
        assert!(matches!(second.wait(), Err(RunError::Failed { .. })), "{steal:?}");
        assert_eq!(first.wait(), Ok(()), "{steal:?}");
        drop(bound);
        let calls = calls.each_ref().map(|calls| calls.load(Ordering::SeqCst));
        // The task that failed was called in both runs, the one behind it in the first one only.
        assert_eq!((calls[0], calls[2]), (2, 1), "{steal:?}");
        assert!((1..=2).contains(&calls[1]) && (1..=2).contains(&calls[3]), "{steal:?}: {calls:?}");
        let words = buffer.read::<u64>(0, 2).unwrap();
        assert_eq!(words, [2, calls[1] + calls[3]], "{steal:?}");
    }
}

#[test]
fn a_ticket_remembers_a_failure_for_as_long_as_it_lives() {
    for steal in STEALS {
        let is_armed = Arc::new(AtomicBool::new(true));
        let mut loaded = columns(2, steal, |_| {
            let is_armed = Arc::clone(&is_armed);
            TaskBody::new(move |_| match is_armed.load(Ordering::SeqCst) {
                true => Err("armed"),
                false => Ok(()),
            })
        });
        let buffer = zeroed(16);
        let bindings = Bindings::new().bind("words", &buffer);
        let mut bound = loaded.bind(&bindings).unwrap();
        let old = bound.start().unwrap();
        wait_until(|| old.has_ended()).unwrap();
        is_armed.store(false, Ordering::SeqCst);
        let well = bound.start().unwrap();
        for _ in 0..3 * BoundPlan::RUNS_MAX {
            bound.start().unwrap().wait().unwrap();
        }
        is_armed.store(true, Ordering::SeqCst);
        bound.run().unwrap_err();
        is_armed.store(false, Ordering::SeqCst);
        bound.run().unwrap();
        drop(bound);
        well.wait().unwrap();
        assert!(matches!(old.wait(), Err(RunError::Failed { .. })), "{steal:?}");
    }
}

#[test]
fn cancels_and_deadlines_stop_runs_that_overlap() {
    for steal in STEALS {
        let is_slow = Arc::new(AtomicBool::new(true));
        let mut loaded = columns(200, steal, |_| {
            let is_slow = Arc::clone(&is_slow);
            TaskBody::new(move |_| {
                if is_slow.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            })
        });
        let token = CancelToken::new();
        loaded.set_cancel(&token);
        let buffer = zeroed(16);
        let bindings = Bindings::new().bind("words", &buffer);
        let mut bound = loaded.bind(&bindings).unwrap();
        let tickets: Vec<_> = (0..3).map(|_| bound.start().unwrap()).collect();
        std::thread::sleep(Duration::from_millis(10));
        token.cancel();
        for ticket in tickets {
            assert_eq!(ticket.wait(), Err(RunError::Cancelled), "{steal:?}");
        }
        // Another token takes the place of the one that was cancelled.
        assert_eq!(bound.start().unwrap().wait(), Err(RunError::Cancelled), "{steal:?}");
        bound.set_cancel(&CancelToken::new());
        let soon = Deadline::after(Duration::from_millis(10));
        let late = bound.start_until(soon).unwrap();
        assert_eq!(late.wait(), Err(RunError::DeadlinePassed), "{steal:?}");
        is_slow.store(false, Ordering::SeqCst);
        bound.start().unwrap().wait().unwrap();
    }
}

/// Earlier runs that take longer than the deadline of the next one end neither it nor themselves.
#[test]
fn a_deadline_holds_while_earlier_runs_are_waited_for() {
    for steal in STEALS {
        let goes_on = Arc::new(AtomicBool::new(false));
        let mut loaded = columns(1, steal, |_| {
            let goes_on = Arc::clone(&goes_on);
            TaskBody::new(move |args| {
                wait_until(|| goes_on.load(Ordering::SeqCst))?;
                args.open().slice_mut::<u64>(0).map_err(|error| error.to_string())?[0] += 1;
                Ok::<(), String>(())
            })
        });
        let buffer = zeroed(16);
        let bindings = Bindings::new().bind("words", &buffer);
        let mut bound = loaded.bind(&bindings).unwrap();
        let started: Vec<_> = (0..BoundPlan::RUNS_MAX).map(|_| bound.start().unwrap()).collect();
        let soon = || Deadline::after(Duration::from_millis(20));
        assert_eq!(bound.run_until(soon()), Err(RunError::DeadlinePassed), "{steal:?}");
        let late = bound.start_until(soon()).unwrap();
        assert!(late.has_ended() && !started[0].has_ended());
        assert_eq!(late.wait(), Err(RunError::DeadlinePassed), "{steal:?}");
        goes_on.store(true, Ordering::SeqCst);
        for ticket in started {
            ticket.wait().unwrap();
        }
        bound.run().unwrap();
        drop(bound);
        let runs = BoundPlan::RUNS_MAX + 1;
        assert_eq!(buffer.read::<u64>(0, 2).unwrap(), [runs; 2], "{steal:?}");
    }
}

/// After a failure the next run waits for all before it, and no longer than its deadline.
#[test]
fn a_deadline_holds_while_a_failed_run_is_waited_for() {
    for steal in STEALS {
        let [begun, goes_on] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let mut loaded = columns(1, steal, |task| {
            let (begun, goes_on) = (Arc::clone(&begun), Arc::clone(&goes_on));
            TaskBody::new(move |_| {
                if task == TaskIndex(0) && !goes_on.load(Ordering::SeqCst) {
                    wait_until(|| begun.load(Ordering::SeqCst))?;
                    return Err("fails the first run".to_owned());
                }
                begun.store(true, Ordering::SeqCst);
                wait_until(|| goes_on.load(Ordering::SeqCst))
            })
        });
        let buffer = zeroed(16);
        let bindings = Bindings::new().bind("words", &buffer);
        let mut bound = loaded.bind(&bindings).unwrap();
        let first = bound.start().unwrap();
        wait_until(|| begun.load(Ordering::SeqCst)).unwrap();
        // Runs that start before the failure is known end with it.
        let late = loop {
            let next = bound.start_until(Deadline::after(Duration::from_millis(20))).unwrap();
            if next.has_ended() {
                break next;
            }
        };
        assert!(!first.has_ended(), "{steal:?}: the deadline passed unseen");
        assert_eq!(late.wait(), Err(RunError::DeadlinePassed), "{steal:?}");
        goes_on.store(true, Ordering::SeqCst);
        let error = first.wait().unwrap_err().to_string();
        assert!(error.contains("fails the first run"), "{steal:?}: {error}");
        bound.run().unwrap();
    }
}

#[test]
fn tickets_can_be_waited_for_on_another_thread_and_after_the_plan_is_gone() {
    for steal in STEALS {
        let mut loaded = columns(3, steal, |_| increment());
        let buffer = zeroed(16);
        let bindings = Bindings::new().bind("words", &buffer);
        let (sender, receiver) = mpsc::channel();
        let waiter = std::thread::spawn(move || {
            receiver
                .iter()
                .map(|ticket: syncline_runtime::replay::RunTicket| ticket.wait())
                .all(|outcome| outcome.is_ok())
        });
        let mut bound = loaded.bind(&bindings).unwrap();
        for _ in 0..50 {
            sender.send(bound.start().unwrap()).unwrap();
        }
        let last = bound.start().unwrap();
        drop(bound);
        drop(loaded);
        last.wait().unwrap();
        drop(sender);
        assert!(waiter.join().unwrap());
        assert_eq!(buffer.read::<u64>(0, 2).unwrap(), [153; 2]);
    }
}

/// Safe code can forget the guard: what was started must not outlive its memory.
#[test]
fn a_bound_plan_that_is_forgotten_leaves_nothing_behind_that_could_do_harm() {
    for steal in STEALS {
        let mut loaded = columns(20, steal, |_| {
            TaskBody::new(|args| {
                std::thread::sleep(Duration::from_micros(200));
                args.open().slice_mut::<u64>(0).map(|words| words[0] += 1)
            })
        });
        let buffer = zeroed(16);
        let bindings = Bindings::new().bind("words", &buffer);
        let mut bound = loaded.bind(&bindings).unwrap();
        bound.start().unwrap();
        std::mem::forget(bound);
        let other = zeroed(16);
        drop((bindings, buffer));
        loaded.run(&Bindings::new().bind("words", &other)).unwrap();
        assert_eq!(other.read::<u64>(0, 2).unwrap(), [20; 2]);
    }
}
