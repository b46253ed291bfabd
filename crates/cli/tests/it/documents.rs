//! The pages of `docs/`: their examples run, and their lists are complete.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{directory, json, run, write_text};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join("docs").join(name)).expect("a page of the documentation")
}

/// A fenced block: the words after the fence, and the text.
struct Block {
    words: Vec<String>,
    text: String,
}

/// Returns the fenced blocks of a page in their order.
fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(info) = line.strip_prefix("```") else { continue };
        let text: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        let words = info.split_whitespace().map(str::to_owned).collect();
        blocks.push(Block { words, text: text.join("\n") });
    }
    blocks
}

#[test]
fn programs_and_traces_of_the_page_run() {
    let folder = directory("documents_programs");
    let mut seen = [0; 3];
    for (at, block) in blocks(&page("PROGRAMS.md")).iter().enumerate() {
        let words: Vec<&str> = block.words.iter().map(String::as_str).collect();
        match words[..] {
            ["json", "run"] => {
                let path = write_text(&folder, &format!("{at}.json"), &block.text);
                for mode in ["plan", "stream", "serial"] {
                    run(&["run", &path, "--mode", mode, "--check"]).success();
                }
                seen[0] += 1;
            }
            ["json", deps] => {
                let wanted: usize = deps.strip_prefix("deps=").expect(deps).parse().expect(deps);
                let path = write_text(&folder, &format!("{at}.json"), &block.text);
                run(&["deps", "check", &path]).success();
                let graph = json(&run(&["deps", "graph", &path, "--format", "json"]).success());
                assert_eq!(graph["edges"].as_array().map(Vec::len), Some(wanted), "{graph}");
                seen[1] += 1;
            }
            ["toml", "machine"] => {
                let machine = write_text(&folder, &format!("{at}.toml"), &block.text);
                run(&["run", "examples/programs/mlp.json", "--simulate", &machine]).success();
                seen[2] += 1;
            }
            _ => assert_eq!(words, ["text"], "block {at} of the page is run by no test"),
        }
    }
    assert_eq!(seen, [1, 2, 1]);
}

#[test]
fn layouts_of_the_page_compile() {
    let folder = directory("documents_layouts");
    let (mut seen, mut maps) = (0, 0);
    for (at, block) in blocks(&page("LAYOUTS.md")).iter().enumerate() {
        let words: Vec<&str> = block.words.iter().map(String::as_str).collect();
        let form = match words[..] {
            [form @ ("toml" | "json"), "layout"] => form,
            ["toml", "map"] => {
                let rules = syncline::checkpoint::parse_maps(&block.text);
                assert!(rules.is_ok_and(|rules| rules.len() == 1), "block {at}: {}", block.text);
                maps += 1;
                continue;
            }
            _ => {
                assert_eq!(words, ["text"], "block {at} of the page is read by no test");
                continue;
            }
        };
        let path = write_text(&folder, &format!("{at}.{form}"), &block.text);
        let plan = ["reshard", "plan", "--from", &path, "--to", &path, "--format", "json"];
        let plan = json(&run(&plan).success());
        // The tied head lies on other PEs than the tensor it is tied to; all others stay in place.
        assert_eq!(plan["bytes_moved"], Value::from(0), "block {at}: {plan}");
        assert!(plan["bytes_total"].as_u64() > Some(0), "block {at}: {plan}");
        seen += 1;
    }
    assert_eq!((seen, maps), (6, 3));
}

/// Returns the names in `text` that begin with `SYNCLINE_`.
fn variables(text: &str) -> impl Iterator<Item = String> {
    let starts = text.match_indices("SYNCLINE_").map(|(at, _)| at);
    starts.map(|at| {
        let is_part = |c: &char| c.is_ascii_uppercase() || c.is_ascii_digit() || *c == '_';
        text[at..].chars().take_while(is_part).collect()
    })
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the repository").flatten() {
        let path = entry.path();
        let is_source = path.extension().is_some_and(|end| end == "rs" || end == "py");
        if path.is_dir() && !path.ends_with("target") {
            sources(&path, found);
        } else if is_source && !path.ends_with("documents.rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_environment_variable_is_documented() {
    let mut files = Vec::new();
    ["crates", "bench", "xtask"].iter().for_each(|part| sources(&root().join(part), &mut files));
    let is_internal = |name: &String| {
        name.starts_with("SYNCLINE_TEST_")
            || ["SYNCLINE_BENCH_PE", "SYNCLINE_BENCH_RANK"].contains(&name.as_str())
    };
    let read = |path: &PathBuf| fs::read_to_string(path).expect("a source file");
    let used: BTreeSet<String> =
        files.iter().flat_map(|path| variables(&read(path)).collect::<Vec<_>>()).collect();
    let known: BTreeSet<String> = variables(&page("ENVIRONMENT.md")).collect();
    let used: BTreeSet<String> = used.into_iter().filter(|name| !is_internal(name)).collect();
    let known: BTreeSet<String> = known.into_iter().filter(|name| !is_internal(name)).collect();
    assert_eq!(used, known, "docs/ENVIRONMENT.md lists exactly what the sources name");
}

/// Runs `command` with `--json` and returns the `format` of what it prints.
fn format_of(command: &[&str]) -> String {
    let printed = run(&[command, &["--json"]].concat());
    assert_eq!((printed.status, printed.stderr.as_str()), (Some(0), ""), "{command:?}");
    let document = json(&printed.stdout);
    assert!(document["version"].is_u64(), "{command:?}: {document}");
    document["format"].as_str().expect("a format").to_owned()
}

#[test]
fn every_output_for_programs_is_documented() {
    let page = page("OUTPUTS.md");
    let layouts = ["--from", "examples/reshard/train-tp2pp2.toml", "--to"];
    let layouts = [&layouts[..], &["examples/reshard/serve-tp4.toml"]].concat();
    let simulate = ["--simulate", "examples/reshard/cluster-h100.toml"];
    let plan = [&["reshard", "plan"], &layouts[..]].concat();
    let commands: [(&str, Vec<&str>); 8] = [
        ("run", vec!["run", "examples/programs/mlp.json"]),
        ("deps graph", vec!["deps", "graph", "examples/traces/cholesky.json"]),
        ("deps check", vec!["deps", "check", "examples/traces/cholesky.json"]),
        ("devices", vec!["devices"]),
        ("doctor", vec!["doctor"]),
        ("kernels", vec!["kernels"]),
        ("reshard plan", plan.clone()),
        ("reshard plan --simulate", [&plan[..], &simulate].concat()),
    ];
    for (name, command) in commands {
        let format = format_of(&command);
        let row = format!("| `{name}` | `{format}` |");
        assert!(page.contains(&row), "docs/OUTPUTS.md has no row {row}");
    }
}
