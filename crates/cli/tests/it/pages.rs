//! `completions`, `man` and `doctor`: every command and option is in them, and they tell the truth.

use std::process::Command;

use serde_json::Value;

use crate::support::run;

/// Commands and options as the help of each command lists them.
fn helped(path: &[&str]) -> Vec<String> {
    let help = run(&[path, &["--help"]].concat()).success();
    let words = help.split_whitespace().filter(|word| word.starts_with("--"));
    let options = words.map(|word| word.trim_end_matches([',', '.', ';', ')']));
    let options = options.filter(|word| word[2..].starts_with(|c: char| c.is_ascii_lowercase()));
    options.map(str::to_owned).collect()
}

#[test]
fn completions_know_every_command_and_its_options() {
    let script = run(&["completions", "bash"]).success();
    for path in [&["run"][..], &["reshard", "refit"], &["deps", "graph"], &["doctor"]] {
        for option in helped(path) {
            assert!(script.contains(&option), "{path:?} {option}");
        }
        assert!(script.contains(path.last().unwrap()), "{path:?}");
    }
    // A script that its shell does not read is none.
    let read = Command::new("bash").args(["-n", "-c", &script]).status();
    assert!(read.is_ok_and(|status| status.success()), "bash refuses the script");
    for shell in ["zsh", "fish", "elvish", "powershell"] {
        assert!(run(&["completions", shell]).success().contains("reshard"), "{shell}");
    }
    assert_eq!(run(&["completions", "tcsh"]).status, Some(2));
}

#[test]
fn every_command_has_a_page_of_the_manual() {
    let page = run(&["man"]).success();
    assert!(page.contains(".TH syncline 1") && page.contains("syncline\\-reshard"), "{page}");
    for path in [&["run"][..], &["reshard", "refit"]] {
        let page = run(&[&["man"], path].concat()).success().replace("\\-", "-");
        assert!(page.contains(&format!(".TH syncline-{} 1", path.join("-"))), "{page}");
        for option in helped(path) {
            assert!(page.contains(&option), "{path:?} {option}");
        }
    }
    let refused = run(&["man", "reshard", "pla"]).refusal();
    assert!(refused.contains("no command `pla`: one of plan, "), "{refused}");
    assert!(run(&["man", "run", "fast"]).refusal().contains("`run` has no command `fast`"));
}

#[test]
fn the_doctor_finds_what_the_system_says() {
    let found: Value = serde_json::from_str(&run(&["doctor", "--json"]).success()).unwrap();
    assert_eq!((&found["format"], &found["version"]), (&"syncline-doctor".into(), &1.into()));
    let checks = found["checks"].as_array().unwrap();
    let check = |name: &str| {
        checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("no {name}"))
    };
    for check in checks {
        let lacks = check["ok"] == false;
        assert_eq!(check.get("means").is_some() && check.get("remedy").is_some(), lacks, "{check}");
        assert!(check["found"].as_str().is_some_and(|found| !found.is_empty()), "{check}");
    }
    // The limit as the kernel lists it for this process, which the program inherits.
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let files = files.split_whitespace().nth(3).unwrap();
    let expected = if files == "unlimited" { "no limit".to_owned() } else { format!("{files} at") };
    assert!(check("open files")["found"].as_str().unwrap().starts_with(&expected), "{files}");
    // Drivers as the list of devices has them.
    let devices: Value = serde_json::from_str(&run(&["devices", "--json"]).success()).unwrap();
    for backend in ["vulkan", "opencl"] {
        let mut names = devices["devices"].as_array().unwrap().iter();
        let is_there = names.any(|one| one["device"].as_str().unwrap().starts_with(backend));
        assert_eq!(check(backend)["ok"], is_there, "{backend}");
    }
    let text = run(&["doctor"]).success();
    checks.iter().for_each(|check| assert!(text.contains(check["name"].as_str().unwrap())));
}
