//! Checks of a user's WGSL before anything runs: that it is valid, has the function, and takes the
//! arguments.

use naga::valid::{Capabilities, ValidationFlags, Validator};
use naga::{AddressSpace, Module, Span, StorageAccess};
use syncline_kernels::Parameter;

/// A defect of a source, and its place.
#[derive(Debug)]
pub(super) struct Fault {
    pub line: u32,
    pub column: u32,
    pub message: String,
}

/// The size of a group of the function `entry` in `text`, if all is right with it.
pub(super) fn check(text: &str, entry: &str, parameters: &[Parameter]) -> Result<[u32; 3], Fault> {
    let module = naga::front::wgsl::parse_str(text).map_err(|error| {
        let label = error.labels().next().map(|(_, label)| label.to_owned());
        let detail = label.filter(|label| !label.is_empty());
        let message = match detail {
            Some(label) => format!("{}: {label}", error.message()),
            None => error.message().to_owned(),
        };
        match error.location(text) {
            Some(at) => Fault { line: at.line_number, column: at.line_position, message },
            None => Fault { line: 1, column: 1, message },
        }
    })?;
    Validator::new(ValidationFlags::all(), Capabilities::empty()).validate(&module).map_err(
        |error| {
            let (line, column) =
                error.location(text).map_or((1, 1), |at| (at.line_number, at.line_position));
            Fault { line, column, message: with_causes(error.as_inner()) }
        },
    )?;
    check_bindings(&module, text, parameters)?;
    let function = module.entry_points.iter().find(|function| function.name == entry);
    function.map(|function| function.workgroup_size).ok_or_else(|| {
        let names: Vec<_> = module.entry_points.iter().map(|one| one.name.as_str()).collect();
        let message = format!(
            "no compute function `{entry}` (there are: {}); `entry` names another one",
            names.join(", ")
        );
        Fault { line: 1, column: 1, message }
    })
}

/// Argument `i` is binding `i` of group 0, the parameter block the one after the last.
fn check_bindings(module: &Module, text: &str, parameters: &[Parameter]) -> Result<(), Fault> {
    for (handle, variable) in module.global_variables.iter() {
        let Some(binding) = &variable.binding else { continue };
        let refused =
            |message: String| Err(at(module.global_variables.get_span(handle), text, message));
        let AddressSpace::Storage { access } = variable.space else {
            return refused(
                "arguments are `var<storage, read>` or `var<storage, read_write>`".into(),
            );
        };
        let number = binding.binding as usize;
        if binding.group != 0 || number > parameters.len() {
            return refused(format!(
                "group {}, binding {number}: the kernel has {} arguments, bindings 0 to {} of group 0, \
                 the last one for the parameters",
                binding.group,
                parameters.len(),
                parameters.len()
            ));
        }
        let may_write = parameters.get(number).is_some_and(|parameter| parameter.writes);
        if access.contains(StorageAccess::STORE) && !may_write {
            return refused(format!(
                "binding {number} is not written: declare it `var<storage, read>`"
            ));
        }
    }
    Ok(())
}

fn at(span: Span, text: &str, message: String) -> Fault {
    let place = span.location(text);
    Fault { line: place.line_number, column: place.line_position, message }
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        message.push_str(": ");
        message.push_str(&inner.to_string());
        cause = inner.source();
    }
    message
}
