//! Why a graph cannot be compiled for a machine.

/// Why a graph cannot be compiled for a machine; nothing has run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum CompileError {
    #[error(
        "task `{task}` ({index}) may run on none of the machine's devices ({devices}): it asks for {wanted}"
    )]
    NoDevice { task: String, index: u32, wanted: String, devices: String },
    #[error("buffer `{buffer}` lives on `{device}`, which the machine ({devices}) does not have")]
    NoHome { buffer: String, device: String, devices: String },
    #[error(
        "task `{task}` ({index}) reads bytes {start}..{end} of temporary buffer `{buffer}`, which nothing has written: \
         write them first, or make the buffer external"
    )]
    Uninitialised { task: String, index: u32, buffer: String, start: u64, end: u64 },
    #[error(
        "device `{device}` has {memory_bytes} bytes, the plan needs {peak_bytes} (at `{task}`, {index}), of which \
         {lower_bound_bytes} are in use at one time: give the device more memory, move tasks to others, or split the graph"
    )]
    DoesNotFit {
        device: String,
        memory_bytes: u64,
        /// What the layout came to, bound buffers included.
        peak_bytes: u64,
        /// The largest set of bytes that are live at one time.
        lower_bound_bytes: u64,
        task: String,
        index: u32,
    },
    #[error(
        "buffer `{buffer}` is used in {runs} separate intervals of bytes: copies between devices can \
         follow at most {max}; use it on one device, or make its views contiguous"
    )]
    TooFine { buffer: String, runs: u64, max: u64 },
    #[error("the plan would have {ops} ops, copies included: at most {max} are possible")]
    TooLarge { ops: usize, max: usize },
}
