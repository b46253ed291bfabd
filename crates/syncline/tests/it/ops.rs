//! The operations of the front end on every device, against loops over double precision.

use syncline_testing::for_seeds;

#[path = "../../../front/tests/it/operations.rs"]
mod operations;

#[test]
fn operations_agree_with_loops_in_every_mode_and_on_every_device() {
    let Some(executor) = super::executor(Default::default()) else { return };
    for_seeds("operations_agree_with_loops_in_every_mode_and_on_every_device", 8, |rng| {
        operations::agree(&executor, rng);
    });
}
