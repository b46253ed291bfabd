//! Requests: sends and receives that PEs submit without a plan.
//!
//! First every PE tells all others what it will send, and each compares that with what it expects.
//! Then all know every transfer of the group: each is a tensor that one PE holds before and one
//! afterwards. A refit moves them: cut to slots, in rounds, by lanes like any other.

use std::collections::BTreeMap;
use std::sync::Arc;

use syncline_device::BufferView;
use syncline_layout::{Dims, Fingerprint, Layout, NdBox, Piece, PlanOptions, SLOT_ALIGN, Shard};
use syncline_tensor::Dtype;
use syncline_transport::{Corrupted, Failure, Header, Phase, Session, Transport, Wait};

use super::{CopyService, ServiceError, Target};
use crate::execute::{BindError, Refit, Sources, Targets};
use crate::sums;

/// Sends and receives of one PE, until [`run`](Self::run) carries them out.
///
/// ```
/// use syncline_reshard::{CopyService, ServiceError, ServiceOptions};
/// use syncline_transport::local;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// std::thread::scope(|scope| {
///     let threads = local::group(2, &local::Options::default())?.into_iter().map(|endpoint| {
///         scope.spawn(move || {
///             let mut service = CopyService::new(endpoint, ServiceOptions::default());
///             for round in 0..3 {
///                 let (rank, peer) = (service.rank(), 1 - service.rank());
///                 let (mine, mut theirs) = ([rank as u8 + round; 4], [0; 4]);
///                 let mut requests = service.requests();
///                 requests.submit_send(peer, None, &mine)?;
///                 requests.submit_recv(peer, None, &mut theirs)?;
///                 requests.run()?;
///                 assert_eq!(theirs, [peer as u8 + round; 4]);
///             }
///             Ok::<(), ServiceError>(())
///         })
///     });
///     threads.collect::<Vec<_>>().into_iter().try_for_each(|thread| thread.join().unwrap())?;
///     Ok(())
/// })
/// # }
/// ```
#[must_use = "nothing moves until they are run"]
pub struct Requests<'s, 'a> {
    service: &'s mut CopyService,
    /// By peer and tag.
    sends: BTreeMap<(usize, u64), Sent<'a>>,
    receives: BTreeMap<(usize, u64), Received<'a>>,
}

/// Where a tensor lies that is sent.
#[derive(Debug)]
enum Sent<'a> {
    Bytes(&'a [u8]),
    View(BufferView),
}

/// Where a tensor goes that is received.
#[derive(Debug)]
enum Received<'a> {
    Bytes(&'a mut [u8]),
    View(BufferView),
}

impl Sent<'_> {
    fn bytes(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::View(view) => view.view().bytes(),
        }
    }
}

impl Received<'_> {
    fn bytes(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::View(view) => view.view().bytes(),
        }
    }
}

impl std::fmt::Debug for Requests<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (sends, receives) = (self.sends.len(), self.receives.len());
        write!(f, "Requests(PE {}, {sends} sends, {receives} receives)", self.service.rank())
    }
}

/// Tags of requests without an id have this bit.
const BY_ORDER: u64 = 1 << 63;

/// One transfer of the group, as its sender has announced it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Transfer {
    sender: usize,
    receiver: usize,
    tag: u64,
    bytes: u64,
}

impl Transfer {
    /// The name of the tensor that it is.
    fn name(&self) -> String {
        let Self { sender, receiver, tag, .. } = self;
        match tag & BY_ORDER {
            0 => format!("request {tag} from PE {sender} to PE {receiver}"),
            bit => format!("request without an id {} from PE {sender} to PE {receiver}", tag ^ bit),
        }
    }
}

impl CopyService {
    /// Fails the group because this PE cannot do its part.
    fn refused(&self, error: &BindError) -> ServiceError {
        let (rank, message) = (self.rank(), error.to_string());
        self.transport.fail(Failure::Local { rank, message }).into()
    }

    /// Returns sends and receives to submit: nothing yet.
    pub fn requests<'a>(&mut self) -> Requests<'_, 'a> {
        Requests { service: self, sends: BTreeMap::new(), receives: BTreeMap::new() }
    }
}

impl<'a> Requests<'_, 'a> {
    /// Sends `bytes` to `peer`, for the receive with the same id.
    ///
    /// Requests without an id are matched by the order in which they were submitted for a pair of
    /// PEs. Ids are below 2^63.
    pub fn submit_send(
        &mut self,
        peer: usize,
        id: Option<u64>,
        bytes: &'a [u8],
    ) -> Result<(), ServiceError> {
        self.send(peer, id, Sent::Bytes(bytes))
    }

    /// Receives from `peer` as many bytes as `target` has.
    pub fn submit_recv(
        &mut self,
        peer: usize,
        id: Option<u64>,
        target: &'a mut [u8],
    ) -> Result<(), ServiceError> {
        self.receive(peer, id, Received::Bytes(target))
    }

    /// Sends all elements of `view`, which lie one after the other in memory of a device that the
    /// service has lanes on ([`CopyService::add_device`]).
    pub fn submit_send_view(
        &mut self,
        peer: usize,
        id: Option<u64>,
        view: BufferView,
    ) -> Result<(), ServiceError> {
        self.send(peer, id, Sent::View(view))
    }

    /// Receives into all elements of `view`, as for
    /// [`submit_send_view`](Self::submit_send_view).
    pub fn submit_recv_view(
        &mut self,
        peer: usize,
        id: Option<u64>,
        view: BufferView,
    ) -> Result<(), ServiceError> {
        self.receive(peer, id, Received::View(view))
    }

    fn send(&mut self, peer: usize, id: Option<u64>, sent: Sent<'a>) -> Result<(), ServiceError> {
        let size = self.service.transport.shape().size;
        let tag =
            tag(size, peer, id, self.sends.range((peer, 0)..=(peer, u64::MAX)).map(|one| one.0.1))?;
        self.sends.insert((peer, tag), sent);
        Ok(())
    }

    fn receive(
        &mut self,
        peer: usize,
        id: Option<u64>,
        received: Received<'a>,
    ) -> Result<(), ServiceError> {
        let size = self.service.transport.shape().size;
        let of_peer = self.receives.range((peer, 0)..=(peer, u64::MAX));
        let tag = tag(size, peer, id, of_peer.map(|one| one.0.1))?;
        self.receives.insert((peer, tag), received);
        Ok(())
    }

    /// Carries out what was submitted on all PEs, each of which calls it.
    ///
    /// Sends and receives are compared first, by peer, id and size: where they do not match,
    /// nothing is written anywhere. After any other failure, targets may be partly written.
    pub fn run(mut self) -> Result<(), ServiceError> {
        let transfers = self.meet()?;
        if transfers.iter().all(|transfer| transfer.bytes == 0) {
            return Ok(());
        }
        let refit = self.plan(&transfers)?;
        let Self { service, sends, receives } = self;
        let (mut sources, mut targets) = (Sources::new(&refit), Targets::new(&refit));
        let bound = bind(service.rank(), &refit, sends, receives, (&mut sources, &mut targets));
        bound.map_err(|error| service.refused(&error))?;
        service.refit(&refit, &sources, Target::Memory(&mut targets)).map(drop)
    }

    /// The plan of these transfers, which is kept for the next time.
    fn plan(&mut self, transfers: &[Transfer]) -> Result<Arc<Refit>, ServiceError> {
        let service = &mut *self.service;
        let (from, to) = layouts(transfers)?;
        let key = (from.fingerprint(), to.fingerprint());
        if let Some((of, refit)) = &service.requested
            && *of == key
            && refit.has_checksums() == service.options.checksums
        {
            return Ok(refit.clone());
        }
        // Slots of any size will do: the end of one may stay unused.
        let slot_bytes = service.transport.shape().slot_bytes;
        let slot_bytes = slot_bytes - slot_bytes % SLOT_ALIGN as usize;
        let refit = service.plan(&from, &to, &PlanOptions::default(), slot_bytes)?;
        let refit = Arc::new(refit);
        service.requested = Some((key, refit.clone()));
        Ok(refit)
    }

    /// Learns every transfer of the group, and compares those to this PE with what it expects.
    fn meet(&mut self) -> Result<Vec<Transfer>, ServiceError> {
        let service = &mut *self.service;
        let cancel = service.cancel.clone();
        let wait = Wait::timeout(service.options.timeout).cancelled_by(&cancel);
        service.go_on(&wait)?;
        let checksums = service.options.checksums;
        let mut hasher = Fingerprint::new(0xe8c4);
        hasher.word(checksums.into());
        let session = Session::enter(&mut *service.transport, hasher.finish(), &wait)?;
        let ring = Ring::new(session.transport(), &wait, checksums);
        let gathered = ring.gather(&manifest(&self.sends)).and_then(|transfers| {
            compare(ring.transport.rank(), &transfers, &self.receives)?;
            Ok(transfers)
        });
        // Before the session is dropped, which fails the group for a lesser reason.
        let transfers = gathered.map_err(|failure| session.transport().fail(failure))?;
        session.finish(&wait)?;
        Ok(transfers)
    }
}

/// Binds the tensors of all requests of PE `rank`.
fn bind<'a>(
    rank: usize,
    refit: &Refit,
    sends: BTreeMap<(usize, u64), Sent<'a>>,
    receives: BTreeMap<(usize, u64), Received<'a>>,
    (sources, targets): (&mut Sources<'a>, &mut Targets<'a>),
) -> Result<(), BindError> {
    let name = |sender, receiver, tag| Transfer { sender, receiver, tag, bytes: 0 }.name();
    for ((receiver, tag), sent) in sends.into_iter().filter(|(_, sent)| sent.bytes() > 0) {
        let name = name(rank, receiver, tag);
        match sent {
            Sent::Bytes(bytes) => sources.bind(refit, &name, bytes)?,
            Sent::View(view) => sources.bind_view(refit, &name, view)?,
        };
    }
    for ((sender, tag), received) in receives.into_iter().filter(|(_, one)| one.bytes() > 0) {
        let name = name(sender, rank, tag);
        match received {
            Received::Bytes(bytes) => targets.bind(refit, &name, bytes)?,
            Received::View(view) => targets.bind_view(refit, &name, view)?,
        };
    }
    Ok(())
}

/// The tag of a request, whose peer already has requests with the tags `taken`, in order.
fn tag(
    size: usize,
    peer: usize,
    id: Option<u64>,
    mut taken: impl Iterator<Item = u64>,
) -> Result<u64, ServiceError> {
    let tag = id.unwrap_or_else(|| {
        BY_ORDER | taken.by_ref().filter(|tag| tag & BY_ORDER != 0).count() as u64
    });
    let problem = match id {
        _ if peer >= size => "there is no such PE in the group",
        Some(id) if id & BY_ORDER != 0 => "ids are below 2^63",
        Some(id) if taken.any(|taken| taken == id) => {
            "that id is submitted already; run or drop the requests first, or use another"
        }
        _ => return Ok(tag),
    };
    Err(ServiceError::Submit { peer, problem })
}

/// What a PE sends: receiver, tag and size of each.
fn manifest(sends: &BTreeMap<(usize, u64), Sent<'_>>) -> Vec<u8> {
    let words = sends.iter().flat_map(|((peer, tag), sent)| [*peer as u64, *tag, sent.bytes()]);
    words.flat_map(u64::to_le_bytes).collect()
}

/// What `sender` has announced.
fn announced(sender: usize, manifest: &[u8]) -> impl Iterator<Item = Transfer> {
    let (words, _) = manifest.as_chunks::<8>();
    words.chunks_exact(3).map(move |entry| {
        let [receiver, tag, bytes] = [entry[0], entry[1], entry[2]].map(u64::from_le_bytes);
        Transfer { sender, receiver: receiver as usize, tag, bytes }
    })
}

/// Compares what all send to `receiver` with what it expects.
fn compare(
    receiver: usize,
    transfers: &[Transfer],
    receives: &BTreeMap<(usize, u64), Received<'_>>,
) -> Result<(), Failure> {
    let mut expected: BTreeMap<(usize, u64), u64> =
        receives.iter().map(|(key, received)| (*key, received.bytes())).collect();
    for &Transfer { sender, tag, bytes, .. } in
        transfers.iter().filter(|transfer| transfer.receiver == receiver)
    {
        match expected.remove(&(sender, tag)) {
            Some(expected_bytes) if expected_bytes == bytes => {}
            None => return Err(Failure::UnmatchedSend { sender, receiver, tag, bytes }),
            Some(expected_bytes) => {
                let sent_bytes = bytes;
                return Err(Failure::SizeMismatch {
                    sender,
                    receiver,
                    tag,
                    sent_bytes,
                    expected_bytes,
                });
            }
        }
    }
    match expected.first_key_value() {
        None => Ok(()),
        Some((&(sender, tag), &bytes)) => {
            Err(Failure::UnmatchedReceive { sender, receiver, tag, bytes })
        }
    }
}

/// The layouts before and after all transfers, in which each is a tensor of bytes.
fn layouts(transfers: &[Transfer]) -> Result<(Layout, Layout), syncline_layout::LayoutError> {
    let (mut from, mut to) = (Layout::builder(), Layout::builder());
    for transfer in transfers.iter().filter(|transfer| transfer.bytes > 0) {
        let size = Dims::splat(1, transfer.bytes).expect("one dimension is not too many");
        let shard = |rank: usize| {
            let global = NdBox { start: size.zeros(), size };
            let pieces = vec![Piece { global, local: size.zeros() }];
            vec![Shard { rank: rank as u32, shape: size, pieces }]
        };
        let name = transfer.name();
        from.tensor(&name, Dtype::U8, &size, shard(transfer.sender))?;
        to.tensor(&name, Dtype::U8, &size, shard(transfer.receiver))?;
    }
    Ok((from.finish(), to.finish()))
}

/// Every member tells all others something, in a ring: in step `k` each sends to the member `k`
/// places on and receives from the one `k` places back, so that no PE receives from two at once.
struct Ring<'a> {
    transport: &'a dyn Transport,
    members: Vec<usize>,
    wait: &'a Wait<'a>,
    checksums: bool,
}

impl<'a> Ring<'a> {
    fn new(transport: &'a dyn Transport, wait: &'a Wait<'a>, checksums: bool) -> Self {
        Self { transport, members: transport.members(), wait, checksums }
    }

    /// Returns what all have announced, this PE's own included, in the order of the members.
    fn gather(&self, mine: &[u8]) -> Result<Vec<Transfer>, Failure> {
        let (rank, size) = (self.transport.rank(), self.members.len());
        let place = self.members.iter().position(|member| *member == rank).unwrap_or(0);
        let mut manifests: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
        manifests.insert(rank, mine.to_vec());
        // The step, and the bytes sent in it.
        let (mut sending, mut receiving) = ((1, 0), 1);
        while sending.0 < size || receiving < size {
            let seen = self.transport.bell();
            let mut went = false;
            let to = self.members[(place + sending.0) % size];
            let from = self.members[(place + size - receiving % size) % size];
            if receiving < size {
                let manifest = manifests.entry(from).or_default();
                let mut is_last = false;
                went |= self.transport.try_receive(from, &mut |header, message| {
                    self.verify(from, header, message)?;
                    manifest.extend_from_slice(message);
                    is_last = manifest.len() as u64 >= header.tag;
                    Ok(())
                })?;
                receiving += usize::from(is_last);
            }
            if sending.0 < size {
                let (step, start) = sending;
                let slot_bytes = self.transport.shape().slot_bytes;
                let part = &mine[start..mine.len().min(start + slot_bytes)];
                if self.transport.try_send(to, part.len(), &mut |slot| {
                    slot.copy_from_slice(part);
                    let checksum = if self.checksums { sums::sum(part) } else { 0 };
                    Header { tag: mine.len() as u64, checksum }
                })? {
                    went = true;
                    let end = start + part.len();
                    sending = if end == mine.len() { (step + 1, 0) } else { (step, end) };
                }
            }
            if !went {
                let peer = if receiving < size { from } else { to };
                self.transport.park(seen, &self.wait.until(Phase::Transfer, peer))?;
            } else if let Some(failure) = self.wait.expired(rank) {
                return Err(failure);
            }
        }
        Ok(manifests.iter().flat_map(|(sender, manifest)| announced(*sender, manifest)).collect())
    }

    fn verify(&self, sender: usize, header: Header, message: &[u8]) -> Result<(), Failure> {
        let (receiver, got) = (self.transport.rank(), sums::sum(message));
        if self.checksums && got != header.checksum {
            let (what, expected) = (Corrupted::Announcement, header.checksum);
            return Err(Failure::Corrupt { what, sender, receiver, expected, got });
        }
        Ok(())
    }
}
