//! The service's promises: what goes wrong on one rank is the same error on all.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use syncline_layout::{Layout, PlanOptions};
use syncline_mpi::{MpiEndpoint, Options};
use syncline_reshard::{
    CopyService, DestinationError, Moved, ServiceError, ServiceOptions, Target, Targets, Versions,
};
use syncline_tensor::Dtype;
use syncline_testing::Rng;
use syncline_transport::{
    Failure, Header, Session, Shape, Take, Ticket, Transport, Wait, Window, WindowId,
};

use crate::models::{bind, model, shards};
use crate::ranks::{PATIENCE, Rank, tp};

const SMALL: (usize, usize) = (2, 256);

fn options() -> ServiceOptions {
    ServiceOptions { timeout: PATIENCE, ..Default::default() }
}

/// One refit into a fresh destination.
fn refit_once(
    service: &mut CopyService<'_>,
    from: &Layout,
    to: &Layout,
) -> Result<Moved, ServiceError> {
    let refit = service.prepare(from, to, &PlanOptions::default())?;
    let mine = shards(from, service.rank());
    let destination = service.destination(&refit)?;
    service.refit(&refit, &bind(&refit, &mine), Target::Destination(&destination))
}

pub fn single_transfers(rank: &Rank) {
    let mut rng = Rng::new(17 + rank.size() as u64);
    for _ in 0..4 {
        let size = rank.size();
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
        let mine = rank.rank();
        {
            let mut service = rank.service(slots, options);
            for (transfer, bytes) in transfers.iter().zip(&outgoing).filter(|(t, _)| t.0 == mine) {
                service.submit_send(transfer.1, transfer.2, bytes).unwrap();
            }
            for (transfer, bytes) in transfers.iter().zip(&mut incoming) {
                if transfer.1 == mine {
                    service.submit_recv(transfer.0, transfer.2, bytes).unwrap();
                }
            }
            service.run().unwrap();
        }
        for (transfer, bytes) in transfers.iter().zip(&incoming).filter(|(t, _)| t.1 == mine) {
            assert!(*bytes == content(transfer), "{transfer:?}");
        }
    }
}

pub fn mismatched(rank: &Rank) {
    if rank.size() < 2 {
        return;
    }
    let last = rank.size() - 1;
    for (receive, send, says) in [
        (Some(100), Some(101), "sent 101 bytes with tag 1, PE {} expected 100"),
        (None, Some(5), "sends tag 1 (5 bytes) to PE {}, which does not expect it"),
        (Some(5), None, "expects tag 1 (5 bytes) from PE 0, which does not send it"),
    ] {
        let source = vec![7; send.unwrap_or(0)];
        let mut target = vec![0xee; receive.unwrap_or(0)];
        let result = {
            let mut service = rank.service(SMALL, options());
            if rank.rank() == 0 && send.is_some() {
                service.submit_send(last, 1, &source).unwrap();
            }
            if rank.rank() == last && receive.is_some() {
                service.submit_recv(0, 1, &mut target).unwrap();
            }
            service.run()
        };
        assert!(target.iter().all(|&byte| byte == 0xee), "found before anything is written");
        let error = rank.agreed(result);
        assert!(error.contains(&says.replace("{}", &last.to_string())), "{error}");
    }
}

pub fn cleared(rank: &Rank) {
    let mut service = rank.service(SMALL, options());
    let peer = (rank.rank() + 1) % rank.size();
    service.submit_send(peer, 1, b"never").unwrap();
    let doubled = service.submit_send(peer, 1, b"again").unwrap_err();
    assert!(doubled.to_string().contains("submitted already"), "{doubled}");
    let nobody = service.submit_send(rank.size(), 1, b"nobody").unwrap_err();
    assert!(nobody.to_string().contains("no such PE"), "{nobody}");
    service.clear();
    service.run().unwrap();
}

/// Another plan, an exchange against a refit, checksums on one PE only: noticed by all.
pub fn other_plans(rank: &Rank) {
    if rank.size() < 2 {
        return;
    }
    let last = rank.rank() == rank.size() - 1;
    let (from, to) = (tp(rank.size()), tp(rank.size() - 1));
    let mut service = rank.service(SMALL, options());
    let error = rank.agreed(refit_once(&mut service, &from, if last { &from } else { &to }));
    assert!(error.contains("has plan"), "{error}");
    let mut service = rank.service(SMALL, options());
    let result = match last {
        true => service.run().map(|()| Moved::default()),
        false => refit_once(&mut service, &from, &to),
    };
    assert!(rank.agreed(result).contains("has plan"));
    let mut service = rank.service(SMALL, ServiceOptions { checksums: last, ..options() });
    assert!(rank.agreed(refit_once(&mut service, &from, &to)).contains("has plan"));
}

pub fn leaving(rank: &Rank) {
    if rank.size() < 3 {
        return;
    }
    let endpoint = rank.join(SMALL.0, SMALL.1);
    let result = if rank.rank() == 1 {
        drop(endpoint);
        // What the others must say.
        Err(ServiceError::Failed(Failure::PeerLeft { rank: 1 }))
    } else {
        let mut service = CopyService::new(endpoint, options());
        let result = refit_once(&mut service, &tp(rank.size()), &tp(2));
        // Stays until the others have learnt it.
        rank.world.gather("", &Wait::timeout(PATIENCE)).unwrap();
        result
    };
    if rank.rank() == 1 {
        rank.world.gather("", &Wait::timeout(PATIENCE)).unwrap();
    }
    assert_eq!(rank.agreed(result), "PE 1 left the group before the refit was over");
}

pub fn never_starting(rank: &Rank) {
    if rank.size() < 2 {
        return;
    }
    let absent = rank.size() - 1;
    let endpoint = rank.join(SMALL.0, SMALL.1);
    let result = if rank.rank() == absent {
        let started = Instant::now();
        // Present, but never enters; until the group has failed.
        while endpoint.failure().is_none() && started.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(ServiceError::Failed(endpoint.failure().unwrap()))
    } else {
        let impatient =
            ServiceOptions { timeout: Duration::from_millis(300), ..Default::default() };
        refit_once(&mut CopyService::new(endpoint, impatient), &tp(rank.size()), &tp(1))
    };
    let error = rank.agreed(result);
    assert!(error.contains(&format!("for PE {absent} to start the refit")), "{error}");
}

pub fn failed_stays_failed(rank: &Rank) {
    let mut service = rank.service(SMALL, options());
    if rank.rank() == 0 {
        service.cancel_token().cancel();
    }
    let (from, to) = (tp(rank.size()), tp(1));
    let first = refit_once(&mut service, &from, &to).unwrap_err();
    assert_eq!(first, ServiceError::Failed(Failure::Cancelled { rank: 0 }));
    assert_eq!(service.run().unwrap_err(), first);
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

pub fn cancelled(rank: &Rank) {
    if rank.size() < 2 {
        return;
    }
    let axes = format!(r#"[["tp", {}]]"#, rank.size());
    let (from, to) = (model(4, 240, Dtype::F32, &axes), gathered(rank.size(), 4, 240));
    let mut service = rank.service(SMALL, options());
    if rank.rank() == 1 {
        let canceller = service.cancel_token();
        service.set_progress(move |_| canceller.cancel());
    }
    let refit = service.prepare(&from, &to, &PlanOptions::default()).unwrap();
    let mine = shards(&from, rank.rank());
    let mut memory: Vec<(String, Vec<u8>)> =
        refit.targets().iter().map(|(name, bytes)| (name.to_owned(), vec![0; bytes])).collect();
    let mut targets = Targets::new(&refit);
    for (name, bytes) in &mut memory {
        targets.bind(&refit, name, bytes).unwrap();
    }
    let result = service.refit(&refit, &bind(&refit, &mine), Target::Memory(&mut targets));
    // The last report comes before the refit is committed.
    assert_eq!(rank.agreed(result), "cancelled on PE 1");
}

pub fn progress(rank: &Rank) {
    let axes = format!(r#"[["tp", {}]]"#, rank.size());
    let (from, to) = (model(2, 840, Dtype::F32, &axes), gathered(rank.size(), 2, 840));
    let mut service = rank.service((2, 1 << 20), options());
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

pub fn unbound(rank: &Rank) {
    let last = rank.size() - 1;
    let mut service = rank.service(SMALL, options());
    let refit = service.prepare(&tp(rank.size()), &tp(1), &PlanOptions::default()).unwrap();
    let mine = shards(&tp(rank.size()), rank.rank());
    let destination = service.destination(&refit).unwrap();
    let bound = if rank.rank() == last { &mine[1..] } else { &mine[..] };
    let target = Target::Destination(&destination);
    let error = rank.agreed(service.refit(&refit, &bind(&refit, bound), target));
    let says = format!("PE {last}: tensor `layers.0.up` of the source layout");
    assert!(error.starts_with(&says), "{error}");
}

pub fn interleaved(rank: &Rank) {
    let (wide, narrow, one) = (tp(rank.size()), tp(rank.size().div_ceil(2)), tp(1));
    let mut service = rank.service(SMALL, options());
    let first = service.prepare(&wide, &narrow, &PlanOptions::default()).unwrap();
    let second = service.prepare(&wide, &one, &PlanOptions::default()).unwrap();
    let mine = shards(&wide, rank.rank());
    let destinations =
        [service.destination(&first).unwrap(), service.destination(&second).unwrap()];
    for round in 0..6 {
        let (refit, destination, to) = match round % 2 {
            0 => (&first, &destinations[0], &narrow),
            _ => (&second, &destinations[1], &one),
        };
        service.refit(refit, &bind(refit, &mine), Target::Destination(destination)).unwrap();
        for (name, bytes) in shards(to, rank.rank()) {
            assert!(destination.read().unwrap().tensor(&name) == Some(&bytes[..]));
        }
    }
}

pub fn reader(rank: &Rank) {
    let (from, to) = (tp(rank.size()), tp(1));
    let options = ServiceOptions { timeout: Duration::from_secs(3), ..Default::default() };
    let mut service = rank.service(SMALL, options);
    let refit = service.prepare(&from, &to, &PlanOptions::default()).unwrap();
    let destination = service.destination(&refit).unwrap();
    let mut mine = shards(&from, rank.rank());
    service.refit(&refit, &bind(&refit, &mine), Target::Destination(&destination)).unwrap();
    let old = destination.read().unwrap();
    mine.iter_mut().for_each(|(_, bytes)| bytes.iter_mut().for_each(|byte| *byte ^= 0xff));
    service.refit(&refit, &bind(&refit, &mine), Target::Destination(&destination)).unwrap();
    let new = destination.read().unwrap();
    assert_eq!((old.version(), new.version()), (1, 2));
    for (name, bytes) in shards(&to, rank.rank()) {
        let inverted: Vec<u8> = bytes.iter().map(|byte| !byte).collect();
        assert_eq!(old.tensor(&name), Some(&bytes[..]));
        assert_eq!(new.tensor(&name), Some(&inverted[..]));
    }
    drop(new);
    // The third refit needs the version that `old` still holds; it says so, on every PE, and
    // nothing else changes.
    let sources = bind(&refit, &mine);
    let result = service.refit(&refit, &sources, Target::Destination(&destination));
    assert_eq!(result.unwrap_err(), ServiceError::Held { rank: 0 });
    drop(old);
    service.refit(&refit, &sources, Target::Destination(&destination)).unwrap();
    assert_eq!(destination.read().unwrap().version(), 3);
}

/// Changes one byte of the second message that PE 1 sends.
struct Noise {
    endpoint: MpiEndpoint,
    sent: AtomicU64,
}

// SAFETY: what concerns memory and agreement is passed on to an endpoint that keeps the contract.
unsafe impl Transport for Noise {
    fn try_send(
        &self,
        peer: usize,
        bytes: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Header,
    ) -> Result<bool, Failure> {
        self.endpoint.try_send(peer, bytes, &mut |slot| {
            let mut header = fill(slot);
            if self.sent.fetch_add(1, Ordering::Relaxed) == 1 && self.endpoint.rank() == 1 {
                // What is placed directly is announced by its checksum alone.
                slot.get_mut(bytes / 2).map_or_else(|| header.checksum ^= 1, |byte| *byte ^= 1);
            }
            header
        })
    }
    fn rank(&self) -> usize {
        self.endpoint.rank()
    }
    fn shape(&self) -> Shape {
        self.endpoint.shape()
    }
    unsafe fn enter(&self, ticket: Ticket, wait: &Wait<'_>) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        unsafe { self.endpoint.enter(ticket, wait) }
    }
    fn ticket(&self, peer: usize) -> Ticket {
        self.endpoint.ticket(peer)
    }
    fn try_receive(&self, peer: usize, take: &mut Take<'_>) -> Result<bool, Failure> {
        self.endpoint.try_receive(peer, take)
    }
    fn bell(&self) -> u32 {
        self.endpoint.bell()
    }
    fn park(&self, seen: u32, wait: &Wait<'_>) -> Result<(), Failure> {
        self.endpoint.park(seen, wait)
    }
    unsafe fn finish(&self, wait: &Wait<'_>) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        unsafe { self.endpoint.finish(wait) }
    }
    fn fail(&self, failure: Failure) -> Failure {
        self.endpoint.fail(failure)
    }
    fn failure(&self) -> Option<Failure> {
        self.endpoint.failure()
    }
    fn allocate(&self, bytes: usize) -> Result<Option<Window>, Failure> {
        self.endpoint.allocate(bytes)
    }
    fn shares_memory(&self, peer: usize) -> bool {
        self.endpoint.shares_memory(peer)
    }
    fn owns(&self, window: &Window) -> bool {
        self.endpoint.owns(window)
    }
    fn peer_window(&self, peer: usize, id: WindowId) -> Result<Option<Window>, Failure> {
        self.endpoint.peer_window(peer, id)
    }
}

pub fn corrupt(rank: &Rank) {
    if rank.size() < 2 {
        return;
    }
    let (from, to) = (tp(rank.size()), tp(1));
    for versions in [Versions::One, Versions::Two] {
        let endpoint = rank.join(SMALL.0, SMALL.1);
        let noise = Noise { endpoint, sent: AtomicU64::new(0) };
        let options = ServiceOptions { checksums: true, versions, ..options() };
        let mut service = CopyService::new(noise, options);
        let refit = service.prepare(&from, &to, &PlanOptions::default()).unwrap();
        let mine = shards(&from, rank.rank());
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
        let error = rank.agreed(result);
        let is_named = error.starts_with("tensor `layers.") && error.contains("from PE 1 to PE 0");
        assert!(is_named && error.contains("is corrupt"), "{error}");
    }
}

pub fn too_large(rank: &Rank) {
    if rank.size() < 2 {
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
    let mut endpoint = rank.join(SMALL.0, SMALL.1);
    let result = if rank.rank() != 1 {
        let wait = Wait::timeout(PATIENCE);
        Session::enter(&mut endpoint, 0, &wait).map(drop).map_err(ServiceError::from)
    } else {
        let service = CopyService::new(endpoint, options());
        // Slots of a terabyte keep the plan of a petabyte small.
        let plan = PlanOptions::default();
        let refit = syncline_reshard::Refit::new(&huge(0), &huge(1), &plan, 1 << 48, 1).unwrap();
        service.destination(&refit).map(drop)
    };
    let error = rank.agreed(result);
    let says = ["PE 1: cannot map", "PE 1: /dev/shm has no room"];
    assert!(says.iter().any(|says| error.starts_with(says)), "{error}");
}

pub fn other_slots(rank: &Rank) {
    if rank.size() < 2 {
        return;
    }
    let slot_bytes = if rank.rank() == 1 { 8192 } else { 4096 };
    let options = Options { depth: 2, slot_bytes, way: rank.way, share_memory: rank.share_memory };
    let refused = rank.world.join(&options, &Wait::timeout(PATIENCE)).unwrap_err().to_string();
    assert!(refused.contains("every PE must pass the same"), "{refused}");
}
