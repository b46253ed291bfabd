//! The recorded data itself: flat tables that a graph and its plans share.

use std::hash::{Hash, Hasher};
use std::ops::Range;

use syncline_deps::{EdgeFlags, EdgeKinds};
use syncline_tensor::{Access, BufferId, View};

use super::DeviceChoice;
use crate::names::{NameId, Names};
use crate::plan::TaskIndex;
use xxhash_rust::xxh3::Xxh3;

/// Who brings a buffer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BufferKind {
    /// The caller, at each run; its content before and after the run is the caller's.
    External,
    /// The plan; its content before its first write and after its last use is undefined.
    Temporary,
}

/// `pred` must have finished before the task that holds this edge begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GraphEdge {
    /// The task that comes first.
    pub pred: TaskIndex,
    /// What the edge does.
    pub flags: EdgeFlags,
    /// Why it is there.
    pub kinds: EdgeKinds,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BufferRecord {
    pub name: NameId,
    pub bytes: u64,
    pub home: Option<NameId>,
    pub kind: BufferKind,
}

/// Bytes of a buffer that some task uses; each distinct one is kept once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlaceRecord {
    pub buffer: u32,
    pub view: View,
}

impl Hash for PlaceRecord {
    // The derived hash would run over the unused dimensions of the view, too.
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.view.offset() ^ u64::from(self.buffer) << 40);
        for (&size, &stride) in self.view.shape().iter().zip(self.view.strides()) {
            state.write_u64(size ^ (stride as u64) << 32);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ArgRecord {
    pub place: u32,
    pub access: Access,
}

/// A task; its arguments, edges and deps begin where those of the task before end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TaskRecord {
    pub name: NameId,
    pub kernel: NameId,
    pub args_end: u32,
    pub edges_end: u32,
    pub deps_end: u32,
    /// Index of the choices, plus one; zero is any device.
    pub choice: u32,
    pub cost_ns: u64,
    pub priority: i32,
    pub manual: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct GraphData {
    pub names: Names,
    pub buffers: Vec<BufferRecord>,
    pub places: Vec<PlaceRecord>,
    pub tasks: Vec<TaskRecord>,
    pub args: Vec<ArgRecord>,
    pub edges: Vec<GraphEdge>,
    pub deps: Vec<TaskIndex>,
    pub choices: Vec<Vec<NameId>>,
}

impl GraphData {
    pub(crate) fn tasks(&self) -> impl ExactSizeIterator<Item = TaskInfo<'_>> {
        (0..self.tasks.len()).map(|at| self.task(TaskIndex(at as u32)))
    }

    pub(crate) fn buffers(&self) -> impl ExactSizeIterator<Item = BufferInfo<'_>> {
        (0..self.buffers.len()).map(|at| self.buffer(BufferId(at as u64)))
    }

    pub(crate) fn task(&self, index: TaskIndex) -> TaskInfo<'_> {
        TaskInfo { data: self, index }
    }

    pub(crate) fn buffer(&self, id: BufferId) -> BufferInfo<'_> {
        let record = &self.buffers[id.0 as usize];
        BufferInfo {
            id,
            name: self.names.get(record.name),
            bytes: record.bytes,
            home: record.home.map(|home| self.names.get(home)),
            kind: record.kind,
        }
    }

    #[inline]
    pub(crate) fn args_range(&self, task: usize) -> Range<usize> {
        let start = if task == 0 { 0 } else { self.tasks[task - 1].args_end };
        start as usize..self.tasks[task].args_end as usize
    }

    #[inline]
    pub(crate) fn edges_of(&self, task: usize) -> &[GraphEdge] {
        let start = if task == 0 { 0 } else { self.tasks[task - 1].edges_end };
        &self.edges[start as usize..self.tasks[task].edges_end as usize]
    }

    #[inline]
    pub(crate) fn deps_of(&self, task: usize) -> &[TaskIndex] {
        let start = if task == 0 { 0 } else { self.tasks[task - 1].deps_end };
        &self.deps[start as usize..self.tasks[task].deps_end as usize]
    }

    pub(crate) fn intern_choice(&mut self, choice: DeviceChoice<'_>) -> u32 {
        let names: &[&str] = match &choice {
            DeviceChoice::Any => return 0,
            DeviceChoice::On(name) => std::slice::from_ref(name),
            DeviceChoice::OneOf(names) => names,
        };
        let ids: Vec<NameId> = names.iter().map(|name| self.names.intern(name)).collect();
        // Programs have a handful of distinct choices.
        let known = self.choices.iter().position(|choice| *choice == ids);
        let index = known.unwrap_or_else(|| {
            self.choices.push(ids);
            self.choices.len() - 1
        });
        index as u32 + 1
    }

    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hasher = Xxh3::new();
        for name in self.names.iter() {
            name.hash(&mut hasher);
        }
        self.buffers.hash(&mut hasher);
        for place in &self.places {
            place.hash(&mut hasher);
            place.view.dtype().hash(&mut hasher);
            place.view.rank().hash(&mut hasher);
        }
        self.tasks.hash(&mut hasher);
        self.args.hash(&mut hasher);
        self.edges.hash(&mut hasher);
        self.deps.hash(&mut hasher);
        self.choices.hash(&mut hasher);
        hasher.finish()
    }
}

/// A buffer of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferInfo<'a> {
    /// Its identity in the graph; ids count from zero.
    pub id: BufferId,
    /// What people call it.
    pub name: &'a str,
    /// Its size.
    pub bytes: u64,
    /// The device it was said to live on.
    pub home: Option<&'a str>,
    /// Who brings its memory.
    pub kind: BufferKind,
}

/// An argument of a recorded task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskArg<'a> {
    /// What the task does with the bytes.
    pub access: Access,
    /// The buffer that they are in.
    pub buffer: BufferId,
    /// Which bytes of it.
    pub view: &'a View,
}

/// A task of a graph.
#[derive(Clone, Copy, Debug)]
pub struct TaskInfo<'a> {
    data: &'a GraphData,
    index: TaskIndex,
}

impl<'a> TaskInfo<'a> {
    fn record(&self) -> &'a TaskRecord {
        &self.data.tasks[self.index.index()]
    }

    /// Its place in submission order.
    pub fn index(&self) -> TaskIndex {
        self.index
    }

    /// What people call it.
    pub fn name(&self) -> &'a str {
        self.data.names.get(self.record().name)
    }

    /// The key of its kernel.
    pub fn kernel(&self) -> &'a str {
        self.data.names.get(self.record().kernel)
    }

    /// Its arguments.
    pub fn args(&self) -> impl ExactSizeIterator<Item = TaskArg<'a>> + use<'a> {
        let data = self.data;
        data.args[data.args_range(self.index.index())].iter().map(|arg| {
            let place = &data.places[arg.place as usize];
            TaskArg { access: arg.access, buffer: BufferId(place.buffer.into()), view: &place.view }
        })
    }

    /// What it waits for.
    pub fn edges(&self) -> &'a [GraphEdge] {
        self.data.edges_of(self.index.index())
    }

    /// The explicit deps it was submitted with.
    pub fn deps(&self) -> &'a [TaskIndex] {
        self.data.deps_of(self.index.index())
    }

    /// The devices it may run on; empty for any.
    pub fn devices(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let data = self.data;
        let choice = match self.record().choice {
            0 => &[][..],
            index => &data.choices[index as usize - 1][..],
        };
        choice.iter().map(|&name| data.names.get(name))
    }

    /// The cost it was submitted with.
    pub fn cost_ns(&self) -> u64 {
        self.record().cost_ns
    }

    /// Its priority.
    pub fn priority(&self) -> i32 {
        self.record().priority
    }

    /// Whether it was submitted inside a manual scope.
    pub fn is_manual(&self) -> bool {
        self.record().manual
    }
}
