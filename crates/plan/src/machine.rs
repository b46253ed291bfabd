//! Machines: the devices and links that a plan is made for, as data.

use std::fmt;

/// The place of a device in its [`Machine`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceIndex(pub u16);

impl DeviceIndex {
    /// As an index of a slice.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for DeviceIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "d{}", self.0)
    }
}

/// What the planner needs to know of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceModel {
    /// The device's spec, such as `cpu:1`; tasks and buffers choose devices by it.
    pub name: String,
    /// In-order streams that run kernels at the same time; at least one.
    pub compute_lanes: u16,
    /// Whether copies to this device have a lane of their own; otherwise they share the compute
    /// lanes.
    pub copy_lane: bool,
    /// Memory that a plan may use, buffers bound by the caller included.
    pub memory_bytes: u64,
    /// Declared costs are multiplied by this and divided by 1000: 500 is a device twice as fast as
    /// declared.
    pub cost_permille: u32,
    /// Whether tasks may run on it; otherwise it is there for its memory, through which others
    /// exchange bytes.
    pub runs_tasks: bool,
}

impl DeviceModel {
    /// A device with `compute_lanes` lanes, a copy lane, unlimited memory, and
    /// declared speed.
    pub fn new(name: impl Into<String>, compute_lanes: u16) -> Self {
        Self {
            name: name.into(),
            compute_lanes,
            copy_lane: true,
            memory_bytes: u64::MAX,
            cost_permille: 1000,
            runs_tasks: true,
        }
    }

    /// The same device with `bytes` of memory.
    pub fn with_memory(mut self, bytes: u64) -> Self {
        self.memory_bytes = bytes;
        self
    }

    /// The same device, its copies on the compute lanes.
    pub fn without_copy_lane(mut self) -> Self {
        self.copy_lane = false;
        self
    }

    /// The same device, there for its memory alone.
    pub fn without_tasks(mut self) -> Self {
        self.runs_tasks = false;
        self
    }
}

/// How fast bytes go from one device to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Where the bytes come from.
    pub source: DeviceIndex,
    /// Where they go.
    pub target: DeviceIndex,
    /// Bandwidth in bytes per microsecond, which is MB/s.
    pub bytes_per_us: u64,
    /// Time of an empty copy.
    pub latency_ns: u64,
}

/// How bytes get from one device to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Route {
    /// One copy, on a lane of the device that they go to.
    #[default]
    Pull,
    /// One copy, on a lane of the device that they come from.
    Push,
    /// Two copies, through memory of this device. Large ones go in pieces, so that the second copy
    /// of a piece and the first one of the next take place at the same time.
    Through(DeviceIndex),
}

/// The devices and links that a plan is made for.
///
/// ```
/// use syncline_plan::{DeviceModel, Machine};
///
/// let machine = Machine::new(vec![DeviceModel::new("cpu:0", 2), DeviceModel::new("cpu:1", 1)])?;
/// assert_eq!(machine.find("cpu:1").map(|device| device.index()), Some(1));
/// # Ok::<(), syncline_plan::MachineError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    devices: Vec<DeviceModel>,
    links: Vec<Link>,
    /// The routes other than [`Route::Pull`].
    routes: Vec<(DeviceIndex, DeviceIndex, Route)>,
    piece_bytes: u64,
    sync_ns: u64,
}

/// Why a machine cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum MachineError {
    #[error("a machine without devices: give at least one")]
    NoDevices,
    #[error("{devices} devices: a plan can use at most {max}")]
    TooManyDevices { devices: usize, max: usize },
    #[error("two devices are called `{name}`: every device needs a name of its own")]
    SameName { name: String },
    #[error("device `{name}` has no compute lane: give it at least one")]
    NoLanes { name: String },
    #[error("{lanes} lanes in all: a plan can use at most {max}")]
    TooManyLanes { lanes: usize, max: usize },
    #[error("a link of device {device}, in a machine of {devices}")]
    NoSuchDevice { device: u16, devices: usize },
    #[error(
        "bytes from {source_device} to {target} cannot go through {through}: both of the copies must be direct, between \
         different devices"
    )]
    NotDirect { source_device: DeviceIndex, target: DeviceIndex, through: DeviceIndex },
    #[error("{described} links or routes are described between {pairs} pairs of devices")]
    TooManyPairs { described: usize, pairs: usize },
    #[error("pieces of no bytes: copies through another device need at least one")]
    NoPieces,
}

impl Machine {
    /// The most devices that a machine may have.
    pub const DEVICES_MAX: usize = 64;
    /// The most lanes, over all devices.
    pub const LANES_MAX: usize = 1024;
    /// What a wait across lanes costs unless said otherwise: a cache line's way from core to core
    /// and back.
    pub const SYNC_NS: u64 = 150;
    /// Bandwidth of a link that was not described: memory speed of a small server.
    const BYTES_PER_US: u64 = 8_000;
    const LATENCY_NS: u64 = 500;
    /// Pieces of copies through another device, unless said otherwise: long beside the time that a
    /// copy takes to begin, short beside an op that is worth overlapping.
    pub const PIECE_BYTES: u64 = 8 << 20;

    /// A machine of `devices`, all linked at memory speed; [`Machine::with_link`] says otherwise.
    pub fn new(devices: Vec<DeviceModel>) -> Result<Self, MachineError> {
        if devices.is_empty() {
            return Err(MachineError::NoDevices);
        }
        if devices.len() > Self::DEVICES_MAX {
            let max = Self::DEVICES_MAX;
            return Err(MachineError::TooManyDevices { devices: devices.len(), max });
        }
        for (at, device) in devices.iter().enumerate() {
            if devices[..at].iter().any(|other| other.name == device.name) {
                return Err(MachineError::SameName { name: device.name.clone() });
            }
            if device.compute_lanes == 0 {
                return Err(MachineError::NoLanes { name: device.name.clone() });
            }
        }
        let lanes: usize = devices
            .iter()
            .map(|device| usize::from(device.compute_lanes) + usize::from(device.copy_lane))
            .sum();
        if lanes > Self::LANES_MAX {
            return Err(MachineError::TooManyLanes { lanes, max: Self::LANES_MAX });
        }
        Ok(Self {
            devices,
            links: Vec::new(),
            routes: Vec::new(),
            piece_bytes: Self::PIECE_BYTES,
            sync_ns: Self::SYNC_NS,
        })
    }

    /// One CPU device `cpu` with `lanes` lanes (at least one).
    pub fn cpu(lanes: u16) -> Self {
        let device = DeviceModel::new("cpu", lanes.max(1)).without_copy_lane();
        Self::new(vec![device]).expect("one device with a lane is a machine")
    }

    /// The same machine with `link` described; the last description of a pair counts.
    pub fn with_link(mut self, link: Link) -> Result<Self, MachineError> {
        self.check_devices([link.source, link.target])?;
        self.links.retain(|old| (old.source, old.target) != (link.source, link.target));
        self.links.push(link);
        Ok(self)
    }

    /// The same machine, bytes from `source` to `target` going by `route`; the last description of
    /// a pair counts.
    pub fn with_route(
        mut self,
        source: DeviceIndex,
        target: DeviceIndex,
        route: Route,
    ) -> Result<Self, MachineError> {
        self.check_devices([source, target])?;
        self.routes.retain(|old| (old.0, old.1) != (source, target));
        if route != Route::Pull {
            self.routes.push((source, target, route));
        }
        self.check_routes()?;
        Ok(self)
    }

    /// The same machine with these links and routes besides, which a file described. Takes time in
    /// proportion to their number, and refuses more of them than there are pairs of devices.
    pub(crate) fn with_described(
        mut self,
        links: Vec<Link>,
        routes: Vec<(DeviceIndex, DeviceIndex, Route)>,
    ) -> Result<Self, MachineError> {
        let pairs = self.devices.len() * self.devices.len();
        if links.len().max(routes.len()) > pairs {
            let described = links.len().max(routes.len());
            return Err(MachineError::TooManyPairs { described, pairs });
        }
        self.check_devices(links.iter().flat_map(|link| [link.source, link.target]))?;
        self.check_devices(routes.iter().flat_map(|&(source, target, _)| [source, target]))?;
        (self.links, self.routes) = (links, routes);
        self.check_routes()?;
        Ok(self)
    }

    /// Every route through a device consists of two direct copies.
    fn check_routes(&self) -> Result<(), MachineError> {
        // By source, the targets that are reached through another device: a bit each.
        let mut indirect = [0u64; Self::DEVICES_MAX];
        for &(source, target, route) in &self.routes {
            if matches!(route, Route::Through(_)) {
                indirect[source.index()] |= 1 << target.0;
            }
        }
        for &(source, target, route) in &self.routes {
            let Route::Through(through) = route else { continue };
            self.check_devices([through])?;
            let is_direct =
                |from: DeviceIndex, to: DeviceIndex| indirect[from.index()] >> to.0 & 1 == 0;
            let apart = through != source && through != target;
            if !(apart && is_direct(source, through) && is_direct(through, target)) {
                return Err(MachineError::NotDirect { source_device: source, target, through });
            }
        }
        Ok(())
    }

    fn check_devices(
        &self,
        used: impl IntoIterator<Item = DeviceIndex>,
    ) -> Result<(), MachineError> {
        let devices = self.devices.len();
        match used.into_iter().find(|device| device.index() >= devices) {
            Some(device) => Err(MachineError::NoSuchDevice { device: device.0, devices }),
            None => Ok(()),
        }
    }

    /// The same machine, copies through another device going in pieces of at most `bytes`.
    pub fn with_piece_bytes(mut self, bytes: u64) -> Result<Self, MachineError> {
        match bytes {
            0 => Err(MachineError::NoPieces),
            _ => {
                self.piece_bytes = bytes;
                Ok(self)
            }
        }
    }

    /// The same machine, a wait across lanes costing `ns`.
    pub fn with_sync_ns(mut self, ns: u64) -> Self {
        self.sync_ns = ns;
        self
    }

    /// The devices.
    pub fn devices(&self) -> &[DeviceModel] {
        &self.devices
    }

    /// The links that were described.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// How bytes get from `source` to `target`.
    pub fn route(&self, source: DeviceIndex, target: DeviceIndex) -> Route {
        let described = self.routes.iter().find(|known| (known.0, known.1) == (source, target));
        described.map_or(Route::Pull, |&(_, _, route)| route)
    }

    /// The routes that are not [`Route::Pull`].
    pub fn routes(&self) -> &[(DeviceIndex, DeviceIndex, Route)] {
        &self.routes
    }

    /// The most bytes of a piece of a copy through another device.
    pub fn piece_bytes(&self) -> u64 {
        self.piece_bytes
    }

    /// What a wait across lanes costs.
    pub fn sync_ns(&self) -> u64 {
        self.sync_ns
    }

    /// The device called `name`.
    ///
    /// The spec of a first device may leave out its number: `cpu` and `cpu:0` are one device.
    pub fn find(&self, name: &str) -> Option<DeviceIndex> {
        let plain = |name: &str| name.strip_suffix(":0").unwrap_or(name).to_owned();
        let position =
            (self.devices.iter().position(|device| device.name == name)).or_else(|| {
                self.devices.iter().position(|device| plain(&device.name) == plain(name))
            })?;
        Some(DeviceIndex(position as u16))
    }

    /// How long copying `bytes` from `source` to `target` takes, both copies together where the
    /// route has two.
    pub fn copy_ns(&self, source: DeviceIndex, target: DeviceIndex, bytes: u64) -> u64 {
        if let Route::Through(through) = self.route(source, target) {
            let (first, second) =
                (self.copy_ns(source, through, bytes), self.copy_ns(through, target, bytes));
            // Of the shorter one, all but a piece is hidden behind the longer one.
            let pieces = bytes.div_ceil(self.piece_bytes).max(1);
            return first.max(second).saturating_add(first.min(second) / pieces);
        }
        let described =
            self.links.iter().find(|link| (link.source, link.target) == (source, target));
        let (bytes_per_us, latency_ns) = match described {
            Some(link) => (link.bytes_per_us.max(1), link.latency_ns),
            None => (Self::BYTES_PER_US, Self::LATENCY_NS),
        };
        latency_ns.saturating_add(bytes.saturating_mul(1000) / bytes_per_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_machine_is_refused() {
        assert_eq!(Machine::new(vec![]), Err(MachineError::NoDevices));
        let twice = vec![DeviceModel::new("a", 1), DeviceModel::new("a", 1)];
        assert!(matches!(Machine::new(twice), Err(MachineError::SameName { .. })));
        let none = vec![DeviceModel::new("a", 0)];
        assert!(matches!(Machine::new(none), Err(MachineError::NoLanes { .. })));
        let many = (0..65).map(|n| DeviceModel::new(format!("d{n}"), 1)).collect();
        assert!(matches!(Machine::new(many), Err(MachineError::TooManyDevices { .. })));
    }

    #[test]
    fn the_last_description_of_a_link_counts() {
        let machine = Machine::new(vec![DeviceModel::new("a", 1), DeviceModel::new("b", 1)]);
        let (a, b) = (DeviceIndex(0), DeviceIndex(1));
        let link = Link { source: a, target: b, bytes_per_us: 1000, latency_ns: 7 };
        let machine = machine.unwrap().with_link(link).unwrap();
        let machine = machine.with_link(Link { bytes_per_us: 500, ..link }).unwrap();
        assert_eq!(machine.copy_ns(a, b, 1000), 2007);
        assert_ne!(machine.copy_ns(b, a, 1000), 2007);
        assert!(machine.with_link(Link { target: DeviceIndex(2), ..link }).is_err());
    }

    #[test]
    fn a_route_goes_through_one_device_and_no_further() {
        let devices = ["a", "b", "c"].map(|name| DeviceModel::new(name, 1)).to_vec();
        let [a, b, c] = [0, 1, 2].map(DeviceIndex);
        let machine = Machine::new(devices).unwrap();
        assert_eq!(machine.route(a, b), Route::Pull);
        let machine = machine.with_route(a, b, Route::Push).unwrap();
        let machine = machine.with_route(a, c, Route::Through(b)).unwrap();
        let legs = machine.copy_ns(a, b, 4096) + machine.copy_ns(b, c, 4096);
        assert_eq!(machine.copy_ns(a, c, 4096), legs);
        assert!(machine.copy_ns(a, c, 1 << 30) < machine.copy_ns(a, b, 1 << 30) * 3 / 2);
        for wrong in [Route::Through(a), Route::Through(c), Route::Through(DeviceIndex(3))] {
            assert!(machine.clone().with_route(a, c, wrong).is_err(), "{wrong:?}");
        }
        assert!(machine.clone().with_route(b, a, Route::Through(c)).is_ok());
        assert!(machine.with_route(a, b, Route::Through(c)).is_err(), "a route over a route");
    }

    #[test]
    fn a_first_device_is_found_with_and_without_its_number() {
        assert_eq!(Machine::cpu(1).find("cpu:0"), Some(DeviceIndex(0)));
        assert_eq!(Machine::cpu(1).find("cpu:1"), None);
    }
}
