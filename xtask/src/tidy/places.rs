//! Names of machines: absolute paths and hosts of addresses.

use super::{File, Violation, strings};

/// Folders that only one machine has. In halves, so that this file does not violate its own rule.
const FOLDERS: &[(&str, &str)] = &[("/ho", "me/"), ("/ro", "ot/"), ("/Use", "rs/"), ("/wo", "rk/")];

pub fn check(rules: &toml::Table, files: &[File]) -> Vec<Violation> {
    let hosts = strings(rules, "addresses", "hosts");
    let mut found = Vec::new();
    for file in files {
        for (index, line) in file.text.lines().enumerate() {
            let mut push = |what: String| {
                let message = format!("{}:{}: {what}", file.path, index + 1);
                found.push(Violation { rule: "places", area: file.area(), message });
            };
            for folder in FOLDERS.iter().map(|(start, end)| format!("{start}{end}")) {
                if line.match_indices(&folder).any(|(at, _)| is_absolute(line, at)) {
                    push(format!("`{folder}` is a folder of one machine: use a relative path"));
                }
            }
            for host in hosts_of(line).filter(|host| !hosts.contains(host)) {
                push(format!("host `{host}` is not among [addresses] of xtask/data/tidy.toml"));
            }
        }
    }
    found
}

/// Returns `true` if no other part of a path or an address stands before `at`.
fn is_absolute(line: &str, at: usize) -> bool {
    !line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-}~)".contains(c))
}

fn hosts_of(line: &str) -> impl Iterator<Item = &str> {
    line.split("://").skip(1).zip(line.split("://")).filter_map(|(address, before)| {
        let is_web =
            ["http", "https", "sparse+https"].iter().any(|scheme| before.ends_with(scheme));
        let end = address.find(|c: char| !c.is_alphanumeric() && c != '.' && c != '-');
        let host = &address[..end.unwrap_or(address.len())];
        (is_web && !host.is_empty()).then_some(host)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_found() {
        let rules = "[addresses]\nhosts = [\"github.com\"]".parse().unwrap();
        let found = |text: String| check(&rules, &[File { path: "a.toml".to_owned(), text }]).len();
        assert_eq!(found(format!("path = \"/ho{}user\"", "me/")), 1);
        assert_eq!(found(format!("target/wo{}x; src/ro{}y", "rk/", "ot/")), 0);
        assert_eq!(found("https://github.com/a, http://{host}".to_owned()), 0);
        assert_eq!(found(format!("see https{}registry.example/x", "://")), 1);
    }
}
