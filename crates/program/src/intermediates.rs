//! Intermediates: buffers that live inside a run only.
//!
//! A plan may keep such a buffer in an arena, in bytes that others use before and after it. That is
//! allowed where it has no effect: nothing is read of it that the program did not write before, and
//! what it holds in the end has been read.

use std::collections::{BTreeMap, HashSet};

use syncline_plan::byte_runs;
use syncline_tensor::{Access, View};

use crate::program::Program;

/// What a run leaves behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// Every buffer.
    #[default]
    All,
    /// Initialised buffers, buffers that were not read after their last write, and these, by
    /// position in the trace. The others are intermediates.
    Results(Vec<usize>),
}

/// The most pieces of one view that are tracked; a buffer with views in more pieces is kept.
const PIECES_MAX: u64 = 1 << 16;

impl Program {
    /// For each buffer of the trace whether a run that keeps `keep` has it to itself.
    pub fn intermediates(&self, keep: &Keep) -> Vec<bool> {
        let Keep::Results(asked) = keep else { return vec![false; self.trace().buffers.len()] };
        let mut uses: Vec<Use> = (self.trace().buffers.iter().enumerate())
            .map(|(at, buffer)| {
                let is_free = !buffer.extra.contains_key("init") && !asked.contains(&at);
                Use { is_free, ..Use::default() }
            })
            .collect();
        for task in &self.trace().tasks {
            let args = || task.args.iter().map(|arg| &arg.arg);
            // All reads before any write: a task may do both through two arguments.
            for arg in args().filter(|arg| arg.access.reads() || arg.access == Access::NoDep) {
                let of = &mut uses[self.buffer_index(arg.buffer)];
                of.is_free = of.is_free && arg.access != Access::NoDep && of.has(&arg.view);
                of.is_read_last = true;
            }
            for arg in args().filter(|arg| arg.access.writes()) {
                let of = &mut uses[self.buffer_index(arg.buffer)];
                of.is_free = of.is_free && of.write(arg.view);
                of.is_read_last = false;
            }
        }
        uses.iter().map(|of| of.is_free && of.is_read_last).collect()
    }
}

/// The state of one buffer, up to a task.
#[derive(Default)]
struct Use {
    /// Whether its initial contents have not mattered so far.
    is_free: bool,
    /// Whether the last task that used it only read it.
    is_read_last: bool,
    views: HashSet<View>,
    /// The bytes written: start and end of pieces that do not touch.
    written: BTreeMap<u64, u64>,
}

impl Use {
    fn has(&self, view: &View) -> bool {
        if view.is_empty() || self.views.contains(view) {
            return true;
        }
        is_coarse(view)
            && byte_runs(view).iter().all(|run| {
                let before = self.written.range(..=run.start).next_back();
                before.is_some_and(|(_, &end)| end >= run.end)
            })
    }

    /// Records a write; `false` if that takes too much.
    fn write(&mut self, view: View) -> bool {
        if view.is_empty() || !self.views.insert(view) {
            return true;
        }
        if !is_coarse(&view) {
            return false;
        }
        byte_runs(&view).iter().for_each(|run| self.add(run.start, run.end));
        true
    }

    fn add(&mut self, mut start: u64, mut end: u64) {
        while let Some((&from, &to)) = self.written.range(..=end).next_back()
            && to >= start
        {
            self.written.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.written.insert(start, end);
    }
}

/// Whether the view is in few pieces: as many as it has elements, but for elements that lie side by
/// side.
fn is_coarse(view: &View) -> bool {
    let bytes = view.dtype().bytes() as i64;
    let dims = view.shape().iter().zip(view.strides());
    let row = dims.filter(|(_, stride)| stride.abs() == bytes).map(|(&size, _)| size).max();
    view.is_contiguous() || view.elements() / row.unwrap_or(1).max(1) <= PIECES_MAX
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::ProgramOptions;

    /// A program over one buffer of eight floats: `write`s and `read`s of elements `start..end`.
    fn found(init: Option<Value>, uses: &[(&str, u64, u64)], keep: &Keep) -> bool {
        let arg = |access: &str, buffer: u64, start: u64, end: u64| {
            json!({"access": access, "buffer": buffer, "offset": 4 * start, "dtype": "f32",
                "shape": [end - start], "strides": [4]})
        };
        let task = |(id, &(what, start, end)): (usize, &(&str, u64, u64))| match what {
            "read" => json!({"id": id, "kernel": "scale", "args": [
                arg("input", 0, start, end), arg("output_existing", 1, start, end)]}),
            access => {
                json!({"id": id, "kernel": "fill", "args": [arg(access, 0, start, end)]})
            }
        };
        let tasks: Vec<Value> = uses.iter().enumerate().map(task).collect();
        let mut buffer = json!({"id": 0, "bytes": 32});
        if let Some(init) = init {
            buffer["init"] = init;
        }
        let trace = json!({"format": "syncline-trace", "version": 1,
            "buffers": [buffer, {"id": 1, "bytes": 32}], "tasks": tasks});
        let program =
            Program::from_bytes(trace.to_string().as_bytes(), &ProgramOptions::default()).unwrap();
        let found = program.intermediates(keep);
        assert!(!found[1], "what was written last is a result");
        found[0]
    }

    #[test]
    fn what_is_written_first_and_read_last_is_an_intermediate() {
        let results = Keep::Results(Vec::new());
        let halves = [("output", 0, 4), ("output_existing", 4, 8), ("read", 2, 7)];
        assert!(found(None, &halves, &results));
        assert!(found(None, &[("output", 0, 8), ("read", 0, 8)], &results));
        // Asked for, or everything is.
        assert!(!found(None, &halves, &Keep::Results(vec![0])));
        assert!(!found(None, &halves, &Keep::All));
    }

    #[test]
    fn what_somebody_else_might_see_is_kept() {
        let results = Keep::Results(Vec::new());
        let cases: [&[(&str, u64, u64)]; 4] = [
            &[("read", 0, 8)],
            &[("output", 0, 4), ("read", 0, 5)],
            &[("output", 0, 8), ("read", 0, 8), ("output_existing", 0, 8)],
            &[],
        ];
        for uses in cases {
            assert!(!found(None, uses, &results), "{uses:?}");
        }
        let init = json!({"fill": 1, "dtype": "f32"});
        assert!(!found(Some(init), &[("output", 0, 8), ("read", 0, 8)], &results));
    }
}
