//! What a caller says about a buffer or a task to have it recorded.

use syncline_tensor::{Arg, TaskId};

use super::BufferKind;

/// A buffer to be added to a graph.
#[derive(Clone, Copy, Debug)]
pub struct BufferSpec<'a> {
    /// What people call it.
    pub name: &'a str,
    /// Its size.
    pub bytes: u64,
    /// The device it lives on; the machine's first where nothing is said.
    pub home: Option<&'a str>,
    /// Who brings its memory.
    pub kind: BufferKind,
}

impl<'a> BufferSpec<'a> {
    /// A buffer that the caller binds to memory at each run.
    pub const fn external(name: &'a str, bytes: u64) -> Self {
        Self { name, bytes, home: None, kind: BufferKind::External }
    }

    /// A buffer that lives inside the plan, in memory that others use before and after it.
    pub const fn temporary(name: &'a str, bytes: u64) -> Self {
        Self { name, bytes, home: None, kind: BufferKind::Temporary }
    }

    /// The same, living on `device`.
    pub const fn on(mut self, device: &'a str) -> Self {
        self.home = Some(device);
        self
    }
}

/// Where a task may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice<'a> {
    /// Wherever it is done first, by the cost model.
    #[default]
    Any,
    /// On this device.
    On(&'a str),
    /// On one of these, whichever is done first.
    OneOf(&'a [&'a str]),
}

/// A task to be recorded.
#[derive(Clone, Copy, Debug)]
pub struct TaskSpec<'a> {
    /// What people call it.
    pub name: &'a str,
    /// What runs: the key by which the executor finds the body. The task's name unless said
    /// otherwise.
    pub kernel: &'a str,
    /// Its tagged arguments.
    pub args: &'a [Arg],
    /// Tasks it waits for besides the ones that its arguments imply.
    pub deps: &'a [TaskId],
    /// Where it may run.
    pub device: DeviceChoice<'a>,
    /// How long it is thought to run, until it has been measured.
    pub cost_ns: u64,
    /// Of several that could start, the one with the highest priority does.
    pub priority: i32,
}

impl<'a> TaskSpec<'a> {
    /// What a task is thought to cost by default.
    pub const COST_NS: u64 = 1_000;

    /// A task and kernel `name` on `args`, with nothing special about it.
    pub const fn new(name: &'a str, args: &'a [Arg]) -> Self {
        Self {
            name,
            kernel: name,
            args,
            deps: &[],
            device: DeviceChoice::Any,
            cost_ns: Self::COST_NS,
            priority: 0,
        }
    }

    /// The same with another kernel.
    pub const fn kernel(mut self, kernel: &'a str) -> Self {
        self.kernel = kernel;
        self
    }

    /// The same, waiting for `deps` too.
    pub const fn deps(mut self, deps: &'a [TaskId]) -> Self {
        self.deps = deps;
        self
    }

    /// The same, running on `device`.
    pub const fn on(mut self, device: &'a str) -> Self {
        self.device = DeviceChoice::On(device);
        self
    }

    /// The same, running on one of `devices`.
    pub const fn on_one_of(mut self, devices: &'a [&'a str]) -> Self {
        self.device = DeviceChoice::OneOf(devices);
        self
    }

    /// The same with another cost.
    pub const fn cost_ns(mut self, ns: u64) -> Self {
        self.cost_ns = ns;
        self
    }

    /// The same with another priority.
    pub const fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }
}
