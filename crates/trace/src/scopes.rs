//! Walking through the scopes of a trace in the order of its tasks.

use super::TraceScope;

/// One step of a [`ScopeWalk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScopeStep {
    /// Enter the scope at this position of [`Trace::scopes`](super::Trace::scopes).
    Enter(u32),
    /// Leave the innermost scope.
    Leave,
}

/// The scopes that are open while the tasks are gone through.
///
/// Scopes are entered in the order of their ids, so that the moves between two tasks follow from
/// the scopes that the two were submitted in.
pub(crate) struct ScopeWalk<'a> {
    scopes: &'a [TraceScope],
    open: Vec<u32>,
    next: usize,
}

impl<'a> ScopeWalk<'a> {
    pub(crate) fn new(scopes: &'a [TraceScope]) -> Self {
        Self { scopes, open: Vec::new(), next: 0 }
    }

    /// Steps to where `scope` is the innermost one; what stands in the way otherwise.
    pub(crate) fn move_to(
        &mut self,
        scope: Option<u32>,
        mut step: impl FnMut(ScopeStep),
    ) -> Result<(), String> {
        if let Some(scope) = scope {
            if scope as usize >= self.scopes.len() {
                return Err(format!("scope {scope} of {} is not declared", self.scopes.len()));
            }
            while self.next <= scope as usize {
                self.enter_next(&mut step)?;
            }
        }
        self.leave_until(scope, &mut step).map_err(|scope| {
            format!("scope {scope} had been left before this task; scopes are entered in the order of their ids")
        })
    }

    /// Enters the scopes that are left over, and leaves all.
    pub(crate) fn finish(&mut self, mut step: impl FnMut(ScopeStep)) -> Result<(), String> {
        while self.next < self.scopes.len() {
            self.enter_next(&mut step)?;
        }
        self.move_to(None, step)
    }

    fn enter_next(&mut self, step: &mut impl FnMut(ScopeStep)) -> Result<(), String> {
        let scope = self.next;
        self.leave_until(self.scopes[scope].parent, step).map_err(|parent| {
            format!("scope {scope} is in scope {parent}, which is not open when it is entered")
        })?;
        self.open.push(scope as u32);
        self.next += 1;
        step(ScopeStep::Enter(scope as u32));
        Ok(())
    }

    fn leave_until(
        &mut self,
        scope: Option<u32>,
        step: &mut impl FnMut(ScopeStep),
    ) -> Result<(), u32> {
        while self.open.last().copied() != scope {
            match (self.open.is_empty(), scope) {
                (false, _) => self.leave_innermost(step),
                (true, Some(scope)) => return Err(scope),
                (true, None) => unreachable!("an empty stack has no innermost scope"),
            }
        }
        Ok(())
    }

    /// Scopes inside the innermost one that no task was submitted in are passed through first: once
    /// it has been left, they cannot be entered any more.
    fn leave_innermost(&mut self, step: &mut impl FnMut(ScopeStep)) {
        let depth = self.open.len();
        while self.open.len() >= depth {
            let inner = self.scopes.get(self.next).is_some_and(|next| {
                next.parent.is_some() && next.parent == self.open.last().copied()
            });
            if inner {
                self.open.push(self.next as u32);
                step(ScopeStep::Enter(self.next as u32));
                self.next += 1;
            } else {
                self.open.pop();
                step(ScopeStep::Leave);
            }
        }
    }
}
