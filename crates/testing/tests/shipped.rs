//! Nothing that is shipped depends on this crate.

use std::fs;
use std::path::Path;

#[test]
fn only_tests_depend_on_this_crate() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let crates = fs::read_dir(root.join("crates")).unwrap();
    let crates = crates.map(|entry| entry.unwrap().path());
    let mut seen = 0;
    for folder in crates.chain([root.join("bench"), root.join("xtask")]) {
        let Ok(text) = fs::read_to_string(folder.join("Cargo.toml")) else { continue };
        let mut section = "";
        for line in text.lines() {
            section = if line.starts_with('[') { line } else { section };
            if line.starts_with("syncline-testing") {
                assert_eq!(section, "[dev-dependencies]", "in {}", folder.display());
                seen += 1;
            }
        }
    }
    assert!(seen > 5, "only {seen} manifests name it: they are written in another way now");
}
