//! Rounds: colouring the batches so that each PE sends one and receives one at a time.
//!
//! Senders and receivers are the two sides of a bipartite multigraph, batches its edges, rounds its
//! colours. Such a graph needs exactly as many colours as its largest degree (König). Batches are
//! coloured from the largest down, each with the first round free on both sides, so that rounds
//! hold batches of like size; where no round is free on both, the two rounds that are each free on
//! one are swapped along the one path that begins at the receiver.

use std::collections::HashMap;

use super::pack::BatchSize;

/// Entries of the dense tables above which only their nonzero entries are kept.
const DENSE_ENTRIES_MAX: u64 = 1 << 26;

const NONE: u32 = u32::MAX;

/// The round of every batch.
#[derive(Debug)]
pub(super) struct Colouring {
    pub(super) round_of: Vec<u32>,
    pub(super) rounds: u32,
    pub(super) degree_max: u32,
}

pub(super) fn colour(world: u32, sizes: &[BatchSize]) -> Colouring {
    let mut degrees = vec![0u32; 2 * world as usize];
    for size in sizes {
        degrees[size.src as usize] += 1;
        degrees[(world + size.dst) as usize] += 1;
    }
    let degree_max = degrees.iter().copied().max().unwrap_or(0);
    let mut graph = Graph {
        sizes,
        world,
        round_of: vec![NONE; sizes.len()],
        used: Used::new(2 * world, degree_max),
        at: Incidence::new(2 * world, degree_max),
    };
    let mut order: Vec<u32> = (0..sizes.len() as u32).collect();
    order.sort_by_key(|&batch| std::cmp::Reverse(sizes[batch as usize].bytes));
    for batch in order {
        graph.place(batch);
    }
    let rounds = graph.round_of.iter().map(|&round| round + 1).max().unwrap_or(0);
    Colouring { round_of: graph.round_of, rounds, degree_max }
}

/// Vertices are senders `0..world` and receivers `world..2 * world`.
struct Graph<'a> {
    sizes: &'a [BatchSize],
    world: u32,
    round_of: Vec<u32>,
    used: Used,
    at: Incidence,
}

impl Graph<'_> {
    fn place(&mut self, batch: u32) {
        let [sender, receiver] = self.ends(batch);
        let round = match self.used.first_free_both(sender, receiver) {
            Some(round) => round,
            None => {
                let free_sender = self.used.first_free(sender);
                let free_receiver = self.used.first_free(receiver);
                self.swap_path(receiver, free_sender, free_receiver);
                free_sender
            }
        };
        self.set(batch, round);
    }

    fn ends(&self, batch: u32) -> [u32; 2] {
        let size = &self.sizes[batch as usize];
        [size.src, self.world + size.dst]
    }

    fn set(&mut self, batch: u32, round: u32) {
        self.round_of[batch as usize] = round;
        for end in self.ends(batch) {
            self.used.set(end, round);
            self.at.set(end, round, batch);
        }
    }

    /// Frees `round` at `vertex` by exchanging it with `other`, which is free there, along the path
    /// of both.
    ///
    /// The path cannot come back to the sender that wants `round`: it would arrive there by
    /// `round`, which is free there.
    fn swap_path(&mut self, vertex: u32, round: u32, other: u32) {
        let mut path = Vec::new();
        let (mut vertex, mut along) = (vertex, round);
        while let Some(batch) = self.at.get(vertex, along) {
            path.push(batch);
            let [sender, receiver] = self.ends(batch);
            vertex = if vertex == sender { receiver } else { sender };
            along = if along == round { other } else { round };
        }
        for &batch in &path {
            let old = self.round_of[batch as usize];
            for end in self.ends(batch) {
                self.used.clear(end, old);
                self.at.clear(end, old);
            }
        }
        for &batch in &path {
            let old = self.round_of[batch as usize];
            self.set(batch, if old == round { other } else { round });
        }
    }
}

/// A bit for every vertex and round.
struct Used {
    words: usize,
    rounds: u32,
    bits: Vec<u64>,
    /// No word before this one has a free bit, by vertex.
    full: Vec<u32>,
}

impl Used {
    fn new(vertices: u32, rounds: u32) -> Self {
        let words = rounds.div_ceil(64) as usize;
        let bits = vec![0; words * vertices as usize];
        Self { words, rounds, bits, full: vec![0; vertices as usize] }
    }

    fn row(&self, vertex: u32) -> &[u64] {
        &self.bits[vertex as usize * self.words..][..self.words]
    }

    fn set(&mut self, vertex: u32, round: u32) {
        let word = vertex as usize * self.words + round as usize / 64;
        self.bits[word] |= 1 << (round % 64);
        let full = &mut self.full[vertex as usize];
        while (*full as usize) < self.words
            && self.bits[vertex as usize * self.words + *full as usize] == u64::MAX
        {
            *full += 1;
        }
    }

    fn clear(&mut self, vertex: u32, round: u32) {
        let word = vertex as usize * self.words + round as usize / 64;
        self.bits[word] &= !(1 << (round % 64));
        let full = &mut self.full[vertex as usize];
        *full = (*full).min(round / 64);
    }

    /// A vertex with a batch still to place has fewer rounds in use than there are.
    fn first_free(&self, vertex: u32) -> u32 {
        self.first_free_both(vertex, vertex).expect("a round is free at every unfinished vertex")
    }

    fn first_free_both(&self, one: u32, other: u32) -> Option<u32> {
        let skip = self.full[one as usize].max(self.full[other as usize]) as usize;
        let (one, other) = (&self.row(one)[skip..], &self.row(other)[skip..]);
        let word = one.iter().zip(other).position(|(one, other)| one | other != u64::MAX)?;
        let free = !(one[word] | other[word]);
        let round = (skip + word) as u32 * 64 + free.trailing_zeros();
        (round < self.rounds).then_some(round)
    }
}

/// The batch at every vertex and round.
enum Incidence {
    Dense { rounds: usize, batches: Vec<u32> },
    Sparse(HashMap<(u32, u32), u32>),
}

impl Incidence {
    fn new(vertices: u32, rounds: u32) -> Self {
        if u64::from(vertices) * u64::from(rounds) > DENSE_ENTRIES_MAX {
            return Self::Sparse(HashMap::new());
        }
        let rounds = rounds as usize;
        Self::Dense { rounds, batches: vec![NONE; vertices as usize * rounds] }
    }

    fn get(&self, vertex: u32, round: u32) -> Option<u32> {
        match self {
            Self::Dense { rounds, batches } => {
                let batch = batches[vertex as usize * rounds + round as usize];
                (batch != NONE).then_some(batch)
            }
            Self::Sparse(batches) => batches.get(&(vertex, round)).copied(),
        }
    }

    fn set(&mut self, vertex: u32, round: u32, batch: u32) {
        match self {
            Self::Dense { rounds, batches } => {
                batches[vertex as usize * *rounds + round as usize] = batch;
            }
            Self::Sparse(batches) => {
                batches.insert((vertex, round), batch);
            }
        }
    }

    fn clear(&mut self, vertex: u32, round: u32) {
        match self {
            Self::Dense { .. } => self.set(vertex, round, NONE),
            Self::Sparse(batches) => {
                batches.remove(&(vertex, round));
            }
        }
    }
}

#[cfg(test)]
mod tests;
