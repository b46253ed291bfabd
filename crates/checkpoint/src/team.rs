//! Teams: several PEs that carry out one conversion.

/// The PEs that carry out one conversion together, as one of them sees it.
///
/// How they reach each other is not for this crate to know: they meet, and they fail together.
pub trait Team: Sync {
    /// This PE.
    fn rank(&self) -> usize;

    /// How many there are.
    fn size(&self) -> usize;

    /// Returns when every PE has come to this point; an error, the same on all, if one never will.
    fn meet(&self) -> Result<(), String>;

    /// Tells the others that this PE cannot go on.
    fn fail(&self, why: &str);
}

/// A team of one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Team for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn meet(&self) -> Result<(), String> {
        Ok(())
    }

    fn fail(&self, _: &str) {}
}
