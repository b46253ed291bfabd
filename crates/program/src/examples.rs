//! Ready programs, of any size: what `syncline example` writes.

mod build;
mod dense;
mod networks;
mod random;

use std::collections::BTreeMap;

use syncline_deps::nearest;
use syncline_deps::trace::Trace;

/// A ready program.
#[derive(Clone, Copy, Debug)]
pub struct Example {
    /// Its name.
    pub name: &'static str,
    /// What it computes.
    pub about: &'static str,
    /// Its settings, with their defaults and the smallest value allowed.
    pub settings: &'static [(&'static str, u64, u64)],
    build: fn(&Settings) -> Trace,
}

/// Every ready program.
pub const EXAMPLES: &[Example] = &[
    Example {
        name: "cholesky",
        about: "the lower triangular factor of a positive definite matrix, tile by tile",
        settings: &[("tiles", 6, 1), ("tile", 64, 1), ("seed", 7, 0)],
        build: dense::cholesky,
    },
    Example {
        name: "stencil",
        about: "averages over neighbours of a grid in tiles, step after step",
        settings: &[("tiles", 4, 1), ("tile", 64, 1), ("steps", 6, 1), ("seed", 7, 0)],
        build: dense::stencil,
    },
    Example {
        name: "butterfly",
        about: "sums and differences of blocks in the pattern of a fast Fourier transform",
        settings: &[("stages", 5, 1), ("block", 4096, 1), ("seed", 7, 0)],
        build: dense::butterfly,
    },
    Example {
        name: "mlp",
        about: "a multi-layer perceptron, its batch in parts",
        settings: &[
            ("layers", 3, 1),
            ("parts", 4, 1),
            ("rows", 32, 1),
            ("width", 128, 1),
            ("seed", 7, 0),
        ],
        build: networks::mlp,
    },
    Example {
        name: "attention",
        about: "a transformer block, forward: norm, causal attention by heads, norm, feed-forward",
        settings: &[("tokens", 64, 1), ("heads", 4, 1), ("head", 32, 1), ("seed", 7, 0)],
        build: networks::attention,
    },
    Example {
        name: "random",
        about: "integer kernels on random slices of a few buffers",
        settings: &[("tasks", 200, 1), ("buffers", 8, 2), ("elements", 1024, 16), ("seed", 7, 0)],
        build: random::random,
    },
];

/// Why there is no such example.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum ExampleError {
    #[error("no example `{name}`{nearest}; there are: {known}")]
    Unknown { name: String, nearest: String, known: String },
    #[error("example `{example}` has no setting `{name}`{nearest}; it has: {known}")]
    UnknownSetting { example: String, name: String, nearest: String, known: String },
    #[error("example `{example}`: `{name}` must be at least {least}, not {value}")]
    TooSmall { example: String, name: String, least: u64, value: u64 },
}

/// The values of an example's settings.
struct Settings(BTreeMap<&'static str, u64>);

impl Settings {
    fn get(&self, name: &str) -> u64 {
        self.0[name]
    }
}

/// The program `name` with these settings, and the defaults of the others.
///
/// ```
/// let trace = syncline_program::example("cholesky", &[("tiles".to_owned(), 2)])?;
/// assert_eq!(trace.tasks.len(), 1 + 4);
/// # Ok::<(), syncline_program::ExampleError>(())
/// ```
pub fn example(name: &str, settings: &[(String, u64)]) -> Result<Trace, ExampleError> {
    let meant = |nearest: Option<&str>| {
        nearest.map(|name| format!(": did you mean `{name}`?")).unwrap_or_default()
    };
    let found = EXAMPLES.iter().find(|example| example.name == name);
    let found = found.ok_or_else(|| {
        let names: Vec<_> = EXAMPLES.iter().map(|example| example.name).collect();
        ExampleError::Unknown {
            name: name.to_owned(),
            nearest: meant(nearest(name, names.iter().copied())),
            known: names.join(", "),
        }
    })?;
    let mut values: BTreeMap<_, _> =
        found.settings.iter().map(|(name, default, _)| (*name, *default)).collect();
    for (name, value) in settings {
        let known = found.settings.iter().find(|(known, ..)| known == name);
        let Some((known, _, least)) = known else {
            let names: Vec<_> = found.settings.iter().map(|(name, ..)| *name).collect();
            return Err(ExampleError::UnknownSetting {
                example: found.name.to_owned(),
                name: name.clone(),
                nearest: meant(nearest(name, names.iter().copied())),
                known: names.join(", "),
            });
        };
        if value < least {
            let (example, name) = (found.name.to_owned(), name.clone());
            return Err(ExampleError::TooSmall { example, name, least: *least, value: *value });
        }
        values.insert(known, *value);
    }
    Ok((found.build)(&Settings(values)))
}
