//! What people call the bytes that a task touches: the buffer's name, and index ranges in it.

use std::collections::HashMap;

use syncline_tensor::{Arg, BufferId, View};

use crate::{Trace, TraceBuffer};

/// The most layouts of one buffer that are tried.
const CANDIDATES_MAX: usize = 16;

/// Names the bytes of a trace's arguments.
///
/// ```
/// use syncline_trace::{Trace, TraceBuffer, TraceTask};
/// use syncline_tensor::{Arg, BufferId, Dtype, View};
/// use syncline_trace::Naming;
///
/// let whole = View::contiguous(Dtype::F32, &[64, 64])?;
/// let rows = Arg::inout(BufferId(0), whole.slice(0, 0..16)?);
/// let columns = Arg::input(BufferId(0), whole.slice(1, 0..32)?);
/// let mut trace = Trace::default();
/// trace.buffers.push(TraceBuffer::new(BufferId(0), whole.bytes()).named("A"));
/// trace.tasks.push(TraceTask::new(0, "scale", [rows, columns]));
/// let naming = Naming::of(&trace);
/// assert_eq!(naming.arg(&rows), "A[0:16, 0:64]");
/// assert_eq!(naming.overlap(&rows, &columns), "A[0:16, 0:32]");
/// # Ok::<(), syncline_tensor::ViewError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Naming {
    frames: HashMap<BufferId, Frame>,
    names: HashMap<BufferId, String>,
}

impl Naming {
    /// Learns the buffers' names, and how each is thought of from the views that tasks take of it.
    pub fn of(trace: &Trace) -> Self {
        let name = |buffer: &TraceBuffer| (buffer.id, buffer_name(buffer));
        Self { frames: frames(trace), names: trace.buffers.iter().map(name).collect() }
    }

    /// The bytes of one argument: as index ranges where they are a box, else as a range of bytes.
    pub fn arg(&self, arg: &Arg) -> String {
        self.overlap(arg, arg)
    }

    /// The bytes that both arguments touch.
    pub fn overlap(&self, pred: &Arg, succ: &Arg) -> String {
        let name = self.names.get(&succ.buffer).cloned();
        let name = name.unwrap_or_else(|| succ.buffer.to_string());
        name + &self.place(pred, succ)
    }

    fn place(&self, pred: &Arg, succ: &Arg) -> String {
        if let Some(frame) = self.frames.get(&succ.buffer)
            && let Some(of_succ) = frame.ranges(&succ.view)
        {
            let of_pred = frame.ranges(&pred.view);
            let common = of_pred.and_then(|of_pred| intersection(&of_pred, &of_succ));
            return frame.show(&common.unwrap_or(of_succ));
        }
        match (pred.view.span(), succ.view.span()) {
            (Some(a), Some(b)) if a.0.max(b.0) < a.1.min(b.1) => {
                format!(" bytes {}:{}", a.0.max(b.0), a.1.min(b.1))
            }
            (_, Some((start, end))) => format!(" bytes {start}:{end}"),
            _ => String::new(),
        }
    }
}

fn buffer_name(buffer: &TraceBuffer) -> String {
    buffer.name.as_deref().map_or_else(|| buffer.id.to_string(), str::to_owned)
}

fn intersection(a: &Ranges, b: &Ranges) -> Option<Ranges> {
    a.iter()
        .zip(b)
        .map(|(a, b)| (a.0.max(b.0), a.1.min(b.1)))
        .map(|(start, stop)| (start < stop).then_some((start, stop)))
        .collect()
}

/// How a buffer is thought of: dimensions by falling stride, down to single elements.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Frame {
    dims: Vec<Dim>,
    element_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Dim {
    stride: u64,
    size: u64,
}

/// A box in a frame: start and stop for each dimension.
type Ranges = Vec<(u64, u64)>;

impl Frame {
    /// The frame in which the strides of `view` are those of whole rows, planes and so on of the
    /// buffer.
    fn of(view: &View, buffer_bytes: u64) -> Option<Self> {
        let element_bytes = view.dtype().bytes();
        let mut strides: Vec<u64> = (view.shape().iter().zip(view.strides()))
            .filter(|&(&size, &stride)| size > 1 && stride != 0)
            .map(|(_, stride)| stride.unsigned_abs())
            .chain([element_bytes])
            .collect();
        strides.sort_unstable_by(|a, b| b.cmp(a));
        strides.dedup();
        let mut dims = Vec::with_capacity(strides.len());
        let mut around = buffer_bytes;
        for stride in strides {
            if stride > around || !around.is_multiple_of(stride) {
                return None;
            }
            dims.push(Dim { stride, size: around / stride });
            around = stride;
        }
        (around == element_bytes).then_some(Self { dims, element_bytes })
    }

    /// The box that `view` is in this frame, where it is one.
    fn ranges(&self, view: &View) -> Option<Ranges> {
        let (mut start, _) = view.span()?;
        if view.dtype().bytes() != self.element_bytes {
            return None;
        }
        let mut sizes = vec![1; self.dims.len()];
        for (&size, &stride) in view.shape().iter().zip(view.strides()) {
            if size > 1 {
                let stride = stride.unsigned_abs();
                let dim = self.dims.iter().position(|dim| dim.stride == stride)?;
                if sizes[dim] != 1 {
                    return None;
                }
                sizes[dim] = size;
            }
        }
        let mut ranges = Vec::with_capacity(self.dims.len());
        for (dim, size) in self.dims.iter().zip(sizes) {
            let first = start / dim.stride;
            start %= dim.stride;
            if first + size > dim.size {
                return None;
            }
            ranges.push((first, first + size));
        }
        (start == 0).then_some(ranges)
    }

    fn is_whole(&self, ranges: &Ranges) -> bool {
        self.dims.iter().zip(ranges).all(|(dim, &range)| range == (0, dim.size))
    }

    /// The box as people write it; nothing for all of the buffer.
    fn show(&self, ranges: &Ranges) -> String {
        if self.is_whole(ranges) {
            return String::new();
        }
        let shown: Vec<String> =
            ranges.iter().map(|(start, stop)| format!("{start}:{stop}")).collect();
        format!("[{}]", shown.join(", "))
    }
}

/// For each buffer the frame in which most of its views are boxes.
fn frames(trace: &Trace) -> HashMap<BufferId, Frame> {
    let mut views: HashMap<BufferId, HashMap<View, u64>> = HashMap::new();
    for arg in trace.tasks.iter().flat_map(|task| &task.args) {
        *views.entry(arg.arg.buffer).or_default().entry(arg.arg.view).or_default() += 1;
    }
    let choose = |buffer: &TraceBuffer| {
        let views = views.get(&buffer.id)?;
        best_frame(views, buffer.bytes).map(|frame| (buffer.id, frame))
    };
    trace.buffers.iter().filter_map(choose).collect()
}

fn best_frame(views: &HashMap<View, u64>, buffer_bytes: u64) -> Option<Frame> {
    let mut candidates: Vec<Frame> = Vec::new();
    for view in views.keys() {
        if let Some(frame) = Frame::of(view, buffer_bytes)
            && !candidates.contains(&frame)
            && candidates.len() < CANDIDATES_MAX
        {
            candidates.push(frame);
        }
    }
    let fits = |frame: &Frame| -> u64 {
        views.iter().filter(|(view, _)| frame.ranges(view).is_some()).map(|(_, uses)| uses).sum()
    };
    // The strides decide between equals, so that the order of the map does not show.
    candidates.into_iter().max_by_key(|frame| {
        let strides: Vec<u64> = frame.dims.iter().map(|dim| dim.stride).collect();
        (fits(frame), frame.dims.len(), strides)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_tensor::Dtype;

    #[test]
    fn tiles_of_a_matrix_are_boxes_in_it() {
        let matrix = View::contiguous(Dtype::F32, &[64, 256]).unwrap();
        let tile = matrix.slice(0, 16..32).unwrap().slice(1, 64..128).unwrap();
        let frame = Frame::of(&tile, matrix.bytes()).unwrap();
        assert_eq!(frame.show(&frame.ranges(&tile).unwrap()), "[16:32, 64:128]");
        assert_eq!(
            frame.show(&frame.ranges(&tile.transpose(0, 1).unwrap()).unwrap()),
            "[16:32, 64:128]"
        );
        let row = matrix.index(0, 3).unwrap();
        assert_eq!(frame.show(&frame.ranges(&row).unwrap()), "[3:4, 0:256]");
        assert_eq!(frame.show(&frame.ranges(&matrix).unwrap()), "");
        assert_eq!(frame.ranges(&View::bytes_at(0, 4).unwrap()), None);
    }
}
