//! Accesses: what a task does with each of its tensors, and what its body gets for it.

use syncline_device::{Buffer, DeviceError, Element, KernelArgs, TensorMut, TensorRef};
use syncline_tensor::{Access, View};

use crate::Tensor;

/// A task reads a tensor: its body gets a [`TensorRef`].
#[derive(Clone, Copy, Debug)]
pub struct Read<'t, T>(pub(crate) &'t Tensor<T>);

/// A task writes a whole tensor: its body gets a [`TensorMut`] with unspecified contents.
#[derive(Clone, Copy, Debug)]
pub struct Write<'t, T>(pub(crate) &'t Tensor<T>);

/// A task reads and writes a tensor: its body gets a [`TensorMut`].
#[derive(Clone, Copy, Debug)]
pub struct Update<'t, T>(pub(crate) &'t Tensor<T>);

/// A task adds to a tensor, in any order with others that do: its body gets a [`TensorMut`].
#[derive(Clone, Copy, Debug)]
pub struct Reduce<'t, T>(pub(crate) &'t Tensor<T>);

/// A task reads and writes a tensor, in any order with others that commute: its body gets a
/// [`TensorMut`].
#[derive(Clone, Copy, Debug)]
pub struct Commute<'t, T>(pub(crate) &'t Tensor<T>);

mod sealed {
    pub trait Closed {}
}
pub(crate) use sealed::Closed;

/// How the arguments of a body are opened. Each access has a type of its own for this, which
/// borrows no tensor.
#[doc(hidden)]
pub trait Open: Closed + 'static {
    /// What the body gets.
    type Refs<'a>;
    /// Number of arguments.
    const COUNT: usize;
    /// Opens the arguments from number `first` on.
    fn open<'a>(args: &KernelArgs<'a>, first: usize) -> Result<Self::Refs<'a>, DeviceError>;
}

/// The accesses of a task: one of [`Read`], [`Write`], [`Update`], [`Reduce`], [`Commute`], or a
/// tuple of up to twelve of them, or `()`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no access of a tensor, nor a tuple of up to 12",
    note = "tensors have `read()`, `write()`, `update()`, `reduce()` and `commute()`"
)]
pub trait Arguments: Closed {
    /// How the body's arguments are opened.
    #[doc(hidden)]
    type Kinds: Open;

    /// Visits the accesses in order.
    #[doc(hidden)]
    fn fold<S>(&self, start: S, visit: &mut impl FnMut(S, Access, &Buffer, &View) -> S) -> S;
}

/// A kind of access to elements of one type.
#[doc(hidden)]
#[derive(Debug)]
pub struct ToRead<T>(std::marker::PhantomData<fn() -> T>);

/// A kind of access to elements of one type.
#[doc(hidden)]
#[derive(Debug)]
pub struct ToChange<T>(std::marker::PhantomData<fn() -> T>);

impl<T> Closed for ToRead<T> {}
impl<T> Closed for ToChange<T> {}

impl<T: Element> Open for ToRead<T> {
    type Refs<'a> = TensorRef<'a, T>;
    const COUNT: usize = 1;

    #[inline]
    fn open<'a>(args: &KernelArgs<'a>, first: usize) -> Result<TensorRef<'a, T>, DeviceError> {
        args.tensor(first)
    }
}

impl<T: Element> Open for ToChange<T> {
    type Refs<'a> = TensorMut<'a, T>;
    const COUNT: usize = 1;

    #[inline]
    fn open<'a>(args: &KernelArgs<'a>, first: usize) -> Result<TensorMut<'a, T>, DeviceError> {
        args.tensor_mut(first)
    }
}

macro_rules! accesses {
    ($($name:ident: $kind:ident, $access:ident;)*) => {$(
        impl<T> Closed for $name<'_, T> {}

        impl<T: Element> Arguments for $name<'_, T> {
            type Kinds = $kind<T>;

            #[inline]
            fn fold<S>(
                &self,
                start: S,
                visit: &mut impl FnMut(S, Access, &Buffer, &View) -> S,
            ) -> S {
                visit(start, Access::$access, self.0.buffer(), self.0.view())
            }
        }
    )*};
}

accesses! {
    Read: ToRead, Input;
    Write: ToChange, OutputExisting;
    Update: ToChange, InOut;
    Reduce: ToChange, Reduce;
    Commute: ToChange, Commutative;
}

macro_rules! tuples {
    ($($name:ident)*) => {
        impl<$($name),*> Closed for ($($name,)*) {}

        impl<$($name: Open),*> Open for ($($name,)*) {
            type Refs<'a> = ($($name::Refs<'a>,)*);
            const COUNT: usize = 0 $(+ $name::COUNT)*;

            #[inline]
            #[allow(unused_variables, unused_mut, unused_assignments, non_snake_case)]
            fn open<'a>(
                args: &KernelArgs<'a>,
                first: usize,
            ) -> Result<Self::Refs<'a>, DeviceError> {
                let mut next = first;
                $(
                    let $name = $name::open(args, next)?;
                    next += $name::COUNT;
                )*
                Ok(($($name,)*))
            }
        }

        impl<$($name: Arguments),*> Arguments for ($($name,)*) {
            type Kinds = ($($name::Kinds,)*);

            #[inline]
            #[allow(unused_variables, non_snake_case)]
            fn fold<S>(
                &self,
                start: S,
                visit: &mut impl FnMut(S, Access, &Buffer, &View) -> S,
            ) -> S {
                let ($($name,)*) = self;
                let state = start;
                $(let state = $name.fold(state, visit);)*
                state
            }
        }
    };
}

tuples!();
tuples!(A);
tuples!(A B);
tuples!(A B C);
tuples!(A B C D);
tuples!(A B C D E);
tuples!(A B C D E F);
tuples!(A B C D E F G);
tuples!(A B C D E F G H);
tuples!(A B C D E F G H I);
tuples!(A B C D E F G H I J);
tuples!(A B C D E F G H I J K);
tuples!(A B C D E F G H I J K L);
