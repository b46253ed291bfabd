//! Refits over the local transport, against arrays that were laid out element by element.

use std::time::Duration;

use syncline_device::CancelToken;
use syncline_layout::{Layout, PlanOptions};
use syncline_reshard::{Moved, PipelineExecutor, PipelineLanes, Refit, ServiceOptions, Targets};
use syncline_tensor::Dtype;
use syncline_testing::{Rng, for_seeds};
use syncline_transport::{ControlPlane, Endpoint, Failure, Session, Transport, Wait, local};

use crate::groups::{Meddled, PATIENCE, on_endpoints, on_threads, world};
use crate::models::{bind, shards};
use crate::{meshes, parts};

pub use crate::models::model;

fn any_group(rng: &mut Rng) -> local::Options {
    let slot_bytes = *rng.pick(&[64, 128, 192, 1_024, 65_536]);
    local::Options { depth: rng.below(3) + 1, slot_bytes }
}

/// Refits `from` to `to` twice, into destinations or into memory by a coin of each PE, and
/// compares.
fn check_refit(rng: &mut Rng, from: &Layout, to: &Layout) {
    let size = world(from, to);
    let coins: Vec<bool> = (0..size).map(|_| rng.one_in(2)).collect();
    on_threads(size, &any_group(rng), parts::any_options(rng), |service| {
        parts::refit_twice(service, from, to, coins[service.rank()]);
    });
}

#[test]
fn random_layouts_arrive_as_the_naive_copy_says() {
    for_seeds("random_layouts_arrive_as_the_naive_copy_says", 60, |rng| {
        let (from, to) = meshes::any_pair(rng);
        check_refit(rng, &from, &to);
    });
}

#[test]
fn megabytes_go_through_small_and_large_slots() {
    let from = model(4, 512, Dtype::F32, r#"[["tp", 4]]"#);
    let to = model(4, 512, Dtype::F32, r#"[["tp", 2], ["pp", 2]]"#);
    for_seeds("megabytes_go_through_small_and_large_slots", 4, |rng| check_refit(rng, &from, &to));
}

/// Columns for two to sixteen receivers, past the caches, also where they are split unevenly.
#[test]
fn rows_are_dealt_out_in_one_pass() {
    for (receivers, side) in [(2, 2048), (3, 2050), (9, 2048), (16, 2051)] {
        let from = model(1, side, Dtype::F32, r#"[["tp", 1]]"#);
        let to = model(1, side, Dtype::F32, &format!(r#"[["tp", {receivers}]]"#));
        let options = ServiceOptions { timeout: PATIENCE, ..Default::default() };
        on_threads(receivers, &local::Options::default(), options, |service| {
            parts::refit_twice(service, &from, &to, true);
        });
    }
}

#[test]
fn elements_are_converted_on_the_way() {
    for dtypes in [
        [Dtype::F32, Dtype::BF16],
        [Dtype::BF16, Dtype::F32],
        [Dtype::F32, Dtype::F8E4M3],
        [Dtype::F8E5M2, Dtype::F16],
    ] {
        for checksums in [false, true] {
            let options = ServiceOptions { timeout: PATIENCE, checksums, ..Default::default() };
            let group = local::Options { depth: 2, slot_bytes: 512 };
            on_threads(3, &group, options, |service| {
                parts::convert(service, [r#"[["tp", 3]]"#, r#"[["tp", 2]]"#], dtypes);
            });
        }
    }
}

#[test]
fn there_and_back_is_the_identity() {
    let wide = model(3, 60, Dtype::BF16, r#"[["tp", 5]]"#);
    let narrow = model(3, 60, Dtype::BF16, r#"[["tp", 3], ["dp", 2]]"#);
    let group = local::Options { depth: 2, slot_bytes: 256 };
    on_threads(6, &group, ServiceOptions::default(), |service| {
        parts::there_and_back(service, &wide, &narrow);
    });
}

#[test]
fn the_executor_alone_moves_to_peers_and_keeps_what_stays() {
    let from = model(2, 48, Dtype::F32, r#"[["tp", 4]]"#);
    let to = model(2, 48, Dtype::F32, r#"[["tp", 2], ["dp", 2]]"#);
    let group = local::Options { depth: 2, slot_bytes: 512 };
    on_endpoints(local::group(4, &group).unwrap(), |mut endpoint| {
        parts::executor_alone(&mut endpoint, &from, &to);
    });
}

/// Who drives the PE that sends, and over which transport.
#[derive(Clone, Copy, Debug)]
enum Sender {
    Caller,
    Lanes,
    LanesThatCopy,
}

/// When to give up on a PE that should come further by itself; long enough for a busy machine.
const STUCK: Duration = Duration::from_secs(20);

/// PE 1 gives all that it has to PE 0 and gets nothing: what it has sent tells how far it comes by
/// itself.
fn one_way() -> (Layout, Layout) {
    let layout = |axes| model(1, 32, Dtype::F32, axes);
    (layout(r#"[["tp", 2]]"#), layout(r#"[["tp", 1]]"#))
}

/// This PE's part of the refit.
fn refit_of(endpoint: &Endpoint, layouts: &(Layout, Layout)) -> Refit {
    let (slot_bytes, rank) = (endpoint.shape().slot_bytes, endpoint.rank());
    let options = PlanOptions::default();
    Refit::new(&layouts.0, &layouts.1, &options, slot_bytes, rank).unwrap()
}

/// Sends everything of a PE that receives nothing.
fn send_all(
    executor: &PipelineExecutor<'_>,
    refit: &Refit,
    from: &Layout,
    wait: Wait<'_>,
) -> Result<Moved, Failure> {
    let mine = shards(from, refit.rank());
    executor.execute_pipeline(refit, &bind(refit, &mine), &mut Targets::new(refit), wait)
}

/// Sleeps until PE 1 has sent `expected` messages, of which this PE has taken `taken`; more would
/// be wrong.
fn await_sent(endpoint: &dyn Transport, taken: u64, expected: u64, wait: &Wait<'_>) {
    loop {
        let seen = endpoint.bell();
        let sent = taken + endpoint.slots().unwrap().waiting(1);
        assert!(sent <= expected, "{sent} messages sent, {taken} taken, {expected} expected");
        if sent == expected {
            return;
        }
        if let Err(failure) = endpoint.park(seen, wait) {
            panic!("{sent} messages sent, {taken} taken, {expected} expected: {failure}");
        }
    }
}

#[test]
fn every_slot_is_full_before_the_first_is_taken() {
    let layouts = one_way();
    for sender in [Sender::Caller, Sender::Lanes, Sender::LanesThatCopy] {
        for depth in [1, 2, 4] {
            let group = local::Options { depth, slot_bytes: 256 };
            on_endpoints(local::group(2, &group).unwrap(), |mut endpoint| {
                let wait = Wait::timeout(STUCK);
                let refit = refit_of(&endpoint, &layouts);
                // Between two PEs, every round is one message.
                let messages = u64::from(refit.rounds());
                assert!(messages > 2 * depth as u64, "{messages} messages");
                if endpoint.rank() == 0 {
                    let session = Session::enter(&mut endpoint, refit.announced(), &wait).unwrap();
                    let transport = session.transport();
                    for taken in 0..messages {
                        await_sent(transport, taken, messages.min(taken + depth as u64), &wait);
                        assert!(transport.try_receive(1, &mut |_, _| Ok(())).unwrap());
                    }
                    return session.finish(&wait).unwrap();
                }
                let send = |endpoint: &mut dyn Transport, on_lanes| {
                    let session = Session::enter(endpoint, refit.announced(), &wait).unwrap();
                    let executor = PipelineExecutor::new(&session).separate_lanes(on_lanes);
                    let moved = send_all(&executor, &refit, &layouts.0, wait).unwrap();
                    assert_eq!(moved.messages, messages, "{sender:?}");
                    session.finish(&wait).unwrap();
                };
                match sender {
                    Sender::Caller => send(&mut endpoint, false),
                    Sender::Lanes => send(&mut endpoint, true),
                    Sender::LanesThatCopy => send(&mut Meddled::copying(endpoint), true),
                }
            });
        }
    }
}

#[test]
fn lanes_that_were_cancelled_with_full_slots_serve_the_next_refit() {
    let (layouts, lanes) = (one_way(), PipelineLanes::new().unwrap());
    let depth = 2;
    for is_cancelled in [true, false, true, false] {
        let cancel = CancelToken::new();
        let group = local::Options { depth, slot_bytes: 256 };
        on_endpoints(local::group(2, &group).unwrap(), |mut endpoint| {
            let wait = Wait::timeout(STUCK);
            let refit = refit_of(&endpoint, &layouts);
            let session = Session::enter(&mut endpoint, refit.announced(), &wait).unwrap();
            let messages = u64::from(refit.rounds());
            if refit.rank() == 1 {
                let executor = PipelineExecutor::new(&session).separate_lanes(true).on(&lanes);
                let moved = send_all(&executor, &refit, &layouts.0, wait.cancelled_by(&cancel));
                match is_cancelled {
                    true => assert_eq!(moved.unwrap_err(), Failure::Cancelled { rank: 1 }),
                    false => assert_eq!(moved.unwrap().messages, messages),
                }
            } else {
                let transport = session.transport();
                await_sent(transport, 0, depth as u64, &wait);
                if is_cancelled {
                    cancel.cancel();
                }
                let taken = if is_cancelled { 0 } else { messages };
                (0..taken).for_each(|_| transport.receive(1, &mut |_, _| Ok(()), &wait).unwrap());
            }
            // Nobody leaves before the other has seen how it ended.
            let finished = session.finish(&wait);
            let cancelled = is_cancelled.then_some(Failure::Cancelled { rank: 1 });
            assert_eq!(finished.err(), cancelled);
        });
    }
}
