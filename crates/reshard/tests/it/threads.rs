//! The suite of every transport, with threads as PEs.

use std::collections::HashMap;
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};

use syncline_transport::{Endpoint, Transport, Wait, local, shm, tcp};

use crate::groups::PATIENCE;
use crate::processes::fresh_name;
use crate::suite::{self, Fixture};

/// How the threads of a job reach each other.
#[derive(Clone, Copy, Debug)]
enum Over {
    Local,
    Shm,
    Tcp,
}

/// What the threads of one job share.
struct Job {
    name: String,
    /// Where groups over TCP meet, one after the other.
    port: u16,
    over: Over,
    size: usize,
    /// Endpoints that were made together and are not taken yet, by join.
    made: Mutex<HashMap<usize, Vec<Option<Endpoint>>>>,
    said: Mutex<Round>,
    is_complete: Condvar,
}

/// What the threads have said in one round.
#[derive(Default)]
struct Round {
    number: usize,
    texts: Vec<Option<String>>,
    last: Vec<String>,
    has_failed: bool,
}

struct Thread<'a> {
    job: &'a Job,
    rank: usize,
    joined: AtomicUsize,
}

impl Fixture for Thread<'_> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.job.size
    }

    fn join(&self, (depth, slot_bytes): (usize, usize)) -> Result<Box<dyn Transport>, String> {
        let number = self.joined.fetch_add(1, Ordering::Relaxed);
        let Job { size, name, .. } = self.job;
        let name = format!("{name}-{number}");
        let wait = Wait::timeout(PATIENCE);
        match self.job.over {
            Over::Local => {
                let mut made = self.job.made.lock().unwrap();
                let endpoints = made.entry(number).or_insert_with(|| {
                    let options = local::Options { depth, slot_bytes };
                    let group = local::group(*size, &options).unwrap();
                    group.into_iter().map(Some).collect()
                });
                Ok(Box::new(endpoints[self.rank].take().expect("each is taken once")))
            }
            Over::Shm => {
                let options = shm::Options { depth, slot_bytes, ..Default::default() };
                let joined = shm::join(&name, self.rank, *size, &options, &wait);
                joined.map(|endpoint| Box::new(endpoint) as _).map_err(|error| error.to_string())
            }
            Over::Tcp => {
                // Heartbeats that a busy machine does not miss.
                let silence = PATIENCE / 2;
                let options = tcp::Options { depth, slot_bytes, silence, ..Default::default() };
                let port = self.job.port;
                let meeting = tcp::MeetingPlace { host: "127.0.0.1".to_owned(), port, name };
                let joined = tcp::join(&meeting, self.rank, *size, &options, &wait);
                joined.map(|endpoint| Box::new(endpoint) as _).map_err(|error| error.to_string())
            }
        }
    }

    fn gather(&self, text: &str) -> Vec<String> {
        let mut round = self.job.said.lock().unwrap();
        let number = round.number;
        round.texts.resize(self.job.size, None);
        round.texts[self.rank] = Some(text.to_owned());
        if round.texts.iter().all(Option::is_some) {
            round.last = std::mem::take(&mut round.texts).into_iter().flatten().collect();
            round.number += 1;
            self.job.is_complete.notify_all();
        }
        while round.number == number {
            let (waited, timeout) = self.job.is_complete.wait_timeout(round, PATIENCE).unwrap();
            round = waited;
            assert!(!timeout.timed_out() && !round.has_failed, "another PE has failed");
        }
        round.last.clone()
    }

    fn can_disagree(&self) -> bool {
        !matches!(self.job.over, Over::Local)
    }
}

/// Tells the other threads of a job that one has panicked.
struct Failing<'a>(&'a Job);

impl Drop for Failing<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.said.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).has_failed = true;
            self.0.is_complete.notify_all();
        }
    }
}

fn check(over: Over, sizes: &[usize]) {
    for &size in sizes {
        let job = Job {
            name: fresh_name(),
            port: TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port(),
            over,
            size,
            made: Mutex::default(),
            said: Mutex::default(),
            is_complete: Condvar::new(),
        };
        std::thread::scope(|scope| {
            for rank in 0..size {
                let job = &job;
                scope.spawn(move || {
                    let _failing = Failing(job);
                    let thread = Thread { job, rank, joined: AtomicUsize::new(0) };
                    suite::run(&thread, |name, scenario| {
                        if rank == 0 {
                            println!("{over:?} with {size} PEs: {name}");
                        }
                        scenario();
                    });
                });
            }
        });
    }
}

#[test]
fn the_suite_over_local() {
    check(Over::Local, &[1, 2, 4, 7]);
}

#[test]
fn the_suite_over_shm() {
    check(Over::Shm, &[1, 2, 4, 7]);
}

#[test]
fn the_suite_over_tcp() {
    check(Over::Tcp, &[1, 2, 4, 7]);
}
