//! Random programs over words, and a serial run of them that shares nothing with the runtime.

use std::collections::HashMap;
use syncline_device::Buffer;

use syncline_device::KernelArgs;
use syncline_runtime::stream::{Scope, Stream, StreamError, Task, TaskContext, TaskHandle};
use syncline_tensor::{Access, Dtype, View};
use syncline_testing::Rng;

/// Words of a buffer: a square of four by four.
pub const WORDS: u64 = 16;

/// Which words of a buffer: `rows` by `columns`, from `first` on, `row` and `column` words apart.
#[derive(Clone, Copy, Debug)]
pub struct Tile {
    first: u64,
    rows: u64,
    row: u64,
    columns: u64,
    column: u64,
}

impl Tile {
    fn random(rng: &mut Rng) -> Self {
        if rng.one_in(4) {
            return Self { first: 0, rows: 1, row: 1, columns: WORDS, column: 1 };
        }
        let (top, left) = (rng.range(0..4), rng.range(0..4));
        let (rows, columns) = (rng.range(1..5 - top), rng.range(1..5 - left));
        match rng.below(3) {
            0 => Self { first: 4 * top + left, rows, row: 4, columns, column: 1 },
            1 => Self { first: 4 * top + left, rows: columns, row: 1, columns: rows, column: 4 },
            _ => Self { first: top, rows: 1, row: 1, columns: rng.range(1..5), column: 3 },
        }
    }

    fn words(&self) -> Vec<u64> {
        let rows = (0..self.rows).map(|row| self.first + row * self.row);
        rows.flat_map(|start| (0..self.columns).map(move |at| start + at * self.column)).collect()
    }

    fn view(&self) -> View {
        let strides = [8 * self.row as i64, 8 * self.column as i64];
        View::strided(Dtype::U64, 8 * self.first, &[self.rows, self.columns], &strides)
            .expect("inside its buffer")
    }
}

#[derive(Clone, Debug)]
pub struct Argument {
    access: Access,
    buffer: usize,
    tile: Tile,
}

#[derive(Clone, Debug)]
pub struct Step {
    args: Vec<Argument>,
    seed: u64,
    /// Earlier steps that this one must come after.
    deps: Vec<usize>,
    pub fails: bool,
    manual: bool,
    priority: i32,
    /// Makes a fresh buffer out of its inputs, which the next step reads.
    makes: bool,
    takes: bool,
    children: Vec<Step>,
}

#[derive(Clone, Debug)]
pub struct Program {
    pub buffers: usize,
    pub steps: Vec<Step>,
}

/// What a random program may contain.
#[derive(Clone, Copy, Debug, Default)]
pub struct Features {
    pub failures: bool,
    pub manual: bool,
    pub children: bool,
    pub outputs: bool,
}

impl Program {
    pub fn random(rng: &mut Rng, steps: usize, features: Features) -> Self {
        let buffers = 1 + rng.below(4);
        let mut program = Self { buffers, steps: Vec::new() };
        while program.steps.len() < steps {
            let at = program.steps.len();
            let mut step = Step::random(rng, buffers, at);
            step.fails = features.failures && rng.one_in(12);
            if features.manual && rng.one_in(4) {
                step.manual = true;
                // Whoever opens a manual scope has to name every conflict.
                step.deps =
                    (0..at).filter(|&earlier| conflict(&program.steps[earlier], &step)).collect();
            }
            if features.children && rng.one_in(4) && !step.manual {
                step.adopt(rng);
            }
            let makes =
                features.outputs && rng.one_in(4) && step.children.is_empty() && !step.manual;
            step.makes = makes;
            program.steps.push(step);
            if makes {
                let mut taker = Step::random(rng, buffers, at + 1);
                taker.takes = true;
                program.steps.push(taker);
            }
        }
        program
    }

    /// What the buffers hold after the steps in their order, without those that fail or depend on
    /// one that does.
    pub fn run_serially(&self) -> Vec<Vec<u64>> {
        let mut buffers: Vec<_> = (0..self.buffers).map(initial).collect();
        let origins = self.origins();
        let mut made = Vec::new();
        for (step, origin) in self.steps.iter().zip(&origins) {
            if origin.is_none() {
                step.run_serially(&mut buffers, &mut made);
            }
        }
        buffers
    }

    /// For each step the oldest failing step that it depends on, itself included: every pair is
    /// compared.
    pub fn origins(&self) -> Vec<Option<usize>> {
        let mut origins: Vec<Option<usize>> = Vec::new();
        for (at, step) in self.steps.iter().enumerate() {
            let inherited = (0..at).filter(|&earlier| {
                let made = step.takes && earlier + 1 == at;
                step.deps.contains(&earlier)
                    || made
                    || !step.manual && conflict(&self.steps[earlier], step)
            });
            let inherited = inherited.filter_map(|earlier| origins[earlier]).min();
            origins.push(inherited.or(step.fails.then_some(at)));
        }
        origins
    }

    /// Submits everything, and returns a handle of every step.
    pub fn submit(&self, stream: &Stream, buffers: &[Buffer]) -> Vec<TaskHandle> {
        let auto = stream.scope("auto");
        // SAFETY: `Program::random` makes every manual step depend on all earlier steps that it
        // conflicts with; the host touches no buffer before everything has been awaited.
        let manual = unsafe { stream.manual_scope("manual") };
        let mut handles: Vec<TaskHandle> = Vec::new();
        for step in &self.steps {
            let made = step.takes.then(|| handles.last_mut().expect("after its maker"));
            let mut task = step.task(buffers, made.map(|maker| maker.output(0).clone()));
            for &dep in &step.deps {
                task = task.after(&handles[dep]);
            }
            let scope: &Scope = if step.manual { &manual } else { &auto };
            let handle = scope.submit(task).unwrap_or_else(|error| panic!("{step:?}: {error}"));
            if step.takes {
                // The maker's output is no longer needed by the host: a heap of one output is
                // enough.
                let maker = handles.pop().expect("after its maker");
                handles.push(maker.without_outputs());
            }
            handles.push(handle);
        }
        handles
    }
}

/// What a buffer holds at first.
pub fn initial(buffer: usize) -> Vec<u64> {
    (0..WORDS).map(|word| mix(buffer as u64, word)).collect()
}

fn mix(a: u64, b: u64) -> u64 {
    let word = (a ^ b.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word ^ (word >> 29)
}

/// Whether two steps must be ordered.
fn conflict(a: &Step, b: &Step) -> bool {
    a.args.iter().any(|x| {
        b.args.iter().any(|y| {
            let both_grouped = x.access.is_grouped() && x.access == y.access;
            x.buffer == y.buffer
                && (x.access.writes() || y.access.writes())
                && !both_grouped
                && x.tile.words().iter().any(|word| y.tile.words().contains(word))
        })
    })
}

impl Step {
    fn random(rng: &mut Rng, buffers: usize, at: usize) -> Self {
        let commutes = rng.one_in(6);
        let accesses = match commutes {
            true => &[Access::Commutative][..],
            false => &[Access::Input, Access::Input, Access::InOut, Access::OutputExisting],
        };
        let args = (0..1 + rng.below(3))
            .map(|_| Argument {
                access: *rng.pick(accesses),
                buffer: rng.below(buffers),
                tile: Tile::random(rng),
            })
            .collect();
        let deps = if at > 0 && rng.one_in(4) { vec![rng.below(at)] } else { Vec::new() };
        Self {
            args,
            seed: rng.next_u64(),
            deps,
            fails: false,
            manual: false,
            priority: if rng.one_in(4) { rng.below(5) as i32 - 2 } else { 0 },
            makes: false,
            takes: false,
            children: Vec::new(),
        }
    }

    /// Becomes a parent: whole buffers as arguments, and children within them.
    fn adopt(&mut self, rng: &mut Rng) {
        let whole = Tile { first: 0, rows: 1, row: 1, columns: WORDS, column: 1 };
        let mut seen = Vec::new();
        self.args.retain(|arg| {
            let first = !seen.contains(&arg.buffer);
            seen.push(arg.buffer);
            first
        });
        for arg in &mut self.args {
            arg.tile = whole;
            arg.access = if rng.one_in(3) { Access::Input } else { Access::InOut };
        }
        for _ in 0..1 + rng.below(10) {
            let mut child = Step::random(rng, 1, 0);
            child.args.retain(|arg| arg.access != Access::Commutative);
            for arg in &mut child.args {
                let parent = rng.pick(&self.args);
                arg.buffer = parent.buffer;
                if parent.access == Access::Input {
                    arg.access = Access::Input;
                }
            }
            self.children.push(child);
        }
    }

    fn commutes(&self) -> bool {
        self.args.iter().any(|arg| arg.access.is_grouped())
    }

    /// The step on plain vectors: first everything is read, then everything is written.
    fn run_serially(&self, buffers: &mut [Vec<u64>], made: &mut Vec<u64>) {
        for child in &self.children {
            child.run_serially(buffers, made);
        }
        if !self.children.is_empty() {
            return;
        }
        let mut hash = self.seed;
        if self.takes {
            made.iter().for_each(|&word| hash = mix(hash, word));
        }
        for arg in self.args.iter().filter(|arg| arg.access.reads() && !self.commutes()) {
            arg.tile
                .words()
                .iter()
                .for_each(|&at| hash = mix(hash, buffers[arg.buffer][at as usize]));
        }
        if self.makes {
            *made = (0..WORDS).map(|at| mix(hash, at)).collect();
        }
        for arg in self.args.iter().filter(|arg| arg.access.writes()) {
            for (position, at) in arg.tile.words().into_iter().enumerate() {
                let word = &mut buffers[arg.buffer][at as usize];
                *word = written(self.commutes(), hash, position, *word);
            }
        }
    }

    fn task(&self, buffers: &[Buffer], made: Option<Buffer>) -> Task {
        let mut task = Task::new("step").priority(self.priority);
        for arg in &self.args {
            task = task.arg(arg.access, &buffers[arg.buffer], arg.tile.view());
        }
        if let Some(made) = &made {
            task = task.input(made, super::words(WORDS));
        }
        if self.makes {
            task = task.output(super::words(WORDS));
        }
        if self.children.is_empty() {
            let step = self.clone();
            return task.body(move |args| step.body(args));
        }
        let (children, fails) = (self.children.clone(), self.fails);
        let buffers: HashMap<usize, Buffer> =
            self.args.iter().map(|arg| (arg.buffer, buffers[arg.buffer].clone())).collect();
        task.parent(move |context| {
            if fails {
                return Err("as planned".to_owned());
            }
            children.iter().try_for_each(|child| {
                child.submit_inside(context, &buffers).map(drop).map_err(|error| error.to_string())
            })
        })
    }

    fn submit_inside(
        &self,
        context: &mut TaskContext<'_>,
        buffers: &HashMap<usize, Buffer>,
    ) -> Result<TaskHandle, StreamError> {
        let mut task = Task::new("child").priority(self.priority);
        for arg in &self.args {
            task = task.arg(arg.access, &buffers[&arg.buffer], arg.tile.view());
        }
        let step = self.clone();
        context.submit(task.body(move |args| step.body(args)))
    }

    /// The step through the runtime's arguments.
    fn body(&self, args: &mut KernelArgs<'_>) -> Result<(), String> {
        if self.fails {
            return Err("as planned".to_owned());
        }
        let text = |error: syncline_device::DeviceError| error.to_string();
        let mut hash = self.seed;
        if self.takes {
            let made = args.slice::<u64>(self.args.len()).map_err(text)?;
            made.iter().for_each(|&word| hash = mix(hash, word));
        }
        for (position, arg) in self.args.iter().enumerate() {
            if arg.access.reads() && !self.commutes() {
                let words = args.strided::<u64>(position).map_err(text)?;
                for row in 0..arg.tile.rows {
                    (0..arg.tile.columns).for_each(|at| hash = mix(hash, words.get(&[row, at])));
                }
            }
        }
        if self.makes {
            let made = args.slice_mut::<u64>(self.args.len()).map_err(text)?;
            made.iter_mut().zip(0..).for_each(|(word, at)| *word = mix(hash, at));
        }
        for (position, arg) in self.args.iter().enumerate().filter(|(_, arg)| arg.access.writes()) {
            let mut words = args.strided_mut::<u64>(position).map_err(text)?;
            for row in 0..arg.tile.rows {
                for column in 0..arg.tile.columns {
                    let at = (row * arg.tile.columns + column) as usize;
                    let old = words.get(&[row, column]);
                    words.set(&[row, column], written(self.commutes(), hash, at, old));
                }
            }
        }
        Ok(())
    }
}

/// What is written; for commutative steps something that does not depend on their order.
fn written(commutes: bool, hash: u64, position: usize, old: u64) -> u64 {
    match commutes {
        true => old.wrapping_add(mix(hash, position as u64)),
        false => mix(hash, position as u64),
    }
}
