//! `syncline kernels`: the built-in kernels, what they take, and the backends that each runs on.

use std::io::{self, Write};

use clap::Args;
use serde_json::{Value, json};
use syncline::device::{Backend, Scalar};
use syncline::kernels::{Entry, Library};

use crate::outcome::{Failure, Outcome};
use crate::output::to_standard_output;

/// Arguments of `kernels`.
#[derive(Args)]
pub(crate) struct KernelsArgs {
    /// For programs.
    #[arg(long)]
    json: bool,
}

impl KernelsArgs {
    pub(crate) fn run(self) -> Result<Outcome, Failure> {
        let library = Library::builtin();
        to_standard_output(|out| {
            if self.json {
                let entries: Vec<Value> = library.iter().map(to_json).collect();
                let document =
                    json!({"format": "syncline-kernels", "version": 1, "kernels": entries});
                writeln!(out, "{document:#}")?;
            } else {
                library.iter().try_for_each(|entry| print(out, entry))?;
            }
            Ok(Outcome::Success)
        })
    }
}

fn access(reads: bool, writes: bool) -> &'static str {
    match (reads, writes) {
        (true, true) => "inout",
        (false, true) => "output",
        _ => "input",
    }
}

fn backends(entry: &Entry) -> Vec<&'static str> {
    Backend::ALL.into_iter().filter(|&one| entry.kernel.supports(one)).map(Backend::name).collect()
}

fn to_json(entry: &Entry) -> Value {
    let signature = &entry.signature;
    let args: Vec<Value> = signature
        .parameters
        .iter()
        .map(|one| {
            let dtypes: Vec<_> = one.dtypes.iter().map(|dtype| dtype.name()).collect();
            json!({"name": one.name, "access": access(one.reads, one.writes), "dtypes": dtypes})
        })
        .collect();
    let scalars: Vec<Value> = signature
        .scalars
        .iter()
        .map(|one| json!({"name": one.name, "default": number(one.default), "about": one.about}))
        .collect();
    json!({"name": signature.name, "about": signature.about, "args": args, "scalars": scalars,
           "devices": backends(entry), "tolerance": signature.tolerance.to_string()})
}

fn number(scalar: Scalar) -> Value {
    match scalar {
        Scalar::Bool(value) => json!(value),
        other => other.as_i64().map_or_else(|| json!(other.as_f32()), |whole| json!(whole)),
    }
}

fn print(out: &mut dyn Write, entry: &Entry) -> io::Result<()> {
    let signature = &entry.signature;
    writeln!(out, "{:12} {}  [{}]", signature.name, signature.about, backends(entry).join(", "))?;
    writeln!(out, "{:14}{:12} {}", "", "tolerance", signature.tolerance)?;
    for one in &signature.parameters {
        let dtypes: Vec<_> = one.dtypes.iter().map(|dtype| dtype.name()).collect();
        let access = access(one.reads, one.writes);
        writeln!(out, "{:14}{:12} {access:7} {}", "", one.name, dtypes.join(" "))?;
    }
    for one in &signature.scalars {
        writeln!(
            out,
            "{:14}{:12} = {:5} {}",
            "",
            one.name,
            number(one.default).to_string(),
            one.about
        )?;
    }
    Ok(())
}
