//! The rules of a mesh form with their patterns: which one a name goes by.

use super::pattern::NamePattern;
use super::rules::TensorRule;
use crate::error::LayoutError;

/// Rules whose patterns were read.
pub(super) struct RuleSet<'a> {
    pub(super) rules: &'a [TensorRule],
    pub(super) patterns: Vec<NamePattern>,
}

impl<'a> RuleSet<'a> {
    pub(super) fn new(rules: &'a [TensorRule]) -> Result<Self, LayoutError> {
        let patterns = rules.iter().map(|rule| NamePattern::new(&rule.pattern));
        Ok(Self { rules, patterns: patterns.collect::<Result<_, _>>()? })
    }

    /// The first rule that matches `name`. It tries every pattern: ask once for each tensor.
    pub(super) fn index_of(&self, name: &str) -> Option<usize> {
        let parts: Vec<&str> = name.split('.').collect();
        self.patterns.iter().position(|pattern| pattern.matches_parts(&parts))
    }

    /// The tensor that `name`, which goes by `rule`, is tied to; one that is tied to itself is not.
    pub(super) fn tied_to(&self, name: &str, rule: Option<usize>) -> Option<&'a str> {
        self.rules[rule?].tied_to.as_deref().filter(|target| *target != name)
    }

    /// The error for a tensor that its rule does not fit.
    pub(super) fn misfit(&self, tensor: &str, rule: Option<usize>, cause: String) -> LayoutError {
        let rule = rule.map_or("", |rule| &self.rules[rule].pattern).to_owned();
        LayoutError::RuleDoesNotFit { tensor: tensor.to_owned(), rule, cause }
    }
}
