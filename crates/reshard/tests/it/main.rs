//! Integration tests of resharding.
//!
//! | file | what goes there |
//! | --- | --- |
//! | `blocks` | MXFP8: quantised and restored on the way, against the whole tensor |
//! | `callbacks` | code of users that panics or calls back, claims of slots, sessions that are abandoned |
//! | `corruption` | bytes that change on the way, also by the hand of another process |
//! | `misuse` | bindings, destinations and layouts where they do not belong; PEs that could disagree |
//! | `deltas` | refits of what has changed, beside full ones |
//! | `epochs` | groups of processes that go on after some were killed |
//! | `models` | made-up models, and the bytes of their shards |
//! | `devices` | tensors in memory of devices, moved by lanes |
//! | `groups` | threads that run one refit together, for the others to use |
//! | `parts` | what one PE does in refits, over whatever transport, for the others to use |
//! | `pipelines` | refits over the local transport against those arrays: random layouts, slots, targets |
//! | `processes` | groups of real processes: kill -9, absent, full, stale, a thousand refits |
//! | `services` | promises of the service that need threads: readers, large copies, transports that copy |
//! | `suite` | the one suite of every transport, which MPI's tests run too |
//! | `threads` | the suite over `local`, `shm` and `tcp`, with threads as PEs |
//!
//! `arrays` and `meshes` are those of the layout crate's own tests: the same layouts, and the same
//! oracle.

#[allow(dead_code)]
#[path = "../../../layout/tests/it/arrays.rs"]
mod arrays;
mod blocks;
mod callbacks;
mod corruption;
mod deltas;
mod devices;
mod epochs;
mod groups;
#[path = "../../../layout/tests/it/meshes.rs"]
mod meshes;
mod misuse;
mod models;
mod parts;
mod pipelines;
mod processes;
mod services;
mod suite;
mod threads;
