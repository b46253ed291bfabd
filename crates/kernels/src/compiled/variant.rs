//! Variants: what of a call's arguments decides about its source.

use syncline_tensor::{Dtype, View};

use crate::Parameter;
use crate::compiled::recipe::Recipe;

/// One argument as far as the source depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArgumentVariant {
    /// Its element type.
    pub dtype: Dtype,
    /// Its elements follow each other: element `i` lies `i` behind the first.
    pub is_flat: bool,
}

/// Elements that a compiled kernel counts at most: numbers of elements, rounded up to whole groups,
/// fit into 32 bits.
const ELEMENTS_MAX: u64 = 1 << 31;

const BITS: u32 = 6;

/// What of `views` decides about the source, or why there is none for them.
pub(crate) fn of(
    views: &[View],
    parameters: &[Parameter],
    recipe: &Recipe,
) -> Result<Vec<ArgumentVariant>, String> {
    if views.len() != parameters.len() {
        return Err(format!("it takes {} arguments, not {}", parameters.len(), views.len()));
    }
    // All or none: a source for each mixture would be compiled often and used rarely.
    let is_flat = recipe.counts_elements() && views.iter().all(View::is_contiguous);
    let one = |(position, (view, parameter)): (usize, (&View, &Parameter))| {
        refuse(view, parameter).map_err(|why| name(position, parameter, &why))?;
        Ok(ArgumentVariant { dtype: view.dtype(), is_flat })
    };
    views.iter().zip(parameters).enumerate().map(one).collect()
}

/// `why` with the argument that it is about.
pub(crate) fn name(position: usize, parameter: &Parameter, why: &str) -> String {
    format!("argument {position} (`{}`): {why}", parameter.name)
}

fn refuse(view: &View, parameter: &Parameter) -> Result<(), String> {
    let dtype = view.dtype();
    if !parameter.dtypes.contains(&dtype) {
        let wanted: Vec<_> = parameter.dtypes.iter().map(|dtype| dtype.name()).collect();
        return Err(format!("{dtype} elements; it takes {}", wanted.join(", ")));
    }
    if view.elements() > ELEMENTS_MAX {
        return Err(format!("{} elements; compiled kernels count {ELEMENTS_MAX}", view.elements()));
    }
    let bytes = dtype.bytes() as i64;
    let is_whole = |place: i64| place % bytes == 0;
    let mut strides = view.strides().iter().zip(view.shape()).filter(|&(_, &size)| size > 1);
    let lies_whole = is_whole(view.offset() as i64) && strides.all(|(&stride, _)| is_whole(stride));
    if !view.is_empty() && !lies_whole {
        return Err(format!(
            "its elements do not lie on multiples of {bytes} bytes, as compiled kernels need; \
             copy it, or run on the CPU"
        ));
    }
    Ok(())
}

/// A variant as a number.
pub(crate) fn pack(variant: &[ArgumentVariant]) -> u64 {
    variant.iter().rev().fold(0, |packed, one| {
        let dtype = Dtype::ALL.iter().position(|&dtype| dtype == one.dtype).expect("all are there");
        packed << BITS | (dtype as u64) << 1 | u64::from(one.is_flat)
    })
}

/// The variant of `count` arguments that [`pack`] gave this number.
pub(crate) fn unpack(packed: u64, count: usize) -> Vec<ArgumentVariant> {
    (0..count as u32)
        .map(|position| {
            let bits = packed >> (BITS * position) & ((1 << BITS) - 1);
            ArgumentVariant { dtype: Dtype::ALL[(bits >> 1) as usize], is_flat: bits & 1 == 1 }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_survive_as_numbers() {
        for first in Dtype::ALL {
            for last in Dtype::ALL {
                let variant =
                    [(first, true), (Dtype::F32, false), (Dtype::U8, true), (last, false)]
                        .map(|(dtype, is_flat)| ArgumentVariant { dtype, is_flat });
                assert_eq!(unpack(pack(&variant), 4), variant);
            }
        }
    }
}
