//! Replay: a plan with its bodies, run again and again: on CPU devices at the cost of calling them
//! in order, on others at that of submitting what was recorded.
//!
//! A [`LoadedPlan`] has no threads: its lanes are data, which the workers of its devices run, and
//! the threads that wait for it. Between two waits a lane is a bare loop over boxed bodies. What a lane has done is made known
//! only where another waits for it: by one store, and by a wake-up if somebody sleeps. `README.md`
//! beside this file argues why no wake-up is lost.
//!
//! Once bound, a run on CPU devices allocates nothing, locks nothing and hashes nothing. Lanes of
//! other devices are in `device_lane`, where the two kinds meet is `bridge`.

mod apart;
mod balance;
mod bind;
mod body;
mod bound;
mod bridge;
mod crew;
mod device_lane;
mod device_run;
mod error;
mod executor;
mod label;
mod lane;
mod load;
mod route;
mod run;
mod shared;
mod steal;
mod stop;

pub use balance::Steal;
pub use bind::Bindings;
pub use body::{TaskArgs, TaskBody};
pub use bound::{BoundPlan, RunTicket};
pub use error::{BindError, LoadError, RunError};
pub use load::{LoadOptions, LoadedPlan};
pub use run::OpTime;

#[cfg(all(test, shuttle))]
mod shuttle_models;
