//! What an op is called where all that travels is a text: in the errors of devices.

use std::sync::Arc;

use syncline_plan::{ExecutionPlan, OpIndex, OpKind, TaskIndex};

/// The name of `op`'s task and its number, by which [`task_of`] finds it again; or which copy it
/// is.
pub fn of(plan: &ExecutionPlan, op: OpIndex) -> Arc<str> {
    match plan.ops()[op.index()].kind {
        OpKind::Task(task) => format!("{} ({task})", plan.task(task).name()).into(),
        OpKind::Copy(copy) => format!("copy {copy}").into(),
    }
}

/// The task that a label was made of, if it is one.
pub fn task_of(plan: &ExecutionPlan, label: &str) -> Option<TaskIndex> {
    let (name, rest) = label.rsplit_once(" (t")?;
    let index: u32 = rest.strip_suffix(')')?.parse().ok()?;
    let known = (index as usize) < plan.tasks().len();
    let task = TaskIndex(index);
    (known && plan.task(task).name() == name).then_some(task)
}
