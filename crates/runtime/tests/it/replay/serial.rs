//! The serial run: tasks in submission order over plain byte vectors, element by element.

use std::collections::HashMap;

use syncline_device::{Kernel, KernelArgs};
use syncline_plan::{BufferKind, TaskGraph, TaskInfo};
use syncline_runtime::replay::TaskBody;
use syncline_tensor::{Access, BufferId, Dtype, View};

/// What a test task does, whatever its arguments lie in: folds all that it reads, and writes the
/// outcome over all that it writes. `get` and `set` are given an argument and the number of an
/// element.
fn fold(
    seed: u64,
    args: &[(Access, u64)],
    get: &mut dyn FnMut(usize, u64) -> u64,
    set: &mut dyn FnMut(usize, u64, u64),
) {
    let mix = |a: u64, b: u64| (a.rotate_left(7) ^ b).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut folded = seed;
    for (at, &(_, elements)) in args.iter().enumerate().filter(|(_, arg)| arg.0.reads()) {
        folded = (0..elements).fold(folded, |folded, element| mix(folded, get(at, element)));
    }
    for (at, &(_, elements)) in args.iter().enumerate().filter(|(_, arg)| arg.0.writes()) {
        (0..elements).for_each(|element| set(at, element, mix(folded, element) >> 5));
    }
}

fn shape_of(task: TaskInfo<'_>) -> Vec<(Access, u64)> {
    task.args().map(|arg| (arg.access, arg.view.elements())).collect()
}

fn seed_of(task: TaskInfo<'_>) -> u64 {
    u64::from(task.index().0) + 1
}

/// The indices of element number `element`, the last dimension fastest.
fn indices(shape: &[u64], element: u64) -> Vec<u64> {
    let mut rest = element;
    let mut found: Vec<u64> = (shape.iter().rev())
        .map(|&size| {
            let index = rest % size;
            rest /= size;
            index
        })
        .collect();
    found.reverse();
    found
}

/// The body of a test task on a CPU lane.
pub fn body(task: TaskInfo<'_>) -> TaskBody {
    let run = runner(task);
    TaskBody::new(move |args| run(&args.open()))
}

/// The same as a kernel, which runs on lanes of devices too.
pub fn kernel(task: TaskInfo<'_>) -> TaskBody {
    let run = runner(task);
    TaskBody::kernel(&Kernel::cpu(task.kernel(), move |args: &mut KernelArgs<'_>| run(args)), [])
}

fn runner(task: TaskInfo<'_>) -> impl Fn(&KernelArgs<'_>) + Send + Sync + 'static {
    let (seed, shape) = (seed_of(task), shape_of(task));
    let dtypes: Vec<Dtype> = task.args().map(|arg| arg.view.dtype()).collect();
    move |args| {
        let get = &mut |at: usize, element: u64| read(args, at, dtypes[at], element);
        let set = &mut |at: usize, element: u64, value: u64| {
            write(args, at, dtypes[at], element, value);
        };
        fold(seed, &shape, get, set);
    }
}

fn read(args: &KernelArgs<'_>, at: usize, dtype: Dtype, element: u64) -> u64 {
    let index = indices(args.view(at).unwrap().shape(), element);
    match dtype {
        Dtype::U8 => args.strided::<u8>(at).unwrap().get(&index).into(),
        Dtype::U16 => args.strided::<u16>(at).unwrap().get(&index).into(),
        _ => args.strided::<u32>(at).unwrap().get(&index).into(),
    }
}

fn write(args: &KernelArgs<'_>, at: usize, dtype: Dtype, element: u64, value: u64) {
    let index = indices(args.view(at).unwrap().shape(), element);
    match dtype {
        Dtype::U8 => args.strided_mut::<u8>(at).unwrap().set(&index, value as u8),
        Dtype::U16 => args.strided_mut::<u16>(at).unwrap().set(&index, value as u16),
        _ => args.strided_mut::<u32>(at).unwrap().set(&index, value as u32),
    }
}

/// Runs `graph` over `buffers`, which get those that are missing.
pub fn run(graph: &TaskGraph, buffers: &mut HashMap<BufferId, Vec<u8>>) {
    for buffer in graph.buffers().filter(|buffer| buffer.kind == BufferKind::Temporary) {
        buffers.insert(buffer.id, vec![0xee; buffer.bytes as usize]);
    }
    for task in graph.tasks() {
        let args: Vec<(BufferId, View)> = task.args().map(|arg| (arg.buffer, *arg.view)).collect();
        let places = |at: usize, element: u64| {
            let (buffer, view) = &args[at];
            let index = indices(view.shape(), element);
            let offset: i64 = index.iter().zip(view.strides()).map(|(&i, &s)| i as i64 * s).sum();
            let start = (view.offset() as i64 + offset) as usize;
            (*buffer, start..start + view.dtype().bytes() as usize)
        };
        let cell = std::cell::RefCell::new(&mut *buffers);
        let get = &mut |at: usize, element: u64| {
            let (buffer, bytes) = places(at, element);
            let buffers = cell.borrow();
            buffers[&buffer][bytes].iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
        };
        let set = &mut |at: usize, element: u64, value: u64| {
            let (buffer, bytes) = places(at, element);
            let length = bytes.len();
            let mut buffers = cell.borrow_mut();
            buffers.get_mut(&buffer).unwrap()[bytes]
                .copy_from_slice(&value.to_le_bytes()[..length]);
        };
        fold(seed_of(task), &shape_of(task), get, set);
    }
}
