//! Whether tensors that are bound to memory of devices are apart: slices see to that themselves,
//! views do not.

use syncline_device::BufferView;
use syncline_tensor::BufferId;

use super::BindError;

/// Where a tensor lies on a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span<'a> {
    buffer: BufferId,
    start: u64,
    end: u64,
    is_target: bool,
    name: &'a str,
}

impl<'a> Span<'a> {
    /// `None` where nothing lies there.
    pub fn new(view: &BufferView, is_target: bool, name: &'a str) -> Option<Self> {
        let (start, end) = view.view().span()?;
        Some(Self { buffer: view.buffer().id(), start, end, is_target, name })
    }

    /// Whether it shares bytes with `other`, which starts no later.
    fn meets(&self, other: &Self) -> bool {
        self.buffer == other.buffer && self.start < other.end
    }

    fn side(&self) -> &'static str {
        if self.is_target { "destination" } else { "source" }
    }
}

/// Checks that what is written is nobody else's; two sources may share memory.
pub(super) fn check(mut spans: Vec<Span<'_>>) -> Result<(), BindError> {
    spans.sort_unstable();
    // In the order of their starts, whoever reaches furthest is the one that the next may meet.
    let mut furthest: [Option<Span<'_>>; 2] = [None, None];
    for span in spans {
        let met = furthest.iter().flatten().find(|other| {
            let is_written = span.is_target || other.is_target;
            is_written && span.meets(other)
        });
        if let Some(&met) = met {
            let (written, other) = if span.is_target { (span, met) } else { (met, span) };
            let (name, side) = (written.name.to_owned(), other.side());
            return Err(BindError::Aliased { name, other: other.name.to_owned(), side });
        }
        let last = &mut furthest[usize::from(span.is_target)];
        if last.is_none_or(|last| !span.meets(&last) || last.end < span.end) {
            *last = Some(span);
        }
    }
    Ok(())
}
