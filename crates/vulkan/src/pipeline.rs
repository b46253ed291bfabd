//! Kernels as pipelines: WGSL compiled once for each device.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use crate::gpu::Gpu;
use crate::wgsl::{self, BindingUse};
use ash::vk;
use syncline_device::{Backend, DeviceError, Dispatch, Kernel, KernelSource};
use syncline_sync::lock;

/// Above this many sources the look-up by identity is emptied: programs that make sources without
/// end must not keep all of them.
const SOURCES_MAX: usize = 4_096;

/// The pipelines of one device.
pub(crate) struct Pipelines {
    state: Mutex<State>,
    cache: vk::PipelineCache,
    gpu: Arc<Gpu>,
}

#[derive(Default)]
struct State {
    /// By the identity of a source.
    by_source: HashMap<(usize, usize), Arc<Pipeline>>,
    /// By what the source says: kernels that are made anew with the same text are compiled once.
    by_text: HashMap<Text, Arc<Pipeline>>,
    layouts: HashMap<usize, Arc<Layout>>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Text {
    text: Arc<str>,
    entry: Arc<str>,
    group: [u32; 3],
    args: usize,
    is_checked: bool,
}

/// A kernel that can be launched.
pub(crate) struct Pipeline {
    pub(crate) raw: vk::Pipeline,
    pub(crate) layout: Arc<Layout>,
    /// How the module uses the arguments and the parameters.
    pub(crate) bindings: Vec<BindingUse>,
}

/// The bindings of a kernel with a number of arguments: one for each, and one for the parameters.
pub(crate) struct Layout {
    pub(crate) set: vk::DescriptorSetLayout,
    pub(crate) pipeline: vk::PipelineLayout,
    pub(crate) bindings: u32,
    gpu: Arc<Gpu>,
}

impl Pipelines {
    pub(crate) fn new(gpu: &Arc<Gpu>) -> Result<Self, DeviceError> {
        let info = vk::PipelineCacheCreateInfo::default();
        // SAFETY: a new object of the device.
        let cache = unsafe { gpu.raw.create_pipeline_cache(&info, None) }
            .map_err(|error| gpu.error("vkCreatePipelineCache", error))?;
        Ok(Self { state: Mutex::default(), cache, gpu: gpu.clone() })
    }

    /// The pipeline of `source` with `args` arguments, compiled if it has not been yet.
    pub(crate) fn get(
        &self,
        kernel: &Kernel,
        source: &KernelSource,
        args: usize,
    ) -> Result<Arc<Pipeline>, DeviceError> {
        let key = (source.key(), args);
        // Held while compiling: a thread that wants the same pipeline waits for it instead of
        // compiling it again.
        let mut state = lock(&self.state);
        if let Some(pipeline) = state.by_source.get(&key) {
            return Ok(pipeline.clone());
        }
        let text = Text {
            text: source.text().clone(),
            entry: source.entry().clone(),
            group: source.group(),
            args,
            is_checked: source.is_checked(),
        };
        let pipeline = match state.by_text.get(&text) {
            Some(pipeline) => pipeline.clone(),
            None => {
                let layout = self.layout(&mut state, args)?;
                let pipeline = Arc::new(self.compile(kernel, source, layout)?);
                if state.by_text.len() >= SOURCES_MAX {
                    state.by_text.clear();
                }
                state.by_text.insert(text, pipeline.clone());
                pipeline
            }
        };
        if state.by_source.len() >= SOURCES_MAX {
            state.by_source.clear();
        }
        state.by_source.insert(key, pipeline.clone());
        Ok(pipeline)
    }

    fn layout(&self, state: &mut State, args: usize) -> Result<Arc<Layout>, DeviceError> {
        if let Some(layout) = state.layouts.get(&args) {
            return Ok(layout.clone());
        }
        let layout = Arc::new(Layout::new(&self.gpu, args)?);
        state.layouts.insert(args, layout.clone());
        Ok(layout)
    }

    fn compile(
        &self,
        kernel: &Kernel,
        source: &KernelSource,
        layout: Arc<Layout>,
    ) -> Result<Pipeline, DeviceError> {
        let gpu = &self.gpu;
        let args = layout.bindings - 1;
        let failed = |message: String| DeviceError::KernelFailed {
            kernel: kernel.name().clone(),
            task: None,
            message: message.into(),
        };
        let wgsl::Compiled { words, bindings } =
            wgsl::compile(source, args, &gpu.candidate).map_err(failed)?;
        let info = vk::ShaderModuleCreateInfo::default().code(&words);
        // SAFETY: the words are SPIR-V of a module that was validated.
        let module = unsafe { gpu.raw.create_shader_module(&info, None) }
            .map_err(|error| gpu.error("vkCreateShaderModule", error))?;
        let stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(module)
            .name(wgsl::ENTRY);
        let info = vk::ComputePipelineCreateInfo::default().stage(stage).layout(layout.pipeline);
        // SAFETY: the module has the entry point, its bindings are those of the layout; the lock
        // around `compile` makes this the only use of the cache.
        let made = unsafe { gpu.raw.create_compute_pipelines(self.cache, &[info], None) };
        // SAFETY: a pipeline does not need the module that it was made of.
        unsafe { gpu.raw.destroy_shader_module(module, None) };
        let raw = made.map_err(|(_, error)| gpu.error("vkCreateComputePipelines", error))?[0];
        Ok(Pipeline { raw, layout, bindings })
    }
}

impl Pipeline {
    /// Refuses a call that would write an argument which the task does not write.
    pub(crate) fn check_writes(&self, dispatch: &Dispatch) -> Result<(), DeviceError> {
        let mut args = self.bindings.iter().zip(&dispatch.args);
        match args.position(|(binding, arg)| binding.writes && !arg.access.writes()) {
            None => Ok(()),
            Some(arg) => Err(DeviceError::KernelRefuses {
                kernel: dispatch.kernel.name().clone(),
                backend: Backend::Vulkan,
                message: format!(
                    "argument {arg} is not written by the task, and the WGSL declares it \
                     `var<storage, read_write>`: declare it `var<storage, read>`"
                )
                .into(),
            }),
        }
    }
}

impl Layout {
    fn new(gpu: &Arc<Gpu>, args: usize) -> Result<Self, DeviceError> {
        let bindings = args as u32 + 1;
        if bindings > gpu.candidate.limits.bindings {
            return Err(DeviceError::Unsupported {
                device: gpu.spec,
                what: format!(
                    "a kernel with {args} arguments (at most {} and the parameters)",
                    gpu.candidate.limits.bindings - 1
                ),
            });
        }
        let list: Vec<_> = (0..bindings)
            .map(|binding| {
                vk::DescriptorSetLayoutBinding::default()
                    .binding(binding)
                    .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                    .descriptor_count(1)
                    .stage_flags(vk::ShaderStageFlags::COMPUTE)
            })
            .collect();
        let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&list);
        // SAFETY: new objects of the device; the second is made of the first, which it outlives.
        unsafe {
            let set = gpu
                .raw
                .create_descriptor_set_layout(&info, None)
                .map_err(|error| gpu.error("vkCreateDescriptorSetLayout", error))?;
            let mut layout =
                Self { set, pipeline: vk::PipelineLayout::null(), bindings, gpu: gpu.clone() };
            let sets = [set];
            let info = vk::PipelineLayoutCreateInfo::default().set_layouts(&sets);
            layout.pipeline = gpu
                .raw
                .create_pipeline_layout(&info, None)
                .map_err(|error| gpu.error("vkCreatePipelineLayout", error))?;
            Ok(layout)
        }
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        // SAFETY: recorded commands hold the pipelines that they use.
        unsafe { self.layout.gpu.raw.destroy_pipeline(self.raw, None) };
    }
}

impl Drop for Layout {
    fn drop(&mut self) {
        // SAFETY: pipelines hold their layout; null handles are ignored.
        unsafe {
            self.gpu.raw.destroy_pipeline_layout(self.pipeline, None);
            self.gpu.raw.destroy_descriptor_set_layout(self.set, None);
        }
    }
}

impl Drop for Pipelines {
    fn drop(&mut self) {
        // SAFETY: no thread compiles any longer.
        unsafe { self.gpu.raw.destroy_pipeline_cache(self.cache, None) };
    }
}

impl fmt::Debug for Pipelines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pipelines({})", lock(&self.state).by_text.len())
    }
}
