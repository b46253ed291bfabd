//! Patterns over tensor names: `*` within a name part, `**` over any number of parts, `{a,b}` and
//! `{0..7}`.

use crate::error::LayoutError;

/// Texts that one pattern with braces may stand for; a bound on what a typing error can cost.
const EXPANSIONS_MAX: usize = 1 << 16;

/// A pattern over names whose parts are separated by dots.
///
/// ```
/// use syncline_layout::NamePattern;
///
/// let pattern = NamePattern::new("model.layers.*.self_attn.{q,k,v}_proj.weight")?;
/// assert!(pattern.matches("model.layers.11.self_attn.k_proj.weight"));
/// assert!(!pattern.matches("model.layers.11.self_attn.o_proj.weight"));
/// assert!(NamePattern::new("**.bias")?.matches("bias"));
/// # Ok::<(), syncline_layout::LayoutError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern {
    text: String,
    /// Without braces.
    alternatives: Vec<Vec<String>>,
}

impl NamePattern {
    /// Reads a pattern.
    pub fn new(text: &str) -> Result<Self, LayoutError> {
        let parts = |plain: String| plain.split('.').map(str::to_owned).collect();
        let alternatives = expand_ranges(text)?.into_iter().map(parts).collect();
        Ok(Self { text: text.to_owned(), alternatives })
    }

    /// The text it was read from.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// True if `name` fits it.
    pub fn matches(&self, name: &str) -> bool {
        self.matches_parts(&name.split('.').collect::<Vec<_>>())
    }

    /// As [`matches`](Self::matches), for a name that was split to be tried with many
    /// patterns.
    pub(super) fn matches_parts(&self, parts: &[&str]) -> bool {
        let fits = |pattern: &Vec<String>| {
            wildcard(pattern, parts, |part| part == "**", |part, name| part_matches(part, name))
        };
        self.alternatives.iter().any(fits)
    }

    /// The names it stands for, if it has no wildcard.
    pub fn literals(&self) -> Option<Vec<String>> {
        let names: Vec<String> = self.alternatives.iter().map(|parts| parts.join(".")).collect();
        (!self.text.contains('*')).then_some(names)
    }
}

fn part_matches(pattern: &str, part: &str) -> bool {
    if pattern == "*" || pattern == part {
        return true;
    }
    pattern.contains('*')
        && wildcard(
            pattern.as_bytes(),
            part.as_bytes(),
            |&byte| byte == b'*',
            |one, other| one == other,
        )
}

/// Matches with stars that stand for any number of items. On a mismatch the last star takes one
/// more, which is enough.
fn wildcard<P, T>(
    pattern: &[P],
    items: &[T],
    is_star: impl Fn(&P) -> bool,
    same: impl Fn(&P, &T) -> bool,
) -> bool {
    let (mut at, mut item) = (0, 0);
    let mut retry = None;
    while item < items.len() {
        if at < pattern.len() && is_star(&pattern[at]) {
            retry = Some((at + 1, item));
            at += 1;
        } else if at < pattern.len() && same(&pattern[at], &items[item]) {
            at += 1;
            item += 1;
        } else if let Some((after_star, taken)) = retry {
            retry = Some((after_star, taken + 1));
            (at, item) = (after_star, taken + 1);
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(is_star)
}

/// The texts that `text` stands for: `{a,b}` is either, `{0..3}` any of 0, 1, 2, 3; braces do not
/// nest.
///
/// ```
/// let names = syncline_layout::expand_ranges("h.{0..1}.{w,b}")?;
/// assert_eq!(names, ["h.0.w", "h.0.b", "h.1.w", "h.1.b"]);
/// # Ok::<(), syncline_layout::LayoutError>(())
/// ```
pub fn expand_ranges(text: &str) -> Result<Vec<String>, LayoutError> {
    let bad = |cause: &str| LayoutError::BadRule { rule: text.to_owned(), cause: cause.to_owned() };
    let mut texts = vec![String::new()];
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        let close = rest.find('}').filter(|&close| close > open);
        let close = close.ok_or_else(|| bad("a `{` or `}` has no partner"))?;
        let inside = &rest[open + 1..close];
        if inside.contains('{') {
            return Err(bad("braces do not nest"));
        }
        let choices = choices(inside).ok_or_else(|| bad("a range reads `{first..last}`"))?;
        if choices.len() * texts.len() > EXPANSIONS_MAX {
            return Err(bad("the braces stand for too many names"));
        }
        let before = &rest[..open];
        texts = texts
            .iter()
            .flat_map(|text| choices.iter().map(move |choice| format!("{text}{before}{choice}")))
            .collect();
        rest = &rest[close + 1..];
    }
    if rest.contains('}') {
        return Err(bad("a `{` or `}` has no partner"));
    }
    texts.iter_mut().for_each(|text| text.push_str(rest));
    Ok(texts)
}

fn choices(inside: &str) -> Option<Vec<String>> {
    let Some((first, last)) = inside.split_once("..") else {
        return Some(inside.split(',').map(str::to_owned).collect());
    };
    let (first, last) = (first.trim().parse::<u64>().ok()?, last.trim().parse::<u64>().ok()?);
    let count = last.checked_sub(first)?;
    (count < EXPANSIONS_MAX as u64)
        .then(|| (first..=last).map(|number| number.to_string()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        NamePattern::new(pattern).unwrap().matches(name)
    }

    #[test]
    fn stars_stay_within_their_part() {
        assert!(matches("a.*.c", "a.b.c"));
        assert!(!matches("a.*.c", "a.b.b.c"));
        assert!(!matches("a.*", "a"));
        assert!(matches("*_proj.*", "q_proj.weight"));
        assert!(matches("a*b*c", "axxbyyc") && !matches("a*b*c", "axxbyy"));
    }

    #[test]
    fn double_stars_take_any_number_of_parts() {
        assert!(matches("**", "a.b.c") && matches("a.**", "a") && matches("**.c", "a.b.c"));
        assert!(matches("a.**.d.**.e", "a.b.d.c.d.e") && !matches("a.**.d", "a.b.c"));
    }

    #[test]
    fn braces_are_alternatives_and_ranges() {
        assert!(matches("l.{0..11}.w", "l.11.w") && !matches("l.{0..11}.w", "l.12.w"));
        assert!(matches("x.{a.b,c}.w", "x.a.b.w") && matches("x.{a.b,c}.w", "x.c.w"));
        for broken in ["{a", "a}", "{a{b}}", "{3..1}", "{0..99999999}", "}{"] {
            assert!(NamePattern::new(broken).is_err(), "{broken}");
        }
    }
}
