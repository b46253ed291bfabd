//! Progress: what one PE knows of its group, and how news of the others become part of it.

use std::collections::VecDeque;

use syncline_transport::{Failure, Header, Shape, Ticket};

use crate::call::{Comm, MpiError, Request, Turn};
use crate::control::{Control, WORDS_MAX, to_bytes, to_words};
use crate::endpoint::ARBITER;
use crate::lines::Lines;

const TAG_CONTROL: i32 = 1;
const TAG_DATA: i32 = 2;

/// A slot of this PE, where data goes by messages.
pub(crate) enum Slot {
    Free,
    /// Somebody is packing for it.
    Filling,
    Sending(Request, Lines),
}

/// The next message from one peer, where data comes by messages.
pub(crate) enum Incoming {
    /// Nobody has asked for it.
    Nothing,
    /// Somebody waits for it.
    Wanted,
    Receiving(Request, Lines, usize),
    Arrived(Lines, usize),
}

/// What comes from one peer.
pub(crate) struct From {
    pub message: Incoming,
    /// Messages in the inbox, and how many were taken before them.
    pub placed: VecDeque<(u64, Header)>,
    pub taken: u64,
    /// Whether a thread reads a message in the inbox: places are given back in order.
    pub is_busy: bool,
}

/// What goes to one peer by puts.
#[derive(Clone, Copy, Default)]
pub(crate) struct To {
    pub placed: u64,
    pub taken: u64,
    /// Whether a thread is putting a message: the next one has to wait for its number.
    pub is_busy: bool,
}

/// What a PE knows.
pub(crate) struct Progress {
    comm: Comm,
    rank: usize,
    shape: Shape,
    /// The refit that this PE has entered last.
    pub epoch: u64,
    /// By PE: the last refit entered, and the ticket for it.
    pub entered: Vec<u64>,
    pub tickets: Vec<Ticket>,
    /// By PE: the last refit done. Complete on the arbiter only.
    pub done: Vec<u64>,
    /// By PE: the last refit done by those that have left.
    pub left: Vec<Option<u64>>,
    pub committed: u64,
    pub failure: Option<Failure>,
    pub slots: Vec<Slot>,
    pub incoming: Vec<From>,
    pub outgoing: Vec<To>,
    /// Buffers that nobody uses.
    pub spare: Vec<Lines>,
    /// Control messages on their way.
    controls: Vec<(Request, Vec<u8>)>,
}

impl Progress {
    pub(crate) fn new(comm: Comm, rank: usize, shape: Shape) -> Self {
        let Shape { size, depth, .. } = shape;
        let from = |_| From {
            message: Incoming::Nothing,
            placed: VecDeque::new(),
            taken: 0,
            is_busy: false,
        };
        Self {
            comm,
            rank,
            shape,
            epoch: 0,
            entered: vec![0; size],
            tickets: vec![Ticket::default(); size],
            done: vec![0; size],
            left: vec![None; size],
            committed: 0,
            failure: None,
            slots: (0..depth).map(|_| Slot::Free).collect(),
            incoming: (0..size).map(from).collect(),
            outgoing: vec![To::default(); size],
            spare: Vec::new(),
            controls: Vec::new(),
        }
    }

    /// A buffer for a message.
    pub(crate) fn buffer(&mut self) -> Lines {
        self.spare.pop().unwrap_or_else(|| Lines::new(self.shape.slot_bytes))
    }

    /// Looks for everything that may have come or gone; says whether something has.
    pub(crate) fn step(&mut self, turn: &Turn<'_>) -> Result<bool, MpiError> {
        let mut moved = false;
        while let Some((source, control)) = self.next_control(turn)? {
            self.hear(source, control, turn)?;
            moved = true;
        }
        moved |= self.step_sends(turn)?;
        for peer in 0..self.incoming.len() {
            moved |= self.step_receive(peer, turn)?;
        }
        Ok(moved)
    }

    fn next_control(&self, turn: &Turn<'_>) -> Result<Option<(usize, Control)>, MpiError> {
        let Some(matched) = self.comm.probe(None, TAG_CONTROL, turn)? else { return Ok(None) };
        let source = matched.source;
        let mut bytes = vec![0; matched.bytes];
        // SAFETY: the bytes stay until the request has completed, or for ever.
        let received = unsafe { matched.receive(&mut bytes, turn) }.and_then(|mut request| {
            // Messages as short as these come with their envelope: it is there already.
            while !request.is_done(turn)? {}
            Ok(())
        });
        if let Err(error) = received {
            std::mem::forget(bytes);
            return Err(error);
        }
        let unreadable = || {
            let message = format!("PE {source} sent a control message that is none");
            Control::Fail { failure: Failure::Local { rank: self.rank, message } }
        };
        Ok(Some((source, Control::decode(&to_words(&bytes)).unwrap_or_else(unreadable))))
    }

    fn hear(&mut self, source: usize, control: Control, turn: &Turn<'_>) -> Result<(), MpiError> {
        match control {
            Control::Enter { epoch, ticket } => {
                self.entered[source] = epoch;
                self.tickets[source] = ticket;
            }
            Control::Done { epoch } => {
                self.done[source] = epoch;
                self.arbitrate(turn)?;
            }
            Control::Commit { epoch } => self.committed = epoch,
            Control::Fail { failure } if self.rank == ARBITER => self.decide(failure, turn)?,
            Control::Fail { failure } | Control::Verdict { failure } => {
                self.failure.get_or_insert(failure);
            }
            Control::Left { epoch } => self.left[source] = Some(epoch),
            Control::Placed { bytes, header } => {
                self.incoming[source].placed.push_back((bytes, header));
            }
            Control::Taken => self.outgoing[source].taken += 1,
        }
        Ok(())
    }

    /// As the arbiter: commits the next refit when all have done their part and none has failed.
    pub(crate) fn arbitrate(&mut self, turn: &Turn<'_>) -> Result<(), MpiError> {
        let next = self.committed + 1;
        if self.failure.is_none() && self.done.iter().all(|done| *done >= next) {
            self.committed = next;
            self.tell_all(&Control::Commit { epoch: next }, turn)?;
        }
        Ok(())
    }

    /// As the arbiter: the first failure that it hears of is the group's.
    pub(crate) fn decide(&mut self, failure: Failure, turn: &Turn<'_>) -> Result<(), MpiError> {
        if self.failure.is_some() {
            return Ok(());
        }
        self.failure = Some(failure.clone());
        self.tell_all(&Control::Verdict { failure }, turn)
    }

    fn tell_all(&mut self, control: &Control, turn: &Turn<'_>) -> Result<(), MpiError> {
        let (rank, size) = (self.rank, self.shape.size);
        let mut others = (0..size).filter(|peer| *peer != rank);
        others.try_for_each(|peer| self.tell(peer, control, turn))
    }

    pub(crate) fn tell(
        &mut self,
        peer: usize,
        control: &Control,
        turn: &Turn<'_>,
    ) -> Result<(), MpiError> {
        let words = control.encode();
        debug_assert!(words.len() <= WORDS_MAX, "{}", words.len());
        let bytes = to_bytes(&words);
        // SAFETY: the bytes are kept beside the request until it has completed.
        let request = unsafe { self.comm.send(&bytes, peer, TAG_CONTROL, turn)? };
        self.controls.push((request, bytes));
        Ok(())
    }

    /// Sends what was packed for slot `at`.
    pub(crate) fn send_slot(
        &mut self,
        at: usize,
        slot: Lines,
        bytes: usize,
        peer: usize,
        turn: &Turn<'_>,
    ) -> Result<(), MpiError> {
        let message = &slot.bytes()[..Lines::HEADER_BYTES + bytes];
        // SAFETY: the slot is kept beside the request until it has completed.
        let request = unsafe { self.comm.send(message, peer, TAG_DATA, turn)? };
        self.slots[at] = Slot::Sending(request, slot);
        Ok(())
    }

    fn step_sends(&mut self, turn: &Turn<'_>) -> Result<bool, MpiError> {
        let mut at = 0;
        while at < self.controls.len() {
            if self.controls[at].0.is_done(turn)? {
                self.controls.swap_remove(at);
            } else {
                at += 1;
            }
        }
        let mut moved = false;
        for slot in &mut self.slots {
            if let Slot::Sending(request, _) = slot
                && request.is_done(turn)?
            {
                let Slot::Sending(_, lines) = std::mem::replace(slot, Slot::Free) else {
                    unreachable!("it was sending")
                };
                self.spare.push(lines);
                moved = true;
            }
        }
        Ok(moved)
    }

    /// Goes on with what `peer` sends, if somebody waits for it.
    fn step_receive(&mut self, peer: usize, turn: &Turn<'_>) -> Result<bool, MpiError> {
        if matches!(self.incoming[peer].message, Incoming::Wanted) {
            let Some(matched) = self.comm.probe(Some(peer), TAG_DATA, turn)? else {
                return Ok(false);
            };
            let bytes = matched.bytes;
            let mut slot = self.buffer();
            if bytes > slot.bytes().len() {
                slot = Lines::new(bytes);
            }
            // SAFETY: the slot is kept beside the request until it has completed.
            let request = unsafe { matched.receive(slot.bytes_mut(), turn)? };
            self.incoming[peer].message = Incoming::Receiving(request, slot, bytes);
        }
        let message = &mut self.incoming[peer].message;
        if let Incoming::Receiving(request, ..) = message
            && request.is_done(turn)?
        {
            let received = std::mem::replace(message, Incoming::Nothing);
            if let Incoming::Receiving(_, slot, bytes) = received {
                *message = Incoming::Arrived(slot, bytes);
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// Whether something is still on its way out.
    pub(crate) fn is_busy(&self) -> bool {
        !self.controls.is_empty() || self.slots.iter().any(|slot| matches!(slot, Slot::Sending(..)))
    }

    /// Lets go of everything; what MPI may still read or write stays where it is, for ever.
    pub(crate) fn forget(&mut self) {
        std::mem::take(&mut self.controls).into_iter().for_each(std::mem::forget);
        std::mem::take(&mut self.slots).into_iter().for_each(std::mem::forget);
        for from in &mut self.incoming {
            let message = std::mem::replace(&mut from.message, Incoming::Nothing);
            if let Incoming::Receiving(..) = &message {
                std::mem::forget(message);
            }
        }
    }
}
