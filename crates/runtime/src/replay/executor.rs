//! Plans on a [`UnifiedExecutor`]'s devices.

use std::sync::Arc;

use syncline_device::{Device, DeviceSpec};
use syncline_plan::{ExecutionPlan, TaskInfo};

use super::bind::Bindings;
use super::body::TaskBody;
use super::error::{LoadError, RunError};
use super::load::LoadedPlan;
use crate::UnifiedExecutor;

impl UnifiedExecutor {
    /// Loads `plan` on this executor's devices; see [`LoadedPlan::load`].
    pub fn load_plan(
        &self,
        plan: Arc<ExecutionPlan>,
        bodies: impl FnMut(TaskInfo<'_>, DeviceSpec) -> Option<TaskBody>,
    ) -> Result<LoadedPlan, LoadError> {
        let devices: Vec<Arc<dyn Device>> =
            self.contexts().iter().map(|context| Arc::clone(context.device())).collect();
        LoadedPlan::load(plan, &devices, bodies)
    }

    /// Runs a loaded plan once on the buffers bound.
    ///
    /// Work submitted before on these buffers is waited for; work submitted afterwards finds the
    /// plan done.
    pub fn run(&self, plan: &mut LoadedPlan, bindings: &Bindings) -> Result<(), RunError> {
        plan.run(bindings)
    }
}
