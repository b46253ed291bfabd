//! The service's promises over threads.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use syncline_layout::{Layout, PlanOptions};
use syncline_reshard::{
    CopyService, ServiceError, ServiceOptions, Sources, Target, Targets, Versions,
};
use syncline_tensor::Dtype;
use syncline_testing::for_seeds;
use syncline_transport::{Failure, Session, Transport, Wait, conformance, local};

use crate::groups::{Meddled, PATIENCE, agreed, on_endpoints, on_threads};
use crate::models::{bind, shards};
use crate::pipelines::model;

const SMALL: local::Options = local::Options { depth: 2, slot_bytes: 256 };
/// For tests in which somebody must wait in vain.
const IMPATIENCE: Duration = Duration::from_millis(300);

fn options() -> ServiceOptions {
    ServiceOptions { timeout: PATIENCE, ..Default::default() }
}

fn impatient() -> ServiceOptions {
    ServiceOptions { timeout: IMPATIENCE, ..Default::default() }
}

pub fn tp(size: usize) -> Layout {
    model(2, 32, Dtype::BF16, &format!(r#"[["tp", {size}]]"#))
}

/// One refit into a fresh destination.
fn refit_once(
    service: &mut CopyService<'_>,
    from: &Layout,
    to: &Layout,
) -> Result<syncline_reshard::Moved, ServiceError> {
    let refit = service.prepare(from, to, &PlanOptions::default())?;
    let mine = shards(from, service.rank());
    let destination = service.destination(&refit)?;
    service.refit(&refit, &bind(&refit, &mine), Target::Destination(&destination))
}

#[test]
fn single_transfers_of_any_size_arrive() {
    for_seeds("single_transfers_of_any_size_arrive", 30, |rng| {
        let size = rng.below(5) + 1;
        let group = local::Options { depth: rng.below(3) + 1, slot_bytes: *rng.pick(&[64, 1000]) };
        let options = ServiceOptions { checksums: rng.one_in(2), ..options() };
        // (sender, receiver, tag, bytes)
        let mut transfers: Vec<(usize, usize, u64, usize)> = (0..rng.below(30))
            .map(|tag| {
                let bytes = *rng.pick(&[0, 1, 63, 64, 65, 999, 1000, 5_000]);
                (rng.below(size), rng.below(size), tag as u64 % 7, bytes)
            })
            .collect();
        transfers.sort();
        transfers.dedup_by_key(|&mut (from, to, tag, _)| (from, to, tag));
        let content = |&(from, to, tag, bytes): &(usize, usize, u64, usize)| -> Vec<u8> {
            (0..bytes).map(|at| (at * 7 + from * 3 + to * 5 + tag as usize) as u8).collect()
        };
        on_endpoints(local::group(size, &group).unwrap(), |endpoint| {
            let rank = endpoint.rank();
            let outgoing: Vec<Vec<u8>> = transfers.iter().map(content).collect();
            let mut incoming: Vec<Vec<u8>> =
                transfers.iter().map(|&(.., bytes)| vec![0xee; bytes]).collect();
            let mut service = CopyService::new(endpoint, options);
            for (transfer, bytes) in transfers.iter().zip(&outgoing).filter(|(t, _)| t.0 == rank) {
                service.submit_send(transfer.1, transfer.2, bytes).unwrap();
            }
            for (transfer, bytes) in transfers.iter().zip(&mut incoming) {
                if transfer.1 == rank {
                    service.submit_recv(transfer.0, transfer.2, bytes).unwrap();
                }
            }
            service.run().unwrap();
            drop(service);
            for (transfer, bytes) in transfers.iter().zip(&incoming).filter(|(t, _)| t.1 == rank) {
                assert!(*bytes == content(transfer), "{transfer:?}");
            }
        });
    });
}

/// Submits `receive` bytes on PE 1 for what PE 0 sends as tag 1, and runs.
fn mismatched(receive: Option<usize>, send: Option<usize>) -> String {
    agreed(on_endpoints(local::group(3, &SMALL).unwrap(), |endpoint| {
        let rank = endpoint.rank();
        let source = vec![7; send.unwrap_or(0)];
        let mut target = vec![0xee; receive.unwrap_or(0)];
        let mut other = vec![0xee; 8];
        let result = {
            let mut service = CopyService::new(endpoint, options());
            if rank == 0 {
                service.submit_send(2, 9, &[1; 8]).unwrap();
                if send.is_some() {
                    service.submit_send(1, 1, &source).unwrap();
                }
            }
            if rank == 1 && receive.is_some() {
                service.submit_recv(0, 1, &mut target).unwrap();
            }
            if rank == 2 {
                service.submit_recv(0, 9, &mut other).unwrap();
            }
            service.run()
        };
        let untouched = target.iter().chain(&other).all(|&byte| byte == 0xee);
        assert!(untouched, "PE {rank}: a mismatch must be found before anything is written");
        result
    }))
}

#[test]
fn mismatched_transfers_end_alike_on_every_pe_and_write_nothing() {
    assert_eq!(
        mismatched(Some(100), Some(101)),
        "PE 0 sent 101 bytes with tag 1, PE 1 expected 100"
    );
    assert_eq!(
        mismatched(None, Some(5)),
        "PE 0 sends tag 1 (5 bytes) to PE 1, which does not expect it"
    );
    assert_eq!(
        mismatched(Some(5), None),
        "PE 1 expects tag 1 (5 bytes) from PE 0, which does not send it"
    );
}

#[test]
fn a_cleared_submission_is_forgotten_and_a_doubled_one_refused() {
    on_threads(2, &SMALL, options(), |service| {
        let peer = 1 - service.rank();
        service.submit_send(peer, 1, b"never").unwrap();
        let doubled = service.submit_send(peer, 1, b"again").unwrap_err();
        assert!(doubled.to_string().contains("submitted already"), "{doubled}");
        let nobody = service.submit_send(2, 1, b"nobody").unwrap_err();
        assert!(nobody.to_string().contains("no such PE"), "{nobody}");
        service.clear();
        service.run().unwrap();
    });
}

#[test]
fn another_plan_is_noticed_by_all() {
    let error = agreed(on_threads(3, &SMALL, options(), |service| {
        let to = if service.rank() == 2 { tp(1) } else { tp(2) };
        refit_once(service, &tp(3), &to)
    }));
    assert!(error.contains("has plan") && error.contains("PE 2"), "{error}");
}

#[test]
fn a_refit_against_an_exchange_is_noticed_by_all() {
    let error = agreed(on_threads(3, &SMALL, options(), |service| {
        if service.rank() == 1 {
            return service.run().map(|()| Default::default());
        }
        refit_once(service, &tp(3), &tp(2))
    }));
    assert!(error.contains("has plan"), "{error}");
}

#[test]
fn checksums_on_one_pe_only_are_noticed_by_all() {
    let error = agreed(on_endpoints(local::group(2, &SMALL).unwrap(), |endpoint| {
        let checksums = endpoint.rank() == 1;
        let mut service = CopyService::new(endpoint, ServiceOptions { checksums, ..options() });
        refit_once(&mut service, &tp(2), &tp(1))
    }));
    assert!(error.contains("has plan"), "{error}");
}

#[test]
fn a_pe_that_leaves_or_panics_is_missed() {
    for panics in [false, true] {
        let endpoints = local::group(3, &SMALL).unwrap();
        let results = on_endpoints(endpoints, |endpoint| {
            if endpoint.rank() == 1 {
                let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    let _endpoint = endpoint;
                    // Not `panic!`: its message would clutter the output of a test that passes.
                    if panics {
                        std::panic::resume_unwind(Box::new("gone"));
                    }
                }));
                assert_eq!(ended.is_err(), panics);
                return None;
            }
            Some(refit_once(&mut CopyService::new(endpoint, options()), &tp(3), &tp(2)))
        });
        let error = agreed(results.into_iter().flatten().collect());
        assert_eq!(error, "PE 1 left the group before the refit was over");
    }
}

#[test]
fn a_pe_that_never_starts_times_the_others_out() {
    let results = on_endpoints(local::group(3, &SMALL).unwrap(), |endpoint| {
        let started = Instant::now();
        if endpoint.rank() == 0 {
            // Present, but never enters; until the group has failed.
            while endpoint.failure().is_none() && started.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(5));
            }
            return Err(ServiceError::Failed(endpoint.failure().unwrap()));
        }
        refit_once(&mut CopyService::new(endpoint, impatient()), &tp(3), &tp(2))
    });
    let error = agreed(results);
    assert!(error.contains("for PE 0 to start the refit"), "{error}");
}

#[test]
fn a_failed_group_stays_failed() {
    on_threads(2, &SMALL, options(), |service| {
        if service.rank() == 0 {
            service.cancel_token().cancel();
        }
        let first = refit_once(service, &tp(2), &tp(1)).unwrap_err();
        assert_eq!(first, ServiceError::Failed(Failure::Cancelled { rank: 0 }));
        assert_eq!(service.run().unwrap_err(), first);
        assert_eq!(refit_once(service, &tp(2), &tp(1)).unwrap_err(), first);
    });
}

#[test]
fn cancelling_in_the_middle_ends_all() {
    let (from, to) = (model(4, 256, Dtype::F32, r#"[["tp", 2]]"#), tp_rows(4, 256));
    let error = agreed(on_threads(2, &SMALL, options(), |service| {
        if service.rank() == 1 {
            let canceller = service.cancel_token();
            service.set_progress(move |_| canceller.cancel());
        }
        let refit = service.prepare(&from, &to, &PlanOptions::default())?;
        let mine = shards(&from, service.rank());
        let mut memory: Vec<(String, Vec<u8>)> =
            refit.targets().iter().map(|(name, bytes)| (name.to_owned(), vec![0; bytes])).collect();
        let mut targets = Targets::new(&refit);
        for (name, bytes) in &mut memory {
            targets.bind(&refit, name, bytes).unwrap();
        }
        service.refit(&refit, &bind(&refit, &mine), Target::Memory(&mut targets))
    }));
    assert_eq!(error, "cancelled on PE 1");
}

/// Two boxes of 32 MiB that nobody waits for: they are given up long before their end.
#[test]
fn cancelling_ends_a_large_copy_in_its_middle() {
    for separate_lanes in [Some(false), Some(true)] {
        cancel_a_large_copy(ServiceOptions { separate_lanes, ..options() });
    }
}

fn cancel_a_large_copy(options: ServiceOptions) {
    let layout = model(1, 2900, Dtype::F32, r#"[["tp", 1]]"#);
    // Lanes do no more than a slot at once.
    let group = local::Options { depth: 2, slot_bytes: 4 << 20 };
    on_threads(1, &group, options, |service| {
        let (canceller, reached) = (service.cancel_token(), Arc::new(Mutex::new(0)));
        let furthest = reached.clone();
        service.set_progress(move |progress| {
            canceller.cancel();
            *furthest.lock().unwrap() = progress.bytes_done;
        });
        let refit = service.prepare(&layout, &layout, &PlanOptions::default()).unwrap();
        let mine: Vec<(String, Vec<u8>)> =
            refit.sources().iter().map(|(name, bytes)| (name.to_owned(), vec![1; bytes])).collect();
        let destination = service.destination(&refit).unwrap();
        let target = Target::Destination(&destination);
        let error = service.refit(&refit, &bind(&refit, &mine), target).unwrap_err();
        assert_eq!(error.to_string(), "cancelled on PE 0");
        let reached = *reached.lock().unwrap();
        assert!(reached > 0 && reached <= 16 << 20, "{reached}");
        assert_eq!(destination.version(), 0);
    });
}

/// Everything on PE 1, for a model that PE 0 and 1 share.
fn tp_rows(layers: usize, side: u64) -> Layout {
    let mut builder = Layout::builder();
    for tensor in model(layers, side, Dtype::F32, r#"[["tp", 1]]"#).tensors() {
        let mut shard = tensor.placement().shards()[0].clone();
        shard.rank = 1;
        builder.tensor(tensor.name(), tensor.dtype(), tensor.shape(), vec![shard]).unwrap();
    }
    builder.finish()
}

#[test]
fn progress_grows_to_the_total() {
    // All that a PE can be late by: what is moved between two reports.
    const LATE: u64 = 3 << 20;
    let tp2 = model(4, 1024, Dtype::F32, r#"[["tp", 2]]"#);
    let rows = tp_rows(4, 1024);
    for (from, to) in [(&tp2, &rows), (&rows, &tp2), (&tp2, &tp2)] {
        on_threads(2, &local::Options::default(), options(), |service| {
            let seen = Arc::new(Mutex::new(Vec::new()));
            let kept = seen.clone();
            service.set_progress(move |progress| kept.lock().unwrap().push(progress));
            refit_once(service, from, to).unwrap();
            let seen = seen.lock().unwrap();
            let (last, before) = seen.split_last().unwrap();
            let total = last.bytes_total;
            assert!(seen.iter().all(|each| each.bytes_total == total && each.bytes_done <= total));
            assert_eq!(last.bytes_done, total);
            // The last report says that all is done: what was counted until then must come close by
            // itself.
            let counted = before.iter().map(|each| each.bytes_done).max().unwrap_or(0);
            assert!(counted + LATE >= total, "{counted} of {total}");
        });
    }
}

#[test]
fn a_tensor_that_is_not_bound_is_named_on_every_pe() {
    let error = agreed(on_threads(2, &SMALL, options(), |service| {
        let refit = service.prepare(&tp(2), &tp(1), &PlanOptions::default())?;
        let mine = shards(&tp(2), service.rank());
        let destination = service.destination(&refit)?;
        let bound = if service.rank() == 1 { &mine[1..] } else { &mine[..] };
        service.refit(&refit, &bind(&refit, bound), Target::Destination(&destination))
    }));
    assert!(error.starts_with("PE 1: tensor `layers.0.up` of the source layout"), "{error}");
}

#[test]
fn memory_of_the_wrong_size_or_name_is_refused_when_bound() {
    on_threads(1, &SMALL, options(), |service| {
        let refit = service.prepare(&tp(1), &tp(1), &PlanOptions::default()).unwrap();
        let mut sources = Sources::new(&refit);
        let size = sources.bind(&refit, "layers.0.up", &[0; 3]).unwrap_err().to_string();
        assert!(size.contains("3 bytes given") && size.contains("2048"), "{size}");
        let name = sources.bind(&refit, "layers.0.sideways", &[]).unwrap_err().to_string();
        assert!(name.contains("no tensor `layers.0.sideways`"), "{name}");
    });
}

#[test]
fn plans_are_kept_and_may_be_interleaved() {
    let (wide, narrow, one) = (tp(3), tp(2), tp(1));
    on_threads(3, &SMALL, options(), |service| {
        let first = service.prepare(&wide, &narrow, &PlanOptions::default()).unwrap();
        let second = service.prepare(&wide, &one, &PlanOptions::default()).unwrap();
        let again = service.prepare(&wide, &narrow, &PlanOptions::default()).unwrap();
        assert!(Arc::ptr_eq(&first, &again) && !Arc::ptr_eq(&first, &second));
        let mine = shards(&wide, service.rank());
        let destinations =
            [service.destination(&first).unwrap(), service.destination(&second).unwrap()];
        for round in 0..10 {
            let (refit, destination, to) = match round % 2 {
                0 => (&first, &destinations[0], &narrow),
                _ => (&second, &destinations[1], &one),
            };
            service.refit(refit, &bind(refit, &mine), Target::Destination(destination)).unwrap();
            for (name, bytes) in shards(to, service.rank()) {
                assert!(destination.read().unwrap().tensor(&name) == Some(&bytes[..]));
            }
        }
        let wrong =
            service.refit(&first, &bind(&first, &mine), Target::Destination(&destinations[1]));
        assert!(wrong.unwrap_err().to_string().contains("another plan"));
    });
}

#[test]
fn a_reader_keeps_its_version_while_refits_go_on() {
    let (from, to) = (tp(2), tp(1));
    on_threads(
        2,
        &SMALL,
        ServiceOptions { timeout: Duration::from_secs(2), ..options() },
        |service| {
            let refit = service.prepare(&from, &to, &PlanOptions::default()).unwrap();
            let destination = service.destination(&refit).unwrap();
            let mut mine = shards(&from, service.rank());
            service.refit(&refit, &bind(&refit, &mine), Target::Destination(&destination)).unwrap();
            let old = destination.read().unwrap();
            mine.iter_mut().for_each(|(_, bytes)| bytes.iter_mut().for_each(|byte| *byte ^= 0xff));
            service.refit(&refit, &bind(&refit, &mine), Target::Destination(&destination)).unwrap();
            let new = destination.read().unwrap();
            assert_eq!((old.version(), new.version()), (1, 2));
            for (name, bytes) in shards(&to, service.rank()) {
                let inverted: Vec<u8> = bytes.iter().map(|byte| !byte).collect();
                assert_eq!(old.tensor(&name), Some(&bytes[..]));
                assert_eq!(new.tensor(&name), Some(&inverted[..]));
            }
            drop(new);
            // The third refit needs the version that `old` still holds; it says so, on every PE,
            // and nothing else changes.
            let sources = bind(&refit, &mine);
            for _ in 0..2 {
                let result = service.refit(&refit, &sources, Target::Destination(&destination));
                assert_eq!(result.unwrap_err(), ServiceError::Held { rank: 0 });
                assert_eq!(service.transport().failure(), None);
                assert_eq!((old.version(), destination.read().unwrap().version()), (1, 2));
            }
            drop(old);
            service.refit(&refit, &sources, Target::Destination(&destination)).unwrap();
            assert_eq!(destination.read().unwrap().version(), 3);
        },
    );
}

/// On one PE only, of a destination with one version, and for good: the group goes on with
/// everything else.
#[test]
fn a_reading_that_is_forgotten_holds_up_its_destination_only() {
    for versions in [Versions::One, Versions::Two] {
        let options = ServiceOptions { timeout: Duration::from_secs(2), versions, ..options() };
        on_threads(3, &SMALL, options, |service| {
            let refit = service.prepare(&tp(3), &tp(2), &PlanOptions::default()).unwrap();
            let mine = shards(&tp(3), service.rank());
            let sources = bind(&refit, &mine);
            let [held, other] = [0, 1].map(|_| service.destination(&refit).unwrap());
            let count = if versions == Versions::One { 1 } else { 2 };
            for _ in 0..count {
                service.refit(&refit, &sources, Target::Destination(&held)).unwrap();
                if service.rank() == 1 {
                    std::mem::forget(held.read().unwrap());
                }
            }
            let result = service.refit(&refit, &sources, Target::Destination(&held));
            assert_eq!(result.unwrap_err(), ServiceError::Held { rank: 1 });
            assert_eq!(held.read().unwrap().version(), count);
            service.refit(&refit, &sources, Target::Destination(&other)).unwrap();
            service.refit(&refit, &sources, Target::Nothing).unwrap_err();
        });
    }
}

/// A reader that lets go in time is waited for, on another thread too.
#[test]
fn a_refit_waits_for_a_reader_that_lets_go() {
    let options = ServiceOptions { versions: Versions::One, ..options() };
    on_threads(2, &SMALL, options, |service| {
        let refit = service.prepare(&tp(2), &tp(1), &PlanOptions::default()).unwrap();
        let mine = shards(&tp(2), service.rank());
        let destination = service.destination(&refit).unwrap();
        std::thread::scope(|scope| {
            let reading = destination.read().unwrap();
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(50));
                drop(reading);
            });
            let target = Target::Destination(&destination);
            service.refit(&refit, &bind(&refit, &mine), target).unwrap();
        });
    });
}

#[test]
fn a_destination_too_large_for_memory_fails_all() {
    let huge = |rank: u32| {
        let text = format!(
            r#"{{"format": "syncline-layout", "version": 1, "tensors": [{{"name": "w", "dtype": "u8", "shape": [{0}],
            "shards": [{{"rank": {rank}, "shape": [{0}], "pieces": [{{"global": [[0, {0}]], "local": [0]}}]}}]}}]}}"#,
            1u64 << 50
        );
        Layout::from_json(&text).unwrap()
    };
    let results = on_endpoints(local::group(2, &SMALL).unwrap(), |mut endpoint| {
        if endpoint.rank() == 0 {
            let wait = Wait::timeout(PATIENCE);
            let entered = Session::enter(&mut endpoint, 0, &wait);
            return entered.map(drop).map_err(ServiceError::from);
        }
        let service = CopyService::new(endpoint, options());
        // Slots of a terabyte keep the plan of a petabyte small.
        let refit =
            syncline_reshard::Refit::new(&huge(0), &huge(1), &PlanOptions::default(), 1 << 48, 1)?;
        service.destination(&refit).map(drop)
    });
    let error = agreed(results);
    assert!(error.starts_with("PE 1: cannot map"), "{error}");
}

#[test]
fn the_transport_between_threads_conforms_also_where_it_copies() {
    for size in [1, 2, 5] {
        for depth in [1, 3] {
            let group = local::Options { depth, slot_bytes: 192 };
            on_endpoints(local::group(size, &group).unwrap(), |mut endpoint| {
                conformance::check(&mut endpoint, PATIENCE).unwrap();
            });
            on_endpoints(local::group(size, &group).unwrap(), |endpoint| {
                let mut copying = Meddled::copying(endpoint);
                conformance::check(&mut copying, PATIENCE).unwrap();
            });
        }
    }
}

#[test]
fn readers_never_see_half_a_refit() {
    let (from, to) = (tp(2), tp(1));
    for separate_lanes in [Some(false), Some(true)] {
        let options = ServiceOptions { separate_lanes, ..options() };
        on_threads(2, &SMALL, options, |service| {
            let refit = service.prepare(&from, &to, &PlanOptions::default()).unwrap();
            let destination = service.destination(&refit).unwrap();
            let is_over = std::sync::atomic::AtomicBool::new(false);
            std::thread::scope(|scope| {
                let reader = || {
                    let mut seen = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        let reading = destination.read().unwrap();
                        assert!(reading.version() >= seen, "versions only grow");
                        seen = reading.version();
                        let stamp = seen as u8;
                        for (name, _) in refit.targets().iter() {
                            let tensor = reading.tensor(name).unwrap();
                            assert!(tensor.iter().all(|&byte| byte == stamp), "version {seen}");
                        }
                    }
                };
                let readers = [scope.spawn(reader), scope.spawn(reader)];
                for version in 1..=60u8 {
                    let held = shards(&from, service.rank());
                    let held: Vec<(String, Vec<u8>)> = held
                        .into_iter()
                        .map(|(n, bytes)| (n, vec![version; bytes.len()]))
                        .collect();
                    let target = Target::Destination(&destination);
                    service.refit(&refit, &bind(&refit, &held), target).unwrap();
                }
                is_over.store(true, Ordering::Relaxed);
                readers.into_iter().for_each(|reader| reader.join().unwrap());
            });
        });
    }
}
