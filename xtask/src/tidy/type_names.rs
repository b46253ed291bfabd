//! Names of public types: one concept has one name, and no other concept has it.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Kind, pieces};
use super::{File, Violation};

pub fn check(rules: &toml::Table, files: &[File]) -> Vec<Violation> {
    let shared = rules.get("types").and_then(toml::Value::as_table);
    let mut definitions: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for file in files.iter().filter(|file| is_library(&file.path)) {
        for name in public_types(&file.text) {
            definitions.entry(name).or_default().insert(&file.path);
        }
    }
    let mut found = Vec::new();
    for (name, paths) in &definitions {
        if paths.len() > 1 && !shared.is_some_and(|shared| shared.contains_key(name)) {
            let all: Vec<&str> = paths.iter().copied().collect();
            let message = format!("`{name}` is a public type in {}", all.join(", "));
            found.push(Violation { rule: "types", area: name.clone(), message });
        }
    }
    for name in shared.into_iter().flat_map(toml::Table::keys) {
        if definitions.get(name).is_none_or(|paths| paths.len() < 2) {
            let message = format!("`{name}` is not shared: delete it from xtask/data/tidy.toml");
            found.push(Violation { rule: "types", area: name.clone(), message });
        }
    }
    found
}

fn is_library(path: &str) -> bool {
    let is_source = path.starts_with("crates/") && path.contains("/src/") && path.ends_with(".rs");
    is_source && !path.ends_with("/tests.rs") && !path.contains("/tests/")
}

/// Returns the names of the types that `source` makes public, up to its tests.
fn public_types(source: &str) -> Vec<String> {
    let code: String = pieces(source)
        .iter()
        .filter(|piece| piece.kind == Kind::Code)
        .flat_map(|piece| [piece.text, "\n"])
        .collect();
    let code = code.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let words: Vec<&str> = code.split_whitespace().chain([""]).collect();
    let is_kind = |word: &str| ["struct", "enum", "trait", "union"].contains(&word);
    let names = words.windows(4).filter_map(|at| match at {
        ["pub", "unsafe", kind, name] | ["pub", kind, name, _] if is_kind(kind) => Some(*name),
        _ => None,
    });
    let end = |c: char| !c.is_alphanumeric() && c != '_';
    names.map(|name| name.split(end).next().unwrap_or_default().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_that_two_files_name_alike_are_found() {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let a = file("crates/a/src/lib.rs", "/// pub struct No;\npub struct Link<T>(T);");
        let b = file("crates/b/src/x.rs", "pub unsafe trait Link {\n}\npub(crate) struct A;");
        let c = file(
            "crates/c/src/lib.rs",
            "pub struct A;\n#[cfg(test)]\nmod tests {pub struct Link;}",
        );
        let count = |rules: &str, files: &[File]| check(&rules.parse().unwrap(), files).len();
        assert_eq!(public_types(&a.text), ["Link"]);
        assert_eq!(public_types(&b.text), ["Link"]);
        assert_eq!(public_types(&c.text), ["A"]);
        let all = [a, b, c];
        assert_eq!(count("", &all), 1);
        assert_eq!(count("[types]\nLink = \"one\"", &all), 0);
        assert_eq!(count("[types]\nLink = \"one\"\nA = \"two\"", &all), 1);
    }
}
