//! Errors as Python sees them: the exceptions of `syncline.errors`, with the messages of Rust.

use std::fmt::Display;

use pyo3::prelude::*;
use syncline::device::guarded;

pyo3::import_exception!(syncline.errors, SynclineError);
pyo3::import_exception!(syncline.errors, LayoutError);
pyo3::import_exception!(syncline.errors, GroupError);
pyo3::import_exception!(syncline.errors, CheckpointError);
pyo3::import_exception!(syncline.errors, ProgramError);
pyo3::import_exception!(syncline.errors, UnknownTensorError);

/// Turns errors of Rust into exceptions.
pub(crate) trait Raise<T> {
    /// An error becomes a `LayoutError`.
    fn or_layout(self) -> PyResult<T>;
    /// An error becomes a `GroupError`.
    fn or_group(self) -> PyResult<T>;
    /// An error becomes a `CheckpointError`.
    fn or_checkpoint(self) -> PyResult<T>;
    /// An error becomes a `ProgramError`.
    fn or_program(self) -> PyResult<T>;
}

impl<T, E: Display> Raise<T> for Result<T, E> {
    fn or_layout(self) -> PyResult<T> {
        self.map_err(|error| LayoutError::new_err(error.to_string()))
    }

    fn or_group(self) -> PyResult<T> {
        self.map_err(|error| GroupError::new_err(error.to_string()))
    }

    fn or_checkpoint(self) -> PyResult<T> {
        self.map_err(|error| CheckpointError::new_err(error.to_string()))
    }

    fn or_program(self) -> PyResult<T> {
        self.map_err(|error| ProgramError::new_err(error.to_string()))
    }
}

/// Calls `work`; a panic becomes an error.
pub(crate) fn contained<T>(work: impl FnOnce() -> T) -> PyResult<T> {
    guarded(work)
        .map_err(|text| SynclineError::new_err(format!("internal error, please report it: {text}")))
}
