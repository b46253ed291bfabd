//! The service's promises: what goes wrong on one rank is the same error on all.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use syncline_layout::{Layout, PlanOptions};
use syncline_reshard::{
    CopyService, DestinationError, Moved, ServiceError, ServiceOptions, Target, Targets, Versions,
};
use syncline_tensor::Dtype;
use syncline_testing::Rng;
use syncline_transport::{Failure, Session, Wait};

use crate::groups::{Meddle, Meddled, PATIENCE};
use crate::models::{bind, model, shards};

use super::{Fixture, tp};

const SMALL: (usize, usize) = (2, 256);

fn options() -> ServiceOptions {
    ServiceOptions { timeout: PATIENCE, ..Default::default() }
}

/// One refit into a fresh destination.
fn refit_once(
    service: &mut CopyService,
    from: &Layout,
    to: &Layout,
) -> Result<Moved, ServiceError> {
    let refit = service.prepare(from, to, &PlanOptions::default())?;
    let mine = shards(from, service.rank());
    let destination = service.destination(&refit)?;
    service.refit(&refit, &bind(&refit, &mine), Target::Destination(&destination))
}

pub fn single_transfers(pe: &dyn Fixture) {
    let mut rng = Rng::new(17 + pe.size() as u64);
    for _ in 0..4 {
        let size = pe.size();
        let slots = (rng.below(3) + 1, *rng.pick(&[64, 1000]));
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
        let outgoing: Vec<Vec<u8>> = transfers.iter().map(content).collect();
        let mut incoming: Vec<Vec<u8>> =
            transfers.iter().map(|&(.., bytes)| vec![0xee; bytes]).collect();
        let mine = pe.rank();
        {
            let mut service = pe.service(slots, options);
            // By ids, then by order, again and again.
            for round in 0..4 {
                let id = |tag: u64| (round % 2 == 0).then_some(tag);
                incoming.iter_mut().for_each(|bytes| bytes.fill(0xee));
                let mut requests = service.requests();
                let sends = transfers.iter().zip(&outgoing).filter(|(each, _)| each.0 == mine);
                for (transfer, bytes) in sends {
                    requests.submit_send(transfer.1, id(transfer.2), bytes).unwrap();
                }
                for (transfer, bytes) in transfers.iter().zip(&mut incoming) {
                    if transfer.1 == mine {
                        requests.submit_recv(transfer.0, id(transfer.2), bytes).unwrap();
                    }
                }
                requests.run().unwrap();
                for (transfer, bytes) in transfers.iter().zip(&incoming) {
                    let expected =
                        if transfer.1 == mine { content(transfer) } else { vec![0xee; transfer.3] };
                    assert!(*bytes == expected, "{transfer:?}");
                }
            }
        }
    }
}

pub fn mismatched(pe: &dyn Fixture) {
    if pe.size() < 2 {
        return;
    }
    let last = pe.size() - 1;
    for (receive, send, says) in [
        (Some(100), Some(101), "sent 101 bytes with tag 1, PE {} expected 100"),
        (None, Some(5), "sends tag 1 (5 bytes) to PE {}, which does not expect it"),
        (Some(5), None, "expects tag 1 (5 bytes) from PE 0, which does not send it"),
    ] {
        let source = vec![7; send.unwrap_or(0)];
        let mut target = vec![0xee; receive.unwrap_or(0)];
        let result = {
            let mut service = pe.service(SMALL, options());
            let mut requests = service.requests();
            if pe.rank() == 0 && send.is_some() {
                requests.submit_send(last, Some(1), &source).unwrap();
            }
            if pe.rank() == last && receive.is_some() {
                requests.submit_recv(0, Some(1), &mut target).unwrap();
            }
            requests.run()
        };
        assert!(target.iter().all(|&byte| byte == 0xee), "found before anything is written");
        let error = pe.agreed(result);
        assert!(error.contains(&says.replace("{}", &last.to_string())), "{error}");
    }
}

pub fn cleared(pe: &dyn Fixture) {
    let mut service = pe.service(SMALL, options());
    let peer = (pe.rank() + 1) % pe.size();
    let mut requests = service.requests();
    requests.submit_send(peer, Some(1), b"never").unwrap();
    let doubled = requests.submit_send(peer, Some(1), b"again").unwrap_err();
    assert!(doubled.to_string().contains("submitted already"), "{doubled}");
    let nobody = requests.submit_send(pe.size(), Some(1), b"nobody").unwrap_err();
    assert!(nobody.to_string().contains("no such PE"), "{nobody}");
    drop(requests);
    service.requests().run().unwrap();
}

/// Another plan, an exchange against a refit, checksums on one PE only: noticed by all.
pub fn other_plans(pe: &dyn Fixture) {
    if pe.size() < 2 {
        return;
    }
    let last = pe.rank() == pe.size() - 1;
    let (from, to) = (tp(pe.size()), tp(pe.size() - 1));
    let mut service = pe.service(SMALL, options());
    let error = pe.agreed(refit_once(&mut service, &from, if last { &from } else { &to }));
    assert!(error.contains("has plan"), "{error}");
    let mut service = pe.service(SMALL, options());
    let result = match last {
        true => service.requests().run().map(|()| Moved::default()),
        false => refit_once(&mut service, &from, &to),
    };
    assert!(pe.agreed(result).contains("has plan"));
    let mut service = pe.service(SMALL, ServiceOptions { checksums: last, ..options() });
    assert!(pe.agreed(refit_once(&mut service, &from, &to)).contains("has plan"));
}

pub fn leaving(pe: &dyn Fixture) {
    if pe.size() < 3 {
        return;
    }
    for panics in [false, true] {
        let endpoint = pe.group(SMALL);
        let can_recover = endpoint.can_recover();
        let result = if pe.rank() == 1 {
            let ended = catch_unwind(AssertUnwindSafe(|| {
                let _endpoint = endpoint;
                // Not `panic!`: its message would clutter the output of a test that passes.
                if panics {
                    resume_unwind(Box::new("gone"));
                }
            }));
            assert_eq!(ended.is_err(), panics);
            pe.gather("");
            // What the others must say.
            Err(ServiceError::Failed(Failure::PeerLeft { rank: 1 }))
        } else {
            let mut service = CopyService::new(endpoint, options());
            let result = refit_once(&mut service, &tp(pe.size()), &tp(2));
            // Stays until the others have learnt it.
            pe.gather("");
            // No other PE has the part of the one that left.
            match (can_recover, result) {
                (true, Err(ServiceError::Lost { failure, .. })) => Err(failure.into()),
                (true, other) => panic!("{other:?}"),
                (false, result) => result,
            }
        };
        assert_eq!(pe.agreed(result), "PE 1 left the group before the refit was over");
    }
}

pub fn never_starting(pe: &dyn Fixture) {
    if pe.size() < 2 {
        return;
    }
    let absent = pe.size() - 1;
    let endpoint = pe.group(SMALL);
    let result = if pe.rank() == absent {
        let started = Instant::now();
        // Present, but never enters; until the group has failed.
        while endpoint.failure().is_none() && started.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(ServiceError::Failed(endpoint.failure().unwrap()))
    } else {
        let impatient =
            ServiceOptions { timeout: Duration::from_millis(300), ..Default::default() };
        refit_once(&mut CopyService::new(endpoint, impatient), &tp(pe.size()), &tp(1))
    };
    let error = pe.agreed(result);
    assert!(error.contains(&format!("for PE {absent} to start the refit")), "{error}");
}

pub fn failed_stays_failed(pe: &dyn Fixture) {
    let mut service = pe.service(SMALL, options());
    if pe.rank() == 0 {
        service.cancel_token().cancel();
    }
    let (from, to) = (tp(pe.size()), tp(1));
    let first = refit_once(&mut service, &from, &to).unwrap_err();
    assert_eq!(first, ServiceError::Failed(Failure::Cancelled { rank: 0 }));
    assert_eq!(service.requests().run().unwrap_err(), first);
    assert_eq!(refit_once(&mut service, &from, &to).unwrap_err(), first);
}

/// Everything on the last PE.
fn gathered(size: usize, layers: usize, side: u64) -> Layout {
    let mut builder = Layout::builder();
    for tensor in model(layers, side, Dtype::F32, r#"[["tp", 1]]"#).tensors() {
        let mut shard = tensor.placement().shards()[0].clone();
        shard.rank = size as u32 - 1;
        builder.tensor(tensor.name(), tensor.dtype(), tensor.shape(), vec![shard]).unwrap();
    }
    builder.finish()
}

pub fn cancelled(pe: &dyn Fixture) {
    if pe.size() < 2 {
        return;
    }
    let axes = format!(r#"[["tp", {}]]"#, pe.size());
    let (from, to) = (model(4, 240, Dtype::F32, &axes), gathered(pe.size(), 4, 240));
    let mut service = pe.service(SMALL, options());
    if pe.rank() == 1 {
        let canceller = service.cancel_token();
        service.set_progress(move |_| canceller.cancel());
    }
    let refit = service.prepare(&from, &to, &PlanOptions::default()).unwrap();
    let mine = shards(&from, pe.rank());
    let mut memory: Vec<(String, Vec<u8>)> =
        refit.targets().iter().map(|(name, bytes)| (name.to_owned(), vec![0; bytes])).collect();
    let mut targets = Targets::new(&refit);
    for (name, bytes) in &mut memory {
        targets.bind(&refit, name, bytes).unwrap();
    }
    let result = service.refit(&refit, &bind(&refit, &mine), Target::Memory(&mut targets));
    // The last report comes before the refit is committed.
    assert_eq!(pe.agreed(result), "cancelled on PE 1");
}

pub fn progress(pe: &dyn Fixture) {
    let axes = format!(r#"[["tp", {}]]"#, pe.size());
    let (from, to) = (model(2, 840, Dtype::F32, &axes), gathered(pe.size(), 2, 840));
    let mut service = pe.service((2, 1 << 20), options());
    let seen = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
    let kept = seen.clone();
    service.set_progress(move |progress| {
        assert!(progress.bytes_done <= progress.bytes_total);
        kept.0.fetch_max(progress.bytes_done, Ordering::Relaxed);
        kept.1.store(progress.bytes_total, Ordering::Relaxed);
    });
    refit_once(&mut service, &from, &to).unwrap();
    let (done, total) = (seen.0.load(Ordering::Relaxed), seen.1.load(Ordering::Relaxed));
    assert!(total > 0 && done == total, "{done} of {total}");
}

pub fn unbound(pe: &dyn Fixture) {
    let last = pe.size() - 1;
    let mut service = pe.service(SMALL, options());
    let refit = service.prepare(&tp(pe.size()), &tp(1), &PlanOptions::default()).unwrap();
    let mine = shards(&tp(pe.size()), pe.rank());
    let destination = service.destination(&refit).unwrap();
    let bound = if pe.rank() == last { &mine[1..] } else { &mine[..] };
    let target = Target::Destination(&destination);
    let error = pe.agreed(service.refit(&refit, &bind(&refit, bound), target));
    let says = format!("PE {last}: tensor `layers.0.up` of the source layout");
    assert!(error.starts_with(&says), "{error}");
}

pub fn interleaved(pe: &dyn Fixture) {
    let (wide, narrow, one) = (tp(pe.size()), tp(pe.size().div_ceil(2)), tp(1));
    let mut service = pe.service(SMALL, options());
    let first = service.prepare(&wide, &narrow, &PlanOptions::default()).unwrap();
    let second = service.prepare(&wide, &one, &PlanOptions::default()).unwrap();
    let again = service.prepare(&wide, &narrow, &PlanOptions::default()).unwrap();
    assert!(Arc::ptr_eq(&first, &again));
    let mine = shards(&wide, pe.rank());
    let destinations =
        [service.destination(&first).unwrap(), service.destination(&second).unwrap()];
    for round in 0..6 {
        let (refit, destination, to) = match round % 2 {
            0 => (&first, &destinations[0], &narrow),
            _ => (&second, &destinations[1], &one),
        };
        service.refit(refit, &bind(refit, &mine), Target::Destination(destination)).unwrap();
        for (name, bytes) in shards(to, pe.rank()) {
            assert!(destination.read().unwrap().tensor(&name) == Some(&bytes[..]));
        }
    }
}

pub fn reader(pe: &dyn Fixture) {
    let (from, to) = (tp(pe.size()), tp(1));
    let options = ServiceOptions { timeout: Duration::from_secs(3), ..Default::default() };
    let mut service = pe.service(SMALL, options);
    let refit = service.prepare(&from, &to, &PlanOptions::default()).unwrap();
    let destination = service.destination(&refit).unwrap();
    let mut mine = shards(&from, pe.rank());
    service.refit(&refit, &bind(&refit, &mine), Target::Destination(&destination)).unwrap();
    let old = destination.read().unwrap();
    mine.iter_mut().for_each(|(_, bytes)| bytes.iter_mut().for_each(|byte| *byte ^= 0xff));
    service.refit(&refit, &bind(&refit, &mine), Target::Destination(&destination)).unwrap();
    let new = destination.read().unwrap();
    assert_eq!((old.version(), new.version()), (1, 2));
    for (name, bytes) in shards(&to, pe.rank()) {
        let inverted: Vec<u8> = bytes.iter().map(|byte| !byte).collect();
        assert_eq!(old.tensor(&name), Some(&bytes[..]));
        assert_eq!(new.tensor(&name), Some(&inverted[..]));
    }
    drop(new);
    // The third refit needs the version that `old` still holds; it says so, on every PE, and
    // nothing else changes.
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
}

/// Changes one byte of the second message that PE 1 sends.
fn noise(rank: usize) -> Meddle {
    let sent = AtomicU64::new(0);
    Box::new(move |_, _, message, header| {
        if sent.fetch_add(1, Ordering::Relaxed) == 1 && rank == 1 {
            // A message of no bytes announces data that was placed directly, by its checksum.
            let middle = message.len() / 2;
            message.get_mut(middle).map_or_else(|| header.checksum ^= 1, |byte| *byte ^= 1);
        }
    })
}

pub fn corrupt(pe: &dyn Fixture) {
    if pe.size() < 2 {
        return;
    }
    let (from, to) = (tp(pe.size()), tp(1));
    for versions in [Versions::One, Versions::Two] {
        let noisy = Meddled::in_place(pe.group(SMALL), noise(pe.rank()));
        let options = ServiceOptions { checksums: true, versions, ..options() };
        let mut service = CopyService::new(noisy, options);
        let refit = service.prepare(&from, &to, &PlanOptions::default()).unwrap();
        let mine = shards(&from, pe.rank());
        let destination = service.destination(&refit).unwrap();
        let target = Target::Destination(&destination);
        let result = service.refit(&refit, &bind(&refit, &mine), target);
        match (versions, destination.read()) {
            (Versions::One, Err(DestinationError::Torn { version: 0 })) => {}
            (Versions::Two, Ok(reading)) => {
                let old = |(name, _)| reading.tensor(name).unwrap().iter().all(|&b| b == 0);
                assert!(reading.version() == 0 && refit.targets().iter().all(old));
            }
            (_, other) => panic!("{other:?}"),
        }
        let error = pe.agreed(result);
        let is_named = error.starts_with("tensor `layers.") && error.contains("from PE 1 to PE 0");
        assert!(is_named && error.contains("is corrupt"), "{error}");
    }
}

pub fn too_large(pe: &dyn Fixture) {
    if pe.size() < 2 {
        return;
    }
    let huge = |rank: u32| {
        let text = format!(
            r#"{{"format": "syncline-layout", "version": 1, "tensors": [{{"name": "w", "dtype": "u8", "shape": [{0}],
            "shards": [{{"rank": {rank}, "shape": [{0}], "pieces": [{{"global": [[0, {0}]], "local": [0]}}]}}]}}]}}"#,
            1u64 << 50
        );
        Layout::from_json(&text).unwrap()
    };
    let mut endpoint = pe.group(SMALL);
    let result = if pe.rank() != 1 {
        let wait = Wait::timeout(PATIENCE);
        Session::enter(&mut endpoint, 0, &wait).map(drop).map_err(ServiceError::from)
    } else {
        let service = CopyService::new(endpoint, options());
        // Slots of a terabyte keep the plan of a petabyte small.
        let plan = PlanOptions::default();
        let refit = syncline_reshard::Refit::new(&huge(0), &huge(1), &plan, 1 << 48, 1).unwrap();
        service.destination(&refit).map(drop)
    };
    let error = pe.agreed(result);
    let says = ["PE 1: cannot map", "PE 1: /dev/shm has no room"];
    assert!(says.iter().any(|says| error.starts_with(says)), "{error}");
}

/// A PE with other slots than the rest: every PE is told.
pub fn other_slots(pe: &dyn Fixture) {
    if pe.size() < 2 || !pe.can_disagree() {
        return;
    }
    let slot_bytes = if pe.rank() == 1 { 8192 } else { 4096 };
    let refused = pe.join((2, slot_bytes)).map(drop).unwrap_err();
    assert!(refused.contains("every PE must pass the same"), "{refused}");
}
