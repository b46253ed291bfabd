//! Tests of the transport over MPI, with real ranks started by `mpirun`.
//!
//! | file | what goes there |
//! | --- | --- |
//! | `jobs` | starting this binary as the ranks of a job, and ending it |
//! | `ranks` | what a rank does that was started so |
//! | `one_host` | the suite of every transport on 1 to 8 ranks of this machine, by every way |
//! | `kills` | ranks that are killed or stopped |
//! | `two_hosts` | the suite of every transport between two network namespaces, over TCP |
//!
//! `arrays`, `groups`, `meshes`, `models`, `parts` and `suite` are those of the resharding crate's
//! own tests: the same refits, and the same oracle.

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
#[path = "../../../reshard/tests/it/suite/mod.rs"]
mod suite;
mod two_hosts;
