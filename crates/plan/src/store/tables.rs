//! The tables of a plan, one after the other; writing and reading in the same order.

use std::sync::Arc;

use syncline_deps::{EdgeFlags, EdgeKinds};
use syncline_tensor::{Access, BufferId, Dtype, View};

use super::StoreError;
use super::codec::{Reader, Writer};
use crate::graph::{
    ArgRecord, BufferKind, BufferRecord, GraphData, GraphEdge, PlaceRecord, TaskRecord,
};
use crate::machine::{DeviceIndex, DeviceModel, Link, Machine, Route};
use crate::names::{NameId, Names};
use crate::plan::{
    Copy, CopyIndex, ExecutionPlan, LaneIndex, LaneKind, Memory, MemoryIndex, MemoryPlace, Op,
    OpIndex, OpKind, PlanLane, TaskIndex, Wait,
};

pub(crate) fn write(plan: &ExecutionPlan, w: &mut Writer) {
    write_machine(&plan.machine, w);
    write_graph(&plan.graph, w);
    w.number(plan.graph_fingerprint);
    w.list(&plan.task_devices, |w, device| w.number(device.0));
    w.list(&plan.arg_memories, |w, memory| w.number(memory.0));
    w.list(&plan.lanes, |w, lane| {
        w.number(lane.device.0);
        w.number(u8::from(lane.kind == LaneKind::Copy));
        w.number(lane.count);
    });
    w.list(&plan.ops, |w, op| {
        match op.kind {
            OpKind::Task(task) => w.number(u64::from(task.0) << 1),
            OpKind::Copy(copy) => w.number(u64::from(copy.0) << 1 | 1),
        }
        w.number(op.waits_end - op.waits_start);
        w.number(u8::from(op.is_awaited));
        w.number(op.start_ns);
        w.number(op.end_ns);
    });
    w.list(&plan.waits, |w, wait| {
        w.number(wait.lane.0);
        w.number(wait.count);
    });
    w.list(&plan.copies, |w, copy| {
        w.number(copy.source.0);
        w.number(copy.target.0);
        w.list(&copy.views, |w, view| write_view(view, w));
    });
    w.list(&plan.memories, |w, memory| {
        w.number(memory.buffer.0);
        w.number(memory.device.0);
        w.number(memory.bytes);
        match memory.place {
            MemoryPlace::Bound => w.number(0u8),
            MemoryPlace::Arena { offset } => w.number(offset + 1),
        }
    });
    w.list(&plan.arena_bytes, |w, &bytes| w.number(bytes));
}

pub(crate) fn read(r: &mut Reader<'_>) -> Result<ExecutionPlan, StoreError> {
    let machine = read_machine(r)?;
    let graph = Arc::new(read_graph(r)?);
    let graph_fingerprint = r.number("fingerprint")?;
    let task_devices = r.list("task's device", |r| Ok(DeviceIndex(r.narrow("device")?)))?;
    let arg_memories = r.list("argument's memory", |r| Ok(MemoryIndex(r.narrow("memory")?)))?;
    let mut first = 0u32;
    let lanes = r.list("lane", |r| {
        let device = DeviceIndex(r.narrow("lane's device")?);
        let kind = if r.flag("lane's kind")? { LaneKind::Copy } else { LaneKind::Compute };
        let lane =
            PlanLane { device, kind, first: OpIndex(first), count: r.narrow("lane's count")? };
        first = first.checked_add(lane.count).ok_or_else(|| r.invalid("lane's count"))?;
        Ok(lane)
    })?;
    let mut task_ops = vec![OpIndex(u32::MAX); graph.tasks.len()];
    let (mut waits_start, mut index) = (0u32, 0u32);
    let ops = r.list("op", |r| {
        let kind = r.number("op's kind")?;
        let number = u32::try_from(kind >> 1).map_err(|_| r.invalid("op's kind"))?;
        let kind = match kind & 1 {
            0 => OpKind::Task(TaskIndex(number)),
            _ => OpKind::Copy(CopyIndex(number)),
        };
        if let OpKind::Task(task) = kind
            && let Some(entry) = task_ops.get_mut(task.index())
        {
            *entry = OpIndex(index);
        }
        index += 1;
        let waits: u32 = r.narrow("op's waits")?;
        let waits_end = waits_start.checked_add(waits).ok_or_else(|| r.invalid("op's waits"))?;
        let op = Op {
            kind,
            waits_start,
            waits_end,
            is_awaited: r.flag("op's flag")?,
            start_ns: r.number("op's start")?,
            end_ns: r.number("op's end")?,
        };
        waits_start = waits_end;
        Ok(op)
    })?;
    let waits = r.list("wait", |r| {
        Ok(Wait { lane: LaneIndex(r.narrow("wait's lane")?), count: r.narrow("wait's count")? })
    })?;
    let copies = r.list("copy", |r| {
        Ok(Copy {
            source: MemoryIndex(r.narrow("copy's source")?),
            target: MemoryIndex(r.narrow("copy's target")?),
            views: r.list("copy's view", read_view)?.into(),
        })
    })?;
    let memories = r.list("memory", |r| {
        Ok(Memory {
            buffer: BufferId(r.number("memory's buffer")?),
            device: DeviceIndex(r.narrow("memory's device")?),
            bytes: r.number("memory's size")?,
            place: match r.number("memory's place")? {
                0 => MemoryPlace::Bound,
                place => MemoryPlace::Arena { offset: place - 1 },
            },
        })
    })?;
    let arena_bytes = r.list("arena", |r| r.number("arena's size"))?;
    Ok(ExecutionPlan {
        graph,
        machine,
        graph_fingerprint,
        task_devices,
        task_ops,
        arg_memories,
        lanes,
        ops,
        waits,
        copies,
        memories,
        arena_bytes,
        is_proven: false,
    })
}

fn write_machine(machine: &Machine, w: &mut Writer) {
    w.list(machine.devices(), |w, device| {
        w.string(&device.name);
        w.number(device.compute_lanes);
        w.number(u8::from(device.copy_lane));
        w.number(device.memory_bytes);
        w.number(device.cost_permille);
        w.number(u8::from(device.runs_tasks));
    });
    w.list(machine.links(), |w, link| {
        w.number(link.source.0);
        w.number(link.target.0);
        w.number(link.bytes_per_us);
        w.number(link.latency_ns);
    });
    w.list(machine.routes(), |w, &(source, target, route)| {
        w.number(source.0);
        w.number(target.0);
        match route {
            Route::Pull => w.number(0u8),
            Route::Push => w.number(1u8),
            Route::Through(device) => w.number(u64::from(device.0) + 2),
        }
    });
    w.number(machine.piece_bytes());
    w.number(machine.sync_ns());
}

fn read_machine(r: &mut Reader<'_>) -> Result<Machine, StoreError> {
    let devices = r.list("device", |r| {
        Ok(DeviceModel {
            name: r.string("device's name")?.to_owned(),
            compute_lanes: r.narrow("device's lanes")?,
            copy_lane: r.flag("device's copy lane")?,
            memory_bytes: r.number("device's memory")?,
            cost_permille: r.narrow("device's speed")?,
            runs_tasks: r.flag("device's tasks")?,
        })
    })?;
    let links = r.list("link", |r| {
        Ok(Link {
            source: DeviceIndex(r.narrow("link's source")?),
            target: DeviceIndex(r.narrow("link's target")?),
            bytes_per_us: r.number("link's bandwidth")?,
            latency_ns: r.number("link's latency")?,
        })
    })?;
    let routes = r.list("route", |r| {
        let source = DeviceIndex(r.narrow("route's source")?);
        let target = DeviceIndex(r.narrow("route's target")?);
        let route = match r.number("route")? {
            0 => Route::Pull,
            1 => Route::Push,
            through => match u16::try_from(through - 2) {
                Ok(device) => Route::Through(DeviceIndex(device)),
                Err(_) => return Err(r.invalid("route")),
            },
        };
        Ok((source, target, route))
    })?;
    let piece_bytes = r.number("size of pieces")?;
    let machine = Machine::new(devices)?
        .with_piece_bytes(piece_bytes)?
        .with_sync_ns(r.number("cost of a wait")?);
    Ok(machine.with_described(links, routes)?)
}

fn write_graph(graph: &GraphData, w: &mut Writer) {
    w.number(graph.names.len() as u64);
    graph.names.iter().for_each(|name| w.string(name));
    w.list(&graph.buffers, |w, buffer| {
        w.number(buffer.name.0);
        w.number(buffer.bytes);
        w.number(buffer.home.map_or(0, |home| u64::from(home.0) + 1));
        w.number(u8::from(buffer.kind == BufferKind::Temporary));
    });
    w.list(&graph.places, |w, place| {
        w.number(place.buffer);
        write_view(&place.view, w);
    });
    w.list(&graph.args, |w, arg| {
        w.number(arg.place);
        let access = Access::ALL.iter().position(|&known| known == arg.access);
        w.number(access.expect("one of all") as u64);
    });
    w.list(&graph.edges, |w, edge| {
        w.number(edge.pred.0);
        w.number(edge.flags.bits());
        w.number(edge.kinds.bits());
    });
    w.list(&graph.deps, |w, dep| w.number(dep.0));
    w.list(&graph.choices, |w, choice| w.list(choice, |w, name| w.number(name.0)));
    w.list(&graph.tasks, |w, task| {
        w.number(task.name.0);
        w.number(task.kernel.0);
        w.number(task.args_end);
        w.number(task.edges_end);
        w.number(task.deps_end);
        w.number(task.choice);
        w.number(task.cost_ns);
        w.signed(task.priority.into());
        w.number(u8::from(task.manual));
    });
}

fn read_graph(r: &mut Reader<'_>) -> Result<GraphData, StoreError> {
    let names = r.list("name", |r| Ok(r.string("name")?.into()))?;
    let names = Names::of_file(names).ok_or_else(|| r.invalid("name"))?;
    let buffers = r.list("buffer", |r| {
        Ok(BufferRecord {
            name: NameId(r.narrow("buffer's name")?),
            bytes: r.number("buffer's size")?,
            home: match r.narrow::<u32>("buffer's home")? {
                0 => None,
                home => Some(NameId(home - 1)),
            },
            kind: match r.flag("buffer's kind")? {
                true => BufferKind::Temporary,
                false => BufferKind::External,
            },
        })
    })?;
    let places = r.list("place", |r| {
        Ok(PlaceRecord { buffer: r.narrow("place's buffer")?, view: read_view(r)? })
    })?;
    let args = r.list("argument", |r| {
        let place = r.narrow("argument's place")?;
        let access: usize = r.narrow("access")?;
        let access = *Access::ALL.get(access).ok_or_else(|| r.invalid("access"))?;
        Ok(ArgRecord { place, access })
    })?;
    let edges = r.list("edge", |r| {
        let pred = TaskIndex(r.narrow("edge's predecessor")?);
        let (flags, kinds) = (r.narrow::<u8>("edge's flags")?, r.narrow::<u8>("edge's kinds")?);
        Ok(GraphEdge { pred, flags: edge_flags(flags), kinds: edge_kinds(kinds) })
    })?;
    let deps = r.list("dep", |r| Ok(TaskIndex(r.narrow("dep")?)))?;
    let choices =
        r.list("choice", |r| r.list("choice's device", |r| Ok(NameId(r.narrow("name")?))))?;
    let tasks = r.list("task", |r| {
        Ok(TaskRecord {
            name: NameId(r.narrow("task's name")?),
            kernel: NameId(r.narrow("task's kernel")?),
            args_end: r.narrow("task's arguments")?,
            edges_end: r.narrow("task's edges")?,
            deps_end: r.narrow("task's deps")?,
            choice: r.narrow("task's device choice")?,
            cost_ns: r.number("task's cost")?,
            priority: i32::try_from(r.signed("task's priority")?)
                .map_err(|_| r.invalid("task's priority"))?,
            manual: r.flag("task's scope")?,
        })
    })?;
    Ok(GraphData { names, buffers, places, tasks, args, edges, deps, choices })
}

fn write_view(view: &View, w: &mut Writer) {
    let dtype = Dtype::ALL.iter().position(|&known| known == view.dtype());
    w.number(dtype.expect("one of all") as u64);
    w.number(view.offset());
    w.list(view.shape(), |w, &size| w.number(size));
    view.strides().iter().for_each(|&stride| w.signed(stride));
}

fn read_view(r: &mut Reader<'_>) -> Result<View, StoreError> {
    let dtype: usize = r.narrow("dtype")?;
    let dtype = *Dtype::ALL.get(dtype).ok_or_else(|| r.invalid("dtype"))?;
    let offset = r.number("view's offset")?;
    let shape = r.list("view's shape", |r| r.number("size"))?;
    let strides =
        shape.iter().map(|_| r.signed("stride")).collect::<Result<Vec<i64>, StoreError>>()?;
    View::strided(dtype, offset, &shape, &strides).map_err(|_| r.invalid("view"))
}

fn edge_flags(bits: u8) -> EdgeFlags {
    [EdgeFlags::WAIT, EdgeFlags::RETAIN]
        .into_iter()
        .filter(|flag| bits & flag.bits() != 0)
        .fold(EdgeFlags::EMPTY, |set, flag| set | flag)
}

fn edge_kinds(bits: u8) -> EdgeKinds {
    [
        EdgeKinds::CREATOR,
        EdgeKinds::RAW,
        EdgeKinds::WAR,
        EdgeKinds::WAW,
        EdgeKinds::COMMUTATIVE,
        EdgeKinds::EXPLICIT,
        EdgeKinds::BARRIER,
    ]
    .into_iter()
    .filter(|kind| bits & kind.bits() != 0)
    .fold(EdgeKinds::EMPTY, |set, kind| set | kind)
}
