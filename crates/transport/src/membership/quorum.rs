//! How many members are enough to decide.

use std::collections::BTreeSet;

/// Returns `true` if `agreeing` are enough of `members`: more than half, or half with the first
/// member among them.
///
/// Any two sets that are enough share a member.
pub(super) fn is_quorum(members: &BTreeSet<usize>, agreeing: &BTreeSet<usize>) -> bool {
    let count = members.intersection(agreeing).count();
    let has_first = members.first().is_some_and(|first| agreeing.contains(first));
    2 * count > members.len() || (2 * count == members.len() && has_first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_two_quorums_share_a_member() {
        for size in 1..=6 {
            let members: BTreeSet<usize> = (10..10 + size).collect();
            let subsets: Vec<BTreeSet<usize>> = (0..1 << size)
                .map(|bits: usize| {
                    (10..10 + size).filter(|at| bits >> (at - 10) & 1 == 1).collect()
                })
                .collect();
            for one in subsets.iter().filter(|one| is_quorum(&members, one)) {
                for other in subsets.iter().filter(|other| is_quorum(&members, other)) {
                    assert!(!one.is_disjoint(other), "{one:?} and {other:?} of {members:?}");
                }
            }
        }
    }

    #[test]
    fn half_is_enough_with_the_first_member_only() {
        let is = |members: &[usize], agreeing: &[usize]| {
            let set = |members: &[usize]| members.iter().copied().collect::<BTreeSet<_>>();
            is_quorum(&set(members), &set(agreeing))
        };
        assert!(is(&[0, 1, 2], &[1, 2]) && !is(&[0, 1, 2], &[0]));
        assert!(is(&[3, 4], &[3]) && !is(&[3, 4], &[4]));
        // Others than members do not count.
        assert!(!is(&[3, 4, 5], &[3, 7, 8]));
    }
}
