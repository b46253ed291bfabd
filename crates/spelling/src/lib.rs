//! Suggestions for misspelt names.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

use std::cmp::Reverse;

/// Returns the known name nearest to `name`, if one is near enough to be a slip of the hand.
///
/// ```
/// assert_eq!(syncline_spelling::nearest("gmem", ["gemm", "axpy"]), Some("gemm"));
/// assert_eq!(syncline_spelling::nearest("quicksort", ["gemm", "axpy"]), None);
/// ```
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (name.chars().count() / 3).max(1) + 1;
    known
        .into_iter()
        .map(|candidate| {
            (strsim::osa_distance(name, candidate), Reverse(common(name, candidate)), candidate)
        })
        .filter(|&(distance, ..)| distance <= limit)
        .min()
        .map(|(.., candidate)| candidate)
}

/// Returns how many characters two names begin with alike.
fn common(one: &str, other: &str) -> usize {
    one.chars().zip(other.chars()).take_while(|(one, other)| one == other).count()
}

/// Returns what to say after a name that is not known: ` (did you mean ...?)`, or nothing.
pub fn meant<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, known).map(|name| format!(" (did you mean `{name}`?)")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_hand_are_near() {
        assert_eq!(nearest("f23", ["f16", "f32", "f64"]), Some("f32"));
        assert_eq!(nearest("cup", ["cpu", "cuda"]), Some("cpu"));
        // As far from `file`.
        assert_eq!(nearest("filled", ["file", "fill"]), Some("fill"));
        assert_eq!(meant("scalar", ["scalars", "shape"]), " (did you mean `scalars`?)");
        assert_eq!(meant("quicksort", ["gemm", "axpy"]), "");
    }
}
