//! Calls that a kernel refuses, before anything runs.

use syncline_tensor::{Access, Dtype};

/// Why a kernel cannot be called so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum KernelError {
    #[error("no kernel `{name}`{}; `syncline kernels` lists them", meant(.nearest))]
    Unknown { name: String, nearest: Option<String> },
    #[error("kernel `{kernel}` takes {wanted} arguments ({names}), not {given}")]
    ArgumentCount { kernel: String, wanted: usize, names: String, given: usize },
    #[error(
        "kernel `{kernel}`, argument {position} (`{name}`): {given} elements; it takes {wanted}"
    )]
    Dtype { kernel: String, position: usize, name: &'static str, given: Dtype, wanted: String },
    #[error(
        "kernel `{kernel}`, argument {position} (`{name}`): accessed as {given}, it needs {wanted}"
    )]
    Access {
        kernel: String,
        position: usize,
        name: &'static str,
        given: Access,
        wanted: &'static str,
    },
    #[error("kernel `{kernel}`: {message}")]
    Shape { kernel: String, message: String },
    #[error("kernel `{kernel}` takes {wanted} scalars ({names}), not {given}")]
    ScalarCount { kernel: String, wanted: usize, names: String, given: usize },
    #[error("kernel `{kernel}` has no scalar `{name}`{}", meant(.nearest))]
    UnknownScalar { kernel: String, name: String, nearest: Option<String> },
    #[error("a kernel named `{name}` exists already")]
    Duplicate { name: String },
    #[error("{library}: {message}")]
    SharedObject { library: String, message: String },
}

fn meant(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|name| format!(": did you mean `{name}`?")).unwrap_or_default()
}
