//! Specs: how the elements and scalars of a variant are loaded and stored in a language.

use syncline_device::{ScalarType, WORDS_PER_ARGUMENT};
use syncline_tensor::Dtype;

use crate::Parameter;
use crate::compiled::kind::{Kind, bits_of};
use crate::compiled::recipe::{Numbers, Recipe, ScalarUse};
use crate::compiled::variant::{self, ArgumentVariant};

/// A language that kernels are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    Wgsl,
    OpenClC,
}

/// An argument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand {
    /// What lies in memory; unsigned integers of the same size where elements are moved as bits.
    pub stored: Dtype,
    /// What it is loaded as.
    pub kind: Kind,
    /// Element `i` lies `i` behind the first.
    pub is_flat: bool,
    /// The kernel writes it.
    pub writes: bool,
}

/// A scalar.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScalarSpec {
    /// The type as which it is handed over.
    pub given: ScalarType,
    /// What it is read as; `None` for a truth value.
    pub kind: Option<Kind>,
    /// Its first word in the parameter block.
    pub word: usize,
}

/// All that a source depends on.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    /// The arguments.
    pub operands: Vec<Operand>,
    /// What the kernel computes in.
    pub number: Kind,
    /// The scalars.
    pub scalars: Vec<ScalarSpec>,
}

impl Spec {
    /// What `variant` needs in `language`, or why it cannot be had there.
    pub(crate) fn new(
        language: Language,
        recipe: &Recipe,
        variant: &[ArgumentVariant],
        parameters: &[Parameter],
    ) -> Result<Self, String> {
        let last = variant.last().expect("every kernel has an argument").dtype;
        require_one_dtype(recipe.numbers, variant, parameters)?;
        let has_doubles = language == Language::OpenClC;
        let as_bits = match recipe.numbers {
            Numbers::Bits => true,
            Numbers::Value => Kind::of(last) == Kind::F64 && !has_doubles,
            _ => false,
        };
        let operand = |(position, (argument, parameter)): (
            usize,
            (&ArgumentVariant, &Parameter),
        )| {
            let stored = if as_bits { bits_of(argument.dtype) } else { argument.dtype };
            let kind = match (recipe.numbers, position) {
                (Numbers::Lookup, 1) => Kind::U32,
                _ => Kind::of(stored),
            };
            if kind == Kind::F64 && !has_doubles {
                let why = "f64 elements: WGSL has no double precision; cast to f32, or run on the CPU or OpenCL";
                return Err(variant::name(position, parameter, why));
            }
            let (is_flat, writes) = (argument.is_flat, parameter.writes);
            Ok(Operand { stored, kind, is_flat, writes })
        };
        let operands: Vec<Operand> =
            variant.iter().zip(parameters).enumerate().map(operand).collect::<Result<_, _>>()?;
        let number = operands.last().expect("every kernel has an argument").kind;
        if recipe.numbers == Numbers::Each && language == Language::Wgsl {
            refuse_wide_conversion(&operands, parameters)?;
        }
        let value = if as_bits { Kind::of(last).scalar() } else { number.scalar() };
        let mut word = operands.len() * WORDS_PER_ARGUMENT;
        let scalar = |scalar: &ScalarUse| {
            let (given, kind) = match scalar {
                ScalarUse::Number => (value, Some(number)),
                ScalarUse::Flag => (ScalarType::Bool, None),
            };
            let at = word;
            word += if matches!(given, ScalarType::F64 | ScalarType::I64) { 2 } else { 1 };
            ScalarSpec { given, kind, word: at }
        };
        let scalars = recipe.scalars.iter().map(scalar).collect();
        Ok(Self { operands, number, scalars })
    }

    /// The word at which argument `position` is described.
    pub(crate) fn words_of(position: usize) -> usize {
        position * WORDS_PER_ARGUMENT
    }
}

fn require_one_dtype(
    numbers: Numbers,
    variant: &[ArgumentVariant],
    parameters: &[Parameter],
) -> Result<(), String> {
    let first = variant[0].dtype;
    let fits = |dtype: Dtype| match numbers {
        Numbers::Alike | Numbers::Bits | Numbers::Value => dtype == first,
        Numbers::SingleOrDouble => Kind::of(dtype) == Kind::of(first),
        Numbers::Single | Numbers::Each | Numbers::Lookup => true,
    };
    match variant.iter().position(|argument| !fits(argument.dtype)) {
        None => Ok(()),
        Some(position) => {
            let why = format!(
                "{} elements beside {first} ones; `cast` converts",
                variant[position].dtype
            );
            Err(variant::name(position, &parameters[position], &why))
        }
    }
}

fn refuse_wide_conversion(operands: &[Operand], parameters: &[Parameter]) -> Result<(), String> {
    let mixed = operands[0].kind.is_float() != operands[1].kind.is_float();
    match operands.iter().position(|operand| operand.kind.is_wide()) {
        Some(position) if mixed => {
            let why = format!(
                "{} elements: WGSL does not convert between 64-bit integers and floats; \
                 run on the CPU or OpenCL",
                operands[position].stored
            );
            Err(variant::name(position, &parameters[position], &why))
        }
        _ => Ok(()),
    }
}
