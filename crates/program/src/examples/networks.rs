//! Programs of neural networks.

use serde_json::json;
use syncline_trace::Trace;

use super::Settings;
use super::build::{Builder, Tensor};

/// Layers of `gemm` and `gelu`; parts of the batch do not depend on one another.
pub(super) fn mlp(settings: &Settings) -> Trace {
    let (layers, parts) = (settings.get("layers"), settings.get("parts"));
    let (rows, width) = (settings.get("rows"), settings.get("width"));
    let mut build = Builder::default();
    let input = build.random("x", &[parts * rows, width], settings.get("seed"));
    let weights: Vec<Tensor> = (0..layers)
        .map(|layer| build.random(&format!("w{layer}"), &[width, width], settings.get("seed") + 1))
        .collect();
    let hidden = build.zeros("hidden", &[parts * rows, width]);
    let output = build.zeros("y", &[parts * rows, width]);
    let of = |tensor: Tensor, part: u64| tensor.part(0, part * rows, rows);
    // Weights are from 0 up to 1: divided by the width, activations stay in that range.
    let alpha = json!({"alpha": 2.0 / width as f64});
    for (layer, weight) in weights.iter().enumerate() {
        for part in 0..parts {
            let source = of(if layer == 0 { input } else { output }, part);
            let args = [source.read(), weight.read(), of(hidden, part).write()];
            build.task("gemm", "gemm", alpha.clone(), args);
            let args = [of(hidden, part).read(), of(output, part).write()];
            build.task("gelu", "gelu", json!({}), args);
        }
    }
    build.finish()
}

pub(super) fn mlp_tasks(settings: &Settings) -> u64 {
    2 * settings.get("layers") * settings.get("parts")
}

/// A block of a transformer as most models have it, norms first.
pub(super) fn attention(settings: &Settings) -> Trace {
    let (tokens, heads, head) =
        (settings.get("tokens"), settings.get("heads"), settings.get("head"));
    let (width, seed) = (heads * head, settings.get("seed"));
    let mut build = Builder::default();
    let x = build.random("x", &[tokens, width], seed);
    let gains =
        ["attention gain", "feed-forward gain"].map(|name| build.random(name, &[width], seed));
    let [wq, wk, wv, wo] =
        ["wq", "wk", "wv", "wo"].map(|name| build.random(name, &[width, width], seed));
    let up = build.random("up", &[width, 4 * width], seed);
    let down = build.random("down", &[4 * width, width], seed);
    let normed = build.zeros("normed", &[tokens, width]);
    let [q, k, v] = ["q", "k", "v"].map(|name| build.zeros(name, &[tokens, width]));
    let scores = build.zeros("scores", &[heads * tokens, tokens]);
    let [mixed, attended] = ["mixed", "attended"].map(|name| build.zeros(name, &[tokens, width]));
    let inner = build.zeros("inner", &[tokens, 4 * width]);
    let y = build.zeros("y", &[tokens, width]);

    let shrink = json!({"alpha": 2.0 / width as f64});
    let none = json!({});
    build.task("norm", "rmsnorm", none.clone(), [x.read(), gains[0].read(), normed.write()]);
    for (name, weight, target) in [("q", wq, q), ("k", wk, k), ("v", wv, v)] {
        for h in 0..heads {
            let weight = weight.part(1, h * head, head);
            let args = [normed.read(), weight.read(), target.part(1, h * head, head).write()];
            build.task(name, "gemm", shrink.clone(), args);
        }
    }
    for h in 0..heads {
        let of = |tensor: Tensor| tensor.part(1, h * head, head);
        let weights = scores.part(0, h * tokens, tokens);
        let scale = json!({"alpha": 1.0 / (head as f64).sqrt(), "transpose_b": true});
        let args = [of(q).read(), of(k).read(), weights.write()];
        build.task("scores", "gemm", scale, args);
        let args = [weights.read(), weights.write()];
        build.task("softmax", "softmax", json!({"causal": true}), args);
        let args = [weights.read(), of(v).read(), of(mixed).write()];
        build.task("mix", "gemm", none.clone(), args);
    }
    build.task("project", "gemm", shrink.clone(), [mixed.read(), wo.read(), attended.write()]);
    build.task("add", "add", none.clone(), [x.read(), attended.read(), attended.write()]);
    let args = [attended.read(), gains[1].read(), normed.write()];
    build.task("norm 2", "rmsnorm", none.clone(), args);
    // The hidden layer in as many parts as heads, so that there is something to run side by side.
    for part in 0..heads {
        let of = |tensor: Tensor| tensor.part(1, part * 4 * head, 4 * head);
        let args = [normed.read(), of(up).read(), of(inner).write()];
        build.task("up", "gemm", shrink.clone(), args);
        let args = [of(inner).read(), of(inner).write()];
        build.task("silu", "silu", none.clone(), args);
    }
    build.task(
        "down",
        "gemm",
        json!({"alpha": 0.5 / width as f64}),
        [inner.read(), down.read(), y.write()],
    );
    build.task("add 2", "add", none, [attended.read(), y.read(), y.write()]);
    build.finish()
}

pub(super) fn attention_tasks(settings: &Settings) -> u64 {
    // For each head: three projections, scores, softmax, mix, two of the feed-forward layer.
    6 + 8 * settings.get("heads")
}
