//! Groups over TCP: joining, strangers, other tokens, and the checks of every transport.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use syncline_device::CancelToken;
use syncline_testing::{Rng, for_seeds};
use syncline_transport::tcp::{self, JoinError, MeetingPlace, Options, TcpEndpoint, Token};
use syncline_transport::{ControlPlane, Failure, Session, Transport, Wait, conformance};

const PATIENCE: Duration = Duration::from_secs(60);

/// A place where no other group meets.
pub fn place(host: &str) -> MeetingPlace {
    let port = TcpListener::bind((host, 0)).unwrap().local_addr().unwrap().port();
    MeetingPlace { host: host.to_owned(), port, name: "test".to_owned() }
}

/// Heartbeats that a busy machine does not miss.
pub fn options() -> Options {
    Options {
        depth: 2,
        slot_bytes: 4096,
        silence: Duration::from_secs(30),
        token: Token::new("secret"),
        ..Options::default()
    }
}

/// Joins a group of `size` threads with these options of each, and runs `body` on every one.
fn on_threads<T: Send>(
    meeting: &MeetingPlace,
    size: usize,
    options: impl Fn(usize) -> Options + Sync,
    body: impl Fn(Result<TcpEndpoint, JoinError>) -> T + Sync,
) -> Vec<T> {
    std::thread::scope(|scope| {
        let (options, body) = (&options, &body);
        let start = |rank| {
            scope.spawn(move || {
                let wait = Wait::timeout(PATIENCE);
                body(tcp::join(meeting, rank, size, &options(rank), &wait))
            })
        };
        let threads: Vec<_> = (0..size).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn groups_over_tcp_conform() {
    for (size, streams, checksums) in [(1, 1, true), (2, 1, true), (2, 3, false), (5, 2, true)] {
        let options = |_| Options { streams, checksums, ..options() };
        on_threads(&place("127.0.0.1"), size, options, |joined| {
            conformance::check(&mut joined.unwrap(), PATIENCE).unwrap();
        });
    }
}

#[test]
fn groups_meet_by_ipv6_and_by_name() {
    for host in ["::1", "localhost"] {
        // Where there is no IPv6, there is nothing to test.
        if TcpListener::bind((host, 0)).is_err() {
            continue;
        }
        on_threads(
            &place(host),
            3,
            |_| options(),
            |joined| {
                conformance::check(&mut joined.unwrap(), PATIENCE).unwrap();
            },
        );
    }
}

/// A name that is not written as a loopback address, where the host resolves it to one, as Debian
/// does with its own name (127.0.1.1). Other hosts reach it at another address.
#[test]
fn groups_meet_by_a_name_that_is_a_loopback_address_on_its_host() {
    // Ways to write 127.0.1.1 and 127.0.0.2 that only the resolver knows.
    let hosts = ["127.0.257", "127.2", "127.2"];
    let meeting = place(hosts[0]);
    std::thread::scope(|scope| {
        for (rank, host) in hosts.into_iter().enumerate() {
            let meeting = MeetingPlace { host: host.to_owned(), ..meeting.clone() };
            scope.spawn(move || {
                let wait = Wait::timeout(PATIENCE);
                let mut endpoint = tcp::join(&meeting, rank, 3, &options(), &wait).unwrap();
                conformance::check(&mut endpoint, PATIENCE).unwrap();
            });
        }
    });
}

/// A PE of a group that was stopped still waits for the others.
#[test]
fn a_group_waits_for_another_one_to_leave_its_place() {
    let meeting = place("127.0.0.1");
    let old = MeetingPlace { name: "old".to_owned(), ..meeting.clone() };
    let cancel = CancelToken::new();
    std::thread::scope(|scope| {
        let straggler = scope.spawn(|| {
            let wait = Wait::timeout(PATIENCE).cancelled_by(&cancel);
            tcp::join(&old, 0, 2, &options(), &wait).unwrap_err()
        });
        while TcpStream::connect((meeting.host.as_str(), meeting.port)).is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let group = scope.spawn(|| {
            on_threads(&meeting, 2, |_| options(), |joined| drop(joined.unwrap()));
        });
        // One that has no time to wait says what it met.
        let short = Wait::timeout(Duration::from_millis(300));
        let met = tcp::join(&meeting, 1, 2, &options(), &short).unwrap_err().to_string();
        assert!(met.contains("here is group `old`, and not `test`"), "{met}");
        cancel.cancel();
        straggler.join().unwrap();
        group.join().unwrap();
    });
}

#[test]
fn a_place_is_free_again_once_its_group_is_complete() {
    let meeting = place("127.0.0.1");
    for _ in 0..20 {
        on_threads(
            &meeting,
            3,
            |_| options(),
            |joined| {
                let mut endpoint = joined.unwrap();
                let wait = Wait::timeout(PATIENCE);
                let session = Session::enter(&mut endpoint, 7, &wait).unwrap();
                session.finish(&wait).unwrap();
            },
        );
    }
}

/// What every member returned, which is the same.
#[track_caller]
fn agreed(results: Vec<Result<(), JoinError>>) -> String {
    let texts: Vec<String> =
        results.into_iter().map(|result| result.unwrap_err().to_string()).collect();
    assert!(texts.iter().all(|text| *text == texts[0]), "not the same: {texts:#?}");
    texts[0].clone()
}

#[test]
fn members_that_differ_are_refused_alike_before_a_byte_moves() {
    let different = |change: fn(&mut Options)| {
        let options = move |rank| {
            let mut options = options();
            if rank == 1 {
                change(&mut options);
            }
            options
        };
        // The time is short for members that come after the list is closed.
        agreed(on_threads(&place("127.0.0.1"), 2, options, |joined| joined.map(drop)))
    };
    let slots = different(|options| options.slot_bytes = 8192);
    assert!(slots.contains("every PE must pass the same size, depth and slot_bytes"), "{slots}");
    let plan = different(|options| options.fingerprint = 9);
    assert!(plan.contains("joined for plan") && plan.contains("must pass the same"), "{plan}");
    let streams = different(|options| options.streams = 5);
    assert!(streams.contains("other streams or checksums"), "{streams}");
}

#[test]
fn a_process_with_another_token_or_name_is_refused_and_the_group_forms() {
    let meeting = place("127.0.0.1");
    std::thread::scope(|scope| {
        let group = scope.spawn(|| {
            on_threads(
                &meeting,
                2,
                |rank| {
                    // The second comes when the strangers have been here.
                    while rank == 1 && !STRANGERS_WENT.load(Ordering::Acquire) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    options()
                },
                |joined| {
                    conformance::check(&mut joined.unwrap(), PATIENCE).unwrap();
                },
            );
        });
        static STRANGERS_WENT: AtomicBool = AtomicBool::new(false);
        while TcpStream::connect((meeting.host.as_str(), meeting.port)).is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let wait = Wait::timeout(PATIENCE);
        for token in [Token::default(), Token::new("Secret"), Token::new("secret2")] {
            let options = Options { token, ..options() };
            let refused = tcp::join(&meeting, 1, 2, &options, &wait).unwrap_err().to_string();
            assert!(refused.contains("another token than the group"), "{refused}");
        }
        let other = MeetingPlace { name: "other".to_owned(), ..meeting.clone() };
        let short = Wait::timeout(Duration::from_millis(300));
        let refused = tcp::join(&other, 1, 2, &options(), &short).unwrap_err().to_string();
        assert!(refused.contains("here is group `test`, and not `other`"), "{refused}");
        // PE 0 keeps the list: its rank is taken.
        let refused = tcp::join(&meeting, 0, 2, &options(), &wait).unwrap_err().to_string();
        assert!(refused.contains("is taken"), "{refused}");
        STRANGERS_WENT.store(true, Ordering::Release);
        group.join().unwrap();
    });
}

#[test]
fn a_place_where_something_else_listens_is_refused_or_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        while let Ok((mut socket, _)) = listener.accept() {
            let _ = socket.read(&mut [0; 64]);
            let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let meeting = MeetingPlace { host: "127.0.0.1".to_owned(), port, name: "test".to_owned() };
    let wait = Wait::timeout(PATIENCE);
    let refused = tcp::join(&meeting, 0, 2, &options(), &wait).unwrap_err().to_string();
    assert!(refused.contains("is no group, or has another token"), "{refused}");
}

#[test]
fn a_member_that_never_comes_is_named() {
    let meeting = place("127.0.0.1");
    let results = std::thread::scope(|scope| {
        let join = |rank| {
            let meeting = &meeting;
            scope.spawn(move || {
                let wait = Wait::timeout(Duration::from_millis(1_500));
                tcp::join(meeting, rank, 3, &options(), &wait).map(drop)
            })
        };
        [join(0), join(2)].map(|thread| thread.join().unwrap())
    });
    let errors = results.map(|result| result.unwrap_err().to_string());
    // The PE that keeps the list knows who is missing; the other may hear of it too late.
    let is_named = |error: &String| error.contains("PE 1 did not join within");
    assert!(errors.iter().any(is_named), "{errors:?}");
    assert!(errors.iter().all(|error| is_named(error) || error.contains("to join")), "{errors:?}");
}

/// Things that a scanner, a browser or a broken client send, also in the middle of a handshake.
fn noise(rng: &mut Rng) -> Vec<u8> {
    let mut bytes: Vec<u8> = match rng.below(5) {
        0 => b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        1 => Vec::new(),
        2 => (0..rng.below(3_000)).map(|_| rng.next_u64() as u8).collect(),
        _ => {
            let mut hello = b"SYNCLINE".to_vec();
            hello.extend((if rng.one_in(4) { 1u32 } else { 2 }).to_le_bytes());
            hello.push(rng.below(5) as u8);
            hello.extend([4, b't', b'e', b's', b't']);
            hello.extend([7; 32]);
            hello
        }
    };
    if rng.one_in(2) {
        // A length that is as long as lengths can be.
        bytes.extend([0; 32]);
        bytes.extend(u32::MAX.to_le_bytes());
        bytes.extend([1; 64]);
    }
    bytes
}

#[test]
fn scanners_browsers_and_random_bytes_do_no_harm() {
    let meeting = place("127.0.0.1");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let group = scope.spawn(|| {
            on_threads(
                &meeting,
                2,
                |rank| {
                    while rank == 1 && !is_over.load(Ordering::Acquire) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    options()
                },
                |joined| {
                    conformance::check(&mut joined.unwrap(), PATIENCE).unwrap();
                },
            )
        });
        // Kept open: they must not hold up the members.
        let mut kept = Vec::new();
        for_seeds("scanners_browsers_and_random_bytes_do_no_harm", 60, |rng| {
            let started = Instant::now();
            let mut socket = loop {
                match TcpStream::connect((meeting.host.as_str(), meeting.port)) {
                    Ok(socket) => break socket,
                    Err(_) => assert!(started.elapsed() < PATIENCE, "no PE listens"),
                }
                std::thread::sleep(Duration::from_millis(1));
            };
            let _ = socket.write_all(&noise(rng));
            if rng.one_in(2) {
                kept.push(socket);
            }
        });
        is_over.store(true, Ordering::Release);
        group.join().unwrap();
        drop(kept);
    });
}

/// The keeper of the list is gone before all have come: another takes its place.
#[test]
fn a_keeper_that_gives_up_is_replaced() {
    let meeting = place("127.0.0.1");
    let short = Wait::timeout(Duration::from_millis(300));
    tcp::join(&meeting, 0, 3, &options(), &short).unwrap_err();
    on_threads(&meeting, 3, |_| options(), |joined| drop(joined.unwrap()));
}

#[test]
fn a_member_that_leaves_is_missed_by_all_others_alike() {
    let failures = on_threads(
        &place("127.0.0.1"),
        4,
        |_| options(),
        |joined| {
            let mut endpoint = joined.unwrap();
            if endpoint.rank() == 2 {
                return None;
            }
            let wait = Wait::timeout(PATIENCE);
            let entered = Session::enter(&mut endpoint, 7, &wait);
            let failed = entered.and_then(|session| session.finish(&wait));
            Some(failed.unwrap_err())
        },
    );
    for failure in failures.into_iter().flatten() {
        assert_eq!(failure, Failure::PeerLeft { rank: 2 });
    }
}

#[test]
fn a_message_of_each_size_goes_over_many_streams() {
    let options = |_| Options { streams: 4, depth: 3, slot_bytes: 1 << 16, ..options() };
    on_threads(&place("127.0.0.1"), 2, options, |joined| {
        let endpoint = joined.unwrap();
        let (peer, wait) = (1 - endpoint.rank(), Wait::timeout(PATIENCE));
        let sizes = [0, 1, 63, 4096, 65_535, 65_536, 17];
        for round in 0..40 {
            for size in sizes {
                let fill = &mut |slot: &mut [u8]| {
                    slot.fill((round + size) as u8);
                    Default::default()
                };
                endpoint.send(peer, size, fill, &wait).unwrap();
                let take = &mut |_, bytes: &[u8]| {
                    assert_eq!(bytes.len(), size);
                    assert!(bytes.iter().all(|byte| *byte == (round + size) as u8));
                    Ok(())
                };
                endpoint.receive(peer, take, &wait).unwrap();
            }
        }
    });
}
