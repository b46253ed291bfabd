//! Extents: what the items along a dimension are, as the descriptions of families write it.
//!
//! `Q*d+K*2*d` are Q items of d elements, then K items of 2*d. See `rules/families.toml`.

use crate::meaning::{Block, Space};

/// What a dimension is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// No split makes sense; the size is checked if it is given.
    Whole(Option<Sum>),
    Runs(Vec<RunOf>),
}

/// A run of items, once or several times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunOf {
    repeat: Option<char>,
    /// The capital letter; `None` for what all ranks share.
    item: Option<char>,
    unit: Product,
}

/// Products that are added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sum(Vec<Product>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Product {
    times: Vec<Factor>,
    over: Vec<Factor>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Factor {
    Constant(u64),
    Letter(char),
    Sum(Sum),
}

/// Returns what a letter stands for; `None` where shapes have to say it.
pub(crate) type Numbers<'a> = dyn Fn(char) -> Result<Option<u64>, String> + 'a;

impl Extent {
    /// Reads an extent; `None` if it is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text: Vec<char> = text.chars().filter(|letter| !letter.is_whitespace()).collect();
        match text[..] {
            ['-'] => return Some(Self::Whole(None)),
            ['=', ref size @ ..] => return Sum::parse(size).map(|size| Self::Whole(Some(size))),
            _ => {}
        }
        let terms = split(&text, '+')?;
        terms.into_iter().map(RunOf::parse).collect::<Option<_>>().map(Self::Runs)
    }

    /// Returns `true` if it has a run of these items.
    pub(crate) fn has(&self, item: char) -> bool {
        matches!(self, Self::Runs(runs) if runs.iter().any(|run| run.item == Some(item)))
    }

    /// The blocks of a dimension of `size` elements, empty where it stays whole, or why it does not
    /// fit.
    pub(crate) fn blocks(&self, size: u64, numbers: &Numbers<'_>) -> Result<Vec<Block>, String> {
        let runs = match self {
            Self::Whole(None) => return Ok(Vec::new()),
            Self::Whole(Some(expected)) => {
                let expected = expected.value(&|letter| known(letter, numbers))?;
                return match expected == size {
                    true => Ok(Vec::new()),
                    false => Err(format!("it has {size} elements, one head has {expected}")),
                };
            }
            Self::Runs(runs) => runs,
        };
        // At most one letter is unknown: the items of a run, or a number.
        let mut unknown = None;
        let (mut fixed, mut multiple) = (0, 0);
        for run in runs {
            let (constant, factor, letter) = run.linear(numbers)?;
            fixed += constant;
            multiple += factor;
            match (unknown, letter) {
                (Some(known), Some(other)) if known != other => {
                    return Err(format!("neither `{known}` nor `{other}` is known"));
                }
                (None, Some(_)) => unknown = letter,
                _ => {}
            }
        }
        let misfit = || {
            let known = ['Q', 'K', 'd'].map(|letter| (letter, numbers(letter)));
            let known = known.into_iter().filter_map(|(letter, number)| {
                let what = match letter {
                    'Q' => "query heads",
                    'K' => "key-value heads",
                    _ => "elements each",
                };
                Some(format!("{} {what}", number.ok()??))
            });
            let known = known.collect::<Vec<_>>().join(", ");
            format!("{size} elements do not fit {self} with {known}")
        };
        let solved = match unknown {
            None if fixed == size => None,
            Some(_) if multiple > 0 && size >= fixed && (size - fixed).is_multiple_of(multiple) => {
                Some((size - fixed) / multiple)
            }
            _ => return Err(misfit()),
        };
        let number = |letter: char| match (unknown, solved) {
            (Some(unknown), Some(solved)) if unknown == letter => Ok(solved),
            _ => known(letter, numbers),
        };
        let mut blocks = Vec::new();
        for run in runs {
            let block = match run.item {
                Some(item) => Block {
                    space: Space::of(item),
                    items: number(item)?,
                    unit: run.unit.value(&number)?,
                },
                None => Block { space: Space::Shared, items: 1, unit: run.unit.value(&number)? },
            };
            if block.unit == 0 {
                return Err(misfit());
            }
            let times = run.repeat.map_or(Ok(1), number)?;
            blocks.extend((0..times).map(|_| block));
        }
        Ok(blocks)
    }
}

fn known(letter: char, numbers: &Numbers<'_>) -> Result<u64, String> {
    numbers(letter)?.ok_or_else(|| format!("`{letter}` is not known"))
}

impl RunOf {
    fn parse(text: &[char]) -> Option<Self> {
        let (repeat, text) = match text {
            [repeat, '@', rest @ ..] => (Some(*repeat), rest),
            _ => (None, text),
        };
        let factors = split(text, '*')?;
        let (item, factors) = match factors[..] {
            [[item], ref rest @ ..] if item.is_ascii_uppercase() => (Some(*item), rest),
            ref all => (None, all),
        };
        let times = factors.iter().map(|factor| Factor::parse(factor)).collect::<Option<_>>()?;
        Some(Self { repeat, item, unit: Product { times, over: Vec::new() } })
    }

    /// Elements as a constant and a multiple of the one letter that is not known.
    fn linear(&self, numbers: &Numbers<'_>) -> Result<(u64, u64, Option<char>), String> {
        let letters = self.unit.letters().into_iter().chain(self.item).chain(self.repeat);
        let mut unknown = None;
        for letter in letters {
            if numbers(letter)?.is_none() {
                match unknown {
                    Some(known) if known != letter => {
                        return Err(format!("neither `{known}` nor `{letter}` is known"));
                    }
                    _ => unknown = Some(letter),
                }
            }
        }
        // A letter occurs once in a product.
        let number = |letter| Ok(numbers(letter)?.unwrap_or(1));
        let times = [self.item, self.repeat].into_iter().flatten();
        let mut elements = self.unit.value(&number)?;
        for letter in times {
            elements = elements.checked_mul(number(letter)?).ok_or("the sizes are too large")?;
        }
        Ok(if unknown.is_some() { (0, elements, unknown) } else { (elements, 0, None) })
    }
}

impl Sum {
    /// Reads a sum of products.
    pub(crate) fn parse(text: &[char]) -> Option<Self> {
        let terms = split(text, '+')?;
        terms.into_iter().map(Product::parse).collect::<Option<_>>().map(Self)
    }

    /// The value, with numbers for all letters.
    pub(crate) fn value(
        &self,
        number: &dyn Fn(char) -> Result<u64, String>,
    ) -> Result<u64, String> {
        let mut sum = 0u64;
        for product in &self.0 {
            sum = sum.checked_add(product.value(number)?).ok_or("the sizes are too large")?;
        }
        Ok(sum)
    }
}

impl Product {
    fn parse(text: &[char]) -> Option<Self> {
        let mut parts = split(text, '/')?.into_iter();
        let factors =
            |text| split(text, '*')?.into_iter().map(Factor::parse).collect::<Option<Vec<_>>>();
        let times = factors(parts.next()?)?;
        let over = parts.map(Factor::parse).collect::<Option<_>>()?;
        Some(Self { times, over })
    }

    fn value(&self, number: &dyn Fn(char) -> Result<u64, String>) -> Result<u64, String> {
        let mut value = 1u64;
        for factor in &self.times {
            value = value.checked_mul(factor.value(number)?).ok_or("the sizes are too large")?;
        }
        for factor in &self.over {
            let divisor = factor.value(number)?;
            if divisor == 0 || !value.is_multiple_of(divisor) {
                return Err(format!("{value} is no multiple of {divisor}"));
            }
            value /= divisor;
        }
        Ok(value)
    }

    fn letters(&self) -> Vec<char> {
        let mut found = Vec::new();
        for factor in self.times.iter().chain(&self.over) {
            match factor {
                Factor::Constant(_) => {}
                Factor::Letter(letter) => found.push(*letter),
                Factor::Sum(sum) => found.extend(sum.0.iter().flat_map(Self::letters)),
            }
        }
        found
    }
}

impl Factor {
    fn parse(text: &[char]) -> Option<Self> {
        match text {
            ['(', inner @ .., ')'] => Sum::parse(inner).map(Self::Sum),
            [letter] if letter.is_ascii_alphabetic() => Some(Self::Letter(*letter)),
            _ => text.iter().collect::<String>().parse().ok().map(Self::Constant),
        }
    }

    fn value(&self, number: &dyn Fn(char) -> Result<u64, String>) -> Result<u64, String> {
        match self {
            Self::Constant(value) => Ok(*value),
            Self::Letter(letter) => number(*letter),
            Self::Sum(sum) => sum.value(number),
        }
    }
}

/// Splits at `by` outside of parentheses; `None` if they do not match.
fn split(text: &[char], by: char) -> Option<Vec<&[char]>> {
    let (mut depth, mut start) = (0usize, 0);
    let mut parts = Vec::new();
    for (at, letter) in text.iter().enumerate() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1)?,
            letter if *letter == by && depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    (depth == 0 && parts.iter().all(|part| !part.is_empty())).then_some(parts)
}

impl std::fmt::Display for Extent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self::Runs(runs) = self else { return f.write_str("a whole dimension") };
        let what = |run: &RunOf| run.item.map_or("shared rows", |item| Space::of(item).name());
        let runs: Vec<&str> = runs.iter().map(what).collect();
        write!(f, "runs of {}", runs.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(text: &str, size: u64) -> Result<Vec<(Space, u64, u64)>, String> {
        let numbers = |letter| {
            Ok(match letter {
                'Q' => Some(12),
                'K' => Some(4),
                'd' => Some(8),
                'g' => Some(3),
                'e' => Some(2),
                _ => None,
            })
        };
        let blocks = Extent::parse(text).expect(text).blocks(size, &numbers)?;
        Ok(blocks.into_iter().map(|block| (block.space, block.items, block.unit)).collect())
    }

    #[test]
    fn extents_give_blocks_that_fill_the_dimension() {
        assert_eq!(blocks("Q*d", 96), Ok(vec![(Space::Query, 12, 8)]));
        let fused = [(Space::Query, 12, 8), (Space::KeyValue, 4, 8), (Space::KeyValue, 4, 8)];
        assert_eq!(blocks("Q*d+K*d+K*d", 160), Ok(fused.to_vec()));
        assert_eq!(blocks("K*(g+2)*d", 160), Ok(vec![(Space::KeyValue, 4, 40)]));
        assert_eq!(blocks("I+I", 10), Ok(vec![(Space::Inner, 5, 1); 2]));
        assert_eq!(blocks("e@I", 10), Ok(vec![(Space::Inner, 5, 1); 2]));
        assert_eq!(blocks("Q*x", 36), Ok(vec![(Space::Query, 12, 3)]));
        let shared = [(Space::Query, 12, 8), (Space::Shared, 1, 16)];
        assert_eq!(blocks("Q*d+2*d", 112), Ok(shared.to_vec()));
        assert_eq!(blocks("-", 7), Ok(vec![]));
        assert_eq!(blocks("=d", 8), Ok(vec![]));
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        for (text, size) in
            [("Q*d", 95), ("I+I", 9), ("=d", 9), ("L*x", 8), ("Q*d+I+L", 200), ("Q*d+I", 95)]
        {
            assert!(blocks(text, size).is_err(), "{text}");
        }
        for text in ["", "Q*", "(Q", "Q)", "a+", "=", "Q**d"] {
            assert_eq!(Extent::parse(text), None, "{text}");
        }
    }
}
