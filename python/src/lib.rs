//! `syncline._native`: what the Python package calls.
//!
//! Every part calls the crates that the `syncline` program calls. What Python sees is in the
//! package's folder `syncline`, with its documentation in `__init__.pyi`.

mod address;
mod call;
mod checkpoint;
mod errors;
mod group;
mod layout;
mod program;
mod tasks;
mod tensor;

use std::ffi::OsString;

use pyo3::prelude::*;

/// Runs the `syncline` program with `arguments`; `command` starts it again.
#[pyfunction]
fn main(py: Python<'_>, arguments: Vec<OsString>, command: Vec<OsString>) -> PyResult<u8> {
    syncline_files::set_this_program(command);
    py.detach(|| errors::contained(|| syncline_cli::run(arguments)))
}

/// The extension module.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<layout::PyLayout>()?;
    module.add_class::<layout::PyPlan>()?;
    module.add_class::<group::PyGroup>()?;
    module.add_class::<group::PyRefit>()?;
    module.add_class::<group::PyStats>()?;
    module.add_class::<group::PyCopies>()?;
    module.add_class::<checkpoint::PySummary>()?;
    module.add_class::<checkpoint::PyReport>()?;
    module.add_class::<checkpoint::PyDifference>()?;
    module.add_class::<checkpoint::PyCheckpoint>()?;
    module.add_class::<program::PyRun>()?;
    module.add_class::<tasks::PyExecutor>()?;
    module.add_class::<tasks::PyScope>()?;
    module.add_class::<tasks::PyGraph>()?;
    module.add_class::<tasks::PyCompiled>()?;
    module.add_function(wrap_pyfunction!(tasks::end_callables, module)?)?;
    module.add_function(wrap_pyfunction!(main, module)?)?;
    module.add_function(wrap_pyfunction!(layout::plan, module)?)?;
    module.add_function(wrap_pyfunction!(group::join, module)?)?;
    module.add_function(wrap_pyfunction!(checkpoint::convert, module)?)?;
    module.add_function(wrap_pyfunction!(checkpoint::verify, module)?)?;
    module.add_function(wrap_pyfunction!(checkpoint::dtypes, module)?)?;
    module.add_function(wrap_pyfunction!(checkpoint::dtype_name, module)?)?;
    module.add_function(wrap_pyfunction!(checkpoint::dtype_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(checkpoint::describe, module)?)?;
    module.add_function(wrap_pyfunction!(program::run_program, module)?)?;
    module.add_function(wrap_pyfunction!(program::devices, module)?)
}
