//! Writes the example traces: `cargo run -p syncline-deps --example traces -- DIRECTORY`.

mod programs;

use std::error::Error;
use std::fs;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let directory =
        PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| "examples/traces".into()));
    fs::create_dir_all(&directory)?;
    for (name, trace) in
        [("cholesky", programs::cholesky(4, 16)?), ("stencil", programs::stencil(4, 16, 3)?)]
    {
        trace.validate()?;
        let path = directory.join(name).with_extension("json");
        fs::write(&path, trace.to_json())?;
        println!("{}: {} tasks", path.display(), trace.tasks.len());
    }
    Ok(())
}
