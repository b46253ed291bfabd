//! Texts that no sensible user writes: refused or planned, without a panic.

use syncline_layout::{LayoutFile, PlanOptions, TransferPlan};
use syncline_testing::for_seeds;

/// Texts of both forms of layouts, and the pieces that mutations put into them.
fn texts() -> Vec<String> {
    let case = include_str!("../data/cases/blocks3_tp2_to_tp4_colloc_w4.json");
    let case: serde_json::Value = serde_json::from_str(case).unwrap();
    let mesh = r#"
        [mesh]
        axes = [["tp", 2], ["ep", 2], ["pp", 2]]
        layers = 4
        [[tensor]]
        match = "layers.*.up"
        shard = [{dim = 0, axis = "tp"}]
        [[tensors]]
        name = "layers.0.up"
        dtype = "f32"
        shape = [8, 8]
        "#;
    vec![case["from"].to_string(), case["to"].to_string(), mesh.to_owned()]
}

const PIECES: [&str; 16] = [
    "-1",
    "0",
    "18446744073709551615",
    "18446744073709551616",
    "1e400",
    "\"\"",
    "null",
    "[]",
    "{}",
    "[[0,4611686018427387904],[0,4611686018427387904]]",
    "\u{0}",
    "..",
    "\"a\\u0000\"",
    "4294967296",
    ",",
    "\"dtype\":\"f64\"",
];

#[test]
fn layouts_of_any_text_are_refused_or_planned() {
    let texts = texts();
    for_seeds("layouts_of_any_text_are_refused_or_planned", 300, |rng| {
        let mut text = rng.pick(&texts).clone().into_bytes();
        for _ in 0..rng.below(4) + 1 {
            let at = rng.below(text.len());
            let end = (at + rng.below(12)).min(text.len());
            match rng.below(4) {
                0 => text.truncate(at.max(1)),
                1 => drop(text.splice(at..end, PIECES[rng.below(PIECES.len())].bytes())),
                2 => text[at] = rng.next_u64() as u8,
                _ => {
                    // The next number becomes another.
                    let is_digit = |at: &usize| text[*at].is_ascii_digit();
                    let first = (at..text.len()).find(is_digit).unwrap_or(0);
                    let last = (first..text.len()).find(|at| !is_digit(at)).unwrap_or(text.len());
                    drop(text.splice(first..last, rng.extreme().to_string().bytes()));
                }
            }
        }
        let text = String::from_utf8_lossy(&text);
        let Ok(layout) = LayoutFile::parse(&text).and_then(|file| file.resolve(&[])) else {
            return;
        };
        if layout.tensors().iter().all(|tensor| tensor.placement().shards().len() < 64) {
            let _ = TransferPlan::new(&layout, &layout, &PlanOptions::default());
        }
    });
}
