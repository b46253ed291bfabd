//! The thread of a group: it moves bytes between sockets and queues, and keeps time.

use std::net::Shutdown;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use syncline_sync::lock;

use super::endpoint::{Group, Peer};
use super::frames::{Control, Inbox};
use super::streams::Fault;
use crate::{ControlPlane, Failure};

/// How often the membership hears that time has passed.
const TICK: Duration = Duration::from_millis(50);

/// How long a PE that leaves waits for its last messages to be sent.
const FAREWELL: Duration = Duration::from_secs(1);

/// Where an event comes from.
#[derive(Clone, Copy)]
enum Source {
    Waker,
    Control(usize),
    Stream(usize, usize),
}

pub(super) struct Poller {
    group: Arc<Group>,
    inboxes: Vec<Inbox>,
    /// By PE: whether its connection for control is open, and each for data.
    is_open: Vec<(bool, Vec<bool>)>,
    /// When this PE last said that it is alive, and when the membership was last told of time.
    pinged: Instant,
    ticked: Instant,
}

impl Poller {
    pub(super) fn new(group: Arc<Group>) -> Self {
        let is_open = |peer: &Option<Peer>| {
            (peer.is_some(), peer.iter().flat_map(|peer| &peer.streams).map(|_| true).collect())
        };
        let is_open = group.peers.iter().map(is_open).collect();
        let inboxes = group.peers.iter().map(|_| Inbox::default()).collect();
        let now = Instant::now();
        Self { group, inboxes, is_open, pinged: now, ticked: now }
    }

    /// Runs until the endpoint is dropped.
    pub(super) fn run(mut self) {
        while !self.group.is_closing.load(Ordering::Acquire) {
            self.step(TICK);
            self.keep_time();
        }
        self.say_farewell();
    }

    /// Sends all queued messages, then waits until the others have closed their sides: closing
    /// earlier could discard bytes on their way.
    fn say_farewell(&mut self) {
        let until = Instant::now() + FAREWELL;
        while !self.is_sent() && Instant::now() < until {
            self.step(Duration::from_millis(5));
        }
        let group = self.group.clone();
        group.peers.iter().flatten().for_each(|peer| peer.hang_up(Shutdown::Write));
        while self.is_open.iter().any(|(control, _)| *control) && Instant::now() < until {
            self.step(Duration::from_millis(5));
        }
    }

    /// Returns `true` if nothing waits to be sent to members that are there.
    fn is_sent(&self) -> bool {
        self.group.peers.iter().zip(&self.is_open).all(|(peer, (is_open, _))| {
            let Some(peer) = peer.as_ref().filter(|_| *is_open) else { return true };
            lock(&peer.outbox).is_empty()
                && peer.streams.iter().all(|stream| lock(&stream.sending).is_empty())
        })
    }

    /// Waits for events for at most `most`, and handles them.
    fn step(&mut self, most: Duration) {
        let group = self.group.clone();
        let mut sources = vec![Source::Waker];
        let mut fds = vec![PollFd::new(&group.waker, PollFlags::IN)];
        for (rank, (peer, (is_open, streams))) in group.peers.iter().zip(&self.is_open).enumerate()
        {
            let Some(peer) = peer else { continue };
            if *is_open {
                let mut flags = PollFlags::IN;
                flags.set(PollFlags::OUT, !lock(&peer.outbox).is_empty());
                sources.push(Source::Control(rank));
                fds.push(PollFd::from_borrowed_fd(peer.control.as_fd(), flags));
            }
            for (index, (stream, is_open)) in peer.streams.iter().zip(streams).enumerate() {
                let mut flags = PollFlags::empty();
                flags.set(PollFlags::IN, lock(&stream.receiving).has_room());
                flags.set(PollFlags::OUT, !lock(&stream.sending).is_empty());
                if *is_open && !flags.is_empty() {
                    sources.push(Source::Stream(rank, index));
                    fds.push(PollFd::from_borrowed_fd(stream.socket.as_fd(), flags));
                }
            }
        }
        let timeout = rustix::event::Timespec {
            tv_sec: most.as_secs() as i64,
            tv_nsec: most.subsec_nanos().into(),
        };
        // Interrupted, or out of memory for a moment: the next step tries again.
        if poll(&mut fds, Some(&timeout)).is_err() {
            return;
        }
        let events: Vec<(Source, PollFlags)> =
            sources.iter().copied().zip(fds.iter().map(PollFd::revents)).collect();
        drop(fds);
        for (source, flags) in events.into_iter().filter(|(_, flags)| !flags.is_empty()) {
            let can_read = flags.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR);
            match source {
                Source::Waker => {
                    let _ = rustix::io::read(&group.waker, &mut [0; 8]);
                }
                Source::Control(rank) => self.serve_control(rank, can_read),
                Source::Stream(rank, index) => self.serve_stream(rank, index, can_read),
            }
        }
    }

    fn serve_control(&mut self, rank: usize, can_read: bool) {
        let group = self.group.clone();
        let Some(peer) = &group.peers[rank] else { return };
        let mut is_over = lock(&peer.outbox).flush(&peer.control).is_err();
        if can_read {
            let inbox = &mut self.inboxes[rank];
            let filled = inbox.fill(&peer.control);
            // What came before the end counts.
            match inbox.take() {
                Ok(messages) => messages.into_iter().for_each(|one| group.hear(rank, one)),
                Err(_) => is_over = true,
            }
            is_over |= filled.unwrap_or(true);
        }
        if is_over {
            self.is_open[rank].0 = false;
            // It hears at once that nothing more comes. What it has sent can still be read.
            peer.hang_up(Shutdown::Write);
            group.lose(rank);
        }
    }

    fn serve_stream(&mut self, rank: usize, index: usize, can_read: bool) {
        let group = self.group.clone();
        let Some(peer) = &group.peers[rank] else { return };
        let stream = &peer.streams[index];
        let mut fault = group.flush(stream).err().map(|_| Fault::Ended);
        if can_read {
            let filled = lock(&stream.receiving).fill(&stream.socket);
            match filled {
                Ok(true) => {
                    group.discard_stale(peer);
                    group.ring();
                }
                Ok(false) => {}
                Err(other) => fault = Some(other),
            }
        }
        match fault {
            None => {}
            Some(Fault::Ended) => {
                self.is_open[rank].1[index] = false;
                group.ring();
                // A member that leaves ends all its connections; one that is cut loses this one.
                if self.is_open[rank].0 {
                    self.await_end(rank, peer);
                }
            }
            Some(Fault::Corrupt(what)) => {
                self.is_open[rank].1[index] = false;
                let message =
                    format!("a message from PE {rank} came otherwise than it was sent: {what}");
                // On a thread of its own: the group decides by this one.
                let failing = group.clone();
                let fail = move || {
                    failing.fail(Failure::Local { rank: failing.rank, message });
                };
                if std::thread::Builder::new().spawn(fail).is_err() {
                    self.is_open[rank].0 = false;
                    group.lose(rank);
                }
            }
        }
    }

    /// A stream of `peer` has ended: so must its control connection, or the link is cut.
    fn await_end(&mut self, rank: usize, peer: &Peer) {
        self.serve_control(rank, true);
        if self.is_open[rank].0 {
            self.is_open[rank].0 = false;
            peer.hang_up(Shutdown::Both);
            self.group.lose(rank);
        }
    }

    /// Tells the membership of time, and the others that this PE is alive.
    fn keep_time(&mut self) {
        let now = Instant::now();
        let group = self.group.clone();
        if now.duration_since(self.pinged) >= (group.silence / 4).max(Duration::from_millis(1)) {
            self.pinged = now;
            (0..group.peers.len()).for_each(|peer| group.tell(peer, &Control::Ping));
        }
        if now.duration_since(self.ticked) < TICK {
            return;
        }
        // After a pause of this thread, the others had no chance to be heard.
        let was_paused = now.duration_since(self.ticked) > group.silence / 2;
        self.ticked = now;
        group.tick();
        if was_paused {
            group.lock().heard.fill(now);
        }
        let silent: Vec<usize> = {
            let state = group.lock();
            let is_silent = |rank: &usize| {
                self.is_open[*rank].0 && now.duration_since(state.heard[*rank]) > group.silence
            };
            (0..group.peers.len()).filter(is_silent).collect()
        };
        for rank in silent {
            self.is_open[rank].0 = false;
            group.peers[rank].iter().for_each(|peer| peer.hang_up(Shutdown::Both));
            group.lose(rank);
        }
    }
}
