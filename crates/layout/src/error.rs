//! What can be wrong with layouts and plans, and how to mend it.

use syncline_tensor::{Dtype, MAX_DIMS};

use crate::dims::{Dims, NdBox};
use crate::layout::{BYTES_MAX, WORLD_MAX};
use syncline_copy::convert::ConvertError;

/// Why a layout was refused, or why no plan leads from one to another.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// Text that is not the JSON or TOML form expected.
    #[error("{place}: {cause}")]
    Syntax {
        /// Where: a line and column, or a path such as `tensors[3].shards[0]`.
        place: String,
        /// What was expected there.
        cause: String,
    },
    /// More dimensions than supported.
    #[error("tensor `{tensor}` has {dims} dimensions: at most {MAX_DIMS} are supported")]
    TooManyDims {
        /// The tensor.
        tensor: String,
        /// How many it has.
        dims: usize,
    },
    /// A tensor of more bytes than can be counted.
    #[error(
        "tensor `{tensor}` of shape {shape:?} has more than {BYTES_MAX} bytes (a size of 0 counts as 1)"
    )]
    TooLarge {
        /// The tensor.
        tensor: String,
        /// Its shape.
        shape: Vec<u64>,
    },
    /// A shard of more bytes than can be counted.
    #[error(
        "tensor `{tensor}`, rank {rank}: the shard of shape {shape} has more than {BYTES_MAX} bytes (a size of 0 counts as 1)"
    )]
    ShardTooLarge {
        /// The tensor.
        tensor: String,
        /// The PE.
        rank: u32,
        /// Shape of the shard.
        shape: Box<Dims>,
    },
    /// Shards that have more bytes together than can be counted.
    #[error(
        "tensor `{tensor}`: with its shards, those of the layout have more than {BYTES_MAX} bytes together"
    )]
    LayoutTooLarge {
        /// The tensor that is too much.
        tensor: String,
    },
    /// A rank that no group has.
    #[error("tensor `{tensor}`, rank {rank}: ranks are below {WORLD_MAX}")]
    RankTooHigh {
        /// The tensor.
        tensor: String,
        /// The PE.
        rank: u32,
    },
    /// One name used twice in a layout.
    #[error("tensor `{tensor}` is described twice in one layout")]
    DuplicateTensor {
        /// The name.
        tensor: String,
    },
    /// One PE listed twice for a tensor.
    #[error("tensor `{tensor}` has two shards on rank {rank}: give one shard with several pieces")]
    DuplicateShard {
        /// The tensor.
        tensor: String,
        /// The PE.
        rank: u32,
    },
    /// Numbers of dimensions that do not match.
    #[error(
        "tensor `{tensor}`, rank {rank}: {what} has {found} dimensions, the tensor has {expected}"
    )]
    DimsMismatch {
        /// The tensor.
        tensor: String,
        /// The PE.
        rank: u32,
        /// The shard's shape or one of its pieces.
        what: &'static str,
        /// How many dimensions that has.
        found: usize,
        /// How many the tensor has.
        expected: usize,
    },
    /// A piece that reaches outside the tensor or the shard.
    #[error(
        "tensor `{tensor}`, rank {rank}: piece {piece} lies outside the {what} of shape {shape}"
    )]
    OutOfBounds {
        /// The tensor.
        tensor: String,
        /// The PE.
        rank: u32,
        /// The piece, in the coordinates of `what`.
        piece: Box<NdBox>,
        /// `tensor` or `shard`.
        what: &'static str,
        /// Its shape.
        shape: Box<Dims>,
    },
    /// Two pieces of one shard share elements.
    #[error("tensor `{tensor}`, rank {rank}: pieces {first} and {second} overlap in the {what}")]
    OverlappingPieces {
        /// The tensor.
        tensor: String,
        /// The PE.
        rank: u32,
        /// One piece, in the coordinates of `what`.
        first: Box<NdBox>,
        /// The other.
        second: Box<NdBox>,
        /// `tensor` or `shard`.
        what: &'static str,
    },
    /// A mesh rule that cannot be applied.
    #[error("rule `{rule}`: {cause}")]
    BadRule {
        /// The rule's pattern.
        rule: String,
        /// The fault, and what would do.
        cause: String,
    },
    /// A mesh rule that does not fit a tensor it matches.
    #[error("tensor `{tensor}`, rule `{rule}`: {cause}")]
    RuleDoesNotFit {
        /// The tensor.
        tensor: String,
        /// The rule's pattern.
        rule: String,
        /// What does not fit, and what would.
        cause: String,
    },
    /// A mesh that describes no group of PEs.
    #[error("mesh: {cause}")]
    BadMesh {
        /// The fault.
        cause: String,
    },
    /// Experts or layers given to stages in numbers that do not add up.
    #[error("{what}: the mesh places {placed}, but {found} are named, the last by `{tensor}`")]
    CountMismatch {
        /// `layers` or `experts`.
        what: &'static str,
        /// How many the mesh speaks of.
        placed: u64,
        /// How many the tensors' names show.
        found: u64,
        /// The tensor that shows it.
        tensor: String,
    },
    /// Element types differ and no conversion is declared.
    #[error(
        "tensor `{tensor}` is {from} in the source and {to} in the destination: declare the conversion or use one dtype"
    )]
    DtypeMismatch {
        /// The tensor.
        tensor: String,
        /// Source type.
        from: Dtype,
        /// Destination type.
        to: Dtype,
    },
    /// A change of element type that was declared, but that nothing can do.
    #[error("tensor `{tensor}`: {cause}")]
    NoConversion {
        /// The tensor.
        tensor: String,
        /// The two types, and the types that can be converted.
        cause: ConvertError,
    },
    /// Tensors in blocks that do not fit together.
    #[error("tensor `{tensor}`: {cause}")]
    Blocks {
        /// The tensor.
        tensor: String,
        /// What does not fit, and what would.
        cause: String,
    },
    /// Global shapes differ.
    #[error("tensor `{tensor}` has shape {from} in the source and {to} in the destination")]
    ShapeMismatch {
        /// The tensor.
        tensor: String,
        /// Source shape.
        from: Box<Dims>,
        /// Destination shape.
        to: Box<Dims>,
    },
    /// A destination tensor that the source does not have.
    #[error("tensor `{tensor}` of the destination is not in the source")]
    UnknownTensor {
        /// The tensor.
        tensor: String,
    },
    /// A source tensor that the destination does not have.
    #[error(
        "tensor `{tensor}` of the source is not in the destination: remove it from the source layout if it shall be dropped"
    )]
    MissingTensor {
        /// The tensor.
        tensor: String,
    },
    /// The two layouts have different numbers of experts.
    #[error("tensor `{tensor}`: the source has {from} experts of this kind, the destination {to}")]
    ExpertCount {
        /// A tensor that only one side has.
        tensor: String,
        /// Experts of the source.
        from: u64,
        /// Experts of the destination.
        to: u64,
    },
    /// Memory of a shard that must be dense, or whose elements interleave.
    #[error(
        "tensor `{tensor}`: the elements of its shard interleave, or are in blocks: pass memory in which they lie one after the other"
    )]
    Strided {
        /// The tensor.
        tensor: String,
    },
    /// Elements of a destination that no source holds.
    #[error("tensor `{tensor}`: {missing}, needed on rank {rank}, is held by no source rank")]
    NotCovered {
        /// The tensor.
        tensor: String,
        /// The destination PE.
        rank: u32,
        /// A box, in global coordinates, that no source holds.
        missing: Box<NdBox>,
    },
    /// Elements of a destination shard that no piece describes.
    #[error(
        "tensor `{tensor}`, rank {rank}: {elements} elements of the shard of shape {shape} are in no piece"
    )]
    ShardNotFilled {
        /// The tensor.
        tensor: String,
        /// The destination PE.
        rank: u32,
        /// How many.
        elements: u64,
        /// Shape of the shard.
        shape: Box<Dims>,
    },
    /// Layouts for more PEs than there are.
    #[error("the layouts are for {world} PEs, and this group has {size}")]
    GroupTooSmall {
        /// One more than the highest rank of both layouts.
        world: usize,
        /// PEs of the group.
        size: usize,
    },
    /// A slot size that cannot be used.
    #[error("slots of {slot_bytes} bytes: give a multiple of 64, at least 64")]
    BadSlot {
        /// The size asked for.
        slot_bytes: u64,
    },
}

#[cfg(feature = "json")]
impl From<syncline_files::FormError> for LayoutError {
    fn from(error: syncline_files::FormError) -> Self {
        Self::Syntax { place: error.position(), cause: error.cause() }
    }
}
