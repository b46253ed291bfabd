//! Ready programs, of any size: what `syncline example` writes.

mod build;
mod dense;
mod networks;
mod random;

use std::collections::BTreeMap;

use syncline_files::machine_memory_bytes;
use syncline_spelling::nearest;
use syncline_trace::Trace;

/// A ready program.
#[derive(Clone, Copy, Debug)]
pub struct Example {
    /// Its name.
    pub name: &'static str,
    /// What it computes.
    pub about: &'static str,
    /// Its settings.
    pub settings: &'static [Setting],
    /// How many tasks it has with these settings.
    tasks: fn(&Settings) -> u64,
    build: fn(&Settings) -> Trace,
}

/// A setting of an [`Example`].
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// Its value if none is given.
    pub default: u64,
    /// The smallest value allowed.
    pub least: u64,
    /// The largest value allowed: products of all settings of an example stay below 2^62.
    pub most: u64,
}

const fn setting(name: &'static str, default: u64, least: u64, most: u64) -> Setting {
    Setting { name, default, least, most }
}

/// Seeds are multiplied by 1,000 for the buffers of a program.
const SEED: Setting = setting("seed", 7, 0, 1 << 53);

/// Tasks that an example may have on any machine.
const TASKS_MAX: u64 = 1 << 23;

/// Memory that a task of an example takes while it is made, with its arguments and other members.
const TASK_BYTES: u64 = 2048;

/// Every ready program.
pub const EXAMPLES: &[Example] = &[
    Example {
        name: "cholesky",
        about: "the lower triangular factor of a positive definite matrix, tile by tile",
        settings: &[setting("tiles", 6, 1, 1 << 14), setting("tile", 64, 1, 1 << 14), SEED],
        tasks: dense::cholesky_tasks,
        build: dense::cholesky,
    },
    Example {
        name: "stencil",
        about: "averages over neighbours of a grid in tiles, step after step",
        settings: &[
            setting("tiles", 4, 1, 1 << 14),
            setting("tile", 64, 1, 1 << 14),
            setting("steps", 6, 1, 1 << 23),
            SEED,
        ],
        tasks: dense::stencil_tasks,
        build: dense::stencil,
    },
    Example {
        name: "butterfly",
        about: "sums and differences of blocks in the pattern of a fast Fourier transform",
        settings: &[setting("stages", 5, 1, 16), setting("block", 4096, 1, 1 << 40), SEED],
        tasks: dense::butterfly_tasks,
        build: dense::butterfly,
    },
    Example {
        name: "mlp",
        about: "a multi-layer perceptron, its batch in parts",
        settings: &[
            setting("layers", 3, 1, 1 << 22),
            setting("parts", 4, 1, 1 << 22),
            setting("rows", 32, 1, 1 << 18),
            setting("width", 128, 1, 1 << 18),
            SEED,
        ],
        tasks: networks::mlp_tasks,
        build: networks::mlp,
    },
    Example {
        name: "attention",
        about: "a transformer block, forward: norm, causal attention by heads, norm, feed-forward",
        settings: &[
            setting("tokens", 64, 1, 1 << 20),
            setting("heads", 4, 1, 1 << 14),
            setting("head", 32, 1, 1 << 12),
            SEED,
        ],
        tasks: networks::attention_tasks,
        build: networks::attention,
    },
    Example {
        name: "random",
        about: "integer kernels on random slices of a few buffers",
        settings: &[
            setting("tasks", 200, 1, 1 << 23),
            setting("buffers", 8, 2, 1 << 16),
            setting("elements", 1024, 16, 1 << 40),
            SEED,
        ],
        tasks: |settings| settings.get("tasks"),
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
    #[error("example `{example}`: `{name}` must be at most {most}, not {value}")]
    TooLarge { example: String, name: String, most: u64, value: u64 },
    #[error("example `{example}` would have {tasks} tasks; this machine's memory holds {most}")]
    TooMany { example: String, tasks: u64, most: u64 },
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
        found.settings.iter().map(|known| (known.name, known.default)).collect();
    for (name, value) in settings {
        let known = found.settings.iter().find(|known| known.name == name);
        let Some(&Setting { name: known, least, most, .. }) = known else {
            let names: Vec<_> = found.settings.iter().map(|known| known.name).collect();
            return Err(ExampleError::UnknownSetting {
                example: found.name.to_owned(),
                name: name.clone(),
                nearest: meant(nearest(name, names.iter().copied())),
                known: names.join(", "),
            });
        };
        let (example, name, value) = (found.name.to_owned(), name.clone(), *value);
        if value < least {
            return Err(ExampleError::TooSmall { example, name, least, value });
        }
        if value > most {
            return Err(ExampleError::TooLarge { example, name, most, value });
        }
        values.insert(known, value);
    }
    let settings = Settings(values);
    let (tasks, most) =
        ((found.tasks)(&settings), TASKS_MAX.min(machine_memory_bytes() / TASK_BYTES));
    if tasks > most {
        return Err(ExampleError::TooMany { example: found.name.to_owned(), tasks, most });
    }
    Ok((found.build)(&settings))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tasks up to which an example is made here.
    const MADE_MAX: u64 = 20_000;

    fn made(example: &Example, values: &[(&str, u64)]) -> Option<Trace> {
        let values: Vec<_> = values.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
        let mut all: BTreeMap<_, _> =
            example.settings.iter().map(|known| (known.name, known.default)).collect();
        for (name, value) in &values {
            all.insert(example.settings.iter().find(|known| known.name == name)?.name, *value);
        }
        let tasks = (example.tasks)(&Settings(all));
        if tasks > MADE_MAX {
            return None;
        }
        let trace = super::example(example.name, &values).unwrap();
        assert_eq!(trace.tasks.len() as u64, tasks, "{} {values:?}", example.name);
        trace.validate().unwrap();
        Some(trace)
    }

    #[test]
    fn every_setting_works_from_its_least_to_its_most() {
        for example in EXAMPLES {
            made(example, &[]).expect("the defaults are small");
            let least: Vec<_> = example.settings.iter().map(|one| (one.name, one.least)).collect();
            made(example, &least).expect("the least is small");
            let mut most = 0;
            for setting in example.settings {
                let one = (setting.name, setting.most);
                most += u32::from(made(example, &[one]).is_some());
                let others = least.iter().filter(|(name, _)| *name != setting.name);
                made(example, &others.copied().chain([one]).collect::<Vec<_>>());
            }
            assert!(
                most >= 2,
                "{}: at least sizes and seeds may be as large as they can",
                example.name
            );
        }
    }

    #[test]
    fn what_is_too_large_is_refused() {
        for example in EXAMPLES {
            let try_values = |values: Vec<(String, u64)>| super::example(example.name, &values);
            for setting in example.settings {
                let values = [setting.most + 1, 99_999_999_999_999, u64::MAX];
                for value in values.into_iter().filter(|value| *value > setting.most) {
                    let error = try_values(vec![(setting.name.to_owned(), value)]).unwrap_err();
                    assert!(matches!(error, ExampleError::TooLarge { .. }), "{error}");
                }
            }
            // As much of everything that makes tasks as there can be.
            let all = example.settings.iter().map(|one| (one.name.to_owned(), one.most));
            let few = ["butterfly", "attention", "random"].contains(&example.name);
            if !few {
                let error = try_values(all.collect()).unwrap_err();
                assert!(matches!(error, ExampleError::TooMany { .. }), "{error}");
            }
        }
        let error = example("cholesky", &[("tiles".to_owned(), 1_000)]).unwrap_err();
        let expected = "example `cholesky` would have 167167001 tasks; this machine's memory holds";
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}
