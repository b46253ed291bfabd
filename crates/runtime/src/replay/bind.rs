//! Bindings: which buffers a plan works on.

use std::time::{Duration, Instant};

use syncline_device::{Buffer, Claim, Deadline, DeviceSpec};
use syncline_plan::{ExecutionPlan, Memory, MemoryIndex};
use syncline_tensor::BufferId;

use super::error::BindError;

/// Buffers for the external buffers of a plan.
///
/// ```
/// use syncline_device::cpu::CpuDevice;
/// use syncline_runtime::replay::Bindings;
///
/// let device = CpuDevice::open_default()?;
/// let (weights, out) = (device.buffer(4096), device.buffer(64));
/// let bindings = Bindings::new().bind("weights", &weights).bind("out", &out);
/// # drop(bindings);
/// # Ok::<(), syncline_device::DeviceError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Bindings {
    by_name: Vec<(String, Buffer)>,
    by_id: Vec<(BufferId, Buffer)>,
}

impl Bindings {
    /// Nothing bound yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, with `buffer` for the plan's buffer called `name`; the last binding of a name
    /// counts.
    #[must_use]
    pub fn bind(mut self, name: &str, buffer: &Buffer) -> Self {
        self.by_name.push((name.to_owned(), buffer.clone()));
        self
    }

    /// The same, with `buffer` for the plan's buffer number `id`; goes before a binding by name.
    #[must_use]
    pub fn bind_id(mut self, id: BufferId, buffer: &Buffer) -> Self {
        self.by_id.push((id, buffer.clone()));
        self
    }

    /// Everything that was bound.
    pub(super) fn buffers(&self) -> impl Iterator<Item = &Buffer> {
        self.by_name
            .iter()
            .map(|(_, buffer)| buffer)
            .chain(self.by_id.iter().map(|(_, buffer)| buffer))
    }

    fn get(&self, plan: &ExecutionPlan, id: BufferId) -> Option<&Buffer> {
        let by_id = self.by_id.iter().rev().find(|(known, _)| *known == id);
        let name = buffer_name(plan, id);
        let by_name = || self.by_name.iter().rev().find(|(known, _)| known == name);
        by_id.map(|(_, buffer)| buffer).or_else(|| by_name().map(|(_, buffer)| buffer))
    }

    /// Every name and id that was bound is one of the plan's.
    fn check_known(&self, plan: &ExecutionPlan) -> Result<(), BindError> {
        let known = |id: BufferId| plan.bound_memories().any(|(_, memory)| memory.buffer == id);
        for (name, _) in &self.by_name {
            let named = plan.buffers().any(|buffer| buffer.name == name && known(buffer.id));
            if !named {
                return Err(BindError::NoSuchBuffer { buffer: name.clone() });
            }
        }
        match self.by_id.iter().find(|(id, _)| !known(*id)) {
            Some((id, _)) => Err(BindError::NoSuchBuffer { buffer: id.to_string() }),
            None => Ok(()),
        }
    }
}

fn buffer_name(plan: &ExecutionPlan, id: BufferId) -> &str {
    plan.buffers().nth(id.0 as usize).map_or("", |buffer| buffer.name)
}

/// Buffers of one run or several, kept from the host and from other work.
#[derive(Debug, Default)]
pub struct Claims<'a>(Vec<Claim<'a>>);

impl<'a> Claims<'a> {
    /// Work under way on a buffer is waited for so long; a map that its holder forgot would
    /// otherwise hang the bind.
    const PATIENCE: Duration = Duration::from_secs(30);

    /// Checks the bindings of `plan`, claims the buffers until `deadline` at the latest, and calls
    /// `each` with what is bound to every memory.
    pub fn new(
        plan: &ExecutionPlan,
        devices: &[DeviceSpec],
        written: &[bool],
        bindings: &'a Bindings,
        deadline: Deadline,
        mut each: impl FnMut(MemoryIndex, &Claim<'a>),
    ) -> Result<Self, BindError> {
        bindings.check_known(plan)?;
        let mut wanted: Vec<Wanted<'a>> = Vec::new();
        for (index, memory) in plan.bound_memories() {
            let spec = devices[memory.device.index()];
            let writes = written[memory.buffer.0 as usize];
            wanted.push(Wanted { index, buffer: checked(plan, memory, spec, bindings)?, writes });
        }
        // In one order everywhere: two threads that bind the same buffers do not wait for each
        // other crosswise.
        wanted.sort_by_key(|one| one.buffer.id());
        check_aliases(plan, &wanted)?;
        let patience = Instant::now() + Self::PATIENCE;
        let deadline = Deadline::at(deadline.instant().map_or(patience, |at| at.min(patience)));
        let mut claims = Self::default();
        for Wanted { index, buffer, writes } in wanted {
            let refused = |source| BindError::Device {
                buffer: buffer_name(plan, plan.memories()[index.index()].buffer).to_owned(),
                source,
            };
            let claim = buffer.claim(writes, deadline).map_err(refused)?;
            each(index, &claim);
            claims.0.push(claim);
        }
        Ok(claims)
    }
}

struct Wanted<'a> {
    index: MemoryIndex,
    buffer: &'a Buffer,
    writes: bool,
}

/// What is bound to `memory`, of the right size and on the right device.
fn checked<'a>(
    plan: &ExecutionPlan,
    memory: &Memory,
    needed: DeviceSpec,
    bindings: &'a Bindings,
) -> Result<&'a Buffer, BindError> {
    let name = || buffer_name(plan, memory.buffer).to_owned();
    let buffer =
        bindings.get(plan, memory.buffer).ok_or_else(|| BindError::Unbound { buffer: name() })?;
    if buffer.bytes() < memory.bytes {
        let (needed, given) = (memory.bytes, buffer.bytes());
        return Err(BindError::WrongSize { buffer: name(), needed, given });
    }
    if buffer.device() != needed {
        let given = buffer.device();
        return Err(BindError::WrongDevice { buffer: name(), needed, given });
    }
    Ok(buffer)
}

/// One buffer for two of the plan's is harmless only if neither is written. `wanted` is sorted by
/// buffer.
fn check_aliases(plan: &ExecutionPlan, wanted: &[Wanted<'_>]) -> Result<(), BindError> {
    for same in wanted.chunk_by(|a, b| a.buffer.id() == b.buffer.id()) {
        if same.len() > 1 && same.iter().any(|one| one.writes) {
            let name = |one: &Wanted<'_>| {
                buffer_name(plan, plan.memories()[one.index.index()].buffer).to_owned()
            };
            return Err(BindError::Aliased { buffer: name(&same[0]), other: name(&same[1]) });
        }
    }
    Ok(())
}
