//! How a group forms: one list of members, then a connection between each two.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use super::proof::{self, Proved, Purpose, Timed, Transcript};
use super::{JoinError, MeetingPlace, Options, Refusal, Token};
use crate::{Failure, Phase, Shape, Wait};

/// How long one attempt to reach an address may take.
const ATTEMPT: Duration = Duration::from_millis(500);

/// How long to pause between two attempts.
const PAUSE: Duration = Duration::from_millis(10);

/// How long to pause where another group meets at the moment.
const OTHER_GROUP_PAUSE: Duration = Duration::from_millis(100);

/// How long a member waits for the keeper's reason after its own deadline.
const GRACE: Duration = Duration::from_millis(250);

/// Connections that may be proving themselves at once.
const PROVING_MAX: usize = 128;

/// The connections of one PE to another.
pub(super) struct Link {
    pub(super) control: TcpStream,
    pub(super) streams: Vec<TcpStream>,
}

/// What a member says when it comes.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Arrival {
    rank: usize,
    shape: Shape,
    streams: usize,
    checksums: bool,
    fingerprint: u64,
    /// Where it accepts connections of other members.
    port: u16,
}

impl Arrival {
    fn encode(&self) -> Vec<u8> {
        let Shape { size, depth, slot_bytes } = self.shape;
        let words = [
            self.rank as u64,
            size as u64,
            depth as u64,
            slot_bytes as u64,
            self.streams as u64,
            self.checksums.into(),
            self.fingerprint,
            self.port.into(),
        ];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let [rank, size, depth, slot_bytes, streams, checksums, fingerprint, port] =
            words::<8>(bytes)?;
        let index = |word: u64| usize::try_from(word).ok();
        Some(Self {
            rank: index(rank)?,
            shape: Shape {
                size: index(size)?,
                depth: index(depth)?,
                slot_bytes: index(slot_bytes)?,
            },
            streams: index(streams)?,
            checksums: checksums != 0,
            fingerprint,
            port: u16::try_from(port).ok()?,
        })
    }

    /// The failure of a group in which `other` has said something else.
    fn mismatch(&self, other: &Self) -> Option<Failure> {
        let rank = other.rank;
        if self.shape != other.shape {
            let (expected, got) = (self.shape, other.shape);
            return Some(Failure::GroupMismatch { rank, expected, got });
        }
        let message = if self.fingerprint != other.fingerprint {
            format!(
                "joined for plan {:016x}, others for {:016x}: every PE must pass the same",
                other.fingerprint, self.fingerprint
            )
        } else if (self.streams, self.checksums) != (other.streams, other.checksums) {
            "joined with other streams or checksums: every PE must pass the same".to_owned()
        } else {
            return None;
        };
        Some(Failure::Local { rank, message })
    }
}

/// The first `N` words of `bytes`, if it has no others.
fn words<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    let (all, rest) = bytes.as_chunks::<8>();
    let all: &[[u8; 8]; N] = all.try_into().ok().filter(|_| rest.is_empty())?;
    Some(all.map(u64::from_le_bytes))
}

/// Where every member accepts connections, and the number that tells this group from others.
struct Book {
    group: u64,
    addresses: Vec<SocketAddr>,
}

impl Book {
    /// The bytes of one for a group of `size`.
    fn bytes(size: usize) -> usize {
        8 + 18 * size
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::from(self.group.to_le_bytes());
        for address in &self.addresses {
            let ip = match address.ip() {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            bytes.extend(ip.octets());
            bytes.extend(address.port().to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8], size: usize) -> Option<Self> {
        let (group, rest) = bytes.split_first_chunk()?;
        let (addresses, rest) = rest.as_chunks::<18>();
        let address = |bytes: &[u8; 18]| {
            let ip: [u8; 16] = std::array::from_fn(|at| bytes[at]);
            let port = u16::from_le_bytes([bytes[16], bytes[17]]);
            SocketAddr::new(Ipv6Addr::from(ip).to_canonical(), port)
        };
        let addresses: Vec<SocketAddr> = addresses.iter().map(address).collect();
        let fits = rest.is_empty() && addresses.len() == size;
        fits.then(|| Self { group: u64::from_le_bytes(*group), addresses })
    }
}

/// What all steps of joining use.
struct Joining<'a> {
    meeting: &'a MeetingPlace,
    mine: Arrival,
    /// Where all members listen for each other, if that is one host's loopback address.
    loopback: Option<IpAddr>,
    token: &'a Token,
    wait: Wait<'a>,
}

/// Joins the group; returns the links to all other members by rank, with `None` for this one.
pub(super) fn meet(
    meeting: &MeetingPlace,
    rank: usize,
    shape: Shape,
    options: &Options,
    wait: &Wait<'_>,
) -> Result<Vec<Option<Link>>, JoinError> {
    let wait = wait.until(Phase::Join, 0);
    let system = |what: &'static str| {
        move |cause| JoinError::System { what, meeting: meeting.clone(), cause }
    };
    let listening = listen_for_members(&meeting.host).and_then(|listener| {
        let address = listener.local_addr()?;
        Ok((listener, address))
    });
    let (listener, address) = listening.map_err(system("listen for other members"))?;
    let port = address.port();
    let Options { streams, checksums, fingerprint, ref token, .. } = *options;
    let mine = Arrival { rank, shape, streams, checksums, fingerprint, port };
    let loopback = is_local(&meeting.host).then_some(address.ip());
    let joining = Joining { meeting, mine, loopback, token, wait };
    let book = joining.book()?;
    joining.connect_all(&book, listener)
}

/// Returns `true` if a group that meets at `host` is one of a single host's processes.
///
/// What a name resolves to does not tell: many systems resolve their own name to 127.0.1.1.
fn is_local(host: &str) -> bool {
    host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

/// Listens for the other members of a group that meets at `host`, where they can come from.
fn listen_for_members(host: &str) -> io::Result<TcpListener> {
    if !is_local(host) {
        return listen_anywhere(0);
    }
    // All processes of one host find the same.
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .or_else(|_| TcpListener::bind((Ipv6Addr::LOCALHOST, 0)))
}

/// Listens at every address of this host.
fn listen_anywhere(port: u16) -> io::Result<TcpListener> {
    // Where IPv6 is there, its socket takes IPv4 too.
    TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
        .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))
}

impl Joining<'_> {
    fn rank(&self) -> usize {
        self.mine.rank
    }

    /// Fails once the time is over.
    fn go_on(&self) -> Result<(), Failure> {
        self.wait.expired(self.rank()).map_or(Ok(()), Err)
    }

    /// The deadline of one step that may take `most`.
    fn by(&self, most: Duration) -> Instant {
        Instant::now() + self.wait.left(most)
    }

    fn system(&self, what: &'static str, cause: io::Error) -> JoinError {
        JoinError::System { what, meeting: self.meeting.clone(), cause }
    }

    /// The list of members: from the PE that keeps it, or by keeping it.
    fn book(&self) -> Result<Book, JoinError> {
        let MeetingPlace { host, port, .. } = self.meeting;
        let mut other_group = None;
        loop {
            let addresses = (host.as_str(), *port).to_socket_addrs();
            let addresses: Vec<SocketAddr> = match addresses {
                Ok(addresses) => addresses.collect(),
                // A name may be known a moment later, where hosts are starting.
                Err(cause) if self.go_on().is_err() => {
                    return Err(JoinError::Resolve { meeting: self.meeting.clone(), cause });
                }
                Err(_) => Vec::new(),
            };
            let mut was_refused = true;
            for address in &addresses {
                match TcpStream::connect_timeout(address, self.wait.left(ATTEMPT).max(PAUSE)) {
                    Ok(socket) => match self.ask(&socket) {
                        Ok(book) => return Ok(book),
                        Err(Refusal::Refused(failure)) => return Err(failure.into()),
                        Err(Refusal::Foreign) => {
                            return Err(JoinError::Foreign { meeting: self.meeting.clone() });
                        }
                        Err(Refusal::OtherGroup(failure)) => {
                            (was_refused, other_group) = (false, Some(failure));
                        }
                        // The keeper was killed, or its list is complete.
                        Err(Refusal::Broken) => was_refused = false,
                    },
                    Err(error) => was_refused &= error.kind() == io::ErrorKind::ConnectionRefused,
                }
            }
            if was_refused {
                other_group = None;
                if let Some(listener) = self.listen(&addresses)? {
                    return self.keep(listener);
                }
            }
            let pause = if other_group.is_some() { OTHER_GROUP_PAUSE } else { PAUSE };
            self.go_on().map_err(|failure| match (failure, other_group.take()) {
                (Failure::TimedOut { .. }, Some(other_group)) => other_group,
                (failure, _) => failure,
            })?;
            std::thread::sleep(self.wait.left(pause));
        }
    }

    /// Listens where the group meets, if that is an address of this host and no process does yet.
    fn listen(&self, addresses: &[SocketAddr]) -> Result<Option<TcpListener>, JoinError> {
        for address in addresses {
            // Which addresses are this host's, only the attempt tells.
            if TcpListener::bind((address.ip(), 0)).is_err() {
                continue;
            }
            let listener = match self.loopback {
                Some(_) => TcpListener::bind(address),
                None => listen_anywhere(address.port()),
            };
            return match listener {
                Ok(listener) => Ok(Some(listener)),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
                Err(error) => Err(self.system("listen", error)),
            };
        }
        Ok(None)
    }

    /// Asks the keeper for its list, and waits until it is complete.
    fn ask(&self, socket: &TcpStream) -> Result<Book, Refusal> {
        socket.set_nodelay(true)?;
        let mut timed = Timed { socket, until: self.by(proof::PATIENCE) };
        let body = self.mine.encode();
        let name = &self.meeting.name;
        let said = proof::connect(&mut timed, self.token, Purpose::Meet, name, &body)?;
        // The keeper waits for all members.
        let until = self.wait.deadline.instant().map_or_else(Instant::now, |at| at + GRACE);
        loop {
            let mut first = [0];
            socket.set_read_timeout(Some(self.wait.left(Duration::from_millis(20)).max(PAUSE)))?;
            match socket.peek(&mut first) {
                Ok(0) => return Err(Refusal::Broken),
                Ok(_) => break,
                Err(error) if is_later(&error) => {
                    // The keeper, which may have the same deadline, knows who is missing.
                    let is_over = Instant::now() >= until;
                    self.go_on().or_else(|failure| match is_over {
                        true => Err(Refusal::Refused(failure)),
                        false => Ok(()),
                    })?;
                }
                Err(_) => return Err(Refusal::Broken),
            }
        }
        let mut timed = Timed { socket, until: self.by(proof::PATIENCE) };
        let size = self.mine.shape.size;
        let answer = proof::read_answer(&mut timed, self.token, &said, Book::bytes(size))?;
        Book::decode(&answer, size).ok_or(Refusal::Foreign)
    }

    /// Keeps the list until every member has come, then tells all.
    fn keep(&self, listener: TcpListener) -> Result<Book, JoinError> {
        let size = self.mine.shape.size;
        let mut come: Vec<Option<(Arrival, TcpStream, Transcript)>> =
            (0..size).map(|_| None).collect();
        let door = Door::new(listener, self.token, &self.meeting.name)
            .map_err(|cause| self.system("listen", cause))?;
        let failed = loop {
            let missing = |come: &[Option<_>]| {
                (0..size).filter(|rank| *rank != self.rank() && come[*rank].is_none()).count()
            };
            if missing(&come) == 0 {
                break None;
            }
            if let Err(failure) = self.go_on() {
                let first = (0..size).find(|rank| *rank != self.rank() && come[*rank].is_none());
                let failure = match failure {
                    Failure::TimedOut { waited_ms, .. } => Failure::NeverJoined {
                        rank: first.unwrap_or(0),
                        missing: missing(&come),
                        waited_ms,
                    },
                    other => other,
                };
                break Some(failure);
            }
            if let Some((socket, proved)) = door.next(&self.wait)
                && proved.purpose == Purpose::Meet
                && let Some(arrival) = Arrival::decode(proved.body())
            {
                if let Some(failure) = self.mine.mismatch(&arrival) {
                    proof::refuse(&socket, &failure);
                    break Some(failure);
                }
                let rank = arrival.rank;
                if rank >= size || rank == self.rank() || come[rank].is_some() {
                    let message =
                        "is taken, or is no rank of this group: give every process its own";
                    let failure = Failure::Local { rank, message: message.to_owned() };
                    proof::refuse(&socket, &failure);
                } else {
                    come[rank] = Some((arrival, socket, proved.said));
                }
            }
            // A process that has ended may be started again.
            for place in &mut come {
                if place.as_ref().is_some_and(|(_, socket, _)| has_ended(socket)) {
                    *place = None;
                }
            }
        };
        if let Some(failure) = failed {
            for (_, socket, _) in come.iter().flatten() {
                proof::refuse(socket, &failure);
            }
            self.refuse_others(&door, &failure, come.iter().map(Option::is_some).collect());
            return Err(failure.into());
        }
        self.tell(&come).map_err(|cause| self.system("tell the members of each other", cause))
    }

    /// Stays until all others have come and learnt why the group failed: a PE that came later would
    /// keep a list of its own, and wait in vain.
    fn refuse_others(&self, door: &Door, failure: &Failure, mut has_come: Vec<bool>) {
        has_come[self.rank()] = true;
        if let Failure::GroupMismatch { rank, .. } | Failure::Local { rank, .. } = failure
            && let Some(come) = has_come.get_mut(*rank)
        {
            *come = true;
        }
        while has_come.contains(&false) && self.go_on().is_ok() {
            let Some((socket, proved)) = door.next(&self.wait) else { continue };
            proof::refuse(&socket, failure);
            let rank = Arrival::decode(proved.body()).map(|arrival| arrival.rank);
            if let Some(come) = rank.and_then(|rank| has_come.get_mut(rank)) {
                *come = true;
            }
        }
    }

    /// Tells every member where the others are. Returns what this one needs.
    fn tell(&self, come: &[Option<(Arrival, TcpStream, Transcript)>]) -> io::Result<Book> {
        let group = proof::random()?;
        // As one member reaches the keeper, it reaches the processes of the keeper's host.
        let book_of = |reached: IpAddr| -> io::Result<Book> {
            let reached = self.loopback.unwrap_or(reached);
            let address = |place: &Option<(Arrival, TcpStream, Transcript)>| {
                let Some((arrival, socket, _)) = place else {
                    return Ok(SocketAddr::new(reached, self.mine.port));
                };
                let (theirs, ours) = (socket.peer_addr()?.ip(), socket.local_addr()?.ip());
                let is_here = theirs.to_canonical().is_loopback() || theirs == ours;
                Ok(SocketAddr::new(if is_here { reached } else { theirs }, arrival.port))
            };
            Ok(Book { group, addresses: come.iter().map(address).collect::<io::Result<_>>()? })
        };
        for (_, socket, said) in come.iter().flatten() {
            let book = book_of(socket.local_addr()?.ip())?;
            // A member that has died meanwhile is missed when the others connect.
            let _ = proof::answer(socket, self.token, said, &book.encode());
        }
        // By IPv4, as the others here may not listen by IPv6.
        book_of(Ipv4Addr::LOCALHOST.into())
    }

    /// Connects to all members of lower rank, and accepts all others.
    fn connect_all(
        &self,
        book: &Book,
        listener: TcpListener,
    ) -> Result<Vec<Option<Link>>, JoinError> {
        let size = self.mine.shape.size;
        let door = Door::new(listener, self.token, &self.meeting.name)
            .map_err(|cause| self.system("listen for other members", cause))?;
        let mut parts: Vec<Vec<Option<TcpStream>>> =
            (0..size).map(|_| (0..=self.mine.streams).map(|_| None).collect()).collect();
        let (lower, higher) = parts.split_at_mut(self.rank());
        std::thread::scope(|scope| {
            let connecting = scope.spawn(|| {
                for (peer, parts) in lower.iter_mut().enumerate() {
                    for (index, part) in parts.iter_mut().enumerate() {
                        *part = Some(self.connect(book, peer, index)?);
                    }
                }
                Ok::<(), Failure>(())
            });
            let accepted = self.accept(book, &door, &mut higher[1..]);
            let connected = connecting.join().unwrap_or_else(|_| {
                let message = "connecting panicked".to_owned();
                Err(Failure::Local { rank: self.rank(), message })
            });
            connected.and(accepted)
        })?;
        let link = |parts: Vec<Option<TcpStream>>| {
            let mut parts = parts.into_iter().flatten();
            parts.next().map(|control| Link { control, streams: parts.collect() })
        };
        Ok(parts.into_iter().map(link).collect())
    }

    /// Connection `index` to `peer`: the first is for control, the others for data.
    fn connect(&self, book: &Book, peer: usize, index: usize) -> Result<TcpStream, Failure> {
        let purpose = if index == 0 { Purpose::Control } else { Purpose::Stream };
        let words = [book.group, self.rank() as u64, index as u64, peer as u64];
        let body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        loop {
            let attempt = || -> Result<TcpStream, Refusal> {
                let address = &book.addresses[peer];
                let socket =
                    TcpStream::connect_timeout(address, self.wait.left(ATTEMPT).max(PAUSE))?;
                socket.set_nodelay(true)?;
                let mut timed = Timed { socket: &socket, until: self.by(proof::PATIENCE) };
                let name = &self.meeting.name;
                let said = proof::connect(&mut timed, self.token, purpose, name, &body)?;
                proof::read_answer(&mut timed, self.token, &said, 0)?;
                Ok(socket)
            };
            match attempt() {
                Ok(socket) => return Ok(socket),
                Err(Refusal::Refused(failure)) => return Err(failure),
                Err(Refusal::Foreign | Refusal::OtherGroup(_) | Refusal::Broken) => {
                    self.go_on().map_err(|failure| missing(failure, peer, 1))?;
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }

    /// Accepts the connections of the members of higher rank.
    fn accept(
        &self,
        book: &Book,
        door: &Door,
        higher: &mut [Vec<Option<TcpStream>>],
    ) -> Result<(), Failure> {
        let first = self.rank() + 1;
        loop {
            let is_missing = |parts: &Vec<Option<TcpStream>>| parts.iter().any(Option::is_none);
            let Some(absent) = higher.iter().position(is_missing) else { return Ok(()) };
            let count = higher.iter().filter(|parts| is_missing(parts)).count();
            self.go_on().map_err(|failure| missing(failure, first + absent, count))?;
            let Some((socket, proved)) = door.next(&self.wait) else { continue };
            let Some([group, rank, index, peer]) = words::<4>(proved.body()) else { continue };
            if group == book.group && peer != self.rank() as u64 {
                let message = format!(
                    "a connection of PE {rank} to PE {peer} came here: the keeper of the list saw \
                     another address of PE {peer} than PE {rank} does"
                );
                proof::refuse(&socket, &Failure::Local { rank: self.rank(), message });
                continue;
            }
            let is_control = proved.purpose == Purpose::Control;
            let place = (rank as usize).checked_sub(first).and_then(|at| higher.get_mut(at));
            let place = place.and_then(|parts| parts.get_mut(index as usize));
            let is_right = group == book.group && (index == 0) == is_control;
            // One that comes twice has lost the first of them.
            if let Some(place) = place.filter(|_| is_right && proved.purpose != Purpose::Meet)
                && proof::answer(&socket, self.token, &proved.said, &[]).is_ok()
            {
                *place = Some(socket);
            }
        }
    }
}

/// A join that timed out says who never came.
fn missing(failure: Failure, rank: usize, missing: usize) -> Failure {
    match failure {
        Failure::TimedOut { waited_ms, .. } => Failure::NeverJoined { rank, missing, waited_ms },
        other => other,
    }
}

fn is_later(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

/// Returns `true` if the other side has closed its connection.
fn has_ended(socket: &TcpStream) -> bool {
    let _ = socket.set_nonblocking(true);
    let peeked = socket.peek(&mut [0]);
    let _ = socket.set_nonblocking(false);
    match peeked {
        Ok(count) => count == 0,
        Err(error) => !is_later(&error),
    }
}

/// A listener whose connections prove themselves on threads of their own, at most
/// [`PROVING_MAX`] at once, so that none holds up the others.
struct Door {
    listener: TcpListener,
    token: Token,
    name: String,
    proving: Arc<AtomicUsize>,
    sender: Sender<(TcpStream, Proved)>,
    proved: Receiver<(TcpStream, Proved)>,
}

impl Door {
    fn new(listener: TcpListener, token: &Token, name: &str) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let (sender, proved) = mpsc::channel();
        let (token, name) = (token.clone(), name.to_owned());
        Ok(Self { listener, token, name, proving: Arc::default(), sender, proved })
    }

    /// Waits a moment for a connection that has proved itself.
    fn next(&self, wait: &Wait<'_>) -> Option<(TcpStream, Proved)> {
        while let Ok((socket, _)) = self.listener.accept() {
            self.prove(socket);
        }
        self.proved.recv_timeout(wait.left(Duration::from_millis(2))).ok()
    }

    fn prove(&self, socket: TcpStream) {
        // One too many is closed, and may come again.
        if self.proving.fetch_add(1, Ordering::AcqRel) >= PROVING_MAX {
            self.proving.fetch_sub(1, Ordering::AcqRel);
            return;
        }
        let (token, name) = (self.token.clone(), self.name.clone());
        let (proving, sender) = (self.proving.clone(), self.sender.clone());
        let prove = move || {
            let is_set = socket.set_nonblocking(false).and_then(|()| socket.set_nodelay(true));
            if is_set.is_ok()
                && let Ok(proved) = proof::accept(&socket, &token, &name)
            {
                // Where it is too late, the connection is closed.
                let _ = sender.send((socket, proved));
            }
            proving.fetch_sub(1, Ordering::AcqRel);
        };
        let thread = std::thread::Builder::new().name("syncline-proof".to_owned());
        if thread.spawn(prove).is_err() {
            self.proving.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(rank: usize, listener: &TcpListener) -> Arrival {
        let shape = Shape { size: 3, depth: 1, slot_bytes: 64 };
        let port = listener.local_addr().unwrap().port();
        Arrival { rank, shape, streams: 1, checksums: true, fingerprint: 0, port }
    }

    #[test]
    fn only_a_place_that_is_written_as_local_is_local() {
        let (token, member) = (Token::default(), listen_for_members("127.0.0.1").unwrap());
        let mine = arrival(0, &member);
        for (host, local) in [
            ("localhost", true),
            ("127.0.0.1", true),
            ("127.3.2.1", true),
            ("::1", true),
            ("this-host", false),
            ("10.0.0.1", false),
        ] {
            let own = listen_for_members(host).unwrap().local_addr().unwrap().ip();
            assert_eq!((own.is_loopback(), own.is_unspecified()), (local, !local), "{host}");
            let name = "test".to_owned();
            let meeting = &MeetingPlace { host: host.to_owned(), port: 0, name };
            let wait = Wait::timeout(Duration::from_secs(60));
            let loopback = is_local(host).then_some(own);
            let joining = Joining { meeting, mine, loopback, token: &token, wait };
            // What Debian's hosts resolve their own name to.
            let listener = joining.listen(&["127.0.1.1:0".parse().unwrap()]).unwrap().unwrap();
            let kept = listener.local_addr().unwrap().ip();
            assert_eq!((kept.is_loopback(), kept.is_unspecified()), (local, !local), "{host}");
        }
    }

    /// The list of PE 2 says that PE 1 is where PE 0 is.
    #[test]
    fn a_connection_to_another_peer_than_meant_is_refused() {
        let (token, name) = (Token::default(), "test".to_owned());
        let meeting = &MeetingPlace { host: "127.0.0.1".to_owned(), port: 0, name };
        let listener = listen_for_members(&meeting.host).unwrap();
        let at = listener.local_addr().unwrap();
        let joining = |rank| {
            let wait = Wait::timeout(Duration::from_secs(60));
            let mine = arrival(rank, &listener);
            Joining { meeting, mine, loopback: Some(at.ip()), token: &token, wait }
        };
        let (zero, two) = (joining(0), joining(2));
        let book = Book { group: 7, addresses: vec![at; 3] };
        std::thread::scope(|scope| {
            // Whose only connections are those of PE 2.
            let accepting = scope.spawn(|| {
                let listener = listener.try_clone().unwrap();
                let door = Door::new(listener, &token, &meeting.name).unwrap();
                let mut higher = [Vec::new(), vec![None, None]];
                zero.accept(&book, &door, &mut higher)
            });
            for index in 0..2 {
                let failure = two.connect(&book, 1, index).unwrap_err().to_string();
                assert!(failure.contains("a connection of PE 2 to PE 1 came here"), "{failure}");
            }
            let _right = [0, 1].map(|index| two.connect(&book, 0, index).unwrap());
            accepting.join().unwrap().unwrap();
        });
    }
}
