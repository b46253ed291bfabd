//! Placement: a device for every task and a home for every buffer.

use crate::cost::{CostModel, size_class};
use crate::graph::{BufferKind, GraphData};
use crate::machine::{DeviceIndex, Machine};
use crate::names::NameId;
use rustc_hash::FxHashMap;

use super::error::CompileError;

/// What was decided.
#[derive(Debug)]
pub(crate) struct Placement {
    pub task_devices: Vec<DeviceIndex>,
    pub task_costs_ns: Vec<u64>,
    pub buffer_homes: Vec<DeviceIndex>,
}

/// Chooses a device for every task: the one given, or the one on which it would be done first.
pub(crate) fn place(
    graph: &GraphData,
    machine: &Machine,
    costs: Option<&CostModel>,
) -> Result<Placement, CompileError> {
    let buffer_homes = homes(graph, machine)?;
    let candidates = Candidates::new(graph, machine)?;
    let mut costs = Costs { graph, machine, model: costs, known: FxHashMap::default() };
    let mut load = Load::new(graph, machine, &buffer_homes);
    let mut placement =
        Placement { task_devices: Vec::new(), task_costs_ns: Vec::new(), buffer_homes };
    placement.task_devices.reserve_exact(graph.tasks.len());
    placement.task_costs_ns.reserve_exact(graph.tasks.len());
    for task in 0..graph.tasks.len() {
        let (device, cost) = match candidates.of(task) {
            [] => return Err(candidates.none(task)),
            &[only] => (only, costs.of(task, only)),
            several => load.first_done(task, several, &mut costs),
        };
        // With one device there is nothing to choose, hence nothing to keep account of.
        if machine.devices().len() > 1 {
            load.put(task, device, cost);
        }
        placement.task_devices.push(device);
        placement.task_costs_ns.push(cost);
    }
    Ok(placement)
}

fn homes(graph: &GraphData, machine: &Machine) -> Result<Vec<DeviceIndex>, CompileError> {
    (graph.buffers())
        .map(|buffer| match buffer.home {
            None => Ok(DeviceIndex(0)),
            Some(device) => machine.find(device).ok_or_else(|| CompileError::NoHome {
                buffer: buffer.name.to_owned(),
                device: device.to_owned(),
                devices: device_names(machine),
            }),
        })
        .collect()
}

fn device_names(machine: &Machine) -> String {
    let names: Vec<&str> = machine.devices().iter().map(|device| &*device.name).collect();
    names.join(", ")
}

/// The devices that each choice of the graph comes to on this machine.
struct Candidates<'a> {
    graph: &'a GraphData,
    machine: &'a Machine,
    any: Vec<DeviceIndex>,
    choices: Vec<Vec<DeviceIndex>>,
}

impl<'a> Candidates<'a> {
    fn new(graph: &'a GraphData, machine: &'a Machine) -> Result<Self, CompileError> {
        let runs_tasks = |device: &DeviceIndex| machine.devices()[device.index()].runs_tasks;
        let all = (0..machine.devices().len()).map(|at| DeviceIndex(at as u16));
        let any = all.filter(runs_tasks).collect();
        let choices = (graph.choices.iter())
            .map(|choice| {
                let known = choice.iter().filter_map(|&name| machine.find(graph.names.get(name)));
                known.filter(runs_tasks).collect()
            })
            .collect();
        Ok(Self { graph, machine, any, choices })
    }

    fn of(&self, task: usize) -> &[DeviceIndex] {
        match self.graph.tasks[task].choice {
            0 => &self.any,
            choice => &self.choices[choice as usize - 1],
        }
    }

    fn none(&self, task: usize) -> CompileError {
        let info = self.graph.task(crate::plan::TaskIndex(task as u32));
        CompileError::NoDevice {
            task: info.name().to_owned(),
            index: task as u32,
            wanted: match info.devices().collect::<Vec<_>>()[..] {
                [] => "any that runs tasks".to_owned(),
                ref names => names.join(" or "),
            },
            devices: device_names(self.machine),
        }
    }
}

/// What tasks cost, looked up once a kernel, device and size class.
struct Costs<'a> {
    graph: &'a GraphData,
    machine: &'a Machine,
    model: Option<&'a CostModel>,
    known: FxHashMap<(NameId, u16, u8), Option<u64>>,
}

impl Costs<'_> {
    fn of(&mut self, task: usize, device: DeviceIndex) -> u64 {
        let record = &self.graph.tasks[task];
        let model = &self.machine.devices()[device.index()];
        let measured = self.model.filter(|costs| !costs.is_empty()).and_then(|costs| {
            let bytes = self.graph.args[self.graph.args_range(task)]
                .iter()
                .map(|arg| self.graph.places[arg.place as usize].view.bytes())
                .fold(0, u64::saturating_add);
            let kernel = record.kernel;
            *self
                .known
                .entry((kernel, device.0, size_class(bytes)))
                .or_insert_with(|| costs.estimate(self.graph.names.get(kernel), &model.name, bytes))
        });
        measured
            .unwrap_or_else(|| record.cost_ns.saturating_mul(model.cost_permille.into()) / 1000)
            .max(1)
    }
}

/// An estimate of when devices and tasks are done, and where bytes were last written.
struct Load<'a> {
    graph: &'a GraphData,
    machine: &'a Machine,
    busy_ns: Vec<u64>,
    done_ns: Vec<u64>,
    devices: Vec<DeviceIndex>,
    written_on: Vec<DeviceIndex>,
}

impl<'a> Load<'a> {
    fn new(graph: &'a GraphData, machine: &'a Machine, homes: &[DeviceIndex]) -> Self {
        Self {
            graph,
            machine,
            busy_ns: vec![0; machine.devices().len()],
            done_ns: Vec::new(),
            devices: Vec::new(),
            written_on: graph.places.iter().map(|place| homes[place.buffer as usize]).collect(),
        }
    }

    /// The candidate on which `task` would be done first, and what it costs there.
    fn first_done(
        &self,
        task: usize,
        candidates: &[DeviceIndex],
        costs: &mut Costs<'_>,
    ) -> (DeviceIndex, u64) {
        (candidates.iter())
            .map(|&device| (device, costs.of(task, device)))
            .min_by_key(|&(device, cost)| self.start_ns(task, device).saturating_add(cost))
            .expect("there are several")
    }

    fn start_ns(&self, task: usize, device: DeviceIndex) -> u64 {
        let ready = (self.graph.edges_of(task).iter())
            .map(|edge| {
                let pred = edge.pred.index();
                let apart = self.devices[pred] != device;
                self.done_ns[pred] + if apart { self.machine.sync_ns() } else { 0 }
            })
            .max()
            .unwrap_or(0);
        let moved = (self.graph.args[self.graph.args_range(task)].iter())
            .filter(|arg| arg.access.reads())
            .map(|arg| {
                let place = &self.graph.places[arg.place as usize];
                let from = self.written_on[arg.place as usize];
                let elsewhere = from != device
                    && (self.graph.buffers[place.buffer as usize].kind == BufferKind::External
                        || !place.view.is_empty());
                if elsewhere { self.machine.copy_ns(from, device, place.view.bytes()) } else { 0 }
            })
            .fold(0, u64::saturating_add);
        ready.saturating_add(moved).max(self.busy_ns[device.index()])
    }

    fn put(&mut self, task: usize, device: DeviceIndex, cost: u64) {
        let done = self.start_ns(task, device).saturating_add(cost);
        let lanes = u64::from(self.machine.devices()[device.index()].compute_lanes);
        let busy = &mut self.busy_ns[device.index()];
        *busy = busy.saturating_add(cost / lanes);
        self.done_ns.push(done);
        self.devices.push(device);
        for arg in &self.graph.args[self.graph.args_range(task)] {
            if arg.access.writes() {
                self.written_on[arg.place as usize] = device;
            }
        }
    }
}
