//! The models that are moved, and between which layouts.

use syncline_layout::{Dims, Layout, MeshLayout, TensorSpec};
use syncline_tensor::Dtype;

use crate::Effort;

/// A model and two meshes.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// `layers` transformer layers and an embedding, or `layers` thousand tensors of 16 KiB.
    layers: u64,
    is_small: bool,
    width: u64,
    from: &'static str,
    to: &'static str,
}

/// Meshes over four PEs, by name.
const MESHES: [(&str, &str); 3] = [
    ("TP4", r#"[["tp", 4]]"#),
    ("TP2DP2", r#"[["tp", 2], ["dp", 2]]"#),
    ("TP2PP2", r#"[["tp", 2], ["pp", 2]]"#),
];

impl Case {
    /// Every case at this effort.
    pub(crate) fn all(effort: Effort) -> Vec<Self> {
        let (layers, width) = if effort == Effort::Smoke { (2, 64) } else { (24, 1024) };
        let thousands = if effort == Effort::Smoke { 0 } else { 20 };
        let pairs = [("TP4", "TP2DP2"), ("TP2DP2", "TP4"), ("TP2PP2", "TP4")];
        let large = pairs.map(|(from, to)| Self { layers, is_small: false, width, from, to });
        let small =
            pairs.map(|(from, to)| Self { layers: thousands, is_small: true, width, from, to });
        large.into_iter().chain(small).collect()
    }

    /// The words by which a PE is told.
    pub(crate) fn to_text(&self) -> String {
        let Self { layers, is_small, width, from, to } = self;
        format!("{layers} {is_small} {width} {from} {to}")
    }

    /// The case of those words.
    pub(crate) fn parse(words: &[&str]) -> Self {
        let known = |name: &str| {
            let found = MESHES.iter().find(|(known, _)| *known == name);
            found.expect("a mesh that the parent knows").0
        };
        Self {
            layers: words[0].parse().expect("a number"),
            is_small: words[1] == "true",
            width: words[2].parse().expect("a number"),
            from: known(words[3]),
            to: known(words[4]),
        }
    }

    /// For people.
    pub(crate) fn describe(&self) -> String {
        let mib = self.bytes() >> 20;
        let what = match self.is_small {
            true => format!("{} tensors of 16 KiB", self.specs().len()),
            false => format!("{mib} MiB"),
        };
        format!("{} -> {}, {what}", self.from, self.to)
    }

    /// Bytes of the whole model.
    pub(crate) fn bytes(&self) -> u64 {
        self.specs().iter().map(|spec| spec.shape.volume() * spec.dtype.bytes()).sum()
    }

    /// Layouts before and after.
    pub(crate) fn layouts(&self) -> (Layout, Layout) {
        (self.layout(self.from), self.layout(self.to))
    }

    fn layout(&self, mesh: &str) -> Layout {
        let axes = MESHES.iter().find(|(known, _)| *known == mesh).expect("known").1;
        let rules = format!(
            r#"
            [mesh]
            axes = {axes}
            [[tensor]]
            match = "layers.*.{{qkv,gate,up}}"
            shard = [{{dim = 0, axis = "tp"}}]
            [[tensor]]
            match = "layers.*.{{out,down}}"
            shard = [{{dim = 1, axis = "tp"}}]
            [[tensor]]
            match = "embed"
            shard = [{{dim = 0, axis = "tp"}}]
            "#
        );
        let mesh = MeshLayout::from_toml(&rules).expect("rules that are written above");
        mesh.compile(&self.specs()).expect("shapes that four PEs divide")
    }

    fn specs(&self) -> Vec<TensorSpec> {
        let spec = |name: String, rows: u64, columns: u64| TensorSpec {
            name,
            dtype: Dtype::BF16,
            shape: Dims::from_slice(&[rows, columns]).expect("two dimensions"),
        };
        if self.is_small {
            let count = (self.layers * 1_000).max(40);
            let part = |at: u64| ["qkv", "out"][at as usize % 2];
            let small = |at: u64| spec(format!("layers.{}.{}", at / 2, part(at)), 64, 128);
            return (0..count).map(small).collect();
        }
        let width = self.width;
        let mut specs = vec![spec("embed".to_owned(), 13 * width, width)];
        for layer in 0..self.layers {
            let shapes = [
                ("qkv", 3 * width, width),
                ("out", width, width),
                ("gate", 2 * width, width),
                ("up", 2 * width, width),
                ("down", width, 2 * width),
            ];
            let named = shapes
                .map(|(part, rows, columns)| spec(format!("layers.{layer}.{part}"), rows, columns));
            specs.extend(named);
        }
        specs
    }
}
