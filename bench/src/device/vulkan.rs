//! Vulkan: a chain of small kernels beside plain `ash` and `wgpu`; copies beside memcpy.

use syncline_device::registry::BackendProbe;
use syncline_vulkan::Probe;

use super::ash_peer::ByHand;
use super::{chain, copies};
use crate::Effort;
use crate::measure::Side;
use crate::row::Row;

/// The kernel of all rows: adds one to `params[2]` elements, from `params[0]` on.
pub(super) const SOURCE: &str = "@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read> params: array<u32>;
@compute @workgroup_size(64)
fn bump(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < params[2] { x[params[0] + id.x] += 1.0; }
}";

pub(super) fn run(effort: Effort) -> Vec<Row> {
    let probe = Probe::new();
    let device = match probe.probe() {
        Ok(_) => probe.open(0).expect("the driver lists it"),
        Err(reason) => {
            eprintln!("device: no Vulkan rows: {reason}");
            return Vec::new();
        }
    };
    let (times, dispatches, bytes) = match effort {
        Effort::Smoke => (2, 20, 1 << 20),
        Effort::Quick => (21, 1_000, 64 << 20),
        Effort::Full => (61, 1_000, 64 << 20),
    };
    let hand = ByHand::new(dispatches);
    #[cfg(feature = "wgpu")]
    let wgpu = super::wgpu_peer::Wgpu::new();
    let peers = vec![
        Side::new("ash, submit and wait each", || (0..dispatches).for_each(|_| hand.one())),
        Side::new("limit:ash", || hand.at_once()),
        #[cfg(feature = "wgpu")]
        Side::new("wgpu, one encoder", || wgpu.one_encoder(dispatches)),
    ];
    let mut rows = chain::run(&device, SOURCE, dispatches, times, peers);
    rows.extend(copies::run(&device, times, bytes));
    rows
}
