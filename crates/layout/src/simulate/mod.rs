//! Predicting a refit on a cluster that is not here.
//!
//! Batches are flows over links. A PE sends one batch at a time and receives one at a time, in the
//! order of the schedule's rounds, without a barrier between rounds, as the pipeline does. Flows
//! that share a link share its bandwidth evenly; each goes at the pace of its narrowest link. Self
//! moves go on beside them. A flow's first byte is late by the latency of its links only where
//! nothing was under way to hide it: packing, sending and unpacking overlap, and so a message's
//! latency is paid once, at the end.
//!
//! The simulations of crate `plan` share no event loop with this one. There, an op's end is known
//! when it starts: the compiler keeps one queue for each lane, a forecast with stealing one heap of
//! the times at which lanes search, and a forecast in order needs no events. Here, the end of a
//! flow moves whenever another flow starts or ends on one of its links, so each event carries a
//! version, and outdated events are skipped. The heap is all that they have in common.
//!
//! Not modelled: the refit's first round trip (milliseconds), slow PEs, other traffic.

mod cluster;
mod links;

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

pub use cluster::{Cluster, ClusterLink};
pub use links::LinkKind;
use links::Links;

use crate::error::LayoutError;
use crate::schedule::Schedule;
use crate::transfer::TransferPlan;

/// What one kind of link carries.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkUse {
    /// The kind.
    pub kind: LinkKind,
    /// Links of this kind that carry anything.
    pub links: u32,
    /// Bytes over all of them.
    pub bytes_total: u64,
    /// Bytes over the busiest.
    pub bytes_max: u64,
    /// The busiest, counted within the kind.
    pub busiest: u32,
    /// The time that the busiest needs at the least.
    pub seconds_min: f64,
}

/// What a refit would take.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// From the first byte to the last.
    pub seconds: f64,
    /// What the busiest link alone needs: no schedule can be faster.
    pub seconds_min: f64,
    /// Rounds of the schedule.
    pub rounds: u32,
    /// Messages between PEs.
    pub messages: u64,
    /// Bytes between PEs.
    pub bytes_moved: u64,
    /// Bytes that stay where they are.
    pub bytes_kept: u64,
    /// By kind, the links that are used.
    pub links: Vec<LinkUse>,
}

/// Predicts the refit of `plan`, in the rounds of `schedule`, on `cluster`.
pub fn simulate(
    plan: &TransferPlan,
    schedule: &Schedule,
    cluster: &Cluster,
) -> Result<Prediction, LayoutError> {
    let mut run = Run::new(plan, schedule, cluster)?;
    run.start_all();
    run.go_on();
    Ok(run.prediction(plan, schedule))
}

/// A batch, or what one PE keeps.
struct Flow {
    src: u32,
    dst: u32,
    route: Vec<u32>,
    latency_s: f64,
    bytes: u64,
    left: f64,
    rate: f64,
    since: f64,
    /// Events of earlier rates are stale.
    version: u32,
}

struct Run {
    links: Links,
    flows: Vec<Flow>,
    /// By PE: the flows to send and to receive, in the order of rounds.
    sends: Vec<VecDeque<u32>>,
    receives: Vec<VecDeque<u32>>,
    message_s: f64,
    /// Time in bits, which order as the numbers do; then flow and version.
    events: BinaryHeap<Reverse<(u64, u32, u32)>>,
    now: f64,
    end: f64,
}

impl Run {
    fn new(
        plan: &TransferPlan,
        schedule: &Schedule,
        cluster: &Cluster,
    ) -> Result<Self, LayoutError> {
        let world = plan.world();
        let mut links = Links::new(cluster, world);
        let mut flows = Vec::new();
        let (mut sends, mut receives) =
            (vec![VecDeque::new(); world as usize], vec![VecDeque::new(); world as usize]);
        let mut order: Vec<usize> = (0..schedule.batches().len()).collect();
        order.sort_by_key(|&at| schedule.batches()[at].round);
        let mut add = |src: u32, dst: u32, bytes: u64| -> Result<u32, LayoutError> {
            let (route, latency_s) = links.route(src, dst)?;
            for &link in &route {
                links.all[link as usize].bytes += bytes;
            }
            let (left, id) = (bytes as f64, flows.len() as u32);
            let (rate, since, version) = (0.0, 0.0, 0);
            flows.push(Flow { src, dst, route, latency_s, bytes, left, rate, since, version });
            Ok(id)
        };
        for at in order {
            let batch = &schedule.batches()[at];
            let id = add(batch.src, batch.dst, batch.bytes)?;
            sends[batch.src as usize].push_back(id);
            receives[batch.dst as usize].push_back(id);
        }
        let mut kept = vec![0; world as usize];
        for op in plan.ops().iter().filter(|op| op.is_self_move()) {
            kept[op.src as usize] += plan.bytes(op);
        }
        for (rank, bytes) in (0u32..).zip(kept) {
            if bytes > 0 {
                add(rank, rank, bytes)?;
            }
        }
        let message_s = cluster.message_us * 1e-6;
        let events = BinaryHeap::new();
        Ok(Self { links, flows, sends, receives, message_s, events, now: 0.0, end: 0.0 })
    }

    fn start_all(&mut self) {
        let kept = |flow: &&u32| {
            let Flow { src, dst, .. } = self.flows[**flow as usize];
            src == dst
        };
        let ids: Vec<u32> = (0..self.flows.len() as u32).collect();
        for id in ids.iter().filter(kept).copied().collect::<Vec<_>>() {
            self.start(id, 0.0);
        }
        for rank in 0..self.sends.len() {
            self.try_start(rank);
        }
    }

    /// Starts what `rank` sends next, if its receiver is at it too.
    fn try_start(&mut self, rank: usize) {
        let Some(&id) = self.sends[rank].front() else { return };
        let Flow { dst, version, .. } = self.flows[id as usize];
        if version == 0 && self.receives[dst as usize].front() == Some(&id) {
            self.start(id, self.message_s);
        }
    }

    fn start(&mut self, id: u32, cost_s: f64) {
        let flow = &mut self.flows[id as usize];
        flow.version = 1;
        // What a message costs its ends is time in which nothing flows: bytes at its own pace would
        // do no more.
        flow.since = self.now + cost_s;
        for link in flow.route.clone() {
            self.links.all[link as usize].flows.push(id);
        }
        self.adjust(id);
    }

    /// Gives every flow that shares a link with `id` its new pace.
    fn adjust(&mut self, id: u32) {
        let route = self.flows[id as usize].route.clone();
        let mut touched: Vec<u32> = vec![];
        for &link in &route {
            touched.extend(&self.links.all[link as usize].flows);
        }
        touched.sort_unstable();
        touched.dedup();
        for id in touched {
            let pace = |link: &u32| {
                let link = &self.links.all[*link as usize];
                link.bytes_per_s / link.flows.len() as f64
            };
            let rate = self.flows[id as usize].route.iter().map(pace).fold(f64::INFINITY, f64::min);
            let flow = &mut self.flows[id as usize];
            if rate == flow.rate {
                continue;
            }
            let gone = (self.now - flow.since).max(0.0);
            flow.left = (flow.left - gone * flow.rate).max(0.0);
            flow.since = flow.since.max(self.now);
            flow.rate = rate;
            flow.version += 1;
            let end = flow.since + flow.left / rate;
            self.events.push(Reverse((end.to_bits(), id, flow.version)));
        }
    }

    fn go_on(&mut self) {
        while let Some(Reverse((bits, id, version))) = self.events.pop() {
            if self.flows[id as usize].version != version {
                continue;
            }
            self.now = f64::from_bits(bits);
            let Flow { src, dst, latency_s, .. } = self.flows[id as usize];
            self.end = self.end.max(self.now + latency_s);
            self.flows[id as usize].version += 1;
            for link in self.flows[id as usize].route.clone() {
                self.links.all[link as usize].flows.retain(|flow| *flow != id);
            }
            self.adjust(id);
            if src == dst {
                continue;
            }
            self.sends[src as usize].pop_front();
            self.receives[dst as usize].pop_front();
            self.try_start(src as usize);
            if let Some(&next) = self.receives[dst as usize].front() {
                self.try_start(self.flows[next as usize].src as usize);
            }
        }
    }

    fn prediction(&self, plan: &TransferPlan, schedule: &Schedule) -> Prediction {
        let mut links: Vec<LinkUse> = Vec::new();
        for link in self.links.all.iter().filter(|link| link.bytes > 0) {
            let seconds_min = link.bytes as f64 / link.bytes_per_s;
            let (bytes, number) = (link.bytes, link.number);
            match links.last_mut().filter(|known| known.kind == link.kind) {
                Some(known) => {
                    known.links += 1;
                    known.bytes_total += bytes;
                    if bytes > known.bytes_max {
                        (known.bytes_max, known.busiest) = (bytes, number);
                        known.seconds_min = seconds_min;
                    }
                }
                None => links.push(LinkUse {
                    kind: link.kind,
                    links: 1,
                    bytes_total: bytes,
                    bytes_max: bytes,
                    busiest: number,
                    seconds_min,
                }),
            }
        }
        let is_kept = |flow: &&Flow| flow.src == flow.dst;
        Prediction {
            seconds: self.end,
            seconds_min: links.iter().map(|link| link.seconds_min).fold(0.0, f64::max),
            rounds: schedule.rounds(),
            messages: schedule.batches().len() as u64,
            bytes_moved: plan.bytes_moved(),
            bytes_kept: self.flows.iter().filter(is_kept).map(|flow| flow.bytes).sum(),
            links,
        }
    }
}
