//! The invariants of ARCHITECTURE.md: each names the tests that decide it, and those tests exist.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the rows of the table below `heading`, cell by cell, without its head.
fn rows(page: &str, heading: &str) -> Vec<Vec<String>> {
    let (_, below) = page.split_once(&format!("\n## {heading}\n")).expect("the heading");
    let table = below.lines().skip_while(|line| !line.starts_with('|'));
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    table.take_while(|line| line.starts_with('|')).skip(2).map(cells).collect()
}

/// Returns the texts between backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Whether `file` has a test, or a case of a suite, called `name`.
fn has_test(file: &Path, name: &str) -> bool {
    let Ok(text) = fs::read_to_string(file) else { return false };
    let function = format!("fn {name}(");
    text.lines()
        .any(|line| line.trim_start().trim_start_matches("pub(super) ").starts_with(&function))
}

#[test]
fn every_invariant_names_tests_that_exist() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the page");
    let rows = rows(&page, "Invariants");
    assert!(rows.len() >= 10, "{rows:?}");
    for row in rows {
        let [invariant, tests, oracle] = &row[..] else { panic!("three columns: {row:?}") };
        assert!(invariant.len() > 10 && oracle.len() > 10, "{row:?}");
        let mut named = 0;
        for test in quoted(tests) {
            let (file, name) =
                test.split_once("::").unwrap_or_else(|| panic!("file::name: {test}"));
            let path = root().join("crates").join(file);
            assert!(
                has_test(&path, name),
                "{invariant}: there is no test `{name}` in {}",
                path.display()
            );
            named += 1;
        }
        assert!(named > 0, "no test decides: {invariant}");
    }
}
