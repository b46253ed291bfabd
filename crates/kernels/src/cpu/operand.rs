//! Operands: arguments of any dtype and strides, loaded and stored a row at a time.

use syncline_device::{DeviceError, KernelArgs};
use syncline_tensor::{Dtype, MAX_DIMS, View};

use super::number::Number;

/// An argument as its address, dtype, shape and strides.
///
/// Operands may overlap: nothing here makes a reference to an element, and a body reads all it
/// needs of a row before it stores that row. Nothing outside of an operand is ever reached,
/// whatever a body asks for.
#[derive(Clone, Copy)]
pub(crate) struct Operand<'a> {
    base: *mut u8,
    view: &'a View,
    writes: bool,
}

impl<'a> Operand<'a> {
    /// Argument `arg`, to read.
    pub(crate) fn read(args: &KernelArgs<'a>, arg: usize) -> Result<Self, DeviceError> {
        Ok(Self { base: args.pointer(arg)?, view: args.view(arg)?, writes: false })
    }

    /// Argument `arg`, to write.
    pub(crate) fn write(args: &KernelArgs<'a>, arg: usize) -> Result<Self, DeviceError> {
        if !args.writes(arg)? {
            let message = "it is an input, and the kernel writes it".to_owned();
            return Err(DeviceError::BadArgument { arg, message });
        }
        Ok(Self { writes: true, ..Self::read(args, arg)? })
    }

    /// Elements along each dimension.
    pub(crate) fn shape(&self) -> &'a [u64] {
        self.view.shape()
    }

    /// The element type.
    pub(crate) fn dtype(&self) -> Dtype {
        self.view.dtype()
    }

    /// The number of rows: one for a scalar, none where a dimension but the last is empty.
    pub(crate) fn rows(&self) -> u64 {
        let shape = self.shape();
        // Where the rows are empty, there may be any number of them.
        let outer = &shape[..shape.len().saturating_sub(1)];
        if outer.contains(&0) { 0 } else { outer.iter().fold(1, |rows, &n| rows.saturating_mul(n)) }
    }

    /// Elements in a row: along the last dimension.
    pub(crate) fn row_len(&self) -> usize {
        self.shape().last().map_or(1, |&size| size as usize)
    }

    /// Loads elements `start..start + into.len()` of row `row`.
    pub(crate) fn load<N: Number>(&self, row: u64, start: usize, into: &mut [N]) {
        let (place, stride) = self.locate(row, start, into.len());
        let dtype = self.dtype();
        for (count, number) in into.iter_mut().enumerate() {
            let pointer = place.wrapping_offset(count as isize * stride);
            // SAFETY: `locate` checked that the elements lie in the view, whose bytes the kernel
            // may read.
            *number = unsafe { N::load(dtype, pointer) };
        }
    }

    /// Stores elements `start..start + from.len()` of row `row`.
    pub(crate) fn store<N: Number>(&self, row: u64, start: usize, from: &[N]) {
        assert!(self.writes, "an operand that was taken for reading");
        let (place, stride) = self.locate(row, start, from.len());
        let dtype = self.dtype();
        for (count, number) in from.iter().enumerate() {
            let pointer = place.wrapping_offset(count as isize * stride);
            // SAFETY: as in `load`, and the argument is one that the kernel may write.
            unsafe { number.store(dtype, pointer) };
        }
    }

    /// The address of a two-dimensional operand and its strides in elements, for code that takes
    /// pointers; `None` where the elements are not of `dtype` or do not lie on whole elements.
    pub(crate) fn matrix(&self, dtype: Dtype) -> Option<(*mut u8, [isize; 2])> {
        let bytes = dtype.bytes() as i64;
        let aligned = (self.base as u64).is_multiple_of(dtype.bytes());
        let strides = self.view.strides();
        if self.dtype() != dtype || strides.len() != 2 || !aligned {
            return None;
        }
        let whole = strides.iter().all(|stride| stride % bytes == 0);
        whole.then(|| (self.base, [(strides[0] / bytes) as isize, (strides[1] / bytes) as isize]))
    }

    /// Room for `count` numbers.
    ///
    /// # Errors
    /// There is no memory for them.
    pub(crate) fn room<N: Number>(count: usize) -> Result<Vec<N>, DeviceError> {
        let mut numbers = Vec::new();
        numbers.try_reserve_exact(count).map_err(|_| {
            let message = format!("no memory to work on {count} of its elements at a time");
            DeviceError::BadArgument { arg: 0, message }
        })?;
        numbers.resize(count, N::default());
        Ok(numbers)
    }

    /// The address of element `start` of row `row` and the stride there, after checking that
    /// `count` elements follow.
    fn locate(&self, row: u64, start: usize, count: usize) -> (*mut u8, isize) {
        let (shape, strides) = (self.view.shape(), self.view.strides());
        let end = start.checked_add(count);
        assert!(
            row < self.rows() && end.is_some_and(|end| end <= self.row_len()),
            "row {row}, {count} elements from {start} on, of {shape:?}"
        );
        if count == 0 {
            return (self.base, 0);
        }
        let Some(last) = shape.len().checked_sub(1) else { return (self.base, 0) };
        let mut index = [0u64; MAX_DIMS];
        let mut left = row;
        for dim in (0..last).rev() {
            index[dim] = left % shape[dim].max(1);
            left /= shape[dim].max(1);
        }
        let outer: i64 = (0..last).map(|dim| index[dim] as i64 * strides[dim]).sum();
        let bytes = outer + start as i64 * strides[last];
        (self.base.wrapping_offset(bytes as isize), strides[last] as isize)
    }
}
