//! The front end: typed tensors, and tasks that run live, recorded or serially.
//!
//! A program is a function over `&impl` [`Submit`]. A [`Tensor`] says what a task touches and how;
//! its body gets typed references, and rows of them as slices. [`RunTasks::scope`] runs the
//! function live, over slices of the caller's too; [`RecordTasks::record`] makes a plan of it for
//! any devices; [`Serial`] runs it task by task; a
//! [`Stream`](syncline_runtime::stream::Stream) goes on for ever.
//!
//! ```
//! use syncline_device::cpu::CpuDevice;
//! use syncline_front::{RecordTasks, Result, RunTasks, Serial, Submit, Tensor, bind};
//! use syncline_runtime::UnifiedExecutor;
//!
//! fn product(to: &impl Submit, a: &Tensor<f64>, b: &Tensor<f64>, c: &Tensor<f64>) -> Result<()> {
//!     for (row, out) in a.tiles([1, a.size(1)])?.iter().zip(c.tiles([1, c.size(1)])?.iter()) {
//!         to.task("row", (row.read(), b.read(), out.write())).run(|(a, b, mut c)| {
//!             c.fill(0.0);
//!             for (factor, row) in a.row(0).iter().zip(b.rows()) {
//!                 c.row_mut(0).iter_mut().zip(row).for_each(|(c, b)| *c += factor * b);
//!             }
//!         })?;
//!     }
//!     Ok(())
//! }
//!
//! let mut executor = UnifiedExecutor::new();
//! executor.add_device(CpuDevice::open_default()?)?;
//! let (mut a, mut b) = (vec![1.0, 2.0, 3.0, 4.0], vec![0.0, 1.0, 1.0, 0.0]);
//! let (mut live, mut replayed) = (vec![0.0; 4], vec![0.0; 4]);
//! executor.scope(|s| {
//!     let a = s.borrow_mut(&mut a, [2, 2])?;
//!     product(s, &a, &s.borrow_mut(&mut b, [2, 2])?, &s.borrow_mut(&mut live, [2, 2])?)
//! })?;
//! let plan = executor.record(|g| {
//!     product(g, &g.input("A", [2, 2])?, &g.input("B", [2, 2])?, &g.input("C", [2, 2])?)
//! })?;
//! plan.compile()?.run(bind! { A: &mut a, B: &mut b, C: &mut replayed })?;
//! assert_eq!(live, [2.0, 1.0, 4.0, 3.0]);
//! assert_eq!(replayed, live);
//! # Ok::<(), syncline_front::Error>(())
//! ```
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod access;
mod error;
mod live;
mod on;
pub mod ops;
mod record;
mod serial;
mod submit;
mod tensor;
mod wait;

pub use access::{Arguments, Commute, Read, Reduce, Update, Write};
pub use error::{Error, ErrorKind, Result};
pub use live::{LiveScope, RunTasks};
pub use on::OnDevices;
pub use record::{Bind, Bound, Plan, RecordTasks, Recorder};
pub use serial::{Done, Serial};
pub use submit::{BodyOutcome, Submit, TaskBuilder};
pub use syncline_device::{Element, TensorMut, TensorRef};
pub use tensor::{Tensor, Tiles};
pub use wait::{TaskFuture, WhenDone};
