//! The links of a cluster one by one, and which of them a batch takes.

use super::cluster::{Cluster, ClusterLink};
use crate::error::LayoutError;

/// Kinds of links, in the order in which they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum LinkKind {
    /// Packing, unpacking and copying.
    Memory,
    /// From a PE to its node.
    IntraOut,
    /// From its node to a PE.
    IntraIn,
    /// From PEs to their network card.
    PcieOut,
    /// From a network card to its PEs.
    PcieIn,
    /// Out of a network card.
    NicOut,
    /// Into a network card.
    NicIn,
    /// Between all nodes.
    Network,
}

impl LinkKind {
    /// Its name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            LinkKind::Memory => "memory",
            LinkKind::IntraOut => "intra out",
            LinkKind::IntraIn => "intra in",
            LinkKind::PcieOut => "pcie out",
            LinkKind::PcieIn => "pcie in",
            LinkKind::NicOut => "nic out",
            LinkKind::NicIn => "nic in",
            LinkKind::Network => "network",
        }
    }
}

/// A link that several batches may take at once.
#[derive(Clone, Debug)]
pub(super) struct LinkState {
    pub kind: LinkKind,
    /// Counted within the kind.
    pub number: u32,
    pub bytes_per_s: f64,
    pub bytes: u64,
    /// Flows under way on it.
    pub flows: Vec<u32>,
}

/// All links of `world` PEs.
pub(super) struct Links {
    pub all: Vec<LinkState>,
    cluster: Cluster,
    starts: [usize; 8],
    per_node: [u32; 8],
}

const KINDS: [LinkKind; 8] = [
    LinkKind::Memory,
    LinkKind::IntraOut,
    LinkKind::IntraIn,
    LinkKind::PcieOut,
    LinkKind::PcieIn,
    LinkKind::NicOut,
    LinkKind::NicIn,
    LinkKind::Network,
];

impl Links {
    pub fn new(cluster: &Cluster, world: u32) -> Self {
        let nodes = world.div_ceil(cluster.pes_per_node);
        let (mut all, mut starts, mut per_node) = (Vec::new(), [0; 8], [0; 8]);
        for kind in KINDS {
            starts[kind as usize] = all.len();
            let Some(link) = link_of(cluster, kind) else { continue };
            let of_node = match kind {
                LinkKind::Network => 1,
                _ => cluster.pes_per_node.div_ceil(link.shared_by),
            };
            per_node[kind as usize] = of_node;
            let count = if kind == LinkKind::Network { 1 } else { nodes * of_node };
            all.extend((0..count).map(|number| LinkState {
                kind,
                number,
                bytes_per_s: link.gb_per_s * 1e9,
                bytes: 0,
                flows: Vec::new(),
            }));
        }
        Self { all, cluster: *cluster, starts, per_node }
    }

    /// The link of this kind that PE `rank` uses, if the cluster has such links.
    fn of(&self, kind: LinkKind, rank: u32) -> Option<u32> {
        let link = link_of(&self.cluster, kind)?;
        let at = match kind {
            LinkKind::Network => 0,
            _ => {
                let within = (rank % self.cluster.pes_per_node) / link.shared_by;
                self.cluster.node(rank) * self.per_node[kind as usize] + within
            }
        };
        Some((self.starts[kind as usize] + at as usize) as u32)
    }

    /// The links that a batch from `src` to `dst` takes, and the time that its first byte needs.
    pub fn route(&self, src: u32, dst: u32) -> Result<(Vec<u32>, f64), LayoutError> {
        let is_near = self.cluster.node(src) == self.cluster.node(dst);
        let kinds: &[(LinkKind, u32)] = if src == dst {
            &[(LinkKind::Memory, src)]
        } else if is_near && self.cluster.direct {
            // One copy, by the sender.
            &[(LinkKind::Memory, src), (LinkKind::IntraOut, src), (LinkKind::IntraIn, dst)]
        } else if is_near {
            &[
                (LinkKind::Memory, src),
                (LinkKind::IntraOut, src),
                (LinkKind::IntraIn, dst),
                (LinkKind::Memory, dst),
            ]
        } else {
            &[
                (LinkKind::Memory, src),
                (LinkKind::PcieOut, src),
                (LinkKind::NicOut, src),
                (LinkKind::Network, src),
                (LinkKind::NicIn, dst),
                (LinkKind::PcieIn, dst),
                (LinkKind::Memory, dst),
            ]
        };
        if !is_near && self.cluster.nic.is_none() {
            let cause = format!("PE {src} and PE {dst} are on different nodes: add [nic]");
            return Err(LayoutError::Syntax { place: "nic".to_owned(), cause });
        }
        let route: Vec<u32> =
            kinds.iter().filter_map(|(kind, rank)| self.of(*kind, *rank)).collect();
        let mut classes: Vec<LinkKind> = kinds.iter().map(|(kind, _)| *kind).collect();
        classes.sort_unstable();
        classes.dedup();
        // Both ends of a link are one link: its latency counts once.
        let is_out = |kind: &&LinkKind| {
            !matches!(kind, LinkKind::IntraIn | LinkKind::PcieIn | LinkKind::NicIn)
        };
        let latency_us: f64 = classes
            .iter()
            .filter(is_out)
            .filter_map(|kind| Some(link_of(&self.cluster, *kind)?.latency_us))
            .sum();
        Ok((route, latency_us * 1e-6))
    }
}

fn link_of(cluster: &Cluster, kind: LinkKind) -> Option<ClusterLink> {
    match kind {
        LinkKind::Memory => Some(cluster.memory),
        LinkKind::IntraOut | LinkKind::IntraIn => Some(cluster.intra),
        LinkKind::PcieOut | LinkKind::PcieIn => cluster.pcie,
        LinkKind::NicOut | LinkKind::NicIn => cluster.nic,
        LinkKind::Network => cluster.network,
    }
}
