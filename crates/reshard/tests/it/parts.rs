//! What one PE does in refits that threads, processes and ranks of other transports run alike, and
//! what it must then hold.

use syncline_copy::convert::convert_slice;
use syncline_layout::{Layout, PlanOptions};
use syncline_reshard::{
    CopyService, PipelineExecutor, Refit, ServiceOptions, Sources, Target, Targets, Versions,
};
use syncline_tensor::Dtype;
use syncline_testing::Rng;
use syncline_transport::{Session, Transport, Wait};

use crate::groups::PATIENCE;
use crate::models::{bind, model, shards};

/// Options that no result may depend on.
pub fn any_options(rng: &mut Rng) -> ServiceOptions {
    ServiceOptions {
        timeout: PATIENCE,
        checksums: rng.one_in(3),
        versions: *rng.pick(&[Versions::One, Versions::Two]),
        separate_lanes: Some(rng.one_in(3)),
    }
}

/// Memory for shards, bound; after `write`, it holds what is expected.
fn into_memory(
    refit: &Refit,
    expected: &[(String, Vec<u8>)],
    rank: usize,
    write: impl FnOnce(&mut Targets<'_>),
) {
    let mut memory: Vec<Vec<u8>> =
        expected.iter().map(|(_, bytes)| vec![0xa5; bytes.len()]).collect();
    let mut targets = Targets::new(refit);
    for ((name, _), bytes) in expected.iter().zip(&mut memory) {
        targets.bind(refit, name, bytes).unwrap();
    }
    write(&mut targets);
    for ((name, bytes), got) in expected.iter().zip(&memory) {
        assert!(bytes == got, "`{name}` on PE {rank}");
    }
}

/// Refits twice, into a destination or into memory.
pub fn refit_twice(service: &mut CopyService, from: &Layout, to: &Layout, into_destination: bool) {
    let rank = service.rank();
    let refit = service.prepare(from, to, &PlanOptions::default()).unwrap();
    let mine = shards(from, rank);
    let sources = bind(&refit, &mine);
    let expected = shards(to, rank);
    if !into_destination {
        into_memory(&refit, &expected, rank, |targets| {
            for _ in 0..2 {
                service.refit(&refit, &sources, Target::Memory(targets)).unwrap();
            }
        });
        return;
    }
    let destination = service.destination(&refit).unwrap();
    for version in 1..=2 {
        service.refit(&refit, &sources, Target::Destination(&destination)).unwrap();
        let reading = destination.read().unwrap();
        assert_eq!(reading.version(), version);
        for (name, bytes) in expected.iter().filter(|(_, bytes)| !bytes.is_empty()) {
            assert!(reading.tensor(name) == Some(bytes), "`{name}` on PE {rank}");
        }
    }
}

/// Refits a small model that is split along `axes`, first and second, and converts it on the way.
pub fn convert(service: &mut CopyService, axes: [&str; 2], [source, target]: [Dtype; 2]) {
    let (from, to) = (model(2, 48, source, axes[0]), model(2, 48, target, axes[1]));
    let options = PlanOptions::default().convert(source, target);
    let refit = service.prepare(&from, &to, &options).unwrap();
    let mine = shards(&from, service.rank());
    let destination = service.destination(&refit).unwrap();
    service.refit(&refit, &bind(&refit, &mine), Target::Destination(&destination)).unwrap();
    // The same elements laid out by the target layout, then converted.
    for (name, bytes) in shards(&model(2, 48, source, axes[1]), service.rank()) {
        let elements = bytes.len() / source.bytes() as usize;
        let mut expected = vec![0; elements * target.bytes() as usize];
        convert_slice(source, target, &bytes, &mut expected).unwrap();
        let reading = destination.read().unwrap();
        assert!(reading.tensor(&name) == Some(&expected[..]), "{source} to {target}");
    }
}

/// Refits from one layout to the other and back.
pub fn there_and_back(service: &mut CopyService, one: &Layout, other: &Layout) {
    let there = service.prepare(one, other, &PlanOptions::default()).unwrap();
    let back = service.prepare(other, one, &PlanOptions::default()).unwrap();
    let mine = shards(one, service.rank());
    let (middle, end) = (service.destination(&there).unwrap(), service.destination(&back).unwrap());
    service.refit(&there, &bind(&there, &mine), Target::Destination(&middle)).unwrap();
    let reading = middle.read().unwrap();
    let mut sources = Sources::new(&back);
    for (name, _) in back.sources().iter() {
        sources.bind(&back, name, reading.tensor(name).unwrap()).unwrap();
    }
    service.refit(&back, &sources, Target::Destination(&end)).unwrap();
    for (name, bytes) in &mine {
        assert!(end.read().unwrap().tensor(name) == Some(&bytes[..]), "`{name}`");
    }
}

/// Moves to peers, and keeps what stays, by the executor without a service around it.
pub fn executor_alone(endpoint: &mut dyn Transport, from: &Layout, to: &Layout) {
    let (rank, slot_bytes) = (endpoint.rank(), endpoint.shape().slot_bytes);
    let refit = Refit::new(from, to, &PlanOptions::default(), slot_bytes, rank).unwrap();
    let (mine, expected) = (shards(from, rank), shards(to, rank));
    let (sources, wait) = (bind(&refit, &mine), Wait::timeout(PATIENCE));
    into_memory(&refit, &expected, rank, |targets| {
        let session = Session::enter(endpoint, refit.announced(), &wait).unwrap();
        let executor = PipelineExecutor::new(&session).separate_lanes(rank == 0);
        let moved = executor.execute_pipeline(&refit, &sources, targets, wait).unwrap();
        let kept = executor.process_self_moves(&refit, &sources, targets, wait).unwrap();
        session.finish(&wait).unwrap();
        assert_eq!((moved.kept_bytes, kept.sent_bytes, kept.received_bytes), (0, 0, 0));
        assert_eq!(moved.sent_bytes + kept.kept_bytes, refit.bytes_local());
    });
}
