//! Tied tensors of the mesh form: names that stand for the values of one tensor.

use std::collections::HashMap;

use super::TensorSpec;
use super::rule_set::RuleSet;
use crate::error::LayoutError;

/// A name that is tied to a tensor, and the rule that says so.
pub(super) struct Alias {
    pub(super) name: String,
    pub(super) rule: usize,
}

/// The names tied to each tensor: of each rule the names that exist, or else its names without
/// stars.
///
/// `rule_of` is the rule of each of `specs`. Every tensor that something is tied to exists and is
/// tied to none itself. The refused pair is the first in the order of the rules, then of the
/// tensors, so that every PE says the same.
pub(super) fn ties<'a>(
    rules: &RuleSet<'a>,
    specs: &[TensorSpec],
    rule_of: &[Option<usize>],
) -> Result<HashMap<&'a str, Vec<Alias>>, LayoutError> {
    let mut ties: HashMap<&str, Vec<Alias>> = HashMap::new();
    if rules.rules.iter().all(|rule| rule.tied_to.is_none()) {
        return Ok(ties);
    }
    let by_name: HashMap<&str, usize> =
        specs.iter().enumerate().map(|(at, spec)| (spec.name.as_str(), at)).collect();
    let mut by_rule: Vec<Vec<usize>> = vec![Vec::new(); rules.rules.len()];
    for (at, rule) in rule_of.iter().enumerate() {
        if let Some(rule) = rule {
            by_rule[*rule].push(at);
        }
    }
    for (rule, members) in by_rule.iter().enumerate() {
        let Some(target) = rules.rules[rule].tied_to.as_deref() else { continue };
        let target_at = by_name.get(target).copied();
        let mut names: Vec<String> = members.iter().map(|&at| specs[at].name.clone()).collect();
        if names.is_empty() && target_at.is_some() {
            names = rules.patterns[rule].literals().unwrap_or_default();
            // A name that an earlier rule matches goes by that one.
            names.retain(|name| rules.index_of(name) == Some(rule));
        }
        names.retain(|name| name != target);
        let Some(first) = names.first() else { continue };
        let refused = |name: &str, cause| Err(rules.misfit(name, Some(rule), cause));
        let target_rule = target_at.map_or_else(|| rules.index_of(target), |at| rule_of[at]);
        if let Some(other) = rules.tied_to(target, target_rule) {
            let cause = format!(
                "it is tied to `{target}`, which is itself tied to `{other}`: let all of them name one tensor that names none"
            );
            return refused(first, cause);
        }
        let Some(target_at) = target_at else {
            return refused(first, format!("it is tied to `{target}`, which does not exist"));
        };
        let other = &specs[target_at];
        for one in members.iter().map(|&at| &specs[at]) {
            if one.shape != other.shape || one.dtype != other.dtype {
                let cause = format!(
                    "it is {} of shape {}, but tied to `{target}`, which is {} of shape {}",
                    one.dtype, one.shape, other.dtype, other.shape
                );
                return refused(&one.name, cause);
            }
        }
        let aliases = names.into_iter().map(|name| Alias { name, rule });
        ties.entry(target).or_default().extend(aliases);
    }
    Ok(ties)
}
