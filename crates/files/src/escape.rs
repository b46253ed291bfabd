//! Text of files on its way to a terminal.

use std::io::{self, Write};

/// Returns `true` for characters that a terminal acts upon or that change the order or shape of
/// others.
fn is_active(char: char) -> bool {
    char.is_control()
        || matches!(
            char,
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        )
}

/// Appends `char` as JSON spells it in texts: valid there, and harmless anywhere.
fn push_escaped(text: &mut String, char: char) {
    match char {
        '\n' => text.push_str("\\n"),
        '\r' => text.push_str("\\r"),
        '\t' => text.push_str("\\t"),
        char => text.push_str(&format!("\\u{:04x}", u32::from(char))),
    }
}

/// Returns `text` in one line, with everything escaped that a terminal would act upon.
///
/// ```
/// assert_eq!(syncline_files::one_line("a\u{1b}[31m\nb"), "a\\u001b[31m\\nb");
/// ```
pub fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for char in text.chars() {
        match is_active(char) {
            true => push_escaped(&mut line, char),
            false => line.push(char),
        }
    }
    line
}

/// A writer for terminals: escapes what they would act upon, except ends of lines and tabs.
///
/// JSON stays the same JSON. Bytes that are not UTF-8 become U+FFFD.
#[derive(Debug)]
pub struct Escaped<W> {
    out: W,
    /// The beginning of a character whose other bytes are yet to come.
    pending: Vec<u8>,
}

impl<W: Write> Escaped<W> {
    /// A writer in front of `out`.
    pub fn new(out: W) -> Self {
        Self { out, pending: Vec::new() }
    }

    fn write_text(&mut self, text: &str) -> io::Result<()> {
        let is_plain = |char: char| matches!(char, '\n' | '\t') || !is_active(char);
        if text.chars().all(is_plain) {
            return self.out.write_all(text.as_bytes());
        }
        let mut safe = String::with_capacity(text.len() + 16);
        for char in text.chars() {
            match is_plain(char) {
                true => safe.push(char),
                false => push_escaped(&mut safe, char),
            }
        }
        self.out.write_all(safe.as_bytes())
    }
}

impl<W: Write> Write for Escaped<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let joined;
        let mut rest = match self.pending.is_empty() {
            true => bytes,
            false => {
                joined = [&self.pending, bytes].concat();
                self.pending.clear();
                &joined
            }
        };
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    self.write_text(text)?;
                    return Ok(bytes.len());
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    self.write_text(std::str::from_utf8(valid).expect("valid up to there"))?;
                    let Some(length) = error.error_len() else {
                        self.pending = after.to_vec();
                        return Ok(bytes.len());
                    };
                    self.out.write_all("\u{fffd}".as_bytes())?;
                    rest = &after[length..];
                }
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.pending).is_empty() {
            self.out.write_all("\u{fffd}".as_bytes())?;
        }
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(parts: &[&[u8]]) -> String {
        let mut bytes = Vec::new();
        let mut out = Escaped::new(&mut bytes);
        for part in parts {
            out.write_all(part).unwrap();
        }
        out.flush().unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn terminals_are_told_nothing() {
        let hostile = "a\u{1b}]0;x\u{7}\u{9b}2J\u{7f}\r\u{202e}\u{2066}\u{200b}\u{feff}\n\tz\u{e9}";
        let safe = "a\\u001b]0;x\\u0007\\u009b2J\\u007f\\r\\u202e\\u2066\\u200b\\ufeff\n\tz\u{e9}";
        assert_eq!(through(&[hostile.as_bytes()]), safe);
        let by_byte: Vec<&[u8]> = hostile.as_bytes().chunks(1).collect();
        assert_eq!(through(&by_byte), safe);
        assert_eq!(one_line(hostile), safe.replace('\n', "\\n").replace('\t', "\\t"));
        assert_eq!(
            through(&[b"\xff", b"a\xc2", b"", b"\xc2\x9b", b"\xe2\x80"]),
            "\u{fffd}a\u{fffd}\\u009b\u{fffd}"
        );
    }

    #[test]
    fn json_stays_the_same_json() {
        let value = serde_json::json!({"name": "\u{1b}\u{9b}\u{7f}\u{2028}\u{200f}\u{1f680}"});
        let shown = through(&[format!("{value:#}\n").as_bytes()]);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }
}
