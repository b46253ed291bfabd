//! `cargo xtask tidy`: house rules that no compiler checks.
//!
//! Lines of comments and Markdown fit 100 columns, prose is free of private words, no two crates
//! give one name to two public types, no text names a machine, and the code map in ARCHITECTURE.md
//! is what the manifests say. Rules that the tree does not meet everywhere yet have a ratchet:
//! `xtask/data/baseline.toml` holds how many violations each folder has, and may only shrink.

mod code_map;
mod places;
mod prose;
mod source;
mod type_names;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::steps::note;

const RULES: &str = "xtask/data/tidy.toml";
const BASELINE: &str = "xtask/data/baseline.toml";

/// A file of the tree, by its path from the root.
struct File {
    path: String,
    text: String,
}

impl File {
    /// Returns the folder whose violations are counted together: a crate, or a top-level folder.
    fn area(&self) -> String {
        let mut parts = self.path.split('/');
        match (parts.next(), parts.next(), parts.next()) {
            (Some("crates"), Some(name), Some(_)) => format!("crates/{name}"),
            (Some(folder), Some(_), _) => folder.to_owned(),
            _ => "root".to_owned(),
        }
    }

    fn has_extension(&self, extension: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|of| of == extension)
    }
}

/// One violation of one rule.
struct Violation {
    rule: &'static str,
    area: String,
    /// `path:line: what is wrong, what to write instead`.
    message: String,
}

/// Which violations may stay for now: how many by rule and area.
type Baseline = BTreeMap<String, BTreeMap<String, u64>>;

/// Checks the tree. With `--list [FOLDER]` prints all violations, also those of the baseline.
/// Lowers the baseline where there are fewer.
pub fn run(arguments: &[&str]) -> Result<(), String> {
    let root = Path::new(".");
    let found = violations(root)?;
    if arguments.first() == Some(&"--list") {
        let below = arguments.get(1).copied().unwrap_or_default();
        found
            .iter()
            .filter(|violation| violation.message.starts_with(below))
            .for_each(|violation| println!("{} ({})", violation.message, violation.rule));
    }
    let baseline = read_baseline(root)?;
    let counts = count(&found);
    let grown = grown(&baseline, &counts, &found);
    if !grown.is_empty() {
        return Err(grown.join("\n"));
    }
    if counts != baseline {
        std::fs::write(BASELINE, shown(&counts)).map_err(|error| format!("{BASELINE}: {error}"))?;
        note(format!("{BASELINE} shrank: commit it"));
    }
    Ok(())
}

fn violations(root: &Path) -> Result<Vec<Violation>, String> {
    let files = files(root)?;
    let text = read(root, RULES)?;
    let rules: toml::Table = text.parse().map_err(|error| format!("{RULES}: {error}"))?;
    let mut found = prose::check(&prose::Words::of(&rules)?, &files);
    found.extend(places::check(&rules, &files));
    found.extend(type_names::check(&rules, &files));
    found.extend(code_map::check(&files));
    Ok(found)
}

fn read(root: &Path, path: &str) -> Result<String, String> {
    std::fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"))
}

/// Returns the strings of a list in a table of `rules`.
fn strings<'a>(rules: &'a toml::Table, table: &str, key: &str) -> Vec<&'a str> {
    let values = rules.get(table).and_then(|table| table.get(key)?.as_array());
    values.into_iter().flatten().filter_map(toml::Value::as_str).collect()
}

/// Returns every text file of the tree, in order; links and outputs of tools aside.
fn files(root: &Path) -> Result<Vec<File>, String> {
    let mut files = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(root.join(&folder))
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        for entry in entries {
            let entry = entry.map_err(|error| error.to_string())?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = folder.join(&name);
            let kind = entry.file_type().map_err(|error| error.to_string())?;
            if is_output(&name) || kind.is_symlink() {
                continue;
            }
            if kind.is_dir() {
                folders.push(path);
            } else if let Ok(text) = std::fs::read_to_string(root.join(&path)) {
                files.push(File { path: path.display().to_string(), text });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// Returns `true` for what tools write.
fn is_output(name: &str) -> bool {
    [".git", ".venv", "target", "corpus", "artifacts", "node_modules", "__pycache__"]
        .contains(&name)
}

fn count(found: &[Violation]) -> Baseline {
    let mut counts = Baseline::new();
    for violation in found {
        let areas = counts.entry(violation.rule.to_owned()).or_default();
        *areas.entry(violation.area.clone()).or_default() += 1;
    }
    counts
}

fn read_baseline(root: &Path) -> Result<Baseline, String> {
    let table: toml::Table =
        read(root, BASELINE)?.parse().map_err(|error| format!("{BASELINE}: {error}"))?;
    let counted = |areas: &toml::Value| -> Option<BTreeMap<String, u64>> {
        let each = areas.as_table()?.iter();
        each.map(|(area, count)| Some((area.clone(), u64::try_from(count.as_integer()?).ok()?)))
            .collect()
    };
    let rules = table.iter().map(|(rule, areas)| Some((rule.clone(), counted(areas)?)));
    rules.collect::<Option<_>>().ok_or(format!("{BASELINE}: every entry is a number of violations"))
}

/// Returns the violations of every rule and area that has more of them than the baseline.
fn grown(baseline: &Baseline, counts: &Baseline, found: &[Violation]) -> Vec<String> {
    let mut lines = Vec::new();
    for (rule, areas) in counts {
        for (area, &count) in areas {
            let had = baseline.get(rule).and_then(|areas| areas.get(area)).copied().unwrap_or(0);
            if count > had {
                let of = |violation: &&Violation| violation.rule == rule && violation.area == *area;
                lines.extend(found.iter().filter(of).map(|found| found.message.clone()));
                lines.push(format!("{area}: {count} violations of `{rule}`, {had} allowed"));
            }
        }
    }
    lines
}

fn shown(counts: &Baseline) -> String {
    let mut text = String::from(
        "# Violations that the tree still has, by rule and folder. `cargo xtask tidy` lowers the\n\
         # numbers; none may grow.\n",
    );
    for (rule, areas) in counts {
        text.push_str(&format!("\n[{rule}]\n"));
        areas.iter().for_each(|(area, count)| text.push_str(&format!("\"{area}\" = {count}\n")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tree itself: every rule holds, up to the baseline.
    #[test]
    fn the_tree_is_tidy() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let found = violations(root).unwrap();
        let wrong = grown(&read_baseline(root).unwrap(), &count(&found), &found);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn the_baseline_may_only_shrink() {
        let violation = |area: &str| Violation {
            rule: "words",
            area: area.to_owned(),
            message: "a.rs:1: wrong".to_owned(),
        };
        let two = [violation("crates/deps"), violation("crates/deps")];
        let one = count(&two[..1]);
        assert_eq!(grown(&one, &count(&two), &two).len(), 3);
        assert!(grown(&count(&two), &one, &two[..1]).is_empty());
        assert!(!grown(&one, &count(&[violation("docs")]), &[violation("docs")]).is_empty());
        let text: toml::Table = shown(&count(&two)).parse().unwrap();
        assert_eq!(text["words"]["crates/deps"].as_integer(), Some(2));
    }
}
