//! Refits: a plan made ready to be run, again and again, by one PE.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::BindError;
use super::program::{ByTensor, Lie, Program};
use syncline_layout::Fingerprint;
use syncline_layout::Layout;
use syncline_layout::LayoutError;
use syncline_layout::Schedule;
use syncline_layout::{PairTraffic, PlanOptions, TransferPlan};

/// The shards that one PE holds of a layout.
#[derive(Clone, Debug)]
pub struct Shards {
    side: &'static str,
    /// Of the layout and the rank.
    identity: u64,
    names: Vec<Box<str>>,
    bytes: Vec<usize>,
    /// Positions by name.
    sorted: Vec<u32>,
    /// The other names of tied tensors.
    aliases: Names,
    /// The names that this PE itself has for its shards, where those are others.
    local_names: Names,
    /// Whether this PE calls it otherwise than the layout.
    is_renamed: Vec<bool>,
    /// Whether a refit touches it.
    used: Vec<bool>,
    /// Shards that lie otherwise than dense and row-major.
    strided: ByTensor,
}

/// Byte strides of the shards of one PE that do not lie dense and row-major, by name.
///
/// ```
/// use syncline_reshard::ShardStrides;
///
/// // A 2x3 shard of `f32` that is bound transposed.
/// let strides = ShardStrides::default().source("w", &[4, 8]);
/// assert!(!strides.is_empty());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardStrides {
    sources: BTreeMap<String, Vec<i64>>,
    targets: BTreeMap<String, Vec<i64>>,
}

impl ShardStrides {
    /// Sets the strides of a source's shard.
    #[must_use]
    pub fn source(mut self, name: &str, strides: &[i64]) -> Self {
        self.sources.insert(name.to_owned(), strides.to_vec());
        self
    }

    /// Sets the strides of a target's shard.
    #[must_use]
    pub fn target(mut self, name: &str, strides: &[i64]) -> Self {
        self.targets.insert(name.to_owned(), strides.to_vec());
        self
    }

    /// Returns `true` if all shards are dense and row-major.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty() && self.targets.is_empty()
    }
}

impl Shards {
    fn new(layout: &Layout, rank: u32, side: &'static str) -> Self {
        let tensors = layout.tensors();
        let bytes = tensors.iter().map(|tensor| {
            let shard = tensor.placement().shard(rank);
            shard.map_or(0, |shard| shard.shape.volume() * tensor.dtype().bytes()) as usize
        });
        let names: Vec<Box<str>> = tensors.iter().map(|tensor| tensor.name().into()).collect();
        let numbered = || (0u32..).zip(tensors);
        let mut sorted: Vec<u32> = (0..names.len() as u32).collect();
        sorted.sort_unstable_by(|&a, &b| names[a as usize].cmp(&names[b as usize]));
        let tied = numbered()
            .flat_map(|(at, tensor)| tensor.aliases().iter().map(move |alias| (&alias[..], at)));
        let renamed = numbered().filter(|(_, tensor)| tensor.placement().shard(rank).is_some());
        let renamed = renamed.map(|(at, tensor)| (tensor.local_name(rank), at));
        let renamed = renamed.filter(|(name, at)| *name != &*names[*at as usize]);
        let (aliases, local_names) = (Names::new(tied), Names::new(renamed));
        let mut is_renamed = vec![false; names.len()];
        local_names.0.iter().for_each(|(_, at)| is_renamed[*at as usize] = true);
        let mut identity = Fingerprint::new(layout.fingerprint());
        identity.word(rank.into());
        let (identity, used) = (identity.finish(), vec![false; names.len()]);
        let bytes = bytes.collect();
        let strided = ByTensor::new();
        Self {
            side,
            identity,
            bytes,
            used,
            names,
            sorted,
            aliases,
            local_names,
            is_renamed,
            strided,
        }
    }

    /// Notes which shards of `rank` have `strides`, and how their elements lie.
    fn with_strides(
        mut self,
        layout: &Layout,
        rank: u32,
        strides: &BTreeMap<String, Vec<i64>>,
    ) -> Result<Self, LayoutError> {
        for (name, strides) in strides {
            let refused = || LayoutError::Strided { tensor: name.clone() };
            let at = self.position(name).ok_or_else(refused)?;
            let shard = layout.tensors()[at].placement().shard(rank).ok_or_else(refused)?;
            if shard.shape.len() != strides.len() {
                return Err(refused());
            }
            let back = |(&stride, &size): (&i64, &u64)| match stride < 0 {
                true => stride.unsigned_abs().checked_mul(size.saturating_sub(1)),
                false => Some(0),
            };
            let mut back = strides.iter().zip(shard.shape.iter()).map(back);
            let origin = back.try_fold(0u64, |sum, back| sum.checked_add(back?));
            let origin = origin.ok_or_else(refused)?;
            let strides = strides.as_slice().into();
            self.strided.insert(at as u32, Lie { strides, origin });
        }
        // Bindings are for these shards with these strides only.
        let mut strided: Vec<_> = self.strided.iter().collect();
        strided.sort_unstable_by_key(|(at, _)| **at);
        let mut identity = Fingerprint::new(self.identity);
        for (at, lie) in strided {
            identity.word((*at).into());
            lie.strides.iter().for_each(|&stride| identity.word(stride as u64));
        }
        if !self.strided.is_empty() {
            self.identity = identity.finish();
        }
        Ok(self)
    }

    /// Returns `true` if no shard lies otherwise than dense and row-major.
    pub(crate) fn is_dense(&self) -> bool {
        self.strided.is_empty()
    }

    /// Bytes from the lowest address to the first element of the shard at a position, if it is
    /// strided.
    pub(crate) fn origin(&self, at: usize) -> Option<u64> {
        self.strided.get(&(at as u32)).map(|lie| lie.origin)
    }

    /// The same for shards of the same layout on the same PE only.
    pub(crate) fn identity(&self) -> u64 {
        self.identity
    }

    /// `source` or `destination`.
    pub(crate) fn side(&self) -> &'static str {
        self.side
    }

    /// Tensors of the layout, held by this PE or not.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether the layout has no tensors.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Name and size of every shard that this PE holds, in the order of the layout.
    pub fn iter(&self) -> impl Iterator<Item = (&str, usize)> {
        let all = self.names.iter().zip(&self.bytes);
        all.filter(|(_, bytes)| **bytes > 0).map(|(name, &bytes)| (&name[..], bytes))
    }

    /// The tensor at a position in the layout.
    pub(crate) fn name(&self, at: usize) -> &str {
        &self.names[at]
    }

    /// Bytes of all shards of this PE.
    pub fn bytes_total(&self) -> usize {
        self.bytes.iter().sum()
    }

    /// The size of each shard by position in the layout; 0 where this PE holds nothing.
    pub(crate) fn sizes(&self) -> &[usize] {
        &self.bytes
    }

    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        let found = self.sorted.binary_search_by(|&at| self.names[at as usize][..].cmp(name));
        found.ok().map(|at| self.sorted[at] as usize).or_else(|| self.aliases.get(name))
    }

    /// The layout's name of the shard that this PE itself calls `local`: layers and experts may be
    /// numbered anew on every PE, and tied tensors go by another name on some.
    ///
    /// Bindings and readings take the layout's names, since a PE may call one of its layers as the
    /// layout calls another.
    pub fn name_of(&self, local: &str) -> Option<&str> {
        let at = self.local_names.get(local);
        let is_called_so = |at: &usize| self.bytes[*at] > 0 && !self.is_renamed[*at];
        let at = at.or_else(|| self.position(local).filter(is_called_so));
        at.map(|at| self.name(at))
    }

    pub(crate) fn find(&self, name: &str, bytes: usize) -> Result<usize, BindError> {
        let side = self.side;
        let at = self.position(name);
        let at = at.ok_or_else(|| BindError::Unknown { name: name.to_owned(), side })?;
        let expected = self.bytes[at];
        if bytes != expected {
            return Err(BindError::Size { name: name.to_owned(), side, expected, got: bytes });
        }
        Ok(at)
    }

    /// Whether a refit touches the tensor at a position in the layout.
    pub(crate) fn is_used(&self, at: usize) -> bool {
        self.used[at]
    }

    /// The first tensor that a refit touches and that is not bound is an error.
    pub(crate) fn check_bound(&self, is_bound: impl Fn(usize) -> bool) -> Result<(), BindError> {
        match (0..self.len()).find(|&at| self.used[at] && !is_bound(at)) {
            None => Ok(()),
            Some(at) => Err(BindError::Unbound {
                name: self.names[at].to_string(),
                side: self.side,
                expected: self.bytes[at],
            }),
        }
    }
}

/// Positions of tensors by name.
#[derive(Clone, Debug)]
struct Names(Vec<(Box<str>, u32)>);

impl Names {
    fn new<'a>(names: impl Iterator<Item = (&'a str, u32)>) -> Self {
        let mut sorted: Vec<(Box<str>, u32)> = names.map(|(name, at)| (name.into(), at)).collect();
        sorted.sort_unstable();
        sorted.shrink_to_fit();
        Self(sorted)
    }

    fn get(&self, name: &str) -> Option<usize> {
        let found = self.0.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
        Some(self.0[found].1 as usize)
    }
}

/// A plan, its schedule and one PE's part of both.
#[derive(Clone, Debug)]
pub struct Refit {
    fingerprint: u64,
    slot_bytes: usize,
    world: u32,
    sources: Shards,
    targets: Arc<Shards>,
    /// Shared with the lanes that run parts of it.
    program: Arc<Program>,
    bytes_moved: u64,
    /// Of tensors, that this PE sends to others and receives from them.
    bytes_exchanged: [u64; 2],
    rounds: u32,
    /// Where the plan can be made again for fewer PEs.
    origin: Option<Arc<Origin>>,
    /// Of this PE's shards.
    strides: Arc<ShardStrides>,
}

/// What a plan was made from.
#[derive(Debug)]
struct Origin {
    from: Layout,
    to: Layout,
    options: PlanOptions,
}

impl Refit {
    /// The part of PE `rank` in turning `from` into `to`, in slots of `slot_bytes`.
    pub fn new(
        from: &Layout,
        to: &Layout,
        options: &PlanOptions,
        slot_bytes: usize,
        rank: usize,
    ) -> Result<Self, LayoutError> {
        let dense = ShardStrides::default();
        Self::build((from, to), (from, to), options, slot_bytes, rank, false, &dense)
    }

    /// The same with a checksum for every segment, which its receiver verifies.
    pub fn with_checksums(
        from: &Layout,
        to: &Layout,
        options: &PlanOptions,
        slot_bytes: usize,
        rank: usize,
    ) -> Result<Self, LayoutError> {
        let dense = ShardStrides::default();
        Self::build((from, to), (from, to), options, slot_bytes, rank, true, &dense)
    }

    /// The same movement from and to shards of this PE that have `strides`. Its peers need not
    /// know.
    pub(crate) fn strided(
        from: &Layout,
        to: &Layout,
        options: &PlanOptions,
        dense: &Self,
        strides: &ShardStrides,
    ) -> Result<Self, LayoutError> {
        let (slot_bytes, rank, is_checked) =
            (dense.slot_bytes, dense.rank(), dense.has_checksums());
        Self::build((from, to), (from, to), options, slot_bytes, rank, is_checked, strides)
    }

    /// Keeps the layouts, so that [`for_members`](Self::for_members) can plan anew.
    pub(crate) fn keeping(self, from: &Layout, to: &Layout, options: &PlanOptions) -> Self {
        let (from, to, options) = (from.clone(), to.clone(), options.clone());
        Self { origin: Some(Arc::new(Origin { from, to, options })), ..self }
    }

    /// The same for a group of `members`: bytes that others hold come from replicas, and
    /// what others need is left out. Bindings and destinations stay valid.
    ///
    /// Refuses bytes that no member holds, on every PE alike. Returns `None` where the layouts were
    /// not kept.
    pub(crate) fn for_members(&self, members: &[usize]) -> Option<Result<Self, LayoutError>> {
        let origin = self.origin.as_ref()?;
        let is_member = |rank: u32| members.binary_search(&(rank as usize)).is_ok();
        let (from, to) = (&origin.from, &origin.to);
        let left = (&from.restricted_to(is_member), &to.restricted_to(is_member));
        let (rank, is_checked, strides) = (self.rank(), self.has_checksums(), &self.strides);
        let (options, slot_bytes) = (&origin.options, self.slot_bytes);
        let built = Self::build((from, to), left, options, slot_bytes, rank, is_checked, strides);
        Some(built)
    }

    /// The plan is that of the second two layouts; bindings are by the first two, which have the
    /// same tensors.
    fn build(
        bound: (&Layout, &Layout),
        (from, to): (&Layout, &Layout),
        options: &PlanOptions,
        slot_bytes: usize,
        rank: usize,
        is_checked: bool,
        strides: &ShardStrides,
    ) -> Result<Self, LayoutError> {
        let rank = rank as u32;
        let plan = TransferPlan::for_rank(from, to, options, rank)?;
        let schedule = if is_checked { Schedule::with_checksums } else { Schedule::new };
        let schedule = schedule(&plan, slot_bytes as u64)?;
        let sources =
            Shards::new(bound.0, rank, "source").with_strides(bound.0, rank, &strides.sources);
        let targets =
            Shards::new(bound.1, rank, "destination").with_strides(bound.1, rank, &strides.targets);
        let (mut sources, mut targets) = (sources?, targets?);
        let strided = [&sources.strided, &targets.strided];
        let program = Program::new(&plan, &schedule, rank, is_checked, strided)?;
        let sent = program.sends.iter().flat_map(|message| &message.pieces);
        let kept = program.self_moves().map(|each| each.source);
        for source in sent.map(|piece| piece.tensor).chain(kept) {
            sources.used[source as usize] = true;
            if let Some(&scales) = program.scales.get(&source) {
                sources.used[scales as usize] = true;
            }
        }
        for each in program.self_moves() {
            targets.used[each.target as usize] = true;
        }
        for piece in program.receives.iter().flat_map(|message| &message.pieces[..]) {
            targets.used[piece.tensor as usize] = true;
        }
        let sum = |peer: fn(&PairTraffic) -> u32| {
            let pairs = plan.traffic().pairs().iter().filter(|pair| peer(pair) == rank);
            pairs.map(|pair| pair.bytes).sum()
        };
        let bytes_exchanged = [sum(|pair| pair.src), sum(|pair| pair.dst)];
        Ok(Self {
            fingerprint: plan.fingerprint(),
            slot_bytes,
            world: plan.world(),
            sources,
            targets: Arc::new(targets),
            program: Arc::new(program),
            bytes_moved: plan.bytes_moved(),
            bytes_exchanged,
            rounds: schedule.rounds(),
            origin: None,
            strides: Arc::new(strides.clone()),
        })
    }

    /// Equal on all PEs that planned from the same layouts and options.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// What a PE announces when it enters this refit: its fingerprint, how it is cut to slots, and
    /// whether it has checksums.
    pub fn announced(&self) -> u64 {
        let mut hasher = Fingerprint::new(self.fingerprint);
        hasher.word(self.slot_bytes as u64);
        hasher.word(self.has_checksums().into());
        hasher.finish()
    }

    /// Equal to that of another refit of this PE only if bindings of the one fit the other.
    pub(crate) fn identity(&self) -> u64 {
        let mut hasher = Fingerprint::new(self.announced());
        hasher.word(self.sources.identity());
        hasher.word(self.targets.identity());
        hasher.finish()
    }

    /// What a PE announces when it enters this refit by its changes.
    pub(crate) fn announced_changes(&self) -> u64 {
        let mut hasher = Fingerprint::new(self.announced());
        hasher.text("changes");
        hasher.finish()
    }

    /// Bytes of the slots that its messages are cut to; a group's slots must have at least as many.
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Whether every segment has a checksum.
    pub fn has_checksums(&self) -> bool {
        self.program.is_checked
    }

    /// The PE.
    pub fn rank(&self) -> usize {
        self.program.rank as usize
    }

    /// PEs that the layouts are for; a group needs at least as many.
    pub fn world(&self) -> usize {
        self.world as usize
    }

    /// What this PE holds before.
    pub fn sources(&self) -> &Shards {
        &self.sources
    }

    /// What this PE holds afterwards.
    pub fn targets(&self) -> &Arc<Shards> {
        &self.targets
    }

    /// Bytes that move between different PEs, of the whole plan.
    pub fn bytes_moved(&self) -> u64 {
        self.bytes_moved
    }

    /// Bytes of tensors that this PE sends to others.
    pub fn bytes_sent(&self) -> u64 {
        self.bytes_exchanged[0]
    }

    /// Bytes of tensors that this PE receives from others.
    pub fn bytes_received(&self) -> u64 {
        self.bytes_exchanged[1]
    }

    /// Rounds of the whole group.
    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Bytes that this PE sends, places and copies.
    pub fn bytes_local(&self) -> u64 {
        self.program.bytes
    }

    /// Bytes that this PE takes out of the slots of those peers that `uses_slots`.
    pub(crate) fn bytes_by_slots(&self, uses_slots: impl Fn(usize) -> bool) -> u64 {
        let receives = self.program.receives.iter();
        let received = receives.filter(|message| uses_slots(message.peer as usize));
        received.map(|message| message.bytes as u64).sum()
    }

    pub(crate) fn program(&self) -> &Arc<Program> {
        &self.program
    }
}
