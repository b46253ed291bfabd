//! Scopes: where dependencies are discovered, and where only explicit ones count.

use crate::SubmitError;

/// How the tasks of a scope get their dependencies.
///
/// What orders two tasks is the kind of the *later* one: an auto task waits for every earlier task
/// that it conflicts with, manual ones included (those edges also carry
/// [`EdgeKinds::BARRIER`](crate::EdgeKinds::BARRIER)); a manual task waits for its explicit
/// dependencies and nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ScopeKind {
    /// Dependencies are discovered from the arguments.
    #[default]
    Auto,
    /// Only explicit dependencies count.
    Manual,
}

/// The scopes that are open, outermost first.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScopeStack {
    open: Vec<ScopeKind>,
    left: u64,
}

impl ScopeStack {
    /// Returns the kind of the innermost scope; outside all of them, auto.
    #[inline]
    pub(crate) fn kind(&self) -> ScopeKind {
        self.open.last().copied().unwrap_or_default()
    }

    /// Returns the number of scopes that are open.
    pub(crate) fn depth(&self) -> usize {
        self.open.len()
    }

    pub(crate) fn enter(&mut self, kind: ScopeKind) {
        self.open.push(kind);
    }

    pub(crate) fn leave(&mut self) -> Result<ScopeKind, SubmitError> {
        let left = self.left + 1;
        let kind =
            self.open.pop().ok_or(SubmitError::UnbalancedScope { entered: self.left, left })?;
        self.left = left;
        Ok(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_scope_decides_and_every_leave_needs_an_enter() {
        let mut scopes = ScopeStack::default();
        assert_eq!(scopes.kind(), ScopeKind::Auto);
        scopes.enter(ScopeKind::Manual);
        scopes.enter(ScopeKind::Auto);
        assert_eq!((scopes.kind(), scopes.depth()), (ScopeKind::Auto, 2));
        assert_eq!(scopes.leave(), Ok(ScopeKind::Auto));
        assert_eq!(scopes.kind(), ScopeKind::Manual);
        assert_eq!(scopes.leave(), Ok(ScopeKind::Manual));
        assert_eq!(scopes.leave(), Err(SubmitError::UnbalancedScope { entered: 2, left: 3 }));
    }
}
