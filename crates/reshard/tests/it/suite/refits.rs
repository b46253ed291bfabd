//! Refits, against arrays that were laid out element by element.

use syncline_layout::{Layout, PlanOptions};
use syncline_reshard::{ServiceOptions, Target};
use syncline_tensor::Dtype;
use syncline_testing::Rng;

use crate::groups::PATIENCE;
use crate::models::{bind, model, shards};
use crate::{meshes, parts};

use super::Fixture;

/// Refits `from` to `to` twice, into destinations or into memory by a coin of each rank, and
/// compares.
fn check_refit(pe: &dyn Fixture, rng: &mut Rng, from: &Layout, to: &Layout, slots: &[usize]) {
    let coins: Vec<bool> = (0..pe.size()).map(|_| rng.one_in(2)).collect();
    let slots = (rng.below(3) + 1, *rng.pick(slots));
    let mut service = pe.service(slots, parts::any_options(rng));
    parts::refit_twice(&mut service, from, to, coins[pe.rank()]);
}

pub fn random_layouts(pe: &dyn Fixture) {
    // The same on every rank; a pair that needs more ranks than there are is passed over.
    let mut rng = Rng::new(pe.size() as u64);
    let world = |layout: &Layout| layout.world().max(1) as usize;
    let mut checked = 0;
    for _ in 0..1_000 {
        let (from, to) = meshes::any_pair(&mut rng);
        if world(&from).max(world(&to)) <= pe.size() {
            check_refit(pe, &mut rng, &from, &to, &[64, 128, 192, 1_024, 65_536]);
            checked += 1;
        }
        if checked == 6 {
            break;
        }
    }
}

pub fn megabytes(pe: &dyn Fixture) {
    let size = pe.size();
    let from = model(4, 420, Dtype::F32, &format!(r#"[["tp", {size}]]"#));
    let half = (size / 2).max(1);
    let to = model(4, 420, Dtype::F32, &format!(r#"[["tp", {half}], ["pp", {}]]"#, size / half));
    let mut rng = Rng::new(5);
    for _ in 0..2 {
        check_refit(pe, &mut rng, &from, &to, &[8_192, 65_536]);
    }
}

pub fn conversions(pe: &dyn Fixture) {
    let axes = |tp: usize| format!(r#"[["tp", {tp}]]"#);
    let (wide, narrow) = (axes(pe.size()), axes((pe.size() - 1).max(1)));
    for dtypes in [[Dtype::F32, Dtype::BF16], [Dtype::F8E5M2, Dtype::F16]] {
        for checksums in [false, true] {
            let options = ServiceOptions { timeout: PATIENCE, checksums, ..Default::default() };
            parts::convert(&mut pe.service((2, 512), options), [&wide, &narrow], dtypes);
        }
    }
}

pub fn there_and_back(pe: &dyn Fixture) {
    let wide = model(3, 60, Dtype::BF16, &format!(r#"[["tp", {}]]"#, pe.size()));
    let half = (pe.size() / 2).max(1);
    let narrow = model(3, 60, Dtype::BF16, &format!(r#"[["tp", {half}], ["dp", 2]]"#));
    let narrow = if pe.size() < 2 { wide.clone() } else { narrow };
    let mut service = pe.service((2, 256), ServiceOptions::default());
    parts::there_and_back(&mut service, &wide, &narrow);
}

pub fn executor_alone(pe: &dyn Fixture) {
    let axes = |tp: usize| format!(r#"[["tp", {tp}]]"#);
    let from = model(2, 48, Dtype::F32, &axes(pe.size()));
    let to = model(2, 48, Dtype::F32, &axes((pe.size() / 2).max(1)));
    parts::executor_alone(&mut pe.group((2, 512)), &from, &to);
}

/// Resident memory of this process in KiB.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Each with other values, in memory that does not grow.
pub fn many(pe: &dyn Fixture) {
    let axes = |tp: usize| format!(r#"[["tp", {tp}]]"#);
    let from = model(2, 48, Dtype::F32, &axes(pe.size()));
    let to = model(2, 48, Dtype::F32, &axes((pe.size() - 1).max(1)));
    let options = ServiceOptions { timeout: PATIENCE, ..Default::default() };
    let mut service = pe.service((2, 4096), options);
    let refit = service.prepare(&from, &to, &PlanOptions::default()).unwrap();
    let destination = service.destination(&refit).unwrap();
    let stamped = |shards: &[(String, Vec<u8>)], version: u64| -> Vec<(String, Vec<u8>)> {
        let stamp = |bytes: &Vec<u8>| bytes.iter().map(|byte| byte ^ version as u8).collect();
        shards.iter().map(|(name, bytes)| (name.clone(), stamp(bytes))).collect()
    };
    let (mine, expected) = (shards(&from, pe.rank()), shards(&to, pe.rank()));
    let mut resident = 0;
    for version in 1..=120 {
        let mine = stamped(&mine, version);
        service.refit(&refit, &bind(&refit, &mine), Target::Destination(&destination)).unwrap();
        let reading = destination.read().unwrap();
        for (name, bytes) in stamped(&expected, version) {
            assert!(reading.tensor(&name) == Some(&bytes[..]), "`{name}` in refit {version}");
        }
        if version == 40 {
            resident = resident_kib();
        }
    }
    let grown_kib = resident_kib().saturating_sub(resident);
    // AddressSanitizer keeps freed memory for a while: there is nothing to measure.
    let is_sanitized = std::env::var_os("ASAN_OPTIONS").is_some();
    assert!(is_sanitized || grown_kib < 4_096, "{grown_kib} KiB more after 80 refits");
}
