//! The whole set on this machine, by every way.

use crate::jobs::{check, launcher, on_one_host};

fn check_sizes(scenario: &str, sizes: &[usize]) {
    let Some(launcher) = launcher() else { return };
    for &ranks in sizes {
        check(on_one_host(&launcher, ranks), ranks, scenario);
    }
}

#[test]
fn through_shared_memory() {
    check_sizes("set auto shared", &[1, 2, 4, 7]);
}

#[test]
fn by_puts() {
    check_sizes("set put apart", &[1, 2, 3, 8]);
}

#[test]
fn by_messages() {
    check_sizes("set messages apart", &[1, 2, 5, 6, 8]);
}

#[test]
fn by_what_a_measurement_prefers() {
    check_sizes("set auto apart", &[2]);
}

#[test]
fn by_messages_with_memory_shared() {
    check_sizes("set messages shared", &[3]);
}
