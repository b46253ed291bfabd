//! Length of lines, and private words.

use super::source::{Kind, pieces};
use super::{File, Violation, strings};

const COLUMNS: usize = 100;

/// Words to avoid, and phrases that may hold one.
pub struct Words {
    /// Words of a phrase, and what to write instead.
    banned: Vec<(Vec<String>, String)>,
    allowed: Vec<Vec<String>>,
}

impl Words {
    pub fn of(rules: &toml::Table) -> Result<Self, String> {
        let table = rules.get("words").and_then(toml::Value::as_table).ok_or("no [words]")?;
        let banned = table.iter().map(|(phrase, instead)| {
            (words(phrase), instead.as_str().unwrap_or_default().to_owned())
        });
        let allowed = strings(rules, "allowed", "phrases").into_iter().map(words);
        Ok(Self { banned: banned.collect(), allowed: allowed.collect() })
    }

    /// Returns each banned phrase in `text` with what to write instead.
    fn found(&self, text: &str) -> Vec<(String, &str)> {
        let words = words(&without_code(text));
        let begins = |at: usize, phrase: &[String]| words[at..].starts_with(phrase);
        let mut found = Vec::new();
        for at in 0..words.len() {
            if self.allowed.iter().any(|phrase| begins(at, phrase)) {
                continue;
            }
            for (phrase, instead) in &self.banned {
                if begins(at, phrase) {
                    found.push((phrase.join(" "), instead.as_str()));
                }
            }
        }
        found
    }
}

fn words(text: &str) -> Vec<String> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect()
}

/// Replaces `code` between backticks, and placeholders of format strings.
fn without_code(text: &str) -> String {
    let prose: Vec<&str> = text.split('`').step_by(2).collect();
    prose.join(" . ")
}

pub fn check(words: &Words, files: &[File]) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in files {
        let lines = match () {
            () if file.has_extension("rs") => of_rust(&file.text),
            () if file.has_extension("md") => of_markdown(&file.text),
            () => continue,
        };
        for line in lines {
            let mut push = |rule, what: String| {
                let message = format!("{}:{}: {what}", file.path, line.number);
                found.push(Violation { rule, area: file.area(), message });
            };
            if line.is_bounded && line.columns > COLUMNS {
                push("length", format!("{} columns, {COLUMNS} at most", line.columns));
            }
            for (word, instead) in words.found(line.prose) {
                push("words", format!("`{word}`: write {instead}"));
            }
        }
    }
    found
}

struct Line<'a> {
    number: usize,
    columns: usize,
    is_bounded: bool,
    prose: &'a str,
}

/// Comments and string literals. The rows of a table in a comment cannot be wrapped.
fn of_rust(text: &str) -> Vec<Line<'_>> {
    let lines: Vec<&str> = text.lines().collect();
    let prose = pieces(text).into_iter().filter(|piece| piece.kind != Kind::Code);
    prose
        .map(|piece| {
            let columns = lines.get(piece.line - 1).map_or(0, |line| line.chars().count());
            let comment = piece.text.trim_start_matches(['/', '!']).trim_start();
            let is_bounded = piece.kind == Kind::Comment && !comment.starts_with('|');
            Line { number: piece.line, columns, is_bounded, prose: piece.text }
        })
        .collect()
}

/// All lines except code and commands between fences. The rows of a table cannot be wrapped.
fn of_markdown(text: &str) -> Vec<Line<'_>> {
    let mut is_code = false;
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        if !is_code && !is_fence {
            let is_bounded = !line.starts_with('|');
            let columns = line.chars().count();
            lines.push(Line { number: index + 1, columns, is_bounded, prose: line });
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(path: &str, text: &str) -> Vec<String> {
        let rules = "[words]\ngizmo = \"part\"\n\"give again\" = \"X\"\n[allowed]\n\
                     phrases = [\"gizmo curve\"]";
        let words = Words::of(&rules.parse().unwrap()).unwrap();
        let file = File { path: path.to_owned(), text: text.to_owned() };
        check(&words, &[file]).into_iter().map(|found| found.message).collect()
    }

    #[test]
    fn words_are_found_whole_and_outside_of_code() {
        let text =
            "// A Gizmo rings: `gizmo`, gizmos, a gizmo curve.\nlet gizmo = \"give again!\";\n";
        let found = messages("a.rs", text);
        assert_eq!(found, ["a.rs:1: `gizmo`: write part", "a.rs:2: `give again`: write X"]);
        assert_eq!(messages("a.md", "```\ngizmo\n```\ngizmo\n").len(), 1);
        assert!(messages("a.toml", "gizmo").is_empty());
    }

    #[test]
    fn long_comments_and_markdown_are_found_and_code_is_not() {
        let long = "x ".repeat(60);
        assert_eq!(
            messages("a.rs", &format!("/// {long}\n/// | {long}\nlet a = b; {long}")).len(),
            1
        );
        assert_eq!(messages("a.md", &format!("{long}\n| {long}\n```\n{long}\n```\n")).len(), 1);
    }
}
