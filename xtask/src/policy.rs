//! Rules of `deny.toml` for every crate that we use, the Rust version that we promise, how lean the
//! library is, and that crates can be published.
//!
//! `cargo deny` reads the same file and knows more (advisories); building it takes longer than all
//! our lints, so that it runs only where it is installed.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::command::{cargo, cargo_command, output, succeeds};
use crate::steps::note;

/// The only registry that crates may come from.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Checks licences, bans, sources and the Rust version of every crate in `Cargo.lock`.
pub fn check() -> Result<(), String> {
    let text = std::fs::read_to_string("deny.toml").map_err(|error| error.to_string())?;
    let policy: toml::Table = text.parse().map_err(|error| format!("deny.toml: {error}"))?;
    let mut metadata = cargo_command();
    metadata.args(["metadata", "--format-version", "1", "--all-features", "--quiet"]);
    let metadata: Value =
        serde_json::from_str(&output(&mut metadata)?).map_err(|error| error.to_string())?;
    let wrong = violations(&policy, &metadata);
    if !wrong.is_empty() {
        return Err(wrong.join("\n"));
    }
    lean()?;
    package(&metadata)?;
    if succeeds("cargo", &["deny", "--version"]) {
        return cargo(&["deny", "--all-features", "check", "bans", "licenses", "sources"], &[]);
    }
    Ok(())
}

/// Packages every crate that is published, as `cargo publish --workspace` would. Crates are not
/// built from their packages, since that needs those of others in a registry.
fn package(metadata: &Value) -> Result<(), String> {
    let mut arguments = vec!["package", "--workspace", "--no-verify", "--allow-dirty", "--quiet"];
    let packages = metadata["packages"].as_array().map_or(&[][..], Vec::as_slice);
    for private in packages.iter().filter(|package| is_private(package)) {
        arguments.extend(["--exclude", private["name"].as_str().unwrap_or_default()]);
    }
    cargo(&arguments, &[])
}

/// Returns `true` for crates of ours that are not published.
fn is_private(package: &Value) -> bool {
    package["source"].is_null() && package["publish"].as_array().is_some_and(Vec::is_empty)
}

/// Returns what a published crate of ours lacks.
fn unpublishable(package: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    for text in ["description", "license", "repository"] {
        if package[text].as_str().is_none_or(str::is_empty) {
            wrong.push(format!("has no {text}"));
        }
    }
    for list in ["keywords", "categories"] {
        let count = package[list].as_array().map_or(0, Vec::len);
        if !(1..=5).contains(&count) {
            wrong.push(format!("has {count} {list}: give 1 to 5"));
        }
    }
    // Dependencies of tests without a version are left out of packages.
    let dependencies = package["dependencies"].as_array().map_or(&[][..], Vec::as_slice);
    for open in dependencies
        .iter()
        .filter(|of| of["kind"] != "dev" && of["req"] == "*" && !of["path"].is_null())
    {
        wrong.push(format!("takes any version of {}", open["name"]));
    }
    wrong
}

/// Crates that the library without features must do without.
const HEAVY: &[&str] = &["serde_json", "toml", "naga", "ash", "opencl3", "cudarc", "mpi", "clap"];

/// Checks that the library without features brings no JSON, TOML or driver along.
fn lean() -> Result<(), String> {
    let mut tree = cargo_command();
    tree.args(["tree", "--package", "syncline", "--no-default-features", "--edges", "normal"]);
    tree.args(["--prefix", "none", "--format", "{p}", "--quiet"]);
    match heavy(&output(&mut tree)?) {
        wrong if wrong.is_empty() => Ok(()),
        wrong => Err(format!("syncline without features depends on {}", wrong.join(", "))),
    }
}

/// Returns which of [`HEAVY`] a tree of `cargo tree` has; it names a package first in each line.
fn heavy(tree: &str) -> Vec<&str> {
    let names = tree.lines().filter_map(|line| line.split(' ').next());
    let mut heavy: Vec<&str> = names.filter(|name| HEAVY.contains(name)).collect();
    heavy.sort_unstable();
    heavy.dedup();
    heavy
}

fn list<'a>(policy: &'a toml::Table, section: &str, key: &str) -> Vec<&'a str> {
    let values = policy.get(section).and_then(|section| section.get(key));
    let values = values.and_then(toml::Value::as_array).map_or(&[][..], Vec::as_slice);
    values.iter().filter_map(toml::Value::as_str).collect()
}

/// Returns the violations, a line each.
fn violations(policy: &toml::Table, metadata: &Value) -> Vec<String> {
    let (allowed, banned) = (list(policy, "licenses", "allow"), list(policy, "bans", "deny"));
    let packages = metadata["packages"].as_array().map_or(&[][..], Vec::as_slice);
    let text = |package: &Value, key: &str| package[key].as_str().unwrap_or_default().to_owned();
    let promised = packages
        .iter()
        .find(|package| package["source"].is_null())
        .map_or_else(String::new, |package| text(package, "rust_version"));
    let mut wrong = Vec::new();
    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in packages {
        let (name, version) = (text(package, "name"), text(package, "version"));
        let of = format!("{name} {version}");
        if banned.contains(&name.as_str()) {
            wrong.push(format!("{of} is banned"));
        }
        let license = text(package, "license");
        if !Expression(&license).is_met_by(&allowed) {
            wrong.push(format!("{of} has the licence `{license}`, which deny.toml does not allow"));
        }
        let source = text(package, "source");
        if source.is_empty() {
            // A path alone names a crate of ours; a fetched crate needs a version.
            let dependencies = package["dependencies"].as_array().map_or(&[][..], Vec::as_slice);
            let is_open = |of: &&Value| of["req"] == "*" && of["path"].is_null();
            for open in dependencies.iter().filter(is_open) {
                wrong.push(format!("{of} takes any version of {}", text(open, "name")));
            }
            if !is_private(package) {
                wrong.extend(unpublishable(package).into_iter().map(|lack| format!("{of} {lack}")));
            }
        } else if source != REGISTRY {
            wrong.push(format!("{of} comes from {source}"));
        }
        let needs = text(package, "rust_version");
        if number(&needs) > number(&promised) {
            wrong.push(format!("{of} needs Rust {needs}; we promise {promised}"));
        }
        versions.entry(name).or_default().push(version);
    }
    versions.retain(|_, versions| versions.len() > 1);
    if !versions.is_empty() {
        let each = versions.iter().map(|(name, all)| format!("{name} ({})", all.join(", ")));
        let all: Vec<_> = each.collect();
        eprintln!("{} crates are there in several versions: {}", all.len(), all.join("; "));
    }
    wrong
}

/// The numbers of a version; missing ones are zero.
fn number(version: &str) -> [u64; 3] {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    std::array::from_fn(|_| parts.next().unwrap_or(0))
}

/// A licence expression of SPDX, also with the `/` that older crates have for `OR`.
struct Expression<'a>(&'a str);

impl Expression<'_> {
    fn is_met_by(&self, allowed: &[&str]) -> bool {
        let spaced = self.0.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
        let mut words: Vec<&str> = spaced.split_whitespace().rev().collect();
        let met = either(&mut words, allowed);
        met && words.is_empty()
    }
}

/// Words joined by OR. Takes what it reads off the end of `words`, which are in reverse.
fn either(words: &mut Vec<&str>, allowed: &[&str]) -> bool {
    let mut met = both(words, allowed);
    while words.pop_if(|word| *word == "OR").is_some() {
        met |= both(words, allowed);
    }
    met
}

fn both(words: &mut Vec<&str>, allowed: &[&str]) -> bool {
    let mut met = one(words, allowed);
    while words.pop_if(|word| *word == "AND").is_some() {
        met &= one(words, allowed);
    }
    met
}

fn one(words: &mut Vec<&str>, allowed: &[&str]) -> bool {
    match words.pop() {
        Some("(") => either(words, allowed) & words.pop_if(|word| *word == ")").is_some(),
        Some(name) => {
            let exception = words.pop_if(|word| *word == "WITH").and_then(|_| words.pop());
            let whole = exception.map_or(name.to_owned(), |of| format!("{name} WITH {of}"));
            allowed.contains(&whole.as_str())
        }
        None => false,
    }
}

/// Checks with the toolchain of the version that `Cargo.toml` promises, if it is installed.
pub fn rust_version() -> Result<(), String> {
    let manifest = std::fs::read_to_string("Cargo.toml").map_err(|error| error.to_string())?;
    let line = manifest.lines().find_map(|line| line.strip_prefix("rust-version = "));
    let version = line.ok_or("Cargo.toml promises no rust-version")?.trim_matches('"');
    let toolchain = format!("+{version}");
    // `cargo` may be the toolchain's own, which does not know `+version`.
    if !succeeds("rustup", &["run", version, "cargo", "--version"]) {
        note(format!(
            "Rust {version} is not installed: uses of its library were checked by the lints alone \
             (rustup toolchain install {version})"
        ));
        return Ok(());
    }
    let folder = format!("target/rust-{version}");
    let mut check = std::process::Command::new("cargo");
    check.args([&toolchain, "check", "--workspace", "--quiet"]).env("CARGO_TARGET_DIR", folder);
    crate::command::run(check.env_remove("RUSTUP_TOOLCHAIN"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licence_expressions_are_read() {
        let allowed = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0"];
        let good = [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-3.0 OR MIT",
            "(MIT OR GPL-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0",
        ];
        for text in good {
            assert!(Expression(text).is_met_by(&allowed), "{text}");
        }
        let bad = ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT", "MIT MIT", "MIT WITH nothing"];
        for text in bad {
            assert!(!Expression(text).is_met_by(&allowed), "{text}");
        }
    }

    #[test]
    fn what_a_published_crate_lacks_is_found() {
        let good = serde_json::json!({"name": "a", "description": "a", "license": "MIT",
            "repository": "b", "keywords": ["c"], "categories": ["d"],
            "dependencies": [{"name": "t", "req": "*", "kind": "dev", "path": "t"}]});
        assert!(unpublishable(&good).is_empty());
        let lacks = [
            ("description", serde_json::json!("")),
            ("repository", Value::Null),
            ("keywords", serde_json::json!([])),
            ("categories", serde_json::json!(["a", "b", "c", "d", "e", "f"])),
            ("dependencies", serde_json::json!([{"name": "b", "req": "*", "path": "b"}])),
        ];
        for (member, value) in lacks {
            let mut bad = good.clone();
            bad[member] = value;
            assert_eq!(unpublishable(&bad).len(), 1, "{member}");
        }
    }

    /// The tree of today, and one with a JSON reader in it.
    #[test]
    fn the_library_without_features_is_lean() {
        lean().unwrap();
        assert_eq!(
            heavy("syncline v0.1.0 (path)\ntoml v0.9.0\nclap v4\ntoml v0.9.0"),
            ["clap", "toml"]
        );
    }

    #[test]
    fn every_rule_finds_its_violation() {
        let policy = "[licenses]\nallow = [\"MIT\"]\n[bans]\ndeny = [\"evil\"]".parse().unwrap();
        let package = |name: &str, source: Option<&str>, license: &str, needs: &str| {
            serde_json::json!({"name": name, "version": "1.0.0", "source": source,
                "license": license, "rust_version": needs, "dependencies": [], "publish": []})
        };
        let ours = package("ours", None, "MIT", "1.88");
        let found = |package: Value| {
            violations(&policy, &serde_json::json!({"packages": [ours.clone(), package]})).len()
        };
        assert_eq!(found(package("good", Some(REGISTRY), "MIT", "1.88")), 0);
        assert_eq!(found(package("evil", Some(REGISTRY), "MIT", "1.56.1")), 1);
        assert_eq!(found(package("copied", Some(REGISTRY), "GPL-3.0", "")), 1);
        assert_eq!(found(package("elsewhere", Some("git+https://x"), "MIT", "")), 1);
        assert_eq!(found(package("new", Some(REGISTRY), "MIT", "1.88.1")), 1);
        let mut open = package("open", None, "MIT", "1.88");
        open["dependencies"] = serde_json::json!([{"name": "any", "req": "*"}]);
        assert_eq!(found(open.clone()), 1);
        // Published, it lacks a description, a repository, keywords and categories too.
        open["publish"] = Value::Null;
        assert_eq!(found(open), 1 + 4);
    }
}
