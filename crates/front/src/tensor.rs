//! Tensors: a buffer, a shape and an element type.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Index, Range};

use syncline_device::{Buffer, Element};
use syncline_tensor::{View, ViewError};

use crate::{Commute, Error, ErrorKind, Read, Reduce, Result, Update, Write};

/// Elements of one type in a buffer, in up to eight dimensions. Clones, slices and tiles are
/// handles of the same elements: none is copied.
///
/// A tensor says which bytes a task touches, and [`Tensor::read`], [`Tensor::write`] and
/// [`Tensor::update`] say how.
///
/// ```
/// use syncline_front::Tensor;
///
/// let matrix = Tensor::from_vec([2, 3], vec![1, 2, 3, 4, 5, 6])?;
/// assert_eq!(matrix.slice(1, 1..3)?.to_vec()?, [2, 3, 5, 6]);
/// assert_eq!(matrix.transpose(0, 1)?.to_vec()?, [1, 4, 2, 5, 3, 6]);
/// # Ok::<(), syncline_front::Error>(())
/// ```
pub struct Tensor<T> {
    buffer: Buffer,
    view: View,
    element: PhantomData<fn() -> T>,
}

impl<T> Clone for Tensor<T> {
    fn clone(&self) -> Self {
        Self { buffer: self.buffer.clone(), view: self.view, element: PhantomData }
    }
}

impl<T> fmt::Debug for Tensor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({:?} of {})", self.view, self.buffer.id())
    }
}

/// The sizes of a shape as views have them.
fn sizes(shape: &[usize]) -> Vec<u64> {
    shape.iter().map(|&size| size as u64).collect()
}

impl<T: Element> Tensor<T> {
    /// The elements of `view` in `buffer`.
    ///
    /// # Errors
    /// They are not `T`s, or do not lie inside.
    pub fn from_parts(buffer: &Buffer, view: View) -> Result<Self> {
        if !T::holds(view.dtype()) {
            let message = format!("elements of {} as a tensor of {}", view.dtype(), T::DTYPE);
            return Err(Error::new(ErrorKind::Shape, message));
        }
        buffer.view(view)?;
        Ok(Self { buffer: buffer.clone(), view, element: PhantomData })
    }

    /// The buffer's elements from the first byte on.
    pub(crate) fn packed(buffer: &Buffer, shape: &[usize]) -> Result<Self> {
        Self::from_parts(buffer, View::contiguous(T::DTYPE, &sizes(shape))?)
    }

    /// A tensor over the vector's own memory.
    ///
    /// # Errors
    /// There are more or fewer elements than the shape says.
    pub fn from_vec(shape: impl AsRef<[usize]>, elements: Vec<T>) -> Result<Self> {
        let shape = shape.as_ref();
        check_count(shape, elements.len())?;
        Self::packed(&Buffer::from(elements), shape)
    }

    /// A tensor of zeroes in memory of the host.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn zeros(shape: impl AsRef<[usize]>) -> Result<Self> {
        let view = View::contiguous(T::DTYPE, &sizes(shape.as_ref()))?;
        Self::from_parts(&Buffer::zeroed(view.bytes())?, view)
    }

    /// The buffer that the elements are in.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// Which of the buffer's bytes they are.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Elements along each dimension.
    pub fn shape(&self) -> Vec<usize> {
        self.view.shape().iter().map(|&size| size as usize).collect()
    }

    /// Elements along dimension `dim`; one beyond the last.
    pub fn size(&self, dim: usize) -> usize {
        self.view.shape().get(dim).map_or(1, |&size| size as usize)
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.view.rank()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.view.elements() as usize
    }

    /// Returns `true` if there is no element.
    pub fn is_empty(&self) -> bool {
        self.view.is_empty()
    }

    fn with(&self, view: Result<View, ViewError>) -> Result<Self> {
        Ok(Self { buffer: self.buffer.clone(), view: view?, element: PhantomData })
    }

    /// The elements `range` along dimension `dim`.
    ///
    /// # Errors
    /// There is no such dimension, or it is shorter.
    pub fn slice(&self, dim: usize, range: Range<usize>) -> Result<Self> {
        self.with(self.view.slice(dim, range.start as u64..range.end as u64))
    }

    /// The elements at `index` along dimension `dim`, without that dimension.
    ///
    /// # Errors
    /// As [`Tensor::slice`].
    pub fn index(&self, dim: usize, index: usize) -> Result<Self> {
        self.with(self.view.index(dim, index as u64))
    }

    /// The same elements with dimensions `a` and `b` exchanged.
    ///
    /// # Errors
    /// There are no such dimensions.
    pub fn transpose(&self, a: usize, b: usize) -> Result<Self> {
        self.with(self.view.transpose(a, b))
    }

    /// The same elements, dimension `i` of the result being dimension `order[i]` of this tensor.
    ///
    /// # Errors
    /// `order` does not name each dimension once.
    pub fn permute(&self, order: &[usize]) -> Result<Self> {
        self.with(self.view.permute(order))
    }

    /// The same elements in the same order under another shape.
    ///
    /// # Errors
    /// The count differs, or elements would have to move: copy the tensor first.
    pub fn reshape(&self, shape: impl AsRef<[usize]>) -> Result<Self> {
        self.with(self.view.reshape(&sizes(shape.as_ref())))
    }

    /// The same elements, repeated to `shape` as numpy does: sizes of one, and dimensions that are
    /// missing on the left, take any size. Such a tensor can be read only.
    ///
    /// # Errors
    /// Another size differs.
    pub fn broadcast(&self, shape: impl AsRef<[usize]>) -> Result<Self> {
        let (to, own) = (sizes(shape.as_ref()), self.view.shape());
        let missing = to.len().checked_sub(own.len());
        let fits = |missing: usize| own.iter().zip(&to[missing..]).all(|(a, b)| a == b || *a == 1);
        let Some(missing) = missing.filter(|&missing| fits(missing)) else {
            let message = format!("a tensor of shape {own:?} cannot be broadcast to {to:?}");
            return Err(Error::new(ErrorKind::Shape, message));
        };
        let stride = |dim: usize| match dim.checked_sub(missing) {
            Some(own_dim) if own[own_dim] == to[dim] => self.view.strides()[own_dim],
            _ => 0,
        };
        let strides: Vec<i64> = (0..to.len()).map(stride).collect();
        self.with(View::strided(self.view.dtype(), self.view.offset(), &to, &strides))
    }

    /// The tensor in tiles of at most `size`: those at the ends are smaller where it does not
    /// divide the shape.
    ///
    /// ```
    /// use syncline_front::Tensor;
    ///
    /// let tiles = Tensor::<f32>::zeros([10, 8])?.tiles([4, 4])?;
    /// assert_eq!((tiles.rows(), tiles.cols()), (3, 2));
    /// assert_eq!(tiles[[2, 1]].shape(), [2, 4]);
    /// # Ok::<(), syncline_front::Error>(())
    /// ```
    ///
    /// # Errors
    /// `size` has another rank than the tensor, or a zero.
    pub fn tiles(&self, size: impl AsRef<[usize]>) -> Result<Tiles<T>> {
        let size = size.as_ref();
        if size.len() != self.rank() || size.contains(&0) {
            let message = format!("tiles of {size:?} in a tensor of shape {:?}", self.shape());
            return Err(Error::new(ErrorKind::Shape, message));
        }
        let (mut counts, mut tiles) = (Vec::new(), vec![self.clone()]);
        for (dim, &step) in size.iter().enumerate() {
            let all = self.size(dim);
            counts.push(all.div_ceil(step));
            let mut parts = Vec::with_capacity(tiles.len() * counts[dim]);
            for tile in &tiles {
                for start in (0..all).step_by(step) {
                    parts.push(tile.slice(dim, start..all.min(start + step))?);
                }
            }
            tiles = parts;
        }
        Ok(Tiles { tiles, counts })
    }

    /// A task reads the elements.
    pub fn read(&self) -> Read<'_, T> {
        Read(self)
    }

    /// A task writes all elements, and reads none of them before.
    pub fn write(&self) -> Write<'_, T> {
        Write(self)
    }

    /// A task reads and writes the elements.
    pub fn update(&self) -> Update<'_, T> {
        Update(self)
    }

    /// A task adds to the elements, in any order with other tasks that do.
    pub fn reduce(&self) -> Reduce<'_, T> {
        Reduce(self)
    }

    /// A task reads and writes the elements, in any order with other tasks that commute.
    pub fn commute(&self) -> Commute<'_, T> {
        Commute(self)
    }

    /// The elements in order, after all work that writes them.
    ///
    /// # Errors
    /// Such work failed, or the calling thread itself keeps the buffer in use.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        Ok(self.buffer.view(self.view)?.to_vec()?)
    }

    /// Replaces the elements, given in order, after all work that uses them.
    ///
    /// # Errors
    /// There are more or fewer; or as [`Tensor::to_vec`].
    pub fn fill_from(&self, elements: &[T]) -> Result<()> {
        check_count(&self.shape(), elements.len())?;
        Ok(self.buffer.view(self.view)?.write_all(elements)?)
    }
}

pub(crate) fn check_count(shape: &[usize], given: usize) -> Result<()> {
    let count = shape.iter().try_fold(1usize, |count, &size| count.checked_mul(size));
    match count {
        Some(count) if count == given => Ok(()),
        _ => {
            let count = count.map_or("too many".to_owned(), |count| count.to_string());
            let message =
                format!("a tensor of shape {shape:?} has {count} elements, {given} were given");
            Err(Error::new(ErrorKind::Shape, message))
        }
    }
}

/// A one-dimensional tensor over the vector's own memory.
impl<T: Element> From<Vec<T>> for Tensor<T> {
    fn from(elements: Vec<T>) -> Self {
        let shape = [elements.len()];
        Self::from_vec(shape, elements).expect("as many elements as the shape says")
    }
}

/// A tensor cut into tiles, by the indices of each.
#[derive(Clone, Debug)]
pub struct Tiles<T> {
    tiles: Vec<Tensor<T>>,
    counts: Vec<usize>,
}

impl<T> Tiles<T> {
    /// Tiles along each dimension.
    pub fn counts(&self) -> &[usize] {
        &self.counts
    }

    /// Tiles along the first dimension.
    pub fn rows(&self) -> usize {
        self.counts.first().copied().unwrap_or(1)
    }

    /// Tiles along the second dimension.
    pub fn cols(&self) -> usize {
        self.counts.get(1).copied().unwrap_or(1)
    }

    /// All tiles, those along the last dimension side by side.
    pub fn iter(&self) -> std::slice::Iter<'_, Tensor<T>> {
        self.tiles.iter()
    }

    /// The tile at `index`, if there is one.
    pub fn get(&self, index: &[usize]) -> Option<&Tensor<T>> {
        if index.len() != self.counts.len() {
            return None;
        }
        let mut place = 0;
        for (&at, &count) in index.iter().zip(&self.counts) {
            if at >= count {
                return None;
            }
            place = place * count + at;
        }
        self.tiles.get(place)
    }
}

impl<T, const N: usize> Index<[usize; N]> for Tiles<T> {
    type Output = Tensor<T>;

    fn index(&self, index: [usize; N]) -> &Tensor<T> {
        let counts = &self.counts;
        self.get(&index).unwrap_or_else(|| panic!("tile {index:?} of {counts:?}"))
    }
}
