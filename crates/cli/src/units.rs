//! Sizes, times and rates as people read and type them: `6.25 MiB`, `6.73 ms`, `2.13 GB/s`, `10MB`.

/// Units of sizes as shown, largest first.
const BINARY: [(&str, u64); 4] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
/// Units of sizes as typed, in small letters.
const TYPED: [(&str, u64); 13] = [
    ("tib", 1 << 40),
    ("gib", 1 << 30),
    ("mib", 1 << 20),
    ("kib", 1 << 10),
    ("tb", 1_000_000_000_000),
    ("gb", 1_000_000_000),
    ("mb", 1_000_000),
    ("kb", 1_000),
    ("t", 1 << 40),
    ("g", 1 << 30),
    ("m", 1 << 20),
    ("k", 1 << 10),
    ("b", 1),
];

/// Reads `4096`, `64KiB`, `10MB`, `1.5 GiB` and the like; a letter alone, as in `64K`, is binary.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let expected =
        || format!("`{text}` is no size: expected bytes, or a number with KiB, MiB, MB or GB");
    let small = text.trim().to_ascii_lowercase();
    let found = TYPED.iter().find_map(|(unit, factor)| Some((small.strip_suffix(unit)?, *factor)));
    let (number, factor) = found.unwrap_or((&small, 1));
    let (whole, part) = number.trim().split_once('.').unwrap_or((number.trim(), ""));
    let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(part) || part.len() > 9 {
        return Err(expected());
    }
    let whole = whole.parse::<u64>().ok().and_then(|count| count.checked_mul(factor));
    let scale = 10u128.pow(part.len() as u32);
    let part: u128 = if part.is_empty() { 0 } else { part.parse().map_err(|_| expected())? };
    let bytes = part * u128::from(factor);
    // Half a byte is no size.
    if !bytes.is_multiple_of(scale) && factor == 1 {
        return Err(expected());
    }
    let rest = u64::try_from(bytes / scale).ok();
    whole.zip(rest).and_then(|(whole, rest)| whole.checked_add(rest)).ok_or_else(expected)
}

/// `count` bytes with three digits: `6.25 MiB`.
pub(crate) fn bytes(count: u64) -> String {
    match BINARY.iter().find(|(_, factor)| count >= *factor) {
        Some((name, factor)) => format!("{} {name}", digits(count as f64 / *factor as f64)),
        None => format!("{count} B"),
    }
}

/// Nanoseconds with three digits: `6.73 ms`.
pub(crate) fn duration(ns: u64) -> String {
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (ns as f64 / 1e3, "us"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    format!("{} {unit}", digits(value))
}

/// Seconds as [`duration`] shows them.
pub(crate) fn seconds(seconds: f64) -> String {
    duration((seconds * 1e9).max(0.0) as u64)
}

/// Three digits, or all before the point.
fn digits(value: f64) -> String {
    let places = match value {
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.places$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_binary_and_decimal_units() {
        let read = |text| parse_size(text).unwrap();
        assert_eq!((read("4096"), read("16MiB"), read("2 GiB")), (4096, 16 << 20, 2 << 30));
        assert_eq!((read("10MB"), read("64k"), read("7B")), (10_000_000, 64 << 10, 7));
        assert_eq!((read("1.5GiB"), read("0.25 kb")), (3 << 29, 250));
        for wrong in ["-1", "MiB", "99999999999TiB", "1.5", "1..2MB", "ten", "", "1e6", "1.5 xB"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn figures_have_three_digits_and_their_unit() {
        let shown = [12, 1536, 6_553_600, 1023 << 20, 5 << 40].map(bytes);
        assert_eq!(shown, ["12 B", "1.50 KiB", "6.25 MiB", "1023 MiB", "5.00 TiB"]);
        let shown = [999, 1_000, 6_730_000, 99_960_000, 12_345_000_000].map(duration);
        assert_eq!(shown, ["999 ns", "1.00 us", "6.73 ms", "100 ms", "12.3 s"]);
        assert_eq!(seconds(0.00673), "6.73 ms");
    }
}
