//! Checks that a trace means something: ids, buffers, views, dependencies and scopes.

use std::collections::HashMap;

use super::json_write::kind_name;
use super::{Place, ScopeWalk, Trace, TraceArg, TraceBuffer, TraceError, TraceTask};

impl Trace {
    /// Whether every task could be submitted; the first one that could not, and why.
    ///
    /// The readers call it; programs that build traces by hand may.
    pub fn validate(&self) -> Result<(), TraceError> {
        self.check_members()?;
        let buffers = self.buffers_by_id()?;
        let mut walk = ScopeWalk::new(&self.scopes);
        for (index, task) in self.tasks.iter().enumerate() {
            let place = Place::task(index, task.id);
            self.check_id_and_deps(index, place)?;
            self.check_moment(task.retired_at, index as u64 + 1, place.member("retired_at"))?;
            check_args(index, task, &buffers, place)?;
            let wrong = |what| TraceError::Scope { place: place.member("scope_id"), what };
            walk.move_to(task.scope_id, |_| ()).map_err(wrong)?;
            if let Some(scope) = task.scope_id
                && self.scopes[scope as usize].kind != task.scope
            {
                let what = format!(
                    "the task is said to be `{}`, but scope {scope} is `{}`",
                    kind_name(task.scope),
                    kind_name(self.scopes[scope as usize].kind)
                );
                return Err(wrong(what));
            }
        }
        walk.finish(|_| ())
            .map_err(|what| TraceError::Scope { place: Place::ROOT.member("scopes"), what })
    }

    /// The position of the task with the id `id`.
    pub fn position(&self, id: u64) -> Option<usize> {
        self.tasks.binary_search_by_key(&id, |task| task.id).ok()
    }

    fn buffers_by_id(&self) -> Result<HashMap<u64, &TraceBuffer>, TraceError> {
        let mut by_id = HashMap::with_capacity(self.buffers.len());
        for (index, buffer) in self.buffers.iter().enumerate() {
            self.check_moment(
                buffer.released_at,
                0,
                Place::entry("buffers", index).member("released_at"),
            )?;
            if by_id.insert(buffer.id.0, buffer).is_some() {
                let place = Place::entry("buffers", index);
                return Err(TraceError::DuplicateBuffer { place, buffer: buffer.id });
            }
        }
        Ok(by_id)
    }

    /// A number of tasks that had been submitted when something happened.
    fn check_moment(&self, at: Option<u64>, first: u64, place: Place) -> Result<(), TraceError> {
        let last = self.tasks.len() as u64;
        match at {
            Some(at) if at < first || at > last => {
                Err(TraceError::Moment { place, at, first, last })
            }
            _ => Ok(()),
        }
    }

    fn check_id_and_deps(&self, index: usize, place: Place) -> Result<(), TraceError> {
        let task = &self.tasks[index];
        if let Some(before) = index.checked_sub(1).map(|before| &self.tasks[before])
            && before.id >= task.id
        {
            return Err(TraceError::IdOrder { place, previous: before.id });
        }
        let earlier = &self.tasks[..index];
        for (position, &dep) in task.deps.iter().enumerate() {
            if earlier.binary_search_by_key(&dep, |task| task.id).is_err() {
                let place = place.member("deps").element(position);
                return Err(TraceError::UnknownDep { place, dep });
            }
        }
        Ok(())
    }
}

fn check_args(
    index: usize,
    task: &TraceTask,
    buffers: &HashMap<u64, &TraceBuffer>,
    place: Place,
) -> Result<(), TraceError> {
    for (position, TraceArg { arg, .. }) in task.args.iter().enumerate() {
        let place = place.arg(position);
        let buffer = arg.buffer;
        let Some(declared) = buffers.get(&buffer.0) else {
            return Err(TraceError::UnknownBuffer { place, buffer });
        };
        if declared.released_at.is_some_and(|at| at <= index as u64) {
            return Err(TraceError::ReleasedBuffer { place, buffer });
        }
        if let Some((_, end)) = arg.view.span()
            && end > declared.bytes
        {
            let bytes = declared.bytes;
            return Err(TraceError::OutsideBuffer { place, buffer, end, bytes });
        }
        if arg.access.writes() && arg.view.is_broadcast() {
            return Err(TraceError::BroadcastWrite { place });
        }
    }
    Ok(())
}
