//! Code of users that panics, or calls back into the API: reported on every PE, under no lock,
//! never torn between PEs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use syncline_device::CancelToken;
use syncline_layout::PlanOptions;
use syncline_reshard::{Destination, ServiceError, ServiceOptions, Target};
use syncline_transport::{
    ControlPlane, DataPlane, Endpoint, Failure, Header, Session, Wait, local,
};

use crate::groups::{Meddled, PATIENCE, agreed, on_endpoints, on_threads};
use crate::models::{bind, shards};
use crate::services::tp;

const GROUP: local::Options = local::Options { depth: 2, slot_bytes: 256 };

fn options() -> ServiceOptions {
    ServiceOptions { timeout: PATIENCE, ..Default::default() }
}

/// Panics without a message on the terminal: these tests pass.
fn silent_panic(text: &'static str) -> ! {
    std::panic::resume_unwind(Box::new(text))
}

/// Every PE has the refit, or none has: also where the last report, after which nothing is left to
/// move, panics.
#[test]
fn progress_that_panics_fails_the_refit_on_every_pe() {
    for separate_lanes in [Some(false), Some(true)] {
        let options = ServiceOptions { separate_lanes, ..options() };
        let results = on_threads(3, &GROUP, options, |service| {
            if service.rank() == 1 {
                service.set_progress(|progress| {
                    if progress.bytes_done == progress.bytes_total {
                        silent_panic("as asked");
                    }
                });
            }
            let refit = service.prepare(&tp(3), &tp(2), &PlanOptions::default())?;
            let mine = shards(&tp(3), service.rank());
            let destination = service.destination(&refit)?;
            let refitted =
                service.refit(&refit, &bind(&refit, &mine), Target::Destination(&destination));
            assert_eq!(destination.read().unwrap().version(), 0, "PE {}", service.rank());
            refitted
        });
        assert_eq!(agreed(results), "PE 1: on_progress panicked: as asked");
    }
}

/// Progress is reported under no lock: it may read, cancel, and watch the token.
#[test]
fn progress_may_call_back() {
    on_threads(2, &GROUP, options(), |service| {
        let refit = service.prepare(&tp(2), &tp(1), &PlanOptions::default()).unwrap();
        let mine = shards(&tp(2), service.rank());
        let destination: Arc<Destination> = Arc::new(service.destination(&refit).unwrap());
        let (seen, calls) = (destination.clone(), Arc::new(AtomicU64::new(0)));
        let (token, counted) = (service.cancel_token(), calls.clone());
        service.set_progress(move |_| {
            assert_eq!(seen.read().unwrap().version(), seen.version());
            drop(token.child());
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let target = Target::Destination(&destination);
        service.refit(&refit, &bind(&refit, &mine), target).unwrap();
        assert!(calls.load(Ordering::Relaxed) > 0);
        assert_eq!(destination.version(), 1);
    });
}

#[test]
fn one_token_ends_the_calls_of_all_that_share_it() {
    let all = CancelToken::new();
    let results = on_threads(2, &GROUP, options(), |service| {
        service.set_cancel(all.child());
        // Both have their own, and either would do.
        if service.rank() == 1 {
            all.cancel();
        }
        service.requests().run()
    });
    let error = agreed(results);
    assert!(error.starts_with("cancelled on PE "), "{error}");
}

/// Two endpoints on which no refit is under way, which messages do not need.
fn pair() -> [Endpoint; 2] {
    local::group(2, &GROUP).unwrap().try_into().unwrap()
}

fn send(endpoint: &Endpoint, byte: u8) -> bool {
    let fill = &mut |slot: &mut [u8]| {
        slot.fill(byte);
        Header::default()
    };
    endpoint.try_send(1, 8, fill).unwrap()
}

#[test]
fn a_fill_that_panics_sends_nothing_and_gives_its_slot_back() {
    let [sender, receiver] = pair();
    for _ in 0..3 * GROUP.depth {
        let fill = &mut |_: &mut [u8]| silent_panic("a fill");
        let sent = catch_unwind(AssertUnwindSafe(|| sender.try_send(1, 8, fill)));
        assert!(sent.is_err());
    }
    assert!(!receiver.try_receive(0, &mut |_, _| Ok(())).unwrap());
    assert_eq!(sender.failure(), None);
    (0..GROUP.depth).for_each(|_| assert!(send(&sender, 1)));
    assert!(!send(&sender, 1));
}

/// Before, the message came again and again, or the next was taken for it.
#[test]
fn a_take_that_panics_fails_the_group() {
    let [sender, receiver] = pair();
    assert!(send(&sender, 1));
    let take = &mut |_: Header, _: &[u8]| silent_panic("a take");
    assert!(catch_unwind(AssertUnwindSafe(|| receiver.try_receive(0, take))).is_err());
    let failure = Failure::Local { rank: 1, message: "the receiver of a message panicked".into() };
    assert_eq!(sender.failure(), Some(failure.clone()));
    assert_eq!(receiver.failure(), Some(failure));
}

/// Both used to wait for a lock that their own thread held.
#[test]
fn fills_and_takes_may_use_the_endpoint() {
    let [sender, receiver] = pair();
    let fill = &mut |slot: &mut [u8]| {
        slot.fill(2);
        assert!(send(&sender, 1));
        assert!(!send(&sender, 3), "both slots are in use");
        Header::default()
    };
    assert!(sender.try_send(1, 8, fill).unwrap());
    let mut seen = Vec::new();
    let take = &mut |_: Header, bytes: &[u8]| {
        seen.push(bytes[0]);
        let inner = &mut |_: Header, bytes: &[u8]| {
            seen.push(bytes[0]);
            Ok(())
        };
        assert!(receiver.try_receive(0, inner)?);
        Ok(())
    };
    assert!(receiver.try_receive(0, take).unwrap());
    assert_eq!(seen, [1, 2]);
}

/// Threads of both PEs use the same endpoints, some by calls and some by claims: no message is
/// mixed, lost or doubled.
#[test]
fn a_slot_has_one_user_whoever_sends_and_receives() {
    const MESSAGES: u64 = 4_000;
    let [sender, receiver] = pair();
    let (sent, received) = (AtomicU64::new(0), AtomicU64::new(0));
    let seen: Vec<AtomicBool> = (0..MESSAGES).map(|_| AtomicBool::new(false)).collect();
    let fill = |slot: &mut [u8], number: u64| {
        slot[..64].fill(number as u8);
        Header { tag: number, checksum: 0 }
    };
    let take = |header: Header, bytes: &[u8]| {
        assert!(bytes.iter().all(|byte| *byte == header.tag as u8), "{header:?} {bytes:?}");
        assert!(!seen[header.tag as usize].swap(true, Ordering::Relaxed), "{header:?} twice");
        received.fetch_add(1, Ordering::Relaxed);
    };
    let next = || Some(sent.fetch_add(1, Ordering::Relaxed)).filter(|number| *number < MESSAGES);
    std::thread::scope(|scope| {
        for in_place in [false, true] {
            let (sender, receiver, received) = (&sender, &receiver, &received);
            scope.spawn(move || {
                while let Some(number) = next() {
                    loop {
                        let is_sent = if in_place {
                            let slot = sender.slots().unwrap().claim_free();
                            slot.map(|mut slot| {
                                let header = fill(slot.bytes_mut(), number);
                                sender.slots().unwrap().publish(slot, 1, 64, header);
                            })
                            .is_some()
                        } else {
                            sender.try_send(1, 64, &mut |slot| fill(slot, number)).unwrap()
                        };
                        if is_sent {
                            break;
                        }
                        std::thread::yield_now();
                    }
                }
            });
            scope.spawn(move || {
                while received.load(Ordering::Relaxed) < MESSAGES {
                    let came = if in_place {
                        let arrival = receiver.slots().unwrap().claim_arrived(0).unwrap();
                        arrival.map(|arrival| take(arrival.header(), arrival.bytes())).is_some()
                    } else {
                        let take = &mut |header: Header, bytes: &[u8]| {
                            take(header, bytes);
                            Ok(())
                        };
                        receiver.try_receive(0, take).unwrap()
                    };
                    if !came {
                        std::thread::yield_now();
                    }
                }
            });
        }
    });
    assert!(seen.iter().all(|seen| seen.load(Ordering::Relaxed)));
}

#[test]
fn claims_end_as_they_must() {
    let [sender, receiver] = pair();
    let slots = sender.slots().unwrap();
    let mut claimed: Vec<_> = std::iter::from_fn(|| slots.claim_free()).collect();
    assert_eq!(claimed.len(), GROUP.depth);
    assert!(!send(&sender, 1), "every slot is claimed");
    drop(claimed.pop());
    assert!(send(&sender, 1), "a claim that is dropped is free");
    // A slot of another endpoint is not sent.
    let slot = claimed.pop().unwrap();
    let foreign =
        AssertUnwindSafe(|| receiver.slots().unwrap().publish(slot, 0, 8, Header::default()));
    assert!(catch_unwind(foreign).is_err());
    let arrival = receiver.slots().unwrap().claim_arrived(0).unwrap().unwrap();
    assert_eq!(arrival.bytes(), [1; 8]);
    assert!(receiver.slots().unwrap().claim_arrived(0).unwrap().is_none(), "claimed once");
    assert!(send(&sender, 2) && !send(&sender, 3), "the slot is still its reader's");
    // Forgotten, it is lost for the group, and nothing else.
    std::mem::forget(arrival);
    let mut got = 0;
    assert!(
        receiver
            .try_receive(0, &mut |_, bytes| {
                got = bytes[0];
                Ok(())
            })
            .unwrap()
    );
    assert_eq!(got, 2);
    assert!(send(&sender, 4) && !send(&sender, 5));
}

/// A session that is abandoned fails the group at once: no PE waits until a deadline.
#[test]
fn a_session_that_is_abandoned_fails_its_group() {
    let started = Instant::now();
    let failures = on_endpoints(local::group(2, &GROUP).unwrap(), |mut endpoint| {
        let session = Session::enter(&mut endpoint, 1, &Wait::timeout(PATIENCE)).unwrap();
        if session.transport().rank() == 0 {
            return session.finish(&Wait::timeout(PATIENCE)).unwrap_err();
        }
        drop(session);
        endpoint.failure().unwrap()
    });
    assert!(started.elapsed() < PATIENCE / 2, "{:?}", started.elapsed());
    let message = "a refit was left unfinished".to_owned();
    assert_eq!(failures, [(); 2].map(|()| Failure::Local { rank: 1, message: message.clone() }));
}

/// What takes messages panics inside of a refit: all know, and nothing is committed.
#[test]
fn a_transport_that_panics_in_a_refit_fails_it_for_all() {
    let results = on_endpoints(local::group(2, &GROUP).unwrap(), |endpoint| {
        let rank = endpoint.rank();
        let meddled = Meddled::in_place(
            endpoint,
            Box::new(move |_, _, _, _| {
                if rank == 1 {
                    silent_panic("in the transport");
                }
            }),
        );
        let options = ServiceOptions { separate_lanes: Some(false), checksums: true, ..options() };
        let mut service = syncline_reshard::CopyService::new(meddled, options);
        let refit = service.prepare(&tp(2), &tp(1), &PlanOptions::default()).unwrap();
        let mine = shards(&tp(2), rank);
        let destination = service.destination(&refit).unwrap();
        let refitted = catch_unwind(AssertUnwindSafe(|| {
            service.refit(&refit, &bind(&refit, &mine), Target::Destination(&destination))
        }));
        assert_eq!(destination.read().unwrap().version(), 0);
        let failure = service.transport().failure().unwrap();
        match (rank, refitted) {
            // The panic goes on where it was thrown.
            (1, Err(_)) => {}
            (0, Ok(Err(error))) => assert_eq!(error, ServiceError::Failed(failure.clone())),
            (rank, other) => panic!("PE {rank}: {other:?}"),
        }
        failure
    });
    assert_eq!(results[0], results[1]);
    assert_eq!(results[0], Failure::Local { rank: 1, message: "a refit panicked".to_owned() });
}
