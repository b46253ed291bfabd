//! Signatures: what a kernel takes, and whether a call fits.

use syncline_device::Scalar;
use syncline_tensor::{Access, Arg, Dtype, Region, View};

use syncline_spelling::nearest;

use crate::{KernelError, Tolerance};

/// One argument that a kernel takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// What it is called in messages.
    pub name: &'static str,
    /// Whether the kernel reads it.
    pub reads: bool,
    /// Whether the kernel writes it.
    pub writes: bool,
    /// The element types that it may have.
    pub dtypes: &'static [Dtype],
    /// The scalar that what was there is multiplied by. Where it is zero, nothing is read, not even
    /// NaN.
    pub old_times: Option<&'static str>,
}

/// One number that a kernel takes by value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScalarParameter {
    /// What it is called in programs.
    pub name: &'static str,
    /// Its value where a program does not give one.
    pub default: Scalar,
    /// What it is for.
    pub about: &'static str,
}

/// Which arguments may share bytes with an argument that the kernel writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// All: the kernel finds out for itself.
    Any,
    /// Those whose elements lie in the same places, one by one.
    InPlace,
    /// None.
    Never,
}

/// Elements that lie in the same bytes as others are counted up to here: kernels may need memory
/// for each.
const BROADCAST_ELEMENTS_MAX: u64 = 1 << 31;

/// What a kernel takes.
#[derive(Clone, Debug)]
pub struct Signature {
    /// The kernel's name.
    pub name: String,
    /// What it computes, in a line.
    pub about: &'static str,
    /// Its arguments in order.
    pub parameters: Vec<Parameter>,
    /// Its scalars in the order in which the body finds them.
    pub scalars: Vec<ScalarParameter>,
    /// Whether the shapes and dtypes go together.
    pub shapes: fn(&[View], &[Scalar]) -> Result<(), String>,
    /// How many arithmetic operations a call takes: the planner's first guess of its cost.
    pub operations: fn(&[View]) -> u64,
    /// Which arguments may lie in the same bytes as one that is written.
    pub overlap: Overlap,
    /// How far its results on two backends may differ.
    pub tolerance: Tolerance,
}

impl Signature {
    /// Refuses arguments that the body could not work with.
    pub fn check(&self, args: &[Arg], scalars: &[Scalar]) -> Result<(), KernelError> {
        let kernel = || self.name.clone();
        if args.len() != self.parameters.len() {
            let names: Vec<_> = self.parameters.iter().map(|parameter| parameter.name).collect();
            return Err(KernelError::ArgumentCount {
                kernel: kernel(),
                wanted: self.parameters.len(),
                names: names.join(", "),
                given: args.len(),
            });
        }
        for (position, (arg, parameter)) in args.iter().zip(&self.parameters).enumerate() {
            let reads = parameter.reads && !self.forgets_old(parameter, scalars);
            self.check_access(position, arg.access, Parameter { reads, ..*parameter })?;
            if !parameter.dtypes.contains(&arg.view.dtype()) {
                let wanted: Vec<_> = parameter.dtypes.iter().map(|dtype| dtype.name()).collect();
                return Err(KernelError::Dtype {
                    kernel: kernel(),
                    position,
                    name: parameter.name,
                    given: arg.view.dtype(),
                    wanted: wanted.join(", "),
                });
            }
        }
        if !self.scalars.is_empty() && scalars.len() != self.scalars.len() {
            let names: Vec<_> = self.scalars.iter().map(|scalar| scalar.name).collect();
            return Err(KernelError::ScalarCount {
                kernel: kernel(),
                wanted: names.len(),
                names: names.join(", "),
                given: scalars.len(),
            });
        }
        let views: Vec<View> = args.iter().map(|arg| arg.view).collect();
        (self.shapes)(&views, scalars)
            .and_then(|()| self.check_places(args))
            .map_err(|message| KernelError::Shape { kernel: kernel(), message })
    }

    /// Refuses arguments whose elements lie where the result would depend on the order of the work.
    fn check_places(&self, args: &[Arg]) -> Result<(), String> {
        if self.overlap == Overlap::Any {
            return Ok(());
        }
        for (position, (arg, parameter)) in args.iter().zip(&self.parameters).enumerate() {
            let (view, name) = (&arg.view, parameter.name);
            let shares = view.shares_bytes();
            if parameter.writes && shares {
                return Err(format!(
                    "argument {position} (`{name}`) is written, and its elements overlap each other"
                ));
            }
            if shares && view.elements() > BROADCAST_ELEMENTS_MAX {
                return Err(format!(
                    "argument {position} (`{name}`) has {} elements that overlap each other; at most \
                     {BROADCAST_ELEMENTS_MAX} can be",
                    view.elements()
                ));
            }
        }
        let written = self.parameters.iter().enumerate().filter(|(_, parameter)| parameter.writes);
        for (position, target) in written {
            let overlaps = |other: &usize| {
                let (a, b) = (&args[position], &args[*other]);
                *other != position
                    && a.access != Access::Output
                    && b.access != Access::Output
                    && a.buffer == b.buffer
                    && !(self.overlap == Overlap::InPlace && same_places(&a.view, &b.view))
                    && Region::of(&a.view).overlaps(&Region::of(&b.view))
            };
            if let Some(other) = (0..args.len()).find(overlaps) {
                return Err(format!(
                    "argument {position} (`{}`) is written and overlaps argument {other} (`{}`){}",
                    target.name,
                    self.parameters[other].name,
                    match self.overlap {
                        Overlap::InPlace => ": both must be the same elements, or disjoint",
                        _ => ": the two must be disjoint",
                    }
                ));
            }
        }
        Ok(())
    }

    /// Whether the scalar that the argument's old contents are multiplied by is zero.
    fn forgets_old(&self, parameter: &Parameter, scalars: &[Scalar]) -> bool {
        let at = |name| self.scalars.iter().position(|scalar| scalar.name == name);
        let factor = parameter.old_times.and_then(at).and_then(|at| scalars.get(at));
        factor.is_some_and(|factor| factor.as_f64() == 0.0)
    }

    fn check_access(
        &self,
        position: usize,
        access: Access,
        parameter: Parameter,
    ) -> Result<(), KernelError> {
        let wanted = match (parameter.reads, parameter.writes) {
            (true, false) if !access.reads() => "one that reads",
            (false, true) if !access.writes() => "one that writes",
            (true, true) if !(access.reads() && access.writes()) => "one that reads and writes",
            _ => return Ok(()),
        };
        Err(KernelError::Access {
            kernel: self.name.clone(),
            position,
            name: parameter.name,
            given: access,
            wanted,
        })
    }

    /// All scalars in the body's order: those given by name, and the defaults of the others.
    pub fn scalars<'a>(
        &self,
        given: impl IntoIterator<Item = (&'a str, Scalar)>,
    ) -> Result<Vec<Scalar>, KernelError> {
        let mut values: Vec<Scalar> = self.scalars.iter().map(|scalar| scalar.default).collect();
        for (name, value) in given {
            let known = self.scalars.iter().position(|scalar| scalar.name == name);
            let Some(position) = known else {
                let names = self.scalars.iter().map(|scalar| scalar.name);
                return Err(KernelError::UnknownScalar {
                    kernel: self.name.clone(),
                    name: name.to_owned(),
                    nearest: nearest(name, names).map(str::to_owned),
                });
            };
            values[position] = value;
        }
        Ok(values)
    }
}

/// Whether element by element the two lie in the same bytes.
fn same_places(a: &View, b: &View) -> bool {
    let strides = |view: &View| {
        let taken = view.shape().iter().zip(view.strides()).filter(|(size, _)| **size > 1);
        taken.map(|(_, stride)| *stride).collect::<Vec<_>>()
    };
    a.offset() == b.offset()
        && a.dtype().bytes() == b.dtype().bytes()
        && a.shape() == b.shape()
        && strides(a) == strides(b)
}
