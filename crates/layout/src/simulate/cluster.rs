//! Clusters: what connects PEs, as a TOML file says it.

use serde::Deserialize;

#[cfg(feature = "json")]
use crate::error::LayoutError;

/// A link: how much goes through it a second, each way, and how long a message takes through it.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterLink {
    /// Gigabytes a second, each way.
    pub gb_per_s: f64,
    /// Microseconds from one end to the other.
    #[serde(default)]
    pub latency_us: f64,
    /// PEs of a node that share one such link.
    #[serde(default = "one")]
    pub shared_by: u32,
}

fn one() -> u32 {
    1
}

/// A cluster of equal nodes.
///
/// ```
/// use syncline_layout::simulate::Cluster;
///
/// let cluster = Cluster::from_toml(
///     "pes_per_node = 8
///      [memory]
///      gb_per_s = 1000
///      [intra]
///      gb_per_s = 400
///      latency_us = 3
///      [nic]
///      gb_per_s = 50
///      latency_us = 6
///      shared_by = 2",
/// )?;
/// assert_eq!(cluster.nic.unwrap().shared_by, 2);
/// # Ok::<(), syncline_layout::LayoutError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// PEs of each node; ranks are counted node by node.
    pub pes_per_node: u32,
    /// What one PE packs, unpacks and copies; with `shared_by`, what so many PEs do together.
    pub memory: ClusterLink,
    /// Each PE's way to the others of its node.
    pub intra: ClusterLink,
    /// Whether PEs of one node write each other's memory, so that nothing is packed between them.
    #[serde(default)]
    pub direct: bool,
    /// Between PEs and their network card, if that is a limit.
    pub pcie: Option<ClusterLink>,
    /// The network cards; none where all PEs are on one node.
    pub nic: Option<ClusterLink>,
    /// Between all nodes together, if the network is narrower than its cards.
    pub network: Option<ClusterLink>,
    /// What a message costs its sender and its receiver, whatever its size.
    #[serde(default)]
    pub message_us: f64,
}

impl Cluster {
    /// Reads a cluster, and refuses one that makes no sense.
    #[cfg(feature = "json")]
    pub fn from_toml(text: &str) -> Result<Self, LayoutError> {
        let cluster: Self = syncline_files::from_toml(text)?;
        let links = [
            ("memory", Some(cluster.memory)),
            ("intra", Some(cluster.intra)),
            ("pcie", cluster.pcie),
            ("nic", cluster.nic),
            ("network", cluster.network),
        ];
        let wrong = |place: &str, cause: &str| {
            Err(LayoutError::Syntax { place: place.to_owned(), cause: cause.to_owned() })
        };
        if cluster.pes_per_node == 0 {
            return wrong("pes_per_node", "expected at least 1");
        }
        if !(cluster.message_us >= 0.0 && cluster.message_us.is_finite()) {
            return wrong("message_us", "expected a number of microseconds");
        }
        for (place, link) in links {
            let Some(link) = link else { continue };
            if !(link.gb_per_s > 0.0 && link.gb_per_s.is_finite()) {
                return wrong(place, "expected gb_per_s above zero");
            }
            if !(link.latency_us >= 0.0 && link.latency_us.is_finite()) {
                return wrong(place, "expected latency_us of zero or more");
            }
            if link.shared_by == 0 {
                return wrong(place, "expected shared_by of at least 1");
            }
        }
        Ok(cluster)
    }

    /// The node of a PE.
    pub fn node(&self, rank: u32) -> u32 {
        rank / self.pes_per_node
    }
}
