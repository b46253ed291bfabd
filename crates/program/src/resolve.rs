//! Finding what the members of a trace's tasks name: kernels, scalars, devices.

use serde_json::Value;
use syncline_device::{Backend, DeviceSpec, Scalar};
use syncline_kernels::{Entry, Library, Signature};
use syncline_spelling::nearest;
use syncline_tensor::Arg;
use syncline_trace::{Place, Trace, TraceTask};

use crate::error::ProgramError;
use crate::program::ProgramTask;

/// What each task of the trace runs.
pub(crate) fn tasks(trace: &Trace, library: &Library) -> Result<Vec<ProgramTask>, ProgramError> {
    let one =
        |(index, task): (usize, &TraceTask)| task_of(task, Place::task(index, task.id), library);
    trace.tasks.iter().enumerate().map(one).collect()
}

fn task_of(task: &TraceTask, place: Place, library: &Library) -> Result<ProgramTask, ProgramError> {
    let kernel = task.extra.get("kernel").ok_or(ProgramError::NoKernel { place })?;
    let at = place.member("kernel");
    let name = kernel.as_str().ok_or_else(|| shape(at, "the name of a kernel", kernel))?;
    let entry = library.get(name).map_err(|source| ProgramError::Kernel { place: at, source })?;
    let scalars = scalars_of(task, place, &entry.signature)?;
    let args: Vec<Arg> = task.args.iter().map(|arg| arg.arg).collect();
    let checked = entry.signature.check(&args, &scalars);
    checked.map_err(|source| ProgramError::Kernel { place, source })?;
    let views: Vec<_> = args.iter().map(|arg| arg.view).collect();
    require_declared_scalars(task, place, entry, &scalars)?;
    let blocks = whole(task, place, "blocks", 1..=i64::from(u32::MAX), 1)? as u32;
    if blocks > 1 && !entry.kernel.is_by_blocks() {
        let (place, kernel) = (place.member("blocks"), name.to_owned());
        return Err(ProgramError::Blocks { place, kernel, blocks });
    }
    Ok(ProgramTask {
        kernel: entry.kernel.clone(),
        scalars,
        tolerance: tolerance_of(entry, &args),
        cost_ns: guessed_ns((entry.signature.operations)(&views), &args),
        priority: whole(task, place, "priority", i64::from(i32::MIN)..=i64::from(i32::MAX), 0)?
            as i32,
        blocks,
        devices: devices_of(task, place)?,
    })
}

/// How far a result may be off where the numbers are about one: by the kernel's tolerance, with as
/// many terms as there are operations for an element written.
fn tolerance_of(entry: &Entry, args: &[Arg]) -> f64 {
    let views: Vec<_> = args.iter().map(|arg| arg.view).collect();
    let written = args.iter().filter(|arg| arg.access.writes()).map(|arg| arg.view.elements());
    let terms = (entry.signature.operations)(&views) / written.max().unwrap_or(1).max(1);
    entry.signature.tolerance.bound(views.iter().map(|view| view.dtype()), 1.0, terms)
}

/// Eight operations and eight bytes a nanosecond: the order of magnitude of one core, until it is
/// measured.
fn guessed_ns(operations: u64, args: &[Arg]) -> u64 {
    let bytes: u64 = args.iter().map(|arg| arg.view.bytes()).sum();
    100 + operations / 8 + bytes / 8
}

fn scalars_of(
    task: &TraceTask,
    place: Place,
    signature: &Signature,
) -> Result<Vec<Scalar>, ProgramError> {
    let place = place.member("scalars");
    let refused = |source| ProgramError::Kernel { place, source };
    match task.extra.get("scalars") {
        None | Some(Value::Null) => signature.scalars([]).map_err(refused),
        // A kernel of the program itself has no names for its scalars: it takes a list.
        Some(Value::Array(values)) if signature.scalars.is_empty() => {
            values.iter().map(|value| scalar(place, value)).collect()
        }
        Some(Value::Object(values)) => {
            let named: Vec<(&str, Scalar)> = values
                .iter()
                .map(|(name, value)| Ok((name.as_str(), scalar(place, value)?)))
                .collect::<Result<_, ProgramError>>()?;
            signature.scalars(named).map_err(refused)
        }
        Some(other) => Err(shape(place, "an object of numbers by name", other)),
    }
}

/// A user's WGSL and OpenCL C receive scalars of the types that the kernel declares: as many as
/// those.
fn require_declared_scalars(
    task: &TraceTask,
    place: Place,
    entry: &Entry,
    scalars: &[Scalar],
) -> Result<(), ProgramError> {
    if !entry.signature.scalars.is_empty() {
        return Ok(());
    }
    let declared = [Backend::Vulkan, Backend::OpenCl].into_iter().find_map(|backend| {
        let source = entry.kernel.source(backend, &[]).ok()?;
        source.scalar_types().map(<[_]>::len)
    });
    if declared.is_none_or(|count| count == scalars.len()) {
        return Ok(());
    }
    let given = task.extra.get("scalars").cloned().unwrap_or_default();
    let expected = "as many scalars as the kernel declares types in its `scalars`";
    Err(shape(place.member("scalars"), expected, &given))
}

fn scalar(place: Place, value: &Value) -> Result<Scalar, ProgramError> {
    let integer = || value.as_i64().map(Scalar::I64);
    let float = || value.as_f64().map(Scalar::F64);
    value
        .as_bool()
        .map(Scalar::Bool)
        .or_else(integer)
        .or_else(float)
        .ok_or_else(|| shape(place, "a number or a truth value", value))
}

fn devices_of(task: &TraceTask, place: Place) -> Result<Vec<DeviceSpec>, ProgramError> {
    let place = place.member("device");
    let one = |value: &Value| -> Result<DeviceSpec, ProgramError> {
        let text = value.as_str().ok_or_else(|| shape(place, "a device such as `cpu:0`", value))?;
        text.parse().map_err(|_| match nearest(text, ["cpu:0", "vulkan:0", "opencl:0", "cuda:0"]) {
            Some(meant) => ProgramError::UnknownDevice {
                place,
                name: text.to_owned(),
                nearest: Some(meant.to_owned()),
                known: "those of cpu, vulkan, opencl and cuda, by number".to_owned(),
            },
            None => shape(place, "a device such as `cpu:0` or `vulkan:0`", value),
        })
    };
    match &task.device {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(list)) => list.iter().map(one).collect(),
        Some(value) => Ok(vec![one(value)?]),
    }
}

fn whole(
    task: &TraceTask,
    place: Place,
    member: &'static str,
    range: std::ops::RangeInclusive<i64>,
    default: i64,
) -> Result<i64, ProgramError> {
    let Some(value) = task.extra.get(member) else { return Ok(default) };
    let fits = value.as_i64().filter(|number| range.contains(number));
    fits.ok_or_else(|| shape(place.member(member), "a whole number in range", value))
}

/// A member that is something else than it should be.
pub(crate) fn shape(place: Place, expected: &'static str, found: &Value) -> ProgramError {
    let mut found = found.to_string();
    if let Some((end, _)) = found.char_indices().nth(60) {
        found.truncate(end);
        found.push_str("...");
    }
    ProgramError::Shape { place, expected, found }
}
