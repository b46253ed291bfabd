//! Kernels that a trace brings along: a function of a shared object for the CPU, WGSL for Vulkan,
//! OpenCL C for OpenCL.
//!
//! ```json
//! {"name": "mine", "args": ["input", "inout"], "scalars": ["f32"],
//!  "cpu": "libmine.so:mine", "wgsl": "mine.wgsl", "opencl": "mine.cl",
//!  "grid": {"elements": 1}, "group": [64, 1, 1]}
//! ```
//! Any one of the three bodies will do. Files are relative to the trace. The function is called as
//! the kernel unless `entry` names another one. `scalars` lists the types (`f32`, `f64`, `i64`,
//! `bool`) as which WGSL and OpenCL C receive the task's scalars. Without a `grid` there is a work
//! item for each element of the first argument that is written.

mod wgsl;

use std::path::{Path, PathBuf};

use serde_json::Value;
use syncline_device::{Backend, Grid, Kernel, KernelSource, ScalarType};
use syncline_kernels::{
    Entry, Library, Overlap, Parameter, Signature, Tolerance, add_shared_object,
};
use syncline_tensor::Dtype;
use syncline_trace::{Place, Trace};

use crate::error::ProgramError;
use crate::program::ProgramOptions;
use crate::resolve::shape;

/// Adds the kernels that the trace brings along to `library`.
pub(crate) fn add(
    trace: &Trace,
    options: &ProgramOptions,
    library: &mut Library,
) -> Result<(), ProgramError> {
    let Some(kernels) = trace.extra.get("kernels") else { return Ok(()) };
    let place = Place::ROOT.member("kernels");
    let kernels = kernels.as_array().ok_or_else(|| shape(place, "a list of kernels", kernels))?;
    for (index, kernel) in kernels.iter().enumerate() {
        let place = Place::entry("kernels", index);
        let entry = UserKernel { kernel, place, options }.resolve()?;
        library.add(entry).map_err(|source| ProgramError::Kernel { place, source })?;
    }
    Ok(())
}

/// One entry of the list.
struct UserKernel<'a> {
    kernel: &'a Value,
    place: Place,
    options: &'a ProgramOptions,
}

/// What WGSL and OpenCL C of a kernel share.
struct Launch<'a> {
    parameters: &'a [Parameter],
    entry: &'a str,
    grid: Grid,
    scalars: Vec<ScalarType>,
}

impl UserKernel<'_> {
    fn resolve(&self) -> Result<Entry, ProgramError> {
        let name = self.text("name")?;
        let name = name.ok_or_else(|| shape(self.place, "a member `name`", self.kernel))?;
        let parameters = self.parameters()?;
        let launch = Launch {
            entry: self.text("entry")?.unwrap_or(name),
            grid: self.grid(&parameters)?,
            scalars: self.scalars()?,
            parameters: &parameters,
        };
        let mut builder = Kernel::builder(name);
        let mut has_body = false;
        if let Some(body) = self.text("cpu")? {
            let (path, symbol) = self.shared_object(body)?;
            // SAFETY: the caller who set `trust_kernels` vouches for the interface and the conduct
            // of the program's kernels.
            builder =
                unsafe { add_shared_object(builder, &path.to_string_lossy(), symbol) }.map_err(
                    |source| ProgramError::Kernel { place: self.place.member("cpu"), source },
                )?;
            has_body = true;
        }
        if let Some(file) = self.text("wgsl")? {
            builder = builder.source(self.wgsl(file, &launch)?);
            has_body = true;
        }
        if let Some(file) = self.text("opencl")? {
            builder = builder.source(self.opencl(file, &launch)?);
            has_body = true;
        }
        if !has_body {
            return Err(ProgramError::NoBody { place: self.place });
        }
        let signature = Signature {
            name: name.to_owned(),
            about: "a kernel of the program",
            parameters,
            scalars: Vec::new(),
            shapes: |_, _| Ok(()),
            operations: |views| views.iter().map(|view| view.elements()).sum(),
            overlap: Overlap::Any,
            tolerance: Tolerance::Epsilons(16),
        };
        Ok(Entry::new(signature, builder))
    }

    fn text(&self, member: &'static str) -> Result<Option<&str>, ProgramError> {
        let Some(value) = self.kernel.get(member) else { return Ok(None) };
        let text = value.as_str();
        text.map(Some).ok_or_else(|| shape(self.place.member(member), "a text", value))
    }

    fn shared_object<'b>(&self, body: &'b str) -> Result<(PathBuf, &'b str), ProgramError> {
        let (file, symbol) = body.rsplit_once(':').ok_or_else(|| {
            let expected = "a library and a function, `lib.so:name`";
            shape(self.place.member("cpu"), expected, self.kernel)
        })?;
        let path = self.options.folder.join(file);
        self.require_trust(&path)?;
        // A path without a folder would be searched in the system's libraries.
        Ok((std::path::absolute(&path).unwrap_or(path), symbol))
    }

    /// Machine code and OpenCL C reach any memory of the process, and WGSL whatever the driver lets
    /// it.
    fn require_trust(&self, path: &Path) -> Result<(), ProgramError> {
        match self.options.trust_kernels {
            true => Ok(()),
            false => {
                let library = path.display().to_string();
                Err(ProgramError::Untrusted { place: self.place, library })
            }
        }
    }

    fn read(&self, member: &'static str, file: &str) -> Result<(PathBuf, String), ProgramError> {
        let path = self.options.folder.join(file);
        let text = syncline_files::read_file(&path).map_err(|error| error.to_string());
        let text = text
            .and_then(|bytes| String::from_utf8(bytes).map_err(|_| "not UTF-8 text".to_owned()));
        match text {
            Ok(text) => Ok((path, text)),
            Err(message) => {
                let place = self.place.member(member);
                Err(ProgramError::File { place, path, message })
            }
        }
    }

    fn wgsl(&self, file: &str, launch: &Launch<'_>) -> Result<KernelSource, ProgramError> {
        let (path, text) = self.read("wgsl", file)?;
        self.require_trust(&path)?;
        let group = wgsl::check(&text, launch.entry, launch.parameters).map_err(|fault| {
            ProgramError::Source {
                place: self.place.member("wgsl"),
                path,
                line: fault.line,
                column: fault.column,
                message: fault.message,
            }
        })?;
        Ok(launch.finish(KernelSource::wgsl(text, launch.entry, group)))
    }

    /// Only a driver can tell whether OpenCL C is right; its log then names the file and the line.
    fn opencl(&self, file: &str, launch: &Launch<'_>) -> Result<KernelSource, ProgramError> {
        let (path, text) = self.read("opencl", file)?;
        self.require_trust(&path)?;
        if !text.contains(launch.entry) {
            let message = format!("no function `{}`; `entry` names another one", launch.entry);
            let place = self.place.member("opencl");
            return Err(ProgramError::Source { place, path, line: 1, column: 1, message });
        }
        let shown = path.display().to_string().replace(['\\', '"'], "/");
        let group = self.group()?;
        let text = format!("#line 1 \"{shown}\"\n{text}");
        // SAFETY: the caller who set `trust_kernels` vouches for the conduct of the program's
        // kernels.
        let source = unsafe { KernelSource::native(Backend::OpenCl, text, launch.entry, group) };
        Ok(launch.finish(source))
    }

    fn parameters(&self) -> Result<Vec<Parameter>, ProgramError> {
        let place = self.place.member("args");
        let accesses = self.kernel.get("args").and_then(Value::as_array);
        let accesses = accesses.ok_or_else(|| shape(place, "a list of accesses", self.kernel))?;
        let parameter = |(index, access): (usize, &Value)| {
            let place = place.element(index);
            let access = access.as_str().ok_or_else(|| shape(place, "an access", access))?;
            let access: syncline_tensor::Access = access.parse().map_err(|source| {
                ProgramError::Trace(syncline_trace::TraceError::Access { place, source })
            })?;
            let (reads, writes) = (access.reads(), access.writes());
            Ok(Parameter { name: "argument", reads, writes, dtypes: &Dtype::ALL, old_times: None })
        };
        accesses.iter().enumerate().map(parameter).collect()
    }

    fn scalars(&self) -> Result<Vec<ScalarType>, ProgramError> {
        let Some(list) = self.kernel.get("scalars") else { return Ok(Vec::new()) };
        let place = self.place.member("scalars");
        let types = list.as_array().ok_or_else(|| shape(place, "a list of types", list))?;
        let one = |value: &Value| match value.as_str() {
            Some("f32") => Ok(ScalarType::F32),
            Some("f64") => Ok(ScalarType::F64),
            Some("i64") => Ok(ScalarType::I64),
            Some("bool") => Ok(ScalarType::Bool),
            _ => Err(shape(place, "one of f32, f64, i64 and bool", value)),
        };
        types.iter().map(one).collect()
    }

    fn group(&self) -> Result<[u32; 3], ProgramError> {
        let Some(value) = self.kernel.get("group") else { return Ok([64, 1, 1]) };
        let size = |value: &Value| value.as_u64().filter(|size| (1..=1024).contains(size));
        let sizes: Option<Vec<u32>> = value
            .as_array()
            .and_then(|sizes| sizes.iter().map(|one| size(one).map(|size| size as u32)).collect());
        sizes.and_then(|sizes| sizes.try_into().ok()).ok_or_else(|| {
            let expected = "three sizes such as [64, 1, 1]";
            shape(self.place.member("group"), expected, value)
        })
    }

    fn grid(&self, parameters: &[Parameter]) -> Result<Grid, ProgramError> {
        let Some(value) = self.kernel.get("grid") else {
            let written = parameters.iter().position(|parameter| parameter.writes);
            return Ok(written.map_or(Grid::One, |arg| Grid::Elements { arg }));
        };
        let expected = "\"one\", {\"elements\": ARG}, {\"rows\": ARG} or {\"tiles\": ARG, \"height\": N, \"width\": N}";
        let refused = || shape(self.place.member("grid"), expected, value);
        let argument = |member: &str| {
            let arg = value.get(member)?.as_u64()? as usize;
            (arg < parameters.len()).then_some(arg)
        };
        let side = |member: &str| {
            let size = value.get(member)?.as_u64()?;
            (1..=65_536).contains(&size).then_some(size as u32)
        };
        let grid = match (argument("elements"), argument("rows"), argument("tiles")) {
            (Some(arg), None, None) => Some(Grid::Elements { arg }),
            (None, Some(arg), None) => Some(Grid::Rows { arg }),
            (None, None, Some(arg)) => side("height")
                .zip(side("width"))
                .map(|(rows, columns)| Grid::Tiles { arg, rows, columns }),
            _ => (value == "one").then_some(Grid::One),
        };
        grid.ok_or_else(refused)
    }
}

impl Launch<'_> {
    fn finish(&self, source: KernelSource) -> KernelSource {
        source.grid(self.grid).scalars(self.scalars.clone())
    }
}
