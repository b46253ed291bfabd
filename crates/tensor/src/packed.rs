//! Packed arguments: what a task that waits for its turn needs to keep of its views.
//!
//! A [`View`] has room for [`MAX_DIMS`](crate::MAX_DIMS) dimensions, most of which are not there. A
//! ring of thousands of waiting tasks fits into a nearer cache without them.

use crate::{Access, Arg, BufferId, Dtype, View};

/// Arguments one after the other, in place as long as they take no more than `WORDS` words.
///
/// ```
/// use syncline_tensor::{Arg, BufferId, Dtype, PackedArgs, View};
///
/// let view = View::contiguous(Dtype::F32, &[8, 8])?.slice(1, 2..4)?;
/// let mut packed = PackedArgs::<24>::new();
/// packed.push(&Arg::input(BufferId(7), view));
/// assert_eq!(packed.iter().next(), Some(Arg::input(BufferId(7), view)));
/// # Ok::<(), syncline_tensor::ViewError>(())
/// ```
#[derive(Clone, Debug)]
#[repr(C)]
pub struct PackedArgs<const WORDS: usize> {
    len: u32,
    used: u32,
    /// All of them, where they do not fit in place; kept for the next ones.
    #[allow(
        clippy::box_collection,
        reason = "one word where nothing is spilled, which is the rule"
    )]
    spilled: Option<Box<Vec<u64>>>,
    words: [u64; WORDS],
}

/// Words that every argument has: what it is, its buffer, its offset.
const FIXED: usize = 3;

impl<const WORDS: usize> PackedArgs<WORDS> {
    /// No arguments.
    pub const fn new() -> Self {
        Self { len: 0, used: 0, spilled: None, words: [0; WORDS] }
    }

    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Forgets all of them.
    #[inline]
    pub fn clear(&mut self) {
        (self.len, self.used) = (0, 0);
    }

    /// Adds one.
    #[inline]
    pub fn push(&mut self, arg: &Arg) {
        let (used, rank) = (self.used as usize, arg.view.rank());
        let end = used + FIXED + 2 * rank;
        match self.words.get_mut(used..end) {
            Some(place) if end <= WORDS => write(place, arg),
            _ => self.push_spilled(arg, end),
        }
        self.used = end as u32;
        self.len += 1;
    }

    #[cold]
    fn push_spilled(&mut self, arg: &Arg, end: usize) {
        let used = self.used as usize;
        let spilled = self.spilled.get_or_insert_default();
        if used <= WORDS {
            spilled.clear();
            spilled.extend_from_slice(&self.words[..used]);
        }
        spilled.resize(end, 0);
        write(&mut spilled[used..], arg);
    }

    /// The arguments as they were.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Arg> + '_ {
        let used = self.used as usize;
        let mut left = match (used <= WORDS, &self.spilled) {
            (false, Some(spilled)) => &spilled[..used],
            _ => &self.words[..used],
        };
        std::iter::from_fn(move || {
            let (arg, rest) = read(left)?;
            left = rest;
            Some(arg)
        })
    }
}

impl<const WORDS: usize> Default for PackedArgs<WORDS> {
    fn default() -> Self {
        Self::new()
    }
}

#[inline]
fn write(place: &mut [u64], arg: &Arg) {
    let Arg { access, buffer, view } = arg;
    let [what, of, offset, dims @ ..] = place else { return };
    *what = view.rank() as u64 | (view.dtype() as u64) << 8 | (*access as u64) << 16;
    (*of, *offset) = (buffer.0, view.offset());
    let numbers = view.shape().iter().zip(view.strides());
    for (pair, (&size, &stride)) in dims.chunks_exact_mut(2).zip(numbers) {
        (pair[0], pair[1]) = (size, stride as u64);
    }
}

#[inline]
fn read(words: &[u64]) -> Option<(Arg, &[u64])> {
    let [what, of, offset, rest @ ..] = words else { return None };
    let (dims, rest) = rest.split_at(2 * (what & 0xff) as usize);
    let dtype = Dtype::ALL[(what >> 8 & 0xff) as usize];
    let access = Access::ALL[(what >> 16 & 0xff) as usize];
    let dims = dims.chunks_exact(2).map(|pair| (pair[0], pair[1] as i64));
    Some((Arg::new(access, BufferId(*of), View::unpacked(dtype, *offset, dims)), rest))
}

#[cfg(test)]
mod tests {
    use syncline_testing::for_seeds;

    use super::*;

    #[test]
    fn arguments_come_back_as_they_were_in_place_or_spilled() {
        let mut packed = PackedArgs::<20>::new();
        for_seeds("arguments_come_back_as_they_were_in_place_or_spilled", 300, |rng| {
            packed.clear();
            let mut args = Vec::new();
            for _ in 0..rng.range(0..7) {
                let rank = rng.range(0..9) as usize;
                let shape: Vec<u64> = (0..rank).map(|_| rng.range(0..5)).collect();
                let dtype = *rng.pick(&Dtype::ALL);
                let mut view = View::contiguous(dtype, &shape).expect("small");
                if rank > 1 {
                    view = view.transpose(0, rank - 1).expect("there are two");
                }
                args.push(Arg::new(*rng.pick(&Access::ALL), BufferId(rng.range(0..99)), view));
                packed.push(&args[args.len() - 1]);
            }
            assert_eq!(packed.len(), args.len());
            assert_eq!(packed.iter().collect::<Vec<_>>(), args);
        });
    }
}
