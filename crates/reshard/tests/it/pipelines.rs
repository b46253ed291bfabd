//! Refits over the local transport, against arrays that were laid out element by element.

use syncline_deps::Dtype;
use syncline_reshard::convert::convert_slice;
use syncline_reshard::transport::{Ticket, Transport, Wait, local};
use syncline_reshard::{
    Layout, PipelineExecutor, PlanOptions, Refit, ServiceOptions, Target, Targets, Versions,
};
use syncline_testing::{Rng, for_seeds};

use crate::groups::{PATIENCE, bind, on_endpoints, on_threads, shards, world};
use crate::meshes;
pub use crate::models::model;

fn any_group(rng: &mut Rng) -> local::Options {
    let slot_bytes = *rng.pick(&[64, 128, 192, 1_024, 65_536]);
    local::Options { depth: rng.below(3) + 1, slot_bytes }
}

fn any_options(rng: &mut Rng) -> ServiceOptions {
    ServiceOptions {
        timeout: PATIENCE,
        checksums: rng.one_in(3),
        versions: *rng.pick(&[Versions::One, Versions::Two]),
        separate_lanes: Some(rng.one_in(3)),
    }
}

/// Refits `from` to `to` twice, into destinations or into memory by a coin of each PE, and compares.
fn check_refit(rng: &mut Rng, from: &Layout, to: &Layout) {
    let size = world(from, to);
    let coins: Vec<bool> = (0..size).map(|_| rng.one_in(2)).collect();
    on_threads(size, &any_group(rng), any_options(rng), |service| {
        let rank = service.rank();
        let refit = service.prepare(from, to, &PlanOptions::default()).unwrap();
        let mine = shards(from, rank);
        let sources = bind(&refit, &mine);
        let expected = shards(to, rank);
        if coins[rank] {
            let destination = service.destination(&refit).unwrap();
            for version in 1..=2 {
                service.refit(&refit, &sources, Target::Destination(&destination)).unwrap();
                let reading = destination.read().unwrap();
                assert_eq!(reading.version(), version);
                for (name, bytes) in expected.iter().filter(|(_, bytes)| !bytes.is_empty()) {
                    assert!(reading.tensor(name) == Some(bytes), "`{name}` on PE {rank}");
                }
            }
            return;
        }
        let mut memory: Vec<Vec<u8>> =
            expected.iter().map(|(_, bytes)| vec![0xa5; bytes.len()]).collect();
        let mut targets = Targets::new(&refit);
        for ((name, _), bytes) in expected.iter().zip(&mut memory) {
            targets.bind(&refit, name, bytes).unwrap();
        }
        for _ in 0..2 {
            service.refit(&refit, &sources, Target::Memory(&mut targets)).unwrap();
        }
        for ((name, bytes), got) in expected.iter().zip(&memory) {
            assert!(bytes == got, "`{name}` on PE {rank}");
        }
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

#[test]
fn elements_are_converted_on_the_way() {
    for (source, target) in [
        (Dtype::F32, Dtype::BF16),
        (Dtype::BF16, Dtype::F32),
        (Dtype::F32, Dtype::F8E4M3),
        (Dtype::F8E5M2, Dtype::F16),
    ] {
        let from = model(2, 48, source, r#"[["tp", 3]]"#);
        let to = model(2, 48, target, r#"[["tp", 2]]"#);
        let options = PlanOptions::default().convert(source, target);
        for checksums in [false, true] {
            let service_options =
                ServiceOptions { timeout: PATIENCE, checksums, ..Default::default() };
            let group = local::Options { depth: 2, slot_bytes: 512 };
            on_threads(3, &group, service_options, |service| {
                let refit = service.prepare(&from, &to, &options).unwrap();
                let mine = shards(&from, service.rank());
                let destination = service.destination(&refit).unwrap();
                service
                    .refit(&refit, &bind(&refit, &mine), Target::Destination(&destination))
                    .unwrap();
                // The same elements laid out by the target layout, then converted.
                let axes = r#"[["tp", 2]]"#;
                for (name, bytes) in shards(&model(2, 48, source, axes), service.rank()) {
                    let elements = bytes.len() / source.bytes() as usize;
                    let mut expected = vec![0; elements * target.bytes() as usize];
                    convert_slice(source, target, &bytes, &mut expected).unwrap();
                    let reading = destination.read().unwrap();
                    assert!(reading.tensor(&name) == Some(&expected[..]), "{source} to {target}");
                }
            });
        }
    }
}

#[test]
fn there_and_back_is_the_identity() {
    let wide = model(3, 60, Dtype::BF16, r#"[["tp", 5]]"#);
    let narrow = model(3, 60, Dtype::BF16, r#"[["tp", 3], ["dp", 2]]"#);
    on_threads(
        6,
        &local::Options { depth: 2, slot_bytes: 256 },
        ServiceOptions::default(),
        |service| {
            let there = service.prepare(&wide, &narrow, &PlanOptions::default()).unwrap();
            let back = service.prepare(&narrow, &wide, &PlanOptions::default()).unwrap();
            let mine = shards(&wide, service.rank());
            let middle = service.destination(&there).unwrap();
            let end = service.destination(&back).unwrap();
            service.refit(&there, &bind(&there, &mine), Target::Destination(&middle)).unwrap();
            let reading = middle.read().unwrap();
            let mut sources = syncline_reshard::Sources::new(&back);
            for (name, _) in back.sources().iter() {
                sources.bind(&back, name, reading.tensor(name).unwrap()).unwrap();
            }
            service.refit(&back, &sources, Target::Destination(&end)).unwrap();
            for (name, bytes) in &mine {
                assert!(end.read().unwrap().tensor(name) == Some(&bytes[..]), "`{name}`");
            }
        },
    );
}

#[test]
fn the_executor_alone_moves_to_peers_and_keeps_what_stays() {
    let from = model(2, 48, Dtype::F32, r#"[["tp", 4]]"#);
    let to = model(2, 48, Dtype::F32, r#"[["tp", 2], ["dp", 2]]"#);
    let group = local::Options { depth: 2, slot_bytes: 512 };
    on_endpoints(local::group(4, &group).unwrap(), |endpoint| {
        let rank = endpoint.rank();
        let refit = Refit::new(&from, &to, &PlanOptions::default(), 512, rank).unwrap();
        let (mine, expected) = (shards(&from, rank), shards(&to, rank));
        let mut memory: Vec<Vec<u8>> =
            expected.iter().map(|(_, bytes)| vec![0xa5; bytes.len()]).collect();
        let mut targets = Targets::new(&refit);
        for ((name, _), bytes) in expected.iter().zip(&mut memory) {
            targets.bind(&refit, name, bytes).unwrap();
        }
        let (sources, wait) = (bind(&refit, &mine), Wait::timeout(PATIENCE));
        let executor = PipelineExecutor::new(&endpoint).separate_lanes(rank == 0);
        endpoint.enter(Ticket { fingerprint: refit.fingerprint(), window: None }, &wait).unwrap();
        let moved = executor.execute_pipeline(&refit, &sources, &mut targets, wait).unwrap();
        let kept = executor.process_self_moves(&refit, &sources, &mut targets, wait).unwrap();
        endpoint.finish(&wait).unwrap();
        assert_eq!((moved.kept_bytes, kept.sent_bytes, kept.received_bytes), (0, 0, 0));
        assert_eq!(moved.sent_bytes + kept.kept_bytes, refit.bytes_local());
        for ((name, bytes), got) in expected.iter().zip(&memory) {
            assert!(bytes == got, "`{name}` on PE {rank}");
        }
    });
}
