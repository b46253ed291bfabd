//! Putting a program together.

use serde_json::{Value, json};
use syncline_tensor::{Access, Arg, BufferId, Dtype, View};
use syncline_trace::{Trace, TraceBuffer, TraceTask};

/// A trace in the making.
#[derive(Default)]
pub(super) struct Builder {
    trace: Trace,
}

/// A tensor of the program: its buffer, and a view of it.
#[derive(Clone, Copy)]
pub(super) struct Tensor {
    buffer: BufferId,
    view: View,
}

impl Tensor {
    /// Elements `start..start + count` of dimension `dim`.
    pub(super) fn part(self, dim: usize, start: u64, count: u64) -> Self {
        let view = self.view.slice(dim, start..start + count).expect("inside the tensor");
        Self { view, ..self }
    }

    /// The elements on the diagonal of a square matrix.
    pub(super) fn diagonal(self) -> Self {
        let (shape, strides) = (self.view.shape(), self.view.strides());
        let view = View::strided(
            self.view.dtype(),
            self.view.offset(),
            &shape[..1],
            &[strides[0] + strides[1]],
        );
        Self { view: view.expect("inside the tensor"), ..self }
    }

    /// As `Input`.
    pub(super) fn read(self) -> Arg {
        Arg::new(Access::Input, self.buffer, self.view)
    }

    /// As `OutputExisting`.
    pub(super) fn write(self) -> Arg {
        Arg::new(Access::OutputExisting, self.buffer, self.view)
    }

    /// As `InOut`.
    pub(super) fn update(self) -> Arg {
        Arg::new(Access::InOut, self.buffer, self.view)
    }
}

/// The `init` of a buffer of random numbers. Integers above 2^53 are texts in JSON.
pub(super) fn random(seed: u64, dtype: Dtype) -> Value {
    let seed = if seed > 1 << 53 { Value::from(seed.to_string()) } else { Value::from(seed) };
    json!({"random": seed, "dtype": dtype.name()})
}

impl Builder {
    /// A buffer for a contiguous tensor; `init` is the member of that name.
    pub(super) fn tensor(
        &mut self,
        name: &str,
        dtype: Dtype,
        shape: &[u64],
        init: Option<Value>,
    ) -> Tensor {
        let view = View::contiguous(dtype, shape).expect("sizes of an example");
        let buffer = BufferId(self.trace.buffers.len() as u64);
        let mut entry = TraceBuffer::new(buffer, view.bytes()).named(name);
        if let Some(init) = init {
            entry.extra.insert("init".to_owned(), init);
        }
        self.trace.buffers.push(entry);
        Tensor { buffer, view }
    }

    /// A buffer of random floats.
    pub(super) fn random(&mut self, name: &str, shape: &[u64], seed: u64) -> Tensor {
        let seed = seed * 1000 + self.trace.buffers.len() as u64;
        self.tensor(name, Dtype::F32, shape, Some(random(seed, Dtype::F32)))
    }

    /// A buffer of zeros.
    pub(super) fn zeros(&mut self, name: &str, shape: &[u64]) -> Tensor {
        self.tensor(name, Dtype::F32, shape, None)
    }

    /// A task that runs `kernel`.
    pub(super) fn task(
        &mut self,
        name: &str,
        kernel: &str,
        scalars: Value,
        args: impl IntoIterator<Item = Arg>,
    ) {
        let mut task = TraceTask::new(self.trace.tasks.len() as u64, name, args);
        task.extra.insert("kernel".to_owned(), kernel.into());
        if scalars.as_object().is_some_and(|scalars| !scalars.is_empty()) {
            task.extra.insert("scalars".to_owned(), scalars);
        }
        self.trace.tasks.push(task);
    }

    /// The program.
    pub(super) fn finish(self) -> Trace {
        self.trace
    }
}
