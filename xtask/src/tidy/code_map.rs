//! The code map of ARCHITECTURE.md against the manifests and the sources.
//!
//! Each row of the table names crates, and in its last column what they must never know of. A crate
//! depends on crates in rows below its own only. Names in backticks in the last column are crates
//! that it reaches on no way, through optional dependencies neither; `threads`, `files` and `JSON`
//! are explained below the table.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Kind, pieces};
use super::{File, Violation};

const PAGE: &str = "ARCHITECTURE.md";

/// A row: its crates by folder, and the words of its last column.
struct Row {
    line: usize,
    crates: Vec<String>,
    unknown: Vec<String>,
}

/// What a manifest says.
#[derive(Default)]
struct Manifest {
    /// Crates of the workspace, by folder, optional ones included.
    ours: BTreeSet<String>,
    /// Crates of others that come without any feature.
    others: BTreeSet<String>,
    /// Those of `ours` that come without any feature.
    always: BTreeSet<String>,
}

pub fn check(files: &[File]) -> Vec<Violation> {
    let mut wrong: Vec<(usize, String)> = Vec::new();
    let Some(page) = files.iter().find(|file| file.path == PAGE) else { return Vec::new() };
    let rows = rows(&page.text);
    let manifests = manifests(files);
    let place: BTreeMap<&str, usize> = rows
        .iter()
        .enumerate()
        .flat_map(|(place, row)| row.crates.iter().map(move |name| (name.as_str(), place)))
        .collect();
    for (name, manifest) in &manifests {
        let Some(&own) = place.get(name.as_str()) else {
            wrong.push((1, format!("the code map has no row for `{name}`")));
            continue;
        };
        for below in manifest.ours.iter().filter(|below| *below != name) {
            if place.get(below.as_str()).is_none_or(|&row| row <= own) {
                let line = rows[own].line;
                wrong.push((line, format!("`{name}` depends on `{below}`, which is not below it")));
            }
        }
    }
    for row in &rows {
        for name in &row.crates {
            match manifests.contains_key(name) {
                true => wrong.extend(known(name, row, &manifests, files)),
                false => wrong.push((row.line, format!("there is no crate `{name}`"))),
            }
        }
    }
    wrong.extend(unsafe_code(&page.text, manifests.keys(), files));
    let violation = |(line, what)| Violation {
        rule: "code-map",
        area: "root".to_owned(),
        message: format!("{PAGE}:{line}: {what}"),
    };
    wrong.into_iter().map(violation).collect()
}

/// Returns what `name` knows of although its row forbids it.
fn known(
    name: &str,
    row: &Row,
    manifests: &BTreeMap<String, Manifest>,
    files: &[File],
) -> Vec<(usize, String)> {
    let mut wrong = Vec::new();
    let reached = reach(name, manifests, |manifest| &manifest.ours);
    for item in &row.unknown {
        let problem = match item.strip_prefix('`').and_then(|item| item.strip_suffix('`')) {
            Some(of) if !manifests.contains_key(of) => Some(format!("there is no crate `{of}`")),
            Some(of) if of == name => None,
            Some(of) => reached.contains(of).then(|| format!("`{name}` knows of `{of}`")),
            None => match item.as_str() {
                "threads" => mentions(name, "thread", files),
                "files" => mentions(name, "fs", files),
                "JSON" => json(name, manifests),
                _ => Some(format!("`{item}` is neither a crate in backticks nor a known word")),
            },
        };
        wrong.extend(problem.map(|problem| (row.line, problem)));
    }
    wrong
}

/// Returns all crates that `name` reaches over `next`.
fn reach<'a>(
    name: &'a str,
    manifests: &'a BTreeMap<String, Manifest>,
    next: impl Fn(&Manifest) -> &BTreeSet<String>,
) -> BTreeSet<&'a str> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![name]);
    while let Some(name) = open.pop() {
        let more = manifests.get(name).into_iter().flat_map(&next);
        open.extend(more.map(String::as_str).filter(|&name| reached.insert(name)));
    }
    reached
}

/// Says where the library of `name` uses a module of `std`.
fn mentions(name: &str, module: &str, files: &[File]) -> Option<String> {
    let source = format!("crates/{name}/src/");
    let is_library = |file: &&File| {
        file.path.starts_with(&source)
            && file.has_extension("rs")
            && !file.path.ends_with("/tests.rs")
            && !file.path.contains("/tests/")
    };
    let used = |file: &&File| {
        let library = file.text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let mut code = pieces(library).into_iter().filter(|piece| piece.kind == Kind::Code);
        let forms = [format!("std::{module}"), format!("std::{{{module}")];
        code.any(|piece| forms.iter().any(|form| piece.text.contains(form)))
    };
    let file = files.iter().filter(is_library).find(used)?;
    Some(format!("`{name}` uses `std::{module}` in {}", file.path))
}

/// Says on which way `name` reaches JSON or TOML without any feature.
fn json(name: &str, manifests: &BTreeMap<String, Manifest>) -> Option<String> {
    let mut all = reach(name, manifests, |manifest| &manifest.always);
    all.insert(name);
    let readers = ["serde_json", "toml"];
    let of = all.into_iter().find(|of| {
        manifests.get(*of).is_some_and(|of| readers.iter().any(|json| of.others.contains(*json)))
    })?;
    Some(format!("`{name}` gets JSON or TOML from `{of}`, without any feature"))
}

/// Compares the list of crates without unsafe code with the crates that forbid it.
fn unsafe_code<'a>(
    page: &str,
    crates: impl Iterator<Item = &'a String>,
    files: &[File],
) -> Vec<(usize, String)> {
    const START: &str = "- **No `unsafe` in ";
    let line = page.lines().position(|line| line.starts_with(START)).map_or(1, |at| at + 1);
    let list = page.split(START).nth(1).unwrap_or_default();
    let list = list.split("**").next().unwrap_or_default();
    let listed: BTreeSet<&str> = list.split('`').skip(1).step_by(2).collect();
    let forbids = |name: &str| {
        let roots = ["lib.rs", "main.rs"].map(|root| format!("crates/{name}/src/{root}"));
        let forbids = |file: &File| file.text.contains("\n#![forbid(unsafe_code)]");
        files.iter().any(|file| roots.contains(&file.path) && forbids(file))
    };
    let mut wrong = Vec::new();
    for name in crates {
        match (listed.contains(name.as_str()), forbids(name)) {
            (true, false) => wrong.push((line, format!("`{name}` does not forbid unsafe code"))),
            (false, true) => {
                wrong.push((line, format!("`{name}` forbids unsafe code and is not in the list")));
            }
            _ => {}
        }
    }
    wrong
}

/// Returns the rows of the code map.
fn rows(page: &str) -> Vec<Row> {
    let lines = page.lines().enumerate();
    let table = lines
        .skip_while(|(_, line)| !line.starts_with("| crate |"))
        .skip(2)
        .take_while(|(_, line)| line.starts_with('|'));
    table.map(|(index, line)| row(index + 1, line)).collect()
}

fn row(line: usize, text: &str) -> Row {
    let cells: Vec<&str> = text.trim_matches('|').split('|').map(str::trim).collect();
    let names = cells.first().map_or("", |cell| cell).split('`').skip(1).step_by(2);
    let crates = names.map(|name| name.strip_prefix("crates/").unwrap_or(name).to_owned());
    let unknown = cells.get(2).map_or("", |cell| cell).split(", ").filter(|item| !item.is_empty());
    Row { line, crates: crates.collect(), unknown: unknown.map(str::to_owned).collect() }
}

/// Reads the manifests of `crates/*`, `bench`, `python` and `xtask`, by folder. Dependencies of
/// tests are not architecture.
fn manifests(files: &[File]) -> BTreeMap<String, Manifest> {
    let manifest = |file: &File| {
        let folder = file.path.strip_suffix("/Cargo.toml")?;
        let folder = match folder.strip_prefix("crates/") {
            Some(name) => name,
            None => ["bench", "python", "xtask"].into_iter().find(|&name| name == folder)?,
        };
        let table: toml::Table = file.text.parse().ok()?;
        let platforms = table.get("target").and_then(toml::Value::as_table);
        let of_platforms = platforms.into_iter().flat_map(toml::Table::values);
        let mut manifest = Manifest::default();
        let own = [toml::Value::Table(table.clone())];
        for place in own.iter().chain(of_platforms) {
            for kind in ["dependencies", "build-dependencies"] {
                let entries = place.get(kind).and_then(toml::Value::as_table);
                entries.into_iter().flatten().for_each(|(name, how)| manifest.add(name, how));
            }
        }
        Some((folder.to_owned(), manifest))
    };
    files.iter().filter_map(manifest).collect()
}

impl Manifest {
    fn add(&mut self, name: &str, how: &toml::Value) {
        let is_optional = how.get("optional").and_then(toml::Value::as_bool) == Some(true);
        let folder = match name {
            "syncline" => Some(name),
            _ => name.strip_prefix("syncline-"),
        };
        match folder {
            Some(folder) => {
                self.ours.insert(folder.to_owned());
                if !is_optional {
                    self.always.insert(folder.to_owned());
                }
            }
            None if !is_optional => drop(self.others.insert(name.to_owned())),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks a workspace of `low`, `mid` and `top` with one part replaced.
    fn wrong(replace: &str, with: &str) -> Vec<String> {
        let files = [
            (
                PAGE,
                "| crate | what | never |\n| --- | --- | --- |\n\
                 | `crates/top` | a | |\n\
                 | `crates/mid` | b | `top`, files |\n\
                 | `crates/low` | c | `mid`, `top`, threads, JSON |\n\n\
                 - **No `unsafe` in `low`.** For good.\n",
            ),
            ("crates/low/Cargo.toml", "[dependencies]\nstrsim = \"1\"\n"),
            ("crates/low/src/lib.rs", "//! Low.\n#![forbid(unsafe_code)]\n"),
            ("crates/mid/Cargo.toml", "[dependencies]\nsyncline-low.workspace = true\n"),
            ("crates/mid/src/lib.rs", "//! std::fs\n#[cfg(test)]\nmod tests { use std::fs; }\n"),
            ("crates/top/Cargo.toml", "[dependencies]\nsyncline-mid = { optional = true }\n"),
        ];
        let files = files
            .map(|(path, text)| File { path: path.to_owned(), text: text.replace(replace, with) });
        check(&files).into_iter().map(|found| found.message).collect()
    }

    #[test]
    fn a_map_that_fits_is_accepted() {
        assert_eq!(wrong("nothing", ""), Vec::<String>::new());
    }

    #[test]
    fn every_lie_of_the_map_is_found() {
        let lies = [
            ("strsim = \"1\"", "syncline-top = \"1\"", "`low` depends on `top`"),
            ("`mid`, `top`, threads", "`none`", "there is no crate `none`"),
            ("| `crates/mid` | b |", "| `crates/gone` | b |", "there is no crate `gone`"),
            ("`crates/top`", "`crates/mid`", "no row for `top`"),
            ("| a | |", "| a | `low` |", "`top` knows of `low`"),
            ("| a | |", "| a | everything |", "neither a crate"),
            ("//! Low.", "use std::thread;", "uses `std::thread` in crates/low/src/lib.rs"),
            ("//! std::fs", "use std::fs;", "uses `std::fs`"),
            ("strsim", "serde_json", "JSON or TOML from `low`"),
            ("#![forbid", "#![deny", "does not forbid"),
            ("//! std::fs", "//! M\n#![forbid(unsafe_code)]", "`mid` forbids unsafe code and"),
        ];
        for (replace, with, expected) in lies {
            let found = wrong(replace, with);
            assert!(found.iter().any(|found| found.contains(expected)), "{replace}: {found:?}");
        }
        assert!(wrong("strsim = \"1\"", "toml = { version = \"1\", optional = true }").is_empty());
    }
}
