//! Random programs of integer kernels: exact on every device, in every order that is allowed.

use serde_json::json;
use syncline_tensor::Dtype;
use syncline_trace::Trace;

use super::Settings;
use super::build::{self, Builder, Tensor};

/// Kernels on random slices of a few buffers.
pub(super) fn random(settings: &Settings) -> Trace {
    let (tasks, elements) = (settings.get("tasks"), settings.get("elements"));
    let mut state = settings.get("seed");
    let mut below = move |limit: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    let mut build = Builder::default();
    let buffers: Vec<Tensor> = (0..settings.get("buffers"))
        .map(|index| {
            let init = build::random(settings.get("seed") + index, Dtype::I32);
            build.tensor(&format!("b{index}"), Dtype::I32, &[elements], Some(init))
        })
        .collect();
    for _ in 0..tasks {
        let count = 1 + below(elements / 2);
        // Sources and target are of different buffers: what a kernel makes of a target that is half
        // a source would depend on the device.
        let target = below(buffers.len() as u64);
        let c = buffers[target as usize].part(0, below(elements - count + 1), count);
        let others = buffers.len() as u64 - 1;
        let mut source = || {
            let other = (target + 1 + below(others)) % buffers.len() as u64;
            buffers[other as usize].part(0, below(elements - count + 1), count)
        };
        let (a, b) = (source(), source());
        let kernel = ["add", "sub", "mul", "copy", "axpy", "fill"][below(6) as usize];
        let (scalars, args) = match kernel {
            "copy" => (json!({}), vec![a.read(), c.write()]),
            "axpy" => (json!({"alpha": below(7)}), vec![a.read(), c.update()]),
            "fill" => (json!({"value": below(50)}), vec![c.write()]),
            _ => (json!({}), vec![a.read(), b.read(), c.write()]),
        };
        build.task(kernel, kernel, scalars, args);
    }
    build.finish()
}
