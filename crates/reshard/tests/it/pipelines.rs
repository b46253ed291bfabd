//! Refits over the local transport, against arrays that were laid out element by element.

use syncline_deps::Dtype;
use syncline_reshard::transport::local;
use syncline_reshard::{Layout, ServiceOptions};
use syncline_testing::{Rng, for_seeds};

use crate::groups::{PATIENCE, on_endpoints, on_threads, world};
use crate::{meshes, parts};

pub use crate::models::model;

fn any_group(rng: &mut Rng) -> local::Options {
    let slot_bytes = *rng.pick(&[64, 128, 192, 1_024, 65_536]);
    local::Options { depth: rng.below(3) + 1, slot_bytes }
}

/// Refits `from` to `to` twice, into destinations or into memory by a coin of each PE, and compares.
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
    on_endpoints(local::group(4, &group).unwrap(), |endpoint| {
        parts::executor_alone(&endpoint, &from, &to);
    });
}
