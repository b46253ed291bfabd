//! The built-in kernels: what each takes, its body on the CPU, its sources in WGSL and OpenCL C,
//! and a plain reference to check them by.
//!
//! [`Library::builtin`] has them all by name. A [`Signature`] says which arguments and scalars a
//! kernel takes; every launch on every backend is checked against it before anything runs.
//! [`mod@reference`] computes the same in double precision, without any of the code that makes the
//! bodies fast. This crate knows nothing of graphs.
//!
//! ```
//! use syncline_kernels::Library;
//!
//! let library = Library::builtin();
//! let gemm = library.get("gemm")?;
//! assert_eq!(gemm.signature.parameters.len(), 3);
//! let error = library.get("gem").unwrap_err();
//! assert!(error.to_string().contains("did you mean `gemm`?"));
//! # Ok::<(), syncline_kernels::KernelError>(())
//! ```
#![warn(unreachable_pub)]

mod compiled;
mod cpu;
mod error;
mod library;
mod opencl;
pub mod reference;
mod shared_object;
mod signature;
mod table;
mod tolerance;
mod wgsl;

pub use error::KernelError;
pub use library::{Entry, Library};
pub use shared_object::{ForeignArg, add_shared_object, load_shared_object};
pub use signature::{Overlap, Parameter, ScalarParameter, Signature};
pub use tolerance::Tolerance;
