//! Signatures: what a kernel takes, and whether a call fits.

use syncline_deps::{Access, Arg, Dtype, View};
use syncline_device::Scalar;

use syncline_deps::nearest;

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
    /// The scalar that what was there is multiplied by. Where it is zero, nothing is read, not even what is no number.
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
    /// How far its results on two backends may lie apart.
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
        let views: Vec<View> = args.iter().map(|arg| arg.view).collect();
        (self.shapes)(&views, scalars)
            .map_err(|message| KernelError::Shape { kernel: kernel(), message })
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
