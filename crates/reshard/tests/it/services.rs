//! The service's promises over threads.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use syncline_layout::{Layout, PlanOptions};
use syncline_reshard::{CopyService, ServiceError, ServiceOptions, Sources, Target, Versions};
use syncline_tensor::Dtype;
use syncline_transport::{conformance, local};

use crate::groups::{Meddled, PATIENCE, on_endpoints, on_threads};
use crate::models::{bind, shards};
use crate::pipelines::model;

const SMALL: local::Options = local::Options { depth: 2, slot_bytes: 256 };

fn options() -> ServiceOptions {
    ServiceOptions { timeout: PATIENCE, ..Default::default() }
}

pub fn tp(size: usize) -> Layout {
    model(2, 32, Dtype::BF16, &format!(r#"[["tp", {size}]]"#))
}

/// One refit into a fresh destination.
fn refit_once(
    service: &mut CopyService,
    from: &Layout,
    to: &Layout,
) -> Result<syncline_reshard::Moved, ServiceError> {
    let refit = service.prepare(from, to, &PlanOptions::default())?;
    let mine = shards(from, service.rank());
    let destination = service.destination(&refit)?;
    service.refit(&refit, &bind(&refit, &mine), Target::Destination(&destination))
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
fn a_destination_of_another_plan_is_refused() {
    let (wide, narrow, one) = (tp(3), tp(2), tp(1));
    on_threads(3, &SMALL, options(), |service| {
        let first = service.prepare(&wide, &narrow, &PlanOptions::default()).unwrap();
        let second = service.prepare(&wide, &one, &PlanOptions::default()).unwrap();
        let mine = shards(&wide, service.rank());
        let destination = service.destination(&second).unwrap();
        let target = Target::Destination(&destination);
        let wrong = service.refit(&first, &bind(&first, &mine), target);
        assert!(wrong.unwrap_err().to_string().contains("another plan"));
    });
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
fn a_transport_that_copies_conforms_too() {
    for size in [1, 2, 5] {
        for depth in [1, 3] {
            let group = local::Options { depth, slot_bytes: 192 };
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
