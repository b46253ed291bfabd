//! Finding OpenCL devices, and opening them.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};

use syncline_sync::lock;

use opencl3::device::{CL_DEVICE_PARTITION_EQUALLY, CL_DEVICE_TYPE_ALL, Device as ClDevice};
use opencl3::error_codes::{ClError, DLOPEN_RUNTIME_LOAD_FAILED};
use opencl3::platform::get_platforms;
use syncline_device::registry::{BackendProbe, Refused};
use syncline_device::{Backend, Device, DeviceError, DeviceInfo, DeviceSpec};

use crate::context::Context;
use crate::describe::Traits;
use crate::device::{self, describe};
use crate::disk::Disk;
use crate::parts;

/// How OpenCL devices are set up.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenClOptions {
    /// Into how many parts each device is divided, each a device `opencl:N` of its own. A device
    /// that cannot be divided so stays whole.
    pub parts: u32,
    /// Whether the devices of one platform, and parts of them, share a context where they are alike
    /// in how the host reaches their memory: then they copy from each other's memory directly and
    /// wait for each other without the host. Parts of one device always do.
    pub peers: bool,
    /// Whether host and device may work on the same memory where the driver allows it. Without it
    /// every access of the host goes through the driver, as it must on devices with memory of their
    /// own.
    pub host_visible: bool,
    /// Where compiled programs are kept between runs; nowhere if `None`.
    pub program_cache: Option<PathBuf>,
}

impl Default for OpenClOptions {
    fn default() -> Self {
        Self { parts: 1, peers: true, host_visible: true, program_cache: Disk::usual() }
    }
}

impl OpenClOptions {
    /// Whole devices, one context a platform, memory shared with the host where possible, programs
    /// kept under the user's cache directory.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, with each device divided into `count` parts.
    #[must_use]
    pub fn with_parts(mut self, count: u32) -> Self {
        self.parts = count;
        self
    }

    /// The same, with or without a context that devices of one platform share.
    #[must_use]
    pub fn with_peers(mut self, yes: bool) -> Self {
        self.peers = yes;
        self
    }

    /// The same, with or without memory that host and device share.
    #[must_use]
    pub fn with_host_visible(mut self, yes: bool) -> Self {
        self.host_visible = yes;
        self
    }

    /// The same, with compiled programs kept in `directory`, or nowhere.
    #[must_use]
    pub fn with_program_cache(mut self, directory: Option<PathBuf>) -> Self {
        self.program_cache = directory;
        self
    }
}

/// Asks the OpenCL drivers of this machine. The library is loaded when it is first asked.
///
/// ```
/// use syncline_device::DeviceRegistry;
/// use syncline_opencl::Probe;
///
/// let mut registry = DeviceRegistry::new();
/// registry.register(Box::new(Probe::new()));
/// for found in registry.probe() {
///     match found.devices {
///         Ok(devices) => devices.iter().for_each(|info| println!("{}: {}", info.spec, info.name)),
///         Err(reason) => println!("{}: {reason}", found.backend),
///     }
/// }
/// ```
#[derive(Debug, Default)]
pub struct Probe {
    options: OpenClOptions,
    /// The contexts that are in use, by the devices in them.
    contexts: Mutex<Vec<(Vec<DeviceSpec>, Weak<Context>)>>,
}

/// A device of a driver, and the devices of ours that it comes to.
struct Whole {
    /// Number of its platform.
    platform: usize,
    traits: Traits,
    /// The number of the first of them.
    first: u32,
    parts: u32,
}

impl Whole {
    fn spec(&self, part: u32) -> DeviceSpec {
        DeviceSpec::new(Backend::OpenCl, self.first + part)
    }

    /// What a part is called and has, without making it.
    fn info(&self, part: u32, options: &OpenClOptions) -> DeviceInfo {
        let spec = self.spec(part);
        let bytes = self.traits.memory_bytes / u64::from(self.parts);
        let direct = options.host_visible && self.traits.is_direct();
        let mut info = describe(spec, &self.traits, bytes, direct);
        if self.parts > 1 {
            info.name = format!("{}, part {} of {}", info.name, part + 1, self.parts);
        }
        info
    }
}

impl Probe {
    /// A probe with the usual options.
    pub fn new() -> Self {
        Self::default()
    }

    /// A probe with these options.
    pub fn with_options(options: OpenClOptions) -> Self {
        Self { options, contexts: Mutex::default() }
    }

    /// The devices that can be used, and why others cannot.
    fn look(&self) -> Result<(Vec<Whole>, Vec<Refused>), String> {
        // PoCL sets its devices up when it is first asked for them, and hands them to a second
        // thread half made.
        static ASKING: Mutex<()> = Mutex::new(());
        let _asking = lock(&ASKING);
        let platforms = get_platforms().map_err(|ClError(code)| match code {
            DLOPEN_RUNTIME_LOAD_FAILED => {
                "libOpenCL not found (Debian: ocl-icd-libopencl1)".to_owned()
            }
            code => format!("no OpenCL platform: {} ({code})", ClError(code)),
        })?;
        let (mut found, mut refused, mut first) = (Vec::new(), Vec::new(), 0);
        for (number, platform) in platforms.into_iter().enumerate() {
            let name = platform.name().unwrap_or_else(|_| "a platform without a name".into());
            let ids = match platform.get_devices(CL_DEVICE_TYPE_ALL) {
                Ok(ids) => ids,
                Err(ClError(code)) => {
                    let reason = format!("{} ({code})", ClError(code));
                    refused.push(Refused { name, reason });
                    continue;
                }
            };
            for id in ids {
                match Traits::ask(id) {
                    Err(reason) => refused.push(Refused { name: name.clone(), reason }),
                    Ok(traits) => {
                        let parts = self.parts_of(&traits);
                        found.push(Whole { platform: number, traits, first, parts });
                        first += parts;
                    }
                }
            }
        }
        Ok((found, refused))
    }

    /// Into how many parts of the same size a device can be divided, up to what was asked for.
    fn parts_of(&self, traits: &Traits) -> u32 {
        let wanted = self.options.parts.max(1);
        let device = ClDevice::new(traits.id.0);
        let possible = device.partition_max_sub_devices().is_ok_and(|most| most >= wanted)
            && device
                .partition_properties()
                .is_ok_and(|kinds| kinds.contains(&CL_DEVICE_PARTITION_EQUALLY));
        if possible && traits.units >= wanted { wanted } else { 1 }
    }

    /// The context of `of`, which is one of `all`, shared with the devices that are open in it.
    fn context(&self, of: &Whole, all: &[Whole]) -> Result<Arc<Context>, DeviceError> {
        let shares = |other: &&Whole| {
            let alike = other.traits.is_direct() == of.traits.is_direct();
            other.first == of.first || self.options.peers && alike && other.platform == of.platform
        };
        let members: Vec<&Whole> = all.iter().filter(shares).collect();
        let specs = members.iter().flat_map(|of| (0..of.parts).map(|part| of.spec(part)));
        let specs: Vec<DeviceSpec> = specs.collect();
        let mut contexts = lock(&self.contexts);
        contexts.retain(|(_, context)| context.strong_count() > 0);
        let known = contexts.iter().find(|(of, _)| *of == specs);
        if let Some(context) = known.and_then(|(_, context)| context.upgrade()) {
            return Ok(context);
        }
        let devices = members.iter().map(|whole| whole.devices());
        let devices = devices.collect::<Result<Vec<_>, _>>()?.concat();
        let (direct, cache) = (self.options.host_visible, self.options.program_cache.clone());
        let context = Arc::new(Context::open(devices, direct, cache)?);
        contexts.push((specs, Arc::downgrade(&context)));
        Ok(context)
    }
}

impl Whole {
    /// Its devices, by name: itself, or its parts.
    fn devices(&self) -> Result<Vec<(DeviceSpec, Traits)>, DeviceError> {
        if self.parts == 1 {
            return Ok(vec![(self.spec(0), self.traits.clone())]);
        }
        let failed = |message: String| DeviceError::Backend {
            device: self.spec(0),
            message: message.into(),
        };
        let parts =
            parts::divide(self.traits.id, self.traits.units / self.parts).map_err(failed)?;
        let named = (0..self.parts)
            .zip(parts)
            .map(|(number, part)| Ok((self.spec(number), Traits::ask(part.0).map_err(failed)?)));
        named.collect()
    }
}

impl BackendProbe for Probe {
    fn backend(&self) -> Backend {
        Backend::OpenCl
    }

    fn probe(&self) -> Result<Vec<DeviceInfo>, String> {
        let (found, refused) = self.look()?;
        if found.is_empty() {
            return Err(match refused.is_empty() {
                true => "the OpenCL drivers have no device (Debian: pocl-opencl-icd)".into(),
                false => {
                    let reasons = refused.iter().map(|of| format!("{}: {}", of.name, of.reason));
                    reasons.collect::<Vec<_>>().join("; ")
                }
            });
        }
        let infos = found
            .iter()
            .flat_map(|whole| (0..whole.parts).map(move |part| whole.info(part, &self.options)));
        Ok(infos.collect())
    }

    fn refused(&self) -> Vec<Refused> {
        self.look().map(|(_, refused)| refused).unwrap_or_default()
    }

    fn open(&self, index: u32) -> Result<Arc<dyn Device>, DeviceError> {
        let spec = DeviceSpec::new(Backend::OpenCl, index);
        let failed =
            |message: String| DeviceError::Backend { device: spec, message: message.into() };
        let (found, _) = self.look().map_err(failed)?;
        let whole = found.iter().find(|of| (of.first..of.first + of.parts).contains(&index));
        let whole = whole.ok_or_else(|| failed("there is no such device".into()))?;
        let context = self.context(whole, &found)?;
        let info = whole.info(index - whole.first, &self.options);
        let at = context.devices.iter().position(|(of, _)| *of == spec);
        device::open(&context, at.expect("its own context has it"), info)
    }
}
