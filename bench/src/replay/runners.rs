//! Peers written in Rust: what one would write by hand.

use std::sync::atomic::{AtomicU32, Ordering};

use syncline_plan::TaskGraph;

/// A body as a peer has it.
pub(crate) type Body = Box<dyn Fn() + Send + Sync>;

fn empty_bodies(count: usize) -> Vec<Body> {
    // Captures differ from body to body, as it would with real ones: each box has its own
    // memory.
    (0..count)
        .map(|at| -> Body {
            Box::new(move || {
                std::hint::black_box(at);
            })
        })
        .collect()
}

/// All bodies in submission order: no machinery at all.
pub(crate) struct BareLoop(Vec<Body>);

impl BareLoop {
    /// `count` empty bodies.
    pub(crate) fn new(count: usize) -> Self {
        Self(empty_bodies(count))
    }

    /// Calls them.
    pub(crate) fn run(&self) {
        self.0.iter().for_each(|body| body());
    }
}

/// The edges of a graph, turned round.
pub(crate) struct Edges {
    /// Where each task's successors begin; one more at the end.
    pub starts: Vec<u32>,
    /// The successors.
    pub succs: Vec<u32>,
    /// How many tasks each one waits for.
    pub preds: Vec<u32>,
}

impl Edges {
    /// What was recorded.
    pub(crate) fn of(graph: &TaskGraph) -> Self {
        let pairs: Vec<(u32, u32)> = graph
            .tasks()
            .flat_map(|task| task.edges().iter().map(move |edge| (edge.pred.0, task.index().0)))
            .collect();
        Self::of_pairs(graph.tasks().len(), &pairs)
    }

    /// The edges in `pairs`.
    pub(crate) fn of_pairs(count: usize, pairs: &[(u32, u32)]) -> Self {
        let mut starts = vec![0u32; count + 1];
        let mut preds = vec![0u32; count];
        for &(pred, succ) in pairs {
            starts[pred as usize + 1] += 1;
            preds[succ as usize] += 1;
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut next = starts.clone();
        let mut succs = vec![0; pairs.len()];
        for &(pred, succ) in pairs {
            succs[next[pred as usize] as usize] = succ;
            next[pred as usize] += 1;
        }
        Self { starts, succs, preds }
    }

    /// Calls `run` with the name of a file that holds the edges: the number of tasks, then pairs.
    pub(crate) fn with_file<R>(&self, run: impl FnOnce(&str) -> R) -> Option<R> {
        let mut text = format!("{}\n", self.preds.len());
        for pred in 0..self.preds.len() {
            for at in self.starts[pred]..self.starts[pred + 1] {
                text.push_str(&format!("{pred} {}\n", self.succs[at as usize]));
            }
        }
        let name = format!("syncline-edges-{}.txt", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).ok()?;
        let result = run(path.to_str()?);
        let _ = std::fs::remove_file(&path);
        Some(result)
    }
}

/// A runner on rayon: a counter a task, and the task that brings one to zero runs or spawns the
/// task.
pub(crate) struct RayonRunner {
    pool: rayon::ThreadPool,
    graph: Graph,
}

struct Graph {
    starts: Vec<u32>,
    succs: Vec<u32>,
    preds: Vec<u32>,
    open: Vec<AtomicU32>,
    bodies: Vec<Body>,
    sources: Vec<u32>,
}

impl RayonRunner {
    /// `edges` with empty bodies on `threads` threads.
    pub(crate) fn new(edges: &Edges, threads: usize) -> Self {
        Self::with_bodies(edges, threads, empty_bodies(edges.preds.len()))
    }

    /// `edges` with `bodies` on `threads` threads.
    pub(crate) fn with_bodies(edges: &Edges, threads: usize, bodies: Vec<Body>) -> Self {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let sources = (0..edges.preds.len() as u32).filter(|&at| edges.preds[at as usize] == 0);
        let graph = Graph {
            starts: edges.starts.clone(),
            succs: edges.succs.clone(),
            preds: edges.preds.clone(),
            open: edges.preds.iter().map(|&count| AtomicU32::new(count)).collect(),
            bodies,
            sources: sources.collect(),
        };
        Self { pool: pool.expect("threads can be had"), graph }
    }

    /// Runs all tasks once.
    pub(crate) fn run(&mut self) {
        for (open, &count) in self.graph.open.iter_mut().zip(&self.graph.preds) {
            *open.get_mut() = count;
        }
        let graph = &self.graph;
        self.pool.in_place_scope(|scope| {
            for &source in &graph.sources {
                scope.spawn(move |scope| graph.run_from(source, scope));
            }
        });
    }
}

impl Graph {
    fn run_from<'a>(&'a self, task: u32, scope: &rayon::Scope<'a>) {
        let mut next = Some(task);
        while let Some(task) = next.take() {
            (self.bodies[task as usize])();
            let range =
                self.starts[task as usize] as usize..self.starts[task as usize + 1] as usize;
            for &succ in &self.succs[range] {
                if self.open[succ as usize].fetch_sub(1, Ordering::AcqRel) == 1 {
                    // The first one goes on here, without the detour through the pool.
                    match next {
                        None => next = Some(succ),
                        Some(_) => scope.spawn(move |scope| self.run_from(succ, scope)),
                    }
                }
            }
        }
    }
}
