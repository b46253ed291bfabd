//! Products and transposes of matrices.

use syncline_device::{DeviceError, KernelArgs};
use syncline_tensor::Dtype;

use super::number::{Number, with_number};
use super::operand::Operand;

type Done = Result<(), DeviceError>;

/// A matrix in memory of its own, rows one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Dense<N> {
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
    /// The elements.
    pub numbers: Vec<N>,
}

impl<N: Number> Dense<N> {
    /// A copy of a two-dimensional operand.
    pub(crate) fn load(operand: &Operand<'_>) -> Result<Self, DeviceError> {
        let (height, width) = (operand.rows() as usize, operand.row_len());
        let mut numbers = Operand::room(height.saturating_mul(width))?;
        for (row, block) in numbers.chunks_exact_mut(width.max(1)).enumerate() {
            operand.load(row as u64, 0, block);
        }
        Ok(Self { height, width, numbers })
    }

    /// Row `row`.
    pub(crate) fn row(&self, row: usize) -> &[N] {
        &self.numbers[row * self.width..][..self.width]
    }

    /// Row `row`, to be changed.
    pub(crate) fn row_mut(&mut self, row: usize) -> &mut [N] {
        &mut self.numbers[row * self.width..][..self.width]
    }
}

/// `c = alpha * op(a) * op(b) + beta * c`, where `op` transposes if its scalar says so.
pub(crate) fn gemm(args: &mut KernelArgs<'_>) -> Done {
    let (a, b, c) = (Operand::read(args, 0)?, Operand::read(args, 1)?, Operand::write(args, 2)?);
    let (alpha, beta) = (args.scalar(0)?.as_f64(), args.scalar(1)?.as_f64());
    let (swap_a, swap_b) = (args.scalar(2)?.as_bool(), args.scalar(3)?.as_bool());
    if c.dtype() == Dtype::F64 {
        product_in_place::<f64>(&a, &b, &c, alpha, beta, [swap_a, swap_b])
    } else {
        product_in_place::<f32>(&a, &b, &c, alpha as f32, beta as f32, [swap_a, swap_b])
    }
}

/// The lower triangle of `c = alpha * a * aT + beta * c`; elements above the diagonal stay.
pub(crate) fn syrk(args: &mut KernelArgs<'_>) -> Done {
    let (a, c) = (Operand::read(args, 0)?, Operand::write(args, 1)?);
    let (alpha, beta) = (args.scalar(0)?.as_f32(), args.scalar(1)?.as_f32());
    let mut sum = Dense::<f32>::load(&c)?;
    let order = sum.height;
    let factor = Factor::of(&a, false)?;
    let transposed = factor.borrowed().transposed();
    let into = Factor::to(&mut sum);
    compute(&factor, &transposed, &into, alpha, beta)?;
    for row in 0..order {
        c.store(row as u64, 0, &sum.row(row)[..=row]);
    }
    Ok(())
}

/// `target = source` with rows and columns exchanged.
pub(crate) fn transpose(args: &mut KernelArgs<'_>) -> Done {
    let (source, target) = (Operand::read(args, 0)?, Operand::write(args, 1)?);
    with_number!(target.dtype(), N => {
        let from = Dense::<N>::load(&source)?;
        let mut column = Operand::room(from.height)?;
        for row in 0..from.width {
            column.iter_mut().enumerate().for_each(|(at, x)| *x = from.row(at)[row]);
            target.store(row as u64, 0, &column);
        }
    });
    Ok(())
}

fn product_in_place<N: Gemm>(
    a: &Operand<'_>,
    b: &Operand<'_>,
    c: &Operand<'_>,
    alpha: N,
    beta: N,
    [swap_a, swap_b]: [bool; 2],
) -> Done {
    let (a, b) = (Factor::of(a, swap_a)?, Factor::of(b, swap_b)?);
    if let Some(target) = Factor::where_it_lies(c) {
        return compute(&a, &b, &target, alpha, beta);
    }
    let mut sum = Dense::<N>::load(c)?;
    compute(&a, &b, &Factor::to(&mut sum), alpha, beta)?;
    for row in 0..sum.height {
        c.store(row as u64, 0, sum.row(row));
    }
    Ok(())
}

/// A matrix by address, sizes and strides in elements: an operand where it lies, or a copy of one.
struct Factor<N> {
    pointer: *mut N,
    sizes: [usize; 2],
    strides: [isize; 2],
    /// The copy that `pointer` points into, if it is one.
    owned: Option<Dense<N>>,
}

impl<N: Gemm> Factor<N> {
    /// An operand, where it lies if its elements are `N`s.
    fn of(operand: &Operand<'_>, swap: bool) -> Result<Self, DeviceError> {
        let factor = match Self::where_it_lies(operand) {
            Some(factor) => factor,
            None => {
                let mut copy = Dense::load(operand)?;
                Self::to(&mut copy).keep(copy)
            }
        };
        Ok(if swap { factor.transposed() } else { factor })
    }

    /// An operand where it lies, if its elements are `N`s.
    fn where_it_lies(operand: &Operand<'_>) -> Option<Self> {
        let (pointer, strides) = operand.matrix(N::DTYPE)?;
        let sizes = [operand.rows() as usize, operand.row_len()];
        Some(Self { pointer: pointer.cast(), sizes, strides, owned: None })
    }

    fn transposed(mut self) -> Self {
        self.sizes.swap(0, 1);
        self.strides.swap(0, 1);
        self
    }

    fn to(dense: &mut Dense<N>) -> Self {
        Self {
            pointer: dense.numbers.as_mut_ptr(),
            sizes: [dense.height, dense.width],
            strides: [dense.width as isize, 1],
            owned: None,
        }
    }

    fn keep(mut self, copy: Dense<N>) -> Self {
        // Moving a `Dense` does not move its elements.
        self.owned = Some(copy);
        self
    }

    fn borrowed(&self) -> Self {
        Self { owned: None, ..*self }
    }
}

/// `c = alpha * a * b + beta * c`
fn compute<N: Gemm>(a: &Factor<N>, b: &Factor<N>, c: &Factor<N>, alpha: N, beta: N) -> Done {
    let [height, width] = c.sizes;
    let depth = a.sizes[1];
    if a.sizes != [height, depth] || b.sizes != [depth, width] {
        let message = format!("{:?} times {:?} does not give {:?}", a.sizes, b.sizes, c.sizes);
        return Err(DeviceError::BadArgument { arg: 0, message });
    }
    // SAFETY: the sizes go together, as was just checked, so that all elements that the product
    // reaches lie in operands of the kernel, or in a copy of one that the factor keeps. A target is
    // an operand that may be written.
    unsafe {
        N::gemm(
            [height, depth, width],
            alpha,
            (a.pointer, a.strides),
            (b.pointer, b.strides),
            beta,
            (c.pointer, c.strides),
        )
    }
    Ok(())
}

/// A number type with a fast product.
trait Gemm: Number {
    const DTYPE: Dtype;

    /// # Safety
    /// Every element that pointers, strides and sizes reach must be readable, and for `c` writable.
    unsafe fn gemm(
        sizes: [usize; 3],
        alpha: Self,
        a: (*mut Self, [isize; 2]),
        b: (*mut Self, [isize; 2]),
        beta: Self,
        c: (*mut Self, [isize; 2]),
    );
}

macro_rules! gemm {
    ($number:ty, $dtype:ident, $function:path) => {
        impl Gemm for $number {
            const DTYPE: Dtype = Dtype::$dtype;

            unsafe fn gemm(
                [height, depth, width]: [usize; 3],
                alpha: Self,
                (a, [a_row, a_column]): (*mut Self, [isize; 2]),
                (b, [b_row, b_column]): (*mut Self, [isize; 2]),
                beta: Self,
                (c, [c_row, c_column]): (*mut Self, [isize; 2]),
            ) {
                // SAFETY: the caller's promise is this function's.
                unsafe {
                    $function(
                        height, depth, width, alpha, a, a_row, a_column, b, b_row, b_column, beta,
                        c, c_row, c_column,
                    )
                }
            }
        }
    };
}
gemm!(f32, F32, matrixmultiply::sgemm);
gemm!(f64, F64, matrixmultiply::dgemm);
