//! Sizes in bytes, as typed and as shown.

/// Units, largest first.
const UNITS: [(&str, u64); 4] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// Reads `4096`, `64KiB`, `16MiB` and the like.
pub(super) fn parse(text: &str) -> Result<u64, String> {
    let expected =
        || format!("`{text}` is no size: expected bytes, or a number with KiB, MiB or GiB");
    let unit = UNITS.iter().find(|(name, _)| text.ends_with(name));
    let (digits, factor) = match unit {
        Some((name, factor)) => (text[..text.len() - name.len()].trim(), *factor),
        None => (text, 1),
    };
    digits.parse::<u64>().ok().and_then(|count| count.checked_mul(factor)).ok_or_else(expected)
}

/// `bytes` for people.
pub(super) fn show(bytes: u64) -> String {
    match UNITS.iter().find(|(_, factor)| bytes >= *factor) {
        Some((name, factor)) => format!("{:.2} {name}", bytes as f64 / *factor as f64),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_shown() {
        assert_eq!(parse("4096"), Ok(4096));
        assert_eq!(parse("16MiB"), Ok(16 << 20));
        assert_eq!(parse("2 GiB"), Ok(2 << 30));
        assert!(parse("-1").is_err() && parse("MiB").is_err() && parse("99999999999TiB").is_err());
        assert_eq!((show(12), show(1536)), ("12 B".to_owned(), "1.50 KiB".to_owned()));
    }
}
