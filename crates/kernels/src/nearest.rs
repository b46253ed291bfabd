//! Which of the known names was meant.

/// The known name that is nearest to `name`, if one is near enough to be a slip of the hand.
///
/// ```
/// assert_eq!(syncline_kernels::nearest("gmem", ["gemm", "axpy"]), Some("gemm"));
/// assert_eq!(syncline_kernels::nearest("quicksort", ["gemm", "axpy"]), None);
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

/// Insertions, deletions and replacements from one word to the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (count, letter) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = count + 1;
        for at in 0..to.len() {
            let replaced = diagonal + usize::from(letter != to[at]);
            diagonal = row[at + 1];
            row[at + 1] = replaced.min(row[at] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}
