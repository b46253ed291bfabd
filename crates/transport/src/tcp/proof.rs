//! How two processes prove to each other that they know the group's token.
//!
//! Neither sends it. The process that connects says hello; the one that accepts answers with a
//! random challenge; each then sends a keyed hash (HMAC-SHA-256) of all that was said, which only
//! the token makes. Every length is checked before memory is taken for it, and every step has a
//! deadline, so that a port scanner, an HTTP client or random bytes cost one thread for that long.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use hmac::{Hmac, Mac};
use sha2::Sha256;

use super::{Refusal, Token};
use crate::{Failure, RECORD_WORDS};

const MAGIC: [u8; 8] = *b"SYNCLINE";

/// The version of everything that goes over these connections.
const VERSION: u32 = 2;

/// The most bytes that may come with a proof.
const BODY_MAX: usize = 256;

/// How long a connection may take to prove itself.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To hear who is in the group.
    Meet = 1,
    /// For messages of agreement between two members.
    Control = 2,
    /// For data between two members.
    Stream = 3,
}

impl Purpose {
    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Meet, Self::Control, Self::Stream].into_iter().find(|one| *one as u8 == byte)
    }
}

/// A socket whose reads and writes all end by one deadline.
pub(super) struct Timed<'a> {
    pub(super) socket: &'a TcpStream,
    pub(super) until: Instant,
}

impl Timed<'_> {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }

    pub(super) fn read(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            self.socket.set_read_timeout(self.left()?)?;
            match self.socket.read(&mut bytes[done..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.socket.set_write_timeout(self.left()?)?;
        self.socket.write_all(bytes)
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads a length of at most `most`, and as many bytes.
    fn body(&mut self, most: usize) -> io::Result<Vec<u8>> {
        let length = u32::from_le_bytes(self.array()?) as usize;
        if length > most {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut body = Vec::new();
        // By parts: a length that was made up takes no memory.
        while body.len() < length {
            let start = body.len();
            body.resize((start + 4096).min(length), 0);
            self.read(&mut body[start..])?;
        }
        Ok(body)
    }
}

/// Returns 32 random bytes.
fn nonce() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    let mut done = 0;
    while done < bytes.len() {
        done += rustix::rand::getrandom(&mut bytes[done..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(bytes)
}

/// A random number.
pub(super) fn random() -> io::Result<u64> {
    let bytes = nonce()?;
    Ok(u64::from_le_bytes(std::array::from_fn(|at| bytes[at])))
}

fn keyed(token: &Token, side: &[u8], parts: &[&[u8]]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(token.bytes()).expect("HMAC takes any key");
    mac.update(side);
    for part in parts {
        mac.update(&(part.len() as u64).to_le_bytes());
        mac.update(part);
    }
    mac
}

const CONNECTS: &[u8] = b"syncline group, connects";
const ACCEPTS: &[u8] = b"syncline group, accepts";

const REFUSED: u8 = 0;
const GOES_ON: u8 = 1;
const OTHER_GROUP: u8 = 2;

/// Tells the other side why it is refused; whether it hears that is up to the network.
pub(super) fn refuse(socket: &TcpStream, failure: &Failure) {
    refuse_as(REFUSED, socket, failure);
}

fn refuse_as(code: u8, socket: &TcpStream, failure: &Failure) {
    let mut timed = Timed { socket, until: Instant::now() + Duration::from_millis(500) };
    let words = failure.encode();
    let record = words.iter().flat_map(|word| word.to_le_bytes());
    let bytes: Vec<u8> = std::iter::once(code).chain(record).collect();
    let _ = timed.write(&bytes);
    let _ = socket.shutdown(std::net::Shutdown::Write);
}

/// Reads whether the other side goes on.
fn is_accepted(timed: &mut Timed<'_>) -> Result<(), Refusal> {
    match timed.array::<1>()? {
        [GOES_ON] => Ok(()),
        [code @ (REFUSED | OTHER_GROUP)] => {
            let record: [u8; RECORD_WORDS * 8] = timed.array()?;
            let words = std::array::from_fn(|at| {
                u64::from_le_bytes(std::array::from_fn(|byte| record[at * 8 + byte]))
            });
            let failure = Failure::decode(&words);
            Err(match code {
                OTHER_GROUP => Refusal::OtherGroup(failure),
                _ => Refusal::Refused(failure),
            })
        }
        _ => Err(Refusal::Foreign),
    }
}

/// What both sides have said, for the answer that may come later.
pub(super) struct Transcript {
    hello: Vec<u8>,
    challenge: [u8; 32],
    proof: [u8; 32],
    body: Vec<u8>,
}

impl Transcript {
    fn answer(&self, token: &Token, answer: &[u8]) -> Hmac<Sha256> {
        keyed(token, ACCEPTS, &[&self.hello, &self.challenge, &self.proof, &self.body, answer])
    }
}

/// As the side that connects: says hello and proves that this process knows the token.
pub(super) fn connect(
    timed: &mut Timed<'_>,
    token: &Token,
    purpose: Purpose,
    name: &str,
    body: &[u8],
) -> Result<Transcript, Refusal> {
    let mut hello = Vec::from(MAGIC);
    hello.extend(VERSION.to_le_bytes());
    hello.push(purpose as u8);
    hello.push(name.len() as u8);
    hello.extend(name.as_bytes());
    hello.extend(nonce()?);
    timed.write(&hello)?;
    is_accepted(timed)?;
    let challenge = timed.array()?;
    let proof = keyed(token, CONNECTS, &[&hello, &challenge, body]).finalize().into_bytes().into();
    let mut bytes = Vec::from(proof);
    bytes.extend((body.len() as u32).to_le_bytes());
    bytes.extend(body);
    timed.write(&bytes)?;
    Ok(Transcript { hello, challenge, proof, body: body.to_vec() })
}

/// As the side that connects: reads the answer, of at most `most` bytes, and checks that the other
/// side knows the token too.
pub(super) fn read_answer(
    timed: &mut Timed<'_>,
    token: &Token,
    said: &Transcript,
    most: usize,
) -> Result<Vec<u8>, Refusal> {
    is_accepted(timed)?;
    let proof: [u8; 32] = timed.array()?;
    let answer = timed.body(most)?;
    let expected = said.answer(token, &answer);
    expected.verify_slice(&proof).map_err(|_| Refusal::Foreign)?;
    Ok(answer)
}

/// A connection that has proved itself.
pub(super) struct Proved {
    pub(super) purpose: Purpose,
    pub(super) said: Transcript,
}

impl Proved {
    /// What came with the proof.
    pub(super) fn body(&self) -> &[u8] {
        &self.said.body
    }
}

/// As the side that accepts: checks that a connection is of this group and knows its token.
///
/// The other side is told why it is refused, unless it does not speak this protocol at all.
pub(super) fn accept(socket: &TcpStream, token: &Token, name: &str) -> Result<Proved, Refusal> {
    let mut timed = Timed { socket, until: Instant::now() + PATIENCE };
    // As PE 0, which is the first that anyone would ask.
    let failure = |message: String| Failure::Local { rank: 0, message };
    let refused = |message: String| {
        let failure = failure(message);
        refuse(socket, &failure);
        Refusal::Refused(failure)
    };
    let start: [u8; 14] = timed.array()?;
    if start[..8] != MAGIC {
        return Err(Refusal::Foreign);
    }
    let version = u32::from_le_bytes(std::array::from_fn(|at| start[8 + at]));
    if version != VERSION {
        let message = format!("a process speaks version {version} of the protocol, not {VERSION}");
        return Err(refused(message));
    }
    let purpose = Purpose::from_byte(start[12]).ok_or(Refusal::Foreign)?;
    let mut rest = vec![0; usize::from(start[13]) + 32];
    timed.read(&mut rest)?;
    let theirs = &rest[..usize::from(start[13])];
    if theirs != name.as_bytes() {
        let theirs = String::from_utf8_lossy(theirs);
        let failure = failure(format!("here is group `{name}`, and not `{theirs}`"));
        refuse_as(OTHER_GROUP, socket, &failure);
        return Err(Refusal::OtherGroup(failure));
    }
    let hello = [&start[..], &rest].concat();
    let challenge = nonce()?;
    timed.write(&[&[GOES_ON], &challenge[..]].concat())?;
    let proof: [u8; 32] = timed.array()?;
    let body = timed.body(BODY_MAX)?;
    let expected = keyed(token, CONNECTS, &[&hello, &challenge, &body]);
    if expected.verify_slice(&proof).is_err() {
        return Err(refused("a process has another token than the group".to_owned()));
    }
    Ok(Proved { purpose, said: Transcript { hello, challenge, proof, body } })
}

/// As the side that accepts: answers, and proves that this process knows the token.
pub(super) fn answer(
    socket: &TcpStream,
    token: &Token,
    said: &Transcript,
    answer: &[u8],
) -> io::Result<()> {
    let mut timed = Timed { socket, until: Instant::now() + PATIENCE };
    let proof = said.answer(token, answer).finalize().into_bytes();
    let mut bytes = vec![GOES_ON];
    bytes.extend(proof);
    bytes.extend((answer.len() as u32).to_le_bytes());
    bytes.extend(answer);
    timed.write(&bytes)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Says hello, and then comes with a wrong proof and a body of `length` bytes. Returns the
    /// first byte of what the other side says to it, if any.
    fn knock(length: usize) -> Option<u8> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let (socket, _) = listener.accept().unwrap();
                assert!(accept(&socket, &Token::new("secret"), "test").is_err());
            });
            let mut socket = TcpStream::connect(address).unwrap();
            let mut hello = Vec::from(MAGIC);
            hello.extend(VERSION.to_le_bytes());
            hello.extend([Purpose::Meet as u8, 4, b't', b'e', b's', b't']);
            hello.extend([7; 32]);
            socket.write_all(&hello).unwrap();
            socket.read_exact(&mut [0; 33]).unwrap();
            let _ = socket.write_all(&[&[0; 32], &(length as u32).to_le_bytes()[..]].concat());
            let _ = socket.write_all(&vec![1; length]);
            let mut first = [0];
            socket.read_exact(&mut first).ok().map(|()| first[0])
        })
    }

    /// A longer one is closed at its length, before the token is checked.
    #[test]
    fn a_body_before_the_proof_is_short() {
        assert_eq!(knock(0), Some(REFUSED));
        assert_eq!(knock(BODY_MAX), Some(REFUSED));
        for length in [BODY_MAX + 1, 5_000, 1 << 20] {
            assert_eq!(knock(length), None, "{length}");
        }
        const { assert!(BODY_MAX <= 256) };
    }
}
