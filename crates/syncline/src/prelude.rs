//! What a program needs: `use syncline::prelude::*`.
//!
//! ```
//! use syncline::prelude::*;
//!
//! fn double(to: &impl Submit, x: &Tensor<f32>) -> Result<()> {
//!     for tile in x.tiles([4])?.iter() {
//!         to.task("double", tile.update()).run(|mut x| x.apply(|x| 2.0 * x))?;
//!     }
//!     Ok(())
//! }
//!
//! let executor = UnifiedExecutor::open("cpu")?;
//! let mut numbers = vec![1.0; 16];
//! executor.scope(|s| double(s, &s.borrow_mut(&mut numbers, [16])?))?;
//! let plan = executor.record(|g| double(g, &g.input("X", [16])?))?.compile()?;
//! for _ in 0..3 {
//!     plan.run(bind! { X: &mut numbers })?;
//! }
//! assert_eq!(numbers, [16.0; 16]);
//! # Ok::<(), Error>(())
//! ```

pub use syncline_device::{
    Buffer, CancelToken, Deadline, DeviceSpec, Element, Kernel, Scalar, TensorMut, TensorRef,
};
pub use syncline_front::{
    Bound, Error, ErrorKind, LiveScope, Plan, RecordTasks, Recorder, Result, RunTasks, Serial,
    Submit, Tensor, Tiles, WhenDone, bind, ops,
};
pub use syncline_runtime::UnifiedExecutor;
pub use syncline_runtime::stream::{Stream, StreamOptions};

pub use crate::OpenDevices;
