//! Arguments as typed, strided references: rows as slices, elements by index, at the speed of
//! pointers.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

use syncline_tensor::View;

use super::KernelArgs;
use super::args::bad;
use crate::{DeviceError, Element};

/// How a view lies as rows: all dimensions but the last are one, where strides allow.
#[derive(Clone, Copy, Debug)]
struct Plane {
    rows: usize,
    columns: usize,
    /// In bytes.
    row_stride: isize,
    column_stride: isize,
}

impl Plane {
    fn of(view: &View) -> Option<Self> {
        let (shape, strides) = (view.shape(), view.strides());
        if view.is_empty() {
            let columns = shape.last().map_or(0, |&size| size as usize);
            return Some(Self { rows: 0, columns, row_stride: 0, column_stride: 0 });
        }
        let Some((&columns, rest)) = shape.split_last() else {
            return Some(Self { rows: 1, columns: 1, row_stride: 0, column_stride: 0 });
        };
        let mut plane = Self {
            rows: 1,
            columns: columns as usize,
            row_stride: 0,
            column_stride: strides[rest.len()] as isize,
        };
        for (&size, &stride) in rest.iter().zip(strides).rev().filter(|(size, _)| **size > 1) {
            match plane.rows {
                1 => plane.row_stride = stride as isize,
                rows if stride as isize == plane.row_stride * rows as isize => {}
                _ => return None,
            }
            plane.rows *= size as usize;
        }
        Some(plane)
    }
}

/// An argument of a body, to read: a tensor whose rows are slices.
///
/// A *row* runs along the last dimension; all other dimensions together number the rows.
pub struct TensorRef<'a, T> {
    base: *mut T,
    view: &'a View,
    /// `None` where rows are not evenly spaced.
    plane: Option<Plane>,
    element: PhantomData<&'a T>,
}

/// An argument of a body, to read and write; see [`TensorRef`].
pub struct TensorMut<'a, T>(TensorRef<'a, T>);

// SAFETY: as `&[T]`; an `Element` is `Sync`.
unsafe impl<T: Element> Send for TensorRef<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Element> Sync for TensorRef<'_, T> {}
// SAFETY: as `&mut [T]`; an `Element` is `Send`.
unsafe impl<T: Element> Send for TensorMut<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Element> Sync for TensorMut<'_, T> {}

impl<T> Clone for TensorRef<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for TensorRef<'_, T> {}

impl<'a> KernelArgs<'a> {
    /// Any argument, to read.
    ///
    /// # Errors
    /// Elements of another type, or bytes of an argument that was taken for writing.
    #[inline]
    pub fn tensor<T: Element>(&self, arg: usize) -> Result<TensorRef<'a, T>, DeviceError> {
        let base = self.typed::<T>(arg)?;
        self.take_shared(arg)?;
        let view = self.view(arg)?;
        Ok(TensorRef { base, view, plane: Plane::of(view), element: PhantomData })
    }

    /// Any argument, to read and write.
    ///
    /// # Errors
    /// Also an input, bytes of an argument that was taken, and elements that share bytes.
    #[inline]
    pub fn tensor_mut<T: Element>(&self, arg: usize) -> Result<TensorMut<'a, T>, DeviceError> {
        let base = self.typed::<T>(arg)?;
        let view = self.view(arg)?;
        if view.shares_bytes() {
            return Err(bad(arg, format!("elements of {view:?} share bytes")));
        }
        self.take_unique(arg)?;
        Ok(TensorMut(TensorRef { base, view, plane: Plane::of(view), element: PhantomData }))
    }
}

impl<'a, T: Element> TensorRef<'a, T> {
    /// Elements along each dimension.
    pub fn shape(&self) -> &'a [u64] {
        self.view.shape()
    }

    /// Elements along dimension `dim`; one beyond the last.
    #[inline]
    pub fn size(&self, dim: usize) -> usize {
        self.view.shape().get(dim).map_or(1, |&size| size as usize)
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.view.elements() as usize
    }

    /// Returns `true` if there is no element.
    pub fn is_empty(&self) -> bool {
        self.view.is_empty()
    }

    /// Number of rows.
    #[inline]
    pub fn row_count(&self) -> usize {
        self.plane().rows
    }

    /// Row number `row`.
    ///
    /// # Panics
    /// There is no such row, or elements of a row do not lie side by side (those of a transposed
    /// tensor, for example): use indices or [`TensorRef::iter`] then.
    #[inline]
    pub fn row(&self, row: usize) -> &'a [T] {
        let (start, columns) = self.row_start(row);
        // SAFETY: `row_start` checked that the row is inside and without gaps; `KernelArgs::tensor`
        // found the elements aligned, of type `T`, and not taken for writing.
        unsafe { std::slice::from_raw_parts(start, columns) }
    }

    /// All rows.
    ///
    /// # Panics
    /// As [`TensorRef::row`].
    #[inline]
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &'a [T]> + use<'a, T> {
        let this = *self;
        (0..this.row_count()).map(move |row| this.row(row))
    }

    /// All elements in order, if they lie without gaps.
    #[inline]
    pub fn as_slice(&self) -> Option<&'a [T]> {
        // SAFETY: as in `row`; a contiguous view has its elements side by side.
        self.view
            .is_contiguous()
            .then(|| unsafe { std::slice::from_raw_parts(self.base, self.len()) })
    }

    /// All elements in order, however they lie.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = T> + use<'a, T> {
        let this = *self;
        let (rows, columns) = match this.plane {
            Some(plane) => (plane.rows, plane.columns),
            None => (
                this.len() / this.size(this.view.rank() - 1).max(1),
                this.size(this.view.rank() - 1),
            ),
        };
        (0..rows).flat_map(move |row| {
            let (start, stride) = match this.plane {
                Some(plane) => (
                    this.base.wrapping_byte_offset(row as isize * plane.row_stride),
                    plane.column_stride,
                ),
                None => this.scattered_row(row),
            };
            // SAFETY: an element of the view, as for `row`.
            (0..columns)
                .map(move |at| unsafe { start.wrapping_byte_offset(at as isize * stride).read() })
        })
    }

    /// The elements in order.
    pub fn to_vec(&self) -> Vec<T> {
        match self.as_slice() {
            Some(slice) => slice.to_vec(),
            None => self.iter().collect(),
        }
    }

    #[cold]
    fn scattered_row(&self, mut row: usize) -> (*mut T, isize) {
        let (shape, strides) = (self.view.shape(), self.view.strides());
        let last = shape.len() - 1;
        let mut bytes = 0;
        for dim in (0..last).rev() {
            bytes += (row % shape[dim] as usize) as isize * strides[dim] as isize;
            row /= shape[dim] as usize;
        }
        (self.base.wrapping_byte_offset(bytes), strides[last] as isize)
    }

    #[inline]
    fn plane(&self) -> Plane {
        self.plane.unwrap_or_else(|| panic!("rows of {:?} are not evenly spaced", self.view))
    }

    #[inline]
    fn row_start(&self, row: usize) -> (*mut T, usize) {
        let plane = self.plane();
        assert!(row < plane.rows, "row {row} of {}", plane.rows);
        assert!(
            plane.columns <= 1 || plane.column_stride == size_of::<T>() as isize,
            "rows of {:?} have gaps: use indices or `iter`",
            self.view
        );
        (self.base.wrapping_byte_offset(row as isize * plane.row_stride), plane.columns)
    }

    #[inline]
    fn place(&self, index: &[usize]) -> *mut T {
        let (shape, strides) = (self.view.shape(), self.view.strides());
        assert_eq!(index.len(), shape.len(), "an index of the tensor's rank");
        let mut bytes = 0;
        for ((&at, &size), &stride) in index.iter().zip(shape).zip(strides) {
            assert!((at as u64) < size, "index {index:?} of shape {shape:?}");
            bytes += at as isize * stride as isize;
        }
        self.base.wrapping_byte_offset(bytes)
    }
}

impl<T: Element, const N: usize> Index<[usize; N]> for TensorRef<'_, T> {
    type Output = T;

    #[inline]
    fn index(&self, index: [usize; N]) -> &T {
        // SAFETY: `place` is the address of an element inside; the rest as in `TensorRef::row`.
        unsafe { &*self.place(&index) }
    }
}

impl<T: Element> TensorMut<'_, T> {
    /// The same, to read.
    #[inline]
    pub fn as_ref(&self) -> TensorRef<'_, T> {
        self.0
    }

    /// Elements along each dimension.
    pub fn shape(&self) -> &[u64] {
        self.0.shape()
    }

    /// Elements along dimension `dim`; one beyond the last.
    #[inline]
    pub fn size(&self, dim: usize) -> usize {
        self.0.size(dim)
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns `true` if there is no element.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of rows.
    #[inline]
    pub fn row_count(&self) -> usize {
        self.0.row_count()
    }

    /// Row number `row`.
    ///
    /// # Panics
    /// As [`TensorRef::row`].
    #[inline]
    pub fn row(&self, row: usize) -> &[T] {
        self.0.row(row)
    }

    /// Row number `row`, to write.
    ///
    /// # Panics
    /// As [`TensorRef::row`].
    #[inline]
    pub fn row_mut(&mut self, row: usize) -> &mut [T] {
        let (start, columns) = self.0.row_start(row);
        // SAFETY: as in `TensorRef::row`; nothing else that was taken overlaps these bytes, and
        // this borrow of the only reference is exclusive.
        unsafe { std::slice::from_raw_parts_mut(start, columns) }
    }

    /// Row `read` to read, and another row `write` to write.
    ///
    /// # Panics
    /// As [`TensorRef::row`], and if both are the same row.
    #[inline]
    pub fn row_and_row_mut(&mut self, read: usize, write: usize) -> (&[T], &mut [T]) {
        assert_ne!(read, write, "one row to read and to write");
        let (source, columns) = self.0.row_start(read);
        let (target, _) = self.0.row_start(write);
        // SAFETY: as in `row` and `row_mut`; no two elements of the view share bytes, so that two
        // rows are disjoint.
        unsafe {
            let source = std::slice::from_raw_parts(source, columns);
            (source, std::slice::from_raw_parts_mut(target, columns))
        }
    }

    /// All rows, to write.
    ///
    /// # Panics
    /// As [`TensorRef::row`].
    #[inline]
    pub fn rows_mut(&mut self) -> impl ExactSizeIterator<Item = &mut [T]> {
        let all = self.0;
        (0..all.row_count()).map(move |row| {
            let (start, columns) = all.row_start(row);
            // SAFETY: as in `row_mut`; each row is given once, and rows are disjoint.
            unsafe { std::slice::from_raw_parts_mut(start, columns) }
        })
    }

    /// All elements in order, if they lie without gaps.
    #[inline]
    pub fn as_slice(&self) -> Option<&[T]> {
        self.0.as_slice()
    }

    /// All elements in order, to write, if they lie without gaps.
    #[inline]
    pub fn as_mut_slice(&mut self) -> Option<&mut [T]> {
        let (base, len) = (self.0.base, self.0.len());
        // SAFETY: as in `row_mut`; a contiguous view has its elements side by side.
        self.0.view.is_contiguous().then(|| unsafe { std::slice::from_raw_parts_mut(base, len) })
    }

    /// All elements in order, however they lie.
    pub fn iter(&self) -> impl Iterator<Item = T> {
        self.0.iter()
    }

    /// Replaces every element by what `compute` makes of it.
    #[inline]
    pub fn apply(&mut self, mut compute: impl FnMut(T) -> T) {
        let all = self.0;
        let (rows, columns) = match all.plane {
            Some(plane) => (plane.rows, plane.columns),
            None => {
                (all.len() / all.size(all.view.rank() - 1).max(1), all.size(all.view.rank() - 1))
            }
        };
        for row in 0..rows {
            let (start, stride) = match all.plane {
                Some(plane) => (
                    all.base.wrapping_byte_offset(row as isize * plane.row_stride),
                    plane.column_stride,
                ),
                None => all.scattered_row(row),
            };
            for at in 0..columns {
                let place = start.wrapping_byte_offset(at as isize * stride);
                // SAFETY: an element of the view; the rest as in `row_mut`.
                unsafe { place.write(compute(place.read())) };
            }
        }
    }

    /// Makes every element `value`.
    pub fn fill(&mut self, value: T) {
        self.apply(|_| value);
    }

    /// Copies the elements of `source`, which has as many, in order.
    ///
    /// # Panics
    /// There are more or fewer.
    pub fn copy_from(&mut self, source: &TensorRef<'_, T>) {
        assert_eq!(self.len(), source.len(), "elements of {:?}", source.view);
        let mut elements = source.iter();
        self.apply(|old| elements.next().unwrap_or(old));
    }
}

impl<T: Element, const N: usize> Index<[usize; N]> for TensorMut<'_, T> {
    type Output = T;

    #[inline]
    fn index(&self, index: [usize; N]) -> &T {
        // SAFETY: as for `TensorRef`.
        unsafe { &*self.0.place(&index) }
    }
}

impl<T: Element, const N: usize> IndexMut<[usize; N]> for TensorMut<'_, T> {
    #[inline]
    fn index_mut(&mut self, index: [usize; N]) -> &mut T {
        // SAFETY: an element inside; the rest as in `row_mut`.
        unsafe { &mut *self.0.place(&index) }
    }
}

impl<T> fmt::Debug for TensorRef<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TensorRef({:?})", self.view)
    }
}

impl<T> fmt::Debug for TensorMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TensorMut({:?})", self.0.view)
    }
}
