//! What a body borrows of its arguments ends with the launch.
use std::sync::Mutex;

use syncline_device::Kernel;

static KEPT: Mutex<Option<&'static [f32]>> = Mutex::new(None);

fn main() {
    Kernel::cpu("keeps", |args| {
        *KEPT.lock().unwrap() = args.slice::<f32>(0).ok();
    });
}
