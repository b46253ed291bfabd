//! Programs: one PE's part of a plan, reduced to addresses, runs and messages.
//!
//! Everything that does not change between two refits is computed here once: which bytes of which
//! tensor go where, in which message, converted by what. Running it looks nothing up by name, and
//! allocates only for checksums and for the parts of boxes that are too large for one pass.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use syncline_tensor::Dtype;

use syncline_copy::convert::mx::{self, Restorer};
use syncline_copy::convert::{self, Converter};
use syncline_copy::{CopyError, CopyPlan, ElementChange, Strides};
use syncline_layout::LayoutError;
use syncline_layout::{Batch, Schedule};
use syncline_layout::{CopyBox, PlanTensor, Recoding, TransferOp, TransferPlan};
use syncline_layout::{Dims, NdBox};

/// A box between a tensor of this PE and a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    /// Position in the source layout when packing, in the destination layout when unpacking.
    pub tensor: u32,
    /// Position among the program's shapes.
    pub shape: u32,
    /// Bytes from the start of the tensor's shard.
    pub tensor_offset: usize,
    /// Bytes from the start of the slot.
    pub slot_offset: usize,
}

impl Piece {
    /// The part of a slot that it spans must be there: what follows reads and writes it unchecked.
    pub fn check_room(&self, span: u64, slot_bytes: usize) {
        let end = self.slot_offset as u64 + span;
        assert!(end <= slot_bytes as u64, "{span} bytes at {} of {slot_bytes}", self.slot_offset);
    }
}

/// A box from one shard straight into another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    /// The PE that holds the target.
    pub peer: u32,
    /// Position in the source layout.
    pub source: u32,
    /// Position in the destination layout.
    pub target: u32,
    /// Position among the program's shapes.
    pub shape: u32,
    pub source_offset: usize,
    pub target_offset: usize,
}

/// What fits one slot.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub peer: u32,
    /// Of all segments.
    pub bytes: usize,
    /// Of its smallest element on the way, if its bytes are a multiple of that.
    pub unit_bytes: usize,
    /// The round, below the number of the batch.
    pub tag: u64,
    pub pieces: Box<[Piece]>,
    /// The same boxes straight into the receiver's shards: of messages that are sent with
    /// checksums.
    pub moves: Box<[Move]>,
    /// What has a checksum each; empty without them.
    pub segments: Box<[Segment]>,
}

impl Message {
    /// The shape of box `at` whose target is the receiver's memory.
    pub fn target_shape(&self, at: usize) -> u32 {
        self.moves.get(at).map_or_else(|| self.pieces[at].shape, |each| each.shape)
    }

    /// Bytes that it puts into the receiver's memory, in the receiver's element types.
    pub fn target_bytes(&self, program: &Program) -> u64 {
        let bytes = |at| program.shape(self.target_shape(at)).copy.bytes();
        (0..self.pieces.len()).map(bytes).sum()
    }
}

/// A part of a tensor in a message.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    /// Position in the destination layout.
    pub tensor: u32,
    /// Bytes from the start of the slot.
    pub slot_offset: usize,
    /// In the slot.
    pub bytes: usize,
    /// Positions among the message's pieces.
    pub boxes: std::ops::Range<usize>,
}

/// How a box is copied; thousands of pieces share a few of them.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub copy: CopyPlan,
    pub recode: Recode,
}

/// What is done to the elements of a box, before it is known where their scales lie.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Recode {
    Nothing,
    Each(Converter),
    Restore(Restorer),
}

impl Shape {
    /// What is done to elements from byte `offset` on of a tensor whose scales, if it has any,
    /// start at `scales`.
    pub fn change(&self, scales: impl FnOnce() -> *const u8, offset: usize) -> ElementChange {
        match self.recode {
            Recode::Nothing => ElementChange::Nothing,
            Recode::Each(convert) => ElementChange::Each(convert),
            Recode::Restore(restore) => {
                ElementChange::Restore { restore, scales: scales(), start: offset }
            }
        }
    }
}

/// One PE's part of a plan.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub rank: u32,
    shapes: Vec<Shape>,
    /// By round.
    pub sends: Vec<Message>,
    /// By round.
    pub receives: Vec<Message>,
    /// What stays on this PE, and the same transfers as `sends` for peers whose memory this PE can
    /// write; with checksums, messages have those. Tensor by tensor, whoever gets the parts:
    /// together they are the whole lines and pages that the memory hands out anyway, where one
    /// receiver's alone are every other one.
    pub moves: Vec<Move>,
    /// Where the scales of source tensors that are restored are, both by position in the source
    /// layout.
    pub scales: HashMap<u32, u32>,
    /// Bytes that this PE writes or sends, by any way.
    pub bytes: u64,
    /// Whether segments have checksums.
    pub is_checked: bool,
}

impl Program {
    /// The part of `rank` in `plan`, whose batches are in `schedule`, which has room for checksums
    /// where those are asked for.
    pub fn new(
        plan: &TransferPlan,
        schedule: &Schedule,
        rank: u32,
        is_checked: bool,
        strided: [&ByTensor; 2],
    ) -> Result<Self, LayoutError> {
        let (shapes, known) = (Vec::new(), HashMap::new());
        let mut lower = Lower { plan, rank, is_checked, strided, shapes, known };
        let sends = schedule.sends(rank).map(|batch| lower.message(batch, Way::Pack));
        let sends = sends.collect::<Result<Vec<_>, _>>()?;
        let receives = schedule.receives(rank).map(|batch| lower.message(batch, Way::Unpack));
        let receives = receives.collect::<Result<Vec<_>, _>>()?;
        let mut moves = Vec::new();
        let mut bytes = 0;
        for op in plan.ops().iter().filter(|op| op.src == rank) {
            let copy = plan.copy_box(op);
            bytes += copy.elements() * plan.tensor(op).unit_bytes()[2];
            if op.is_self_move() || !is_checked {
                moves.push(lower.shard_to_shard(op, &NdBox::whole(copy.size))?);
            }
        }
        let scales = plan.tensors().iter().filter_map(|tensor| match tensor.recoding {
            Recoding::Restored { scales } => Some((tensor.from, scales)),
            _ => None,
        });
        let scales = scales.collect();
        moves.shrink_to_fit();
        let shapes = lower.shapes;
        Ok(Self { rank, shapes, sends, receives, moves, scales, bytes, is_checked })
    }

    /// What stays on this PE.
    pub fn self_moves(&self) -> impl Iterator<Item = &Move> {
        self.moves.iter().filter(|each| each.peer == self.rank)
    }

    /// How a piece or move with this shape is copied.
    pub fn shape(&self, shape: u32) -> &Shape {
        &self.shapes[shape as usize]
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Pack,
    Unpack,
}

/// How the elements of shards lie that are not dense and row-major, by position in the layout.
pub(crate) type ByTensor = HashMap<u32, Lie>;

/// How the elements of a shard lie that is not dense and row-major.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lie {
    /// In bytes.
    pub strides: Box<[i64]>,
    /// Bytes from the lowest address of the shard to its first element.
    pub origin: u64,
}

struct Lower<'a> {
    plan: &'a TransferPlan,
    rank: u32,
    is_checked: bool,
    /// Of this PE's sources and targets.
    strided: [&'a ByTensor; 2],
    shapes: Vec<Shape>,
    known: HashMap<(CopyPlan, Dtype, Dtype, Recoding), u32>,
}

impl Lower<'_> {
    fn message(&mut self, batch: &Batch, way: Way) -> Result<Message, LayoutError> {
        let mut pieces = Vec::with_capacity(batch.segments.len());
        let (mut moves, mut segments) = (Vec::new(), Vec::new());
        let (plan, mut unit_bytes) = (self.plan, 8);
        for segment in &batch.segments {
            let op = &plan.ops()[segment.op as usize];
            let tensor = plan.tensor(op);
            let copy = plan.copy_box(op);
            let wire_bytes = tensor.unit_bytes()[1];
            unit_bytes = unit_bytes.min(tensor.wire_dtype().bytes() as usize);
            let mut slot_offset = segment.offset as usize;
            let first = pieces.len();
            for part in copy.boxes(segment.first..segment.first + segment.count) {
                pieces.push(self.piece(tensor, copy, &part, way, slot_offset)?);
                slot_offset += (part.volume() * wire_bytes) as usize;
                if self.is_checked && way == Way::Pack {
                    moves.push(self.shard_to_shard(op, &part)?);
                }
            }
            if self.is_checked {
                let start = segment.offset as usize;
                let (bytes, boxes) = (slot_offset - start, first..pieces.len());
                segments.push(Segment { tensor: tensor.to, slot_offset: start, bytes, boxes });
            }
        }
        let peer = if way == Way::Pack { batch.dst } else { batch.src };
        // Sender and receiver count the batches of a pair alike.
        let tag = u64::from(batch.number) << 32 | u64::from(batch.round);
        let bytes = batch.bytes as usize;
        let unit_bytes = if bytes.is_multiple_of(unit_bytes) { unit_bytes } else { 1 };
        Ok(Message {
            peer,
            bytes,
            unit_bytes,
            tag,
            pieces: pieces.into(),
            moves: moves.into(),
            segments: segments.into(),
        })
    }

    /// The part `part` of a transfer's box, between shard and slot.
    fn piece(
        &mut self,
        tensor: &PlanTensor,
        copy: &CopyBox,
        part: &NdBox,
        way: Way,
        slot_offset: usize,
    ) -> Result<Piece, LayoutError> {
        let wire = tensor.wire_dtype();
        let copy = copy.part(part);
        // What the sender does to blocks is done when they arrive.
        let (position, copy, dtypes, recoding) = match way {
            Way::Pack => (tensor.from, copy.pack(), (tensor.src_dtype, wire), tensor.recoding),
            Way::Unpack => (tensor.to, copy.unpack(), (wire, tensor.dst_dtype), Recoding::Elements),
        };
        let [source_bytes, wire_bytes, target_bytes] = tensor.unit_bytes();
        let [sources, targets] = self.strided;
        let (unit_bytes, lies) = match way {
            Way::Pack => ((source_bytes, wire_bytes), [sources.get(&tensor.from), None]),
            Way::Unpack => ((wire_bytes, target_bytes), [None, targets.get(&tensor.to)]),
        };
        let (shape, source, target) =
            self.shape(tensor, &copy, unit_bytes, lies, dtypes, recoding)?;
        let tensor_offset = if way == Way::Pack { source } else { target };
        Ok(Piece { tensor: position, shape, tensor_offset, slot_offset })
    }

    /// The part `part` of a transfer's box, between the two shards.
    fn shard_to_shard(&mut self, op: &TransferOp, part: &NdBox) -> Result<Move, LayoutError> {
        let tensor = self.plan.tensor(op);
        let copy = self.plan.copy_box(op).part(part);
        let [source_bytes, _, target_bytes] = tensor.unit_bytes();
        let dtypes = (tensor.src_dtype, tensor.dst_dtype);
        let unit_bytes = (source_bytes, target_bytes);
        let [sources, targets] = self.strided;
        // What peers announce is dense.
        let target = targets.get(&tensor.to).filter(|_| op.dst == self.rank);
        let lies = [sources.get(&tensor.from), target];
        let (shape, source_offset, target_offset) =
            self.shape(tensor, &copy, unit_bytes, lies, dtypes, tensor.recoding)?;
        let (peer, source, target) = (op.dst, tensor.from, tensor.to);
        Ok(Move { peer, source, target, shape, source_offset, target_offset })
    }

    /// The position of the shape of `copy`, which is added if it is a new one, and where the box
    /// starts on both sides. The pairs are of the source and the target.
    fn shape(
        &mut self,
        tensor: &PlanTensor,
        copy: &CopyBox,
        unit_bytes: (u64, u64),
        lies: [Option<&Lie>; 2],
        (from, to): (Dtype, Dtype),
        recoding: Recoding,
    ) -> Result<(u32, usize, usize), LayoutError> {
        let copy = match lies {
            [None, None] => copy.plan(unit_bytes.0, unit_bytes.1),
            lies => {
                // Which block an element belongs to follows from its place among dense ones.
                if !matches!(recoding, Recoding::Elements) || tensor.unit_elements() != (1, 1) {
                    return Err(LayoutError::Strided { tensor: tensor.name.clone() });
                }
                strided(copy, unit_bytes, lies)
            }
        };
        let copy = match copy {
            Ok(copy) => copy,
            Err(_) if lies.iter().any(Option::is_some) => {
                return Err(LayoutError::Strided { tensor: tensor.name.clone() });
            }
            Err(error) => unreachable!("layouts bound the bytes of a shard: {error}"),
        };
        // Negative strides reach back: the lowest bytes are what offsets count from.
        let [source, target] = [copy.source_span().start, copy.target_span().start];
        let own = |offset: u64, start: u64| offset - start;
        let key = copy
            .clone()
            .with_offsets(own(copy.source_offset(), source), own(copy.target_offset(), target));
        let (source, target) = (source as usize, target as usize);
        // Which tensor the scales are in does not change the shape.
        let kind = match recoding {
            Recoding::Restored { .. } => Recoding::Restored { scales: 0 },
            other => other,
        };
        let position = match self.known.entry((key, from, to, kind)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let recode = recode(tensor, from, to, recoding)?;
                self.shapes.push(Shape { copy: new.key().0.clone(), recode });
                *new.insert(self.shapes.len() as u32 - 1)
            }
        };
        Ok((position, source, target))
    }
}

/// How a box is copied between shards of which at least one is not dense and row-major.
fn strided(
    copy: &CopyBox,
    unit_bytes: (u64, u64),
    lies: [Option<&Lie>; 2],
) -> Result<CopyPlan, CopyError> {
    let strides = |lie: Option<&Lie>, shape: &Dims, bytes: u64| -> Vec<i64> {
        match lie {
            Some(lie) => lie.strides.to_vec(),
            None => shape.row_major_strides(bytes).iter().map(|&stride| stride as i64).collect(),
        }
    };
    let source = strides(lies[0], &copy.src_shape, unit_bytes.0);
    let target = strides(lies[1], &copy.dst_shape, unit_bytes.1);
    let plan = copy.plan_strided(
        Strides { strides: &source, element_bytes: unit_bytes.0 },
        Strides { strides: &target, element_bytes: unit_bytes.1 },
    )?;
    let [source, target] = lies.map(|lie| lie.map_or(0, |lie| lie.origin as i64));
    Ok(plan.shifted(source, target))
}

fn recode(
    tensor: &PlanTensor,
    from: Dtype,
    to: Dtype,
    recoding: Recoding,
) -> Result<Recode, LayoutError> {
    let chosen = match recoding {
        Recoding::Elements if from == to => Some(Recode::Nothing),
        Recoding::Elements => convert::converter(from, to).map(Recode::Each),
        Recoding::BlockElements => mx::elements_converter(from, to).map(Recode::Each),
        Recoding::BlockScales { elements } => {
            mx::scales_converter(from, elements).map(Recode::Each)
        }
        Recoding::Restored { .. } => mx::restorer(from, to).map(Recode::Restore),
    };
    let tensor = tensor.name.clone();
    chosen.ok_or(LayoutError::DtypeMismatch { tensor, from, to })
}
