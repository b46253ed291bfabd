//! WGSL to SPIR-V, and errors that say where.

use std::ffi::CStr;

use naga::back::spv;
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, ShaderStages, SubgroupOperationSet, ValidationFlags, Validator};
use naga::{AddressSpace, ShaderStage, StorageAccess};
use syncline_device::KernelSource;

use crate::candidate::Candidate;

/// What the entry point is called in every module that is handed to the driver.
pub(crate) const ENTRY: &CStr = c"main";

/// A module for the driver, and how it uses its bindings.
pub(crate) struct Compiled {
    pub(crate) words: Vec<u32>,
    /// By binding: those of the arguments, then that of the parameters.
    pub(crate) bindings: Vec<BindingUse>,
}

/// How a module uses one binding.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BindingUse {
    /// Whether it may write.
    pub(crate) writes: bool,
    /// The least that must be bound: below it, checks of bounds would let everything pass.
    pub(crate) bytes_min: u64,
}

/// Compiles `source`, which has `args` arguments.
///
/// A source that is not trusted gets checks of all bounds. `robustBufferAccess` would not do: it
/// knows nothing of workgroup and private arrays, and lets an index out of bounds reach other parts
/// of the same allocation.
///
/// # Errors
/// The fault and its line, as the compiler puts it.
pub(crate) fn compile(
    source: &KernelSource,
    args: u32,
    device: &Candidate,
) -> Result<Compiled, String> {
    let text = &**source.text();
    let mut module =
        naga::front::wgsl::parse_str(text).map_err(|error| error.emit_to_string(text))?;
    let entry = module
        .entry_points
        .iter()
        .position(|entry| entry.name == **source.entry() && entry.stage == ShaderStage::Compute)
        .ok_or_else(|| format!("the WGSL has no `@compute` function `{}`", source.entry()))?;
    // The driver compiles the module for one entry point: others only cost time.
    let entry = module.entry_points.swap_remove(entry);
    module.entry_points.clear();
    module.entry_points.push(entry);
    check_group(source, module.entry_points[0].workgroup_size, device)?;
    let bindings = bindings(&module, args)?;
    let info = Validator::new(ValidationFlags::all(), capabilities(device))
        .subgroup_stages(ShaderStages::COMPUTE)
        .subgroup_operations(SubgroupOperationSet::all())
        .validate(&module)
        .map_err(|error| error.emit_to_string(text))?;
    module.entry_points[0].name = "main".to_owned();
    let policy = match source.is_checked() {
        true => BoundsCheckPolicy::Restrict,
        false => BoundsCheckPolicy::Unchecked,
    };
    let options = spv::Options {
        lang_version: (1, 5),
        flags: spv::WriterFlags::empty(),
        // A loop that never ends lets compilers leave out what comes before it, checks too. One
        // that a counter bounds is not vectorised: trusted sources do without.
        force_loop_bounding: source.is_checked(),
        bounds_check_policies: BoundsCheckPolicies {
            index: policy,
            buffer: policy,
            image_load: policy,
            binding_array: policy,
        },
        ..spv::Options::default()
    };
    let pipeline =
        spv::PipelineOptions { shader_stage: ShaderStage::Compute, entry_point: "main".to_owned() };
    let words = spv::write_vec(&module, &info, &options, Some(&pipeline))
        .map_err(|error| error.to_string())?;
    Ok(Compiled { words, bindings })
}

/// The group in the text is what runs; a launch counts groups by what the source says.
fn check_group(source: &KernelSource, group: [u32; 3], device: &Candidate) -> Result<(), String> {
    if group != source.group() {
        return Err(format!(
            "`@workgroup_size` of `{}` is {group:?}, the kernel says {:?}",
            source.entry(),
            source.group()
        ));
    }
    let limits = &device.limits;
    let items: u64 = group.iter().map(|&items| u64::from(items)).product();
    let fits = group.iter().zip(limits.group).all(|(&items, most)| items <= most);
    match fits && items <= limits.group_items.into() {
        true => Ok(()),
        false => Err(format!(
            "groups of {group:?} work items: the device has at most {:?}, {} in all",
            limits.group, limits.group_items
        )),
    }
}

/// How the arguments and the parameters are used, or that something else is bound.
fn bindings(module: &naga::Module, args: u32) -> Result<Vec<BindingUse>, String> {
    let mut bindings = vec![BindingUse::default(); args as usize + 1];
    for (_, variable) in module.global_variables.iter() {
        let name = variable.name.as_deref().unwrap_or("(no name)");
        match (variable.space, &variable.binding) {
            (AddressSpace::Storage { access }, Some(binding))
                if binding.group == 0 && binding.binding <= args =>
            {
                let writes = access.intersects(StorageAccess::STORE | StorageAccess::ATOMIC);
                if writes && binding.binding == args {
                    return Err(format!(
                        "`{name}` is bound to the parameters: declare it `var<storage, read>`"
                    ));
                }
                let bytes = module.types[variable.ty].inner.size(module.to_ctx());
                let found = &mut bindings[binding.binding as usize];
                found.writes |= writes;
                found.bytes_min = found.bytes_min.max(bytes.into());
            }
            (AddressSpace::Storage { .. }, Some(binding)) => {
                return Err(format!(
                    "`{name}` is bound to group {} binding {}: there are {args} arguments, and the parameters \
                     at group 0 binding {args}",
                    binding.group, binding.binding
                ));
            }
            (AddressSpace::WorkGroup | AddressSpace::Private | AddressSpace::Function, _) => {}
            (space, _) => {
                return Err(format!(
                    "`{name}` lies in {space:?}: kernels have storage buffers, workgroup and private variables"
                ));
            }
        }
    }
    Ok(bindings)
}

fn capabilities(device: &Candidate) -> Capabilities {
    let features = device.features;
    let mut all = Capabilities::SHADER_FLOAT16_IN_FLOAT32;
    all.set(Capabilities::FLOAT64, features.float64);
    all.set(Capabilities::SHADER_INT64, features.int64);
    all.set(Capabilities::SHADER_FLOAT16, features.float16);
    all.set(Capabilities::SUBGROUP | Capabilities::SUBGROUP_BARRIER, features.subgroups);
    all
}
