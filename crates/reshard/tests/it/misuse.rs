//! Bindings, destinations and layouts where they do not belong: refused, on every PE alike.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use syncline_layout::{Dims, Layout, MeshLayout, PlanOptions, TensorSpec};
use syncline_reshard::{
    CopyService, PipelineExecutor, Refit, ServiceOptions, Sources, Target, Targets,
};
use syncline_tensor::Dtype;
use syncline_transport::{ControlPlane, Session, Wait, local};

use crate::groups::{Meddled, PATIENCE, agreed, on_endpoints, on_threads};
use crate::models::{bind, model, shards};

const GROUP: local::Options = local::Options { depth: 2, slot_bytes: 256 };

fn options() -> ServiceOptions {
    ServiceOptions { timeout: PATIENCE, ..Default::default() }
}

fn tp(size: usize, side: u64) -> Layout {
    model(1, side, Dtype::F32, &format!(r#"[["tp", {size}]]"#))
}

/// Memory for all that `refit` leaves on its PE.
fn memory_for(refit: &Refit) -> Vec<(String, Vec<u8>)> {
    refit.targets().iter().map(|(name, bytes)| (name.to_owned(), vec![0xee; bytes])).collect()
}

#[test]
fn bindings_of_another_refit_are_refused_and_nothing_is_written() {
    let (small, large) = (tp(1, 4), tp(1, 64));
    on_threads(1, &GROUP, options(), |service| {
        let plan = PlanOptions::default();
        let other = service.prepare(&small, &small, &plan).unwrap();
        let refit = service.prepare(&large, &large, &plan).unwrap();
        let mine = shards(&large, 0);
        let mut memory = memory_for(&other);
        let mut targets = Targets::new(&other);
        for (name, bytes) in &mut memory {
            targets.bind(&other, name, bytes).unwrap();
        }
        let error = service.refit(&refit, &bind(&refit, &mine), Target::Memory(&mut targets));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("for another destination layout"), "{error}");
        assert!(memory.iter().all(|(_, bytes)| bytes.iter().all(|byte| *byte == 0xee)));
    });
    on_threads(1, &GROUP, options(), |service| {
        let plan = PlanOptions::default();
        let other = service.prepare(&small, &small, &plan).unwrap();
        let refit = service.prepare(&large, &large, &plan).unwrap();
        let mine = shards(&small, 0);
        let destination = service.destination(&refit).unwrap();
        let target = Target::Destination(&destination);
        let error = service.refit(&refit, &bind(&other, &mine), target).unwrap_err().to_string();
        assert!(error.contains("for another source layout"), "{error}");
        assert_eq!(destination.version(), 0);
    });
}

#[test]
fn a_binding_by_another_refit_is_refused() {
    let (one, two) = (tp(1, 4), model(3, 4, Dtype::F32, r#"[["tp", 1]]"#));
    let refit = |layout| Refit::new(layout, layout, &PlanOptions::default(), 256, 0).unwrap();
    let (one, two) = (refit(&one), refit(&two));
    let bytes = vec![0; 4 * 4 * 4];
    let error = Sources::new(&one).bind(&two, "layers.2.up", &bytes).unwrap_err().to_string();
    assert!(error.contains("for another source layout"), "{error}");
}

#[test]
fn bindings_serve_every_refit_from_the_same_layout() {
    let (from, one, other) = (tp(1, 4), tp(1, 4), model(1, 4, Dtype::BF16, r#"[["tp", 1]]"#));
    on_threads(1, &GROUP, options(), |service| {
        let plan = PlanOptions::default().convert(Dtype::F32, Dtype::BF16);
        let first = service.prepare(&from, &one, &plan).unwrap();
        let second = service.prepare(&from, &other, &plan).unwrap();
        let mine = shards(&from, 0);
        let sources = bind(&first, &mine);
        for refit in [&first, &second] {
            let destination = service.destination(refit).unwrap();
            service.refit(refit, &sources, Target::Destination(&destination)).unwrap();
        }
    });
}

/// Ids of windows repeat between groups: peers would write somebody else's memory.
#[test]
fn a_destination_of_another_group_is_refused_and_still_read() {
    let (from, to) = (tp(2, 64), tp(1, 64));
    let services = local::group(2, &GROUP).unwrap().into_iter();
    let mut services: Vec<_> =
        services.map(|endpoint| CopyService::new(endpoint, options())).collect();
    let old_refit = services[0].prepare(&from, &to, &PlanOptions::default()).unwrap();
    let kept = services[0].destination(&old_refit).unwrap();
    let error = agreed(on_threads(2, &GROUP, options(), |service| {
        let refit = service.prepare(&from, &to, &PlanOptions::default())?;
        let mine = shards(&from, service.rank());
        let made = service.destination(&refit)?;
        let destination = if service.rank() == 0 { &kept } else { &made };
        service.refit(&refit, &bind(&refit, &mine), Target::Destination(destination))
    }));
    assert!(error.starts_with("PE 0: the destination was made in another group"), "{error}");
    assert_eq!(kept.read().unwrap().version(), 0);
}

#[test]
fn layouts_for_more_pes_than_the_group_has_are_refused() {
    let (from, to) = (tp(4, 64), tp(2, 64));
    let error = agreed(on_threads(2, &GROUP, options(), |service| {
        service.prepare(&from, &to, &PlanOptions::default())
    }));
    assert_eq!(error, "the layouts are for 4 PEs, and this group has 2");
    let errors = on_endpoints(local::group(2, &GROUP).unwrap(), |mut endpoint| {
        let wait = Wait::timeout(PATIENCE);
        let refit = Refit::new(&from, &to, &PlanOptions::default(), 256, endpoint.rank()).unwrap();
        let mine = shards(&from, endpoint.rank());
        let mut memory = memory_for(&refit);
        let mut targets = Targets::new(&refit);
        for (name, bytes) in &mut memory {
            targets.bind(&refit, name, bytes).unwrap();
        }
        let session = Session::enter(&mut endpoint, refit.announced(), &wait).unwrap();
        let executor = PipelineExecutor::new(&session);
        executor.execute_pipeline(&refit, &bind(&refit, &mine), &mut targets, wait).unwrap_err()
    });
    assert_eq!(errors[0], errors[1]);
    assert!(errors[0].to_string().contains("for 4 PEs, and this group has 2"), "{}", errors[0]);
}

#[test]
fn a_pipeline_without_its_tensors_fails_the_others_at_once() {
    let (from, to) = (tp(2, 64), tp(1, 64));
    let started = Instant::now();
    let errors = on_endpoints(local::group(2, &GROUP).unwrap(), |mut endpoint| {
        let wait = Wait::timeout(PATIENCE);
        let refit = Refit::new(&from, &to, &PlanOptions::default(), 256, endpoint.rank()).unwrap();
        let mut memory = memory_for(&refit);
        let mut targets = Targets::new(&refit);
        for (name, bytes) in &mut memory {
            targets.bind(&refit, name, bytes).unwrap();
        }
        let mine = if endpoint.rank() == 0 { shards(&from, 0) } else { Vec::new() };
        let session = Session::enter(&mut endpoint, refit.announced(), &wait).unwrap();
        let executor = PipelineExecutor::new(&session);
        executor.execute_pipeline(&refit, &bind(&refit, &mine), &mut targets, wait).unwrap_err()
    });
    assert_eq!(errors[0], errors[1]);
    assert!(errors[0].to_string().contains("PE 1: tensor `layers.0"), "{}", errors[0]);
    assert!(started.elapsed() < PATIENCE / 2, "{:?}", started.elapsed());
}

/// What a transport says of its slots is not taken on trust: lanes write them by address.
#[test]
fn slots_smaller_than_the_group_says_are_refused() {
    let (from, to) = (tp(2, 64), tp(1, 64));
    let small = local::Options { slot_bytes: 64, ..GROUP };
    let slots = local::group(2, &small).unwrap().into_iter().map(|slots| Mutex::new(Some(slots)));
    let slots: Vec<_> = slots.collect();
    let error = agreed(on_endpoints(local::group(2, &GROUP).unwrap(), |endpoint| {
        let rank = endpoint.rank();
        let transport = Meddled::through(endpoint, slots[rank].lock().unwrap().take().unwrap());
        let options = ServiceOptions { separate_lanes: Some(true), ..options() };
        let mut service = CopyService::new(transport, options);
        let refit = service.prepare(&from, &to, &PlanOptions::default())?;
        let mine = shards(&from, rank);
        let mut memory = memory_for(&refit);
        let mut targets = Targets::new(&refit);
        for (name, bytes) in &mut memory {
            targets.bind(&refit, name, bytes).unwrap();
        }
        service.refit(&refit, &bind(&refit, &mine), Target::Memory(&mut targets))
    }));
    assert!(error.contains("a slot of 64 bytes, not of 256"), "{error}");
}

/// A message that is larger than the slot that it is packed into would end in other memory.
#[test]
fn a_refit_for_larger_slots_is_refused() {
    let (from, to) = (tp(2, 64), tp(1, 64));
    let refit_in = |slot_bytes: [usize; 2], separate_lanes| {
        agreed(on_threads(2, &GROUP, ServiceOptions { separate_lanes, ..options() }, |service| {
            let (rank, plan) = (service.rank(), PlanOptions::default());
            let refit = Refit::new(&from, &to, &plan, slot_bytes[rank], rank).unwrap();
            let mine = shards(&from, rank);
            let mut memory = memory_for(&refit);
            let mut targets = Targets::new(&refit);
            for (name, bytes) in &mut memory {
                targets.bind(&refit, name, bytes).unwrap();
            }
            service.refit(&refit, &bind(&refit, &mine), Target::Memory(&mut targets))
        }))
    };
    for separate_lanes in [Some(false), Some(true)] {
        let error = refit_in([4096, 4096], separate_lanes);
        assert!(error.contains("slots of 4096 bytes, and this group has slots of 256"), "{error}");
        // Cut otherwise on the other side, messages of one size would not have the same tensors.
        let error = refit_in([128, 256], separate_lanes);
        assert!(error.contains("has plan"), "{error}");
    }
}

/// What was prepared for one refit does not run in a session of another.
#[test]
fn a_session_of_another_refit_is_refused() {
    let (from, to) = (tp(2, 64), tp(1, 64));
    let errors = on_endpoints(local::group(2, &GROUP).unwrap(), |mut endpoint| {
        let wait = Wait::timeout(PATIENCE);
        let refit = Refit::new(&from, &to, &PlanOptions::default(), 256, endpoint.rank()).unwrap();
        let mine = shards(&from, endpoint.rank());
        let session = Session::enter(&mut endpoint, refit.fingerprint(), &wait).unwrap();
        let (executor, mut targets) = (PipelineExecutor::new(&session), Targets::new(&refit));
        executor.execute_pipeline(&refit, &bind(&refit, &mine), &mut targets, wait).unwrap_err()
    });
    assert_eq!(errors[0], errors[1]);
    assert!(errors[0].to_string().contains("was not entered for the refit"), "{}", errors[0]);
}

/// One PE gives up at the moment at which the other commits: both have the refit, or neither.
#[test]
fn all_agree_whether_a_refit_was_committed() {
    let started = Instant::now();
    let group = local::Options { depth: 1, slot_bytes: 64 };
    for round in 0.. {
        if started.elapsed() > Duration::from_secs(2) {
            break;
        }
        let results = on_endpoints(local::group(2, &group).unwrap(), |mut endpoint| {
            let rank = endpoint.rank();
            let wait = Wait::timeout(PATIENCE);
            let session = Session::enter(&mut endpoint, 0, &wait).unwrap();
            let late = Instant::now() + Duration::from_micros(round % 60 * 4);
            if rank == 0 {
                while Instant::now() < late {
                    std::hint::spin_loop();
                }
                return (session.finish(&wait).is_ok(), endpoint);
            }
            (session.finish(&Wait::timeout(Duration::from_micros(120))).is_ok(), endpoint)
        });
        assert_eq!(results[0].0, results[1].0, "round {round}");
        // What all have is no reason to fail the group for good.
        let is_failed = results[0].1.failure().is_some();
        assert_eq!(results[0].0, !is_failed, "round {round}");
    }
}

/// What a PE calls its tensors is found, and tied tensors are bound by any of their names.
#[test]
fn a_pe_binds_its_tensors_by_the_names_that_it_knows() {
    let text = r#"
        [mesh]
        axes = [["pp", 2]]
        renumber = true
        [[tensor]]
        match = "embed"
        stage = "first"
        [[tensor]]
        match = "head"
        stage = "last"
        tied_to = "embed"
        "#;
    let spec = |name: &str, shape: &[u64]| TensorSpec {
        name: name.to_owned(),
        dtype: Dtype::F32,
        shape: Dims::from_slice(shape).unwrap(),
    };
    let layers = (0..4).map(|layer| spec(&format!("layers.{layer}.w"), &[4]));
    let specs: Vec<TensorSpec> = layers.chain([spec("embed", &[8]), spec("head", &[8])]).collect();
    let layout = MeshLayout::from_toml(text).unwrap().compile(&specs).unwrap();
    let refit = Refit::new(&layout, &layout, &PlanOptions::default(), 64, 1).unwrap();
    let names = |local| refit.sources().name_of(local);
    assert_eq!(names("layers.0.w"), Some("layers.2.w"));
    assert_eq!(names("layers.1.w"), Some("layers.3.w"));
    assert_eq!(names("head"), Some("embed"));
    assert_eq!(names("layers.9.w"), None);
    // It holds this one, and calls it otherwise.
    assert_eq!(names("layers.3.w"), None);
    let bytes = vec![0; specs[4].dtype.bytes() as usize * 8];
    let mut sources = Sources::new(&refit);
    sources.bind(&refit, "head", &bytes).unwrap();
    sources.bind(&refit, "embed", &bytes).unwrap();
    let first = Refit::new(&layout, &layout, &PlanOptions::default(), 64, 0).unwrap();
    assert_eq!(first.sources().name_of("layers.0.w"), Some("layers.0.w"));
    assert_eq!(first.sources().name_of("layers.2.w"), None);
}
