//! Tests of the transport over MPI, with real ranks started by `mpirun`.
//!
//! | file | what goes there |
//! | --- | --- |
//! | `jobs` | starting this binary as the ranks of a job, and ending it |
//! | `ranks` | what a rank does that was started so |
//! | `refits` | for `ranks`: refits of random layouts, slots, conversions, against arrays laid out element by element |
//! | `services` | for `ranks`: single transfers, plans, versions, progress, cancel, and every mismatch |
//! | `one_host` | the whole set on 1 to 8 ranks of this machine, by every way |
//! | `kills` | ranks that are killed or stopped |
//! | `two_hosts` | the whole set between two network namespaces, over TCP |
//!
//! `arrays`, `groups`, `meshes`, `models` and `parts` are those of the resharding crate's own
//! tests: the same refits, and the same oracle.

#![cfg(feature = "mpi")]

#[allow(dead_code)]
#[path = "../../../layout/tests/it/arrays.rs"]
mod arrays;
#[allow(dead_code)]
#[path = "../../../reshard/tests/it/groups.rs"]
mod groups;
mod jobs;
mod kills;
#[path = "../../../layout/tests/it/meshes.rs"]
mod meshes;
#[allow(dead_code)]
#[path = "../../../reshard/tests/it/models.rs"]
mod models;
mod one_host;
#[path = "../../../reshard/tests/it/parts.rs"]
mod parts;
mod ranks;
mod refits;
mod services;
mod two_hosts;
