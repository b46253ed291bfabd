//! Vulkan devices, loaded at run time.
