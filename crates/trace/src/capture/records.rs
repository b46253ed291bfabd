//! What the payloads hold.
//!
//! | kind | payload |
//! | --- | --- |
//! | header | the trace's other members, as JSON |
//! | name | a text; names are numbered from zero as they come |
//! | buffer | flags, id, bytes, \[name\], \[other members as JSON\] |
//! | release | the id of a buffer |
//! | enter | flags (bit 0: manual), \[name\], \[other members as JSON\] |
//! | leave | nothing |
//! | submit | flags, id minus the id before minus one, \[name\], \[id minus each dep\], args, \[other members as JSON\] |
//! | timing | flags, task id, \[start\], \[end\], \[lane\] |
//! | retire | a task id |
//! | stats | a JSON value |
//! | end | the number of tasks |
//!
//! An argument is: access, rank and whether it is contiguous in one byte; dtype and whether its
//! layout is the one before in a second; buffer; offset; then, unless they follow from these bits,
//! shape and strides.

use syncline_tensor::{Access, Arg, BufferId, Dtype, MAX_DIMS, View, ViewError};

use super::frame::{Malformed, Payload, SKIPPABLE};
use super::gathered::Gathered;

/// The kinds of records.
pub(super) mod kind {
    use super::SKIPPABLE;

    pub(crate) const HEADER: u8 = 1;
    pub(crate) const NAME: u8 = 2;
    pub(crate) const BUFFER: u8 = 3;
    pub(crate) const RELEASE: u8 = 4;
    pub(crate) const ENTER: u8 = 5;
    pub(crate) const LEAVE: u8 = 6;
    pub(crate) const SUBMIT: u8 = 7;
    pub(crate) const TIMING: u8 = 8 | SKIPPABLE;
    pub(crate) const RETIRE: u8 = 9 | SKIPPABLE;
    pub(crate) const STATS: u8 = 10 | SKIPPABLE;
    pub(crate) const END: u8 = 11;
}

/// Bits of the flags of buffers and scopes.
pub(super) mod thing {
    pub(crate) const MANUAL: u8 = 1;
    pub(crate) const NAMED: u8 = 2;
    pub(crate) const EXTRA: u8 = 4;
}

/// Bits of the flags of submissions.
pub(super) mod submit {
    /// A number of a name follows.
    pub(crate) const NAMED: u64 = 1;
    /// A name follows.
    pub(crate) const NAMED_INLINE: u64 = 2;
    pub(crate) const DEPS: u64 = 4;
    pub(crate) const EXTRA: u64 = 8;
    pub(crate) const ARG_EXTRA: u64 = 16;
    /// Manual by its own word, not by a scope's.
    pub(crate) const MANUAL: u64 = 32;
    pub(crate) const SCOPE_UNWRITTEN: u64 = 64;
    pub(crate) const DEPS_UNWRITTEN: u64 = 128;
    pub(crate) const ALL: u64 = 255;
}

/// Bits of the flags of timings.
pub(super) mod timing {
    pub(crate) const START: u8 = 1;
    pub(crate) const END: u8 = 2;
    pub(crate) const LANE_NUMBER: u8 = 4;
    pub(crate) const LANE_NAME: u8 = 8;
}

const CONTIGUOUS: u8 = 0x80;
const SAME_LAYOUT: u8 = 0x80;
/// The fewest bytes of an argument: two of bits, a buffer and an offset.
const ARG_BYTES_MIN: usize = 4;

pub(super) fn put_args<'a>(out: &mut Gathered, args: impl ExactSizeIterator<Item = &'a Arg>) {
    out.put_u64(args.len() as u64);
    let mut before: Option<&View> = None;
    for arg in args {
        let view = &arg.view;
        let same = before.is_some_and(|before| has_layout_of(view, before));
        let contiguous = !same && is_plain(view);
        let access = access_bits(arg.access) | (view.rank() as u8) << 3;
        out.put_run(|run| {
            run.put_u8(access | if contiguous { CONTIGUOUS } else { 0 });
            run.put_u8(dtype_bits(view.dtype()) | if same { SAME_LAYOUT } else { 0 });
            run.put_u64(arg.buffer.0);
            run.put_u64(view.offset());
            if !same {
                view.shape().iter().for_each(|&size| run.put_u64(size));
            }
            if !same && !contiguous {
                view.strides().iter().for_each(|&stride| run.put_i64(stride));
            }
        });
        before = Some(view);
    }
}

pub(super) fn get_args(payload: &mut Payload<'_>) -> Result<Vec<Arg>, ArgError> {
    let count = payload.count(ARG_BYTES_MIN)?;
    let mut args: Vec<Arg> = Vec::with_capacity(count);
    for position in 0..count {
        let before = args.last().map(|arg| &arg.view);
        let arg = get_arg(payload, before)?;
        args.push(arg.map_err(|source| ArgError::View { position, source })?);
    }
    Ok(args)
}

/// Why arguments could not be read.
pub(super) enum ArgError {
    Malformed(Malformed),
    View { position: usize, source: ViewError },
}

impl From<Malformed> for ArgError {
    fn from(what: Malformed) -> Self {
        Self::Malformed(what)
    }
}

fn get_arg(
    payload: &mut Payload<'_>,
    before: Option<&View>,
) -> Result<Result<Arg, ViewError>, Malformed> {
    let (first, second) = (payload.byte()?, payload.byte()?);
    let access = *Access::ALL.get(usize::from(first & 7)).ok_or("it has an unknown access")?;
    let rank = usize::from(first >> 3 & 0xf);
    let dtype =
        *Dtype::ALL.get(usize::from(second & !SAME_LAYOUT)).ok_or("it has an unknown dtype")?;
    let buffer = BufferId(payload.u64()?);
    let offset = payload.u64()?;
    let (mut shape, mut strides) = ([0u64; 16], [0i64; 16]);
    if second & SAME_LAYOUT != 0 {
        let same = before.filter(|view| view.rank() == rank && view.dtype() == dtype);
        let same = same.ok_or("it refers to a layout that is not there")?;
        shape[..rank].copy_from_slice(same.shape());
        strides[..rank].copy_from_slice(same.strides());
    } else {
        for size in &mut shape[..rank] {
            *size = payload.u64()?;
        }
        if first & CONTIGUOUS == 0 {
            for stride in &mut strides[..rank] {
                *stride = payload.i64()?;
            }
        } else {
            match plain_strides(dtype, &shape[..rank.min(MAX_DIMS)]) {
                Some(plain) => {
                    strides[..rank.min(MAX_DIMS)].copy_from_slice(&plain[..rank.min(MAX_DIMS)])
                }
                None => return Ok(Err(ViewError::Overflow)),
            }
        }
    }
    let view = View::strided(dtype, offset, &shape[..rank], &strides[..rank]);
    Ok(view.map(|view| Arg::new(access, buffer, view)))
}

/// Dimension by dimension: there are so few that a call to compare memory costs more.
#[inline]
fn has_layout_of(view: &View, other: &View) -> bool {
    let (shape, strides) = (view.shape().iter(), view.strides().iter());
    view.dtype() == other.dtype()
        && view.rank() == other.rank()
        && shape.zip(other.shape()).all(|(size, other)| size == other)
        && strides.zip(other.strides()).all(|(stride, other)| stride == other)
}

/// Whether the strides are the ones that [`plain_strides`] gives back, also where a size of one
/// would allow any.
#[inline]
fn is_plain(view: &View) -> bool {
    let mut stride = view.dtype().bytes();
    for (&size, &found) in view.shape().iter().zip(view.strides()).rev() {
        if found != stride as i64 {
            return false;
        }
        stride = stride.saturating_mul(size.max(1));
    }
    true
}

fn plain_strides(dtype: Dtype, shape: &[u64]) -> Option<[i64; MAX_DIMS]> {
    let mut strides = [0i64; MAX_DIMS];
    let mut stride = dtype.bytes();
    for (dim, &size) in shape.iter().enumerate().rev() {
        strides[dim] = i64::try_from(stride).ok()?;
        stride = stride.saturating_mul(size.max(1));
    }
    Some(strides)
}

#[inline]
fn access_bits(access: Access) -> u8 {
    match access {
        Access::Input => 0,
        Access::Output => 1,
        Access::InOut => 2,
        Access::OutputExisting => 3,
        Access::NoDep => 4,
        Access::Commutative => 5,
        Access::Reduce => 6,
    }
}

#[inline]
fn dtype_bits(dtype: Dtype) -> u8 {
    dtype as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_positions_in_the_lists() {
        for (position, access) in Access::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(access_bits(access)), position);
        }
        for (position, dtype) in Dtype::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(dtype_bits(dtype)), position);
        }
    }
}
