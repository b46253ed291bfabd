//! The connection to the system's Vulkan loader, opened at run time.

use std::borrow::Cow;
use std::ffi::{CStr, c_void};
use std::fmt;
use std::sync::{Arc, Mutex};

use syncline_sync::lock;

use ash::{ext, vk};

const VALIDATION_LAYER: &CStr = c"VK_LAYER_KHRONOS_validation";

/// The loader and one instance of it.
pub(crate) struct Instance {
    pub(crate) raw: ash::Instance,
    /// Declared before `entry`, which unloads the library.
    messenger: Option<Messenger>,
    /// Holds the library in memory.
    _entry: ash::Entry,
}

/// What the validation layers have said.
#[derive(Debug, Default)]
pub struct Messages(Mutex<Vec<String>>);

impl Messages {
    /// Everything said so far, oldest first.
    pub fn all(&self) -> Vec<String> {
        lock(&self.0).clone()
    }

    fn add(&self, text: String) {
        let mut messages = lock(&self.0);
        // The first ones name the fault; a loop that repeats them must not fill the memory.
        if messages.len() < 1_000 {
            messages.push(text);
        }
    }
}

struct Messenger {
    functions: ext::debug_utils::Instance,
    raw: vk::DebugUtilsMessengerEXT,
    messages: Arc<Messages>,
}

impl Instance {
    /// Loads the system's Vulkan, with the validation layers in between if `validated`, which then
    /// check synchronisation too.
    ///
    /// # Errors
    /// Names what the driver lacks.
    pub(crate) fn load(validated: bool) -> Result<Arc<Self>, String> {
        // SAFETY: the loader is a system library whose initialisers may be run by any program.
        let entry = unsafe { ash::Entry::load() }
            .map_err(|error| format!("no Vulkan loader (libvulkan.so.1): {error}"))?;
        // SAFETY: the loader stays in memory as long as `entry`.
        let version = unsafe { entry.try_enumerate_instance_version() }
            .ok()
            .flatten()
            .unwrap_or(vk::API_VERSION_1_0);
        if version < vk::API_VERSION_1_2 {
            return Err(format!("the Vulkan loader knows {}, 1.2 is needed", shown(version)));
        }
        if validated && !has_layer(&entry) {
            return Err(format!(
                "{} is not installed (Debian: vulkan-validationlayers)",
                VALIDATION_LAYER.to_string_lossy()
            ));
        }
        let layers = [VALIDATION_LAYER.as_ptr()];
        let extensions = [ext::debug_utils::NAME.as_ptr(), ext::validation_features::NAME.as_ptr()];
        // Hazards between commands of a recording too, which the layer reports only when asked.
        let checks = [vk::ValidationFeatureEnableEXT::SYNCHRONIZATION_VALIDATION];
        let mut features =
            vk::ValidationFeaturesEXT::default().enabled_validation_features(&checks);
        let application = vk::ApplicationInfo::default()
            .application_name(c"syncline")
            .engine_name(c"syncline")
            .api_version(vk::API_VERSION_1_2);
        let mut info = vk::InstanceCreateInfo::default().application_info(&application);
        if validated {
            info = info.enabled_layer_names(&layers).enabled_extension_names(&extensions);
            info = info.push_next(&mut features);
        }
        // SAFETY: `info` and what it points to live until the call returns.
        let raw = unsafe { entry.create_instance(&info, None) }.map_err(|error| match error {
            vk::Result::ERROR_INCOMPATIBLE_DRIVER => {
                "no Vulkan driver is installed (Debian: mesa-vulkan-drivers)".to_owned()
            }
            other => format!("vkCreateInstance: {other}"),
        })?;
        let mut instance = Self { raw, messenger: None, _entry: entry };
        if validated {
            instance.messenger = Some(Messenger::new(&instance._entry, &instance.raw)?);
        }
        Ok(Arc::new(instance))
    }

    /// What the validation layers have said, if they were asked for.
    pub(crate) fn messages(&self) -> Option<&Arc<Messages>> {
        self.messenger.as_ref().map(|messenger| &messenger.messages)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: whatever was made of the instance holds it, so that nothing is left; the
        // messenger is ours.
        unsafe {
            if let Some(messenger) = &self.messenger {
                messenger.functions.destroy_debug_utils_messenger(messenger.raw, None);
            }
            self.raw.destroy_instance(None);
        }
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Instance")
    }
}

impl Messenger {
    fn new(entry: &ash::Entry, instance: &ash::Instance) -> Result<Self, String> {
        let messages = Arc::new(Messages::default());
        let functions = ext::debug_utils::Instance::new(entry, instance);
        let severities = vk::DebugUtilsMessageSeverityFlagsEXT::ERROR
            | vk::DebugUtilsMessageSeverityFlagsEXT::WARNING;
        let info = vk::DebugUtilsMessengerCreateInfoEXT::default()
            .message_severity(severities)
            .message_type(vk::DebugUtilsMessageTypeFlagsEXT::VALIDATION)
            .pfn_user_callback(Some(note))
            .user_data(Arc::as_ptr(&messages).cast_mut().cast());
        // SAFETY: the extension was enabled; `messages` lives as long as the messenger, which holds
        // it.
        let raw = unsafe { functions.create_debug_utils_messenger(&info, None) }
            .map_err(|error| format!("vkCreateDebugUtilsMessengerEXT: {error}"))?;
        Ok(Self { functions, raw, messages })
    }
}

unsafe extern "system" fn note(
    severity: vk::DebugUtilsMessageSeverityFlagsEXT,
    _: vk::DebugUtilsMessageTypeFlagsEXT,
    data: *const vk::DebugUtilsMessengerCallbackDataEXT<'_>,
    user: *mut c_void,
) -> vk::Bool32 {
    // SAFETY: the layer passes a valid record, and what the messenger was made with: `Messages`
    // that it outlives.
    let (messages, data) = unsafe { (&*user.cast::<Messages>(), &*data) };
    let text = match data.p_message.is_null() {
        true => Cow::Borrowed("(no text)"),
        // SAFETY: a string that ends with a zero, valid during the call.
        false => unsafe { CStr::from_ptr(data.p_message) }.to_string_lossy(),
    };
    messages.add(format!("{severity:?}: {text}"));
    vk::FALSE
}

fn has_layer(entry: &ash::Entry) -> bool {
    // SAFETY: the loader is in memory.
    let layers = unsafe { entry.enumerate_instance_layer_properties() }.unwrap_or_default();
    layers.iter().any(|layer| layer.layer_name_as_c_str() == Ok(VALIDATION_LAYER))
}

/// A version as people write it.
pub(crate) fn shown(version: u32) -> String {
    format!("{}.{}", vk::api_version_major(version), vk::api_version_minor(version))
}
