//! Which of the known names was meant.

/// The known name that is nearest to `name`, if one is near enough to be a slip of the hand.
///
/// ```
/// assert_eq!(syncline_deps::nearest("gmem", ["gemm", "axpy"]), Some("gemm"));
/// assert_eq!(syncline_deps::nearest("quicksort", ["gemm", "axpy"]), None);
/// ```
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (name.chars().count() / 3).max(1) + 1;
    known
        .into_iter()
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|&(distance, _)| distance <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// What to say after a name that is not known: the nearest one that is, or nothing.
pub(crate) fn meant<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, known).map(|name| format!(" (did you mean `{name}`?)")).unwrap_or_default()
}

/// Insertions, deletions, replacements and exchanges of neighbours from one word to the other.
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    // The rows for all but two, all but one and all of the letters so far.
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (count, &letter) in from.iter().enumerate() {
        let mut row = vec![count + 1];
        for at in 0..to.len() {
            let replaced = last[at] + usize::from(letter != to[at]);
            let mut least = replaced.min(row[at] + 1).min(last[at + 1] + 1);
            if count > 0 && at > 0 && letter == to[at - 1] && from[count - 1] == to[at] {
                least = least.min(before[at - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_hand_are_near() {
        for (from, to, expected) in [
            ("", "abc", 3),
            ("gmem", "gemm", 1),
            ("f23", "f32", 1),
            ("ab", "b", 1),
            ("cup", "cpu", 1),
        ] {
            assert_eq!(distance(from, to), expected, "{from} {to}");
            assert_eq!(distance(to, from), expected, "{to} {from}");
        }
        assert_eq!(nearest("f23", ["f16", "f32", "f64"]), Some("f32"));
    }
}
