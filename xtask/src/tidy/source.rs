//! Rust source cut into comments, string literals and code.

/// What a piece of source is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Comment,
    Text,
    Code,
}

/// A part of one line.
#[derive(Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Counted from one.
    pub line: usize,
    pub kind: Kind,
    pub text: &'a str,
}

/// Cuts `source` into pieces, none of which is longer than a line.
pub fn pieces(source: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let (mut line, mut code, mut at) = (1, 0, 0);
    while at < source.len() {
        let Some((kind, length)) = opening(source, at) else {
            at += source[at..].chars().next().map_or(1, char::len_utf8);
            continue;
        };
        push(&mut pieces, &mut line, Kind::Code, &source[code..at]);
        push(&mut pieces, &mut line, kind, &source[at..at + length]);
        at += length;
        code = at;
    }
    push(&mut pieces, &mut line, Kind::Code, &source[code..]);
    pieces
}

fn push<'a>(pieces: &mut Vec<Piece<'a>>, line: &mut usize, kind: Kind, text: &'a str) {
    for (number, text) in text.split('\n').enumerate() {
        *line += usize::from(number > 0);
        if !text.is_empty() {
            pieces.push(Piece { line: *line, kind, text });
        }
    }
}

/// Returns the kind and the length of the comment or literal that begins at `at`, if one does.
/// Character literals are code; they are skipped whole, for `'"'` begins no string.
fn opening(source: &str, at: usize) -> Option<(Kind, usize)> {
    let rest = &source[at..];
    if rest.starts_with("//") {
        return Some((Kind::Comment, rest.find('\n').unwrap_or(rest.len())));
    }
    if rest.starts_with("/*") {
        return Some((Kind::Comment, block_comment(rest)));
    }
    let is_inside_word = source[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
    if let Some(raw) = rest.strip_prefix('r').filter(|_| !is_inside_word || ends_in_b(source, at)) {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            let body = 1 + hashes + 1;
            let length =
                rest[body..].find(&end).map_or(rest.len(), |found| body + found + end.len());
            return Some((Kind::Text, length));
        }
    }
    if rest.starts_with('"') {
        return Some((Kind::Text, quoted(rest, '"')));
    }
    if rest.starts_with('\'') && is_char(rest) {
        return Some((Kind::Code, quoted(rest, '\'')));
    }
    None
}

/// Returns `true` if the word before `at` is the `b` of a byte string.
fn ends_in_b(source: &str, at: usize) -> bool {
    let before = &source[..at];
    before
        .strip_suffix(['b', 'c'])
        .is_some_and(|rest| !rest.ends_with(|c: char| c.is_alphanumeric() || c == '_'))
}

/// Returns `true` for a character literal, `false` for a lifetime.
fn is_char(rest: &str) -> bool {
    let mut chars = rest.chars().skip(1);
    matches!((chars.next(), chars.next()), (Some('\\'), _) | (Some(_), Some('\'')))
}

fn quoted(rest: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        let here = &rest.as_bytes()[at..];
        if here.starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if here.starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_literals_and_code_are_told_from_each_other() {
        let source = "let a = \"x // y\"; // one\n/* two /* in */\nthree */ r#\"raw \" \"# 'a' '\"' \
                      br\"b\" 'static //! four";
        let of = |kind| -> Vec<_> {
            let of_kind = pieces(source).into_iter().filter(move |piece| piece.kind == kind);
            of_kind.map(|piece| (piece.line, piece.text.to_owned())).collect()
        };
        let owned = |all: &[(usize, &str)]| -> Vec<_> {
            all.iter().map(|&(line, text)| (line, text.to_owned())).collect()
        };
        assert_eq!(
            of(Kind::Comment),
            owned(&[(1, "// one"), (2, "/* two /* in */"), (3, "three */"), (3, "//! four")])
        );
        let texts = owned(&[(1, "\"x // y\""), (3, "r#\"raw \" \"#"), (3, "r\"b\"")]);
        assert_eq!(of(Kind::Text), texts);
        assert!(of(Kind::Code).contains(&(3, "'\"'".to_owned())));
    }
}
