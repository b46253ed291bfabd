//! `--map`: a checkpoint in another form.

use std::path::Path;

use syncline::checkpoint::{BUILTIN_MAPS, Checkpoint, MapNames, builtin_maps, parse_maps};

use super::plan::in_file;
use crate::input::{name_of, read_bytes};
use crate::outcome::Failure;
use crate::output::note;

/// Applies maps, built-in ones or those of files, one after the other; warns of rules of files that
/// no tensor matches if `speaks`.
pub(super) fn mapped(
    mut checkpoint: Checkpoint,
    maps: &[String],
    speaks: bool,
) -> Result<Checkpoint, Failure> {
    for map in maps {
        let path = Path::new(map);
        let builtin = builtin_maps(map, &checkpoint)?;
        let is_builtin = builtin.is_some();
        let rules = match builtin {
            Some(rules) => rules,
            None if path.exists() => {
                let text = String::from_utf8(read_bytes(path)?);
                let text = text.map_err(|_| {
                    Failure::Usage(format!("{}: expected UTF-8 text", name_of(path)))
                })?;
                parse_maps(&text).map_err(in_file(path))?
            }
            None => {
                let known = BUILTIN_MAPS.join(", ");
                return Err(Failure::Usage(format!(
                    "--map {map}: expected a file with [[map]] rules, or one of {known}"
                )));
            }
        };
        let (mapped, unused) = checkpoint.mapped(&rules)?;
        if is_builtin && unused.len() == rules.len() {
            return Err(Failure::Usage(format!("--map {map}: no tensor has a name that it knows")));
        }
        for rule in unused.iter().filter(|_| speaks && !is_builtin) {
            let name = match &rule.from {
                MapNames::One(name) => name,
                MapNames::Several(names) => &names[0],
            };
            note(&format!("warning: no tensor for the map of `{name}`"));
        }
        checkpoint = mapped;
    }
    Ok(checkpoint)
}
