//! Stored boxes: boxes of tensors that lie in files as strided arrays.
//!
//! Every format comes down to them: a tensor of any checkpoint is a list of such boxes. Cutting,
//! moving, stacking and transposing change these numbers only; no bytes are read.

use syncline_copy::{CopyError, CopyPlan, Strides};
use syncline_layout::{Dims, Layout, NdBox, Piece, Shard};

use crate::element::ElementType;
use crate::error::Malformed;

/// A box of a shard, and where its elements lie in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredBox {
    /// The box, in the shard's coordinates.
    pub(crate) area: NdBox,
    /// The position of the file in the checkpoint's list.
    pub(crate) file: u32,
    /// The byte at which the first element begins.
    pub(crate) start: u64,
    /// Bytes from one element to the next in each dimension.
    pub(crate) strides: Dims,
}

impl StoredBox {
    /// A whole array in row-major order.
    pub(crate) fn row_major(file: u32, start: u64, shape: Dims, element_bytes: u64) -> Self {
        let strides = shape.row_major_strides(element_bytes);
        Self { area: NdBox::whole(shape), file, start, strides }
    }

    /// What of the part lies in `area`; `None` if that is nothing.
    pub(crate) fn cut(&self, area: &NdBox) -> Option<Self> {
        let both = self.area.intersection(area)?;
        let moved = (0..both.start.len())
            .map(|dim| (both.start[dim] - self.area.start[dim]) * self.strides[dim]);
        let start = self.start + moved.sum::<u64>();
        Some(Self { area: both, start, ..*self })
    }

    /// Plans the copy of the part to `start` of a row-major array of `shape`. Offsets count from
    /// the start of the file.
    pub(crate) fn copy_to(
        &self,
        start: &Dims,
        shape: &Dims,
        (from_bytes, to_bytes): (u64, u64),
    ) -> Result<CopyPlan, CopyError> {
        let strides = shape.row_major_strides(to_bytes);
        let (dims, from, to) = (shape.len(), self.strides.to_signed(), strides.to_signed());
        let plan = CopyPlan::strided(
            &self.area.size,
            Strides { strides: &from[..dims], element_bytes: from_bytes },
            Strides { strides: &to[..dims], element_bytes: to_bytes },
        )?;
        let offset = start.iter().zip(strides.iter()).map(|(start, stride)| start * stride).sum();
        Ok(plan.with_offsets(self.start, offset))
    }

    /// One past the last byte; `None` where that cannot be counted.
    fn end(&self, element_bytes: u64) -> Option<u64> {
        if self.area.is_empty() {
            return Some(self.start);
        }
        let steps = self.area.size.iter().zip(self.strides.iter());
        let last = steps
            .map(|(count, stride)| (count - 1).checked_mul(*stride))
            .try_fold(self.start, |sum, step| sum.checked_add(step?))?;
        last.checked_add(element_bytes)
    }
}

/// A tensor as it is stored: element type, shape in units of what plans move, and its boxes.
///
/// What no box covers is zero.
#[derive(Clone, Debug)]
pub(crate) struct StoredTensor {
    pub(crate) element: ElementType,
    pub(crate) shape: Dims,
    pub(crate) boxes: Vec<StoredBox>,
}

impl StoredTensor {
    /// Refuses boxes that leave their file, overlap, or leave a hole.
    pub(crate) fn check(&self, file_bytes: impl Fn(u32) -> u64) -> Result<(), Malformed> {
        let element_bytes = self.element.dtype().bytes();
        for part in &self.boxes {
            let end = part.end(element_bytes);
            if end.is_none_or(|end| end > file_bytes(part.file)) {
                let (area, have) = (part.area, file_bytes(part.file));
                return Err(Malformed::new(format!(
                    "{area} of {} ends past its file of {have} bytes",
                    self.element.name()
                )));
            }
        }
        let whole = self.shape.checked_volume().filter(|&volume| volume < 1 << 62);
        let whole = whole.ok_or_else(|| Malformed::new(format!("shape {}", self.shape)))?;
        if let [only] = &self.boxes[..]
            && only.area == NdBox::whole(self.shape)
        {
            return Ok(());
        }
        let piece = |part: &StoredBox| Piece { global: part.area, local: part.area.start };
        let pieces = self.boxes.iter().map(piece).collect();
        let shards = vec![Shard { rank: 0, shape: self.shape, pieces }];
        let mut builder = Layout::builder();
        builder
            .tensor("parts", self.element.dtype(), &self.shape, shards)
            .map_err(|error| Malformed::new(error.to_string()))?;
        let covered: u64 = self.boxes.iter().map(|part| part.area.volume()).sum();
        match covered == whole {
            true => Ok(()),
            false => Err(Malformed::new(format!(
                "{covered} of {whole} elements are there: files of other ranks are missing"
            ))),
        }
    }

    /// The tensor with what lies in runs `(from, to, size)` along `dim`, moved there; the rest is
    /// left out.
    pub(crate) fn moved(&self, dim: usize, runs: &[(u64, u64, u64)]) -> Vec<StoredBox> {
        let mut parts = Vec::new();
        for part in &self.boxes {
            for &(from, to, size) in runs {
                let mut run = part.area;
                (run.start[dim], run.size[dim]) = (from, size);
                if let Some(mut cut) = part.cut(&run) {
                    cut.area.start[dim] = cut.area.start[dim] - from + to;
                    parts.push(cut);
                }
            }
        }
        parts
    }

    /// The same tensor with its last two dimensions exchanged.
    pub(crate) fn transposed(&self) -> Option<Self> {
        let last = self.shape.len().checked_sub(1).filter(|&last| last > 0)?;
        let mut turned = self.clone();
        turned.shape.swap(last - 1, last);
        for part in &mut turned.boxes {
            part.strides.swap(last - 1, last);
            part.area.start.swap(last - 1, last);
            part.area.size.swap(last - 1, last);
        }
        Some(turned)
    }

    /// The parts at position `at` of a new first dimension; `None` where there are too many
    /// dimensions.
    pub(crate) fn stacked(&self, at: u64) -> Option<Vec<StoredBox>> {
        let with = |first: u64, dims: &Dims| Dims::from_slice(&[&[first], &dims[..]].concat());
        let raised = |part: &StoredBox| {
            let area =
                NdBox { start: with(at, &part.area.start)?, size: with(1, &part.area.size)? };
            Some(StoredBox { area, strides: with(0, &part.strides)?, ..*part })
        };
        self.boxes.iter().map(raised).collect()
    }

    /// The parts at position `at` of the first dimension, without that dimension.
    pub(crate) fn unstacked(&self, at: u64) -> Vec<StoredBox> {
        let without = |dims: &Dims| Dims::from_slice(&dims[1..]).expect("one dimension less");
        let row = |part: &StoredBox| {
            let mut area = part.area;
            (area.start[0], area.size[0]) = (at, 1);
            let cut = part.cut(&area)?;
            let area = NdBox { start: without(&cut.area.start), size: without(&cut.area.size) };
            Some(StoredBox { area, strides: without(&cut.strides), ..cut })
        };
        self.boxes.iter().filter_map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use syncline_tensor::Dtype;

    use super::*;

    fn dims(values: &[u64]) -> Dims {
        Dims::from_slice(values).unwrap()
    }

    fn stored(shape: &[u64], boxes: Vec<StoredBox>) -> StoredTensor {
        StoredTensor { element: ElementType::Known(Dtype::U8), shape: dims(shape), boxes }
    }

    /// The bytes by their meaning: element by element.
    fn bytes(tensor: &StoredTensor, file: &[u8]) -> Vec<u8> {
        let strides = tensor.shape.row_major_strides(1);
        let mut found = vec![0; tensor.shape.volume() as usize];
        for (at, value) in found.iter_mut().enumerate() {
            let index: Vec<u64> = (0..tensor.shape.len())
                .map(|dim| at as u64 / strides[dim] % tensor.shape[dim])
                .collect();
            let one = NdBox { start: dims(&index), size: dims(&vec![1; index.len()]) };
            if let Some(part) = tensor.boxes.iter().find_map(|part| part.cut(&one)) {
                *value = file[part.start as usize];
            }
        }
        found
    }

    #[test]
    fn parts_are_cut_turned_and_stacked_without_their_bytes() {
        let file: Vec<u8> = (0..24).collect();
        let whole = stored(&[4, 6], vec![StoredBox::row_major(0, 0, dims(&[4, 6]), 1)]);
        assert_eq!(bytes(&whole, &file), file);
        let turned = whole.transposed().unwrap();
        assert_eq!(bytes(&turned, &file)[..5], [0, 6, 12, 18, 1]);
        assert_eq!(bytes(&turned.transposed().unwrap(), &file), file);
        let cut = stored(&[2, 6], whole.moved(0, &[(1, 0, 2)]));
        assert_eq!(bytes(&cut, &file), file[6..18]);
        let row = stored(&[6], whole.unstacked(2));
        assert_eq!(bytes(&row, &file), file[12..18]);
        let stack = stored(&[1, 6], row.stacked(0).unwrap());
        assert_eq!(bytes(&stack, &file), file[12..18]);
    }

    #[test]
    fn parts_that_leave_their_file_or_a_hole_are_refused() {
        let part = |start, shape: &[u64]| StoredBox::row_major(0, start, dims(shape), 1);
        let at = |row: u64, part: StoredBox| {
            let mut part = part;
            part.area.start[0] = row;
            part
        };
        let check = |tensor: StoredTensor| tensor.check(|_| 24).map_err(|error| error.to_string());
        assert_eq!(check(stored(&[4, 6], vec![part(0, &[4, 6])])), Ok(()));
        assert!(check(stored(&[4, 6], vec![part(1, &[4, 6])])).unwrap_err().contains("past"));
        let halves = |row| vec![part(0, &[2, 6]), at(row, part(12, &[2, 6]))];
        assert_eq!(check(stored(&[4, 6], halves(2))), Ok(()));
        assert!(check(stored(&[4, 6], halves(1))).unwrap_err().contains("overlap"));
        assert!(check(stored(&[5, 6], halves(2))).unwrap_err().contains("24 of 30 elements"));
        assert!(check(stored(&[3, 6], halves(2))).is_err());
    }
}
