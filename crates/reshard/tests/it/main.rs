//! Integration tests of resharding.
//!
//! | file | what goes there |
//! | --- | --- |
//! | `arrays` | moving real arrays by a plan, and what each shard must then hold: the oracle of all others |
//! | `blocks` | MXFP8: quantised and restored on the way, against the whole tensor |
//! | `callbacks` | code of users that panics or calls back, claims of slots, sessions that are abandoned |
//! | `cases` | the layout pairs shipped with reference figures |
//! | `corruption` | bytes that change on the way, also by the hand of another process |
//! | `meshes` | random mesh layouts for the others to draw from |
//! | `misuse` | bindings, destinations and layouts where they do not belong; PEs that could disagree |
//! | `models` | made-up models, and the bytes of their shards |
//! | `devices` | tensors in memory of devices, moved by lanes |
//! | `hostile` | boards, records and layouts of any contents |
//! | `leftovers` | the directory of shared memory: left, foreign, full; PEs that come twice |
//! | `mesh_form` | what the mesh form compiles to |
//! | `groups` | threads that run one refit together, for the others to use |
//! | `parts` | what one PE does in refits, over whatever transport, for the others to use |
//! | `pipelines` | refits over the local transport against those arrays: random layouts, slots, targets |
//! | `processes` | groups of real processes: kill -9, absent, full, stale, a thousand refits |
//! | `properties` | inverse, composition, every part agrees with the whole |
//! | `refusals` | what must not be planned, and what the error says |
//! | `schedules` | slots, batches and rounds |
//! | `services` | single transfers, plan cache, versions, progress, cancel, and every mismatch, over threads |
//! | `threads` | what may go to other threads |
//! | `transfers_json` | the plan as JSON |

mod arrays;
mod blocks;
mod callbacks;
mod cases;
mod corruption;
mod devices;
mod groups;
mod hostile;
mod leftovers;
mod mesh_form;
mod meshes;
mod misuse;
mod models;
mod parts;
mod pipelines;
mod processes;
mod properties;
mod refusals;
mod schedules;
mod services;
mod threads;
mod transfers_json;
